//! Locals that no cut point keeps, and that are dropped where their block ends all the same.
//!
//! The code of a stretch is a block of its own, at whose end its locals would be dropped. One that
//! lives on is declared before the stretch and gets its value in it, so that the compiler drops it
//! where it drops the user's: at the end of the block, unless it has been moved. A run that skips
//! the stretch has no value to drop.
use std::borrow::Cow;
use std::collections::BTreeSet;

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident};
use syn::Expr;
use syn::visit_mut::{self, VisitMut};

use super::{Emit, branch};
use crate::extended::extends_temporaries;
use crate::held;
use crate::hir::{Branch, Control, Head, LASTING, LASTING_IN_BLOCK, Stmt, StmtKind};
use crate::ids::{PointId, VarId};
use crate::named;
use crate::names::{VarKind, VarOrigin, is_ours};
use crate::pattern;
use crate::plan::{Storage, mentions};
use crate::values;

/// Values of a stretch that are dropped after it.
#[derive(Default)]
pub(super) struct Outliving {
    /// Until the end of the block: variables that are declared before the stretch.
    pub(super) block: BTreeSet<VarId>,
    /// Until the end of the statement that the stretch leads to: variables that are declared before
    /// the stretch, too.
    pub(super) statement: BTreeSet<VarId>,
    /// Those of the block whose values name what they hide: it is reached through an alias.
    pub(super) through: BTreeSet<VarId>,
}

impl Emit<'_> {
    /// The variables of a stretch that live on after it.
    pub(super) fn outliving(&self, plain: &[Stmt], stmt: &Stmt) -> Outliving {
        let mut found = Outliving::default();
        for (place, stmt) in plain.iter().enumerate() {
            let StmtKind::Plain(syntax) = &stmt.kind else { continue };
            found.block.extend(self.set_later(stmt).filter(|var| named_in(&plain[..=place], &self.ident(*var).to_string()) == 1));
            for var in self.held_by_value(stmt, syntax) {
                let name = self.ident(var).to_string();
                if name.starts_with(LASTING_IN_BLOCK) {
                    found.block.insert(var);
                } else if name.starts_with(LASTING) {
                    found.statement.insert(var);
                } else if self.lives_on(var, stmt.after) && named_in(&plain[..=place], &name) == 1 {
                    found.block.insert(var);
                } else if self.is_made_of_hidden(var, stmt, syntax) && named_in(&plain[..place], &name) == 0 {
                    found.block.insert(var);
                    found.through.insert(var);
                }
            }
        }
        if let StmtKind::Control { control, .. } = &stmt.kind {
            if let Control::Branch(branch) = control {
                let mut inside = BTreeSet::new();
                mentions(stmt, &mut inside);
                self.outliving_in_arms(branch, &inside, &mut found);
            }
        } else {
            // A cut point ends with its statement.
            found.statement.clear();
        }
        found
    }

    /// The variables that live on to the end of an arm, which is that of the whole statement.
    fn outliving_in_arms(&self, branch: &Branch, inside: &BTreeSet<VarId>, found: &mut Outliving) {
        let lives_on = |var: VarId, at: PointId| self.lives_on(var, at) && !self.hides(var, at, inside);
        for arm in branch.arms.iter().filter(|arm| arm.cuts.is_some()) {
            let (plain, rest) = branch::split(&arm.block.stmts);
            let pattern = match &branch.head {
                Head::If { cond: Expr::Let(binding), .. } => Some((&*binding.pat, Some(&*binding.expr))),
                Head::Match { .. } => arm.pat.as_ref().map(|pat| (pat, None)),
                _ => None,
            };
            if let (Some((pat, value)), Some(first)) = (pattern, arm.block.stmts.first()) {
                let bindings = pattern::bindings(pat);
                let by_value = |var: &VarId| bindings.iter().any(|bound| bound.ident == *self.ident(*var) && !bound.by_ref);
                let is_named = |var: &VarId| {
                    let name = self.ident(*var).to_string();
                    named::in_pat(pat, &name) + value.map_or(0, |value| named::in_expr(value, &name)) == 1
                };
                let vars = arm.declares.iter().copied().filter(by_value).filter(is_named).filter(|v| lives_on(*v, first.start));
                vars.for_each(|var| self.add_to_statement(var, found));
            }
            for stmt in plain {
                let StmtKind::Plain(syntax) = &stmt.kind else { continue };
                for var in self.held_by_value(stmt, syntax) {
                    let name = self.ident(var).to_string();
                    // A temporary ends with its own statement.
                    let is_last = !name.starts_with(LASTING) || rest.len() == 1;
                    let is_named = is_last && named::in_stmt(syntax, &name) == 1;
                    if is_named && lives_on(var, stmt.after) {
                        self.add_to_statement(var, found);
                    }
                }
            }
            // An arm that ends with another branch ends with it.
            if let [Stmt { kind: StmtKind::Control { control: Control::Branch(inner), .. }, .. }] = rest {
                self.outliving_in_arms(inner, inside, found);
            }
        }
    }

    /// Notes the arms with variables that have no place to live on.
    pub(super) fn note_crowded(&mut self, stmt: &Stmt, outliving: &Outliving) {
        let StmtKind::Control { control: Control::Branch(branch), .. } = &stmt.kind else { return };
        for arm in &branch.arms {
            let (Some(id), Some(_)) = (arm.id, &arm.cuts) else { continue };
            let (plain, rest) = branch::split(&arm.block.stmts);
            let bindings: Vec<_> = branch.patterns(arm).into_iter().flat_map(pattern::bindings).collect();
            let by_value = |var: &VarId| bindings.iter().any(|bound| bound.ident == *self.ident(*var) && !bound.by_ref);
            let bound = arm.declares.iter().copied().filter(by_value);
            let mut declared = plain.iter().flat_map(|stmt| match &stmt.kind {
                StmtKind::Plain(syntax) => self.held_by_value(stmt, syntax),
                _ => Vec::new(),
            });
            let is_crowded = |var: &VarId| {
                let is_held = self.storage(*var) == Storage::Local && self.cx.plan.held_and_used.contains_key(var);
                is_held && !self.is_moved_surely(*var) && !outliving.block.contains(var) && !outliving.statement.contains(var)
            };
            let bound: Vec<VarId> = bound.filter(is_crowded).collect();
            if !bound.is_empty() || declared.any(|var| is_crowded(&var)) {
                self.crowded.insert(id, bound.into_iter().map(|var| self.ident(var).clone()).collect());
            }
            self.note_crowded(&rest[0], outliving);
        }
    }

    /// The carried variables among some.
    pub(super) fn carried(&self, vars: &[VarId]) -> BTreeSet<VarId> {
        vars.iter().copied().filter(|v| self.storage(*v) == Storage::Carried).collect()
    }

    /// Declares beside variables that may keep the fiber in memory whether they do. It ends in the
    /// block in which they end.
    pub(super) fn holdings(&mut self, vars: &BTreeSet<VarId>) -> TokenStream {
        let held = vars & &self.cx.plan.held_over_wait;
        let (fiber, names) = (&self.fiber, held.iter().map(|var| holding_name(*var)));
        let tokens = emit!(#(let #names = #fiber.holding();)*);
        self.holding.extend(held);
        tokens
    }

    /// Marks variables as having their values.
    pub(super) fn begin(&mut self, vars: &[VarId]) {
        let ending = &self.ending;
        self.begun.extend(vars.iter().filter(|v| ending.contains(v)));
    }

    /// Says at the end of a stretch what of it keeps the fiber in memory. Their types are known
    /// here, since nothing later mentions them.
    pub(super) fn hold(&self) -> TokenStream {
        if self.begun.is_empty() {
            return TokenStream::new();
        }
        let private = self.cx.private;
        let said = self.begun.iter().map(|var| {
            let (holding, named) = (holding_name(*var), self.named(*var));
            // It may have been moved, so only its type is asked for.
            emit!(#holding.set((&&if false { ::core::unreachable!(); #private::held(&#named) } else { #private::Held::new() }).stays());)
        });
        emit!({ #[allow(unused_imports)] use #private::{IsSaved as _, IsUnsaved as _}; #(#said)* })
    }

    /// Adds a variable, unless another one of its name is declared at the same place.
    fn add_to_statement(&self, var: VarId, found: &mut Outliving) {
        let ident = self.ident(var);
        if found.block.iter().chain(&found.statement).all(|other| self.ident(*other) != ident) {
            found.statement.insert(var);
        }
    }

    /// The variables that a `let` gives values of their own.
    fn held_by_value(&self, stmt: &Stmt, syntax: &syn::Stmt) -> Vec<VarId> {
        let syn::Stmt::Local(local) = syntax else { return Vec::new() };
        let by_value = !held::takes_next_item(syntax)
            && !held::is_arguments(syntax)
            && local.init.as_ref().is_some_and(|init| !extends_temporaries(&init.expr) && !self.holds_closure(&init.expr))
            && stmt.remainders.is_empty()
            && stmt.flow.completes()
            && !local.attrs.iter().any(is_ours)
            && pattern::bindings(&local.pat).iter().all(|b| !b.by_ref)
            && stmt.declares.iter().all(|v| self.is_own_value(*v));
        if by_value { stmt.declares.clone() } else { Vec::new() }
    }

    /// The variables that a `let` declares without a value, and that are dropped with their block.
    fn set_later(&self, stmt: &Stmt) -> impl Iterator<Item = VarId> {
        let is_held = |var: &VarId| {
            let is_unset = self.cx.table.unset.contains(var) && self.cx.plan.held_and_used.contains_key(var);
            is_unset && self.lives_on(*var, stmt.after)
        };
        stmt.declares.iter().copied().filter(is_held)
    }

    /// The carried variables that no cut point keeps, and that nothing needs after a stretch that
    /// does not declare them.
    pub(super) fn last_used(
        &self,
        mentioned: &BTreeSet<VarId>,
        declared: &BTreeSet<VarId>,
        start: PointId,
        stmt: &Stmt,
    ) -> BTreeSet<VarId> {
        let end = if matches!(stmt.kind, StmtKind::Control { .. }) { stmt.before } else { stmt.after };
        let (table, from, to, after) = (self.cx.table, self.live(start), self.live(end), self.live(stmt.after));
        let is_hidden = |var: VarId| table.hidden.get(&start).is_some_and(|all| all.iter().any(|(hidden, _)| *hidden == var));
        let is_last = |var: &VarId| {
            let info = table.var(*var);
            self.storage(*var) == Storage::Carried
                && info.kind == VarKind::Value
                && info.origin() == VarOrigin::User
                && self.cx.plan.kept_at(*var).is_empty()
                && (from.contains(var) || table.unset.contains(var) && !after.contains(var))
                && !to.contains(var)
                && !self.open.contains(var)
                && (!self.is_aliased(*var) || self.cx.plan.held_over_wait.contains(var))
                && !is_hidden(*var)
        };
        mentioned.difference(declared).copied().filter(is_last).collect()
    }

    /// Whether a variable of an outer block has a value at the end of a stretch in any case, which
    /// nothing borrows, and so can go back to its place, to be dropped with that block.
    pub(super) fn goes_back(&self, var: VarId, plain: &[Stmt], stmt: &Stmt) -> bool {
        let name = self.ident(var).to_string();
        let lends = |stmt: &Stmt| is_mentioned_by_let(stmt, &name);
        let jumps = || plain.iter().any(|stmt| named::has_jump(&super::plain_tokens(stmt)));
        let is_set = || !self.cx.table.unset.contains(&var) || matches!(stmt.kind, StmtKind::Cut { .. }) && !jumps();
        let stays = !self.declared.contains(&var) && self.cx.table.moved_at[var.0] == usize::MAX;
        stays && is_set() && !plain.iter().any(lends)
    }

    /// The variables of a block that go back to their places at its end, since values that are not
    /// saved are dropped between them.
    pub(super) fn in_order_of_drop(&self, mentioned: &BTreeSet<VarId>, stmts: &[Stmt], end: PointId) -> BTreeSet<VarId> {
        let is_held = |var: &VarId| self.cx.plan.held_and_used.contains_key(var);
        if !self.declared.iter().any(is_held) {
            return BTreeSet::new();
        }
        let (table, live) = (self.cx.table, self.live(end));
        let stays = |var: &VarId| {
            let (info, name) = (table.var(*var), self.ident(*var).to_string());
            let lends = |stmt: &Stmt| is_mentioned_by_let(stmt, &name);
            let is_set = !table.unset.contains(var) && !table.uses.iter().any(|u| u.var == *var && u.assigns);
            let is_value = self.storage(*var) == Storage::Carried && info.kind == VarKind::Value && info.origin() == VarOrigin::User;
            is_value
                && is_set
                && self.declared.contains(var)
                && table.moved_at[var.0] == usize::MAX
                && !live.contains(var)
                && !stmts.iter().any(lends)
        };
        mentioned.iter().copied().filter(stays).collect()
    }

    /// Whether a variable may be declared before its stretch, as far as its uses show.
    fn lives_on(&self, var: VarId, at: PointId) -> bool {
        self.stays(var) && !self.hides_mentioned(var, at)
    }

    fn stays(&self, var: VarId) -> bool {
        // One that is moved would count as held by the compiler.
        !self.is_moved_surely(var) && self.cx.plan.kept_at(var).is_empty() && self.is_only_here(var)
    }

    fn is_moved_surely(&self, var: VarId) -> bool {
        self.cx.table.moved_at[var.0] != usize::MAX && self.cx.table.moved_surely.contains(&var)
    }

    /// Whether the value of a variable names what it hides: a variable that is in scope before the
    /// stretch, or a function.
    fn is_made_of_hidden(&self, var: VarId, stmt: &Stmt, syntax: &syn::Stmt) -> bool {
        let syn::Stmt::Local(syn::Local { init: Some(init), .. }) = syntax else { return false };
        let (table, name) = (self.cx.table, self.ident(var).to_string());
        let hidden = table.hidden.get(&stmt.after).into_iter().flatten().filter(|(_, hiding)| *hiding == var);
        let is_there = |hidden: VarId| {
            table.var(hidden).kind == VarKind::Given || self.outside.as_ref().is_some_and(|outside| outside.contains(&hidden))
        };
        let is_reached = hidden.map(|(hidden, _)| *hidden).all(is_there) && named::is_in_paths(&init.expr, &name);
        is_reached && init.diverge.is_none() && self.stays(var)
    }

    /// A statement in which what its variables hide is reached through aliases.
    pub(super) fn through_aliases<'s>(&self, stmt: &Stmt, syntax: &'s syn::Stmt) -> Cow<'s, syn::Stmt> {
        let vars: Vec<VarId> = stmt.declares.iter().copied().filter(|v| self.through.contains(v)).collect();
        let mut syntax = Cow::Borrowed(syntax);
        for var in vars {
            if let syn::Stmt::Local(syn::Local { init: Some(init), .. }) = syntax.to_mut() {
                named::Reached { name: &self.ident(var).to_string(), alias: &hidden_name(var) }.visit_expr_mut(&mut init.expr);
            }
        }
        syntax
    }

    /// The alias of what a variable hides.
    pub(super) fn hidden_alias(&self, var: VarId) -> TokenStream {
        let (alias, ident) = (hidden_name(var), self.ident(var));
        emit!(macro_rules! #alias { () => { #ident }; })
    }

    /// Whether a variable of the user's is mentioned in its stretch alone.
    fn is_only_here(&self, var: VarId) -> bool {
        let (table, info) = (self.cx.table, self.cx.table.var(var));
        self.storage(var) == Storage::Local
            && self.is_own_value(var)
            && info.origin() == VarOrigin::User
            && info.key.is_none()
            && (info.ident.to_string().starts_with('_')
                || info.kind != VarKind::Value
                || table.uses.iter().any(|u| u.var == var && !u.assigns))
    }

    /// Whether a value may hold a closure that borrows what is in scope during its stretch alone.
    fn holds_closure(&self, init: &Expr) -> bool {
        let borrows = |arg: &Expr| {
            let is_by_reference =
                matches!(arg, Expr::Closure(e) if e.capture.is_none()) || matches!(arg, Expr::Async(e) if e.capture.is_none());
            let is_outside = |var: VarId| self.outside.as_ref().is_some_and(|outside| outside.contains(&var));
            let is_inside = |var: VarId| self.cx.table.var(var).kind != VarKind::Given && !is_outside(var);
            let names = |var: VarId| named::in_expr(arg, &self.ident(var).to_string()) > 0;
            is_by_reference && self.mentioned.iter().any(|var| is_inside(*var) && names(*var))
        };
        match init {
            Expr::Await(e) => self.holds_closure(&e.base),
            Expr::Try(e) => self.holds_closure(&e.expr),
            Expr::Paren(e) => self.holds_closure(&e.expr),
            Expr::MethodCall(e) => e.args.iter().any(borrows),
            Expr::Call(e) => e.args.iter().any(borrows),
            _ => false,
        }
    }

    /// Whether a variable has a value of its own: one that is saved, or a closure that no cut point
    /// needs, so that it is never made again.
    fn is_own_value(&self, var: VarId) -> bool {
        let table = self.cx.table;
        match table.var(var).kind {
            VarKind::Value => true,
            VarKind::Reborrow(again) => {
                let init = &table.reborrows[again.0].init;
                let is_closure = values::closure(init).is_some() && !values::is_check(init);
                is_closure && !self.cx.plan.needed.at_cut.values().any(|live| live.contains(&var))
            }
            _ => false,
        }
    }

    /// Whether a variable has the name of another one that the stretch mentions.
    fn hides_mentioned(&self, var: VarId, at: PointId) -> bool {
        self.hides(var, at, &self.mentioned)
    }

    /// Whether a variable has the name of one of `others`.
    fn hides(&self, var: VarId, at: PointId, others: &BTreeSet<VarId>) -> bool {
        let hidden = self.cx.table.hidden.get(&at);
        hidden.is_some_and(|all| all.iter().any(|(hidden, hiding)| *hiding == var && others.contains(hidden)))
    }

    /// Whether an exported variable may be declared before its stretch.
    pub(super) fn may_be_declared_before(&self, var: VarId, plain: &[Stmt]) -> bool {
        if self.storage(var) == Storage::Carried {
            return true;
        }
        let Some(place) = plain.iter().position(|stmt| stmt.declares.contains(&var)) else { return false };
        let (name, stmt) = (self.ident(var).to_string(), &plain[place]);
        let names_itself = match &stmt.kind {
            StmtKind::Plain(syntax) if held::is_arguments(syntax) => false,
            StmtKind::Plain(syn::Stmt::Local(syn::Local { init: Some(init), .. })) => named::in_expr(&init.expr, &name) > 0,
            _ => true,
        };
        !names_itself && named_in(&plain[..place], &name) == 0 && !self.hides_mentioned(var, stmt.after)
    }

    /// `let name;` for each.
    pub(super) fn declarations(&self, vars: &BTreeSet<VarId>) -> TokenStream {
        let lets = vars.iter().map(|v| {
            let info = self.cx.table.var(*v);
            let (ident, mutable) = (&info.ident, info.mutable.then(|| emit!(mut)));
            let ty = info.ty.as_ref().filter(|_| self.cx.table.unset.contains(v)).map(|ty| emit!(: #ty));
            emit!(let #mutable #ident #ty;)
        });
        lets.collect()
    }

    /// The pattern of an arm in which variables that are declared before have other names.
    pub(super) fn with_outliving_parts(&self, pat: &syn::Pat, declares: &[VarId]) -> syn::Pat {
        let mut pat = pat.clone();
        let vars: Vec<VarId> = declares.iter().copied().filter(|v| self.outliving.contains(v)).collect();
        if !vars.is_empty() {
            Parts { emit: self, vars }.visit_pat_mut(&mut pat);
        }
        pat
    }

    /// Gives such variables their values.
    pub(super) fn outliving_bound(&self, declares: &[VarId]) -> TokenStream {
        let set = declares.iter().filter(|v| self.outliving.contains(v)).map(|var| {
            let (ident, part) = (self.ident(*var), part_name(*var));
            emit!(#ident = #part;)
        });
        set.collect()
    }

    /// The code of a `let`, for variables that are declared before.
    pub(super) fn with_outliving(&self, stmt: &Stmt, syntax: &syn::Stmt, code: TokenStream) -> TokenStream {
        if !stmt.declares.iter().any(|v| self.outliving.contains(v)) {
            return code;
        }
        if let syn::Stmt::Local(syn::Local { attrs, pat: syn::Pat::Ident(name), init: Some(init), .. }) = syntax
            && attrs.is_empty()
            && init.diverge.is_none()
        {
            let (name, value) = (&name.ident, self.rewrite_expr(&init.expr));
            return emit!(#name = #value;);
        }
        if stmt.declares.iter().all(|v| self.cx.table.unset.contains(v)) {
            return TokenStream::new();
        }
        let names: Vec<_> = stmt.declares.iter().map(|v| self.ident(*v)).collect();
        let value = if let [name] = &names[..] { emit!(#name) } else { emit!((#(#names),*)) };
        let made = emit!({ #[allow(unused_mut)] #code #value });
        let lives_on = |v: &&VarId| self.outliving.contains(*v);
        if stmt.declares.iter().all(|v| lives_on(&v)) {
            return emit!(#value = #made;);
        }
        // Others get their names only now, since the value may mention variables that they hide.
        let mut set = TokenStream::new();
        let parts = stmt.declares.iter().map(|v| {
            let ident = self.ident(*v);
            if lives_on(&v) {
                let part = part_name(*v);
                set.extend(emit!(#ident = #part;));
                return emit!(#part);
            }
            let mutable = self.cx.table.var(*v).mutable.then(|| emit!(mut));
            emit!(#mutable #ident)
        });
        let parts: Vec<_> = parts.collect();
        emit! {
            let (#(#parts),*) = #made;
            #set
        }
    }
}

fn holding_name(var: VarId) -> proc_macro2::Ident {
    format_ident!("holding_{}", var.0, span = Span::mixed_site())
}

fn hidden_name(var: VarId) -> proc_macro2::Ident {
    format_ident!("hidden_{}", var.0, span = Span::mixed_site())
}

fn part_name(var: VarId) -> proc_macro2::Ident {
    format_ident!("__part_{}", var.0, span = Span::mixed_site())
}

/// Renames variables of a pattern.
struct Parts<'a> {
    emit: &'a Emit<'a>,
    vars: Vec<VarId>,
}

impl VisitMut for Parts<'_> {
    fn visit_pat_ident_mut(&mut self, name: &mut syn::PatIdent) {
        if let Some(var) = self.vars.iter().find(|v| *self.emit.ident(**v) == name.ident) {
            (name.ident, name.mutability) = (part_name(*var), None);
        }
        visit_mut::visit_pat_ident_mut(self, name);
    }

    fn visit_field_pat_mut(&mut self, field: &mut syn::FieldPat) {
        let before = field.pat.to_token_stream().to_string();
        self.visit_pat_mut(&mut field.pat);
        if field.pat.to_token_stream().to_string() != before {
            field.colon_token.get_or_insert_with(Default::default);
        }
    }
}

/// Whether a `let` mentions a name, and so may borrow from it.
fn is_mentioned_by_let(stmt: &Stmt, name: &str) -> bool {
    matches!(&stmt.kind, StmtKind::Plain(local @ syn::Stmt::Local(_)) if named::in_stmt(local, name) > 0)
}

fn declares(syntax: &syn::Stmt, name: &str) -> bool {
    matches!(syntax, syn::Stmt::Local(local) if pattern::bindings(&local.pat).iter().any(|bound| bound.ident == name))
}

/// How often plain statements name something.
fn named_in(plain: &[Stmt], name: &str) -> usize {
    let of = |stmt: &Stmt| match &stmt.kind {
        // It names the function's items, and is in none of the user's scopes.
        StmtKind::Plain(syntax) if held::is_arguments(syntax) => usize::from(declares(syntax, name)),
        StmtKind::Plain(syntax) => named::in_stmt(syntax, name),
        _ => 0,
    };
    plain.iter().map(of).sum()
}
