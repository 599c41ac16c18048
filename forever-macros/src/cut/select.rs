//! The arms of `select!`: `select! { ["name",] [was = "old",] (PAT [: TYPE] = WAIT => BODY,)* }`.
use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::spanned::Spanned;
use syn::{Expr, Ident, Macro, Pat, Token, Type, token};

use super::waits::{Recv, take_name};
use super::{CutKind, MacroCall, Names};
use crate::report::Report;
use crate::scan::as_cut;
use crate::text::{compact, whole};

/// A `select!` as the user wrote it.
pub(crate) struct Select {
    pub(crate) arms: Vec<Arm>,
}

/// One arm.
pub(crate) struct Arm {
    pub(crate) pat: Pat,
    pub(crate) ty: Option<Type>,
    pub(crate) wait: Wait,
    /// Place of the `?` of `wait!(..)?`.
    pub(crate) question: Option<Span>,
    /// Place of the wait's macro.
    pub(crate) span: Span,
    pub(crate) body: Expr,
    /// Text of the wait and the body.
    pub(crate) text: String,
}

/// What an arm waits for.
pub(crate) enum Wait {
    Recv(Recv),
    Sleep(Expr),
    SleepUntil(Expr),
    End(Expr),
}

impl Wait {
    /// Name of the arm in a snapshot, without its number.
    pub(crate) fn name(&self) -> String {
        match self {
            Wait::Recv(recv) => recv.topic.name().unwrap_or_else(|| format!("recv {}", compact(&recv.topic.shown()))),
            Wait::Sleep(_) | Wait::SleepUntil(_) => "sleep".to_owned(),
            Wait::End(handle) => format!("wait {}", compact(handle).trim_start_matches('&')),
        }
    }
}

const SHAPE: &str = "`select!` takes what to wait for, and what to do then: `select! { answer = recv!(\"answer\") => answer, _ = sleep!(a_day) => return Ok(()) }`";
const ARM: &str = "an arm of `select!` waits for a `recv!`, `sleep!`, `sleep_until!` or `wait!`: make the work a `#[fiber]` and `spawn!` it before, then `done = wait!(&handle) => ..`";
const NO_NAME: &str = "what an arm of `select!` waits for has no name of its own: name the `select!`, `select! { \"decision\", .. }`";
const NO_GUARD: &str = "an arm of `select!` has no `if`: put the `select!` that lacks the arm into the other branch of an `if`";
const COMMA: &str = "expected a comma between the arms of `select!`";

/// Parses the arms; errors go to `report`.
pub(super) fn parse(mac: &Macro, report: &mut Report) -> Option<(MacroCall, Names)> {
    let (names, arms) = match written.parse2(mac.tokens.clone()) {
        Ok(parsed) => parsed,
        Err(error) => {
            report.push(error);
            return None;
        }
    };
    if arms.is_empty() {
        report.over(&mac.path, SHAPE);
        return None;
    }
    let mut complete = Vec::new();
    let count = arms.len();
    for (pat, ty, source, body) in arms {
        if let Some((wait, question, span)) = waited_for(&source, report) {
            let text = format!("{} => {}", whole(&source), whole(&body));
            complete.push(Arm { pat, ty, wait, question, span, body, text });
        }
    }
    (complete.len() == count).then_some((MacroCall::Select(Select { arms: complete }), names))
}

/// The pattern and the body of each arm; none where an error is reported by [`parse`].
pub(crate) fn bodies(mac: &Macro) -> impl Iterator<Item = (Pat, Expr)> {
    let (_, arms) = written.parse2(mac.tokens.clone()).unwrap_or_default();
    arms.into_iter().map(|(pat, _, _, body)| (pat, body))
}

fn written(input: ParseStream<'_>) -> syn::Result<(Names, Vec<Parts>)> {
    let (names, mut arms) = (take_name(input)?, Vec::new());
    while !input.is_empty() {
        arms.push(arm(input)?);
    }
    Ok((names, arms))
}

type Parts = (Pat, Option<Type>, Expr, Expr);

fn arm(input: ParseStream<'_>) -> syn::Result<Parts> {
    let first = input.span();
    let pat = Pat::parse_multi_with_leading_vert(input).map_err(|_| syn::Error::new(first, SHAPE))?;
    let ty = match input.parse::<Option<Token![:]>>()? {
        Some(_) => Some(input.parse()?),
        None => None,
    };
    if !input.peek(Token![=]) || input.peek(Token![=>]) {
        return Err(syn::Error::new(first, SHAPE));
    }
    input.parse::<Token![=]>()?;
    let source: Expr = input.parse()?;
    if input.peek(Token![,]) && input.peek2(Token![if]) || input.peek(Token![if]) {
        return Err(syn::Error::new(input.span(), NO_GUARD));
    }
    if !input.peek(Token![=>]) {
        return Err(syn::Error::new(source.span(), SHAPE));
    }
    input.parse::<Token![=>]>()?;
    let block = input.peek(token::Brace);
    let body = Expr::parse_with_earlier_boundary_rule(input)?;
    let ends_itself =
        block || matches!(body, Expr::If(_) | Expr::Match(_) | Expr::Loop(_) | Expr::While(_) | Expr::ForLoop(_) | Expr::Unsafe(_));
    if input.parse::<Option<Token![,]>>()?.is_none() && !ends_itself && !input.is_empty() {
        return Err(input.error(COMMA));
    }
    Ok((pat, ty, source, body))
}

/// What the expression of an arm waits for, with its `?` and its place.
fn waited_for(source: &Expr, report: &mut Report) -> Option<(Wait, Option<Span>, Span)> {
    let Some((kind, mac, question)) = as_cut(source) else {
        report.over(source, ARM);
        return None;
    };
    let span = mac.path.segments.last().map_or_else(Span::call_site, |segment| segment.ident.span());
    if !matches!(kind, CutKind::Recv | CutKind::Sleep | CutKind::SleepUntil | CutKind::Wait) {
        report.at(span, ARM);
        return None;
    }
    let (written, names) = super::parse(kind, mac, report)?;
    for text in [names.name, names.was].into_iter().flatten() {
        report.at(text.span(), NO_NAME);
    }
    let wait = match written {
        MacroCall::Recv(recv) => Wait::Recv(recv),
        MacroCall::Sleep(duration) => Wait::Sleep(duration),
        MacroCall::SleepUntil(time) => Wait::SleepUntil(time),
        MacroCall::Wait(handle) => Wait::End(handle),
        _ => return None,
    };
    Some((wait, question, span))
}

/// Whether an option of this name follows.
pub(super) fn option_follows(input: ParseStream<'_>, word: &str) -> bool {
    let fork = input.fork();
    let named = fork.call(Ident::parse_any).is_ok_and(|ident| ident == word);
    named && fork.peek(Token![=]) && !fork.peek(Token![==]) && !fork.peek(Token![=>])
}
