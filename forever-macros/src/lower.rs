//! Lowers the user's body to [`Body`]: every cut point becomes a statement of its own.
//!
//! Values that an expression needs before a cut point in it are put into variables first, in
//! evaluation order. What can be named again at no cost (a place, a borrow of one, a literal) stays
//! where it is. `while` becomes `loop`, `for` by value becomes a `loop` over the remaining items,
//! and `a && step!(b)` becomes an `if`. This pass resolves no names but those of the macros. Which
//! loops iterate by position is decided by syntax; for that the pass tracks which variables are
//! borrows.
use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote_spanned};
use syn::spanned::Spanned;
use syn::{Expr, Label, Local, Pat, Stmt as SynStmt, Type, parse_quote, parse_quote_spanned};

use self::lasting::Look;
use crate::flow::Flow;
use crate::hir::{Arm, Bind, Block, Body, Branch, Control, Cut, For, Head, LASTING, LASTING_IN_BLOCK, LEFT, REST, Stmt, StmtKind};
use crate::ids::{ArmId, JumpId, PointId};
use crate::messages;
use crate::named;
use crate::names::is_ours;
use crate::pattern;
use crate::place;
use crate::report::Report;
use crate::scan::{as_cut, block_has_cut, has_cut, simple_name, stmt_has_cut};
use crate::text::compact;

mod apart;
mod conditions;
mod cut;
pub(crate) mod ends;
pub(crate) mod lasting;
mod operands;
mod select;

/// Lowers a body; `private` is the path of the runtime's private names.
pub(crate) fn lower(block: syn::Block, private: &syn::Path, crowded: &Crowded, report: &mut Report) -> Body {
    let mut lower = Lower {
        report,
        private: private.clone(),
        crowded,
        cuts: Vec::new(),
        temps: 0,
        arms: 0,
        lasting: LASTING,
        jumps: 0,
        scope: Vec::new(),
        loops: Vec::new(),
        checks: TokenStream::new(),
    };
    let block = lower.block(block);
    Body { block, cuts: lower.cuts, checks: lower.checks }
}

/// Arms with variables that cannot live on from the stretch that leads to their statement, with the
/// variables of their patterns among those.
pub(crate) type Crowded = BTreeMap<ArmId, BTreeSet<Ident>>;

struct Lower<'r> {
    report: &'r mut Report,
    private: syn::Path,
    /// The arms that begin a stretch of their own.
    crowded: &'r Crowded,
    cuts: Vec<Cut>,
    checks: TokenStream,
    temps: usize,
    arms: usize,
    /// Name prefix of the temporaries of a `match`: those of an operand live as long as the whole
    /// statement.
    lasting: &'static str,
    jumps: u32,
    /// Variables in scope, innermost last.
    scope: Vec<Noted>,
    /// Labels of the enclosing loops, innermost last.
    loops: Vec<Option<Label>>,
}

/// What this pass knows of a variable.
struct Noted {
    name: String,
    /// It is a borrow or a constant, so that iterating over it is iterating over its source.
    is_borrow: bool,
    /// It may have another value, or give access to one, each time it is read.
    may_change: bool,
}

impl Lower<'_> {
    fn block(&mut self, mut block: syn::Block) -> Block {
        let (depth, lasting) = (self.scope.len(), std::mem::replace(&mut self.lasting, LASTING));
        let mut out = Vec::new();
        let count = block.stmts.len();
        apart::rename_hidden(&mut block.stmts, &mut || self.temp());
        let begins: Vec<bool> = (0..count).map(|place| apart::begins_stretch(&block.stmts, place)).collect();
        for (place, begins) in begins.into_iter().enumerate() {
            if begins {
                self.scope(None, false, parse_quote!({}), Bind::Discard, &mut out);
            }
            for value in apart::borrowed_values(&mut block.stmts, place) {
                self.set_aside(value, LASTING_IN_BLOCK, &mut out);
            }
            let stmt = std::mem::replace(&mut block.stmts[place], SynStmt::Expr(Expr::Verbatim(TokenStream::new()), None));
            self.stmt(stmt, place + 1 == count, &mut out);
        }
        self.scope.truncate(depth);
        self.lasting = lasting;
        Block { stmts: out, end: PointId::UNSET }
    }

    fn stmt(&mut self, stmt: SynStmt, last: bool, out: &mut Vec<Stmt>) {
        if let SynStmt::Local(local) = &stmt {
            self.note_borrow(local);
        }
        if !stmt_has_cut(&stmt) {
            match stmt {
                SynStmt::Local(local) => out.extend(set_later(local).into_iter().map(|local| plain(SynStmt::Local(local)))),
                other => out.push(plain(other)),
            }
            return;
        }
        match stmt {
            SynStmt::Local(local) => self.local(local, out),
            SynStmt::Expr(expr, None) if last => self.value_of_block(expr, out),
            // Its value is `()`, or it never ends. Only the compiler knows which, so it stays the
            // block's value.
            SynStmt::Expr(expr @ (Expr::If(_) | Expr::Match(_) | Expr::Block(_) | Expr::Unsafe(_)), Some(_))
                if last && !ends::in_value(&expr) =>
            {
                self.value_of_block(expr, out);
            }
            SynStmt::Expr(expr @ (Expr::Loop(_) | Expr::Block(_) | Expr::Unsafe(_)), None) if ends::in_value(&expr) => {
                let bind = Bind::Let { attrs: Vec::new(), pat: parse_quote!(()) };
                self.into_bind(expr, bind, None, out);
            }
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
        let (mut stmts, written) = (Vec::new(), init.expr.clone());
        let value = self.operand(*init.expr, &mut stmts);
        if !stmts.iter().any(lasting::is_lasting) || pattern::bindings(&local.pat).iter().any(|bound| bound.by_ref) {
            out.append(&mut stmts);
            return self.let_else((local, init_eq, value), (else_token, *else_), out);
        }
        // Its temporaries end before the `else`.
        let (value, found) = pattern::matched(&local.pat, value.into_token_stream());
        local.pat = parse_stmt(parse_quote!(let #found = ();)).pat;
        let value = parse_quote!(#value);
        let (temp, head) = self.temporary(&written, &compact(&written));
        self.in_block(value, stmts, Bind::Let { attrs: head.attrs, pat: head.pat }, out);
        self.let_else((local, init_eq, temp), (else_token, *else_), out);
    }

    fn let_else(
        &mut self,
        (local, init_eq, value): (Local, syn::Token![=], Expr),
        (else_token, mut else_): (syn::Token![else], Expr),
        out: &mut Vec<Stmt>,
    ) {
        if !has_cut(&else_) {
            let init = Some(syn::LocalInit { eq_token: init_eq, expr: Box::new(value), diverge: Some((else_token, Box::new(else_))) });
            return out.push(plain(SynStmt::Local(Local { init, ..local })));
        }
        let bound = Arm::implicit();
        ends::without_semicolon(&mut else_);
        let span = else_.span();
        let otherwise = self.arm(None, Vec::new(), else_);
        let branch = Branch { head: Head::LetElse { pat: local.pat, init: value, otherwise: span }, arms: vec![bound, otherwise] };
        self.control(Bind::Discard, Control::Branch(branch), out);
    }

    /// Lowers a last expression without semicolon.
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

    /// Lowers an expression with a cut point, and binds its value as `bind` says.
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
                let mut stmts = Vec::new();
                let value = self.without_cuts(other, &mut stmts);
                if !stmts.iter().any(lasting::is_lasting) {
                    out.append(&mut stmts);
                    return self.into_bind_plain(value, bind, out);
                }
                self.in_block(value, stmts, bind, out);
            }
        }
    }

    /// A value in a block of its own, at whose end its temporaries end.
    fn in_block(&mut self, value: Expr, stmts: Vec<Stmt>, bind: Bind, out: &mut Vec<Stmt>) {
        self.enclosed(stmts, bind, |lower, bind, out| lower.into_bind_plain(value, bind, out), out);
    }

    /// As [`Self::in_block`], of a statement behind those with its temporaries.
    fn enclosed(&mut self, mut stmts: Vec<Stmt>, bind: Bind, last: impl FnOnce(&mut Self, Bind, &mut Vec<Stmt>), out: &mut Vec<Stmt>) {
        let inner = if matches!(bind, Bind::Discard) { Bind::Discard } else { Bind::Tail };
        last(self, inner, &mut stmts);
        let (id, body) = (self.jump(), Block { stmts, end: PointId::UNSET });
        self.control(bind, Control::Scope { label: None, id, is_unsafe: false, body }, out);
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

    /// Lowers what a statement looks at. Gives back the temporaries that it has beside a cut point:
    /// they end with the statement.
    fn head_operand(&mut self, expr: &mut Expr, out: &mut Vec<Stmt>) -> Option<Vec<Stmt>> {
        let value = std::mem::replace(expr, Expr::Verbatim(TokenStream::new()));
        let mut stmts = Vec::new();
        *expr = self.operand(value, &mut stmts);
        if stmts.iter().any(lasting::is_lasting) {
            return Some(stmts);
        }
        out.append(&mut stmts);
        None
    }

    fn match_(&mut self, mut e: syn::ExprMatch, bind: Bind, out: &mut Vec<Stmt>) {
        if let Some(mut operands) = self.head_operand(&mut e.expr, out) {
            if self.lasting == LASTING {
                return self.enclosed(operands, bind, |lower, bind, out| lower.match_(e, bind, out), out);
            }
            out.append(&mut operands);
        }
        if !e.arms.iter().any(|arm| has_cut(&arm.body)) {
            return self.into_bind_plain(Expr::Match(e), bind, out);
        }
        let borrows = self.borrows_from(&e.expr);
        let looks: Vec<Look> = e.arms.iter().map(Look::of_arm).collect();
        if !looks.iter().any(Look::needs_bound) {
            for value in apart::borrowed_in(&mut e.expr) {
                self.set_aside(value, self.lasting, out);
            }
        }
        *e.expr = self.looked_at(*e.expr, &looks, out);
        let arms = e.arms.into_iter().map(|mut arm| {
            let depth = self.scope.len();
            if let Expr::Block(body) = &mut *arm.body {
                apart::rename_bound(&mut arm.pat, &mut body.block, &mut || self.temp());
            }
            self.note_pattern(&arm.pat, borrows);
            let arm = self.arm(Some(arm.pat), arm.attrs, *arm.body);
            self.scope.truncate(depth);
            arm
        });
        let arms = arms.collect();
        let branch = Branch { head: Head::Match { scrutinee: *e.expr, attrs: e.attrs }, arms };
        self.control(bind, Control::Branch(branch), out);
    }

    /// An arm's body as a block.
    fn arm(&mut self, pat: Option<Pat>, attrs: Vec<syn::Attribute>, body: Expr) -> Arm {
        let block = match body {
            Expr::Block(e) if e.label.is_none() && e.attrs.is_empty() => e.block,
            other => parse_quote!({ #other }),
        };
        let id = ArmId(self.arms);
        self.arms += 1;
        let mut first = Vec::new();
        if let Some(bound) = self.crowded.get(&id) {
            self.scope(None, false, parse_quote!({}), Bind::Discard, &mut first);
            // What only the condition uses lives on in the arm, too.
            let unused = bound.iter().filter(|name| named::in_block(&block, &name.to_string()) == 0);
            first.extend(unused.map(|name| plain(parse_quote!(let _ = &#name;))));
        }
        let mut block = self.block(block);
        block.stmts.splice(0..0, first);
        Arm { id: Some(id), attrs, pat, declares: Vec::new(), enter: Flow::Nothing, block, cuts: None }
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
        if let Some(operands) = self.head_operand(&mut e.expr, out) {
            return self.enclosed(operands, bind, |lower, bind, out| lower.for_(e, bind, out), out);
        }
        if !block_has_cut(&e.body) {
            return self.into_bind_plain(Expr::ForLoop(e), bind, out);
        }
        if place::drains_by_ref(&e.expr) {
            return self.report.over(&e.expr, messages::BY_REF);
        }
        let items = place::items(&e.expr, &|name| self.is_borrow(name));
        match items {
            place::Items::Borrowed if !self.takes_copies(&mut e.expr) => self.for_borrowed(e, bind, out),
            place::Items::Owned | place::Items::Borrowed => self.for_owned(e, bind, out),
            place::Items::Mutable => self.report.over(&e.expr, messages::FOR_MUTABLE),
            place::Items::WithClosure => self.report.over(&e.expr, messages::FOR_CLOSURE),
        }
    }

    fn for_owned(&mut self, e: syn::ExprForLoop, bind: Bind, out: &mut Vec<Stmt>) {
        let id = self.jump();
        let span = e.in_token.span;
        let rest = format_ident!("{}{}", REST, self.temp(), span = span.resolved_at(Span::mixed_site()));
        let (private, pat) = (at(&self.private, e.expr.span()), &e.pat);
        let (key, place) = (left_key(&e.expr, pat), e.expr.span());
        let items = self.lasting(*e.expr, LASTING, out);
        let source: Expr = parse_quote_spanned!(place=> #private::Source(#items).rest());
        out.push(plain(parse_quote_spanned! {span=>
            #[forever_key = #key]
            let mut #rest = #source;
        }));
        let depth = self.scope.len();
        self.note_pattern(pat, false);
        let mut block = e.body;
        let next: SynStmt = parse_quote_spanned!(span=> let ::core::option::Option::Some(#pat) = #rest.next() else { break };);
        block.stmts.insert(0, next);
        let (label, body) = self.loop_body(e.label, block);
        self.scope.truncate(depth);
        self.control(bind, Control::Loop { label, id, body }, out);
    }

    /// Whether the source of the items has no name, and the items are copies: then they are kept by
    /// value, and the source is not kept.
    fn takes_copies(&self, items: &mut Expr) -> bool {
        let mut unnamed = false;
        place::parts(items, &mut |part| unnamed |= matches!(part, place::Part::Source(_)));
        unnamed && place::copies(items)
    }

    /// Puts the operands of an iteration by position into variables, so that they are evaluated
    /// once, and not again on a resume.
    fn evaluate_once(&mut self, items: &mut Expr, out: &mut Vec<Stmt>) {
        place::parts(items, &mut |part| match part {
            place::Part::Value(value) if self.is_fixed(value) => {}
            place::Part::Value(value) if place::is_borrowed(value) => self.evaluate_once(value, out),
            place::Part::Source(value) | place::Part::Value(value) => {
                let key = crate::text::compact(&*value);
                let expr = std::mem::replace(value, Expr::Verbatim(proc_macro2::TokenStream::new()));
                *value = self.freeze(expr, &key, out);
            }
            place::Part::Index(index) => {
                let key = crate::text::compact(&*index);
                let expr = std::mem::replace(index, Expr::Verbatim(proc_macro2::TokenStream::new()));
                let value = self.freeze(expr, &key, out);
                *index = parse_quote!(::core::clone::Clone::clone(&#value));
            }
            place::Part::Key(key) => {
                if let Some(root) = place::root(key).filter(|root| self.may_change(root)) {
                    self.report.over(&*key, messages::key_that_changes(&root.to_string()));
                }
            }
        });
    }

    /// Whether an expression has the same value each time it is read.
    fn is_fixed(&self, expr: &Expr) -> bool {
        match expr {
            Expr::Path(path) => path.path.get_ident().is_none_or(|name| !self.may_change(name)),
            other => place::is_constant(other) || matches!(other, Expr::Lit(_)),
        }
    }

    fn may_change(&self, name: &Ident) -> bool {
        self.scope.iter().rev().find(|v| name == &v.name).is_some_and(|v| v.may_change)
    }

    fn for_borrowed(&mut self, mut e: syn::ExprForLoop, bind: Bind, out: &mut Vec<Stmt>) {
        let id = self.jump();
        // A position means nothing in another expression.
        let key = crate::text::compact(&e.expr).trim_start_matches('&').to_owned();
        let mut joined = Vec::new();
        place::joined(&e.expr, &mut joined);
        let joined: Vec<Expr> = joined.into_iter().cloned().collect();
        let (checks, first_cut) = (out.len(), self.cuts.len());
        self.evaluate_once(&mut e.expr, out);
        if crate::pattern::bindings(&e.pat).iter().any(|b| b.mutable) {
            // A source that can be changed becomes a variable of its own, which is kept.
            let span = e.in_token.span;
            let item = format_ident!("__value_{}", self.temp(), span = span.resolved_at(Span::mixed_site()));
            let pat = std::mem::replace(&mut *e.pat, parse_pat(&item));
            e.body.stmts.insert(0, parse_quote_spanned!(span=> let #pat = #item;));
        }
        let position = format_ident!("__at_{}", self.temp(), span = e.in_token.span.resolved_at(Span::mixed_site()));
        let depth = self.scope.len();
        self.note_pattern(&e.pat, true);
        let (label, body) = self.loop_body(e.label, e.body);
        self.scope.truncate(depth);
        if let Some(cut) = self.cuts.get(first_cut) {
            let step = cut.shown(&cut.base);
            let asked: Vec<Stmt> = joined.iter().map(|place| plain(self.is_not_moved(place, &step))).collect();
            out.splice(checks..checks, asked);
        }
        let for_loop = For {
            label,
            id,
            attrs: e.attrs,
            pat: *e.pat,
            declares: Vec::new(),
            items: *e.expr,
            key,
            position,
            position_var: None,
            bases: Vec::new(),
            body,
        };
        self.control(bind, Control::For(Box::new(for_loop)), out);
    }

    /// The check that what is joined to an iteration by position is not moved into it: it is read
    /// again on a resume, so it must still exist.
    fn is_not_moved(&mut self, place: &Expr, step: &str) -> SynStmt {
        // Not at the user's span alone, for which the compiler would give a suggestion of its own.
        let span = Span::mixed_site().located_at(place.span());
        let module = format_ident!("joined_{}", self.temp(), span = span);
        let stays = crate::fact::name(&crate::text::compact(place), "is_copied", span);
        let private = &self.private;
        let message = messages::joined(&crate::text::compact(place), step).replace('{', "{{").replace('}', "}}");
        self.checks.extend(quote_spanned!(span=> #private::joined! { #module: #stays, #message }));
        parse_quote_spanned!(span=> #module::Stays::stays(&#place);)
    }

    fn control(&mut self, bind: Bind, mut control: Control, out: &mut Vec<Stmt>) {
        let cuts = match &mut control {
            Control::Branch(branch) => {
                for arm in &mut branch.arms {
                    arm.cuts = arm.block.cuts();
                }
                let first = branch.arms.iter().find_map(|a| a.cuts.as_ref().map(|c| *c.start()));
                let last = branch.arms.iter().rev().find_map(|a| a.cuts.as_ref().map(|c| *c.end()));
                first.zip(last).map(|(first, last)| first..=last)
            }
            Control::Loop { body, .. } | Control::Scope { body, .. } => body.cuts(),
            Control::For(for_loop) => for_loop.body.cuts(),
        };
        out.push(Stmt { cuts, ..stmt(StmtKind::Control { bind, control }) });
    }

    /// A loop's body and its label: the user's, or one that the body needed.
    fn loop_body(&mut self, label: Option<Label>, body: syn::Block) -> (Option<Label>, Block) {
        self.loops.push(label);
        let body = self.block(body);
        (self.loops.pop().flatten(), body)
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
        self.scope.iter().rev().find(|v| name == &v.name).is_some_and(|v| v.is_borrow)
    }

    fn borrows_from(&self, expr: &Expr) -> bool {
        place::plain_borrow(expr).is_some() || place::is_place(expr) && place::root(expr).is_some_and(|name| self.is_borrow(name))
    }

    fn note_borrow(&mut self, local: &Local) {
        let init = local.init.as_ref().map(|init| &*init.expr);
        let is_list = |init: &Expr| place::is_constant(init) && simple_name(&local.pat).is_some();
        let borrows = init.is_some_and(|init| self.borrows_from(init) || is_list(init));
        let first = self.scope.len();
        self.note_pattern(&local.pat, borrows);
        if init.and_then(place::plain_borrow).is_some_and(|borrow| borrow.mutability.is_some()) {
            self.scope[first..].iter_mut().for_each(|v| v.may_change = true);
        }
    }

    fn note_conditions(&mut self, cond: &Expr) {
        let mut parts = Vec::new();
        conditions::conjuncts(cond.clone(), &mut parts);
        for part in &parts {
            if let Expr::Let(binding) = part {
                let borrows = self.borrows_from(&binding.expr);
                self.note_pattern(&binding.pat, borrows);
            }
        }
    }

    fn note_pattern(&mut self, pat: &Pat, borrows: bool) {
        for binding in crate::pattern::bindings(pat) {
            self.scope.push(Noted {
                name: binding.ident.to_string(),
                is_borrow: (borrows || binding.by_ref) && !binding.mutable,
                may_change: binding.mutable || binding.by_ref_mut,
            });
        }
    }
}

/// Splits `let (a, b);` into `let a; let b;`, because each may be set in another stretch. Only the
/// types of a tuple's parts are independent; any other pattern stays whole.
fn set_later(local: Local) -> Vec<Local> {
    let (pat, ty) = match &local.pat {
        Pat::Type(typed) => (&*typed.pat, Some(&*typed.ty)),
        pat => (pat, None),
    };
    let mut parts = Vec::new();
    let splits =
        local.init.is_none() && !local.attrs.iter().any(is_ours) && matches!(pat, Pat::Tuple(_)) && tuple_parts(pat, ty, &mut parts);
    if !splits {
        return vec![local];
    }
    let one = |(pat, ty): (&Pat, Option<&Type>)| {
        let pat = match ty {
            Some(ty) => Pat::Type(parse_quote!(#pat: #ty)),
            None => pat.clone(),
        };
        Local { pat, ..local.clone() }
    };
    parts.into_iter().map(one).collect()
}

/// Collects the names in a tuple pattern with their written types; `false` if the pattern has
/// anything else.
fn tuple_parts<'p>(pat: &'p Pat, ty: Option<&'p Type>, parts: &mut Vec<(&'p Pat, Option<&'p Type>)>) -> bool {
    match (pat, ty) {
        (Pat::Ident(name), _) if name.by_ref.is_none() && name.subpat.is_none() => parts.push((pat, ty)),
        (Pat::Wild(_), _) => {}
        (Pat::Paren(e), _) => return tuple_parts(&e.pat, ty, parts),
        (_, Some(Type::Paren(of))) => return tuple_parts(pat, Some(&of.elem), parts),
        (Pat::Tuple(e), None | Some(Type::Infer(_))) => return e.elems.iter().all(|part| tuple_parts(part, None, parts)),
        (Pat::Tuple(e), Some(Type::Tuple(of))) if e.elems.len() == of.elems.len() => {
            return e.elems.iter().zip(&of.elems).all(|(part, ty)| tuple_parts(part, Some(ty), parts));
        }
        _ => return false,
    }
    true
}

fn plain(syntax: SynStmt) -> Stmt {
    stmt(StmtKind::Plain(syntax))
}

pub(crate) fn stmt(kind: StmtKind) -> Stmt {
    Stmt {
        kind,
        declares: Vec::new(),
        flow: Flow::Nothing,
        start: PointId::UNSET,
        before: PointId::UNSET,
        after: PointId::UNSET,
        cuts: None,
        remainders: Vec::new(),
    }
}

impl Arm {
    fn implicit() -> Arm {
        Arm {
            id: None,
            attrs: Vec::new(),
            pat: None,
            declares: Vec::new(),
            enter: Flow::Nothing,
            block: Block { stmts: Vec::new(), end: PointId::UNSET },
            cuts: None,
        }
    }
}

fn strip(expr: &Expr) -> &Expr {
    match expr {
        Expr::Paren(e) => strip(&e.expr),
        Expr::Group(e) => strip(&e.expr),
        other => other,
    }
}

/// A path of generated code, with the span of errors about its use.
fn at(path: &syn::Path, span: Span) -> syn::Path {
    let mut path = path.clone();
    for segment in &mut path.segments {
        let located = segment.ident.span().located_at(span);
        segment.ident.set_span(located);
    }
    if let Some(colons) = &mut path.leading_colon {
        *colons = syn::Token![::](span);
    }
    path
}

/// Stored name of the remaining items of a loop by value. No variable has it, so it does not depend
/// on whether the source is kept as well.
fn left_key(items: &Expr, pat: &Pat) -> String {
    let key = items_key(items, pat);
    if key.contains(' ') { key } else { format!("{key}{LEFT}") }
}

/// Name of what a loop iterates over: the last name in the expression, else the loop variable's.
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

fn parse_pat(ident: &Ident) -> Pat {
    Pat::Ident(syn::PatIdent { attrs: Vec::new(), by_ref: None, mutability: None, ident: ident.clone(), subpat: None })
}

/// Parses a quoted `let` statement.
fn parse_stmt(stmt: SynStmt) -> Local {
    match stmt {
        SynStmt::Local(local) => local,
        _ => unreachable!("a quoted `let` is a local"),
    }
}
