//! Code of cut points that are neither steps nor calls: spawn a fiber, store what is waited for,
//! wait.
use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote_spanned};
use syn::Expr;
use syn::spanned::Spanned;

use super::Emit;
use crate::cut::{Awaited, AwaitedEvent, CutBody, End, Pending, Topics};
use crate::hir::Stmt;
use crate::ids::CutId;

impl Emit<'_> {
    /// The body of a cut point as an expression; empty if only the locals are kept.
    pub(super) fn body(&mut self, plain: &[Stmt], stmt: &Stmt, cut: CutId, body: &CutBody) -> TokenStream {
        let span = self.cut_span(cut);
        let fiber = self.fiber_at(span);
        self.check_hidden_jump(stmt);
        match body {
            CutBody::Step(_) | CutBody::Call { .. } | CutBody::Pending(Pending::Nothing | Pending::Attempts) => TokenStream::new(),
            CutBody::Spawn(invocation) => {
                let invocation = self.rewrite_expr(invocation);
                let it = Ident::new("invocation", Span::mixed_site().located_at(invocation.span()));
                quote_spanned!(span=> { let #it = #invocation; #fiber.spawn(#it).await })
            }
            CutBody::Sleep(End::In(duration)) => self.given(span, duration, |it| quote_spanned!(span=> #fiber.deadline_in(#it))),
            CutBody::Sleep(End::At(time)) => self.given(span, time, |it| quote_spanned!(span=> #fiber.deadline_at(#it))),
            CutBody::Pending(Pending::Until(timeout)) => {
                self.given(span, timeout, |it| quote_spanned!(span=> #fiber.deadline_of(::core::option::Option::Some(#it))))
            }
            CutBody::Pending(Pending::Handle(handle)) => self.given(span, handle, |it| quote_spanned!(span=> #fiber.awaited(#it))),
            CutBody::Pending(Pending::Handles(handles)) => self.given(span, handles, |it| quote_spanned!(span=> #fiber.all_awaited(#it))),
            CutBody::Pending(Pending::Items(items)) => {
                let (private, items) = (self.cx.private, self.rewrite_expr(items));
                quote_spanned!(span=> #private::collected(#items))
            }
            CutBody::Pending(Pending::Closing(topics)) => {
                let topics = self.topics(span, topics);
                quote_spanned!(span=> #fiber.close_topic(&#topics))
            }
            CutBody::TryRecv(topics) => {
                let (topics, codec) = (self.topics(span, topics), self.codec(cut));
                quote_spanned!(span=> #fiber.try_receive(#topics, #codec).await)
            }
            CutBody::Close(topics) => {
                let (topics, codec) = (self.topics(span, topics), self.codec(cut));
                quote_spanned!(span=> #fiber.take_all(#topics, #codec).await)
            }
            CutBody::Recv { topics, until } => {
                let codec = self.codec(cut);
                let several = self.topics(span, topics);
                match (topics, until) {
                    (Topics::One(topic), None) => quote_spanned!(span=> #fiber.receive(#topic, #codec).await),
                    (Topics::One(topic), Some(until)) => quote_spanned!(span=> #fiber.receive_until(#topic, #until, #codec).await),
                    (_, None) => quote_spanned!(span=> #fiber.receive_on(#several, #codec).await),
                    (_, Some(until)) => quote_spanned!(span=> #fiber.receive_on_until(#several, #until, #codec).await),
                }
            }
            CutBody::Select(arms) => self.select(cut, arms),
            CutBody::Wait { awaited, question } => {
                let question = question.map(|span| syn::Token![?](span));
                quote_spanned!(span=> #fiber.join(&#awaited).await #question)
            }
            CutBody::WaitAll { awaited } => quote_spanned!(span=> #fiber.join_all(&#awaited).await),
            CutBody::Steps(steps) => self.steps(plain, stmt, cut, steps),
        }
    }

    /// The topics of a `recv!` as a value.
    fn topics(&self, span: Span, topics: &Topics) -> TokenStream {
        let private = self.cx.private;
        match topics {
            Topics::One(topic) => quote_spanned!(span=> #private::FixedTopic(#topic)),
            Topics::Several(topics) => quote_spanned!(span=> #private::FixedTopics(&[#(#topics),*])),
            Topics::Kept(topics) => quote_spanned!(span=> ::core::clone::Clone::clone(&#topics)),
        }
    }

    /// The first arm of a `select!` that is ready.
    fn select(&mut self, cut: CutId, arms: &[Awaited]) -> TokenStream {
        let (span, private) = (self.cut_span(cut), self.cx.private);
        let fiber = self.fiber_at(span);
        let names = format_ident!("Arms{}", cut, span = Span::mixed_site());
        let texts = arms.iter().map(|arm| &arm.name);
        self.items.extend(emit! {
            struct #names;
            impl #private::ArmNames for #names {
                const NAMES: &'static [&'static str] = &[#(#texts),*];
            }
        });
        // Each arm contains the ones after it.
        let nested = arms.iter().rev().fold(TokenStream::new(), |later, arm| {
            let span = Span::mixed_site().located_at(arm.span);
            let arm = match &arm.what {
                AwaitedEvent::Message { topics, until } => {
                    let (topics, codec) = (self.topics(span, topics), self.codec_at(cut, span));
                    match until {
                        None => quote_spanned!(span=> #private::on_message(#topics, #codec)),
                        Some(until) => quote_spanned!(span=> #private::on_message_until(#topics, #until, #codec)),
                    }
                }
                AwaitedEvent::Time(until) => quote_spanned!(span=> #private::on_time(#until)),
                AwaitedEvent::End(handle) => quote_spanned!(span=> #private::on_end(::core::clone::Clone::clone(&#handle))),
            };
            quote_spanned!(span=> (#arm, #later))
        });
        quote_spanned!(span=> #fiber.select::<#names, _>(#nested).await)
    }

    /// `of` with the value of the user's expression, whose temporaries live as long.
    fn given(&self, span: Span, value: &Expr, of: impl FnOnce(&Ident) -> TokenStream) -> TokenStream {
        let it = Ident::new("it", Span::mixed_site().located_at(value.span()));
        let (value, of) = (self.rewrite_expr(value), of(&it));
        quote_spanned!(span=> match (#value) { #it => #of })
    }

    /// The frame, with the span of errors about its use.
    pub(super) fn fiber_at(&self, span: Span) -> Ident {
        Ident::new(&self.fiber.to_string(), span)
    }
}
