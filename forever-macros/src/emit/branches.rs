//! `steps!`: concurrent futures, each with a place of its own for its result.
use proc_macro2::{Ident, TokenStream};
use quote::quote_spanned;
use syn::Expr;

use super::sealed::Seal;
use super::step::{On, is_repeated};
use super::{Emit, number};
use crate::cut::{Branch, Each, Items, Step, Steps};
use crate::hir::Stmt;
use crate::ids::CutId;

impl Emit<'_> {
    /// The value of a `steps!`, or `return` with its first error.
    ///
    /// A branch does not run again once its result is stored, so it must not change what is outside
    /// of it.
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
        let (bodies, bound): (Vec<(&Expr, bool)>, _) = match steps {
            Steps::Branches(branches) => (branches.iter().map(|b| (&b.step.body, is_repeated(&b.step))).collect(), Vec::new()),
            Steps::Each(each) => {
                (vec![(&each.step.body, true)], crate::pattern::bindings(&each.pat).iter().map(|b| b.ident.clone()).collect())
            }
        };
        let Seal { before, after } = self.seal(plain, stmt, cut, &bodies, &bound);
        if before.is_empty() {
            return quote_spanned!(span=> { #side #values });
        }
        quote_spanned!(span=> { #before #side let values = #values; #after values })
    }

    /// `steps!(a, b, ..)`: setup, and the future of all branches.
    fn branches(&self, cut: CutId, branches: &[Branch]) -> (TokenStream, TokenStream) {
        let span = self.cut_span(cut);
        let setup = branches.iter().any(|branch| has_op(&branch.step)).then(|| self.branch_steps(cut));
        let branches = branches.iter().enumerate().map(|(n, branch)| {
            let n = proc_macro2::Literal::usize_unsuffixed(n);
            let (body, codec) = (self.branch(cut, &branch.step, &TokenStream::new(), &emit!(branches.named(#n))), self.codec(cut));
            emit!((#body, #codec))
        });
        let branches: Vec<_> = branches.collect();
        let all = quote::format_ident!("all_{}", branches.len(), span = span);
        (setup.unwrap_or_default(), quote_spanned!(span=> side.#all(#(#branches,)*)))
    }

    /// Source of the branches' ops.
    fn branch_steps(&self, cut: CutId) -> TokenStream {
        quote_spanned!(self.cut_span(cut)=> let branches = side.operations();)
    }

    /// The future of a branch; `made` creates the source of its op, after `taken`.
    fn branch(&self, cut: CutId, step: &Step, taken: &TokenStream, made: &TokenStream) -> TokenStream {
        let error = self.cx.error;
        let body = self.step_of(cut, step, On::Branch);
        let made = has_op(step).then(|| emit!(let branch = #made;));
        emit!(async {
            #taken
            #made
            ::core::result::Result::Ok::<_, #error>(#body)
        })
    }

    /// `steps!(for pat in items, limit = .., option, body)`.
    fn each(&self, cut: CutId, each: &Each) -> (TokenStream, TokenStream) {
        let (private, span) = (self.cx.private, self.cut_span(cut));
        let Each { pat, step, .. } = each;
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
        let branch = self.branch(cut, step, &taken, &emit!(branches.of_item(&#place.key())));
        let branches = has_op(step).then(|| self.branch_steps(cut));
        let setup = quote_spanned! {span=>
            #branches
            let mut places = #private::places(#items, |item| {
                #[allow(unused_imports)]
                use #private::{ByJson as _, ByPlace as _};
                (&&#private::Item(item)).key()
            });
            let mut each = side.each(#limit);
            for #place in places.iter_mut() {
                each.push(#place.key(), #branch);
            }
        };
        let codec = self.codec(cut);
        (setup, quote_spanned!(span=> each.run(#codec)))
    }
}

/// Whether a branch is an operation; otherwise it is only its body.
fn has_op(step: &Step) -> bool {
    step.op.is_some() || step.effect.is_some() || step.retry.is_some() || step.timeout.is_some() || step.catch
}
