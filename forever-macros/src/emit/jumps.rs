//! `break` and `continue` in plain statements that leave a stretch: carried variables are put back
//! first.
use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::visit_mut::{self, VisitMut};
use syn::{Expr, Lifetime};

use super::Emit;
use crate::hir::Stmt;

impl Emit<'_> {
    pub(super) fn rewrite_stmt(&self, stmt: &syn::Stmt) -> TokenStream {
        let mut stmt = stmt.clone();
        Rewrite { emit: self, labels: Vec::new(), loops: 0 }.visit_stmt_mut(&mut stmt);
        stmt.to_token_stream()
    }

    pub(super) fn rewrite_expr(&self, expr: &Expr) -> TokenStream {
        let mut expr = expr.clone();
        Rewrite { emit: self, labels: Vec::new(), loops: 0 }.visit_expr_mut(&mut expr);
        expr.to_token_stream()
    }

    /// The code that puts variables back before a jump.
    fn before_jump(&self, label: Option<&Lifetime>, again: bool) -> TokenStream {
        let target = match label {
            Some(label) => self.jumps.iter().rev().find(|t| t.label.as_ref().is_some_and(|name| label.ident == name)),
            None => self.jumps.iter().rev().find(|t| t.is_loop),
        };
        let Some(target) = target else { return TokenStream::new() };
        let needed = &self.cx.plan.needed;
        let live = if again { &needed.at_continue } else { &needed.at_break };
        live.get(&target.id).map_or_else(TokenStream::new, |live| self.put_back(target.taken, live))
    }

    /// Reports a `break` among a macro's arguments, which may jump before variables are put back.
    pub(super) fn check_hidden_jump(&mut self, stmt: &Stmt) {
        let Some(&span) = self.cx.table.hidden_jumps.get(&stmt.after) else { return };
        let matters = self.jumps.iter().any(|target| {
            let needed = &self.cx.plan.needed;
            let lives = [needed.at_continue.get(&target.id), needed.at_break.get(&target.id)];
            lives.into_iter().flatten().any(|live| !self.put_back(target.taken, live).is_empty())
        });
        if matters {
            self.report.at(span, crate::messages::HIDDEN_JUMP);
        }
    }
}

struct Rewrite<'a> {
    emit: &'a Emit<'a>,
    /// Labels and loops inside the statement: jumps to them stay in it.
    labels: Vec<String>,
    loops: usize,
}

impl Rewrite<'_> {
    fn leaves(&self, label: Option<&Lifetime>) -> bool {
        match label {
            Some(label) => !self.labels.contains(&label.ident.to_string()),
            None => self.loops == 0,
        }
    }

    fn inside(&mut self, label: Option<&syn::Label>, is_loop: bool, visit: impl FnOnce(&mut Self)) {
        self.labels.extend(label.map(|l| l.name.ident.to_string()));
        self.loops += usize::from(is_loop);
        visit(self);
        self.loops -= usize::from(is_loop);
        if label.is_some() {
            self.labels.pop();
        }
    }
}

impl VisitMut for Rewrite<'_> {
    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        match expr {
            Expr::Break(jump) => {
                let label = jump.label.clone();
                visit_mut::visit_expr_break_mut(self, jump);
                if !self.leaves(label.as_ref()) {
                    return;
                }
                let put_back = self.emit.before_jump(label.as_ref(), false);
                if put_back.is_empty() {
                    return;
                }
                *expr = Expr::Verbatim(match &jump.expr {
                    Some(value) => emit!({ let value = #value; #put_back break #label value }),
                    None => emit!({ #put_back #jump }),
                });
            }
            Expr::Continue(jump) => {
                if self.leaves(jump.label.as_ref()) {
                    let put_back = self.emit.before_jump(jump.label.as_ref(), true);
                    if !put_back.is_empty() {
                        *expr = Expr::Verbatim(emit!({ #put_back #jump }));
                    }
                }
            }
            Expr::Loop(e) => {
                let label = e.label.clone();
                self.inside(label.as_ref(), true, |v| visit_mut::visit_expr_loop_mut(v, e));
            }
            Expr::While(e) => {
                let label = e.label.clone();
                self.inside(label.as_ref(), true, |v| visit_mut::visit_expr_while_mut(v, e));
            }
            Expr::ForLoop(e) => {
                let label = e.label.clone();
                self.inside(label.as_ref(), true, |v| visit_mut::visit_expr_for_loop_mut(v, e));
            }
            Expr::Block(e) => {
                let label = e.label.clone();
                self.inside(label.as_ref(), false, |v| visit_mut::visit_expr_block_mut(v, e));
            }
            Expr::Closure(_) | Expr::Async(_) => {}
            other => visit_mut::visit_expr_mut(self, other),
        }
    }

    fn visit_local_mut(&mut self, local: &mut syn::Local) {
        local.attrs.retain(|a| !crate::names::is_ours(a));
        visit_mut::visit_local_mut(self, local);
    }

    fn visit_item_mut(&mut self, _: &mut syn::Item) {}
}
