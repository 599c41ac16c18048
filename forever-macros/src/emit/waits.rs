//! What cut points that are neither steps nor calls do: start a fiber, keep what is waited for, wait.
use proc_macro2::{Span, TokenStream};
use quote::quote_spanned;
use syn::Expr;

use super::Emit;
use crate::cut::{CutBody, End, Pending};
use crate::tree::{CutId, Stmt};

impl Emit<'_> {
    /// The body of a cut point as an expression; nothing if only the locals are kept.
    pub(super) fn body(&mut self, stmt: &Stmt, cut: CutId, body: &CutBody) -> TokenStream {
        let (fiber, span) = (self.fiber.clone(), self.cut_span(cut));
        self.check_hidden_jump(stmt);
        match body {
            CutBody::Step(_) | CutBody::Call { .. } | CutBody::Pending(Pending::Nothing) => TokenStream::new(),
            CutBody::Spawn(invocation) => {
                let invocation = self.rewrite_expr(invocation);
                quote_spanned!(span=> { let invocation = #invocation; #fiber.spawn(invocation).await })
            }
            CutBody::Sleep(End::In(duration)) => self.given(span, duration, quote_spanned!(span=> #fiber.deadline_in(it))),
            CutBody::Sleep(End::At(time)) => self.given(span, time, quote_spanned!(span=> #fiber.deadline_at(it))),
            CutBody::Pending(Pending::Until(timeout)) => {
                self.given(span, timeout, quote_spanned!(span=> #fiber.deadline_of(::core::option::Option::Some(it))))
            }
            CutBody::Pending(Pending::Handle(handle)) => self.given(span, handle, quote_spanned!(span=> #fiber.awaited(it))),
            CutBody::Pending(Pending::Handles(handles)) => self.given(span, handles, quote_spanned!(span=> #fiber.all_awaited(it))),
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
            CutBody::Steps(steps) => self.steps(stmt, cut, steps),
        }
    }

    /// `of`, in which `it` is the value of the user's expression, whose temporaries live as long.
    fn given(&self, span: Span, value: &Expr, of: TokenStream) -> TokenStream {
        let value = self.rewrite_expr(value);
        quote_spanned!(span=> match (#value) { it => #of })
    }
}
