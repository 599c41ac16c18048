//! Data flow of an expression without cut points, in evaluation order.
use std::collections::BTreeSet;

use syn::{Expr, Stmt};

use super::{Names, VarKind, assign_all};
use crate::flow::Flow;
use crate::ids::{JumpId, VarId};

impl Names<'_> {
    /// Walks an expression whose value is used.
    pub(super) fn expr(&mut self, expr: &Expr) -> Flow {
        match expr {
            Expr::Field(_) => {
                let mut flow = self.place(expr);
                flow.push(self.moved(expr, true));
                flow
            }
            Expr::Index(_) => self.place(expr),
            Expr::Unary(e) if matches!(e.op, syn::UnOp::Deref(_)) => self.place(expr),
            Expr::RawAddr(e) => self.place(&e.expr),
            Expr::MethodCall(e) => {
                let mut flow = self.place(&e.receiver);
                e.args.iter().for_each(|argument| flow.push(self.expr(argument)));
                if super::parts::takes_self(&e.method) {
                    flow.push(self.moved(&e.receiver, false));
                    if let (Expr::Path(_), Some(id)) =
                        (&*e.receiver, crate::place::root(&e.receiver).and_then(|root| self.lookup(&root.to_string())))
                    {
                        self.moved_whole(id);
                    }
                }
                flow
            }
            Expr::Call(e) => {
                let mut flow = self.place(&e.func);
                e.args.iter().for_each(|argument| flow.push(self.expr(argument)));
                flow
            }
            Expr::Path(path) => {
                let flow = self.name(path);
                if let Flow::Use(id) = flow {
                    self.moved_whole(id);
                }
                flow
            }
            Expr::Macro(e) => self.macro_call(&e.mac),
            Expr::Assign(e) => {
                self.changed(&e.left);
                let mut flow = self.expr(&e.right);
                flow.push(self.assignee(&e.left, Some(&e.right)));
                flow
            }
            Expr::Binary(e) => match e.op {
                syn::BinOp::And(_) => {
                    let mut parts = Vec::new();
                    self.conjuncts(e, &mut parts);
                    // Each condition is evaluated only if all before it held.
                    let last = parts.pop().unwrap_or_default();
                    parts.into_iter().rev().fold(last, |rest, mut first| {
                        first.push(Flow::Either(vec![Flow::Nothing, rest]));
                        first
                    })
                }
                syn::BinOp::Or(_) => {
                    let mut flow = self.expr(&e.left);
                    flow.push(Flow::Either(vec![Flow::Nothing, self.expr(&e.right)]));
                    flow
                }
                op if super::parts::compares(&op) => {
                    let mut flow = self.place(&e.left);
                    flow.push(self.place(&e.right));
                    flow
                }
                op if crate::place::is_assignment(op) => {
                    self.changed(&e.left);
                    let mut flow = self.place(&e.left);
                    flow.push(self.expr(&e.right));
                    flow
                }
                _ => {
                    let mut flow = self.expr(&e.left);
                    flow.push(self.expr(&e.right));
                    flow
                }
            },
            Expr::Reference(e) => {
                if e.mutability.is_some() {
                    self.changed(&e.expr);
                    if let Some(id) = crate::place::root(&e.expr).and_then(|root| self.lookup(&root.to_string())) {
                        self.table.vars[id.0].texts = super::Texts::Other;
                    }
                }
                self.place(&e.expr)
            }
            Expr::Block(e) => {
                let Some(label) = &e.label else { return self.always(|names| names.stmts(&e.block.stmts)) };
                let (id, name) = (self.fresh_jump(), label.name.ident.to_string());
                self.jumps.push(super::Target { label: Some(name), id, is_loop: false });
                let body = self.stmts(&e.block.stmts);
                self.jumps.pop();
                Flow::Labelled(id, Box::new(body))
            }
            Expr::Unsafe(e) => self.always(|names| names.stmts(&e.block.stmts)),
            Expr::If(e) => {
                self.scopes.push(Vec::new());
                let mut flow = self.expr(&e.cond);
                let mut then = self.bound_here();
                then.push(self.stmts(&e.then_branch.stmts));
                self.scopes.pop();
                let otherwise = e.else_branch.as_ref().map_or(Flow::Nothing, |(_, e)| self.expr(e));
                flow.push(Flow::Either(vec![then, otherwise]));
                flow
            }
            Expr::Match(e) => {
                let mut flow = self.place(&e.expr);
                let scrutinee = (*e.expr).clone();
                let mut arms = Vec::new();
                for arm in &e.arms {
                    self.scopes.push(Vec::new());
                    let mut entered = self.arm_pattern(&arm.pat, &scrutinee);
                    entered.push(self.expr(&arm.body));
                    self.scopes.pop();
                    arms.push(entered);
                }
                flow.push(Flow::Either(arms));
                flow
            }
            Expr::Let(e) => {
                let mut flow = self.place(&e.expr);
                flow.push(self.moved_by_pattern(&e.pat, &e.expr));
                let init = (*e.expr).clone();
                let declares = self.bindings_of(&e.pat, &init);
                flow.push(assign_all(&declares));
                flow
            }
            Expr::Loop(e) => {
                let id = self.enter_loop(e.label.as_ref());
                let body = self.stmts(&e.body.stmts);
                self.jumps.pop();
                Flow::Loop(id, Box::new(body))
            }
            Expr::While(e) => {
                let id = self.enter_loop(e.label.as_ref());
                self.scopes.push(Vec::new());
                let mut round = self.expr(&e.cond);
                let mut body = self.bound_here();
                body.push(self.stmts(&e.body.stmts));
                self.scopes.pop();
                self.jumps.pop();
                round.push(Flow::Either(vec![body, Flow::Break(id)]));
                Flow::Loop(id, Box::new(round))
            }
            Expr::ForLoop(e) => {
                let mut flow = self.expr(&e.expr);
                let id = self.enter_loop(e.label.as_ref());
                self.scopes.push(Vec::new());
                let declares = self.pattern(&e.pat, &VarKind::Value);
                let mut round = assign_all(&declares);
                round.push(self.stmts(&e.body.stmts));
                self.scopes.pop();
                self.jumps.pop();
                flow.push(Flow::Loop(id, Box::new(Flow::Either(vec![Flow::Break(id), round]))));
                flow
            }
            Expr::Break(e) => {
                let mut flow = e.expr.as_ref().map_or(Flow::Nothing, |value| self.expr(value));
                if let Some(id) = self.target(e.label.as_ref()) {
                    if let Some(value) = &e.expr {
                        self.breaks_with(id, value);
                    }
                    self.note_jump(id);
                    flow.push(Flow::Break(id));
                }
                flow
            }
            Expr::Continue(e) => match self.target(e.label.as_ref()) {
                Some(id) => {
                    self.note_jump(id);
                    Flow::Continue(id)
                }
                None => Flow::Nothing,
            },
            Expr::Return(e) => {
                let outer = std::mem::replace(&mut self.lent.returns, true);
                let mut flow = e.expr.as_ref().map_or(Flow::Nothing, |value| self.expr(value));
                self.lent.returns = outer;
                flow.push(Flow::Return);
                flow
            }
            Expr::Closure(e) => {
                self.scopes.push(Vec::new());
                for input in &e.inputs {
                    self.pattern(input, &VarKind::Value);
                }
                let jumps = std::mem::take(&mut self.jumps);
                let first = self.table.uses.len();
                let mut body = self.expr(&e.body);
                if e.capture.is_some() {
                    body.push(self.moved_by_capture(first));
                }
                self.jumps = jumps;
                self.scopes.pop();
                self.captures(&body)
            }
            Expr::Async(e) => {
                let jumps = std::mem::take(&mut self.jumps);
                let first = self.table.uses.len();
                let mut body = self.stmts(&e.block.stmts);
                if e.capture.is_some() {
                    body.push(self.moved_by_capture(first));
                }
                self.jumps = jumps;
                self.captures(&body)
            }
            Expr::Struct(e) => {
                let mut flow = Flow::Nothing;
                for field in &e.fields {
                    flow.push(self.expr(&field.expr));
                }
                flow.push(e.rest.as_ref().map_or(Flow::Nothing, |rest| self.expr(rest)));
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

    /// Walks a name, of which only the compiler knows whether it is moved.
    pub(super) fn name(&mut self, path: &syn::ExprPath) -> Flow {
        match path.path.get_ident().map(ToString::to_string).and_then(|name| self.lookup(&name)) {
            Some(id) if path.qself.is_none() => self.use_of(id, path.path.segments[0].ident.span()),
            _ => Flow::Nothing,
        }
    }

    fn conjuncts(&mut self, e: &syn::ExprBinary, parts: &mut Vec<Flow>) {
        for side in [&e.left, &e.right] {
            match &**side {
                Expr::Binary(inner) if matches!(inner.op, syn::BinOp::And(_)) => self.conjuncts(inner, parts),
                other => {
                    let flow = self.expr(other);
                    parts.push(flow);
                }
            }
        }
    }

    /// The bindings of a condition, on the path where it held.
    pub(super) fn bound_here(&mut self) -> Flow {
        let declares: Vec<VarId> = self.top().iter().map(|(_, id)| *id).collect();
        assign_all(&declares)
    }

    fn stmts(&mut self, stmts: &[Stmt]) -> Flow {
        self.scopes.push(Vec::new());
        let mut flow = Flow::Nothing;
        for stmt in stmts {
            flow.push(self.plain(stmt).0);
        }
        self.scopes.pop();
        flow
    }

    /// Marks the last use as an assignment of the whole variable.
    fn assigned(&mut self, id: VarId, value: Option<&Expr>) -> Flow {
        if let Some(value) = value {
            self.sets(id, value);
        }
        self.table.vars[id.0].texts.given(value);
        if let Some(noted) = self.table.uses.iter_mut().rev().find(|noted| noted.var == id) {
            noted.assigns = true;
        }
        Flow::Assign(id)
    }

    /// Walks the left side of an assignment.
    fn assignee(&mut self, left: &Expr, value: Option<&Expr>) -> Flow {
        match left {
            Expr::Path(path) => match self.name(path) {
                Flow::Nothing => Flow::Nothing,
                Flow::Use(id) => self.assigned(id, value),
                Flow::Seq(uses) => match uses.first() {
                    Some(Flow::Use(id)) => self.assigned(*id, value),
                    _ => Flow::Seq(uses),
                },
                other => other,
            },
            Expr::Paren(e) => self.assignee(&e.expr, value),
            Expr::Tuple(e) => {
                let mut flow = Flow::Nothing;
                for part in &e.elems {
                    flow.push(self.assignee(part, None));
                }
                flow
            }
            Expr::Array(e) => {
                let mut flow = Flow::Nothing;
                for part in &e.elems {
                    flow.push(self.assignee(part, None));
                }
                flow
            }
            // `Point { x, y } = point`, `Wrapper(x) = wrapped`.
            Expr::Struct(e) => {
                let mut flow = Flow::Nothing;
                for part in &e.fields {
                    flow.push(self.assignee(&part.expr, None));
                }
                flow
            }
            Expr::Call(e) => {
                let mut flow = Flow::Nothing;
                for part in &e.args {
                    flow.push(self.assignee(part, None));
                }
                flow
            }
            Expr::Infer(_) | Expr::Range(_) => Flow::Nothing,
            other => {
                let mut flow = self.place(other);
                flow.push(self.filled(other));
                flow
            }
        }
    }

    /// The captures of a closure or `async` block: everything from outside that it mentions, at the
    /// point where it is made.
    pub(super) fn captures(&self, body: &Flow) -> Flow {
        let mut mentioned = BTreeSet::new();
        body.mentioned(&mut mentioned);
        let outer: BTreeSet<VarId> = self.scopes.iter().flatten().map(|(_, id)| *id).collect();
        let mut flow = Flow::Nothing;
        for id in mentioned.intersection(&outer) {
            flow.push(Flow::Use(*id));
        }
        self.moved_inside(body, &outer, &mut flow);
        flow
    }

    /// Records a jump. Generated code is put before one that leaves its statement, and names may
    /// mean other variables there.
    fn note_jump(&mut self, id: JumpId) {
        if id.is_lowered() {
            let hidden: Vec<VarId> = self.hidden().into_iter().map(|(hidden, _)| hidden).collect();
            self.table.hidden_at_jumps.extend(hidden);
        }
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

/// The subexpressions of an expression that has no names or control flow of its own, in evaluation
/// order.
fn parts(expr: &Expr) -> Vec<&Expr> {
    match expr {
        Expr::Array(e) => e.elems.iter().collect(),
        Expr::Await(e) => vec![&e.base],
        Expr::Cast(e) => vec![&e.expr],
        Expr::Group(e) => vec![&e.expr],
        Expr::Paren(e) => vec![&e.expr],
        Expr::Range(e) => [e.start.as_deref(), e.end.as_deref()].into_iter().flatten().collect(),
        Expr::Repeat(e) => vec![&e.expr, &e.len],
        Expr::Try(e) => vec![&e.expr],
        Expr::Tuple(e) => e.elems.iter().collect(),
        Expr::Unary(e) => vec![&e.expr],
        _ => Vec::new(),
    }
}
