//! Temporaries that live as long as a statement: a guard in what a `match` looks at, in the items
//! of a loop, or in an operand before a step.
//!
//! Each gets a variable before the statement. A method that takes it by value moves it out of
//! there, any other borrows it, and the compiler drops what is left where the emitter ends the
//! variable: with the statement.
use proc_macro2::{Span, TokenStream};
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
            Expr::Cast(mut e) => {
                *e.expr = self.lasting(*e.expr, prefix, out);
                Expr::Cast(e)
            }
            Expr::Unary(mut e) if !matches!(e.op, syn::UnOp::Deref(_)) => {
                *e.expr = self.lasting(*e.expr, prefix, out);
                Expr::Unary(e)
            }
            Expr::Binary(mut e) => {
                self.operands_lasting([&mut *e.left, &mut *e.right], prefix, out);
                Expr::Binary(e)
            }
            Expr::Call(mut e) if matches!(*e.func, Expr::Path(_)) => {
                self.operands_lasting(&mut e.args, prefix, out);
                Expr::Call(e)
            }
            Expr::Tuple(mut e) => {
                self.operands_lasting(&mut e.elems, prefix, out);
                Expr::Tuple(e)
            }
            Expr::Array(mut e) => {
                self.operands_lasting(&mut e.elems, prefix, out);
                Expr::Array(e)
            }
            Expr::Index(mut e) => {
                self.operands_lasting([&mut *e.expr, &mut *e.index], prefix, out);
                Expr::Index(e)
            }
            other => other,
        }
    }

    /// Gives a value a name.
    pub(super) fn set_aside(&mut self, value: &mut Expr, prefix: &str, out: &mut Vec<Stmt>) {
        let expr = std::mem::replace(value, Expr::Verbatim(TokenStream::new()));
        *value = self.named(expr, prefix, out);
    }

    /// Those of several operands before which nothing else is evaluated.
    fn operands_lasting<'e>(&mut self, operands: impl IntoIterator<Item = &'e mut Expr>, prefix: &str, out: &mut Vec<Stmt>) {
        for operand in operands {
            let expr = std::mem::replace(operand, Expr::Verbatim(TokenStream::new()));
            *operand = self.lasting(expr, prefix, out);
            if !matches!(operand, Expr::Path(_) | Expr::Lit(_)) {
                break;
            }
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
