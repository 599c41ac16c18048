//! Declarations of `let`s and patterns: saved values, borrows that are taken again, and variables
//! that are made again.
use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::visit_mut::{self, VisitMut};
use syn::{Expr, Pat};

use super::{Names, Reborrow, ReborrowId, VarKind, assign_all, key_of};
use crate::flow::Flow;
use crate::hir::LASTING;
use crate::ids::VarId;
use crate::pattern;
use crate::place;
use crate::texts;
use crate::values::{self, MadeBy};

const FRESH_CLOSURE: &str =
    "`#[fresh]` cannot make this closure anew: it captures what may change; write it behind the step, or as a function";

impl Names<'_> {
    /// Declares the variables of a pattern matched against `init`: saved values, or borrows to be
    /// taken again. A binding that copies out of a borrowed place is a value, and so is one that
    /// can be changed.
    pub(super) fn bindings_of(&mut self, pat: &Pat, init: &Expr) -> Vec<VarId> {
        // `match (&a, b)`: each part separately, so that borrows from `a` are taken again and
        // copies out of `b` are not.
        self.bindings_from(pat, init, place::is_place(init))
    }

    fn bindings_from(&mut self, pat: &Pat, init: &Expr, is_place: bool) -> Vec<VarId> {
        if let Some(parts) = place::tuple_parts(pat, init) {
            return parts.into_iter().flat_map(|(pat, init)| self.bindings_from(pat, init, false)).collect();
        }
        let bindings = pattern::bindings(pat);
        let borrows = self.borrows_from(init);
        // An operand that is evaluated early is `mut` in case it is a receiver; a reference need
        // not be.
        let aside = matches!(init, Expr::Path(_)) && bindings.iter().all(|b| b.ident.to_string().starts_with("__value_"));
        let again: Vec<bool> = bindings.iter().map(|b| b.by_ref && is_place || borrows && !b.copied && (aside || !b.mutable)).collect();
        let (bases, borrowed) = (self.variables_in(init), self.borrowed(init));
        let whole = self.whole(init);
        let text_of = self.owner_of_text(pat, &whole);
        if let Some(name) = bindings.first().map(|bound| bound.ident.to_string()).filter(|name| name.starts_with(LASTING)) {
            self.lasting.insert(name, whole);
        }
        let declares = self.pattern(pat, &VarKind::Value);
        declares.iter().for_each(|id| self.table.vars[id.0].text_of.clone_from(&text_of));
        let makes: Vec<VarId> = declares.iter().zip(&again).filter(|(_, again)| **again).map(|(id, _)| *id).collect();
        if makes.is_empty() {
            return declares;
        }
        let mutable = place::plain_borrow(init).is_some_and(|r| r.mutability.is_some()) || bindings.iter().any(|b| b.by_ref_mut);
        makes.iter().for_each(|id| self.table.vars[id.0].borrowed.clone_from(&borrowed));
        self.make_reborrow(pat, init, mutable, bases, makes);
        declares
    }

    /// An expression with the temporaries in it that have names of their own.
    fn whole(&self, init: &Expr) -> Expr {
        let mut whole = init.clone();
        Whole(&self.lasting).visit_expr_mut(&mut whole);
        whole
    }

    /// The place that owns the text which a pattern binds, if there is one and it can be named
    /// here.
    fn owner_of_text(&self, pat: &Pat, init: &Expr) -> Option<(VarId, Expr)> {
        let place = texts::owner(pat, init)?;
        let mut id = self.lookup(&place::root(place)?.to_string())?;
        let mut path = None;
        // A borrow has its text from its source; one without a source is a constant.
        while let VarKind::Reborrow(_) | VarKind::Item(_) = self.table.var(id).kind {
            let (base, members) = self.table.var(id).borrowed.clone()?;
            (id, path) = (base, Some(members));
        }
        let Some(path) = path else { return Some((id, place.clone())) };
        let ident = &self.table.var(id).ident;
        let is_visible = self.lookup(&ident.to_string()) == Some(id);
        let owner = path.iter().fold(quote::quote!(#ident), |base, member| quote::quote!(#base.#member));
        is_visible.then(|| (id, syn::parse_quote!(#owner)))
    }

    fn make_reborrow(&mut self, pat: &Pat, init: &Expr, mutable: bool, bases: Vec<VarId>, makes: Vec<VarId>) -> ReborrowId {
        let again = ReborrowId(self.table.reborrows.len());
        for id in &makes {
            self.table.vars[id.0].kind = VarKind::Reborrow(again);
        }
        let pattern = crate::scan::simple_name(pat).is_none();
        self.table.reborrows.push(Reborrow {
            pat: Some(pat.clone()),
            init: init.clone(),
            makes,
            bases,
            in_macros: Vec::new(),
            mutable,
            pattern,
        });
        again
    }

    pub(super) fn local(&mut self, local: &syn::Local) -> (Flow, Vec<VarId>) {
        let key = key_of(&local.attrs);
        let fresh = local.attrs.iter().find(|a| a.path().is_ident("fresh")).cloned();
        let mut flow = Flow::Nothing;
        let first = self.table.uses.len();
        if let Some(init) = &local.init {
            flow = if crate::scan::simple_name(&local.pat).is_some() {
                self.expr(&init.expr)
            } else {
                let mut flow = self.place(&init.expr);
                let is_certain = init.diverge.is_none() && super::parts::fields(&init.expr).is_some();
                flow.push(if is_certain {
                    self.taken_apart(&local.pat, &init.expr)
                } else {
                    self.moved_by_pattern(&local.pat, &init.expr)
                });
                flow
            };
            if let Some((_, otherwise)) = &init.diverge {
                let mut otherwise = self.expr(otherwise);
                otherwise.push(Flow::Return);
                flow.push(Flow::Either(vec![Flow::Nothing, otherwise]));
            }
        }
        let declares = match (&local.init, fresh) {
            (Some(init), Some(_)) if values::closure(&init.expr).is_some() => {
                let declares = self.local_bindings(local, &init.expr, &flow, first);
                if declares.iter().any(|v| !matches!(self.table.var(*v).kind, VarKind::Reborrow(_))) {
                    self.report.over(&local.pat, FRESH_CLOSURE);
                }
                declares
            }
            (Some(init), Some(_)) => {
                let mut bases = BTreeSet::new();
                flow.mentioned(&mut bases);
                let again = ReborrowId(self.table.reborrows.len());
                self.table.reborrows.push(Reborrow {
                    pat: None,
                    init: (*init.expr).clone(),
                    makes: Vec::new(),
                    bases: bases.into_iter().collect(),
                    in_macros: Vec::new(),
                    mutable: false,
                    pattern: false,
                });
                let declares = self.pattern(&local.pat, &VarKind::Fresh(again));
                if declares.len() != 1 || pattern::bindings(&local.pat).len() != 1 || init.diverge.is_some() {
                    self.report.over(&local.pat, "`#[fresh]` makes one variable anew: `#[fresh] let client = connect();`");
                }
                self.table.reborrows[again.0].makes.clone_from(&declares);
                declares
            }
            (None, Some(attr)) => {
                self.report.over(attr, "`#[fresh]` needs a value to make anew: `#[fresh] let client = connect();`");
                self.pattern(&local.pat, &VarKind::Value)
            }
            (Some(init), None) => self.local_bindings(local, &init.expr, &flow, first),
            (None, None) => {
                let declares = self.pattern(&local.pat, &VarKind::Value);
                self.table.unset.extend(&declares);
                declares.iter().for_each(|id| flow.push(Flow::Unset(*id)));
                declares
            }
        };
        self.renamed(&local.attrs, &declares);
        let ty = match &local.pat {
            Pat::Type(typed) => Some((*typed.ty).clone()),
            _ => None,
        };
        let is_name = crate::scan::simple_name(&local.pat).is_some();
        for &id in &declares {
            let var = &mut self.table.vars[id.0];
            if key.is_some() {
                var.key.clone_from(&key);
            }
            if local.init.is_none() || declares.len() == 1 {
                var.ty.clone_from(&ty);
            }
            if let Some(init) = &local.init {
                var.texts.given(is_name.then_some(&init.expr));
            }
            if let Some(init) = local.init.as_ref().filter(|_| is_name) {
                var.made_by = values::made_by(&init.expr);
            }
            var.borrowed_text = declares.len() == 1 && local.init.as_ref().is_some_and(|init| place::is_borrowed_text(&init.expr));
        }
        if local.init.is_some() {
            flow.push(assign_all(&declares));
        }
        (flow, declares)
    }

    /// `first` is the first use of a variable in `init`.
    fn local_bindings(&mut self, local: &syn::Local, init: &Expr, flow: &Flow, first: usize) -> Vec<VarId> {
        let policy = self.bases_of_policy(init);
        let is_policy = policy.is_some() || values::is_check(init);
        let bases = policy.or_else(|| place::is_constant(init).then(Vec::new)).or_else(|| self.bases_of_closure(init, first));
        let is_plain_name = crate::scan::simple_name(&local.pat).is_some() && pattern::bindings(&local.pat).iter().all(|b| !b.mutable);
        let Some(bases) = bases.filter(|_| is_plain_name) else { return self.bindings_of(&local.pat, init) };
        let declares = self.pattern(&local.pat, &VarKind::Value);
        let in_macros = if self.names_in_macros(init) { bases.clone() } else { Vec::new() };
        let again = self.make_reborrow(&local.pat, init, false, bases, declares.clone());
        values::borrow_captures(&mut self.table.reborrows[again.0].init);
        if place::is_constant(init) {
            self.table.reborrows[again.0].init = place::as_constants(init);
        }
        self.table.reborrows[again.0].in_macros = in_macros;
        self.captured_by(flow, again);
        if is_policy {
            self.table.policies.insert(again);
        }
        declares
    }

    /// The variables that a `Retry` or `Backoff` is made from, if it can be made again. It cannot
    /// be saved, because its condition is code.
    fn bases_of_policy(&self, init: &Expr) -> Option<Vec<VarId>> {
        let policy = place::Policy::of(init)?;
        let captures = policy.closures.iter().any(|closure| self.names_a_variable(closure.to_token_stream()));
        let bases: Vec<VarId> = policy.variables.iter().filter_map(|name| self.lookup(&name.to_string())).collect();
        (!captures && bases.iter().all(|id| self.is_fixed(*id))).then_some(bases)
    }

    /// Whether a variable has one value for as long as it is in scope, also on a resume.
    fn is_fixed(&self, id: VarId) -> bool {
        let var = self.table.var(id);
        !var.mutable
            && match var.kind {
                // An item exists, with its value, wherever the body of its loop runs.
                VarKind::Value | VarKind::Given | VarKind::Fresh(_) | VarKind::Item(_) => true,
                VarKind::Reborrow(again) => !self.table.reborrows[again.0].mutable && !self.may_change(id),
                VarKind::Position => false,
            }
    }

    /// Whether a closure may name variables in the arguments of macros.
    fn names_in_macros(&self, init: &Expr) -> bool {
        values::closure(init)
            .is_some_and(|closure| values::Inside::of(closure).macros.into_iter().any(|tokens| self.names_a_variable(tokens)))
    }

    /// The variables that a closure captures, if they never change, so that it can be made again.
    fn bases_of_closure(&self, init: &Expr, first: usize) -> Option<Vec<VarId>> {
        let closure = values::closure(init)?;
        if !self.names_a_variable(closure.to_token_stream()) {
            return Some(Vec::new());
        }
        let inside = values::Inside::of(closure);
        // What a captured variable is itself made from may change: the closure does not see it.
        let named = self.table.uses[first..].iter().filter(|noted| noted.through.is_none());
        let captured: BTreeSet<VarId> = named.map(|noted| noted.var).collect();
        let bases: Vec<VarId> = captured.into_iter().filter(|id| self.is_in_scope(*id)).collect();
        let is_bound_inside = |id: &VarId| inside.bound.contains(&self.table.var(*id).ident);
        bases.iter().all(|id| self.is_fixed(*id) && !is_bound_inside(id)).then_some(bases)
    }

    fn is_in_scope(&self, id: VarId) -> bool {
        self.scopes.iter().flatten().any(|(_, known)| *known == id)
    }

    /// Whether tokens may name a variable of the function.
    fn names_a_variable(&self, tokens: TokenStream) -> bool {
        tokens.into_iter().any(|token| match token {
            proc_macro2::TokenTree::Ident(ident) => self.lookup(&ident.to_string()).is_some(),
            proc_macro2::TokenTree::Group(group) => self.names_a_variable(group.stream()),
            // A format string may name one.
            proc_macro2::TokenTree::Literal(literal) => literal.to_string().contains('{'),
            proc_macro2::TokenTree::Punct(_) => false,
        })
    }

    /// Declares the variables of a pattern, in the order of [`pattern::bindings`].
    pub(super) fn pattern(&mut self, pat: &Pat, kind: &VarKind) -> Vec<VarId> {
        let declares: Vec<VarId> = pattern::bindings(pat).into_iter().map(|b| self.declare(&b.ident, b.mutable, kind.clone())).collect();
        if let (Pat::TupleStruct(of), [error]) = (pat, &declares[..])
            && of.path.segments.last().is_some_and(|s| s.ident == "Err")
        {
            self.table.vars[error.0].made_by = MadeBy::Error;
        }
        declares
    }
}

/// Puts the values of temporaries in the place of their names.
struct Whole<'a>(&'a BTreeMap<String, Expr>);

impl VisitMut for Whole<'_> {
    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        let name = if let Expr::Path(path) = &*expr { path.path.get_ident() } else { None };
        match name.and_then(|name| self.0.get(&name.to_string())) {
            Some(value) => *expr = value.clone(),
            None => visit_mut::visit_expr_mut(self, expr),
        }
    }
}
