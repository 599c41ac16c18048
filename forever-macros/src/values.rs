//! Values that cannot be saved, by the form of their expression: closures that can be made again,
//! and values with a suggestion of their own.
use syn::Expr;
use syn::visit::Visit;

use crate::place::{self, BORROWING};

/// Forms of values that cannot be saved and have a suggestion of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum MadeBy {
    #[default]
    Other,
    Closure,
    Iterator,
    /// Bound by `Err(..)`.
    Error,
}

/// The form of an expression, if it has a suggestion of its own.
pub(crate) fn made_by(expr: &Expr) -> MadeBy {
    match expr {
        Expr::Closure(_) => MadeBy::Closure,
        Expr::MethodCall(e) if ITERATORS.iter().chain(BORROWING).any(|name| e.method == name) => MadeBy::Iterator,
        Expr::Paren(e) => made_by(&e.expr),
        Expr::Group(e) => made_by(&e.expr),
        _ => MadeBy::Other,
    }
}

/// Methods that return iterators, besides those in [`BORROWING`].
const ITERATORS: &[&str] =
    &["into_iter", "peekable", "map", "filter", "filter_map", "flat_map", "enumerate", "zip", "chain", "rev", "drain"];

/// The closure that an expression is, or that a policy for effects in doubt consists of.
pub(crate) fn closure(expr: &Expr) -> Option<&syn::ExprClosure> {
    match expr {
        Expr::Closure(e) => Some(e),
        Expr::Call(e) if is_check(expr) => e.args.first().and_then(closure),
        Expr::Paren(e) => closure(&e.expr),
        Expr::Group(e) => closure(&e.expr),
        _ => None,
    }
}

/// Whether an expression is an `OnUnknown::check(..)`.
pub(crate) fn is_check(expr: &Expr) -> bool {
    match expr {
        Expr::Call(e) => place::last_two(&e.func).is_some_and(|(of, name)| of == "OnUnknown" && name == "check"),
        Expr::Paren(e) => is_check(&e.expr),
        Expr::Group(e) => is_check(&e.expr),
        _ => false,
    }
}

/// Makes a closure borrow what it captures: also a `move` closure can then be made again, while the
/// captured variables are kept.
pub(crate) fn borrow_captures(expr: &mut Expr) {
    let is_check = is_check(expr);
    match expr {
        Expr::Closure(e) => e.capture = None,
        Expr::Call(e) if is_check => e.args.iter_mut().for_each(borrow_captures),
        Expr::Paren(e) => borrow_captures(&mut e.expr),
        Expr::Group(e) => borrow_captures(&mut e.expr),
        _ => {}
    }
}

/// Names in a closure that generated code cannot rename.
#[derive(Default)]
pub(crate) struct Inside {
    /// The names that it binds itself, and those that mean a field and a variable at once.
    pub(crate) bound: Vec<syn::Ident>,
    pub(crate) macros: Vec<proc_macro2::TokenStream>,
}

impl Inside {
    pub(crate) fn of(closure: &syn::ExprClosure) -> Self {
        let mut inside = Inside::default();
        inside.visit_expr_closure(closure);
        inside
    }
}

impl<'ast> Visit<'ast> for Inside {
    fn visit_pat_ident(&mut self, pat: &'ast syn::PatIdent) {
        self.bound.push(pat.ident.clone());
        syn::visit::visit_pat_ident(self, pat);
    }

    fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
        if let (None, syn::Member::Named(name)) = (&field.colon_token, &field.member) {
            self.bound.push(name.clone());
        }
        syn::visit::visit_field_value(self, field);
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        self.macros.push(mac.tokens.clone());
    }
}
