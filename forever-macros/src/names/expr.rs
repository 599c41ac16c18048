//! What an expression without cut points does to variables, in evaluation order.
use std::collections::BTreeSet;

use syn::{Expr, Stmt};

use super::{Names, VarId, VarKind, assign_all};
use crate::flow::{Flow, JumpId};

impl Names<'_> {
    pub(super) fn expr(&mut self, expr: &mut Expr) -> Flow {
        match expr {
            Expr::Path(path) => match path.path.get_ident().map(ToString::to_string).and_then(|name| self.lookup(&name)) {
                Some(id) if path.qself.is_none() => {
                    if let Some(new) = self.renames.get(&id) {
                        let span = path.path.segments[0].ident.span();
                        path.path.segments[0].ident = new.new.clone();
                        path.path.segments[0].ident.set_span(span);
                    }
                    let span = path.path.segments[0].ident.span();
                    self.use_of(id, span)
                }
                _ => Flow::Nothing,
            },
            Expr::Macro(e) => self.macro_call(&mut e.mac),
            Expr::Assign(e) => {
                self.changed(&e.left);
                let mut flow = self.expr(&mut e.right);
                flow.push(self.assignee(&mut e.left));
                flow
            }
            Expr::Binary(e) => match e.op {
                syn::BinOp::And(_) => {
                    let mut parts = Vec::new();
                    self.conjuncts(e, &mut parts);
                    // Each is evaluated only if all before it held.
                    let last = parts.pop().unwrap_or_default();
                    parts.into_iter().rev().fold(last, |rest, mut first| {
                        first.push(Flow::Either(vec![Flow::Nothing, rest]));
                        first
                    })
                }
                syn::BinOp::Or(_) => {
                    let mut flow = self.expr(&mut e.left);
                    flow.push(Flow::Either(vec![Flow::Nothing, self.expr(&mut e.right)]));
                    flow
                }
                op => {
                    if crate::place::is_assignment(op) {
                        self.changed(&e.left);
                    }
                    let mut flow = self.expr(&mut e.left);
                    flow.push(self.expr(&mut e.right));
                    flow
                }
            },
            Expr::Reference(e) => {
                if e.mutability.is_some() {
                    self.changed(&e.expr);
                }
                self.expr(&mut e.expr)
            }
            Expr::Block(e) => {
                let Some(label) = &e.label else { return self.stmts(&mut e.block.stmts) };
                let (id, name) = (self.fresh_jump(), label.name.ident.to_string());
                self.jumps.push(super::Target { label: Some(name), id, is_loop: false });
                let body = self.stmts(&mut e.block.stmts);
                self.jumps.pop();
                Flow::Labelled(id, Box::new(body))
            }
            Expr::Unsafe(e) => self.stmts(&mut e.block.stmts),
            Expr::If(e) => {
                self.scopes.push(Vec::new());
                let mut flow = self.expr(&mut e.cond);
                let mut then = self.bound_here();
                then.push(self.stmts(&mut e.then_branch.stmts));
                self.scopes.pop();
                let otherwise = e.else_branch.as_mut().map_or(Flow::Nothing, |(_, e)| self.expr(e));
                flow.push(Flow::Either(vec![then, otherwise]));
                flow
            }
            Expr::Match(e) => {
                let mut flow = self.expr(&mut e.expr);
                let scrutinee = (*e.expr).clone();
                let mut arms = Vec::new();
                for arm in &mut e.arms {
                    self.scopes.push(Vec::new());
                    let mut entered = self.arm_pattern(&mut arm.pat, &scrutinee);
                    entered.push(self.expr(&mut arm.body));
                    self.scopes.pop();
                    arms.push(entered);
                }
                flow.push(Flow::Either(arms));
                flow
            }
            Expr::Let(e) => {
                let mut flow = self.expr(&mut e.expr);
                let init = (*e.expr).clone();
                let declares = self.bindings_of(&mut e.pat, &init);
                flow.push(assign_all(&declares));
                flow
            }
            Expr::Loop(e) => {
                let id = self.enter_loop(e.label.as_ref());
                let body = self.stmts(&mut e.body.stmts);
                self.jumps.pop();
                Flow::Loop(id, Box::new(body))
            }
            Expr::While(e) => {
                let id = self.enter_loop(e.label.as_ref());
                self.scopes.push(Vec::new());
                let mut round = self.expr(&mut e.cond);
                let mut body = self.bound_here();
                body.push(self.stmts(&mut e.body.stmts));
                self.scopes.pop();
                self.jumps.pop();
                round.push(Flow::Either(vec![body, Flow::Break(id)]));
                Flow::Loop(id, Box::new(round))
            }
            Expr::ForLoop(e) => {
                let mut flow = self.expr(&mut e.expr);
                let id = self.enter_loop(e.label.as_ref());
                self.scopes.push(Vec::new());
                let declares = self.pattern(&mut e.pat, &VarKind::Value);
                let mut round = assign_all(&declares);
                round.push(self.stmts(&mut e.body.stmts));
                self.scopes.pop();
                self.jumps.pop();
                flow.push(Flow::Loop(id, Box::new(Flow::Either(vec![Flow::Break(id), round]))));
                flow
            }
            Expr::Break(e) => {
                let mut flow = e.expr.as_mut().map_or(Flow::Nothing, |value| self.expr(value));
                if let Some(id) = self.target(e.label.as_ref()) {
                    flow.push(Flow::Break(id));
                }
                flow
            }
            Expr::Continue(e) => self.target(e.label.as_ref()).map_or(Flow::Nothing, Flow::Continue),
            Expr::Return(e) => {
                let mut flow = e.expr.as_mut().map_or(Flow::Nothing, |value| self.expr(value));
                flow.push(Flow::Return);
                flow
            }
            Expr::Closure(e) => {
                self.scopes.push(Vec::new());
                for input in &mut e.inputs {
                    self.pattern(input, &VarKind::Value);
                }
                let jumps = std::mem::take(&mut self.jumps);
                let body = self.expr(&mut e.body);
                self.jumps = jumps;
                self.scopes.pop();
                self.captures(&body)
            }
            Expr::Async(e) => {
                let jumps = std::mem::take(&mut self.jumps);
                let body = self.stmts(&mut e.block.stmts);
                self.jumps = jumps;
                self.captures(&body)
            }
            Expr::Struct(e) => {
                let mut flow = Flow::Nothing;
                for field in &mut e.fields {
                    let before = quote::ToTokens::to_token_stream(&field.expr).to_string();
                    flow.push(self.expr(&mut field.expr));
                    if field.colon_token.is_none() && quote::ToTokens::to_token_stream(&field.expr).to_string() != before {
                        field.colon_token = Some(syn::Token![:](proc_macro2::Span::call_site()));
                    }
                }
                flow.push(e.rest.as_mut().map_or(Flow::Nothing, |rest| self.expr(rest)));
                flow
            }
            other => {
                let mut flow = Flow::Nothing;
                for part in parts(other) {
                    flow.push(self.expr(part));
                }
                flow
            }
        }
    }

    fn conjuncts(&mut self, e: &mut syn::ExprBinary, parts: &mut Vec<Flow>) {
        for side in [&mut e.left, &mut e.right] {
            match &mut **side {
                Expr::Binary(inner) if matches!(inner.op, syn::BinOp::And(_)) => self.conjuncts(inner, parts),
                other => {
                    let flow = self.expr(other);
                    parts.push(flow);
                }
            }
        }
    }

    /// What a condition has bound, where it has held.
    pub(super) fn bound_here(&mut self) -> Flow {
        let declares: Vec<VarId> = self.top().iter().map(|(_, id)| *id).collect();
        assign_all(&declares)
    }

    fn stmts(&mut self, stmts: &mut [Stmt]) -> Flow {
        self.scopes.push(Vec::new());
        let mut flow = Flow::Nothing;
        for stmt in stmts {
            flow.push(self.plain(stmt).0);
        }
        self.scopes.pop();
        flow
    }

    /// The use that was just noted gives the variable a whole new value.
    fn assigned(&mut self, id: VarId) -> Flow {
        if let Some(noted) = self.table.uses.iter_mut().rev().find(|noted| noted.var == id) {
            noted.assigns = true;
        }
        Flow::Assign(id)
    }

    /// The left side of an assignment.
    fn assignee(&mut self, left: &mut Expr) -> Flow {
        match left {
            Expr::Path(_) => match self.expr(left) {
                Flow::Nothing => Flow::Nothing,
                Flow::Use(id) => self.assigned(id),
                Flow::Seq(uses) => match uses.first() {
                    Some(Flow::Use(id)) => self.assigned(*id),
                    _ => Flow::Seq(uses),
                },
                other => other,
            },
            Expr::Paren(e) => self.assignee(&mut e.expr),
            Expr::Tuple(e) => {
                let mut flow = Flow::Nothing;
                for part in &mut e.elems {
                    flow.push(self.assignee(part));
                }
                flow
            }
            Expr::Array(e) => {
                let mut flow = Flow::Nothing;
                for part in &mut e.elems {
                    flow.push(self.assignee(part));
                }
                flow
            }
            other => self.expr(other),
        }
    }

    /// What a closure or `async` block takes from outside: everything it mentions, when it is made.
    pub(super) fn captures(&self, body: &Flow) -> Flow {
        let mut mentioned = BTreeSet::new();
        body.mentioned(&mut mentioned);
        let outer: BTreeSet<VarId> = self.scopes.iter().flatten().map(|(_, id)| *id).collect();
        let mut flow = Flow::Nothing;
        for id in mentioned.intersection(&outer) {
            flow.push(Flow::Use(*id));
        }
        flow
    }

    fn enter_loop(&mut self, label: Option<&syn::Label>) -> JumpId {
        let id = self.fresh_jump();
        self.jumps.push(super::Target { label: label.map(|l| l.name.ident.to_string()), id, is_loop: true });
        id
    }

    fn fresh_jump(&mut self) -> JumpId {
        self.next_jump += 1;
        JumpId(self.next_jump)
    }

    fn target(&self, label: Option<&syn::Lifetime>) -> Option<JumpId> {
        let found = match label {
            Some(label) => self.jumps.iter().rev().find(|t| t.label.as_ref().is_some_and(|name| label.ident == name)),
            None => self.jumps.iter().rev().find(|t| t.is_loop),
        };
        found.map(|t| t.id)
    }
}

/// The subexpressions of an expression without names or control flow of its own, in evaluation order.
fn parts(expr: &mut Expr) -> Vec<&mut Expr> {
    match expr {
        Expr::Array(e) => e.elems.iter_mut().collect(),
        Expr::Await(e) => vec![&mut e.base],
        Expr::Call(e) => std::iter::once(&mut *e.func).chain(e.args.iter_mut()).collect(),
        Expr::Cast(e) => vec![&mut e.expr],
        Expr::Field(e) => vec![&mut e.base],
        Expr::Group(e) => vec![&mut e.expr],
        Expr::Index(e) => vec![&mut e.expr, &mut e.index],
        Expr::MethodCall(e) => std::iter::once(&mut *e.receiver).chain(e.args.iter_mut()).collect(),
        Expr::Paren(e) => vec![&mut e.expr],
        Expr::Range(e) => [e.start.as_deref_mut(), e.end.as_deref_mut()].into_iter().flatten().collect(),
        Expr::RawAddr(e) => vec![&mut e.expr],
        Expr::Repeat(e) => vec![&mut e.expr, &mut e.len],
        Expr::Try(e) => vec![&mut e.expr],
        Expr::Tuple(e) => e.elems.iter_mut().collect(),
        Expr::Unary(e) => vec![&mut e.expr],
        _ => Vec::new(),
    }
}
