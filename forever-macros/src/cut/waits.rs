//! The arguments of the macros that spawn fibers and that wait, and the names of cut points.
use syn::parse::{ParseStream, Parser};
use syn::{Expr, ExprLit, Ident, Lit, LitStr, Macro, Token};

use super::select::option_follows;
use super::{CutKind, MacroCall, Names};
use crate::report::Report;

/// What a `recv!` waits for, as the user wrote it.
pub(crate) struct Recv {
    pub(crate) topic: Topic,
    pub(crate) timeout: Option<Expr>,
}

/// The topic or topics of a `recv!`.
pub(crate) enum Topic {
    One(LitStr),
    Several(Vec<LitStr>),
    Computed(Expr),
}

impl Topic {
    /// Name that a fixed topic gives its cut point.
    pub(crate) fn name(&self) -> Option<String> {
        let fits = |topic: &LitStr| !topic.value().trim().is_empty() && !topic.value().contains('#');
        match self {
            Topic::One(topic) if fits(topic) => Some(topic.value()),
            Topic::Several(topics) if topics.iter().all(fits) => Some(topics.iter().map(LitStr::value).collect::<Vec<_>>().join(" or ")),
            _ => None,
        }
    }

    /// As the user wrote it.
    pub(crate) fn shown(&self) -> Expr {
        match self {
            Topic::One(topic) => syn::parse_quote!(#topic),
            Topic::Several(topics) => syn::parse_quote!([#(#topics),*]),
            Topic::Computed(expr) => expr.clone(),
        }
    }
}

/// `call!(child(args))`, `spawn!(child(args))`.
pub(super) fn invocation(kind: CutKind, mac: &Macro, report: &mut Report) -> Option<(Expr, Names)> {
    match one(kind, mac, report)? {
        (call @ Expr::Call(_), names) => Some((call, names)),
        (other, _) => {
            report.over(&other, shape(kind));
            None
        }
    }
}

/// A macro with one expression between its parentheses: `wait!(["name",] handle [, was = "old"])`.
pub(super) fn one(kind: CutKind, mac: &Macro, report: &mut Report) -> Option<(Expr, Names)> {
    if mac.tokens.is_empty() {
        report.over(&mac.path, shape(kind));
        return None;
    }
    let parse = |input: ParseStream<'_>| {
        let mut names = take_name(input)?;
        if input.is_empty() {
            return Err(input.error(shape(kind)));
        }
        let value: Expr = input.parse()?;
        input.parse::<Option<Token![,]>>()?;
        while !input.is_empty() {
            if !option_follows(input, "was") {
                return Err(input.error(shape(kind)));
            }
            take_was(input, &mut names)?;
        }
        Ok((value, names))
    };
    match parse.parse2(mac.tokens.clone()) {
        Ok((value, names)) => {
            check_name(&names, report);
            Some((value, names))
        }
        Err(error) => {
            report.push(error);
            None
        }
    }
}

/// Parses `"name",` and `was = "old",` at the start.
pub(super) fn take_name(input: ParseStream<'_>) -> syn::Result<Names> {
    let mut names = Names::default();
    if input.peek(LitStr) && input.peek2(Token![,]) {
        names.name = Some(input.parse()?);
        input.parse::<Token![,]>()?;
    }
    // Something that begins like an option may be an arm of `select!` that binds `was`.
    while option_follows(input, "was") && input.peek3(LitStr) {
        take_was(input, &mut names)?;
    }
    Ok(names)
}

fn take_was(input: ParseStream<'_>, names: &mut Names) -> syn::Result<()> {
    let word: Ident = input.parse()?;
    input.parse::<Token![=]>()?;
    if !input.peek(LitStr) {
        return Err(input.error(WAS));
    }
    if names.was.replace(input.parse()?).is_some() {
        return Err(syn::Error::new(word.span(), "option `was` is given twice"));
    }
    input.parse::<Option<Token![,]>>()?;
    Ok(())
}

const WAS: &str = "`was` takes the old name as a literal: `was = \"search\"`";
const NAME: &str = "a step's name is text without `#` that is not empty";

/// Reports names that cannot be stored.
pub(super) fn check_name(names: &Names, report: &mut Report) {
    if let Some(name) = &names.name
        && (name.value().trim().is_empty() || name.value().contains('#'))
    {
        report.at(name.span(), NAME);
    }
}

/// The syntax of a macro, as an error message.
fn shape(kind: CutKind) -> &'static str {
    match kind {
        CutKind::Call => "`call!` takes the invocation of a fiber: `call!(child(args))`",
        CutKind::Spawn => "`spawn!` takes the invocation of a fiber: `spawn!(child(args))`",
        CutKind::Sleep => "`sleep!` takes how long: `sleep!(Duration::from_secs(60))`",
        CutKind::SleepUntil => "`sleep_until!` takes a time: `sleep_until!(invoice.due)`",
        CutKind::Wait => "`wait!` takes the handle of a fiber: `wait!(handle)`",
        CutKind::WaitAll => "`wait_all!` takes the handles of fibers: `wait_all!(handles)`",
        CutKind::Recv => RECV,
        CutKind::TryRecv => TRY_RECV,
        CutKind::Close => CLOSE,
        CutKind::Step | CutKind::Steps | CutKind::Select => "it takes something else",
    }
}

const RECV: &str = "`recv!` takes a topic: `recv!(\"answer\")`, `recv!(format!(\"answer-{n}\"), timeout = a_minute)`, or several: `recv!([\"yes\", \"no\"])`";
const TRY_RECV: &str =
    "`try_recv!` takes a topic: `try_recv!(\"answer\")`, `try_recv!(format!(\"answer-{n}\"))`, or several: `try_recv!([\"yes\", \"no\"])`";
const CLOSE: &str = "`close!` takes one topic: `close!(\"answer\")`, `close!(format!(\"answer-{n}\"))`";
const NO_TOPIC: &str = "`recv!` of no topic would wait for ever: name one, `recv!(\"answer\")`";
const RECV_OPTIONS: &str = "`timeout`, `name`, `was`";
const TOPIC_OPTIONS: &str = "`name`, `was`";

/// `recv!("topic", timeout = duration, name = "name", was = "old")`, and `try_recv!` and `close!`,
/// which do not wait.
pub(super) fn recv(kind: CutKind, mac: &Macro, report: &mut Report) -> Option<(MacroCall, Names)> {
    if mac.tokens.is_empty() {
        report.over(&mac.path, shape(kind));
        return None;
    }
    let waits = kind == CutKind::Recv;
    let items = match mac.parse_body_with(syn::punctuated::Punctuated::<Expr, Token![,]>::parse_terminated) {
        Ok(items) => items,
        Err(error) => {
            report.push(error);
            return None;
        }
    };
    let (mut topic, mut timeout, mut names) = (None, None, Names::default());
    for (place, item) in items.into_iter().enumerate() {
        match item {
            Expr::Assign(option) if place == 0 => report.over(&option, shape(kind)),
            first if place == 0 => topic = topic_of(kind, first, report),
            Expr::Assign(option) if waits && is_word(&option.left, "timeout") => {
                if timeout.replace(*option.right).is_some() {
                    report.over(&option.left, "option `timeout` is given twice");
                }
            }
            Expr::Assign(option) if is_word(&option.left, "name") || is_word(&option.left, "was") => {
                let is_name = is_word(&option.left, "name");
                let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = *option.right else {
                    report.over(&option.right, if is_name { "`name` takes the name as a literal: `name = \"approval\"`" } else { WAS });
                    continue;
                };
                let (slot, word) = if is_name { (&mut names.name, "name") } else { (&mut names.was, "was") };
                if slot.replace(text).is_some() {
                    report.over(&option.left, format!("option `{word}` is given twice"));
                }
            }
            other => {
                let text = crate::text::compact(&other);
                let known = if waits { RECV_OPTIONS } else { TOPIC_OPTIONS };
                report.over(&other, format!("`{text}` is no option of `{}`; known options: {known}", kind.written()));
            }
        }
    }
    check_name(&names, report);
    let topic = topic?;
    let call = match (kind, topic) {
        (CutKind::Close, Topic::Several(topics)) => {
            let first = topics.first()?;
            report.at(first.span(), CLOSE);
            return None;
        }
        (CutKind::Close, topic) => MacroCall::Close(topic),
        (CutKind::TryRecv, topic) => MacroCall::TryRecv(topic),
        (_, topic) => MacroCall::Recv(Recv { topic, timeout }),
    };
    Some((call, names))
}

/// Parses one topic or a list of them. Literal topics are known at compile time.
fn topic_of(kind: CutKind, expr: Expr, report: &mut Report) -> Option<Topic> {
    let literal = |expr: &Expr| match expr {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.clone()),
        _ => None,
    };
    if let Some(topic) = literal(&expr) {
        return Some(Topic::One(topic));
    }
    match &expr {
        Expr::Lit(_) | Expr::Closure(_) => {
            report.over(&expr, shape(kind));
            None
        }
        Expr::Array(list) if list.elems.is_empty() => {
            report.over(&expr, if kind == CutKind::Recv { NO_TOPIC } else { shape(kind) });
            None
        }
        Expr::Array(list) => {
            let fixed: Option<Vec<LitStr>> = list.elems.iter().map(literal).collect();
            Some(fixed.map_or_else(|| Topic::Computed(expr.clone()), Topic::Several))
        }
        _ => Some(Topic::Computed(expr)),
    }
}

pub(super) fn is_word(expr: &Expr, word: &str) -> bool {
    matches!(expr, Expr::Path(path) if path.path.get_ident().is_some_and(|ident: &Ident| ident == word))
}
