//! Temporaries that live as long as the variables of the `let` that borrows them.
use std::borrow::Cow;

use syn::{Block, Expr, Macro, Stmt};

/// Where the value of a `let` may borrow from such a temporary.
enum Lender<'e> {
    /// What stands behind a `&`.
    Borrowed(&'e Expr),
    /// A macro that borrows what it is given, or of which it is not known.
    Macro(&'e Macro),
}

/// Whether a value may borrow from temporaries that live as long as the variable.
pub(crate) fn extends_temporaries(init: &Expr) -> bool {
    let mut found = Vec::new();
    lenders(init, &mut found);
    !found.is_empty()
}

/// The values that live as long as the variable, where the code shows them.
pub(crate) fn extended_values(init: &Expr) -> Vec<Cow<'_, Expr>> {
    let mut found = Vec::new();
    lenders(init, &mut found);
    let value = |lender| match lender {
        Lender::Borrowed(place) => value_in(place).map(Cow::Borrowed),
        Lender::Macro(mac) if is_named(mac, "pin") => mac.parse_body().ok().map(Cow::Owned),
        Lender::Macro(_) => None,
    };
    found.into_iter().filter_map(value).collect()
}

fn lenders<'e>(init: &'e Expr, found: &mut Vec<Lender<'e>>) {
    match init {
        Expr::Reference(e) => found.push(Lender::Borrowed(&e.expr)),
        Expr::Macro(e) if is_named(&e.mac, "pin") || is_named(&e.mac, "format_args") => found.push(Lender::Macro(&e.mac)),
        Expr::Paren(e) => lenders(&e.expr, found),
        Expr::Group(e) => lenders(&e.expr, found),
        Expr::Cast(e) => lenders(&e.expr, found),
        Expr::Tuple(e) => e.elems.iter().for_each(|value| lenders(value, found)),
        Expr::Array(e) => e.elems.iter().for_each(|value| lenders(value, found)),
        Expr::Struct(e) => e.fields.iter().for_each(|field| lenders(&field.expr, found)),
        // Of a tuple struct or variant; a function's arguments end with the statement.
        Expr::Call(e) if is_constructor(&e.func) => e.args.iter().for_each(|value| lenders(value, found)),
        Expr::Block(e) => lenders_at_end(&e.block, found),
        Expr::Unsafe(e) => lenders_at_end(&e.block, found),
        Expr::If(e) => {
            lenders_at_end(&e.then_branch, found);
            e.else_branch.iter().for_each(|(_, otherwise)| lenders(otherwise, found));
        }
        Expr::Match(e) => e.arms.iter().for_each(|arm| lenders(&arm.body, found)),
        _ => {}
    }
}

fn lenders_at_end<'e>(block: &'e Block, found: &mut Vec<Lender<'e>>) {
    match block.stmts.last() {
        Some(Stmt::Expr(value, None)) => lenders(value, found),
        Some(Stmt::Macro(mac)) if mac.semi_token.is_none() => found.push(Lender::Macro(&mac.mac)),
        _ => {}
    }
}

/// The value that a borrowed place is in, if it is in one.
fn value_in(place: &Expr) -> Option<&Expr> {
    match place {
        Expr::Field(e) => value_in(&e.base),
        Expr::Index(e) => value_in(&e.expr),
        Expr::Paren(e) => value_in(&e.expr),
        Expr::Unary(e) if matches!(e.op, syn::UnOp::Deref(_)) => value_in(&e.expr),
        Expr::Call(_) | Expr::MethodCall(_) | Expr::Await(_) | Expr::Try(_) | Expr::Macro(_) => Some(place),
        _ => None,
    }
}

fn is_named(mac: &Macro, name: &str) -> bool {
    mac.path.segments.last().is_some_and(|segment| segment.ident == name)
}

fn is_constructor(func: &Expr) -> bool {
    let Expr::Path(path) = func else { return false };
    path.path.segments.last().is_some_and(|s| s.ident.to_string().starts_with(char::is_uppercase))
}
