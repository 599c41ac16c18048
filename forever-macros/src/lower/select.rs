//! Lowers `select!` to one cut point that chooses the arm, and a `match` whose arms are code of the
//! function.
//!
//! What the arms wait for is evaluated first, in source order: deadlines, computed topics, handles.
//! The cut point before the wait keeps these as variables, so that a fiber that wakes up or is
//! resumed continues to wait for the same.
use proc_macro2::Span;
use quote::format_ident;
use syn::{Expr, Pat, parse_quote, parse_quote_spanned};

use super::cut::{Site, on_the_frame};
use super::{Lower, parse_stmt};
use crate::cut::select::{Arm, Select, Wait};
use crate::cut::{Awaited, AwaitedEvent, CutBody, Recv, Topic};
use crate::hir::{Bind, Stmt};
use crate::messages;

impl Lower<'_> {
    pub(super) fn select(&mut self, site: &Site, mut select: Select, bind: Bind, out: &mut Vec<Stmt>) {
        let count = select.arms.len();
        // Named from the source, before operands are replaced by variables.
        let names = names(&select.arms);
        let bases: Vec<String> = select.arms.iter().map(|arm| arm.wait.name()).collect();
        self.operands(select.arms.iter_mut().flat_map(|arm| operands(&mut arm.wait)).collect(), out);
        let (mut awaited, mut arms) = (Vec::new(), Vec::<syn::Arm>::new());
        for (place, ((arm, name), base)) in select.arms.into_iter().zip(names).zip(bases).enumerate() {
            let Arm { pat, ty, wait, question, span, body, text } = arm;
            if let (Wait::Recv(recv), Pat::Wild(_), None) = (&wait, &pat, &ty) {
                self.report.at(span, messages::received_nowhere_in_an_arm(&recv.topic.shown()));
            }
            let awaited_here = Awaited { what: self.awaited(site, wait, &name, span, out), name, base, text, span };
            let is_message = awaited_here.is_message();
            awaited.push(awaited_here);
            arms.push(self.arm_of(place, count, is_message, pat, ty, question, span, body));
        }
        self.pending_nothing(site, out);
        let (chosen, kept) = self.hidden(site, "chosen");
        self.point(site, CutBody::Select(awaited), kept, out);
        let span = Span::mixed_site().located_at(site.span);
        let arms: syn::ExprMatch = parse_quote_spanned!(span=> match #chosen.chosen { #(#arms)* });
        self.match_(arms, bind, out);
    }

    /// Evaluates what an arm waits for.
    fn awaited(&mut self, site: &Site, wait: Wait, name: &str, span: Span, out: &mut Vec<Stmt>) -> AwaitedEvent {
        let span = Span::mixed_site().located_at(span);
        match wait {
            Wait::Recv(Recv { topic, timeout }) => {
                let topics = self.topics(site, topic, &format!("{name} topic"), out);
                let until = timeout.map(|timeout| {
                    let until = parse_quote_spanned!(span=> it.deadline_in(#timeout));
                    self.kept(site, &format!("{name} until"), on_the_frame(until), out)
                });
                AwaitedEvent::Message { topics, until }
            }
            Wait::Sleep(duration) => {
                let until = parse_quote_spanned!(span=> it.deadline_in(#duration));
                AwaitedEvent::Time(self.kept(site, &format!("{name} until"), on_the_frame(until), out))
            }
            Wait::SleepUntil(time) => {
                let until = parse_quote_spanned!(span=> it.deadline_at(#time));
                AwaitedEvent::Time(self.kept(site, &format!("{name} until"), on_the_frame(until), out))
            }
            Wait::End(handle) => {
                let handle = parse_quote_spanned!(span=> it.awaited(#handle));
                AwaitedEvent::End(self.kept(site, &format!("{name} handle"), on_the_frame(handle), out))
            }
        }
    }

    /// `Later(This(value)) => { let PAT = value; BODY }`
    #[allow(clippy::too_many_arguments)]
    fn arm_of(
        &mut self,
        place: usize,
        count: usize,
        is_message: bool,
        pat: Pat,
        ty: Option<syn::Type>,
        question: Option<Span>,
        span: Span,
        body: Expr,
    ) -> syn::Arm {
        let span = Span::mixed_site().located_at(span);
        let private = &self.private;
        let value = format_ident!("__value_of_arm_{}", place + 1, span = span);
        let is_bound = !matches!(pat, Pat::Wild(_)) || ty.is_some() || question.is_some();
        let inner: Pat = if is_bound { parse_quote!(#value) } else { parse_quote!(_) };
        let last = place + 1 == count;
        let mut matched: Pat = if last {
            parse_quote_spanned!(span=> #private::Last(#inner))
        } else {
            parse_quote_spanned!(span=> #private::Either::This(#inner))
        };
        for _ in 0..place {
            matched = parse_quote_spanned!(span=> #private::Either::Later(#matched));
        }
        let mut stmts = Vec::new();
        if is_bound {
            let question = question.map(|span| syn::Token![?](span));
            let ty = ty.map(|ty| quote::quote!(: #ty));
            let taken = is_message.then(|| quote::quote_spanned!(span=> .taken()));
            stmts.push(syn::Stmt::Local(parse_stmt(parse_quote_spanned!(span=> let #pat #ty = #value #taken #question;))));
        }
        match body {
            Expr::Block(e) if e.label.is_none() && e.attrs.is_empty() => stmts.extend(e.block.stmts),
            other => stmts.push(syn::Stmt::Expr(other, None)),
        }
        parse_quote_spanned!(span=> #matched => { #(#stmts)* })
    }
}

/// The expressions that are evaluated when the wait begins.
fn operands(wait: &mut Wait) -> Vec<&mut Expr> {
    match wait {
        Wait::Recv(Recv { topic, timeout }) => {
            let topic = if let Topic::Computed(topic) = topic { Some(topic) } else { None };
            topic.into_iter().chain(timeout).collect()
        }
        Wait::Sleep(value) | Wait::SleepUntil(value) | Wait::End(value) => vec![value],
    }
}

/// Names of the arms in snapshots; several of one name are numbered.
fn names(arms: &[Arm]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for arm in arms {
        let base = arm.wait.name();
        let mut name = base.clone();
        let mut n = 1;
        while names.contains(&name) {
            n += 1;
            name = format!("{base} {n}");
        }
        names.push(name);
    }
    names
}
