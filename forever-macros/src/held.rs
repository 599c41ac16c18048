//! Guards: locals that are held over a cut point for their destructors.
//!
//! A local that nothing mentions after its `let` exists for its destructor: a permit, a guard, an
//! entered span. If it were dropped at a cut point, what it holds would be released silently.
//! Whether its destructor does anything depends on its type, so this pass only finds the locals;
//! `emit` checks their types, and lets those that are used live until their block ends.
use std::collections::{BTreeMap, BTreeSet};

use syn::Expr;

use crate::extended::extended_values;
use crate::flow::{Assigned, Needed};
use crate::hir::{Block, Body, Control, Stmt, StmtKind};
use crate::ids::{CutId, VarId};
use crate::kept::Kept;
use crate::lower::lasting;
use crate::names::{Table, VarKind};

/// Result of the pass.
#[derive(Default)]
pub(crate) struct Found {
    /// Locals that are held across a cut point which does not keep them, with the first such cut
    /// point.
    pub(crate) held: BTreeMap<VarId, CutId>,
    /// As `held`, of locals that are used: they are dropped where plain Rust drops them if they can
    /// be declared before their stretch.
    pub(crate) used: BTreeMap<VarId, CutId>,
    /// Those of `used` that are held at a cut point at which the fiber may leave memory.
    pub(crate) over_wait: BTreeSet<VarId>,
    /// Locals that hold a lock's guard.
    pub(crate) guards: BTreeSet<VarId>,
    /// Values that a `let` lends to its variables, by its first variable: the first cut point over
    /// which they would be held.
    pub(crate) lending: BTreeMap<VarId, CutId>,
    /// The expressions of temporaries, by the names that they were given.
    pub(crate) temporaries: BTreeMap<String, String>,
    /// The names of those that hold a lock's guard.
    guarding: BTreeSet<String>,
}

pub(crate) fn held(body: &Body, table: &Table, needed: &Needed, assigned: &Assigned, kept: &[Vec<Kept>]) -> Found {
    let mentioned = table.uses.iter().filter(|u| !u.assigns).map(|u| u.var).collect();
    let kept = kept.iter().flatten().map(|k| k.var).collect();
    let mut pass = Held { body, table, needed, assigned, mentioned, kept, found: Found::default() };
    pass.block(&body.block, &[]);
    pass.found
}

struct Held<'a> {
    body: &'a Body,
    table: &'a Table,
    needed: &'a Needed,
    assigned: &'a Assigned,
    mentioned: BTreeSet<VarId>,
    /// Kept variables, whose types are checked where they are kept.
    kept: BTreeSet<VarId>,
    found: Found,
}

impl Held<'_> {
    /// `entering`: variables declared on entering the block.
    fn block(&mut self, block: &Block, entering: &[VarId]) {
        self.declared(entering, None, false, &block.stmts);
        for (place, stmt) in block.stmts.iter().enumerate() {
            let later = &block.stmts[place + 1..];
            match &stmt.kind {
                StmtKind::Plain(syntax) => {
                    if !takes_next_item(syntax) && !is_arguments(syntax) {
                        let is_guard = self.holds_lock(syntax, &stmt.declares);
                        self.declared(&stmt.declares, None, is_guard, later);
                        self.lends(syntax, &stmt.declares, later);
                    }
                }
                StmtKind::Cut { cut, .. } => self.declared(&stmt.declares, Some(*cut), false, later),
                StmtKind::Control { control, .. } => {
                    self.declared(&stmt.declares, None, false, later);
                    match control {
                        Control::Branch(branch) => branch.arms.iter().for_each(|arm| self.block(&arm.block, &arm.declares)),
                        Control::Loop { body, .. } | Control::Scope { body, .. } => self.block(body, &[]),
                        Control::For(for_loop) => self.block(&for_loop.body, &[]),
                    }
                }
            }
        }
    }

    /// Checks the cut points in the scope of a declaration: `own`, which gives it its value, and
    /// those in `later`.
    fn declared(&mut self, declares: &[VarId], own: Option<CutId>, is_guard: bool, later: &[Stmt]) {
        for &var in declares {
            let has_value = matches!(self.table.var(var).kind, VarKind::Value | VarKind::Fresh(_));
            if is_guard {
                self.found.guards.insert(var);
            }
            if !has_value || self.kept.contains(&var) {
                continue;
            }
            let cuts = own.into_iter().chain(later.iter().filter_map(|s| s.cuts.clone()).flatten());
            let is_used = self.mentioned.contains(&var);
            let is_set_again = self.table.var(var).mutable && self.table.uses.iter().any(|u| u.var == var && u.assigns);
            let held = |cut: &CutId| {
                let at_cut = |of: &BTreeMap<CutId, BTreeSet<VarId>>| of.get(cut).is_some_and(|vars| vars.contains(&var));
                let may_be_moved =
                    is_used && !is_set_again && self.table.moved_at[var.0] <= *cut && (is_guard || self.table.moved_surely.contains(&var));
                at_cut(&self.assigned.at_cut) && !at_cut(&self.needed.at_cut) && !may_be_moved
            };
            let mut cuts = cuts.into_iter().filter(held).peekable();
            if let Some(&cut) = cuts.peek() {
                let is_dropped_later = is_used && !is_guard;
                let found = if is_dropped_later { &mut self.found.used } else { &mut self.found.held };
                found.insert(var, cut);
                if is_dropped_later && cuts.any(|cut| self.body.cuts[cut].body.may_leave_memory()) {
                    self.found.over_wait.insert(var);
                }
            }
        }
    }
}

impl Held<'_> {
    fn lends(&mut self, syntax: &syn::Stmt, declares: &[VarId], later: &[Stmt]) {
        let (syn::Stmt::Local(syn::Local { init: Some(init), .. }), Some(first)) = (syntax, declares.first()) else { return };
        let is_over = |cut: &CutId| self.needed.at_cut.get(cut).is_none_or(|needed| !declares.iter().any(|var| needed.contains(var)));
        let mut cuts = later.iter().filter_map(|stmt| stmt.cuts.clone()).flatten();
        if let Some(cut) = cuts.next().filter(is_over)
            && !extended_values(&init.expr).is_empty()
        {
            self.found.lending.insert(*first, cut);
        }
    }

    /// Whether a `let` takes a lock's guard, by the name of the method. Such a guard is held to the
    /// end of its block, or of its statement if it is a temporary, even where it is used.
    fn holds_lock(&mut self, syntax: &syn::Stmt, declares: &[VarId]) -> bool {
        let syn::Stmt::Local(syn::Local { init: Some(init), .. }) = syntax else { return false };
        let is_guard = is_guard(&init.expr, &self.found.guarding);
        if let ([var], Some(value)) = (declares, lasting::value(syntax)) {
            let (name, mut text) = (self.table.var(*var).ident.to_string(), crate::text::whole(value));
            for (name, of) in &self.found.temporaries {
                text = text.replace(name, of);
            }
            if is_guard {
                self.found.guarding.insert(name.clone());
            }
            self.found.temporaries.insert(name, text);
        }
        is_guard
    }
}

fn is_guard(expr: &Expr, guarding: &BTreeSet<String>) -> bool {
    let is_guard = |expr| is_guard(expr, guarding);
    match expr {
        Expr::Path(e) => e.path.get_ident().is_some_and(|name| guarding.contains(&name.to_string())),
        Expr::Await(e) => is_guard(&e.base),
        Expr::Try(e) => is_guard(&e.expr),
        Expr::Paren(e) => is_guard(&e.expr),
        Expr::MethodCall(e) => {
            let name = e.method.to_string();
            match name.as_str() {
                "unwrap" | "expect" | "unwrap_or_else" => is_guard(&e.receiver),
                _ => e.args.is_empty() && ["lock", "try_lock", "lock_owned", "borrow_mut", "entered"].contains(&name.as_str()),
            }
        }
        _ => false,
    }
}

/// Whether a statement takes the next item of a loop by value. The item is saved with the remaining
/// ones.
pub(crate) fn takes_next_item(syntax: &syn::Stmt) -> bool {
    let syn::Stmt::Local(syn::Local { init: Some(init), .. }) = syntax else { return false };
    let Expr::MethodCall(call) = &*init.expr else { return false };
    matches!(&*call.receiver, Expr::Path(path) if path.path.get_ident().is_some_and(|i| i.to_string().starts_with("__rest_")))
}

/// Whether a statement is that of `expand::arguments`. Its variables are parts of what was saved
/// when the fiber was spawned.
pub(crate) fn is_arguments(stmt: &syn::Stmt) -> bool {
    let syn::Stmt::Local(syn::Local { attrs, init: Some(init), .. }) = stmt else { return false };
    let syn::Expr::Call(call) = &*init.expr else { return false };
    let is_start = matches!(call.args.first(), Some(syn::Expr::Path(path)) if path.path.is_ident("start"));
    is_start && attrs.iter().any(|a| matches!(&a.meta, syn::Meta::List(list) if list.tokens.to_string() == "non_shorthand_field_patterns"))
}
