//! How blocks end: in a value, in `()`, or never.
use syn::visit::Visit;
use syn::{Block, Expr, Stmt};

use crate::place::is_assignment;
use crate::scan::has_cut;

/// Whether an expression ends in an explicit value, rather than in `()` or never.
pub(super) fn in_value(expr: &Expr) -> bool {
    match expr {
        Expr::Paren(e) => in_value(&e.expr),
        Expr::Group(e) => in_value(&e.expr),
        Expr::If(e) => block(&e.then_branch) || e.else_branch.as_ref().is_some_and(|(_, otherwise)| in_value(otherwise)),
        Expr::Match(e) => e.arms.iter().any(|arm| in_value(&arm.body)),
        Expr::Unsafe(e) => block(&e.block),
        Expr::Block(e) => block(&e.block) || e.label.is_some() && breaks_with_value(&e.block),
        Expr::Loop(e) => breaks_with_value(&e.body),
        Expr::While(_) | Expr::ForLoop(_) | Expr::Return(_) | Expr::Break(_) | Expr::Continue(_) | Expr::Assign(_) => false,
        Expr::Binary(e) => !is_assignment(e.op),
        Expr::Tuple(e) => !e.elems.is_empty(),
        _ => true,
    }
}

fn breaks_with_value(block: &Block) -> bool {
    block.stmts.iter().any(breaks_in)
}

/// Whether a statement contains a `break` with a value, of any loop.
pub(crate) fn breaks_in(stmt: &Stmt) -> bool {
    struct Values(bool);
    impl<'ast> Visit<'ast> for Values {
        fn visit_expr_break(&mut self, e: &'ast syn::ExprBreak) {
            self.0 |= e.expr.is_some();
        }
    }
    let mut values = Values(false);
    values.visit_stmt(stmt);
    values.0
}

fn block(block: &Block) -> bool {
    match block.stmts.last() {
        Some(Stmt::Expr(value, None)) => in_value(value),
        Some(Stmt::Macro(mac)) => mac.semi_token.is_none(),
        _ => false,
    }
}

/// Removes the semicolons at the ends of a block whose end is never reached. The last statement has
/// no value then, and as the block's value it shows the compiler that the block never ends.
pub(super) fn without_semicolon(expr: &mut Expr) {
    match expr {
        Expr::Paren(e) => without_semicolon(&mut e.expr),
        Expr::Group(e) => without_semicolon(&mut e.expr),
        Expr::Block(e) => last_of(&mut e.block),
        Expr::Unsafe(e) => last_of(&mut e.block),
        Expr::If(e) => {
            last_of(&mut e.then_branch);
            if let Some((_, otherwise)) = &mut e.else_branch {
                without_semicolon(otherwise);
            }
        }
        Expr::Match(e) => e.arms.iter_mut().for_each(|arm| without_semicolon(&mut arm.body)),
        _ => {}
    }
}

fn last_of(block: &mut Block) {
    if let Some(Stmt::Expr(last @ (Expr::If(_) | Expr::Match(_) | Expr::Block(_) | Expr::Unsafe(_)), semicolon)) = block.stmts.last_mut()
        && has_cut(last)
    {
        *semicolon = None;
        without_semicolon(last);
    }
}
