//! `if` with cut points in its condition: each is evaluated only if all before it held.
use proc_macro2::Span;
use syn::visit_mut::{self, VisitMut};
use syn::{Expr, Label, Stmt as SynStmt, parse_quote};

use super::lasting::{Look, has_other_value};
use super::{Lower, strip};
use crate::hir::{Arm, Bind, Branch, Control, Head, Stmt};
use crate::scan::{block_has_cut, has_cut};

impl Lower<'_> {
    pub(super) fn if_(&mut self, mut e: syn::ExprIf, bind: Bind, out: &mut Vec<Stmt>) {
        let mut parts = Vec::new();
        conjuncts(*e.cond.clone(), &mut parts);
        if self.is_chain(&parts, &e) {
            let done = self.fresh_label();
            self.label_jumps(&mut parts, &mut e);
            return self.into_bind(chain(parts, e, done), bind, None, out);
        }
        if has_cut(&e.cond) {
            if let Expr::Let(binding) = &mut *e.cond
                && let Some(operands) = self.head_operand(&mut binding.expr, out)
            {
                return self.enclosed(operands, bind, |lower, bind, out| lower.if_(e, bind, out), out);
            }
            *e.cond = match *e.cond {
                Expr::Let(binding) => Expr::Let(binding),
                cond => {
                    let (mut stmts, written) = (Vec::new(), cond.clone());
                    let value = self.operand(cond, &mut stmts);
                    if stmts.iter().any(super::lasting::is_lasting) {
                        let (temp, local) = self.temporary(&written, &crate::text::compact(&written));
                        self.in_block(value, stmts, Bind::Let { attrs: local.attrs, pat: local.pat }, out);
                        temp
                    } else {
                        out.append(&mut stmts);
                        value
                    }
                }
            };
        }
        if !block_has_cut(&e.then_branch) && !e.else_branch.as_ref().is_some_and(|(_, e)| has_cut(e)) {
            return self.into_bind_plain(Expr::If(e), bind, out);
        }
        let depth = self.scope.len();
        if let Expr::Let(binding) = &mut *e.cond {
            super::apart::rename_bound(&mut binding.pat, &mut e.then_branch, &mut || self.temp());
        }
        self.note_conditions(&e.cond);
        if let Expr::Let(binding) = &mut *e.cond {
            let value = std::mem::replace(&mut *binding.expr, Expr::Verbatim(proc_macro2::TokenStream::new()));
            *binding.expr = self.looked_at(value, &[Look::of(&binding.pat, &e.then_branch)], out);
        }
        let then = Expr::Block(syn::ExprBlock { attrs: Vec::new(), label: None, block: e.then_branch });
        let then = self.arm(None, Vec::new(), then);
        self.scope.truncate(depth);
        let otherwise = match e.else_branch {
            Some((_, block)) => self.arm(None, Vec::new(), *block),
            None => Arm::implicit(),
        };
        let branch = Branch { head: Head::If { cond: *e.cond, attrs: e.attrs }, arms: vec![then, otherwise] };
        self.control(bind, Control::Branch(branch), out);
    }

    /// Whether conditions of which some bind are evaluated one in the other, before what is done
    /// otherwise: since there is a cut point in them, or since what they look at has temporaries,
    /// which end before the `else`.
    fn is_chain(&mut self, parts: &[Expr], e: &syn::ExprIf) -> bool {
        let mut bindings =
            parts.iter().filter_map(|part| if let Expr::Let(binding) = strip(part) { Some(binding) } else { None }).peekable();
        let ends_early = parts.len() > 1 || e.else_branch.as_ref().is_some_and(|(_, otherwise)| !only_breaks(otherwise));
        if !ends_early || bindings.peek().is_none() {
            return false;
        }
        if has_cut(&e.cond) {
            return parts.len() > 1 || bindings.any(|binding| has_other_value(&binding.expr));
        }
        let has_arm = block_has_cut(&e.then_branch) || e.else_branch.as_ref().is_some_and(|(_, otherwise)| has_cut(otherwise));
        has_arm && bindings.any(|binding| self.has_temporaries(binding, &e.then_branch))
    }

    /// Gives `break` and `continue` the label of their loop, because they move into a labelled
    /// block.
    pub(super) fn label_jumps(&mut self, parts: &mut [Expr], e: &mut syn::ExprIf) {
        let fresh = self.fresh_label();
        let Some(innermost) = self.loops.last_mut() else { return };
        let name = innermost.as_ref().map_or(fresh, |l| l.name.clone());
        let mut labelled = LabelJumps { label: name.clone(), found: false };
        parts.iter_mut().for_each(|p| labelled.visit_expr_mut(p));
        labelled.visit_block_mut(&mut e.then_branch);
        if let Some((_, otherwise)) = &mut e.else_branch {
            labelled.visit_expr_mut(otherwise);
        }
        if labelled.found && innermost.is_none() {
            *innermost = Some(Label { name, colon_token: syn::Token![:](Span::call_site()) });
        }
    }
}

/// Whether a block is that of a `while let` whose pattern does not match.
fn only_breaks(otherwise: &Expr) -> bool {
    let Expr::Block(block) = otherwise else { return false };
    matches!(&block.block.stmts[..], [SynStmt::Expr(Expr::Break(e), None)] if e.label.is_none() && e.expr.is_none())
}

/// Labels the jumps of one loop.
struct LabelJumps {
    label: syn::Lifetime,
    found: bool,
}

impl VisitMut for LabelJumps {
    fn visit_expr_break_mut(&mut self, e: &mut syn::ExprBreak) {
        visit_mut::visit_expr_break_mut(self, e);
        self.found |= e.label.is_none();
        e.label.get_or_insert_with(|| self.label.clone());
    }
    fn visit_expr_continue_mut(&mut self, e: &mut syn::ExprContinue) {
        self.found |= e.label.is_none();
        e.label.get_or_insert_with(|| self.label.clone());
    }
    // Inner loops, closures and items have jumps of their own.
    fn visit_expr_loop_mut(&mut self, _: &mut syn::ExprLoop) {}
    fn visit_expr_while_mut(&mut self, _: &mut syn::ExprWhile) {}
    fn visit_expr_for_loop_mut(&mut self, e: &mut syn::ExprForLoop) {
        self.visit_expr_mut(&mut e.expr);
    }
    fn visit_expr_closure_mut(&mut self, _: &mut syn::ExprClosure) {}
    fn visit_expr_async_mut(&mut self, _: &mut syn::ExprAsync) {}
    fn visit_item_mut(&mut self, _: &mut syn::Item) {}
}

/// A chain of conditions of which some bind:
/// `'done: { if c1 { if c2 { break 'done then } } otherwise }`.
fn chain(parts: Vec<Expr>, e: syn::ExprIf, done: syn::Lifetime) -> Expr {
    let then = e.then_branch;
    let mut inner: syn::Block = then;
    let value = match inner.stmts.pop() {
        Some(SynStmt::Expr(value, None)) => Some(value),
        Some(last) => {
            inner.stmts.push(last);
            None
        }
        None => None,
    };
    inner.stmts.push(parse_quote!(break #done #value;));
    for part in parts.into_iter().rev() {
        inner = parse_quote!({ if #part #inner });
    }
    if let Some((_, otherwise)) = e.else_branch {
        let otherwise: Vec<SynStmt> = match *otherwise {
            Expr::Block(block) => block.block.stmts,
            other => vec![SynStmt::Expr(other, None)],
        };
        inner.stmts.push(SynStmt::Expr(Expr::Block(parse_quote!({ #(#otherwise)* })), None));
    }
    parse_quote!(#done: #inner)
}

pub(super) fn conjuncts(cond: Expr, parts: &mut Vec<Expr>) {
    match cond {
        Expr::Binary(e) if matches!(e.op, syn::BinOp::And(_)) => {
            conjuncts(*e.left, parts);
            conjuncts(*e.right, parts);
        }
        Expr::Group(e) => conjuncts(*e.expr, parts),
        other => parts.push(other),
    }
}
