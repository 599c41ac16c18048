//! Temporaries that live as long as a statement: a guard in what a `match` looks at, in the items
//! of a loop, or in an operand before a step.
//!
//! Each gets a variable before the statement. A method that takes it by value moves it out of
//! there, any other borrows it, and the compiler drops what is left where the emitter ends the
//! variable: with the statement.
use proc_macro2::Span;
use quote::format_ident;
use syn::spanned::Spanned;
use syn::{Expr, Stmt as SynStmt, parse_quote, parse_quote_spanned};

use super::{Lower, plain};
use crate::hir::{LASTING, Stmt, StmtKind};
use crate::place;

impl Lower<'_> {
    /// The same expression, in which the receivers of its methods that are values have names with
    /// this prefix.
    pub(super) fn lasting(&mut self, expr: Expr, prefix: &str, out: &mut Vec<Stmt>) -> Expr {
        match expr {
            Expr::MethodCall(mut e) => {
                *e.receiver = self.named(*e.receiver, prefix, out);
                Expr::MethodCall(e)
            }
            Expr::Field(mut e) => {
                *e.base = self.named(*e.base, prefix, out);
                Expr::Field(e)
            }
            Expr::Await(mut e) => {
                *e.base = self.lasting(*e.base, prefix, out);
                Expr::Await(e)
            }
            Expr::Try(mut e) => {
                *e.expr = self.lasting(*e.expr, prefix, out);
                Expr::Try(e)
            }
            Expr::Paren(mut e) => {
                *e.expr = self.lasting(*e.expr, prefix, out);
                Expr::Paren(e)
            }
            other => other,
        }
    }

    /// A value as a variable; a place as it is.
    fn named(&mut self, expr: Expr, prefix: &str, out: &mut Vec<Stmt>) -> Expr {
        let expr = self.lasting(expr, prefix, out);
        if !matches!(expr, Expr::MethodCall(_) | Expr::Call(_) | Expr::Await(_) | Expr::Try(_) | Expr::Macro(_)) || place::is_place(&expr) {
            return expr;
        }
        let span = expr.span();
        let ident = format_ident!("{}{}", prefix, self.temp(), span = span.resolved_at(Span::mixed_site()));
        let local: SynStmt = parse_quote_spanned!(span=> let mut #ident = #expr;);
        out.push(plain(local));
        parse_quote!(#ident)
    }
}

/// The value of a temporary, if a statement gives it its name.
pub(crate) fn value(syntax: &SynStmt) -> Option<&Expr> {
    let SynStmt::Local(local) = syntax else { return None };
    let is_named = matches!(&local.pat, syn::Pat::Ident(name) if name.ident.to_string().starts_with(LASTING));
    local.init.as_ref().filter(|_| is_named).map(|init| &*init.expr)
}

/// Whether a statement gives a temporary its name.
pub(super) fn is_lasting(stmt: &Stmt) -> bool {
    matches!(&stmt.kind, StmtKind::Plain(syntax) if value(syntax).is_some())
}
