//! What the bodies of cut points do to variables.
use syn::Expr;

use super::{Names, VarKind};
use crate::cut::{AwaitedEvent, CutBody, End, Items, Pending, Step, Steps, Topics};
use crate::flow::Flow;
use crate::ids::VarId;
use crate::messages;
use crate::place;
use crate::sealed::Sealed;

impl Names<'_> {
    /// Walks the body of a cut point.
    pub(super) fn cut(&mut self, body: &CutBody) -> Flow {
        match body {
            CutBody::Step(step) => {
                let mut flow = Flow::Nothing;
                for option in step.options() {
                    flow.push(self.expr(option));
                }
                let sealed = step.sealed();
                let walk = |names: &mut Self| {
                    if let Some(op) = &step.op {
                        names.pattern(op, &VarKind::Given);
                    }
                    names.expr(&step.body)
                };
                let body = match sealed {
                    Some(sealed) => self.sealed(sealed, walk),
                    None => self.always(|names| names.scoped(walk)),
                };
                // A body that never returns a value may still fail, and the options decide what its
                // error does.
                flow.push(if body.completes() { body } else { Flow::Either(vec![Flow::Nothing, body]) });
                flow
            }
            CutBody::Call { invocation: value, .. }
            | CutBody::Spawn(value)
            | CutBody::Sleep(End::In(value) | End::At(value))
            | CutBody::Pending(Pending::Until(value) | Pending::Handle(value) | Pending::Handles(value) | Pending::Items(value))
            | CutBody::Wait { awaited: value, .. }
            | CutBody::WaitAll { awaited: value } => self.expr(value),
            CutBody::Pending(Pending::Nothing | Pending::Attempts) => Flow::Nothing,
            CutBody::Pending(Pending::Closing(topics)) | CutBody::TryRecv(topics) | CutBody::Close(topics) => self.message(topics, None),
            CutBody::Recv { topics, until } => self.message(topics, until.as_ref()),
            CutBody::Select(arms) => {
                let mut flow = Flow::Nothing;
                for arm in arms {
                    flow.push(match &arm.what {
                        AwaitedEvent::Message { topics, until } => self.message(topics, until.as_ref()),
                        AwaitedEvent::Time(until) => self.expr(until),
                        AwaitedEvent::End(handle) => self.expr(handle),
                    });
                }
                flow
            }
            CutBody::Steps(steps) => match &**steps {
                Steps::Branches(branches) => {
                    let mut flow = Flow::Nothing;
                    for branch in branches {
                        flow.push(self.sealed(Sealed::Branch, |names| names.branch_step(&branch.step)));
                    }
                    flow
                }
                Steps::Each(each) => {
                    let (Items::Kept(items) | Items::Borrowed(items)) = &each.items;
                    let mut flow = self.expr(items);
                    flow.push(each.limit.as_ref().map_or(Flow::Nothing, |limit| self.expr(limit)));
                    flow.push(self.sealed(Sealed::Branch, |names| {
                        names.pattern(&each.pat, &VarKind::Value);
                        names.branch_step(&each.step)
                    }));
                    flow
                }
            },
        }
    }

    /// Walks a branch that is a step, with its options.
    fn branch_step(&mut self, step: &Step) -> Flow {
        let mut flow = Flow::Nothing;
        for option in step.options() {
            flow.push(self.expr(option));
        }
        if let Some(op) = &step.op {
            self.pattern(op, &VarKind::Given);
        }
        flow.push(self.expr(&step.body));
        flow
    }

    /// Walks what a `recv!` waits for.
    fn message(&mut self, topics: &Topics, until: Option<&Expr>) -> Flow {
        let mut flow = match topics {
            Topics::Kept(topics) => self.expr(topics),
            Topics::One(_) | Topics::Several(_) => Flow::Nothing,
        };
        flow.push(until.map_or(Flow::Nothing, |until| self.expr(until)));
        flow
    }

    fn scoped(&mut self, walk: impl FnOnce(&mut Self) -> Flow) -> Flow {
        self.scopes.push(Vec::new());
        let flow = walk(self);
        self.scopes.pop();
        flow
    }

    /// Walks a sealed future, which may not run, or run more than once: everything that it mentions
    /// is used, and nothing outside may be changed.
    fn sealed(&mut self, sealed: Sealed, walk: impl FnOnce(&mut Self) -> Flow) -> Flow {
        let outer = self.sealed.replace((sealed, VarId(self.table.vars.len())));
        let jumps = std::mem::take(&mut self.jumps);
        let flow = self.scoped(walk);
        self.jumps = jumps;
        self.sealed = outer;
        let flow = self.captures(&flow);
        let mut mentioned = std::collections::BTreeSet::new();
        flow.mentioned(&mut mentioned);
        for var in mentioned {
            if matches!(self.table.var(var).kind, VarKind::Reborrow(again) if self.table.reborrows[again.0].mutable) {
                let span = self.table.uses.iter().rev().find(|u| u.var == var).map(|u| u.span);
                let ident = &self.table.var(var).ident;
                self.report.at(span.unwrap_or_else(|| ident.span()), messages::exclusive_in_sealed(&ident.to_string(), sealed));
            }
        }
        flow
    }

    /// Reports the assignment or exclusive borrow of a place outside of a sealed body.
    pub(super) fn changed(&mut self, expr: &Expr) {
        let Some((sealed, first)) = self.sealed else { return };
        match expr {
            Expr::Paren(e) => return self.changed(&e.expr),
            Expr::Group(e) => return self.changed(&e.expr),
            Expr::Tuple(parts) => return parts.elems.iter().for_each(|part| self.changed(part)),
            Expr::Array(parts) => return parts.elems.iter().for_each(|part| self.changed(part)),
            // `Pair(a, b) = ..`, `Point { x, .. } = ..`
            Expr::Call(parts) => return parts.args.iter().for_each(|part| self.changed(part)),
            Expr::Struct(parts) => return parts.fields.iter().for_each(|part| self.changed(&part.expr)),
            _ => {}
        }
        let Some(root) = place::root(expr) else { return };
        let outer = self.lookup(&root.to_string()).filter(|id| *id < first);
        // A variable that is made again on a resume has no state to lose.
        if outer.is_some_and(|id| !matches!(self.table.var(id).kind, VarKind::Fresh(_))) {
            self.report.at(root.span(), messages::changed_in_sealed(&root.to_string(), sealed));
        }
    }
}
