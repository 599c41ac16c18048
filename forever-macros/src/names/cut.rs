//! What the bodies of cut points do to variables.
use syn::Expr;

use super::{Names, VarId, VarKind};
use crate::cut::{AwaitedEvent, CutBody, End, Items, Pending, Steps, Topics};
use crate::flow::Flow;
use crate::messages as say;
use crate::place;

impl Names<'_> {
    /// The body of a cut point.
    pub(super) fn cut(&mut self, body: &mut CutBody) -> Flow {
        match body {
            CutBody::Step(step) => {
                let mut flow = Flow::Nothing;
                for option in step.options_mut() {
                    flow.push(self.expr(option));
                }
                self.scopes.push(Vec::new());
                if let Some(op) = &mut step.op {
                    self.pattern(op, &VarKind::Given);
                }
                flow.push(self.expr(&mut step.body));
                self.scopes.pop();
                flow
            }
            CutBody::Call { invocation: value, .. }
            | CutBody::Spawn(value)
            | CutBody::Sleep(End::In(value) | End::At(value))
            | CutBody::Pending(Pending::Until(value) | Pending::Handle(value) | Pending::Handles(value) | Pending::Items(value))
            | CutBody::Wait { awaited: value, .. }
            | CutBody::WaitAll { awaited: value } => self.expr(value),
            CutBody::Pending(Pending::Nothing) => Flow::Nothing,
            CutBody::Recv { topics, until } => self.message(topics, until.as_mut()),
            CutBody::Select(arms) => {
                let mut flow = Flow::Nothing;
                for arm in arms {
                    flow.push(match &mut arm.what {
                        AwaitedEvent::Message { topics, until } => self.message(topics, until.as_mut()),
                        AwaitedEvent::Time(until) => self.expr(until),
                        AwaitedEvent::End(handle) => self.expr(handle),
                    });
                }
                flow
            }
            CutBody::Steps(steps) => match &mut **steps {
                Steps::Branches(branches) => {
                    let mut flow = Flow::Nothing;
                    for branch in branches {
                        flow.push(self.branch_of_steps(|names| names.expr(branch)));
                    }
                    flow
                }
                Steps::Each(each) => {
                    let (Items::Kept(items) | Items::Borrowed(items)) = &mut each.items;
                    let mut flow = self.expr(items);
                    flow.push(each.limit.as_mut().map_or(Flow::Nothing, |limit| self.expr(limit)));
                    flow.push(self.branch_of_steps(|names| {
                        names.pattern(&mut each.pat, &VarKind::Value);
                        names.expr(&mut each.body)
                    }));
                    flow
                }
            },
        }
    }

    /// What is waited for by a `recv!`.
    fn message(&mut self, topics: &mut Topics, until: Option<&mut Expr>) -> Flow {
        let mut flow = match topics {
            Topics::Kept(topics) => self.expr(topics),
            Topics::One(_) | Topics::Several(_) => Flow::Nothing,
        };
        flow.push(until.map_or(Flow::Nothing, |until| self.expr(until)));
        flow
    }

    /// A future of its own, that may or may not run: all it mentions is used.
    fn branch_of_steps(&mut self, walk: impl FnOnce(&mut Self) -> Flow) -> Flow {
        let outer = self.branch.replace(VarId(self.table.vars.len()));
        let jumps = std::mem::take(&mut self.jumps);
        self.scopes.push(Vec::new());
        let flow = walk(self);
        self.scopes.pop();
        self.jumps = jumps;
        self.branch = outer;
        let flow = self.captures(&flow);
        let mut mentioned = std::collections::BTreeSet::new();
        flow.mentioned(&mut mentioned);
        for var in mentioned {
            if matches!(self.table.var(var).kind, VarKind::Again(again) if self.table.agains[again.0].mutable) {
                let span = self.table.uses.iter().rev().find(|u| u.var == var).map(|u| u.span);
                let ident = &self.table.var(var).ident;
                self.report.at(span.unwrap_or_else(|| ident.span()), say::exclusive_in_a_branch(&ident.to_string()));
            }
        }
        flow
    }

    /// A place is assigned to or borrowed mutably.
    pub(super) fn changed(&mut self, expr: &Expr) {
        let Some(first) = self.branch else { return };
        if let Expr::Tuple(parts) = expr {
            return parts.elems.iter().for_each(|part| self.changed(part));
        }
        let Some(root) = place::root(expr) else { return };
        if self.lookup(&root.to_string()).is_some_and(|id| id < first) {
            self.report.at(root.span(), say::changed_in_a_branch(&root.to_string()));
        }
    }
}
