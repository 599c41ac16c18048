//! Cut points: what the user wrote becomes one cut point, or one that keeps what is waited for and one with what came of it.
use proc_macro2::Span;
use quote::{ToTokens, format_ident};
use syn::{Expr, Ident, Macro, Pat, parse_quote, parse_quote_spanned};

use super::{Lower, parse_stmt, stmt};
use crate::cut::{self, CutBody, CutKind, Each, End, Items, Pending, SideBySide, Steps, Written};
use crate::messages as say;
use crate::place;
use crate::scan::simple_name;
use crate::text::whole;
use crate::tree::{Bind, Cut, PENDING, Stmt, StmtKind};

/// What all cut points of one macro share.
struct Site {
    kind: CutKind,
    base: String,
    explicit: bool,
    text: String,
    span: Span,
}

impl Lower<'_> {
    /// Lowers a cut-point macro and puts its value where `bind` says; `expr` is the macro with what belongs to it.
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
        let Some(written) = cut::parse(kind, mac, self.report) else { return };
        if let (Written::Call(_), Bind::Let { pat, .. }) = (&written, &bind) {
            // A callee's value is kept whole, under one name.
            if simple_name(pat).is_none() || matches!(pat, Pat::Type(_)) {
                let value = self.operand(expr.clone(), out);
                return self.into_bind_plain(value, bind, out);
            }
        }
        let (base, explicit) = name(&written, hint);
        let site = Site { kind, base, explicit, text: whole(&mac.tokens), span };
        match written {
            Written::Step(step) => self.point(&site, CutBody::Step(step), bind, out),
            Written::Call(invocation) => {
                let invocation = self.operand(invocation, out);
                self.point(&site, CutBody::Call { invocation, question }, bind, out);
            }
            Written::Spawn(invocation) => {
                let invocation = self.operand(invocation, out);
                self.point(&site, CutBody::Spawn(invocation), bind, out);
            }
            Written::Sleep(duration) => {
                let end = End::In(self.operand(duration, out));
                self.sleep(&site, end, bind, out);
            }
            Written::SleepUntil(time) => {
                let end = End::At(self.operand(time, out));
                self.sleep(&site, end, bind, out);
            }
            Written::Recv { topic, timeout } => {
                if let Bind::Discard | Bind::Let { pat: Pat::Wild(_), .. } = bind {
                    self.report.at(span, say::received_nowhere(&topic.value()));
                }
                let until = match timeout {
                    Some(timeout) => {
                        let timeout = self.operand(timeout, out);
                        Some(self.pending(&site, Pending::Until(timeout), "until", out))
                    }
                    None => {
                        self.pending_nothing(&site, out);
                        None
                    }
                };
                self.point(&site, CutBody::Recv { topic, until }, bind, out);
            }
            Written::Wait(handle) => {
                let handle = self.operand(handle, out);
                let awaited = self.pending(&site, Pending::Handle(handle), "handle", out);
                self.point(&site, CutBody::Wait { awaited, question }, bind, out);
            }
            Written::WaitAll(handles) => {
                let handles = self.operand(handles, out);
                let awaited = self.pending(&site, Pending::Handles(handles), "handles", out);
                self.point(&site, CutBody::WaitAll { awaited }, bind, out);
            }
            Written::Steps(SideBySide::Branches(branches)) => {
                self.pending_nothing(&site, out);
                self.point(&site, CutBody::Steps(Box::new(Steps::Branches(branches))), bind, out);
            }
            Written::Steps(SideBySide::Each { pat, items, limit, step }) => {
                let mut items = self.operand(items, out);
                let items = match place::items(&items, &|name| self.is_borrow(name)) {
                    place::Items::Borrowed if !self.takes_copies(&mut items) => {
                        self.evaluate_once(&mut items, out);
                        self.pending_nothing(&site, out);
                        Items::Borrowed(items)
                    }
                    place::Items::Owned | place::Items::Borrowed => Items::Kept(self.pending(&site, Pending::Items(items), "items", out)),
                    place::Items::Mutable => return self.report.over(&items, say::STEPS_MUTABLE),
                    place::Items::WithClosure => return self.report.over(&items, say::STEPS_CLOSURE),
                };
                let each = Each { pat, items, limit, step };
                self.point(&site, CutBody::Steps(Box::new(Steps::Each(Box::new(each)))), bind, out);
            }
        }
    }

    /// One cut point.
    fn point(&mut self, site: &Site, body: CutBody, bind: Bind, out: &mut Vec<Stmt>) {
        let cut = self.cuts.len();
        let (base, explicit) = match body {
            CutBody::Pending(_) => (format!("{}{PENDING}", site.base), false),
            _ => (site.base.clone(), site.explicit),
        };
        self.cuts.push(Cut { body, base, explicit, kind: site.kind, text: site.text.clone(), span: site.span });
        out.push(Stmt { cuts: Some(cut..=cut), ..stmt(StmtKind::Cut { bind, cut }) });
    }

    fn pending_nothing(&mut self, site: &Site, out: &mut Vec<Stmt>) {
        self.point(site, CutBody::Pending(Pending::Nothing), Bind::Discard, out);
    }

    /// The cut point before a wait; gives back the variable that holds what is waited for.
    fn pending(&mut self, site: &Site, keeps: Pending, what: &str, out: &mut Vec<Stmt>) -> Expr {
        let (variable, bind) = self.hidden(site, what);
        self.point(site, CutBody::Pending(keeps), bind, out);
        variable
    }

    /// `sleep!`: what is kept is when it ends, and behind that stands `fiber.until(end).await`, which runs also after a resume.
    fn sleep(&mut self, site: &Site, end: End, bind: Bind, out: &mut Vec<Stmt>) {
        let (variable, kept) = self.hidden(site, "until");
        self.point(site, CutBody::Sleep(end), kept, out);
        // As tokens, so that the frame is not taken for a variable of the user's.
        let fiber = Ident::new("fiber", Span::mixed_site()).into_token_stream();
        let fiber = Expr::Verbatim(fiber);
        let span = Span::mixed_site().located_at(site.span);
        let wait: Expr = parse_quote_spanned!(span=> it.until(#variable).await);
        self.into_bind_plain(with_receiver(wait, fiber), bind, out);
    }

    /// A variable of ours whose stored name says what it is to the macro's.
    fn hidden(&mut self, site: &Site, what: &str) -> (Expr, Bind) {
        let ident = format_ident!("__{what}_{}", self.temp(), span = site.span.resolved_at(Span::mixed_site()));
        let key = format!("{} {what}", site.base);
        let local = parse_stmt(parse_quote_spanned!(site.span=> #[forever_key = #key] let #ident = ();));
        (parse_quote!(#ident), Bind::Let { attrs: local.attrs, pat: local.pat })
    }
}

/// `it.method().await` with another receiver.
fn with_receiver(expr: Expr, receiver: Expr) -> Expr {
    match expr {
        Expr::Await(mut e) => {
            if let Expr::MethodCall(call) = &mut *e.base {
                *call.receiver = receiver;
            }
            Expr::Await(e)
        }
        other => other,
    }
}

/// The name of a cut point: its literal, the variable it initialises, what it calls, or what it is.
fn name(written: &Written, hint: Option<String>) -> (String, bool) {
    let derived = |called: Option<String>, kind: &str| (hint.clone().or(called).unwrap_or_else(|| kind.to_owned()), false);
    match written {
        Written::Step(step) => match &step.name {
            Some(name) => (name.value(), true),
            None => derived(cut::callee(&step.body), "step"),
        },
        Written::Call(invocation) => derived(cut::callee(invocation), "call"),
        Written::Spawn(invocation) => derived(cut::callee(invocation), "spawn"),
        Written::Sleep(_) | Written::SleepUntil(_) => ("sleep".to_owned(), false),
        Written::Recv { topic, .. } => {
            let topic = topic.value();
            derived((!topic.trim().is_empty() && !topic.contains('#')).then_some(topic), "recv")
        }
        Written::Wait(_) => derived(None, "wait"),
        Written::WaitAll(_) => derived(None, "wait_all"),
        Written::Steps(SideBySide::Branches(_)) => derived(None, "steps"),
        Written::Steps(SideBySide::Each { step, .. }) => match &step.name {
            Some(name) => (name.value(), true),
            None => derived(cut::callee(&step.body), "steps"),
        },
    }
}
