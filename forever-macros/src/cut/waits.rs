//! The arguments of the macros that start other fibers and that wait.
use syn::parse::{ParseStream, Parser};
use syn::{Expr, ExprLit, Ident, Lit, LitStr, Macro, Token};

use super::{CutKind, Written};
use crate::report::Report;

/// `call!(child(args))`, `spawn!(child(args))`.
pub(super) fn invocation(kind: CutKind, mac: &Macro, report: &mut Report) -> Option<Expr> {
    match one(kind, mac, report)? {
        call @ Expr::Call(_) => Some(call),
        other => {
            report.over(&other, shape(kind));
            None
        }
    }
}

/// A macro with one expression between its parentheses.
pub(super) fn one(kind: CutKind, mac: &Macro, report: &mut Report) -> Option<Expr> {
    if mac.tokens.is_empty() {
        report.over(&mac.path, shape(kind));
        return None;
    }
    let parse = |input: ParseStream<'_>| {
        let value: Expr = input.parse()?;
        if input.peek(Token![,]) && !input.peek2(syn::parse::End) {
            return Err(input.error(shape(kind)));
        }
        input.parse::<Option<Token![,]>>()?;
        Ok(value)
    };
    match parse.parse2(mac.tokens.clone()) {
        Ok(value) => Some(value),
        Err(error) => {
            report.push(error);
            None
        }
    }
}

/// What a macro takes, as a message.
fn shape(kind: CutKind) -> &'static str {
    match kind {
        CutKind::Call => "`call!` takes the invocation of a fiber: `call!(child(args))`",
        CutKind::Spawn => "`spawn!` takes the invocation of a fiber: `spawn!(child(args))`",
        CutKind::Sleep => "`sleep!` takes how long: `sleep!(Duration::from_secs(60))`",
        CutKind::SleepUntil => "`sleep_until!` takes a time: `sleep_until!(invoice.due)`",
        CutKind::Wait => "`wait!` takes the handle of a fiber: `wait!(handle)`",
        CutKind::WaitAll => "`wait_all!` takes the handles of fibers: `wait_all!(handles)`",
        CutKind::Step | CutKind::Recv | CutKind::Steps => "it takes something else",
    }
}

const RECV: &str = "`recv!` takes a topic as a literal: `recv!(\"answer\")`, `recv!(\"answer\", timeout = Duration::from_secs(60))`";

/// `recv!("topic", timeout = duration)`.
pub(super) fn recv(mac: &Macro, report: &mut Report) -> Option<Written> {
    if mac.tokens.is_empty() {
        report.over(&mac.path, RECV);
        return None;
    }
    let items = match mac.parse_body_with(syn::punctuated::Punctuated::<Expr, Token![,]>::parse_terminated) {
        Ok(items) => items,
        Err(error) => {
            report.push(error);
            return None;
        }
    };
    let (mut topic, mut timeout): (Option<LitStr>, Option<Expr>) = (None, None);
    for (place, item) in items.into_iter().enumerate() {
        match item {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) if place == 0 => topic = Some(text),
            other if place == 0 => report.over(&other, RECV),
            Expr::Assign(option) if is_word(&option.left, "timeout") => {
                if timeout.replace(*option.right).is_some() {
                    report.over(&option.left, "option `timeout` is given twice");
                }
            }
            other => {
                let text = crate::text::compact(&other);
                report.over(&other, format!("`{text}` is no option of `recv!`; known options: `timeout`"));
            }
        }
    }
    Some(Written::Recv { topic: topic?, timeout })
}

pub(super) fn is_word(expr: &Expr, word: &str) -> bool {
    matches!(expr, Expr::Path(path) if path.path.get_ident().is_some_and(|ident: &Ident| ident == word))
}
