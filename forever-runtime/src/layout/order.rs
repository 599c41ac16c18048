//! Whether steps have moved across the place of a fiber.
//!
//! A step that the fiber has passed would run again if it may come after the place in the new code,
//! and one that the fiber has not passed would never run if it only comes before. Both layouts have
//! the order of cut points; a loop around a step and the place makes the step come in later rounds
//! too. Steps are matched by name, then by body. Of several that share a derived name, those that
//! have not moved are matched first, so a step that was added is not taken for one that moved.
use std::collections::BTreeSet;

use crate::frame::machine::CutKind;
use crate::layout::drift::old_name;
use crate::layout::problem::Problem;
use crate::layout::spec::{Branch, Layout, Step, base};

/// A step, or a branch of a `steps!`, as seen from the place of a fiber.
#[derive(Debug)]
struct Seen<'a> {
    name: &'a str,
    /// The name in the old code, before `#`.
    group: &'a str,
    body: &'a str,
    kind: CutKind,
    from: Position,
}

/// Position relative to the place of a fiber.
#[derive(Debug, Clone, Copy)]
struct Position {
    side: Side,
    /// Number of loops around both; 0 if the step cannot come both before and after the place.
    loops: usize,
}

/// Side of the place, in one round of the loops around both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Before,
    After,
    /// On another path.
    Neither,
}

/// Change of a step that has moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moved {
    /// The fiber may have passed it and would come to it again.
    Back,
    /// The fiber may not have passed it and would not come to it.
    Ahead,
}

impl Layout {
    /// The steps that have moved across the place of a fiber, which is `was` in the code of `old`
    /// and `step` in this code.
    pub(super) fn moved(&self, step: &Step, old: &Layout, was: &Step) -> Vec<Problem> {
        // A loop that was removed around the place was removed around its other steps too.
        let unwrapped = self.loops_around(step) < old.loops_around(was);
        let moved = |then: &Seen<'_>, now: &Seen<'_>| then.from.moved(now.from, unwrapped);
        let mut found = Vec::new();
        let (mut then, mut now) = (old.seen_from(was, None), self.seen_from(step, Some(old)));
        let same: [fn(&Seen<'_>, &Seen<'_>) -> bool; 3] = [
            |then, now| then.body == now.body && then.is_named(now),
            |then, now| then.is_named(now),
            |then, now| !then.body.is_empty() && then.body == now.body,
        ];
        for (is_same, may_move) in same.into_iter().flat_map(|is_same| [(is_same, false), (is_same, true)]) {
            then.retain(|then| {
                let fits = |now: &Seen<'_>| then.works_as(now) && is_same(then, now) && (may_move || moved(then, now).is_none());
                let Some(now) = now.iter().position(fits).map(|at| now.remove(at)) else { return true };
                let (step, place) = (now.name.to_owned(), step.name.clone());
                match moved(then, &now) {
                    Some(Moved::Back) => found.push(Problem::StepMovedBehind { step, place }),
                    Some(Moved::Ahead) => found.push(Problem::StepMovedBefore { step, place }),
                    None => {}
                }
                false
            });
        }
        found
    }

    /// All steps and branches but the place itself, with their names in `old`.
    fn seen_from<'a>(&'a self, place: &Step, old: Option<&'a Layout>) -> Vec<Seen<'a>> {
        let at = self.steps.iter().position(|step| step.name == place.name).unwrap_or_default();
        let (ahead, behind) = (self.reached(at, false, false), self.reached(at, true, false));
        let (later, earlier) = (self.reached(at, false, true), self.reached(at, true, true));
        let mut seen = Vec::new();
        for (number, step) in self.steps.iter().enumerate() {
            let side = match number {
                // The branches of a `steps!` that was passed.
                number if number == at || behind.contains(&number) => Side::Before,
                number if ahead.contains(&number) => Side::After,
                _ => Side::Neither,
            };
            let is_loop = |name: &str| place.loops().any(|kept| kept.name == name);
            let comes_again = later.contains(&number) && earlier.contains(&number);
            let loops = if comes_again { 1 + step.loops().filter(|kept| is_loop(&kept.name)).count() } else { 0 };
            let from = Position { side, loops };
            if number != at && step.kind != CutKind::Pending {
                let was = old_name(step, old);
                let group = if was == step.name { step.base() } else { old.and_then(|old| old.step(was)).map_or(was, Step::base) };
                seen.push(Seen { name: &step.name, group, body: &step.body, kind: step.kind, from });
            }
            let branches = step.branches.iter().filter(|_| step.kind == CutKind::Steps);
            seen.extend(branches.map(|branch| Seen {
                name: &branch.name,
                group: branch.group(old),
                body: &branch.body,
                kind: CutKind::Step,
                from,
            }));
        }
        seen
    }

    /// The steps that may come after a step, or before it: in the same round of each loop, or also
    /// in others. Cut points are in source order, so only the end of a round leads back.
    fn reached(&self, at: usize, before: bool, in_other_rounds: bool) -> BTreeSet<usize> {
        let number = |name: &str| self.steps.iter().position(|step| step.name == name);
        let edges = self
            .steps
            .iter()
            .enumerate()
            .flat_map(|(from, step)| step.next.iter().flatten().filter_map(move |to| Some((from, number(to)?))));
        let edges: Vec<(usize, usize)> = edges.filter(|(from, to)| in_other_rounds || from < to).collect();
        let (mut reached, mut open) = (BTreeSet::new(), vec![at]);
        while let Some(step) = open.pop() {
            for (from, to) in &edges {
                let (from, to) = if before { (to, from) } else { (from, to) };
                if *from == step && reached.insert(*to) {
                    open.push(*to);
                }
            }
        }
        reached
    }

    /// Number of loops around a step.
    fn loops_around(&self, step: &Step) -> usize {
        let at = self.steps.iter().position(|other| other.name == step.name);
        let is_in_one = at.is_some_and(|at| self.reached(at, false, true).contains(&at));
        usize::from(is_in_one) + step.loops().count()
    }
}

impl Seen<'_> {
    /// Whether the names are the same. The derived name of a `sleep!` says nothing.
    fn is_named(&self, now: &Seen<'_>) -> bool {
        self.group == now.group && (self.kind != CutKind::Sleep || self.body == now.body)
    }

    /// Whether one may have become the other: a step may be made a branch or a call.
    fn works_as(&self, now: &Seen<'_>) -> bool {
        let works = |kind| matches!(kind, CutKind::Step | CutKind::Steps | CutKind::Call);
        self.kind == now.kind || works(self.kind) && works(now.kind)
    }
}

impl Position {
    fn moved(self, now: Position, unwrapped: bool) -> Option<Moved> {
        let out_of_loop = now.loops < self.loops && !unwrapped;
        match (self.side, now.side) {
            (Side::Before, Side::After) => Some(Moved::Back),
            (Side::After, Side::Before) => Some(Moved::Ahead),
            (Side::Before, _) if now.loops > self.loops => Some(Moved::Back),
            (_, Side::After) if out_of_loop => Some(Moved::Back),
            (_, Side::Before) if out_of_loop => Some(Moved::Ahead),
            _ => None,
        }
    }
}

impl Branch {
    /// The name in the old code, before `#`.
    fn group<'a>(&'a self, old: Option<&Layout>) -> &'a str {
        let knew = |name: &str| {
            old.is_some_and(|old| old.steps.iter().any(|step| step.name == name || step.branches.iter().any(|b| b.name == name)))
        };
        match &self.was {
            Some(was) if old.is_some() && !knew(&self.name) => base(was),
            _ if self.explicit => &self.name,
            _ => base(&self.name),
        }
    }
}
