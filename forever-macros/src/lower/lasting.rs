//! Temporaries that live as long as a statement: a guard in what a `match` looks at, in the items
//! of a loop, or in an operand before a step.
//!
//! Each gets a variable before the statement. A method that takes it by value moves it out of
//! there, any other borrows it, and the compiler drops what is left where the emitter ends the
//! variable: with the statement.
use proc_macro2::{Span, TokenStream};
use quote::format_ident;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Block, Expr, Ident, Pat, Stmt as SynStmt, parse_quote, parse_quote_spanned};

use super::{Lower, plain};
use crate::hir::{LASTING, Stmt, StmtKind};
use crate::named;
use crate::pattern;
use crate::place;
use crate::scan::{as_cut, has_cut, stmt_has_cut};

impl Lower<'_> {
    /// The same expression, in which the receivers of its methods that are values have names with
    /// this prefix.
    pub(super) fn lasting(&mut self, expr: Expr, prefix: &str, out: &mut Vec<Stmt>) -> Expr {
        match expr {
            Expr::MethodCall(mut e) => {
                *e.receiver = self.named(*e.receiver, prefix, out);
                self.arguments_lasting(&mut e.args, prefix, out);
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
            Expr::Group(mut e) => {
                *e.expr = self.lasting(*e.expr, prefix, out);
                Expr::Group(e)
            }
            Expr::Unary(mut e) => {
                let of_place = matches!(e.op, syn::UnOp::Deref(_));
                *e.expr = if of_place { self.named(*e.expr, prefix, out) } else { self.lasting(*e.expr, prefix, out) };
                Expr::Unary(e)
            }
            // The right side may not be evaluated.
            Expr::Binary(mut e) if matches!(e.op, syn::BinOp::And(_) | syn::BinOp::Or(_)) => {
                *e.left = self.lasting(*e.left, prefix, out);
                Expr::Binary(e)
            }
            Expr::Binary(mut e) => {
                let of = if place::is_comparison(e.op) { Use::Place } else { Use::Value };
                self.operands_lasting([(of, &mut *e.left), (of, &mut *e.right)], prefix, out);
                Expr::Binary(e)
            }
            Expr::Range(mut e) => {
                self.values_lasting(e.start.as_deref_mut().into_iter().chain(e.end.as_deref_mut()), prefix, out);
                Expr::Range(e)
            }
            Expr::Call(mut e) if matches!(*e.func, Expr::Path(_)) => {
                self.arguments_lasting(&mut e.args, prefix, out);
                Expr::Call(e)
            }
            Expr::Tuple(mut e) => {
                self.values_lasting(&mut e.elems, prefix, out);
                Expr::Tuple(e)
            }
            Expr::Array(mut e) => {
                self.values_lasting(&mut e.elems, prefix, out);
                Expr::Array(e)
            }
            Expr::Struct(mut e) => {
                self.values_lasting(e.fields.iter_mut().map(|field| &mut field.expr), prefix, out);
                Expr::Struct(e)
            }
            Expr::Index(mut e) => {
                self.operands_lasting([(Use::Borrowed, &mut *e.expr), (Use::Value, &mut *e.index)], prefix, out);
                Expr::Index(e)
            }
            Expr::Repeat(mut e) => {
                *e.expr = self.lasting(*e.expr, prefix, out);
                Expr::Repeat(e)
            }
            // Where the value itself is borrowed, only a `match` says whether that is needed later.
            Expr::Reference(mut e) if !is_value(&e.expr) => {
                *e.expr = self.lasting(*e.expr, prefix, out);
                Expr::Reference(e)
            }
            Expr::Match(mut e) => {
                *e.expr = self.lasting(*e.expr, prefix, out);
                Expr::Match(e)
            }
            other => other,
        }
    }

    /// As [`Self::lasting`], of what patterns look at: a value of which one leaves a part lives as
    /// long as the statement, too.
    pub(super) fn looked_at(&mut self, value: Expr, looks: &[Look], out: &mut Vec<Stmt>) -> Expr {
        let leaves = looks.iter().any(|look| look.leaves_a_part) && !looks.iter().any(|look| look.needs_borrow);
        let is_needed = looks.iter().any(|look| look.needs_bound);
        if leaves && (is_value(&value) || !is_needed && is_tuple_of_values(&value)) {
            return self.set_apart(value, self.lasting, out);
        }
        self.lasting(value, self.lasting, out)
    }

    /// Whether [`Self::looked_at`] gives names to temporaries.
    pub(super) fn has_temporaries(&mut self, binding: &syn::ExprLet, then: &Block) -> bool {
        let look = Look::of(&binding.pat, then);
        self.names(|lower, out| drop(lower.looked_at((*binding.expr).clone(), &[look], out)))
    }

    /// Whether this adds statements, of which nothing remains.
    fn names(&mut self, lower: impl FnOnce(&mut Self, &mut Vec<Stmt>)) -> bool {
        let (temps, mut named) = (self.temps, Vec::new());
        lower(self, &mut named);
        self.temps = temps;
        !named.is_empty()
    }

    /// Gives a value a name.
    pub(super) fn set_aside(&mut self, value: &mut Expr, prefix: &str, out: &mut Vec<Stmt>) {
        let expr = std::mem::replace(value, Expr::Verbatim(TokenStream::new()));
        *value = self.named(expr, prefix, out);
    }

    /// The arguments of a call, which may borrow temporaries.
    fn arguments_lasting(&mut self, arguments: &mut Punctuated<Expr, syn::Token![,]>, prefix: &str, out: &mut Vec<Stmt>) {
        let arguments = arguments.iter_mut().map(|argument| match argument {
            Expr::Reference(e) => (Use::Borrowed, &mut *e.expr),
            argument => (Use::Value, argument),
        });
        self.operands_lasting(arguments, prefix, out);
    }

    fn values_lasting<'e>(&mut self, values: impl IntoIterator<Item = &'e mut Expr>, prefix: &str, out: &mut Vec<Stmt>) {
        self.operands_lasting(values.into_iter().map(|value| (Use::Value, value)), prefix, out);
    }

    /// Several operands, of which those before one with temporaries are evaluated first.
    fn operands_lasting<'e>(&mut self, operands: impl IntoIterator<Item = (Use, &'e mut Expr)>, prefix: &str, out: &mut Vec<Stmt>) {
        let lowered = operands.into_iter().map(|(of, operand)| {
            let (first, mut stmts) = (First::of(operand, of), Vec::new());
            let expr = std::mem::replace(operand, Expr::Verbatim(TokenStream::new()));
            *operand = match of {
                Use::Borrowed if is_value(&expr) => self.named(expr, prefix, &mut stmts),
                _ => self.lasting(expr, prefix, &mut stmts),
            };
            (operand, first, stmts)
        });
        let mut lowered: Vec<(&mut Expr, First, Vec<Stmt>)> = lowered.collect();
        let Some(last) = lowered.iter().rposition(|(_, _, stmts)| !stmts.is_empty()) else { return };
        for place in 0..=last {
            let (before, later) = lowered.split_at_mut(place + 1);
            let (operand, first, stmts) = &mut before[place];
            out.append(stmts);
            let is_first = match first {
                First::Never => false,
                First::Always => place < last,
                First::AlsoLast => true,
                First::IfNamedLater(name) => {
                    place < last && later.iter().any(|(later, _, stmts)| named::in_expr(later, name) > 0 || are_named(stmts, name))
                }
            };
            if is_first {
                let expr = std::mem::replace(&mut **operand, Expr::Verbatim(TokenStream::new()));
                **operand = self.variable(expr, prefix, out);
            }
        }
    }

    /// A value as a variable; a place as it is.
    fn named(&mut self, expr: Expr, prefix: &str, out: &mut Vec<Stmt>) -> Expr {
        match expr {
            Expr::Paren(e) => self.named(*e.expr, prefix, out),
            Expr::Group(e) => self.named(*e.expr, prefix, out),
            expr if is_value(&expr) || is_made_here(&expr) => self.set_apart(expr, prefix, out),
            expr => self.lasting(expr, prefix, out),
        }
    }

    fn set_apart(&mut self, expr: Expr, prefix: &str, out: &mut Vec<Stmt>) -> Expr {
        let expr = self.lasting(expr, prefix, out);
        self.variable(expr, prefix, out)
    }

    fn variable(&mut self, expr: Expr, prefix: &str, out: &mut Vec<Stmt>) -> Expr {
        let span = expr.span();
        let ident = format_ident!("{}{}", prefix, self.temp(), span = span.resolved_at(Span::mixed_site()));
        let local: SynStmt = parse_quote_spanned!(span=> let mut #ident = #expr;);
        out.push(plain(local));
        parse_quote!(#ident)
    }
}

/// How an expression uses an operand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Value,
    Place,
    /// Behind a `&`.
    Borrowed,
}

/// Whether an operand is evaluated before one behind it that has temporaries.
enum First {
    Never,
    Always,
    /// Also if it is the last one with temporaries itself.
    AlsoLast,
    IfNamedLater(String),
}

impl First {
    fn of(operand: &Expr, of: Use) -> Self {
        match operand {
            Expr::Lit(_) | Expr::Closure(_) | Expr::Reference(_) => First::Never,
            Expr::Path(path) if of == Use::Value => {
                path.path.get_ident().map_or(First::Never, |name| First::IfNamedLater(name.to_string()))
            }
            // A value that is borrowed has a name by then.
            operand if of == Use::Value || of == Use::Place && is_value(operand) => First::Always,
            operand if of == Use::Borrowed && is_made_here(operand) => First::AlsoLast,
            _ => First::Never,
        }
    }
}

fn are_named(stmts: &[Stmt], name: &str) -> bool {
    stmts.iter().any(|stmt| matches!(&stmt.kind, StmtKind::Plain(syntax) if named::in_stmt(syntax, name) > 0))
}

/// What a pattern, and the code behind it, do with the value that they look at.
pub(super) struct Look {
    leaves_a_part: bool,
    /// The code uses from its first cut point on what the pattern binds.
    needs_bound: bool,
    /// That is a borrow.
    needs_borrow: bool,
}

impl Look {
    pub(super) fn of(pat: &Pat, then: &Block) -> Self {
        let bound = pattern::bindings(pat);
        let cut = then.stmts.iter().position(stmt_has_cut);
        let behind = cut.map_or(&[][..], |cut| &then.stmts[cut..]);
        let is_named = |name: &Ident| behind.iter().any(|stmt| named::in_stmt(stmt, &name.to_string()) > 0);
        Look {
            leaves_a_part: cut.is_some() && pattern::leaves_a_part(pat),
            needs_bound: bound.iter().any(|bound| is_named(&bound.ident)),
            needs_borrow: bound.iter().any(|bound| bound.by_ref && is_named(&bound.ident)),
        }
    }

    pub(super) fn of_arm(arm: &syn::Arm) -> Self {
        match &*arm.body {
            Expr::Block(body) => Look::of(&arm.pat, &body.block),
            body => Look::of(&arm.pat, &parse_quote!({ #body })),
        }
    }

    /// Whether the code uses from its first cut point on what the pattern binds.
    pub(super) fn needs_bound(&self) -> bool {
        self.needs_bound
    }
}

/// Whether an expression is a value that nothing else owns.
fn is_value(expr: &Expr) -> bool {
    let is_call = matches!(expr, Expr::MethodCall(_) | Expr::Call(_) | Expr::Await(_) | Expr::Try(_) | Expr::Macro(_));
    is_call && !place::is_place(expr)
}

/// Whether an expression evaluates a value beside its cut points.
pub(super) fn has_other_value(expr: &Expr) -> bool {
    struct Values(bool);
    impl<'ast> Visit<'ast> for Values {
        fn visit_expr(&mut self, expr: &'ast Expr) {
            if !has_cut(expr) {
                self.0 |= is_value(expr);
            } else if as_cut(expr).is_none() {
                visit::visit_expr(self, expr);
            }
        }
        fn visit_block(&mut self, _: &'ast Block) {}
    }
    let mut values = Values(false);
    values.visit_expr(expr);
    values.0
}

/// Whether an expression makes a value without a call.
fn is_made_here(expr: &Expr) -> bool {
    matches!(expr, Expr::Cast(_) | Expr::Struct(_) | Expr::Tuple(_) | Expr::If(_) | Expr::Match(_) | Expr::Block(_))
}

fn is_tuple_of_values(expr: &Expr) -> bool {
    matches!(expr, Expr::Tuple(e) if e.elems.iter().any(|e| is_value(e) || is_tuple_of_values(e)))
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
