//! Data flow: what code does to variables, and which variables are needed at which point.
//!
//! [`Flow`] is a tree in evaluation order. [`solve`] walks it backwards: a variable is needed at a
//! point if some path from there uses it before it is assigned again. [`assigned`] walks it
//! forwards: a variable may have a value at a point if some path assigns it before. Loops are
//! walked to a fixpoint. Whether control reaches the end of code is also decided here
//! ([`Flow::completes`]), and nowhere else.
use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{CutId, JumpId, PointId, VarId};

#[derive(Debug, Clone, Default)]
pub(crate) enum Flow {
    #[default]
    Nothing,
    Use(VarId),
    /// The whole variable gets a new value.
    Assign(VarId),
    /// The variable is declared without a value.
    Unset(VarId),
    Seq(Vec<Flow>),
    /// One of them is executed.
    Either(Vec<Flow>),
    Loop(JumpId, Box<Flow>),
    /// A block that can be left by `break`.
    Labelled(JumpId, Box<Flow>),
    Break(JumpId),
    Continue(JumpId),
    Return,
    /// A snapshot is taken here. The variables are kept whether or not later code uses them.
    Cut(CutId, Vec<VarId>),
    /// A field of a variable is moved out or assigned: an index into `Table::parts`.
    Part(usize),
    Point(PointId),
}

impl Flow {
    pub(crate) fn push(&mut self, next: Flow) {
        match (&mut *self, next) {
            (_, Flow::Nothing) => {}
            (Flow::Nothing, next) => *self = next,
            (Flow::Seq(items), next) => items.push(next),
            (first, next) => *self = Flow::Seq(vec![std::mem::take(first), next]),
        }
    }

    /// Whether control can reach its end, as far as the source shows: a call of a function that
    /// returns `!` looks like any other.
    pub(crate) fn completes(&self) -> bool {
        match self {
            Flow::Break(_) | Flow::Continue(_) | Flow::Return => false,
            Flow::Seq(items) => items.iter().all(Flow::completes),
            Flow::Either(items) => items.iter().any(Flow::completes),
            Flow::Loop(id, body) => body.breaks(*id),
            Flow::Labelled(id, body) => body.completes() || body.breaks(*id),
            Flow::Nothing | Flow::Use(_) | Flow::Assign(_) | Flow::Unset(_) | Flow::Cut(..) | Flow::Part(_) | Flow::Point(_) => true,
        }
    }

    /// Whether it contains a `break` of the loop or block.
    fn breaks(&self, id: JumpId) -> bool {
        match self {
            Flow::Break(target) => *target == id,
            Flow::Seq(items) | Flow::Either(items) => items.iter().any(|f| f.breaks(id)),
            Flow::Loop(_, body) | Flow::Labelled(_, body) => body.breaks(id),
            _ => false,
        }
    }

    /// All variables that are used.
    pub(crate) fn used(&self, found: &mut BTreeSet<VarId>) {
        match self {
            Flow::Use(v) => {
                found.insert(*v);
            }
            Flow::Seq(items) | Flow::Either(items) => items.iter().for_each(|f| f.used(found)),
            Flow::Loop(_, body) | Flow::Labelled(_, body) => body.used(found),
            _ => {}
        }
    }

    /// All variables that are given a value.
    pub(crate) fn assigned(&self, found: &mut BTreeSet<VarId>) {
        match self {
            Flow::Assign(v) => {
                found.insert(*v);
            }
            Flow::Seq(items) | Flow::Either(items) => items.iter().for_each(|f| f.assigned(found)),
            Flow::Loop(_, body) | Flow::Labelled(_, body) => body.assigned(found),
            _ => {}
        }
    }

    /// All variables that are mentioned.
    pub(crate) fn mentioned(&self, found: &mut BTreeSet<VarId>) {
        match self {
            Flow::Use(v) | Flow::Assign(v) => {
                found.insert(*v);
            }
            Flow::Seq(items) | Flow::Either(items) => items.iter().for_each(|f| f.mentioned(found)),
            Flow::Loop(_, body) | Flow::Labelled(_, body) => body.mentioned(found),
            _ => {}
        }
    }
}

pub(crate) type Live = BTreeSet<VarId>;

/// Needed variables, by point.
#[derive(Debug, Default)]
pub(crate) struct Needed {
    pub(crate) at_point: BTreeMap<PointId, Live>,
    /// Right after the cut point's value is bound.
    pub(crate) at_cut: BTreeMap<CutId, Live>,
    /// At the start of a loop's next round.
    pub(crate) at_continue: BTreeMap<JumpId, Live>,
    /// After a loop or labelled block.
    pub(crate) at_break: BTreeMap<JumpId, Live>,
}

pub(crate) fn solve(flow: &Flow) -> Needed {
    let mut needed = Needed::default();
    needed.walk(flow, Live::new());
    needed
}

impl Needed {
    fn walk(&mut self, flow: &Flow, mut live: Live) -> Live {
        match flow {
            Flow::Nothing | Flow::Part(_) => live,
            Flow::Use(v) => {
                live.insert(*v);
                live
            }
            Flow::Assign(v) | Flow::Unset(v) => {
                live.remove(v);
                live
            }
            Flow::Seq(items) => items.iter().rev().fold(live, |live, f| self.walk(f, live)),
            Flow::Either(items) => {
                let mut all = Live::new();
                for item in items {
                    all.extend(self.walk(item, live.clone()));
                }
                all
            }
            Flow::Loop(id, body) => {
                self.at_break.insert(*id, live);
                let mut head = Live::new();
                loop {
                    self.at_continue.insert(*id, head.clone());
                    let next = self.walk(body, head.clone());
                    if next == head {
                        return head;
                    }
                    head.extend(next);
                }
            }
            Flow::Labelled(id, body) => {
                self.at_break.insert(*id, live.clone());
                self.walk(body, live)
            }
            Flow::Break(id) => self.at_break.get(id).cloned().unwrap_or_default(),
            Flow::Continue(id) => self.at_continue.get(id).cloned().unwrap_or_default(),
            Flow::Return => Live::new(),
            Flow::Cut(cut, forced) => {
                live.extend(forced);
                self.at_cut.insert(*cut, live.clone());
                live
            }
            Flow::Point(point) => {
                self.at_point.insert(*point, live.clone());
                live
            }
        }
    }
}

/// Variables that may have a value, by point.
#[derive(Debug, Default)]
pub(crate) struct Assigned {
    pub(crate) at_point: BTreeMap<PointId, Live>,
    /// Right after the cut point's value is bound.
    pub(crate) at_cut: BTreeMap<CutId, Live>,
    /// At the start of a loop's rounds.
    pub(crate) at_continue: BTreeMap<JumpId, Live>,
    /// After a loop or labelled block, collected from its `break`s.
    pub(crate) at_break: BTreeMap<JumpId, Live>,
    /// What `continue` and the end of a round bring back to the start.
    again: BTreeMap<JumpId, Live>,
}

pub(crate) fn assigned(flow: &Flow) -> Assigned {
    let mut assigned = Assigned::default();
    assigned.walk(flow, Some(Live::new()));
    assigned
}

impl Assigned {
    /// Walks forwards; `None` is unreachable code.
    fn walk(&mut self, flow: &Flow, now: Option<Live>) -> Option<Live> {
        let mut now = now?;
        match flow {
            Flow::Nothing | Flow::Use(_) | Flow::Part(_) => Some(now),
            Flow::Assign(v) => {
                now.insert(*v);
                Some(now)
            }
            Flow::Unset(v) => {
                now.remove(v);
                Some(now)
            }
            Flow::Seq(items) => items.iter().try_fold(now, |now, f| self.walk(f, Some(now))),
            Flow::Either(items) => {
                let ends = items.iter().filter_map(|item| self.walk(item, Some(now.clone())));
                ends.reduce(|all, end| &all | &end)
            }
            Flow::Loop(id, body) => loop {
                self.at_continue.entry(*id).or_default().extend(&now);
                let end = self.walk(body, Some(now.clone()));
                let mut next = now.clone();
                next.extend(end.into_iter().flatten());
                next.extend(self.again.get(id).into_iter().flatten());
                if next == now {
                    break self.at_break.get(id).cloned();
                }
                now = next;
            },
            Flow::Labelled(id, body) => {
                let end = self.walk(body, Some(now));
                match (end, self.at_break.get(id)) {
                    (Some(end), Some(broken)) => Some(&end | broken),
                    (end, broken) => end.or_else(|| broken.cloned()),
                }
            }
            Flow::Break(id) => {
                self.at_break.entry(*id).or_default().extend(now);
                None
            }
            Flow::Continue(id) => {
                self.again.entry(*id).or_default().extend(now);
                None
            }
            Flow::Return => None,
            Flow::Cut(cut, _) => {
                self.at_cut.entry(*cut).or_default().extend(&now);
                Some(now)
            }
            Flow::Point(point) => {
                self.at_point.entry(*point).or_default().extend(&now);
                Some(now)
            }
        }
    }
}

/// The cut points that may come next after each, and those that may come first; `None` is the end
/// of the function.
pub(crate) fn successors(flow: &Flow) -> (BTreeMap<CutId, BTreeSet<Option<CutId>>>, BTreeSet<Option<CutId>>) {
    let mut next = Next::default();
    let first = next.walk(flow, BTreeSet::from([None]));
    (next.after, first)
}

#[derive(Default)]
struct Next {
    after: BTreeMap<CutId, BTreeSet<Option<CutId>>>,
    at_continue: BTreeMap<JumpId, BTreeSet<Option<CutId>>>,
    at_break: BTreeMap<JumpId, BTreeSet<Option<CutId>>>,
}

impl Next {
    fn walk(&mut self, flow: &Flow, next: BTreeSet<Option<CutId>>) -> BTreeSet<Option<CutId>> {
        match flow {
            Flow::Nothing | Flow::Use(_) | Flow::Assign(_) | Flow::Unset(_) | Flow::Part(_) | Flow::Point(_) => next,
            Flow::Seq(items) => items.iter().rev().fold(next, |next, f| self.walk(f, next)),
            Flow::Either(items) => items.iter().flat_map(|f| self.walk(f, next.clone())).collect(),
            Flow::Loop(id, body) => {
                self.at_break.insert(*id, next);
                let mut head = BTreeSet::new();
                loop {
                    self.at_continue.insert(*id, head.clone());
                    let start = self.walk(body, head.clone());
                    if start == head {
                        return head;
                    }
                    head.extend(start);
                }
            }
            Flow::Labelled(id, body) => {
                self.at_break.insert(*id, next.clone());
                self.walk(body, next)
            }
            Flow::Break(id) => self.at_break.get(id).cloned().unwrap_or_default(),
            Flow::Continue(id) => self.at_continue.get(id).cloned().unwrap_or_default(),
            Flow::Return => BTreeSet::from([None]),
            Flow::Cut(cut, _) => {
                self.after.insert(*cut, next);
                BTreeSet::from([Some(*cut)])
            }
        }
    }
}
