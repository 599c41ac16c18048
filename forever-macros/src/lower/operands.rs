//! Lowers expressions with cut points among their operands: what is evaluated before a cut point
//! moves into variables, in order.
use proc_macro2::Span;
use quote::{ToTokens, format_ident};
use syn::spanned::Spanned;
use syn::{Expr, Local, Stmt as SynStmt, parse_quote, parse_quote_spanned};

use super::{Lower, parse_stmt, plain, strip};
use crate::hir::{Bind, LASTING, LASTING_IN_BLOCK, Stmt, StmtKind, with_number};
use crate::messages;
use crate::place;
use crate::scan::{as_cut, has_cut};
use crate::text::compact;

impl Lower<'_> {
    /// Lowers an operand: returns it without cut points, and adds to `out` in order what it needs
    /// before.
    pub(super) fn operand(&mut self, expr: Expr, out: &mut Vec<Stmt>) -> Expr {
        if !has_cut(&expr) {
            return expr;
        }
        let through_statement = as_cut(&expr).is_some()
            || matches!(
                strip(&expr),
                Expr::If(_) | Expr::Match(_) | Expr::Loop(_) | Expr::Block(_) | Expr::Unsafe(_) | Expr::While(_) | Expr::ForLoop(_)
            );
        if !through_statement {
            return self.without_cuts(expr, out);
        }
        if matches!(strip(&expr), Expr::While(_) | Expr::ForLoop(_)) {
            self.into_bind(expr, Bind::Discard, None, out);
            return parse_quote!(());
        }
        let is_cut = as_cut(&expr).is_some();
        // The text of a `select!` is that of all its arms.
        let key = match as_cut(&expr) {
            Some((crate::cut::CutKind::Select, ..)) => "select()".to_owned(),
            _ => compact(&expr),
        };
        let (temp, local) = self.temporary(&expr, &key);
        let outer = std::mem::replace(&mut self.lasting, if matches!(strip(&expr), Expr::Match(_)) { LASTING_IN_BLOCK } else { LASTING });
        self.into_bind(expr, Bind::Let { attrs: local.attrs, pat: local.pat }, None, out);
        self.lasting = outer;
        if let (true, Some(Stmt { kind: StmtKind::Cut { bind: Bind::Let { attrs, .. }, cut }, .. })) = (is_cut, out.last_mut()) {
            let key = format!("{}()", self.cuts[*cut].base);
            *attrs = vec![parse_quote!(#[forever_key = #key])];
            if let Some(old) = &self.cuts[*cut].was {
                let old = with_number(old, "()");
                attrs.push(parse_quote!(#[was = #old]));
            }
        }
        temp
    }

    /// A variable for the value of `expr`, and the head of the `let` statement that declares it.
    pub(super) fn temporary(&mut self, expr: &Expr, key: &str) -> (Expr, Local) {
        let span = expr.span();
        let ident = format_ident!("__value_{}", self.temp(), span = span.resolved_at(Span::mixed_site()));
        let local = parse_stmt(parse_quote_spanned!(span=> #[forever_key = #key] let mut #ident = ();));
        (parse_quote!(#ident), local)
    }

    /// Puts a value that is needed after a later cut point into a variable.
    pub(super) fn freeze(&mut self, expr: Expr, key: &str, out: &mut Vec<Stmt>) -> Expr {
        let (temp, mut local) = self.temporary(&expr, key);
        if let Some(init) = &mut local.init {
            *init.expr = expr;
        }
        out.push(plain(SynStmt::Local(local)));
        temp
    }

    /// Lowers operands in evaluation order; those before the last cut point are frozen where order
    /// matters.
    pub(super) fn operands(&mut self, mut operands: Vec<&mut Expr>, out: &mut Vec<Stmt>) {
        let Some(last) = operands.iter().rposition(|e| has_cut(e)) else { return };
        let keys: Vec<String> = operands.iter().map(|e| compact(*e)).collect();
        let later: Vec<_> = operands.iter().map(|e| e.to_token_stream().to_string()).collect();
        for (place, operand) in operands.iter_mut().enumerate().take(last + 1) {
            let expr = std::mem::replace(*operand, Expr::Verbatim(proc_macro2::TokenStream::new()));
            let lowered = self.operand(expr, out);
            let moved_as_is = match &lowered {
                Expr::Path(path) => path.path.get_ident().is_some_and(|name| {
                    let name = name.to_string();
                    name.starts_with("__value_") || !later[place + 1..=last].iter().any(|text| mentions(text, &name))
                }),
                other => place::is_timeless(other),
            };
            **operand = if place == last || moved_as_is {
                lowered
            } else {
                let lowered = self.lasting(lowered, LASTING_IN_BLOCK, out);
                self.freeze(lowered, &keys[place], out)
            };
        }
    }

    /// Lowers an expression that is itself neither a cut point nor control flow.
    pub(super) fn without_cuts(&mut self, mut expr: Expr, out: &mut Vec<Stmt>) -> Expr {
        match &mut expr {
            // A struct literal keeps its parentheses, which it may need in its new place.
            Expr::Paren(e) => *e.expr = self.operand(*e.expr.clone(), out),
            Expr::Group(e) => return self.operand(*e.expr.clone(), out),
            Expr::Binary(e) => match e.op {
                syn::BinOp::And(_) | syn::BinOp::Or(_) if has_cut(&e.right) => {
                    let (left, right) = (&e.left, &e.right);
                    let both: Expr = match e.op {
                        syn::BinOp::And(_) => parse_quote!(if #left { #right } else { false }),
                        _ => parse_quote!(if #left { true } else { #right }),
                    };
                    return self.operand(both, out);
                }
                op if place::is_assignment(op) => {
                    if has_cut(&e.left) || !place::is_place(&e.left) {
                        self.report.over(&e.left, messages::ASSIGN_PLACE);
                    }
                    *e.right = self.operand(*e.right.clone(), out);
                }
                _ => self.operands(vec![&mut *e.left, &mut *e.right], out),
            },
            Expr::Assign(e) => {
                // An assignment evaluates its right side first, then the place.
                if has_cut(&e.left) {
                    self.report.over(&e.left, messages::ASSIGN_PLACE);
                } else {
                    *e.right = self.operand(*e.right.clone(), out);
                }
            }
            Expr::Call(e) => {
                let mut parts: Vec<&mut Expr> = Vec::new();
                if !matches!(&*e.func, Expr::Path(_)) {
                    parts.push(&mut e.func);
                }
                parts.extend(e.args.iter_mut());
                self.operands(parts, out);
            }
            Expr::MethodCall(e) => {
                let mut parts: Vec<&mut Expr> = Vec::new();
                // A receiver that is a place is borrowed or moved at the call, after the arguments
                // are evaluated.
                if !place::is_place(&e.receiver) {
                    parts.push(&mut e.receiver);
                }
                parts.extend(e.args.iter_mut());
                self.operands(parts, out);
            }
            Expr::Struct(e) => {
                let mut parts: Vec<&mut Expr> = e
                    .fields
                    .iter_mut()
                    .map(|f| {
                        f.colon_token.get_or_insert_with(Default::default);
                        &mut f.expr
                    })
                    .collect();
                parts.extend(e.rest.as_deref_mut());
                self.operands(parts, out);
            }
            Expr::Tuple(e) => self.operands(e.elems.iter_mut().collect(), out),
            Expr::Array(e) => self.operands(e.elems.iter_mut().collect(), out),
            Expr::Range(e) => {
                let parts = [e.start.as_deref_mut(), e.end.as_deref_mut()];
                self.operands(parts.into_iter().flatten().collect(), out);
            }
            Expr::Index(e) => {
                let mut parts: Vec<&mut Expr> = Vec::new();
                if !place::is_place(&e.expr) {
                    parts.push(&mut e.expr);
                }
                parts.push(&mut e.index);
                self.operands(parts, out);
            }
            Expr::Unary(e) => *e.expr = self.operand(*e.expr.clone(), out),
            Expr::Cast(e) => *e.expr = self.operand(*e.expr.clone(), out),
            Expr::Field(e) => *e.base = self.operand(*e.base.clone(), out),
            Expr::Reference(e) => *e.expr = self.operand(*e.expr.clone(), out),
            Expr::Try(e) => *e.expr = self.operand(*e.expr.clone(), out),
            Expr::Await(e) => *e.base = self.operand(*e.base.clone(), out),
            Expr::Repeat(e) => *e.expr = self.operand(*e.expr.clone(), out),
            Expr::Return(e) => {
                if let Some(value) = e.expr.take() {
                    e.expr = Some(Box::new(self.operand(*value, out)));
                }
            }
            Expr::Break(e) => {
                if let Some(value) = e.expr.take() {
                    e.expr = Some(Box::new(self.operand(*value, out)));
                }
            }
            other => self.report.over(&*other, messages::UNKNOWN_PLACE),
        }
        expr
    }
}

/// Whether the text of tokens contains `name` as a word.
fn mentions(text: &str, name: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name)
}
