//! What `let`s and patterns declare: values, borrows that are taken again, variables that are made anew.
use std::collections::BTreeSet;

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::visit_mut::{self, VisitMut};
use syn::{Expr, Ident, Pat};

use super::{Again, AgainId, Names, VarId, VarKind, assign_all, key_of};
use crate::flow::Flow;
use crate::pattern;
use crate::place;

impl Names<'_> {
    /// Declares the variables of a pattern matched against `init`: values, or borrows to be taken again.
    pub(super) fn bindings_of(&mut self, pat: &mut Pat, init: &Expr) -> Vec<VarId> {
        let bindings = pattern::bindings(pat);
        let by_ref = bindings.iter().any(|b| b.by_ref) && place::is_place(init);
        // An operand that is put aside is `mut` in case it is a receiver; a reference need not be.
        let aside = matches!(init, Expr::Path(_)) && bindings.iter().all(|b| b.ident.to_string().starts_with("__value_"));
        let all = self.borrows_from(init) && (aside || !bindings.iter().any(|b| b.mutable));
        if bindings.is_empty() || !(by_ref || all) {
            return self.pattern(pat, &VarKind::Value);
        }
        let bases = self.variables_in(init);
        let again = AgainId(self.table.agains.len());
        let mutable = place::plain_borrow(init).is_some_and(|r| r.mutability.is_some()) || bindings.iter().any(|b| b.by_ref_mut);
        let pattern = crate::scan::simple_name(pat).is_none();
        self.table.agains.push(Again { tokens: TokenStream::new(), makes: Vec::new(), bases, mutable, pattern });
        let declares = self.pattern(pat, &VarKind::Value);
        let bindings = pattern::bindings(pat);
        let made = declares.iter().copied().filter(|id| all || bindings.iter().any(|b| b.by_ref && b.ident == self.table.var(*id).ident));
        let made: Vec<VarId> = made.collect();
        for id in &made {
            self.table.vars[id.0].kind = VarKind::Again(again);
        }
        let again = &mut self.table.agains[again.0];
        again.tokens = again_statement(pat, init, !all);
        again.makes = made;
        declares
    }

    pub(super) fn local(&mut self, local: &mut syn::Local) -> (Flow, Vec<VarId>) {
        let key = key_of(&local.attrs);
        let fresh = local.attrs.iter().find(|a| a.path().is_ident("fresh")).cloned();
        let mut flow = Flow::Nothing;
        if let Some(init) = &mut local.init {
            flow = self.expr(&mut init.expr);
            if key.is_some() {
                self.note_taken_apart(&init.expr);
            }
            if let Some((_, otherwise)) = &mut init.diverge {
                flow.push(Flow::Either(vec![Flow::Nothing, self.expr(otherwise)]));
            }
        }
        let declares = match (&local.init, fresh) {
            (Some(init), Some(_)) => {
                let mut bases = BTreeSet::new();
                flow.mentioned(&mut bases);
                let again = AgainId(self.table.agains.len());
                let expr = (*init.expr).clone();
                self.table.agains.push(Again {
                    tokens: expr.to_token_stream(),
                    makes: Vec::new(),
                    bases: bases.into_iter().collect(),
                    mutable: false,
                    pattern: false,
                });
                let declares = self.pattern(&mut local.pat, &VarKind::Fresh(again));
                if declares.len() != 1 || pattern::bindings(&local.pat).len() != 1 || init.diverge.is_some() {
                    self.report.over(&local.pat, "`#[fresh]` makes one variable anew: `#[fresh] let client = connect();`");
                }
                self.table.agains[again.0].makes.clone_from(&declares);
                declares
            }
            (None, Some(attr)) => {
                self.report.over(attr, "`#[fresh]` needs a value to make anew: `#[fresh] let client = connect();`");
                self.pattern(&mut local.pat, &VarKind::Value)
            }
            (Some(init), None) => {
                let init_expr = (*init.expr).clone();
                self.local_bindings(local, &init_expr)
            }
            (None, None) => {
                let declares = self.pattern(&mut local.pat, &VarKind::Value);
                self.table.unset.extend(&declares);
                declares
            }
        };
        self.renamed(&local.attrs, &declares);
        let ty = match &local.pat {
            Pat::Type(typed) => Some((*typed.ty).clone()),
            _ => None,
        };
        for &id in &declares {
            let var = &mut self.table.vars[id.0];
            if key.is_some() {
                var.key.clone_from(&key);
            }
            if local.init.is_none() || declares.len() == 1 {
                var.ty.clone_from(&ty);
            }
            var.borrowed_text = declares.len() == 1 && local.init.as_ref().is_some_and(|init| place::is_borrowed_text(&init.expr));
            var.chosen_text = declares.len() == 1 && local.init.as_ref().is_some_and(|init| place::is_chosen_text(&init.expr));
        }
        if local.init.is_some() {
            flow.push(assign_all(&declares));
        }
        (flow, declares)
    }

    /// A loop by value over a field of a variable leaves the rest of the variable behind.
    pub(super) fn note_taken_apart(&mut self, source: &Expr) {
        let Expr::Call(call) = (match source {
            Expr::MethodCall(rest) => &*rest.receiver,
            other => other,
        }) else {
            return;
        };
        let Some(items @ Expr::Field(_)) = call.args.first() else { return };
        if !place::is_place(items) {
            return;
        }
        let root = place::root(items).and_then(|r| self.lookup(&r.to_string()));
        if let Some(root) = root.filter(|r| self.table.var(*r).kind == VarKind::Value) {
            self.table.taken_apart.push((root, crate::text::compact(items), self.table.uses.len()));
        }
    }

    pub(super) fn local_bindings(&mut self, local: &mut syn::Local, init: &Expr) -> Vec<VarId> {
        let constant = place::is_constant(init) && pattern::bindings(&local.pat).iter().all(|b| !b.mutable);
        let pat_is_name = crate::scan::simple_name(&local.pat).is_some();
        if !constant || !pat_is_name {
            return self.bindings_of(&mut local.pat, init);
        }
        let again = AgainId(self.table.agains.len());
        self.table.agains.push(Again { tokens: TokenStream::new(), makes: Vec::new(), bases: Vec::new(), mutable: false, pattern: false });
        let declares = self.pattern(&mut local.pat, &VarKind::Again(again));
        let again = &mut self.table.agains[again.0];
        let pat = &local.pat;
        again.tokens = quote!(let #pat = #init;);
        again.makes.clone_from(&declares);
        declares
    }

    /// Declares the variables of a pattern, renaming where asked.
    pub(super) fn pattern(&mut self, pat: &mut Pat, kind: &VarKind) -> Vec<VarId> {
        let mut declares: Vec<VarId> = Vec::new();
        self.pattern_into(pat, kind, &mut declares);
        declares
    }

    pub(super) fn pattern_into(&mut self, pat: &mut Pat, kind: &VarKind, declares: &mut Vec<VarId>) {
        match pat {
            Pat::Ident(p) => {
                if pattern::is_binding(p) {
                    // The other alternatives of an or-pattern bind the same variables.
                    let known = declares.iter().copied().find(|id| {
                        let name = p.ident.to_string();
                        let name = name.trim_start_matches("r#");
                        self.top().iter().any(|(n, v)| v == id && *n == name)
                    });
                    if let Some(id) = known {
                        if let Some(new) = self.renames.get(&id) {
                            p.ident = new.new.clone();
                        }
                    } else {
                        let mutable = p.by_ref.is_none() && p.mutability.is_some();
                        let id = self.declare(&mut p.ident, mutable, kind.clone());
                        declares.push(id);
                    }
                }
                if let Some((_, sub)) = &mut p.subpat {
                    self.pattern_into(sub, kind, declares);
                }
            }
            Pat::Guard(p) => self.pattern_into(&mut p.pat, kind, declares),
            Pat::Or(p) => p.cases.iter_mut().for_each(|c| self.pattern_into(c, kind, declares)),
            Pat::Paren(p) => self.pattern_into(&mut p.pat, kind, declares),
            Pat::Reference(p) => self.pattern_into(&mut p.pat, kind, declares),
            Pat::Slice(p) => p.elems.iter_mut().for_each(|e| self.pattern_into(e, kind, declares)),
            Pat::Struct(p) => {
                for field in &mut p.fields {
                    self.pattern_into(&mut field.pat, kind, declares);
                    let renamed = field.colon_token.is_none()
                        && pattern::bindings(&field.pat)
                            .first()
                            .is_some_and(|b| matches!(&field.member, syn::Member::Named(n) if *n != b.ident));
                    if renamed {
                        field.colon_token = Some(syn::Token![:](proc_macro2::Span::call_site()));
                    }
                }
            }
            Pat::Tuple(p) => p.elems.iter_mut().for_each(|e| self.pattern_into(e, kind, declares)),
            Pat::TupleStruct(p) => p.elems.iter_mut().for_each(|e| self.pattern_into(e, kind, declares)),
            Pat::Type(p) => self.pattern_into(&mut p.pat, kind, declares),
            _ => {}
        }
    }
}

/// The statement that matches a pattern again; with `only_refs`, for the variables that it binds by `ref`.
fn again_statement(pat: &Pat, init: &Expr, only_refs: bool) -> TokenStream {
    if crate::scan::simple_name(pat).is_some() && !only_refs {
        return quote!(let #pat = #init;);
    }
    let mut pat = pat.clone();
    if only_refs {
        WithoutValues.visit_pat_mut(&mut pat);
    }
    let (pat, ty) = match pat {
        Pat::Type(typed) => (*typed.pat, Some(typed.ty)),
        other => (other, None),
    };
    let ty = ty.map(|ty| quote!(: #ty));
    let fiber = Ident::new("fiber", proc_macro2::Span::mixed_site());
    let what = format!("`{}` does not match `{}` any more", crate::text::compact(init), crate::text::compact(&pat));
    quote! {
        #[allow(irrefutable_let_patterns, unused_variables, unused_parens)]
        let (#pat) #ty = (#init) else { match #fiber.lost(#what).await {} };
    }
}

/// Makes a pattern bind only what it binds by `ref`.
struct WithoutValues;

impl VisitMut for WithoutValues {
    fn visit_pat_mut(&mut self, pat: &mut Pat) {
        match pat {
            Pat::Ident(ident) if ident.by_ref.is_none() && pattern::is_binding(ident) => {
                *pat = match ident.subpat.take() {
                    Some((_, sub)) => *sub,
                    None => syn::parse_quote!(_),
                };
            }
            Pat::Struct(fields) => {
                for field in &mut fields.fields {
                    self.visit_pat_mut(&mut field.pat);
                    if matches!(&*field.pat, Pat::Wild(_)) {
                        field.colon_token.get_or_insert_with(Default::default);
                    }
                }
            }
            other => visit_mut::visit_pat_mut(self, other),
        }
    }
}
