//! Checks that need the plan: values that cannot be kept although their types may be saved, and
//! names that must differ.
use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::Item;

use crate::cut::CutBody;
use crate::hir::{Block, Body, Control, Stmt, StmtKind};
use crate::ids::CutId;
use crate::messages;
use crate::names::{Table, VarKind};
use crate::plan::{Plan, Storage};
use crate::report::Report;
use crate::text::words;

pub(crate) fn check(body: &Body, table: &Table, plan: &Plan, report: &mut Report) {
    explicit_names(body, report);
    exclusive_borrows(body, table, plan, report);
    references(body, table, plan, report);
    closures(table, plan, report);
    Blocks { table, plan, report }.block(&body.block);
}

fn explicit_names(body: &Body, report: &mut Report) {
    let mut seen = BTreeMap::new();
    for cut in &body.cuts {
        let Some(place) = cut.named_at else { continue };
        // Two waits of one name also share the name of their pending cut points; the error is
        // reported once.
        let pending = matches!(cut.body, CutBody::Pending(_));
        if let Some(before) = seen.insert(&cut.base, pending)
            && !(pending && before)
        {
            report.at(place, messages::same_name(&cut.base));
        }
    }
}

/// Reports patterns that borrow exclusively and would be matched again: what they matched may have
/// been changed through them.
fn exclusive_borrows(body: &Body, table: &Table, plan: &Plan, report: &mut Report) {
    for again in table.reborrows.iter().filter(|a| a.mutable && a.pattern) {
        for &var in &again.makes {
            if let Some((cut, _)) = plan.needed.at_cut.iter().find(|(_, live)| live.contains(&var)) {
                let ident = &table.var(var).ident;
                report.at(ident.span(), messages::exclusive(&ident.to_string(), &step_text(body, plan, *cut)));
            }
        }
    }
}

/// Reports kept locals whose written type is a reference.
fn references(body: &Body, table: &Table, plan: &Plan, report: &mut Report) {
    let mut reported = BTreeSet::new();
    for (cut, kept) in plan.kept.iter().enumerate() {
        for kept in kept {
            let var = table.var(kept.var);
            let is_reference = matches!(var.ty, Some(syn::Type::Reference(_)));
            if var.borrowed_text && reported.insert(kept.var) {
                report.at(var.ident.span(), messages::borrowed_text(&var.ident.to_string(), &step_text(body, plan, cut)));
            }
            if is_reference && var.kind == VarKind::Value && var.texts.constants().is_none() && reported.insert(kept.var) {
                report.at(var.ident.span(), messages::reference(&var.ident.to_string(), &step_text(body, plan, cut)));
            }
        }
    }
}

/// Reports closures that name a variable in a macro and are made again where the name means another
/// variable.
fn closures(table: &Table, plan: &Plan, report: &mut Report) {
    for again in table.reborrows.iter().filter(|a| !a.in_macros.is_empty()) {
        let is_made_at = |live: &crate::flow::Live| again.makes.iter().any(|var| live.contains(var));
        let points = plan.needed.at_point.iter().filter(|(_, live)| is_made_at(live)).map(|(point, _)| point);
        let mut hidden = points.flat_map(|point| table.hidden.get(point).into_iter().flatten());
        if let Some((hidden, _)) = hidden.find(|(hidden, _)| again.in_macros.contains(hidden))
            && let Some(closure) = again.makes.first()
        {
            let name = |var| table.var(var).ident.to_string();
            report.at(table.var(*closure).ident.span(), messages::closure_of_a_hidden_name(&name(*closure), &name(*hidden)));
        }
    }
}

fn step_text(body: &Body, plan: &Plan, cut: CutId) -> String {
    body.cuts[cut].shown(&plan.names[cut].0)
}

/// The names in a `macro_rules!` other than its parameters.
fn free_names(rules: &TokenStream) -> BTreeSet<String> {
    let (mut found, mut is_parameter) = (BTreeSet::new(), false);
    for token in rules.clone() {
        match &token {
            TokenTree::Group(group) => found.extend(free_names(&group.stream())),
            TokenTree::Ident(name) if !is_parameter => drop(found.insert(name.to_string())),
            // A format string may name one.
            TokenTree::Literal(text) => found.extend(words(&text.to_string())),
            _ => {}
        }
        is_parameter = matches!(&token, TokenTree::Punct(mark) if mark.as_char() == '$');
    }
    found
}

struct Blocks<'a> {
    table: &'a Table,
    plan: &'a Plan,
    report: &'a mut Report,
}

impl Blocks<'_> {
    fn block(&mut self, block: &Block) {
        for (place, stmt) in block.stmts.iter().enumerate() {
            match &stmt.kind {
                StmtKind::Plain(syntax) => self.plain(stmt, syntax, &block.stmts[place + 1..]),
                StmtKind::Cut { .. } => {}
                StmtKind::Control { control, .. } => match control {
                    Control::Branch(branch) => branch.arms.iter().for_each(|arm| self.block(&arm.block)),
                    Control::Loop { body, .. } | Control::Scope { body, .. } => self.block(body),
                    Control::For(for_loop) => self.block(&for_loop.body),
                },
            }
        }
    }

    /// Reports a pattern without a value that lowering could not split. Its variables may be set in
    /// different stretches, where nothing ties their types together.
    fn set_later(&mut self, stmt: &Stmt, local: &syn::Local) {
        let is_kept = stmt.declares.iter().any(|v| self.plan.storage.get(v).is_some_and(|s| *s != Storage::Local));
        if local.init.is_none() && crate::scan::simple_name(&local.pat).is_none() && is_kept {
            let names: Vec<String> = stmt.declares.iter().map(|v| self.table.var(*v).ident.to_string()).collect();
            self.report.over(&local.pat, messages::set_later(&names));
        }
    }

    fn plain(&mut self, stmt: &Stmt, syntax: &syn::Stmt, later: &[Stmt]) {
        match syntax {
            syn::Stmt::Local(local) => {
                if let Some(cfg) = local.attrs.iter().find(|a| a.path().is_ident("cfg")) {
                    if stmt.declares.iter().any(|v| self.plan.storage.get(v).is_some_and(|s| *s != Storage::Local)) {
                        self.report.over(cfg, messages::CFG_LOCAL);
                    }
                }
                self.set_later(stmt, local);
            }
            syn::Stmt::Item(Item::Macro(rules)) => {
                let names = free_names(&rules.mac.tokens);
                let local = self.table.vars.iter().find(|v| v.kind != VarKind::Given && names.contains(&v.ident.to_string()));
                if let Some(var) = local.filter(|_| later.iter().any(|s| s.cuts.is_some())) {
                    self.report.over(&rules.mac.path, messages::macro_rules(&var.ident.to_string()));
                }
            }
            _ => {}
        }
    }
}
