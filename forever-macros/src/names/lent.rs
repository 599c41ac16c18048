//! References that leave a block with cut points:
//! `let better = if step!(..) { &a.title } else { &b.title };`.
//!
//! A variable that such a value borrows from must stay where it is until the value is used. So it
//! is kept at every cut point of its scope, and is an ordinary variable of the function then. Where
//! that cannot be, because it may be moved before one of them, the emitter reports it at the
//! variable that the value is bound to.
//!
//! The same holds for a variable that is declared without a value and is set in such a block.
//!
//! What a value borrows from is judged by its form: a borrow of a place, a variable that holds one,
//! a closure, or a method of the standard library that returns a reference into its receiver.
use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::Expr;

use super::{BlockValue, Names, Owner, VarKind};
use crate::hir::{Bind, Control, For};
use crate::ids::{JumpId, PointId, VarId};
use crate::place;
use crate::texts;

impl Names<'_> {
    /// Begins a control construct; `leave_value` takes what it returns.
    pub(super) fn enter_value(&mut self, bind: &Bind, control: &Control) -> bool {
        self.lent.depth += 1;
        let outer = self.lent.in_value;
        let is_bound = matches!(bind, Bind::Let { .. });
        self.lent.in_value = is_bound || matches!(bind, Bind::Tail) && outer;
        if is_bound {
            self.lent.values.push(BlockValue { first: self.table.vars.len(), ..BlockValue::default() });
        }
        if let (true, Control::Loop { id, .. } | Control::Scope { id, .. }) = (self.lent.in_value, control)
            && let Some(value) = self.lent.values.last_mut()
        {
            value.jumps.insert(*id);
        }
        // The end of a loop's body is not the loop's value.
        self.lent.in_value &= matches!(control, Control::Branch(_) | Control::Scope { .. });
        outer
    }

    /// Ends a control construct whose value is bound to `declares`.
    pub(super) fn leave_value(&mut self, bind: &Bind, outer: bool, declares: &[VarId]) {
        self.lent.depth -= 1;
        self.lent.in_value = outer;
        if !matches!(bind, Bind::Let { .. }) {
            return;
        }
        let mut value = self.lent.values.pop().unwrap_or_default();
        value.owners.retain(|owner| owner.var.0 < value.first);
        self.lent.owners.extend(value.owners.iter().map(|owner| owner.var));
        if let Some(first) = declares.first().filter(|_| !value.owners.is_empty()) {
            self.table.lent.insert(*first, value.owners.into_iter().collect());
        }
    }

    /// Whether the block that is about to be walked gives a bound value; the statements before its
    /// last one do not.
    pub(super) fn in_value(&self) -> bool {
        self.lent.in_value
    }

    pub(super) fn set_in_value(&mut self, in_value: bool) {
        self.lent.in_value = in_value;
    }

    /// Records the value at the end of a block.
    pub(super) fn gives(&mut self, value: &Expr) {
        let owners = self.owners_of(value);
        if let Some(of) = self.lent.values.last_mut() {
            of.owners.extend(owners);
        }
    }

    /// Records the value of a `break`.
    pub(super) fn breaks_with(&mut self, id: JumpId, value: &Expr) {
        let owners = self.owners_of(value);
        if let Some(of) = self.lent.values.iter_mut().rev().find(|of| of.jumps.contains(&id)) {
            of.owners.extend(owners);
        }
    }

    /// Records the value that a variable gets which was declared without one.
    pub(super) fn sets(&mut self, id: VarId, value: &Expr) {
        if self.table.unset.contains(&id) && self.lent.declared_in[id.0] < self.lent.depth {
            let owners = self.owners_of(value);
            self.lent.owners.extend(owners.into_iter().map(|owner| owner.var));
        }
    }

    pub(super) fn note_declared(&mut self) {
        self.lent.declared_at.push(self.lent.cuts);
        self.lent.moved_at.push(usize::MAX);
        self.lent.scopes_at.push(self.scopes.len() - self.lent.always);
        self.lent.declared_in.push(self.lent.depth);
    }

    /// Walks what has a scope of its own, and is carried out once wherever the walk comes to it.
    pub(super) fn always<T>(&mut self, walk: impl FnOnce(&mut Self) -> T) -> T {
        self.lent.always += 1;
        let walked = walk(self);
        self.lent.always -= 1;
        walked
    }

    /// Records a use of a variable as a value: it may be moved.
    pub(super) fn moved_whole(&mut self, id: VarId) {
        self.moved_in_part(id);
        if !self.lent.returns && self.lent.scopes_at[id.0] == self.scopes.len() - self.lent.always {
            self.lent.moved_surely.insert(id);
        }
    }

    /// Records a use of a field of a variable as a value.
    pub(super) fn moved_in_part(&mut self, id: VarId) {
        if !self.lent.returns {
            let moved_at = &mut self.lent.moved_at[id.0];
            *moved_at = (*moved_at).min(self.lent.cuts);
        }
    }

    /// Records which items of a borrowed loop are no references: places, characters, copies.
    pub(super) fn note_items(&mut self, for_loop: &For) {
        let (mut copies, mut places, mut items) = (false, false, &for_loop.items);
        while let Expr::MethodCall(call) = items {
            let method = call.method.to_string();
            copies |= ["copied", "cloned", "chars", "bytes", "char_indices"].contains(&&*method);
            places |= method == "enumerate";
            items = &call.receiver;
        }
        let bindings = crate::pattern::bindings(&for_loop.pat);
        for (place, (binding, &id)) in bindings.iter().zip(&for_loop.declares).enumerate() {
            if copies || binding.copied || places && place == 0 {
                self.lent.copies.insert(id);
            } else if bindings.len() > 1 {
                self.lent.in_doubt.insert(id);
            }
        }
    }

    /// Keeps the variables of a scope that are borrowed from at all cut points in it.
    pub(super) fn end_of_scope(&mut self, scope: &[(String, VarId)], end: PointId) {
        for &(_, id) in scope.iter().filter(|(_, id)| self.lent.owners.contains(id)) {
            let (from, to) = (self.lent.declared_at[id.0], self.lent.cuts);
            let is_kept = matches!(self.table.var(id).kind, VarKind::Value | VarKind::Fresh(_));
            if !is_kept || self.lent.moved_at[id.0] < to || self.table.unset.contains(&id) {
                continue;
            }
            for forced in &mut self.table.forced[from..to] {
                if !forced.contains(&id) {
                    forced.push(id);
                }
            }
            self.table.lent_until.entry(end).or_default().push(id);
        }
    }

    /// The variables that a value borrows from.
    fn owners_of(&self, value: &Expr) -> BTreeSet<Owner> {
        let mut found = BTreeSet::new();
        self.owners(value, true, &mut found);
        found
    }

    fn owners(&self, value: &Expr, is_certain: bool, found: &mut BTreeSet<Owner>) {
        // The names that a pattern binds here are not known.
        let mut end = |block: &syn::Block, is_certain: bool| {
            if let Some(syn::Stmt::Expr(value, None)) = block.stmts.last() {
                self.owners(value, is_certain, found);
            }
        };
        match value {
            Expr::Block(e) => end(&e.block, is_certain),
            Expr::Unsafe(e) => end(&e.block, is_certain),
            Expr::If(e) => {
                end(&e.then_branch, is_certain && !binds(&e.cond));
                if let Some((_, otherwise)) = &e.else_branch {
                    self.owners(otherwise, is_certain, found);
                }
            }
            Expr::Match(e) => e.arms.iter().for_each(|arm| self.owners(&arm.body, false, found)),
            Expr::Paren(e) => self.owners(&e.expr, is_certain, found),
            Expr::Group(e) => self.owners(&e.expr, is_certain, found),
            // A part of text may outlive the variable with the text: `&name[1..]`.
            Expr::Reference(e) => {
                let is_slice = matches!(&*e.expr, Expr::Index(index) if matches!(*index.index, Expr::Range(_)));
                self.sources_of(&e.expr, is_certain && !is_slice, found);
            }
            Expr::Path(_) => {
                let named = place::root(value).and_then(|root| self.lookup(&root.to_string()));
                if let Some(id) = named.filter(|id| self.holds_a_borrow(*id)) {
                    self.sources(id, is_certain && !self.lent.in_doubt.contains(&id), found);
                }
            }
            // `Some(..)`, `Choice::Of(..)`.
            Expr::Call(e) if matches!(&*e.func, Expr::Path(path) if path.path.segments.last().is_some_and(|s| s.ident.to_string().starts_with(char::is_uppercase))) =>
            {
                e.args.iter().for_each(|part| self.owners(part, is_certain, found));
            }
            Expr::Tuple(e) => e.elems.iter().for_each(|part| self.owners(part, is_certain, found)),
            Expr::Array(e) => e.elems.iter().for_each(|part| self.owners(part, is_certain, found)),
            Expr::Struct(e) => e.fields.iter().for_each(|field| self.owners(&field.expr, is_certain, found)),
            Expr::Closure(e) => self.captured(e.body.to_token_stream(), e.capture.is_some(), found),
            Expr::MethodCall(_) => {
                if let Some(place) = texts::referred(value) {
                    self.sources_of(place, false, found);
                }
            }
            _ => {}
        }
    }

    /// What the names in a closure borrow from: what a `move` closure captures is its own, but for
    /// borrows.
    fn captured(&self, tokens: TokenStream, moves: bool, found: &mut BTreeSet<Owner>) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.captured(group.stream(), moves, found),
                TokenTree::Ident(name) => {
                    if let Some(id) = self.lookup(&name.to_string()).filter(|id| !moves || self.holds_a_borrow(*id)) {
                        self.sources(id, true, found);
                    }
                }
                _ => {}
            }
        }
    }

    fn holds_a_borrow(&self, id: VarId) -> bool {
        match &self.table.var(id).kind {
            VarKind::Reborrow(again) => !self.table.reborrows[again.0].bases.is_empty(),
            VarKind::Item(bases) => !bases.is_empty() && !self.lent.copies.contains(&id),
            _ => false,
        }
    }

    /// The variables that own what a place is in.
    fn sources_of(&self, place: &Expr, is_certain: bool, found: &mut BTreeSet<Owner>) {
        if let Some(id) = place::root(place).and_then(|root| self.lookup(&root.to_string())) {
            self.sources(id, is_certain, found);
        }
    }

    fn sources(&self, id: VarId, is_certain: bool, found: &mut BTreeSet<Owner>) {
        match &self.table.var(id).kind {
            VarKind::Value | VarKind::Fresh(_) => drop(found.insert(Owner { var: id, is_certain })),
            VarKind::Reborrow(again) => {
                let again = &self.table.reborrows[again.0];
                again.bases.iter().for_each(|base| self.sources(*base, is_certain, found));
                // A list of constants is made again in each stretch.
                if again.bases.is_empty() && matches!(again.init, Expr::Array(_) | Expr::Macro(_)) {
                    found.insert(Owner { var: id, is_certain });
                }
            }
            VarKind::Item(bases) => bases.iter().for_each(|base| self.sources(*base, is_certain, found)),
            VarKind::Given | VarKind::Position => {}
        }
    }
}

/// Whether a condition binds names.
fn binds(cond: &Expr) -> bool {
    match cond {
        Expr::Let(_) => true,
        Expr::Binary(e) => binds(&e.left) || binds(&e.right),
        Expr::Paren(e) => binds(&e.expr),
        _ => false,
    }
}
