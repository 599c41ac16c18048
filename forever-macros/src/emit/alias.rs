//! Aliases: names by which generated code reaches variables, also where another variable of the
//! same name hides them.
//!
//! The user's identifiers are emitted as written, so scoping decides what they mean. Generated code
//! that needs a hidden variable (to save it, to put it away, to borrow from it again) reaches it
//! through a `macro_rules!` that is defined where the variable is in scope: an identifier in such a
//! macro has the meaning that it has at the definition.
use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident};
use syn::visit_mut::{self, VisitMut};
use syn::{Expr, Pat};

use super::Emit;
use crate::ids::{PointId, VarId};
use crate::names::Reborrow;
use crate::pattern;
use crate::plan::Storage;

impl Emit<'_> {
    /// A variable as an expression in generated code.
    pub(super) fn named(&self, var: VarId) -> TokenStream {
        if self.is_aliased(var) {
            let alias = self.alias_name(var);
            return emit!(#alias!());
        }
        self.ident(var).to_token_stream()
    }

    pub(super) fn is_aliased(&self, var: VarId) -> bool {
        self.cx.plan.aliased.contains(&var)
    }

    /// Name under which generated code binds a variable: another one than its own where that means
    /// another variable.
    pub(super) fn binder(&self, var: VarId, point: PointId) -> Ident {
        if self.is_hidden(var, point) && self.is_aliased(var) { self.alias_name(var) } else { self.ident(var).clone() }
    }

    fn is_hidden(&self, var: VarId, point: PointId) -> bool {
        self.cx.table.hidden.get(&point).is_some_and(|pairs| pairs.iter().any(|(hidden, _)| *hidden == var))
    }

    fn alias_name(&self, var: VarId) -> Ident {
        let ident = self.ident(var);
        let name = ident.to_string();
        format_ident!("outer_{}_{}", name.trim_start_matches("r#"), var.0, span = Span::mixed_site().located_at(ident.span()))
    }

    /// Aliases of variables that the user's code just declared.
    pub(super) fn alias_declared(&self, vars: &[VarId]) -> TokenStream {
        self.aliases(vars, |var| self.ident(var).clone())
    }

    /// Aliases of variables that generated code just bound with [`Emit::binder`].
    pub(super) fn alias_bound(&self, vars: &[VarId], point: PointId) -> TokenStream {
        self.aliases(vars, |var| self.binder(var, point))
    }

    /// Aliases of exported variables, except carried ones: the names of their places are unique.
    pub(super) fn alias_exports(&self, exports: &[VarId], point: PointId) -> TokenStream {
        let plain = self.not_carried(exports);
        let aliases = self.alias_bound(&plain, point);
        // The code behind may not use what only a `#[fresh]` value is made from.
        let sources = plain.iter().filter(|v| self.made_from.contains(v) && (!self.is_hidden(**v, point) || self.is_aliased(**v)));
        let sources = sources.map(|v| self.named(*v));
        emit!(#aliases #(let _ = #sources;)*)
    }

    pub(super) fn not_carried(&self, exports: &[VarId]) -> Vec<VarId> {
        exports.iter().copied().filter(|v| self.storage(*v) != Storage::Carried).collect()
    }

    fn aliases(&self, vars: &[VarId], target: impl Fn(VarId) -> Ident) -> TokenStream {
        let mut tokens = TokenStream::new();
        for &var in vars.iter().filter(|v| self.is_aliased(**v)) {
            let (alias, target) = (self.alias_name(var), target(var));
            tokens.extend(emit!(macro_rules! #alias { () => { #target }; }));
        }
        tokens
    }

    /// The statement that borrows again, at `point`.
    pub(super) fn again(&self, again: &Reborrow, point: PointId) -> TokenStream {
        let Some(pat) = &again.pat else { return TokenStream::new() };
        let mut init = again.init.clone();
        Bases { emit: self, again }.visit_expr_mut(&mut init);
        let bindings = pattern::bindings(pat);
        let mut pat = pat.clone();
        // A hidden variable without alias is not needed here, and must not hide the other one.
        let is_bound = |v: &VarId| !self.is_hidden(*v, point) || self.is_aliased(*v);
        let made = |ident: &Ident| again.makes.iter().copied().find(|v| self.ident(*v) == ident).filter(is_bound);
        Made { binder: &|ident| made(ident).map(|v| self.binder(v, point)) }.visit_pat_mut(&mut pat);
        let aliases = self.alias_bound(&again.makes, point);
        if bindings.len() == again.makes.len() && !again.pattern {
            return emit!(let #pat = #init; #aliases);
        }
        let (pat, ty) = match pat {
            Pat::Type(typed) => (*typed.pat, Some(typed.ty)),
            other => (other, None),
        };
        let ty = ty.map(|ty| emit!(: #ty));
        let fiber = &self.fiber;
        let what = format!("`{}` does not match `{}` any more", crate::text::compact(&again.init), crate::text::compact(&pat));
        emit! {
            #[allow(irrefutable_let_patterns, unreachable_patterns, unused_variables, unused_parens)]
            let (#pat) #ty = (#init) else { match #fiber.lost(#what).await {} };
            #aliases
        }
    }
}

/// Replaces what a borrow is taken from by its alias where it may be hidden.
struct Bases<'a> {
    emit: &'a Emit<'a>,
    again: &'a Reborrow,
}

impl VisitMut for Bases<'_> {
    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        let Expr::Path(path) = expr else { return visit_mut::visit_expr_mut(self, expr) };
        let base = path.path.get_ident().and_then(|name| self.again.bases.iter().find(|v| self.emit.ident(**v) == name));
        if let Some(&base) = base.filter(|v| self.emit.is_aliased(**v)) {
            *expr = Expr::Verbatim(self.emit.named(base));
        }
    }
}

/// Reduces a pattern to the variables that are made again, under their names of here. What binds
/// none of them is not matched again: it may have been changed since.
struct Made<'a> {
    binder: &'a dyn Fn(&Ident) -> Option<Ident>,
}

impl Made<'_> {
    fn binds(&self, pat: &Pat) -> bool {
        pattern::bindings(pat).iter().any(|bound| (self.binder)(&bound.ident).is_some())
    }
}

impl VisitMut for Made<'_> {
    fn visit_pat_mut(&mut self, pat: &mut Pat) {
        match pat {
            Pat::Rest(_) => {}
            Pat::Ident(ident) if matches!(ident.subpat.as_ref().map(|(_, sub)| &**sub), Some(Pat::Rest(_))) => {
                match (self.binder)(&ident.ident) {
                    Some(binder) => ident.ident = binder,
                    None => *pat = syn::parse_quote!(..),
                }
            }
            other if !self.binds(other) => *other = syn::parse_quote!(_),
            Pat::Ident(ident) => {
                let sub = ident.subpat.take().map(|(at, mut sub)| {
                    self.visit_pat_mut(&mut sub);
                    (at, sub)
                });
                match ((self.binder)(&ident.ident), sub) {
                    (Some(binder), sub) => {
                        ident.ident = binder;
                        ident.subpat = sub.filter(|(_, sub)| !matches!(**sub, Pat::Wild(_)));
                    }
                    (None, Some((_, sub))) => *pat = *sub,
                    (None, None) => {}
                }
            }
            Pat::Struct(fields) => {
                for field in &mut fields.fields {
                    let before = field.pat.to_token_stream().to_string();
                    self.visit_pat_mut(&mut field.pat);
                    if field.pat.to_token_stream().to_string() != before {
                        field.colon_token.get_or_insert_with(Default::default);
                    }
                }
            }
            other => visit_mut::visit_pat_mut(self, other),
        }
    }
}
