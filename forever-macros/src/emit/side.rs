//! `steps!`: futures side by side, each with a place of its own for its result.
use proc_macro2::{Ident, TokenStream};
use quote::quote_spanned;
use syn::Expr;

use super::sealed::Seal;
use super::{Emit, number};
use crate::cut::{Each, Items, Steps};
use crate::tree::{CutId, Stmt};

impl Emit<'_> {
    /// The value of a `steps!`, or `return` with its first error.
    ///
    /// A branch does not run again once its result is stored, so it must not change what is outside of it.
    pub(super) fn steps(&self, plain: &[Stmt], stmt: &Stmt, cut: CutId, steps: &Steps) -> TokenStream {
        let (number, span) = (number(cut), self.cut_span(cut));
        let fiber = self.fiber_at(span);
        let (setup, all) = match steps {
            Steps::Branches(branches) => self.branches(cut, branches),
            Steps::Each(each) => self.each(cut, each),
        };
        let side = quote_spanned!(span=> let side = #fiber.side(#number).await; #setup);
        let values = quote_spanned! {span=>
            match #all.await {
                ::core::result::Result::Ok(values) => values,
                ::core::result::Result::Err(error) => return ::core::result::Result::Err(error),
            }
        };
        let bodies: Vec<&Expr> = match steps {
            Steps::Branches(branches) => branches.iter().collect(),
            Steps::Each(each) => vec![&each.body],
        };
        let Seal { before, after } = self.seal(plain, stmt, cut, &bodies, false);
        if before.is_empty() {
            return quote_spanned!(span=> { #side #values });
        }
        quote_spanned!(span=> { #before #side let values = #values; #after values })
    }

    /// `steps!(a, b, ..)`: what comes before, and the future of all.
    fn branches(&self, cut: CutId, branches: &[Expr]) -> (TokenStream, TokenStream) {
        let (error, span) = (self.cx.error, self.cut_span(cut));
        let branches = branches.iter().map(|branch| emit!(async { ::core::result::Result::Ok::<_, #error>(#branch) }));
        (TokenStream::new(), quote_spanned!(span=> side.all((#(#branches,)*))))
    }

    /// `steps!(for pat in items, limit = .., body)`.
    fn each(&self, cut: CutId, each: &Each) -> (TokenStream, TokenStream) {
        let (private, error, span) = (self.cx.private, self.cx.error, self.cut_span(cut));
        let Each { pat, body, .. } = each;
        let items = match &each.items {
            Items::Kept(items) => quote_spanned!(span=> #items),
            Items::Borrowed(items) => {
                let items = self.in_order(items);
                quote_spanned!(span=> #private::collected(#items))
            }
        };
        let limit = match &each.limit {
            Some(limit) => emit!(::core::option::Option::Some(#limit)),
            None => emit!(::core::option::Option::None),
        };
        let place = Ident::new("place", span);
        let taken = emit!(let #pat = #private::item(#place););
        let setup = quote_spanned! {span=>
            let mut places = #private::places(#items);
            let mut each = side.each(#limit);
            for #place in places.iter_mut() {
                each.push(async {
                    #taken
                    ::core::result::Result::Ok::<_, #error>(#body)
                });
            }
        };
        (setup, quote_spanned!(span=> each.run()))
    }
}
