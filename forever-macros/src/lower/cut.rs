//! Lowers cut points: each becomes one cut point, or two where it waits: one that stores what is
//! waited for, and one for its result.
use proc_macro2::Span;
use quote::{ToTokens, format_ident, quote};
use syn::spanned::Spanned;
use syn::{Expr, Ident, Macro, Pat, parse_quote, parse_quote_spanned};

use super::{Lower, parse_stmt, plain, stmt};
use crate::cut::{self, CutBody, CutKind, Each, End, Items, MacroCall, Names, Pending, Recv, SideBySide, Steps, Topic, Topics};
use crate::hir::{Bind, Cut, PENDING, Stmt, StmtKind, pending_of, with_number};
use crate::messages;
use crate::place;
use crate::scan::simple_name;
use crate::text::whole;

/// What all cut points of one macro share.
pub(super) struct Site {
    pub(super) kind: CutKind,
    pub(super) base: String,
    names: Names,
    text: String,
    pub(super) span: Span,
    pub(super) end: Span,
}

impl Lower<'_> {
    /// Lowers a cut-point macro and binds its value as `bind` says; `expr` is the macro with the
    /// `?` that belongs to it.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn cut(
        &mut self,
        expr: &Expr,
        kind: CutKind,
        mac: &Macro,
        question: Option<Span>,
        bind: Bind,
        hint: Option<String>,
        out: &mut Vec<Stmt>,
    ) {
        let span = mac.path.segments.last().map_or_else(Span::call_site, |s| s.ident.span());
        let Some((written, names)) = cut::parse(kind, mac, self.report) else { return };
        if let (MacroCall::Call(_), Bind::Let { pat, .. }) = (&written, &bind) {
            // A callee's value is kept whole, under one name.
            if simple_name(pat).is_none() || matches!(pat, Pat::Type(_)) {
                let value = self.operand(expr.clone(), out);
                return self.into_bind_plain(value, bind, out);
            }
        }
        let base = names.name.as_ref().map_or_else(|| derived_name(&written, hint), syn::LitStr::value);
        let site = Site { kind, base, names, text: text(&written, mac), span, end: mac.delimiter.span().close() };
        match written {
            MacroCall::Step(step) => {
                if step.retry.is_some() {
                    self.point(&site, CutBody::Pending(Pending::Attempts), Bind::Discard, out);
                }
                self.point(&site, CutBody::Step(step), bind, out);
            }
            MacroCall::Call(invocation) => {
                let invocation = self.operand(invocation, out);
                self.point(&site, CutBody::Call { invocation, question }, bind, out);
            }
            MacroCall::Spawn(invocation) => {
                let invocation = self.operand(invocation, out);
                self.point(&site, CutBody::Spawn(invocation), bind, out);
            }
            MacroCall::Sleep(duration) => {
                let end = End::In(self.operand(duration, out));
                self.sleep(&site, end, bind, out);
            }
            MacroCall::SleepUntil(time) => {
                let end = End::At(self.operand(time, out));
                self.sleep(&site, end, bind, out);
            }
            MacroCall::Recv(Recv { mut topic, mut timeout }) => {
                self.check_bound(&site, &bind, &topic);
                let computed = if let Topic::Computed(topic) = &mut topic { Some(topic) } else { None };
                self.operands(computed.into_iter().chain(&mut timeout).collect(), out);
                let topics = self.topics(&site, topic, "topic", out);
                let until = match timeout {
                    Some(timeout) => Some(self.pending(&site, Pending::Until(timeout), "until", out)),
                    None => {
                        self.pending_nothing(&site, out);
                        None
                    }
                };
                self.point(&site, CutBody::Recv { topics, until }, bind, out);
            }
            MacroCall::TryRecv(topic) => {
                self.check_bound(&site, &bind, &topic);
                let topics = self.one_topic(&site, topic, out);
                self.point(&site, CutBody::TryRecv(topics), bind, out);
            }
            MacroCall::Close(topic) => {
                self.check_bound(&site, &bind, &topic);
                let topics = self.one_topic(&site, topic, out);
                self.point(&site, CutBody::Pending(Pending::Closing(topics.clone())), Bind::Discard, out);
                self.point(&site, CutBody::Close(topics), bind, out);
            }
            MacroCall::Select(select) => self.select(&site, select, bind, out),
            MacroCall::Wait(handle) => {
                let handle = self.operand(handle, out);
                let awaited = self.pending(&site, Pending::Handle(handle), "handle", out);
                self.point(&site, CutBody::Wait { awaited, question }, bind, out);
            }
            MacroCall::WaitAll(handles) => {
                let handles = self.operand(handles, out);
                let awaited = self.pending(&site, Pending::Handles(handles), "handles", out);
                self.point(&site, CutBody::WaitAll { awaited }, bind, out);
            }
            MacroCall::Steps(SideBySide::Branches(branches)) => {
                self.pending_nothing(&site, out);
                self.point(&site, CutBody::Steps(Box::new(Steps::Branches(branches))), bind, out);
            }
            MacroCall::Steps(SideBySide::Each { pat, items, limit, step }) => {
                let mut items = self.operand(items, out);
                let items = match place::items(&items, &|name| self.is_borrow(name)) {
                    place::Items::Borrowed if !self.takes_copies(&mut items) => {
                        self.evaluate_once(&mut items, out);
                        self.pending_nothing(&site, out);
                        Items::Borrowed(items)
                    }
                    place::Items::Owned | place::Items::Borrowed => Items::Kept(self.pending(&site, Pending::Items(items), "items", out)),
                    place::Items::Mutable => return self.report.over(&items, messages::STEPS_MUTABLE),
                    place::Items::WithClosure => return self.report.over(&items, messages::STEPS_CLOSURE),
                };
                let each = Each { pat, items, limit, step };
                self.point(&site, CutBody::Steps(Box::new(Steps::Each(Box::new(each)))), bind, out);
            }
        }
    }

    /// Reports a message whose type nothing says.
    fn check_bound(&mut self, site: &Site, bind: &Bind, topic: &Topic) {
        if let Bind::Discard | Bind::Let { pat: Pat::Wild(_), .. } = bind {
            let why = match site.kind {
                CutKind::TryRecv => messages::tried_nowhere,
                CutKind::Close => messages::handed_over_nowhere,
                _ => messages::received_nowhere,
            };
            self.report.at(site.span, why(&topic.shown()));
        }
    }

    /// The topics of a `try_recv!` or a `close!`.
    fn one_topic(&mut self, site: &Site, mut topic: Topic, out: &mut Vec<Stmt>) -> Topics {
        if let Topic::Computed(topic) = &mut topic {
            self.operands(vec![topic], out);
        }
        self.topics(site, topic, "topic", out)
    }

    /// The topics of a `recv!`. Computed ones are put into a variable, which is kept during the
    /// wait.
    pub(super) fn topics(&mut self, site: &Site, topic: Topic, what: &str, out: &mut Vec<Stmt>) -> Topics {
        match topic {
            Topic::One(topic) => Topics::One(topic),
            Topic::Several(topics) => Topics::Several(topics),
            Topic::Computed(expr) => {
                let private = &self.private;
                let span = Span::mixed_site().located_at(expr.span());
                let topics: Expr = parse_quote_spanned!(span=> #private::IntoTopics::into_topics(#expr));
                Topics::Kept(self.kept(site, what, topics, out))
            }
        }
    }

    /// Puts a value that is needed while a wait lasts into a variable.
    pub(super) fn kept(&mut self, site: &Site, what: &str, value: Expr, out: &mut Vec<Stmt>) -> Expr {
        let (variable, bind) = self.hidden(site, what);
        let Bind::Let { attrs, pat } = bind else { unreachable!("a hidden variable is bound by a `let`") };
        let mut local = parse_stmt(parse_quote_spanned!(site.span=> let __x = #value;));
        (local.attrs, local.pat) = (attrs, pat);
        out.push(plain(syn::Stmt::Local(local)));
        variable
    }

    /// Adds one cut point.
    pub(super) fn point(&mut self, site: &Site, body: CutBody, bind: Bind, out: &mut Vec<Stmt>) {
        let cut = self.cuts.len();
        let was = site.names.was.as_ref().map(syn::LitStr::value);
        let (base, was) = match body {
            CutBody::Pending(_) => (format!("{}{PENDING}", site.base), was.as_deref().map(pending_of)),
            _ => (site.base.clone(), was),
        };
        let named_at = site.names.name.as_ref().map(syn::LitStr::span);
        let explicit = named_at.is_some();
        self.cuts.push(Cut {
            body,
            base,
            explicit,
            named_at,
            was,
            kind: site.kind,
            text: site.text.clone(),
            span: site.span,
            end: site.end,
        });
        out.push(Stmt { cuts: Some(cut..=cut), ..stmt(StmtKind::Cut { bind, cut }) });
    }

    pub(super) fn pending_nothing(&mut self, site: &Site, out: &mut Vec<Stmt>) {
        self.point(site, CutBody::Pending(Pending::Nothing), Bind::Discard, out);
    }

    /// Adds the cut point before a wait; returns the variable that holds what is waited for.
    fn pending(&mut self, site: &Site, keeps: Pending, what: &str, out: &mut Vec<Stmt>) -> Expr {
        let (variable, bind) = self.hidden(site, what);
        self.point(site, CutBody::Pending(keeps), bind, out);
        variable
    }

    /// `sleep!`: the cut point keeps the deadline. After it comes `fiber.until(end).await`, which
    /// also runs on a resume.
    fn sleep(&mut self, site: &Site, end: End, bind: Bind, out: &mut Vec<Stmt>) {
        let (variable, kept) = self.hidden(site, "until");
        self.point(site, CutBody::Sleep(end), kept, out);
        let span = Span::mixed_site().located_at(site.span);
        let wait: Expr = parse_quote_spanned!(span=> it.until(#variable).await);
        self.into_bind_plain(on_the_frame(wait), bind, out);
    }

    /// A generated variable whose stored name says what it is to the macro's.
    pub(super) fn hidden(&mut self, site: &Site, what: &str) -> (Expr, Bind) {
        let word = what.rsplit(' ').next().unwrap_or(what);
        let ident = format_ident!("__{word}_{}", self.temp(), span = site.span.resolved_at(Span::mixed_site()));
        let key = format!("{} {what}", site.base);
        let was = site.names.was.as_ref().map(|old| with_number(&old.value(), &format!(" {what}"))).map(|old| quote!(#[was = #old]));
        let local = parse_stmt(parse_quote_spanned!(site.span=> #[forever_key = #key] #was let #ident = ();));
        (parse_quote!(#ident), Bind::Let { attrs: local.attrs, pat: local.pat })
    }
}

/// `it.method()`, awaited or not, with the frame as its receiver. The frame is inserted as tokens,
/// so that it is not taken for a variable of the user's.
pub(super) fn on_the_frame(mut expr: Expr) -> Expr {
    match &mut expr {
        Expr::Await(e) => *e.base = on_the_frame((*e.base).clone()),
        Expr::MethodCall(call) => *call.receiver = Expr::Verbatim(Ident::new("fiber", Span::mixed_site()).into_token_stream()),
        _ => {}
    }
    expr
}

/// Text that distinguishes a cut point from others of the same derived name.
fn text(written: &MacroCall, mac: &Macro) -> String {
    match written {
        // The bodies of the arms are code after the cut point.
        MacroCall::Select(select) => select.arms.iter().map(|arm| arm.wait.name()).collect::<Vec<_>>().join(", "),
        _ => whole(&mac.tokens),
    }
}

/// Derived name of a cut point: the variable that it initialises, the function that it calls, or
/// its macro.
fn derived_name(written: &MacroCall, hint: Option<String>) -> String {
    let called = match written {
        MacroCall::Step(step) => cut::callee(&step.body),
        MacroCall::Call(invocation) | MacroCall::Spawn(invocation) => cut::callee(invocation),
        MacroCall::Recv(recv) => recv.topic.name(),
        MacroCall::TryRecv(topic) => topic.name().map(|name| format!("try {name}")),
        MacroCall::Close(topic) => topic.name().map(|name| format!("close {name}")),
        MacroCall::Steps(SideBySide::Each { step, .. }) => cut::callee(&step.body),
        _ => None,
    };
    let (by_variable, kind) = match written {
        MacroCall::Step(_) => (true, "step"),
        MacroCall::Call(_) => (true, "call"),
        MacroCall::Spawn(_) => (true, "spawn"),
        MacroCall::Sleep(_) | MacroCall::SleepUntil(_) => (false, "sleep"),
        MacroCall::Recv(_) => (true, "recv"),
        MacroCall::TryRecv(_) => (true, "try_recv"),
        MacroCall::Close(_) => (true, "close"),
        MacroCall::Wait(_) => (true, "wait"),
        MacroCall::WaitAll(_) => (true, "wait_all"),
        MacroCall::Steps(_) => (true, "steps"),
        MacroCall::Select(_) => (true, "select"),
    };
    hint.filter(|_| by_variable).or(called).unwrap_or_else(|| kind.to_owned())
}
