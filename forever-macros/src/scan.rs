//! Finds expressions with cut points, and cut points where none can be.
use proc_macro2::Span;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ImplItem, Item, Macro, Pat, Stmt};

use crate::cut::select::{Select, Wait};
use crate::cut::{self, CutKind, MacroCall, Recv, SideBySide, Step, Topic};
use crate::report::Report;

/// Whether a cut point is part of this expression's own flow: closures, `async` blocks and items
/// have flows of their own.
pub(crate) fn has_cut(expr: &Expr) -> bool {
    let mut find = FindCut(false);
    find.visit_expr(expr);
    find.0
}

pub(crate) fn stmt_has_cut(stmt: &Stmt) -> bool {
    let mut find = FindCut(false);
    find.visit_stmt(stmt);
    find.0
}

pub(crate) fn block_has_cut(block: &syn::Block) -> bool {
    block.stmts.iter().any(stmt_has_cut)
}

struct FindCut(bool);

impl<'ast> Visit<'ast> for FindCut {
    fn visit_macro(&mut self, mac: &'ast Macro) {
        self.0 |= CutKind::of(mac).is_some();
    }
    fn visit_expr_closure(&mut self, _: &'ast syn::ExprClosure) {}
    fn visit_expr_async(&mut self, _: &'ast syn::ExprAsync) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_item(&mut self, _: &'ast Item) {}
}

/// Reports every cut point in a place where the function cannot stop.
pub(crate) fn misplaced(block: &syn::Block, report: &mut Report) {
    Misplaced { report, inside: None }.visit_block(block);
}

/// A place where no cut point can be, and what to do instead.
#[derive(Clone, Copy)]
struct Inside {
    place: &'static str,
    way_out: &'static str,
}

const CLOSURE: Inside = Inside { place: "a closure", way_out: "use a loop, or take the value before: `let r = step!(..);`" };
const ASYNC: Inside = Inside {
    place: "an `async` block",
    way_out: "bind the value before the block: `let r = step!(..);`, or make the whole block the body of one step",
};
const TASK: Inside = Inside {
    place: "a spawned task",
    way_out: "make the task a fiber, `#[fiber] async fn task(..)`, and start that: `let task = spawn!(task(..));`",
};
const ITEM: Inside = Inside { place: "a nested function", way_out: "make that function a `#[fiber]` and `call!` it" };
const GUARD: Inside = Inside { place: "a match guard", way_out: "bind it before the match: `let ok = step!(..);`" };
const STEP: Inside = Inside { place: "another `step!` or `call!`", way_out: "bind it first: `let r = step!(..);`" };
const BRANCH: Inside = Inside {
    place: "a branch of `steps!`",
    way_out: "a branch is one step by itself; what has several is a `#[fiber]` of its own: `spawn!` each and `wait_all!` for them",
};
const LIMIT: Inside = Inside { place: "the `limit` of a `steps!`", way_out: "bind it first: `let limit = step!(..);`" };
const CONST: Inside = Inside { place: "a `const` block", way_out: "bind it outside: `let r = step!(..);`" };

struct Misplaced<'r> {
    report: &'r mut Report,
    inside: Option<Inside>,
}

impl Misplaced<'_> {
    fn arguments<'a>(&mut self, of: Option<&syn::Ident>, args: impl IntoIterator<Item = &'a Expr>) {
        let spawns = of.is_some_and(|name| name == "spawn" || name == "spawn_local");
        for arg in args {
            match arg {
                Expr::Async(block) if spawns => self.within(TASK, |v| visit::visit_expr_async(v, block)),
                arg => self.visit_expr(arg),
            }
        }
    }

    fn within(&mut self, inside: Inside, visit: impl FnOnce(&mut Self)) {
        let outer = self.inside.replace(inside);
        visit(self);
        self.inside = outer;
    }

    fn cfg(&mut self, attrs: &[Attribute], has_cut: bool) {
        if let Some(cfg) = attrs.iter().find(|a| a.path().is_ident("cfg")).filter(|_| has_cut) {
            self.report.over(
                cfg,
                "`#[cfg]` on code with a step would change what can be resumed: move the condition into the step's body, or into `if cfg!(..)`",
            );
        }
    }

    fn cut(&mut self, kind: CutKind, span: Span) {
        if let Some(Inside { place, way_out }) = self.inside {
            self.report.at(span, format!("`{}` cannot be used in {place}: {way_out}", kind.written()));
        }
    }
}

impl<'ast> Visit<'ast> for Misplaced<'_> {
    fn visit_macro(&mut self, mac: &'ast Macro) {
        if let Some(kind) = CutKind::of(mac) {
            let span = mac.path.segments.last().map_or_else(Span::call_site, |s| s.ident.span());
            self.cut(kind, span);
            // Lowering parses the body again, and reports its errors.
            let mut unreported = Report::default();
            match cut::parse(kind, mac, &mut unreported).map(|(written, _)| written) {
                Some(MacroCall::Step(step)) => self.within(STEP, |v| v.step(&step)),
                Some(MacroCall::Steps(steps)) => self.steps(&steps),
                Some(
                    MacroCall::Call(value)
                    | MacroCall::Spawn(value)
                    | MacroCall::Sleep(value)
                    | MacroCall::SleepUntil(value)
                    | MacroCall::Wait(value)
                    | MacroCall::WaitAll(value),
                ) => self.visit_expr(&value),
                Some(MacroCall::Recv(recv)) => self.recv(&recv),
                Some(MacroCall::TryRecv(topic) | MacroCall::Close(topic)) => self.topic(&topic),
                Some(MacroCall::Select(select)) => self.select(&select),
                None => {}
            }
        } else if let Some((kind, span)) = cut::find_in_tokens(&mac.tokens) {
            let name = mac.path.segments.last().map_or_else(String::new, |s| s.ident.to_string());
            let step = kind.written();
            self.report.at(
                span,
                match name.as_str() {
                    "join" | "try_join" => format!(
                        "`{step}` cannot be used in `{name}!`: steps run side by side in `steps!(a().await?, b().await?)`, where each result is stored when it arrives"
                    ),
                    "select" | "select_biased" => format!(
                        "`{step}` cannot be used in `{name}!`, which drops the branches that are not ready first: let them race inside one step, `step!({name}! {{ .. }})`, or run all of them, `steps!(a().await?, b().await?)`"
                    ),
                    _ => format!("`{step}` cannot be used in the arguments of `{name}!`: bind it first: `let r = {step}(..);`"),
                },
            );
        }
    }

    fn visit_expr_closure(&mut self, closure: &'ast syn::ExprClosure) {
        self.within(CLOSURE, |v| visit::visit_expr_closure(v, closure));
    }

    fn visit_expr_async(&mut self, block: &'ast syn::ExprAsync) {
        self.within(ASYNC, |v| visit::visit_expr_async(v, block));
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        let Expr::Path(func) = &*call.func else { return visit::visit_expr_call(self, call) };
        self.arguments(func.path.segments.last().map(|s| &s.ident), &call.args);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.visit_expr(&call.receiver);
        self.arguments(Some(&call.method), &call.args);
    }

    fn visit_expr_const(&mut self, block: &'ast syn::ExprConst) {
        self.within(CONST, |v| visit::visit_expr_const(v, block));
    }

    fn visit_item(&mut self, item: &'ast Item) {
        if let Item::Macro(rules) = item {
            if let Some((kind, span)) = cut::find_in_tokens(&rules.mac.tokens) {
                self.report
                    .at(span, format!("`{}` cannot be used in a `macro_rules!`: write it out in the function's body", kind.written()));
            }
            return;
        }
        self.within(ITEM, |v| visit::visit_item(v, item));
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        visit::visit_impl_item(self, item);
    }

    fn visit_pat_guard(&mut self, guard: &'ast syn::PatGuard) {
        self.visit_pat(&guard.pat);
        self.within(GUARD, |v| v.visit_expr(&guard.guard));
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        self.cfg(&arm.attrs, has_cut(&arm.body));
        visit::visit_arm(self, arm);
    }

    fn visit_stmt(&mut self, stmt: &'ast Stmt) {
        let attrs: &[Attribute] = match stmt {
            Stmt::Local(local) => &local.attrs,
            Stmt::Macro(mac) => &mac.attrs,
            Stmt::Expr(expr, _) => attrs_of(expr),
            Stmt::Item(_) => &[],
        };
        self.cfg(attrs, stmt_has_cut(stmt));
        visit::visit_stmt(self, stmt);
    }
}

impl Misplaced<'_> {
    fn step(&mut self, step: &Step) {
        for expr in step.options() {
            self.visit_expr(expr);
        }
        self.visit_expr(&step.body);
        self.stays(&step.body);
    }

    fn recv(&mut self, recv: &Recv) {
        self.topic(&recv.topic);
        recv.timeout.iter().for_each(|timeout| self.visit_expr(timeout));
    }

    fn topic(&mut self, topic: &Topic) {
        if let Topic::Computed(topic) = topic {
            self.visit_expr(topic);
        }
    }

    /// Visits the bodies of the arms, which are code of the function like any other.
    fn select(&mut self, select: &Select) {
        for arm in &select.arms {
            match &arm.wait {
                Wait::Recv(recv) => self.recv(recv),
                Wait::Sleep(value) | Wait::SleepUntil(value) | Wait::End(value) => self.visit_expr(value),
            }
            self.visit_expr(&arm.body);
        }
    }

    fn steps(&mut self, steps: &SideBySide) {
        match steps {
            SideBySide::Branches(branches) => {
                for branch in branches {
                    self.within(BRANCH, |v| v.step(&branch.step));
                }
            }
            SideBySide::Each { items, limit, step, .. } => {
                self.visit_expr(items);
                if let Some(limit) = limit {
                    self.within(LIMIT, |v| v.visit_expr(limit));
                }
                self.within(BRANCH, |v| v.step(step));
            }
        }
    }

    /// Reports jumps that would leave the body of a step.
    fn stays(&mut self, body: &Expr) {
        Leaves { report: self.report, loops: Vec::new(), any_loop: false }.visit_expr(body);
    }
}

fn attrs_of(expr: &Expr) -> &[Attribute] {
    match expr {
        Expr::Macro(e) => &e.attrs,
        Expr::If(e) => &e.attrs,
        Expr::Match(e) => &e.attrs,
        Expr::Loop(e) => &e.attrs,
        Expr::While(e) => &e.attrs,
        Expr::ForLoop(e) => &e.attrs,
        Expr::Block(e) => &e.attrs,
        _ => &[],
    }
}

/// `return`, `break` and `continue` that would leave a step's body.
struct Leaves<'r> {
    report: &'r mut Report,
    loops: Vec<String>,
    any_loop: bool,
}

impl Leaves<'_> {
    fn jump(&mut self, word: &str, label: Option<&syn::Lifetime>, tokens: &dyn quote::ToTokens) {
        let stays = match label {
            Some(label) => self.loops.contains(&label.ident.to_string()),
            None => self.any_loop,
        };
        if !stays {
            self.report.over(
                tokens,
                format!("`{word}` cannot leave a step's body: give the step a value and `{word}` after it: `let done = step!(..); if done {{ {word} .. }}`"),
            );
        }
    }

    fn in_loop(&mut self, label: Option<&syn::Label>, is_loop: bool, visit: impl FnOnce(&mut Self)) {
        let before = self.any_loop;
        self.any_loop |= is_loop;
        self.loops.extend(label.map(|l| l.name.ident.to_string()));
        visit(self);
        if label.is_some() {
            self.loops.pop();
        }
        self.any_loop = before;
    }
}

impl<'ast> Visit<'ast> for Leaves<'_> {
    fn visit_expr_return(&mut self, e: &'ast syn::ExprReturn) {
        self.report.over(
            e,
            "`return` cannot leave a step's body: use `?` for an error, or give the step a value and `return` after it: `let done = step!(..); if done { return .. }`",
        );
    }
    fn visit_expr_break(&mut self, e: &'ast syn::ExprBreak) {
        self.jump("break", e.label.as_ref(), e);
        visit::visit_expr_break(self, e);
    }
    fn visit_expr_continue(&mut self, e: &'ast syn::ExprContinue) {
        self.jump("continue", e.label.as_ref(), e);
    }
    fn visit_expr_loop(&mut self, e: &'ast syn::ExprLoop) {
        self.in_loop(e.label.as_ref(), true, |v| visit::visit_expr_loop(v, e));
    }
    fn visit_expr_while(&mut self, e: &'ast syn::ExprWhile) {
        self.in_loop(e.label.as_ref(), true, |v| visit::visit_expr_while(v, e));
    }
    fn visit_expr_for_loop(&mut self, e: &'ast syn::ExprForLoop) {
        self.in_loop(e.label.as_ref(), true, |v| visit::visit_expr_for_loop(v, e));
    }
    fn visit_expr_block(&mut self, e: &'ast syn::ExprBlock) {
        self.in_loop(e.label.as_ref(), false, |v| visit::visit_expr_block(v, e));
    }
    fn visit_expr_closure(&mut self, _: &'ast syn::ExprClosure) {}
    fn visit_expr_async(&mut self, _: &'ast syn::ExprAsync) {}
    fn visit_item(&mut self, _: &'ast Item) {}
}

/// The name of a pattern that binds one variable: steps are named after simple `let`s.
pub(crate) fn simple_name(pat: &Pat) -> Option<String> {
    match pat {
        Pat::Ident(ident) if ident.subpat.is_none() => {
            Some(ident.ident.to_string().trim_start_matches("r#").trim_start_matches('_').to_owned())
        }
        Pat::Type(typed) => simple_name(&typed.pat),
        Pat::Paren(paren) => simple_name(&paren.pat),
        _ => None,
    }
    .filter(|name| !name.is_empty())
}

/// The cut point that an expression is, through parentheses, with the `?` that belongs to it.
pub(crate) fn as_cut(expr: &Expr) -> Option<(CutKind, &Macro, Option<Span>)> {
    match expr {
        Expr::Macro(e) => CutKind::of(&e.mac).map(|kind| (kind, &e.mac, None)),
        Expr::Paren(e) => as_cut(&e.expr),
        Expr::Group(e) => as_cut(&e.expr),
        Expr::Try(e) => match as_cut(&e.expr)? {
            (kind, mac, None) if kind.takes_question() => Some((kind, mac, Some(e.question_token.span))),
            _ => None,
        },
        _ => None,
    }
}
