//! Where a stretch ends for the sake of destructors.
//!
//! What lives on after its stretch is declared before it, by its name: there nothing may mean
//! another variable of that name. So a `let` whose name the stretch has used begins another one.
//! An arm begins one if the emitter finds that its variables have no other place to live on.
use proc_macro2::{Ident, Span};
use quote::format_ident;
use syn::spanned::Spanned;
use syn::visit_mut::VisitMut;
use syn::{Block, Expr, Local, Pat, Stmt};

use crate::held::is_arguments;
use crate::named;
use crate::names::is_ours;
use crate::pattern;
use crate::scan::{has_cut, stmt_has_cut};

/// Gives variables that the block hides before its next cut point names of their own, so that what
/// hides them can be declared earlier.
pub(super) fn rename_hidden(stmts: &mut [Stmt], temp: &mut dyn FnMut() -> usize) {
    let Some(last) = stmts.iter().rposition(stmt_has_cut) else { return };
    for hiding in 1..=last {
        for name in hidden_by(stmts, hiding) {
            let Some(hidden) =
                (0..hiding).rev().take_while(|place| !stmt_has_cut(&stmts[*place])).find(|place| declared(&stmts[*place]).contains(&name))
            else {
                continue;
            };
            let is_fixed =
                |stmt: &Stmt| named::in_macros(stmt, &name) || matches!(stmt, Stmt::Local(local) if local.attrs.iter().any(is_ours));
            // Arguments are stored by their names.
            if is_arguments(&stmts[hidden]) || stmts[hidden..=hiding].iter().any(is_fixed) {
                continue;
            }
            let to = renamed(&name, temp(), span_of(&stmts[hidden]));
            let mut renamed = named::Renamed { from: &name, to: &to };
            if let Stmt::Local(local) = &mut stmts[hidden] {
                renamed.visit_pat_mut(&mut local.pat);
            }
            stmts[hidden + 1..hiding].iter_mut().for_each(|stmt| renamed.visit_stmt_mut(stmt));
            match &mut stmts[hiding] {
                Stmt::Local(Local { init: Some(init), .. }) => renamed.visit_local_init_mut(init),
                Stmt::Expr(Expr::If(e), _) => match &mut *e.cond {
                    Expr::Let(binding) => renamed.visit_expr_mut(&mut binding.expr),
                    cond => renamed.visit_expr_mut(cond),
                },
                Stmt::Expr(Expr::Match(e), _) => renamed.visit_expr_mut(&mut e.expr),
                _ => {}
            }
        }
    }
}

/// The names that a statement gives to other variables, and that mean nothing else from there on.
fn hidden_by(stmts: &[Stmt], place: usize) -> Vec<String> {
    let is_gone = |name: &String| !stmts[place + 1..].iter().any(|stmt| named::in_stmt(stmt, name) > 0);
    match &stmts[place] {
        stmt @ Stmt::Local(Local { init, .. }) if !init.as_ref().is_some_and(|init| has_cut(&init.expr)) => declared(stmt),
        Stmt::Expr(Expr::If(e), _) => {
            let Expr::Let(binding) = &*e.cond else { return Vec::new() };
            let is_elsewhere = |name: &String| e.else_branch.as_ref().is_some_and(|(_, otherwise)| named::in_expr(otherwise, name) > 0);
            let bound = pattern::bindings(&binding.pat).into_iter().map(|bound| bound.ident.to_string());
            bound.filter(|name| !has_cut(&e.cond) && is_gone(name) && !is_elsewhere(name)).collect()
        }
        Stmt::Expr(Expr::Match(e), _) if !has_cut(&e.expr) => {
            let is_elsewhere = |name: &String| e.arms.iter().any(|arm| named::in_arm(arm, name) > 0);
            let bound = e.arms.iter().flat_map(|arm| pattern::bindings(&arm.pat)).map(|bound| bound.ident.to_string());
            bound.filter(|name| is_gone(name) && !is_elsewhere(name)).collect()
        }
        _ => Vec::new(),
    }
}

/// As [`rename_hidden`], for what the pattern of an arm binds and the arm hides.
pub(super) fn rename_bound(pat: &mut Pat, block: &mut Block, temp: &mut dyn FnMut() -> usize) {
    let end = block.stmts.iter().position(stmt_has_cut).unwrap_or(0);
    let span = pat.span();
    for name in pattern::bindings(pat).into_iter().map(|bound| bound.ident.to_string()).collect::<Vec<_>>() {
        let Some(hiding) = block.stmts[..end].iter().position(|stmt| declared(stmt).contains(&name)) else { continue };
        if block.stmts[..=hiding].iter().any(|stmt| named::in_macros(stmt, &name)) {
            continue;
        }
        let to = renamed(&name, temp(), span);
        let mut renamed = named::Renamed { from: &name, to: &to };
        renamed.visit_pat_mut(pat);
        block.stmts[..hiding].iter_mut().for_each(|stmt| renamed.visit_stmt_mut(stmt));
        if let Stmt::Local(Local { init: Some(init), .. }) = &mut block.stmts[hiding] {
            renamed.visit_local_init_mut(init);
        }
    }
}

fn renamed(name: &str, number: usize, span: Span) -> Ident {
    format_ident!("{}_{}", name.trim_start_matches("r#"), number, span = span.resolved_at(Span::mixed_site()))
}

fn span_of(stmt: &Stmt) -> Span {
    if let Stmt::Local(local) = stmt { local.pat.span() } else { Span::call_site() }
}

/// Whether a statement declares a name that the stretch before it has used for something else, and
/// nothing else of the stretch is used behind.
pub(super) fn begins_stretch(stmts: &[Stmt], place: usize) -> bool {
    let (before, rest) = stmts.split_at(place);
    let [Stmt::Local(local), later @ ..] = rest else { return false };
    let Some(init) = local.init.as_ref().filter(|init| init.diverge.is_none()) else { return false };
    let names = declared(&rest[0]);
    if names.is_empty() || has_cut(&init.expr) || !later.iter().any(stmt_has_cut) {
        return false;
    }
    let stretch = &before[before.iter().rposition(stmt_has_cut).map_or(0, |cut| cut + 1)..];
    let is_used = |name: &String| named::in_expr(&init.expr, name) == 0 && stretch.iter().any(|stmt| named::in_stmt(stmt, name) > 0);
    let is_needed = |name: &String| !names.contains(name) && rest.iter().any(|stmt| named::in_stmt(stmt, name) > 0);
    names.iter().any(is_used) && !stretch.iter().flat_map(declared).any(|name| is_needed(&name))
}

/// The values that a `let` borrows, which live as long as its block, if the borrows are used before
/// the first cut point alone.
pub(super) fn borrowed_values(stmts: &mut [Stmt], place: usize) -> Vec<&mut Expr> {
    let (before, later) = stmts.split_at_mut(place + 1);
    let names = declared(&before[place]);
    let Stmt::Local(Local { init: Some(init), .. }) = &mut before[place] else { return Vec::new() };
    let Some(cut) = later.iter().position(stmt_has_cut) else { return Vec::new() };
    let is_needed = || later[cut..].iter().any(|stmt| names.iter().any(|name| named::in_stmt(stmt, name) > 0));
    if init.diverge.is_some() || is_needed() { Vec::new() } else { temporaries(&mut init.expr).unwrap_or_default() }
}

/// As [`borrowed_values`], of what a `match` looks at.
pub(super) fn borrowed_in(scrutinee: &mut Expr) -> Vec<&mut Expr> {
    temporaries(scrutinee).unwrap_or_default()
}

/// The values of `&value()`, or of several in a tuple; `None` if it has other parts that do
/// something.
fn temporaries(expr: &mut Expr) -> Option<Vec<&mut Expr>> {
    match expr {
        Expr::Reference(borrow) => {
            let is_value = matches!(&*borrow.expr, Expr::Call(_) | Expr::MethodCall(_) | Expr::Await(_) | Expr::Try(_));
            Some(if is_value { vec![&mut *borrow.expr] } else { Vec::new() })
        }
        Expr::Tuple(e) => joined(e.elems.iter_mut()),
        Expr::Array(e) => joined(e.elems.iter_mut()),
        Expr::Struct(e) if e.rest.is_none() => joined(e.fields.iter_mut().map(|field| &mut field.expr)),
        Expr::Paren(e) => temporaries(&mut e.expr),
        Expr::Path(_) | Expr::Lit(_) => Some(Vec::new()),
        _ => None,
    }
}

fn joined<'e>(parts: impl Iterator<Item = &'e mut Expr>) -> Option<Vec<&'e mut Expr>> {
    let parts: Option<Vec<Vec<&mut Expr>>> = parts.map(temporaries).collect();
    parts.map(|parts| parts.into_iter().flatten().collect())
}

/// The names that a `let` declares.
fn declared(stmt: &Stmt) -> Vec<String> {
    let Stmt::Local(local) = stmt else { return Vec::new() };
    pattern::bindings(&local.pat).iter().map(|bound| bound.ident.to_string()).collect()
}
