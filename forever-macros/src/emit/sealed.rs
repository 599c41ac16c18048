//! Sealed bodies: they may be skipped or run again while the variables around them are not, so they
//! must not change what is outside of them.
//!
//! Earlier passes refuse the changes that they see (`x = ..`, `&mut x`). Others, such as a method
//! that takes `&mut self`, only types reveal. So the code is such that the compiler refuses them:
//! what is needed later is borrowed while the body runs, and what is not is bound again without
//! `mut`, so that the body may still move it.
use std::collections::BTreeSet;

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::{ToTokens, quote_spanned};
use syn::visit::{self, Visit};
use syn::{Expr, Member};

use super::Emit;
use crate::hir::Stmt;
use crate::ids::{CutId, VarId};
use crate::names::VarKind;

/// Code around sealed bodies.
#[derive(Default)]
pub(super) struct Seal {
    pub(super) before: TokenStream,
    pub(super) after: TokenStream,
}

impl Emit<'_> {
    /// The seal of bodies, each of which is in a future. Each comes with whether it may run more
    /// than once, and so cannot move anything; `bound` are names that the bodies receive.
    pub(super) fn seal(&self, plain: &[Stmt], stmt: &Stmt, cut: CutId, bodies: &[(&Expr, bool)], bound: &[Ident]) -> Seal {
        let span = self.cut_span(cut);
        let live = self.cx.plan.needed.at_cut.get(&cut).cloned().unwrap_or_default();
        let declared: BTreeSet<VarId> = plain.iter().flat_map(|s| &s.declares).copied().collect();
        let is_changeable = |v: &VarId| self.cx.table.var(*v).mutable && self.cx.table.var(*v).kind == VarKind::Value;
        let here = |v: &VarId| (self.open.contains(v) || declared.contains(v)) && !stmt.declares.contains(v);
        // All mentioned variables, because a body may change one through a reference that was made
        // before.
        let mut mentioned = BTreeSet::new();
        stmt.flow.mentioned(&mut mentioned);
        // What an option reads through an exclusive borrow stays with that borrow, which no body
        // may name.
        let exclusive: BTreeSet<VarId> = mentioned.iter().flat_map(|v| self.exclusively_borrowed(*v)).copied().collect();
        let lives_on = mentioned.intersection(&self.living).filter(|v| self.cx.table.moved_at[v.0] == usize::MAX);
        let stays: BTreeSet<VarId> = live.iter().chain(&self.returned).chain(lives_on).copied().collect();
        let needed: Vec<VarId> = stays.into_iter().filter(|v| is_changeable(v) && here(v) && !exclusive.contains(v)).collect();
        let mut held: Vec<TokenStream> = needed.iter().map(|v| self.named_at_the_macro(*v, cut)).collect();
        // Of a variable that is moved out of, the fields that are needed later.
        let partly: BTreeSet<VarId> = stmt.declares.iter().filter_map(|v| self.cx.table.var(*v).remainder_of).collect();
        held.extend(stmt.remainders.iter().flat_map(|r| &r.fields).map(ToTokens::to_token_stream));
        mentioned.retain(|v| self.cx.table.var(*v).kind == VarKind::Value && !needed.contains(v));
        let mut repeated = Mentions { bound: bound.to_vec(), ..Mentions::default() };
        let mut once = Mentions { bound: bound.to_vec(), ..Mentions::default() };
        for (body, is_repeated) in bodies {
            if *is_repeated { &mut repeated } else { &mut once }.visit_expr(body);
        }
        let mut anew = TokenStream::new();
        for var in mentioned {
            let ident = self.ident(var);
            let places = repeated.of(ident);
            held.extend(places.iter().map(ToTokens::to_token_stream));
            // A variable that is mentioned only by its fields may have been moved out of.
            let whole = once.of(ident).iter().any(|place| place.fields.is_empty());
            if whole && places.is_empty() && !partly.contains(&var) && is_changeable(&var) && !self.is_borrowed(cut, stmt, var) {
                let ident = self.at_the_macro(var, cut);
                anew.extend(quote_spanned!(span=> #[allow(unused_variables)] let #ident = #ident;));
            }
        }
        let mut seen = BTreeSet::new();
        held.retain(|place| seen.insert(place.to_string()));
        if held.is_empty() {
            return Seal { before: anew, after: TokenStream::new() };
        }
        let private = self.cx.private;
        let before = quote_spanned!(span=> #anew let borrows = #private::SharedBorrows::new() #(.and(&#held))*;);
        Seal { before, after: quote_spanned!(span=> borrows.end();) }
    }

    /// What a variable that is an exclusive borrow borrows from.
    fn exclusively_borrowed(&self, var: VarId) -> &[VarId] {
        let VarKind::Reborrow(again) = self.cx.table.var(var).kind else { return &[] };
        let again = &self.cx.table.reborrows[again.0];
        if again.mutable { &again.bases } else { &[] }
    }

    fn named_at_the_macro(&self, var: VarId, cut: CutId) -> TokenStream {
        if self.is_aliased(var) { self.named(var) } else { self.at_the_macro(var, cut).to_token_stream() }
    }

    /// The variable with the span of the macro, so that the compiler's error points there and not
    /// where the user wrote `mut`.
    fn at_the_macro(&self, var: VarId, cut: CutId) -> Ident {
        let mut ident = self.ident(var).clone();
        ident.set_span(ident.span().located_at(self.cut_span(cut)));
        ident
    }

    /// Whether a variable is borrowed while the cut point waits: then it cannot be bound again.
    fn is_borrowed(&self, cut: CutId, stmt: &Stmt, var: VarId) -> bool {
        let mut mentioned = BTreeSet::new();
        stmt.flow.mentioned(&mut mentioned);
        let borrows = |v: &VarId| matches!(self.cx.table.var(*v).kind, VarKind::Reborrow(again) if self.cx.table.reborrows[again.0].bases.contains(&var));
        self.cx.table.forced[cut].contains(&var) || mentioned.iter().any(borrows)
    }
}

/// A variable with the fields that are named of it: `plan`, `plan.title`, `pair.0`.
#[derive(Clone, PartialEq, Eq)]
struct Place {
    root: Ident,
    fields: Vec<Member>,
}

impl ToTokens for Place {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let Place { root, fields } = self;
        tokens.extend(quote_spanned!(root.span()=> #root #(.#fields)*));
    }
}

/// The places that an expression may mention, and the names that it binds itself.
#[derive(Default)]
struct Mentions {
    places: Vec<Place>,
    bound: Vec<Ident>,
}

impl Mentions {
    fn of(&self, ident: &Ident) -> Vec<Place> {
        let bound = self.bound.contains(ident);
        let mut places: Vec<Place> = Vec::new();
        for place in self.places.iter().filter(|place| place.root == *ident) {
            // Fields of a name that means two variables may be those of the other one.
            let place = if bound { Place { fields: Vec::new(), ..place.clone() } } else { place.clone() };
            if !places.contains(&place) {
                places.push(place);
            }
        }
        places
    }

    /// Every identifier of a macro's arguments may be a variable.
    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let dot = |n: usize| matches!(tokens.get(n), Some(TokenTree::Punct(p)) if p.as_char() == '.');
        for (n, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Ident(root) if n == 0 || !dot(n - 1) || dot(n.saturating_sub(2)) => {
                    let mut place = Place { root: root.clone(), fields: Vec::new() };
                    let mut at = n + 1;
                    while dot(at)
                        && !matches!(tokens.get(at + 2), Some(TokenTree::Group(_)))
                        && let Some(field) = tokens.get(at + 1).and_then(member)
                    {
                        place.fields.push(field);
                        at += 2;
                    }
                    self.places.push(place);
                }
                _ => {}
            }
        }
    }
}

fn member(token: &TokenTree) -> Option<Member> {
    match token {
        TokenTree::Ident(field) if field != "await" => Some(Member::Named(field.clone())),
        TokenTree::Literal(number) => {
            number.to_string().parse().ok().map(|index| Member::Unnamed(syn::Index { index, span: number.span() }))
        }
        _ => None,
    }
}

impl<'ast> Visit<'ast> for Mentions {
    fn visit_expr(&mut self, expr: &'ast Expr) {
        match place_of(expr) {
            Some(place) => self.places.push(place),
            None => visit::visit_expr(self, expr),
        }
    }

    fn visit_pat_ident(&mut self, pat: &'ast syn::PatIdent) {
        self.bound.push(pat.ident.clone());
        visit::visit_pat_ident(self, pat);
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        self.tokens(mac.tokens.clone());
    }

    fn visit_item(&mut self, _: &'ast syn::Item) {}
}

fn place_of(expr: &Expr) -> Option<Place> {
    match expr {
        Expr::Path(path) => path.path.get_ident().map(|root| Place { root: root.clone(), fields: Vec::new() }),
        Expr::Field(field) => {
            let mut place = place_of(&field.base)?;
            place.fields.push(field.member.clone());
            Some(place)
        }
        _ => None,
    }
}
