//! The cut-point macros: their names, their arguments, and what each becomes.
//!
//! Input: the tokens between a macro's parentheses. Output: [`MacroCall`], the user's expressions
//! by their meaning. Lowering turns it into one or two cut points, with bodies of type [`CutBody`].
use proc_macro2::{Span, TokenStream, TokenTree};
use syn::{Expr, Ident, LitStr, Macro, Pat};

use crate::report::Report;

mod branches;
pub(crate) mod select;
mod step;
mod waits;

pub(crate) use branches::{Branch, SideBySide};
pub(crate) use step::{Effect, Step};
pub(crate) use waits::{Recv, Topic};

/// The cut-point macros.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CutKind {
    Step,
    Call,
    Spawn,
    Sleep,
    SleepUntil,
    Recv,
    TryRecv,
    Close,
    Wait,
    WaitAll,
    Steps,
    Select,
}

impl CutKind {
    pub(crate) const ALL: [CutKind; 12] = [
        CutKind::Step,
        CutKind::Call,
        CutKind::Spawn,
        CutKind::Sleep,
        CutKind::SleepUntil,
        CutKind::Recv,
        CutKind::TryRecv,
        CutKind::Close,
        CutKind::Wait,
        CutKind::WaitAll,
        CutKind::Steps,
        CutKind::Select,
    ];

    /// The cut-point macro that a path names, if any: `step!`, `forever::step!`,
    /// `::forever::step!`.
    pub(crate) fn of(mac: &Macro) -> Option<CutKind> {
        let segments = &mac.path.segments;
        let last = segments.last()?;
        if segments.len() > 2 || (segments.len() == 2 && segments[0].ident != "forever") {
            return None;
        }
        CutKind::named(&last.ident)
    }

    pub(crate) fn named(ident: &Ident) -> Option<CutKind> {
        CutKind::ALL.into_iter().find(|kind| ident == kind.name())
    }

    /// The macro's name.
    pub(crate) fn name(self) -> &'static str {
        self.written().trim_end_matches('!')
    }

    /// As written, for messages.
    pub(crate) fn written(self) -> &'static str {
        match self {
            CutKind::Step => "step!",
            CutKind::Call => "call!",
            CutKind::Spawn => "spawn!",
            CutKind::Sleep => "sleep!",
            CutKind::SleepUntil => "sleep_until!",
            CutKind::Recv => "recv!",
            CutKind::TryRecv => "try_recv!",
            CutKind::Close => "close!",
            CutKind::Wait => "wait!",
            CutKind::WaitAll => "wait_all!",
            CutKind::Steps => "steps!",
            CutKind::Select => "select!",
        }
    }

    /// Whether `?` after the macro is part of it. Then the value is kept without its `Result`, and
    /// an error leaves the cut point without a checkpoint.
    pub(crate) fn takes_question(self) -> bool {
        matches!(self, CutKind::Call | CutKind::Wait)
    }
}

/// The names of all cut-point macros, to be imported.
pub(crate) fn names() -> impl Iterator<Item = Ident> {
    CutKind::ALL.into_iter().map(|kind| Ident::new(kind.name(), Span::call_site()))
}

/// A cut-point macro as the user wrote it.
pub(crate) enum MacroCall {
    Step(Box<Step>),
    /// `call!(child(args))`
    Call(Expr),
    /// `spawn!(child(args))`
    Spawn(Expr),
    /// `sleep!(duration)`
    Sleep(Expr),
    /// `sleep_until!(time)`
    SleepUntil(Expr),
    /// `recv!("topic", timeout = duration)`
    Recv(Recv),
    /// `try_recv!("topic")`
    TryRecv(Topic),
    /// `close!("topic")`
    Close(Topic),
    /// `wait!(handle)`
    Wait(Expr),
    /// `wait_all!(handles)`
    WaitAll(Expr),
    Steps(SideBySide),
    Select(select::Select),
}

/// Names of a cut point: the one that it is given, and its earlier one.
#[derive(Clone, Default)]
pub(crate) struct Names {
    pub(crate) name: Option<LitStr>,
    /// `was = "old"`
    pub(crate) was: Option<LitStr>,
}

/// Parses the macro's arguments; errors go to `report`.
pub(crate) fn parse(kind: CutKind, mac: &Macro, report: &mut Report) -> Option<(MacroCall, Names)> {
    let one = |as_written: fn(Expr) -> MacroCall, (value, names)| (as_written(value), names);
    match kind {
        CutKind::Step => Step::parse(mac, report).map(|step| {
            let names = Names { name: step.name.clone(), was: step.was.clone() };
            (MacroCall::Step(Box::new(step)), names)
        }),
        CutKind::Call => waits::invocation(kind, mac, report).map(|parsed| one(MacroCall::Call, parsed)),
        CutKind::Spawn => waits::invocation(kind, mac, report).map(|parsed| one(MacroCall::Spawn, parsed)),
        CutKind::Sleep => waits::one(kind, mac, report).map(|parsed| one(MacroCall::Sleep, parsed)),
        CutKind::SleepUntil => waits::one(kind, mac, report).map(|parsed| one(MacroCall::SleepUntil, parsed)),
        CutKind::Recv | CutKind::TryRecv | CutKind::Close => waits::recv(kind, mac, report),
        CutKind::Wait => waits::one(kind, mac, report).map(|parsed| one(MacroCall::Wait, parsed)),
        CutKind::WaitAll => waits::one(kind, mac, report).map(|parsed| one(MacroCall::WaitAll, parsed)),
        CutKind::Steps => SideBySide::parse(mac, report).map(|(steps, names)| (MacroCall::Steps(steps), names)),
        CutKind::Select => select::parse(mac, report),
    }
}

/// What a cut point does.
#[derive(Clone)]
pub(crate) enum CutBody {
    Step(Box<Step>),
    /// `call!(child(args))`, with the `?` after it, if there is one.
    Call {
        invocation: Expr,
        /// Place of the `?` of `call!(..)?`: the kept value is then the callee's `Ok`.
        question: Option<Span>,
    },
    Spawn(Expr),
    /// `sleep!`: its value is its deadline. The sleep itself is plain code after it.
    Sleep(End),
    /// The checkpoint before a wait begins.
    Pending(Pending),
    /// `recv!`, with the variable that holds its deadline if it has a timeout.
    Recv {
        topics: Topics,
        until: Option<Expr>,
    },
    /// `try_recv!`
    TryRecv(Topics),
    /// `close!`, whose topic is closed by the checkpoint before it.
    Close(Topics),
    /// `wait!`, with the variable that holds the handle, and the `?` after it, if there is one.
    Wait {
        awaited: Expr,
        question: Option<Span>,
    },
    /// `wait_all!`, with the variable that holds the handles.
    WaitAll {
        awaited: Expr,
    },
    Steps(Box<Steps>),
    /// `select!`: the index and the value of the chosen arm. The arms' bodies follow as a `match`.
    Select(Vec<Awaited>),
}

impl CutBody {
    /// Whether the fiber may leave memory after it and before the next cut point, or during it.
    pub(crate) fn may_leave_memory(&self) -> bool {
        match self {
            CutBody::Sleep(_) | CutBody::Call { .. } => true,
            CutBody::Pending(pending) => !matches!(pending, Pending::Closing(_)),
            _ => false,
        }
    }
}

/// The topics of a `recv!`.
#[derive(Clone)]
pub(crate) enum Topics {
    One(LitStr),
    Several(Vec<LitStr>),
    /// The variable that holds computed topics.
    Kept(Expr),
}

/// What an arm of a `select!` waits for, with the variables that hold what was computed when the
/// wait began.
#[derive(Clone)]
pub(crate) struct Awaited {
    /// Name of the arm in a snapshot.
    pub(crate) name: String,
    /// The name without its number.
    pub(crate) base: String,
    /// Text of the arm.
    pub(crate) text: String,
    pub(crate) what: AwaitedEvent,
    /// Place of the wait's macro.
    pub(crate) span: Span,
}

/// The event that makes an arm of a `select!` ready.
#[derive(Clone)]
pub(crate) enum AwaitedEvent {
    Message { topics: Topics, until: Option<Expr> },
    Time(Expr),
    End(Expr),
}

/// The deadline of a `sleep!`.
#[derive(Clone)]
pub(crate) enum End {
    In(Expr),
    At(Expr),
}

/// What is stored before a wait begins, besides the locals.
#[derive(Clone)]
pub(crate) enum Pending {
    Nothing,
    /// The timeout of a `recv!`, which becomes its deadline.
    Until(Expr),
    Handle(Expr),
    Handles(Expr),
    /// The items of a `steps!(for ..)`.
    Items(Expr),
    /// The topic of a `close!`, which is closed with it.
    Closing(Topics),
    /// Nothing, and only if the step leaves memory between two attempts.
    Attempts,
}

/// The concurrent branches of a `steps!`.
#[derive(Clone)]
pub(crate) enum Steps {
    /// `steps!(a, b, ..)`
    Branches(Vec<Branch>),
    /// `steps!(for pat in items, limit = .., option, body)`
    Each(Box<Each>),
}

/// One body, run for each item.
#[derive(Clone)]
pub(crate) struct Each {
    pub(crate) pat: Pat,
    pub(crate) items: Items,
    pub(crate) limit: Option<Expr>,
    pub(crate) step: Step,
}

/// Source of the items.
#[derive(Clone)]
pub(crate) enum Items {
    /// The variable that holds them from the start of the wait.
    Kept(Expr),
    /// A borrow that is taken again.
    Borrowed(Expr),
}

/// The function or method that an expression calls: the default name of a step.
pub(crate) fn callee(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Await(e) => callee(&e.base),
        Expr::Try(e) => callee(&e.expr),
        Expr::Paren(e) => callee(&e.expr),
        Expr::Group(e) => callee(&e.expr),
        Expr::Reference(e) => callee(&e.expr),
        Expr::Block(e) => match e.block.stmts.last() {
            Some(syn::Stmt::Expr(tail, None)) if e.block.stmts.len() == 1 => callee(tail),
            _ => None,
        },
        Expr::MethodCall(e) => match e.method.to_string().as_str() {
            // Adaptors of the value say nothing about the step.
            "unwrap" | "expect" | "map_err" | "unwrap_or_default" | "clone" | "to_owned" | "to_string" | "into" | "context"
            | "with_context" => callee(&e.receiver).or_else(|| Some(e.method.to_string())),
            name => Some(name.to_owned()),
        },
        Expr::Call(e) => match &*e.func {
            Expr::Path(path) => {
                let ident = &path.path.segments.last()?.ident;
                match (ident.to_string().as_str(), e.args.first()) {
                    ("Ok" | "Some", Some(inner)) => callee(inner),
                    (name, _) => Some(name.trim_start_matches("r#").to_owned()),
                }
            }
            _ => None,
        },
        _ => None,
    }
}

/// Finds the first cut-point macro in tokens, and its place.
pub(crate) fn find_in_tokens(tokens: &TokenStream) -> Option<(CutKind, Span)> {
    let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
    tokens.iter().enumerate().find_map(|(i, token)| match token {
        TokenTree::Ident(ident) => {
            let bang = matches!(tokens.get(i + 1), Some(TokenTree::Punct(p)) if p.as_char() == '!');
            let arguments = matches!(tokens.get(i + 2), Some(TokenTree::Group(_)));
            CutKind::named(ident).filter(|_| bang && arguments).map(|kind| (kind, ident.span()))
        }
        TokenTree::Group(group) => find_in_tokens(&group.stream()),
        _ => None,
    })
}
