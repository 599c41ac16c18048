//! From the user's body to [`Body`]: every cut point becomes a statement of its own.
//!
//! Values that an expression needs before a cut point in it are put into variables first, in evaluation order; what can be
//! named again at no cost (a place, a borrow of one, a literal) stays where it is. `while` becomes `loop`, `for` by value
//! becomes a `loop` over the remaining items, `a && step!(b)` becomes an `if`. No name is looked at here but those of the
//! macros; which loops go by position is decided by shape, with the names of loop variables that are borrows kept along.
use proc_macro2::{Ident, Span};
use quote::{ToTokens, format_ident};
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{Expr, Label, Local, Pat, Stmt as SynStmt, parse_quote, parse_quote_spanned};

use crate::flow::{Flow, JumpId, PointId};
use crate::messages as say;
use crate::place;
use crate::report::Report;
use crate::scan::{as_cut, block_has_cut, has_cut, simple_name, stmt_has_cut};
use crate::tree::{Arm, Bind, Block, Body, Branch, Control, Cut, For, Head, Stmt, StmtKind};

mod cut;

/// Lowers a body; `private` is the path of the runtime's private names.
pub(crate) fn lower(block: syn::Block, private: &syn::Path, report: &mut Report) -> Body {
    let mut lower =
        Lower { report, private: private.clone(), cuts: Vec::new(), temps: 0, jumps: 0, borrows: Vec::new(), loops: Vec::new() };
    let block = lower.block(block);
    Body { block, cuts: lower.cuts }
}

struct Lower<'r> {
    report: &'r mut Report,
    private: syn::Path,
    cuts: Vec<Cut>,
    temps: usize,
    jumps: u32,
    /// Names of variables in scope that hold a borrow, innermost last; `false` hides an outer one.
    borrows: Vec<(String, bool)>,
    /// The labels of the loops around, innermost last.
    loops: Vec<Option<Label>>,
}

impl Lower<'_> {
    fn block(&mut self, block: syn::Block) -> Block {
        let depth = self.borrows.len();
        let mut out = Vec::new();
        let count = block.stmts.len();
        for (place, stmt) in block.stmts.into_iter().enumerate() {
            self.stmt(stmt, place + 1 == count, &mut out);
        }
        self.borrows.truncate(depth);
        Block { stmts: out, end: PointId::UNSET }
    }

    fn stmt(&mut self, stmt: SynStmt, last: bool, out: &mut Vec<Stmt>) {
        if let SynStmt::Local(local) = &stmt {
            self.note_borrow(local);
        }
        if !stmt_has_cut(&stmt) {
            out.push(plain(stmt));
            return;
        }
        match stmt {
            SynStmt::Local(local) => self.local(local, out),
            SynStmt::Expr(expr, None) if last => self.value_of_block(expr, out),
            SynStmt::Expr(expr, _) => self.into_bind(expr, Bind::Discard, None, out),
            SynStmt::Macro(mac) => {
                let value = last && mac.semi_token.is_none();
                let expr = Expr::Macro(syn::ExprMacro { attrs: mac.attrs, mac: mac.mac });
                if value {
                    self.value_of_block(expr, out);
                } else {
                    self.into_bind(expr, Bind::Discard, None, out);
                }
            }
            SynStmt::Item(item) => out.push(plain(SynStmt::Item(item))),
        }
    }

    fn local(&mut self, local: Local, out: &mut Vec<Stmt>) {
        let mut local = local;
        let Some(init) = local.init.take() else { return out.push(plain(SynStmt::Local(local))) };
        let hint = simple_name(&local.pat);
        let init_eq = init.eq_token;
        let Some((else_token, else_)) = init.diverge else {
            return self.into_bind(*init.expr, Bind::Let { attrs: local.attrs, pat: local.pat }, hint, out);
        };
        let value = self.operand(*init.expr, out);
        if !has_cut(&else_) {
            let init = Some(syn::LocalInit { eq_token: init_eq, expr: Box::new(value), diverge: Some((else_token, else_)) });
            return out.push(plain(SynStmt::Local(Local { init, ..local })));
        }
        let bound = Arm::implicit();
        let otherwise = self.arm(None, Vec::new(), *else_);
        let branch = Branch { head: Head::LetElse { pat: local.pat, init: value }, arms: vec![bound, otherwise] };
        self.control(Bind::Discard, Control::Branch(branch), out);
    }

    /// A last expression without semicolon.
    fn value_of_block(&mut self, expr: Expr, out: &mut Vec<Stmt>) {
        match strip(&expr) {
            Expr::Loop(_) | Expr::Match(_) | Expr::If(_) | Expr::Block(_) | Expr::Unsafe(_) => self.into_bind(expr, Bind::Tail, None, out),
            Expr::While(_) | Expr::ForLoop(_) => self.into_bind(expr, Bind::Discard, None, out),
            _ => {
                let value = self.operand(expr, out);
                out.push(plain(SynStmt::Expr(value, None)));
            }
        }
    }

    /// Lowers an expression with a cut point and puts its value where `bind` says.
    fn into_bind(&mut self, expr: Expr, bind: Bind, hint: Option<String>, out: &mut Vec<Stmt>) {
        if let Some((kind, mac, question)) = as_cut(&expr) {
            let mac = mac.clone();
            return self.cut(&expr, kind, &mac, question, bind, hint, out);
        }
        match expr {
            Expr::Paren(e) => self.into_bind(*e.expr, bind, hint, out),
            Expr::Group(e) => self.into_bind(*e.expr, bind, hint, out),
            Expr::If(e) => self.if_(e, bind, out),
            Expr::Match(e) => self.match_(e, bind, out),
            Expr::Loop(e) => {
                let id = self.jump();
                let (label, body) = self.loop_body(e.label, e.body);
                self.control(bind, Control::Loop { label, id, body }, out);
            }
            Expr::While(e) => self.while_(e, bind, out),
            Expr::ForLoop(e) => self.for_(e, bind, out),
            Expr::Block(e) => self.scope(e.label, false, e.block, bind, out),
            Expr::Unsafe(e) => self.scope(None, true, e.block, bind, out),
            other => {
                let value = self.without_cuts(other, out);
                self.into_bind_plain(value, bind, out);
            }
        }
    }

    fn into_bind_plain(&mut self, value: Expr, bind: Bind, out: &mut Vec<Stmt>) {
        let span = value.span();
        out.push(plain(match bind {
            Bind::Discard => SynStmt::Expr(value, Some(syn::Token![;](span))),
            Bind::Tail => SynStmt::Expr(value, None),
            Bind::Let { attrs, pat } => {
                let mut local: Local = parse_stmt(parse_quote_spanned!(span=> let __x = #value;));
                (local.attrs, local.pat) = (attrs, pat);
                SynStmt::Local(local)
            }
        }));
    }

    fn scope(&mut self, label: Option<Label>, is_unsafe: bool, block: syn::Block, bind: Bind, out: &mut Vec<Stmt>) {
        let id = self.jump();
        let body = self.block(block);
        self.control(bind, Control::Scope { label, id, is_unsafe, body }, out);
    }

    fn if_(&mut self, mut e: syn::ExprIf, bind: Bind, out: &mut Vec<Stmt>) {
        if has_cut(&e.cond) {
            let mut parts = Vec::new();
            conjuncts(*e.cond.clone(), &mut parts);
            let binds = parts.iter().any(|p| matches!(strip(p), Expr::Let(_)));
            if parts.len() > 1 && binds {
                let done = self.fresh_label();
                self.label_jumps(&mut parts, &mut e);
                return self.into_bind(chain(parts, e, done), bind, None, out);
            }
            *e.cond = match *e.cond {
                Expr::Let(mut binding) => {
                    *binding.expr = self.operand(*binding.expr, out);
                    Expr::Let(binding)
                }
                cond => self.operand(cond, out),
            };
        }
        if !block_has_cut(&e.then_branch) && !e.else_branch.as_ref().is_some_and(|(_, e)| has_cut(e)) {
            return self.into_bind_plain(Expr::If(e), bind, out);
        }
        let depth = self.borrows.len();
        self.note_conditions(&e.cond);
        let then = Expr::Block(syn::ExprBlock { attrs: Vec::new(), label: None, block: e.then_branch });
        let then = self.arm(None, Vec::new(), then);
        self.borrows.truncate(depth);
        let otherwise = match e.else_branch {
            Some((_, block)) => self.arm(None, Vec::new(), *block),
            None => Arm::implicit(),
        };
        let branch = Branch { head: Head::If { cond: *e.cond, attrs: e.attrs }, arms: vec![then, otherwise] };
        self.control(bind, Control::Branch(branch), out);
    }

    fn match_(&mut self, mut e: syn::ExprMatch, bind: Bind, out: &mut Vec<Stmt>) {
        if has_cut(&e.expr) {
            *e.expr = self.operand(*e.expr, out);
        }
        if !e.arms.iter().any(|arm| has_cut(&arm.body)) {
            return self.into_bind_plain(Expr::Match(e), bind, out);
        }
        let borrows = self.borrows_from(&e.expr);
        let arms = e.arms.into_iter().map(|arm| {
            let depth = self.borrows.len();
            self.note_pattern(&arm.pat, borrows);
            let arm = self.arm(Some(arm.pat), arm.attrs, *arm.body);
            self.borrows.truncate(depth);
            arm
        });
        let arms = arms.collect();
        let branch = Branch { head: Head::Match { scrutinee: *e.expr, attrs: e.attrs }, arms };
        self.control(bind, Control::Branch(branch), out);
    }

    /// An arm's body as a block.
    fn arm(&mut self, pat: Option<Pat>, attrs: Vec<syn::Attribute>, body: Expr) -> Arm {
        let block = match body {
            Expr::Block(e) if e.label.is_none() && e.attrs.is_empty() => self.block(e.block),
            other => self.block(parse_quote!({ #other })),
        };
        Arm { attrs, pat, declares: Vec::new(), enter: Flow::Nothing, block, cuts: None, implicit: false }
    }

    /// `while c { b }` as `loop { if c { b } else { break } }`.
    fn while_(&mut self, e: syn::ExprWhile, bind: Bind, out: &mut Vec<Stmt>) {
        let id = self.jump();
        let span = e.while_token.span;
        let (cond, block) = (e.cond, e.body);
        let once: syn::Expr = parse_quote_spanned!(span=> if #cond #block else { break });
        let (label, body) = self.loop_body(e.label, parse_quote_spanned!(span=> { #once }));
        self.control(bind, Control::Loop { label, id, body }, out);
    }

    fn for_(&mut self, mut e: syn::ExprForLoop, bind: Bind, out: &mut Vec<Stmt>) {
        if has_cut(&e.expr) {
            *e.expr = self.operand(*e.expr, out);
        }
        if !block_has_cut(&e.body) {
            return self.into_bind_plain(Expr::ForLoop(e), bind, out);
        }
        if place::drains_by_ref(&e.expr) {
            return self.report.over(&e.expr, say::BY_REF);
        }
        let items = place::items(&e.expr, &|name| self.is_borrow(name));
        match items {
            place::Items::Owned => self.for_owned(e, bind, out),
            place::Items::Borrowed => self.for_borrowed(e, bind, out),
            place::Items::Mutable => self.report.over(&e.expr, say::FOR_MUTABLE),
            place::Items::WithClosure => self.report.over(&e.expr, say::FOR_CLOSURE),
        }
    }

    fn for_owned(&mut self, e: syn::ExprForLoop, bind: Bind, out: &mut Vec<Stmt>) {
        let id = self.jump();
        let span = e.in_token.span;
        let rest = format_ident!("__rest_{}", self.temp(), span = span.resolved_at(Span::mixed_site()));
        let (private, items, pat) = (&self.private, &e.expr, &e.pat);
        let key = items_key(items, pat);
        let source: Expr = parse_quote_spanned!(items.span()=> #private::Source(#items).rest());
        out.push(plain(parse_quote_spanned! {span=>
            #[forever_key = #key]
            let mut #rest = #source;
        }));
        let depth = self.borrows.len();
        self.note_pattern(pat, false);
        let mut block = e.body;
        let next: SynStmt = parse_quote_spanned!(span=> let ::core::option::Option::Some(#pat) = #rest.next() else { break };);
        block.stmts.insert(0, next);
        let (label, body) = self.loop_body(e.label, block);
        self.borrows.truncate(depth);
        self.control(bind, Control::Loop { label, id, body }, out);
    }

    fn for_borrowed(&mut self, e: syn::ExprForLoop, bind: Bind, out: &mut Vec<Stmt>) {
        let id = self.jump();
        let position = format_ident!("__at_{}", self.temp(), span = e.in_token.span.resolved_at(Span::mixed_site()));
        let depth = self.borrows.len();
        self.note_pattern(&e.pat, true);
        let (label, body) = self.loop_body(e.label, e.body);
        self.borrows.truncate(depth);
        let looped = For { label, id, attrs: e.attrs, pat: *e.pat, items: *e.expr, position, position_var: None, bases: Vec::new(), body };
        self.control(bind, Control::For(Box::new(looped)), out);
    }

    /// The expression without cut points, what it needs before the last of them put into `out` in order.
    fn operand(&mut self, expr: Expr, out: &mut Vec<Stmt>) -> Expr {
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
        let (temp, local) = self.temporary(&expr, &compact(&expr));
        self.into_bind(expr, Bind::Let { attrs: local.attrs, pat: local.pat }, None, out);
        if let (true, Some(Stmt { kind: StmtKind::Cut { bind: Bind::Let { attrs, .. }, cut }, .. })) = (is_cut, out.last_mut()) {
            let key = format!("{}()", self.cuts[*cut].base);
            *attrs = vec![parse_quote!(#[forever_key = #key])];
        }
        temp
    }

    /// A variable for the value of `expr`, and a `let` statement head that declares it.
    fn temporary(&mut self, expr: &Expr, key: &str) -> (Expr, Local) {
        let span = expr.span();
        let ident = format_ident!("__value_{}", self.temp(), span = span.resolved_at(Span::mixed_site()));
        let local = parse_stmt(parse_quote_spanned!(span=> #[forever_key = #key] let mut #ident = ();));
        (parse_quote!(#ident), local)
    }

    /// Puts a value that is needed after a later cut point into a variable.
    fn freeze(&mut self, expr: Expr, key: &str, out: &mut Vec<Stmt>) -> Expr {
        let (temp, mut local) = self.temporary(&expr, key);
        if let Some(init) = &mut local.init {
            *init.expr = expr;
        }
        out.push(plain(SynStmt::Local(local)));
        temp
    }

    /// Lowers operands in evaluation order; those before the last cut point are frozen where it matters.
    fn operands(&mut self, mut operands: Vec<&mut Expr>, out: &mut Vec<Stmt>) {
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
            **operand = if place == last || moved_as_is { lowered } else { self.freeze(lowered, &keys[place], out) };
        }
    }

    /// Lowers an expression that is itself neither a cut point nor control flow.
    fn without_cuts(&mut self, mut expr: Expr, out: &mut Vec<Stmt>) -> Expr {
        match &mut expr {
            // A struct literal keeps its parentheses: it may come to stand where they are needed.
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
                        self.report.over(&e.left, say::ASSIGN_PLACE);
                    }
                    *e.right = self.operand(*e.right.clone(), out);
                }
                _ => self.operands(vec![&mut *e.left, &mut *e.right], out),
            },
            Expr::Assign(e) => {
                // The right side is evaluated first, then the place.
                if has_cut(&e.left) {
                    self.report.over(&e.left, say::ASSIGN_PLACE);
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
                // A receiver that is a place is borrowed or moved when the call is made, after its arguments.
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
            other => self.report.over(&*other, say::UNKNOWN_PLACE),
        }
        expr
    }

    fn control(&mut self, bind: Bind, mut control: Control, out: &mut Vec<Stmt>) {
        let cuts = match &mut control {
            Control::Branch(branch) => {
                for arm in &mut branch.arms {
                    arm.cuts = block_cuts(&arm.block);
                }
                let first = branch.arms.iter().find_map(|a| a.cuts.as_ref().map(|c| *c.start()));
                let last = branch.arms.iter().rev().find_map(|a| a.cuts.as_ref().map(|c| *c.end()));
                first.zip(last).map(|(first, last)| first..=last)
            }
            Control::Loop { body, .. } | Control::Scope { body, .. } => block_cuts(body),
            Control::For(looped) => block_cuts(&looped.body),
        };
        out.push(Stmt { cuts, ..stmt(StmtKind::Control { bind, control }) });
    }

    /// A loop's body, and its label: the user's, or one that was needed inside.
    fn loop_body(&mut self, label: Option<Label>, body: syn::Block) -> (Option<Label>, Block) {
        self.loops.push(label);
        let body = self.block(body);
        (self.loops.pop().flatten(), body)
    }

    /// Gives `break` and `continue` their loop's label, as they come to stand in a labelled block.
    fn label_jumps(&mut self, parts: &mut [Expr], e: &mut syn::ExprIf) {
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

    fn jump(&mut self) -> JumpId {
        self.jumps += 1;
        JumpId(self.jumps)
    }

    fn temp(&mut self) -> usize {
        self.temps += 1;
        self.temps
    }

    fn fresh_label(&mut self) -> syn::Lifetime {
        syn::Lifetime::new(&format!("'condition_{}", self.temp()), Span::mixed_site())
    }

    fn is_borrow(&self, name: &Ident) -> bool {
        self.borrows.iter().rev().find(|(n, _)| name == n).is_some_and(|(_, borrow)| *borrow)
    }

    fn borrows_from(&self, expr: &Expr) -> bool {
        place::plain_borrow(expr).is_some() || place::is_place(expr) && place::root(expr).is_some_and(|name| self.is_borrow(name))
    }

    fn note_borrow(&mut self, local: &Local) {
        let borrows = local.init.as_ref().is_some_and(|init| self.borrows_from(&init.expr));
        self.note_pattern(&local.pat, borrows);
    }

    fn note_conditions(&mut self, cond: &Expr) {
        let mut parts = Vec::new();
        conjuncts(cond.clone(), &mut parts);
        for part in &parts {
            if let Expr::Let(binding) = part {
                let borrows = self.borrows_from(&binding.expr);
                self.note_pattern(&binding.pat, borrows);
            }
        }
    }

    fn note_pattern(&mut self, pat: &Pat, borrows: bool) {
        for binding in crate::pattern::bindings(pat) {
            self.borrows.push((binding.ident.to_string(), borrows || binding.by_ref));
        }
    }
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
    // Loops inside, and code that is not part of this one, have jumps of their own.
    fn visit_expr_loop_mut(&mut self, _: &mut syn::ExprLoop) {}
    fn visit_expr_while_mut(&mut self, _: &mut syn::ExprWhile) {}
    fn visit_expr_for_loop_mut(&mut self, e: &mut syn::ExprForLoop) {
        self.visit_expr_mut(&mut e.expr);
    }
    fn visit_expr_closure_mut(&mut self, _: &mut syn::ExprClosure) {}
    fn visit_expr_async_mut(&mut self, _: &mut syn::ExprAsync) {}
    fn visit_item_mut(&mut self, _: &mut syn::Item) {}
}

fn plain(syntax: SynStmt) -> Stmt {
    stmt(StmtKind::Plain(syntax))
}

fn stmt(kind: StmtKind) -> Stmt {
    Stmt {
        kind,
        declares: Vec::new(),
        flow: Flow::Nothing,
        start: PointId::UNSET,
        before: PointId::UNSET,
        after: PointId::UNSET,
        cuts: None,
    }
}

impl Arm {
    fn implicit() -> Arm {
        Arm {
            attrs: Vec::new(),
            pat: None,
            declares: Vec::new(),
            enter: Flow::Nothing,
            block: Block { stmts: Vec::new(), end: PointId::UNSET },
            cuts: None,
            implicit: true,
        }
    }
}

fn block_cuts(block: &Block) -> Option<std::ops::RangeInclusive<usize>> {
    let first = block.stmts.iter().find_map(|s| s.cuts.as_ref().map(|c| *c.start()))?;
    let last = block.stmts.iter().rev().find_map(|s| s.cuts.as_ref().map(|c| *c.end()))?;
    Some(first..=last)
}

/// `'done: { if c1 { if c2 { break 'done then } } otherwise }`: a chain of conditions of which some bind.
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

fn conjuncts(cond: Expr, parts: &mut Vec<Expr>) {
    match cond {
        Expr::Binary(e) if matches!(e.op, syn::BinOp::And(_)) => {
            conjuncts(*e.left, parts);
            conjuncts(*e.right, parts);
        }
        Expr::Group(e) => conjuncts(*e.expr, parts),
        other => parts.push(other),
    }
}

fn strip(expr: &Expr) -> &Expr {
    match expr {
        Expr::Paren(e) => strip(&e.expr),
        Expr::Group(e) => strip(&e.expr),
        other => other,
    }
}

/// Whether the text of tokens holds `name` as a word.
fn mentions(text: &str, name: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name)
}

/// What the remaining items of a loop are called in a snapshot: the last name of what is gone over, else the loop variable's.
pub(crate) fn items_key(items: &Expr, pat: &Pat) -> String {
    let of_items = match items {
        Expr::Path(path) => path.path.get_ident().map(ToString::to_string),
        Expr::Field(field) => match &field.member {
            syn::Member::Named(name) => Some(name.to_string()),
            syn::Member::Unnamed(_) => None,
        },
        Expr::Reference(e) => return items_key(&e.expr, pat),
        Expr::MethodCall(e) => return items_key(&e.receiver, pat),
        _ => None,
    };
    of_items.unwrap_or_else(|| match crate::pattern::bindings(pat).first() {
        Some(binding) => format!("for {}", binding.ident),
        None => "for _".to_owned(),
    })
}

/// Tokens as text with only the spaces that it needs, cut short: the stored name of an unnamed value. Made by hand, as the text that
/// the compiler makes of tokens differs from version to version.
pub(crate) fn compact(tokens: &impl ToTokens) -> String {
    let text = whole(tokens);
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text,
    }
}

/// [`compact`], not cut short.
pub(crate) fn whole(tokens: &impl ToTokens) -> String {
    fn write(tokens: proc_macro2::TokenStream, text: &mut String) {
        for token in tokens {
            match token {
                proc_macro2::TokenTree::Group(group) => {
                    let (open, close) = match group.delimiter() {
                        proc_macro2::Delimiter::Parenthesis => ("(", ")"),
                        proc_macro2::Delimiter::Brace => ("{", "}"),
                        proc_macro2::Delimiter::Bracket => ("[", "]"),
                        proc_macro2::Delimiter::None => ("", ""),
                    };
                    text.push_str(open);
                    write(group.stream(), text);
                    text.push_str(close);
                }
                other => {
                    let other = other.to_string();
                    let word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
                    if word(text.chars().next_back()) && word(other.chars().next()) {
                        text.push(' ');
                    }
                    text.push_str(&other);
                }
            }
        }
    }
    let mut text = String::new();
    write(tokens.to_token_stream(), &mut text);
    text
}

/// A `let` statement that was just quoted.
fn parse_stmt(stmt: SynStmt) -> Local {
    match stmt {
        SynStmt::Local(local) => local,
        _ => unreachable!("a quoted `let` is a local"),
    }
}
