//! What cut points that are neither steps nor calls do: start a fiber, keep what is waited for, wait.
use proc_macro2::{Ident, Span, TokenStream};
use quote::quote_spanned;
use syn::Expr;
use syn::spanned::Spanned;

use super::Emit;
use crate::cut::{CutBody, End, Pending};
use crate::tree::{CutId, Stmt};

impl Emit<'_> {
    /// The body of a cut point as an expression; nothing if only the locals are kept.
    pub(super) fn body(&mut self, plain: &[Stmt], stmt: &Stmt, cut: CutId, body: &CutBody) -> TokenStream {
        let span = self.cut_span(cut);
        let fiber = self.fiber_at(span);
        self.check_hidden_jump(stmt);
        match body {
            CutBody::Step(_) | CutBody::Call { .. } | CutBody::Pending(Pending::Nothing) => TokenStream::new(),
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
            CutBody::Recv { topic, until: None } => quote_spanned!(span=> #fiber.receive(#topic).await),
            CutBody::Recv { topic, until: Some(until) } => quote_spanned!(span=> #fiber.receive_until(#topic, #until).await),
            CutBody::Wait { awaited, question } => {
                let question = question.map(|span| syn::Token![?](span));
                quote_spanned!(span=> #fiber.join(&#awaited).await #question)
            }
            CutBody::WaitAll { awaited } => quote_spanned!(span=> #fiber.join_all(&#awaited).await),
            CutBody::Steps(steps) => self.steps(plain, stmt, cut, steps),
        }
    }

    /// `of` the value of the user's expression, whose temporaries live as long.
    fn given(&self, span: Span, value: &Expr, of: impl FnOnce(&Ident) -> TokenStream) -> TokenStream {
        let it = Ident::new("it", Span::mixed_site().located_at(value.span()));
        let (value, of) = (self.rewrite_expr(value), of(&it));
        quote_spanned!(span=> match (#value) { #it => #of })
    }

    /// The frame, named where errors about what is done with it point.
    pub(super) fn fiber_at(&self, span: Span) -> Ident {
        Ident::new(&self.fiber.to_string(), span)
    }
}
