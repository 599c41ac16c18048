//! `steps!`: futures side by side, each with a place of its own for its result.
use std::collections::BTreeSet;

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote_spanned};
use syn::Expr;

use super::{Emit, number};
use crate::cut::{Each, Items, Steps};
use crate::names::{VarId, VarKind};
use crate::tree::{CutId, Stmt};

impl Emit<'_> {
    /// The value of a `steps!`, or `return` with its first error.
    ///
    /// A branch does not run again once its result is stored, so it must not change what is outside of it: there, variables are
    /// bound anew without `mut`.
    pub(super) fn steps(&self, stmt: &Stmt, cut: CutId, steps: &Steps) -> TokenStream {
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
        let sealed = self.sealed(stmt, cut);
        if sealed.is_empty() {
            return quote_spanned!(span=> { #side #values });
        }
        let live = self.cx.plan.needed.at_cut.get(&cut).cloned().unwrap_or_default();
        // The compiler speaks of these variables at the macro, not where the user wrote `mut`.
        let at_the_macro = |v: &VarId| {
            let mut ident = self.ident(*v).clone();
            ident.set_span(ident.span().located_at(span));
            ident
        };
        let names: Vec<Ident> = sealed.iter().map(at_the_macro).collect();
        let returned: Vec<Ident> = sealed.iter().filter(|v| live.contains(v)).map(at_the_macro).collect();
        let back: Vec<Ident> = (0..returned.len()).map(|n| format_ident!("back_{}", n, span = proc_macro2::Span::mixed_site())).collect();
        quote_spanned! {span=> {
            let (values, #(#back,)*) = {
                #(#[allow(unused_variables)] let #names = #names;)*
                #side
                let values = #values;
                (values, #(#returned,)*)
            };
            #(#[allow(unused_assignments)] { #returned = #back; })*
            values
        }}
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

    /// The `mut` variables that the branches mention. One that is borrowed meanwhile cannot be changed anyway, nor bound anew.
    fn sealed(&self, stmt: &Stmt, cut: CutId) -> Vec<VarId> {
        let (mut mentioned, mut borrowed) = (BTreeSet::new(), BTreeSet::<VarId>::new());
        stmt.flow.mentioned(&mut mentioned);
        borrowed.extend(&self.cx.table.forced[cut]);
        for var in &mentioned {
            if let VarKind::Again(again) = self.cx.table.var(*var).kind {
                borrowed.extend(&self.cx.table.agains[again.0].bases);
            }
        }
        let is_sealed = |v: &VarId| {
            let var = self.cx.table.var(*v);
            var.mutable && var.kind == VarKind::Value && !borrowed.contains(v)
        };
        mentioned.into_iter().filter(is_sealed).collect()
    }
}
