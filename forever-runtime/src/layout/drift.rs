//! Decides whether code of one layout can resume snapshots of another, and lists every reason if
//! not.
//!
//! A snapshot names its step and its locals. A name that is written in the source
//! (`step!("search", ..)`) means the same step as long as it exists. A derived name keeps its
//! meaning only while the same number of steps share it: a second `search` may come before or after
//! the first. The same holds for locals. Where a name could mean two things, the fiber is parked;
//! it is never resumed at a place that may be wrong.
//!
//! A derived name that occurs once may still have moved to another step: one was removed, and
//! another of the same name was written elsewhere. So the body of a step with a derived name has a
//! fingerprint. While the fingerprint is unchanged, it is the same step, wherever it is. If it has
//! changed, it is the same step if it still comes right before or right after the same steps;
//! otherwise it is ambiguous.
//!
//! Where the place is known, the steps around it are compared too: one that has moved across it
//! would run twice or never (`order`).
use std::collections::BTreeSet;
use std::fmt;

use crate::frame::branch_names::parts_of_branch;
use crate::frame::iter::is_over;
use crate::frame::machine::{CutKind, LocalRole, PENDING};
use crate::frame::snapshot::Snapshot;
use crate::layout::problem::Problem;
use crate::layout::spec::{Branch, Kept, Layout, Step, base};

/// Reasons why code cannot resume snapshots of another layout, with both layouts.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::fiber::Fiber;
/// use forever::layout::{self, Layout};
///
/// /// Fails if the fibers that `deployed` has left behind would be parked.
/// fn resumes<F: Fiber>(deployed: &Layout) -> Result<(), String> {
///     layout::of::<F>().can_resume(deployed).map_err(|drift| {
///         let places = drift.problems().len();
///         format!("{places} places do not fit: {drift}")
///     })
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift(Box<Parts>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Parts {
    problems: Vec<Problem>,
    now: Layout,
    before: Option<Layout>,
}

impl Drift {
    /// The reasons: at least one, without duplicates.
    pub fn problems(&self) -> &[Problem] {
        &self.0.problems
    }

    /// The layout of the code.
    pub fn now(&self) -> &Layout {
        &self.0.now
    }

    /// The layout of the code that wrote the snapshot, if it is known.
    pub fn before(&self) -> Option<&Layout> {
        self.0.before.as_ref()
    }
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` cannot resume: ", self.now().fiber)?;
        for (place, problem) in self.problems().iter().enumerate() {
            write!(f, "{}{problem}", if place == 0 { "" } else { "; " })?;
        }
        match self.before() {
            Some(before) => write!(f, " (layout {} before, {} now)", before.hash(), self.now().hash()),
            None => write!(f, " (layout {} now)", self.now().hash()),
        }
    }
}

impl std::error::Error for Drift {}

impl Layout {
    /// Whether this code resumes every fiber that code with the layout `old` can have left.
    ///
    /// `migrate` functions are not considered. Whether the values of the locals can still be read
    /// as their types is found only when a snapshot is restored.
    ///
    /// # Errors
    /// All reasons why it cannot.
    pub fn can_resume(&self, old: &Layout) -> Result<(), Drift> {
        let mut found = Found::default();
        self.compare(old, &mut found);
        for argument in &self.arguments {
            if !old.arguments.contains(argument) {
                found.add(Problem::ArgumentAdded { argument: argument.clone() });
            }
        }
        for was in &old.steps {
            let known = self.identify(Some(old), &was.name, &mut found);
            let Some(step) = known.or_else(|| self.likely(old, &was.name)) else { continue };
            let so_far = found.0.len();
            self.compare_waits(step, old, was, None, &mut found);
            if step.kind == CutKind::Select {
                step.compare_arms(was, |_| true, &mut found);
            }
            step.compare_order(was, &mut found);
            for kept in step.loops_gone(was) {
                found.add(Problem::LoopGone { items: kept.name.clone(), step: step.name.clone() });
            }
            let has = |name: &str, role| was.kept(name).is_some_and(|kept| kept.role == role);
            // Names that the macro makes follow that of the step.
            for local in step.keeps.iter().filter(|local| known.is_some() || local.is_let()) {
                if found.unclear(step, local, was, has) {
                    continue;
                }
                let kept = step.source_of(local, has).and_then(|name| was.kept(name));
                match kept {
                    None => found.absent(step, local, Some((old, was)), false, has),
                    Some(kept) if kept.of != self.bearers(old, &kept.name) => {
                        found.renumbered(&kept.name, self.bearers(old, &kept.name), kept.of);
                    }
                    Some(kept) if kept.result && !local.result && step.kind == CutKind::Call => {
                        found.missing(step, local, None, true);
                    }
                    Some(_) => {}
                }
            }
            if known.is_some() && found.0.len() == so_far {
                self.compare_wrapped(step, old, was, |_| true, &mut found);
                self.moved(step, old, was).into_iter().for_each(|problem| found.add(problem));
            }
        }
        self.verdict(found, Some(old))
    }

    /// Whether this code resumes one snapshot.
    ///
    /// `old` is the layout of the code that wrote it, if it is known.
    ///
    /// A snapshot made by a `migrate` function uses the names of this code: it has no old layout.
    /// For a call under way only the caller's part is checked; the callee checks its own.
    ///
    /// # Errors
    /// All reasons why it cannot.
    pub fn check(&self, old: Option<&Layout>, snapshot: &Snapshot) -> Result<(), Drift> {
        self.check_with(old, snapshot, &[])
    }

    /// As [`Layout::check`], for a snapshot with stored branch results, given by their names.
    pub(crate) fn check_with(&self, old: Option<&Layout>, snapshot: &Snapshot, branches: &[&str]) -> Result<(), Drift> {
        let mut found = Found::default();
        if let Some(old) = old {
            self.compare(old, &mut found);
        }
        let known = self.identify(old, &snapshot.at, &mut found);
        if let Some(step) = known.or_else(|| self.likely(old?, &snapshot.at)) {
            let under_way = snapshot.call.is_some();
            if under_way && step.kind != CutKind::Call {
                found.kind(&step.name, step.kind, CutKind::Call);
            }
            let was = old.and_then(|old| old.step(&snapshot.at));
            let so_far = found.0.len();
            if let (Some(old), Some(was)) = (old, was) {
                self.compare_waits(step, old, was, Some(branches), &mut found);
                if step.kind == CutKind::Select {
                    let is_chosen =
                        |arm: &str| snapshot.locals.iter().any(|(name, text)| name.contains(" chosen") && is_choice_of(text.get(), arm));
                    step.compare_arms(was, is_chosen, &mut found);
                }
                step.compare_order(was, &mut found);
                for kept in step.loops_gone(was) {
                    let text = snapshot.locals.get(&kept.name);
                    if text.is_some_and(|text| kept.role == LocalRole::Position || !is_over(text.get())) {
                        found.add(Problem::LoopGone { items: kept.name.clone(), step: step.name.clone() });
                    }
                }
            }
            let kept = |name: &str| was.and_then(|was| was.kept(name));
            let has = |name: &str, role| {
                let is_another = kept(name).is_some_and(|kept| kept.role != role);
                snapshot.locals.contains_key(name) && !is_another
            };
            // Names that the macro makes follow that of the step.
            let kept_here = step.keeps.iter().filter(|local| known.is_some() || local.is_let());
            for local in kept_here.filter(|local| !(under_way && local.result)) {
                if was.is_some_and(|was| found.unclear(step, local, was, has)) {
                    continue;
                }
                let Some(stored) = step.source_of(local, has) else {
                    let only_after = under_way && kept(&local.name).is_some();
                    found.absent(step, local, old.zip(was), only_after, has);
                    continue;
                };
                if let (Some(old), Some(kept)) = (old, kept(stored))
                    && kept.of != self.bearers(old, stored)
                {
                    found.renumbered(stored, self.bearers(old, stored), kept.of);
                }
            }
            if let (Some(old), Some(was), true) = (old, was, known.is_some() && found.0.len() == so_far) {
                // An `Option` that is there is written as its value alone.
                let is_null = |name: &str| snapshot.locals.get(name).is_some_and(|text| text.get() == "null");
                self.compare_wrapped(step, old, was, is_null, &mut found);
                self.moved(step, old, was).into_iter().for_each(|problem| found.add(problem));
            }
        }
        self.verdict(found, old)
    }

    /// Whether a branch result, stored by code of another layout in the middle of a `steps!`,
    /// belongs to a branch of this code.
    pub(crate) fn check_branch(&self, old: &Layout, branch: &str) -> Result<(), Drift> {
        let mut found = Found::default();
        self.compare(old, &mut found);
        if let Some((was, branch)) = old.branch_of(branch)
            && let Some(now) = self.identify(Some(old), &was.name, &mut found)
        {
            if now.branches.is_empty() != was.branches.is_empty() {
                found.add(Problem::BranchesChanged { step: now.name.clone() });
            } else if now.wraps != was.wraps {
                found.add(Problem::BranchWrapped { step: now.name.clone(), branch: was.name.clone() });
            } else if let Some(branch) = was.branches.iter().find(|there| there.name == branch) {
                now.compare_branch(was, branch, &mut found);
            }
        }
        self.verdict(found, Some(old))
    }

    /// Whether a waiting fiber would wait on other topics under this code.
    pub(crate) fn waits_otherwise(&self, old: &Layout, snapshot: &Snapshot) -> bool {
        let mut found = Found::default();
        let now = self.identify(Some(old), &snapshot.at, &mut found).and_then(|step| self.wait_of(step));
        let before = old.step(&snapshot.at).and_then(|step| old.wait_of(step));
        now.zip(before).is_some_and(|(now, before)| now.topics != before.topics)
    }

    fn verdict(&self, found: Found, old: Option<&Layout>) -> Result<(), Drift> {
        if found.0.is_empty() {
            return Ok(());
        }
        Err(Drift(Box::new(Parts { problems: found.0, now: self.clone(), before: old.cloned() })))
    }

    /// Fails if a step of the old code cannot be identified in this one. A removed step can be.
    ///
    /// A step whose operation `is_effect` must still be an effect.
    pub(crate) fn tells(&self, old: &Layout, step: &str, is_effect: bool) -> Result<(), Problem> {
        let mut found = Found::default();
        let branch_of = old.branch_of(step);
        let now = self.identify(Some(old), branch_of.map_or(step, |(steps, _)| &steps.name), &mut found);
        if let (Some(now), Some((before, branch))) = (now, branch_of)
            && let Some(branch) = before.branches.iter().find(|there| there.name == branch)
        {
            now.compare_branch(before, branch, &mut found);
        }
        // A branch says so itself, where it is not restored.
        if is_effect && branch_of.is_none() && now.is_some_and(|now| !now.effect) {
            found.add(Problem::EffectGone { step: step.to_owned() });
        }
        let is_unclear =
            |problem: &Problem| !matches!(problem, Problem::StepGone { .. } | Problem::KindChanged { .. } | Problem::BranchGone { .. });
        found.0.into_iter().find(is_unclear).map_or(Ok(()), Err)
    }

    /// The `steps!` of a stored branch, and the branch's own name.
    fn branch_of<'a>(&self, stored: &'a str) -> Option<(&Step, &'a str)> {
        parts_of_branch(stored).find_map(|(steps, branch)| Some((self.step(steps)?, branch)))
    }

    /// Checks of the function as a whole.
    fn compare(&self, old: &Layout, found: &mut Found) {
        if self.fiber != old.fiber {
            found.add(Problem::FiberRenamed { now: self.fiber.clone(), before: old.fiber.clone() });
        }
        if self.version != old.version {
            found.add(Problem::VersionChanged { now: self.version, before: old.version });
        }
    }

    /// The step to which a snapshot taken at `at` by the code of `old` belongs.
    fn identify(&self, old: Option<&Layout>, at: &str, found: &mut Found) -> Option<&Step> {
        let mut claims: Vec<&Step> = self.steps.iter().filter(|step| step.name == at || renamed_from(step, old) == Some(at)).collect();
        if let Some(unclear) = claims.iter().find(|step| is_unclear(step, old)) {
            let was = unclear.was.clone().unwrap_or_default();
            found.add(Problem::StepUnclear { step: unclear.name.clone(), was });
            return None;
        }
        if old.is_none() {
            // Without an old layout the names are those of this code, and `was` is for other names.
            claims.sort_by_key(|step| step.name != at);
            claims.truncate(1);
        }
        let step = match claims[..] {
            [] if self.lacks_retry(old, at) => {
                found.add(Problem::RetryGone { step: at.replacen(PENDING, "", 1) });
                return None;
            }
            [] => {
                let perhaps = old.and_then(|old| self.likely(old, at)).map(|step| step.name.clone());
                found.add(Problem::StepGone { step: at.to_owned(), perhaps });
                return None;
            }
            [step] => step,
            _ => {
                let by = claims.iter().map(|step| step.name.clone()).collect();
                found.add(Problem::StepClaimedTwice { step: at.to_owned(), by });
                return None;
            }
        };
        let was = old.and_then(|old| old.step(at));
        if let (Some(old), Some(was)) = (old, was) {
            if let Some(problem) = self.ambiguity(step, old, was) {
                found.add(problem);
                return None;
            }
            if step.kind != was.kind {
                found.kind(at, step.kind, was.kind);
                return None;
            }
        }
        Some(step)
    }

    /// The step that an old one was most likely renamed to, where no step claims its name: the only
    /// new one with its body, or that stands where it did. For texts and further checks alone.
    fn likely(&self, old: &Layout, at: &str) -> Option<&Step> {
        let was = old.step(at)?;
        if self.steps.iter().any(|step| step.name == at || renamed_from(step, Some(old)) == Some(at)) {
            return None;
        }
        let is_new = |step: &&Step| step.kind == was.kind && step.was.is_none() && old.step(&step.name).is_none();
        let is_it = |step: &&Step| !was.body.is_empty() && step.body == was.body || self.stands_where(step, old, was);
        let mut all = self.steps.iter().filter(|step| is_new(step) && is_it(step));
        all.next().filter(|_| all.next().is_none())
    }

    /// Whether the name of the old step `was` could mean another step than `step`, which claims it.
    fn ambiguity(&self, step: &Step, old: &Layout, was: &Step) -> Option<Problem> {
        let renamed = step.name != was.name;
        if was.explicit && (step.explicit || renamed) {
            return None;
        }
        let name = was.base();
        let bearers = self.steps.iter().find(|step| step.base() == name).map_or(0, |step| step.of);
        let leavers =
            self.steps.iter().filter(|step| step.base() != name && renamed_from(step, Some(old)).is_some_and(|was| base(was) == name));
        let now = bearers.saturating_add(u32::try_from(leavers.count()).unwrap_or(u32::MAX));
        // Among steps of one name a literal takes the plain name, and the others move up by one.
        let literal = |layout: &Layout| layout.steps.iter().any(|step| step.explicit && step.name == name);
        let same_literal = renamed || now == 1 || literal(self) == literal(old);
        let exchanged = self.exchanged(old, name);
        if now != was.of || !same_literal || exchanged {
            return Some(Problem::StepAmbiguous { step: name.to_owned(), now, before: was.of });
        }
        let rewritten = |old: &Step, new: &Step| !old.body.is_empty() && !new.body.is_empty() && old.place_body() != new.place_body();
        if step.explicit || renamed || !rewritten(was, step) {
            return None;
        }
        // Of several rewritten steps of one name, each may have become another; a single one is
        // identified by the others.
        let shared = old.steps.iter().filter(|other| !other.explicit && other.base() == name);
        let touched = shared.filter(|other| self.step(&other.name).is_some_and(|new| !new.explicit && rewritten(other, new)));
        let same = if was.of > 1 { touched.count() == 1 } else { self.stands_where(step, old, was) };
        (!same).then(|| Problem::StepRewritten { step: step.name.clone() })
    }

    /// Whether a step comes right after the same steps as an old one did, or right before the same.
    fn stands_where(&self, step: &Step, old: &Layout, was: &Step) -> bool {
        self.before(&step.name, Some(old)) == old.before(&was.name, None) || self.behind(step, Some(old)) == old.behind(was, None)
    }

    /// The steps that come right before a step, by their names in `old`; `None` is the beginning.
    fn before(&self, name: &str, old: Option<&Layout>) -> BTreeSet<Option<&str>> {
        let leads = |next: &[Option<String>]| next.iter().flatten().any(|next| self.past_pause(next) == name);
        let steps = self.steps.iter().filter(|step| leads(&step.next) && self.past_pause(&step.name) == step.name);
        let steps = steps.map(|step| Some(old_name(step, old)));
        steps.chain(leads(&self.first).then_some(None)).collect()
    }

    /// The steps that come right after a step, by their names in `old`; `None` is the end.
    fn behind<'a>(&'a self, step: &'a Step, old: Option<&Layout>) -> BTreeSet<Option<&'a str>> {
        let name = |next: &'a Option<String>| {
            next.as_deref().map(|next| self.past_pause(next)).map(|next| self.step(next).map_or(next, |step| old_name(step, old)))
        };
        step.next.iter().map(name).collect()
    }

    /// Whether a fiber at `at` waits for the next attempt of a step that has no `retry` now.
    fn lacks_retry(&self, old: Option<&Layout>, at: &str) -> bool {
        let step = old.map(|old| old.past_pause(at)).filter(|step| *step != at);
        step.is_some_and(|step| self.step(step).is_some_and(|now| now.kind == CutKind::Step))
    }

    /// Checks that the values of steps, kept at `was` and needed at `step`, are wrapped as before.
    fn compare_wrapped(&self, step: &Step, old: &Layout, was: &Step, is_null: impl Fn(&str) -> bool, found: &mut Found) {
        for before in &old.steps {
            let Some(now) = self.steps.iter().find(|now| old_name(now, Some(old)) == before.name) else { continue };
            let others = || before.branches.iter().filter_map(|branch| Some((&now.branch_of(before, branch)?.wraps, &branch.wraps)));
            let mut changes = std::iter::once((&now.wraps, &before.wraps)).chain(others()).filter(|(now, before)| now != before);
            let Some((now_is, before_was)) = changes.next() else { continue };
            let by_limit = [now_is, before_was].into_iter().any(|wraps| wraps == "Option");
            let is_needed = |local: &&Kept| step.keeps.iter().any(|kept| kept.name == local.name || kept.was.as_ref() == Some(&local.name));
            let is_kept = |local: &&Kept| was.kept(&local.name).is_some() && (!by_limit || is_null(&local.name));
            for local in before.keeps.iter().filter(|kept| kept.result && kept.is_let()).filter(is_kept).filter(is_needed) {
                let (now_is, before_was) = (now_is.clone(), before_was.clone());
                found.add(Problem::ValueWrapped { local: local.name.clone(), step: now.name.clone(), now: now_is, before: before_was });
            }
        }
    }

    /// The step that stands behind its cut point for pauses between its attempts; any other name as
    /// it is. Only a step with `retry` has such a cut point, so an edit may add it.
    fn past_pause<'a>(&'a self, name: &'a str) -> &'a str {
        let step = self.step(name).and_then(|pause| self.wait_of(pause)).filter(|step| step.kind == CutKind::Step);
        step.map_or(name, |step| &step.name)
    }

    /// The wait, or the step with attempts, that follows a step which stores its locals.
    fn wait_of(&self, pending: &Step) -> Option<&Step> {
        (pending.kind == CutKind::Pending).then(|| self.step(&pending.name.replacen(PENDING, "", 1))).flatten()
    }

    /// Compares the wait of a fiber that is at `was`. `stored` has the names of its stored branch
    /// results, or is `None` for all that are possible.
    fn compare_waits(&self, step: &Step, old: &Layout, was: &Step, stored: Option<&[&str]>, found: &mut Found) {
        let (Some(now), Some(before)) = (self.wait_of(step), old.wait_of(was)) else { return };
        if now.kind != before.kind {
            return found.kind(&before.name, now.kind, before.kind);
        }
        if before.topics.iter().any(|topic| !now.topics.contains(topic)) {
            found.add(Problem::TopicsChanged { step: now.name.clone(), now: now.topics.clone(), before: before.topics.clone() });
        }
        if now.kind == CutKind::Select {
            return now.compare_arms(before, |_| true, found);
        }
        if now.branches.is_empty() != before.branches.is_empty() && stored.is_none_or(|stored| !stored.is_empty()) {
            return found.add(Problem::BranchesChanged { step: now.name.clone() });
        }
        if now.kind == CutKind::Steps && now.wraps != before.wraps && stored.is_none_or(|stored| !stored.is_empty()) {
            found.add(Problem::BranchWrapped { step: now.name.clone(), branch: before.name.clone() });
        }
        let is_stored = |branch: &Branch| {
            stored.is_none_or(|stored| stored.iter().flat_map(|name| parts_of_branch(name)).any(|(_, name)| name == branch.name))
        };
        for branch in before.branches.iter().filter(|branch| is_stored(branch)) {
            now.compare_branch(before, branch, found);
        }
    }
}

/// Whether a kept value may be the choice of one of the arms that share a name: `{"sleep 2":null}`.
fn is_choice_of(text: &str, arm: &str) -> bool {
    text.strip_prefix("{\"").and_then(|text| text.strip_prefix(arm)).is_some_and(|text| text.starts_with(['"', ' ']))
}

/// The name of a step in the old code.
pub(super) fn old_name<'a>(step: &'a Step, old: Option<&Layout>) -> &'a str {
    if old.is_none() { &step.name } else { renamed_from(step, old).unwrap_or(&step.name) }
}

impl Step {
    /// Fingerprint of the body where its place is checked too: for a call, the called function is
    /// enough.
    fn place_body(&self) -> &str {
        self.body.split('-').next().unwrap_or_default()
    }

    /// Loops of the old step that are no longer around this one. A loop over something else counts
    /// as a new one.
    fn loops_gone<'a>(&self, was: &'a Step) -> impl Iterator<Item = &'a Kept> {
        let goes_over_others = self.loops().any(|now| !was.loops().any(|then| now.is_loop_of(then)));
        let is_gone = |then: &&Kept| !goes_over_others && !self.loops().any(|now| now.is_loop_of(then));
        let gone: Vec<_> = was.loops().filter(is_gone).collect();
        gone.into_iter()
    }

    /// The loops around the step, outermost first, as kept locals.
    pub(super) fn loops(&self) -> impl Iterator<Item = &Kept> {
        self.keeps.iter().filter(|kept| kept.role != LocalRole::Value)
    }

    /// Checks that the loops around the step are nested as before. In another order each loop still
    /// has its position, but together the positions mean other rounds.
    fn compare_order(&self, was: &Step, found: &mut Found) {
        let place = |now: &Kept| was.loops().position(|then| now.is_loop_of(then));
        let mut furthest = None;
        for now in self.loops() {
            let there = place(now);
            if there.is_some() && there < furthest {
                return found.add(Problem::LoopsExchanged { items: now.name.clone(), step: self.name.clone() });
            }
            furthest = furthest.max(there);
        }
    }

    /// The branch that one of the old code is now.
    fn branch_of(&self, before: &Step, branch: &Branch) -> Option<&Branch> {
        let knew = |name: &str| before.branches.iter().any(|there| there.name == name);
        let claims = |now: &&Branch| now.name == branch.name || now.was.as_deref() == Some(&branch.name) && !knew(&now.name);
        self.branches.iter().find(claims)
    }

    /// Checks that the result of a branch of the old code belongs to a branch of this one.
    fn compare_branch(&self, before: &Step, branch: &Branch, found: &mut Found) {
        let Some(now) = self.branch_of(before, branch) else {
            return found.add(Problem::BranchGone { step: self.name.clone(), branch: branch.name.clone() });
        };
        if now.wraps != branch.wraps {
            found.add(Problem::BranchWrapped { step: self.name.clone(), branch: branch.name.clone() });
        }
        if branch.explicit || now.explicit || now.name != branch.name {
            return;
        }
        let name = base(&branch.name);
        if self.branch_moved(before, name) {
            found.add(Problem::BranchAmbiguous { step: self.name.clone(), branch: name.to_owned() });
        }
    }

    /// Checks that the arms of a `select!` that share a name are those of the old code. What each
    /// waits for is stored by that name and its number.
    fn compare_arms(&self, before: &Step, counts: impl Fn(&str) -> bool, found: &mut Found) {
        for arm in before.branches.iter().filter(|arm| counts(base(&arm.name))) {
            let name = base(&arm.name);
            let is_there = self.branches.iter().any(|now| base(&now.name) == name);
            if is_there && self.branch_moved(before, name) {
                found.add(Problem::ArmAmbiguous { step: self.name.clone(), arm: name.to_owned() });
            }
        }
    }

    /// Whether a number among the branches of a derived name may mean another branch than before.
    fn branch_moved(&self, before: &Step, name: &str) -> bool {
        let group =
            |step: &Step| step.branches.iter().filter(|there| !there.explicit && base(&there.name) == name).cloned().collect::<Vec<_>>();
        let (now, then) = (group(self), group(before));
        let place = |group: &[Branch], body: &str| group.iter().position(|there| there.body == body);
        let moved = then.iter().any(|there| place(&now, &there.body).is_some_and(|at| Some(at) != place(&then, &there.body)));
        let touched = then.iter().zip(&now).filter(|(then, now)| then.body != now.body).count();
        now.len() != then.len() || moved || touched > 1
    }
}

impl Layout {
    /// Number of locals, now and in `old`, that share the name of a local that existed before.
    fn bearers(&self, old: &Layout, name: &str) -> u32 {
        let name = base(name);
        let all = || self.steps.iter().flat_map(|step| &step.keeps);
        let bearers = all().find(|local| base(&local.name) == name).map_or(0, |local| local.of);
        let knew = |local: &str| old.steps.iter().any(|step| step.kept(local).is_some());
        let had = |role| old.steps.iter().flat_map(|step| &step.keeps).any(|kept| base(&kept.name) == name && kept.role == role);
        let renamed =
            |local: &&Kept| base(&local.name) != name && local.was.as_deref().is_some_and(|was| base(was) == name) && had(local.role);
        let leavers: BTreeSet<&str> = all().filter(renamed).map(|local| local.name.as_str()).filter(|local| !knew(local)).collect();
        bearers.saturating_add(u32::try_from(leavers.len()).unwrap_or(u32::MAX))
    }

    /// Whether a step among those that share a derived name has another number than before: steps
    /// were swapped, or one was removed and another added.
    fn exchanged(&self, old: &Layout, name: &str) -> bool {
        let of = |layout: &Layout, body: &str| -> Vec<String> {
            layout.steps.iter().filter(|s| !s.explicit && s.base() == name && s.body == body).map(|s| s.name.clone()).collect()
        };
        let bodies = old.steps.iter().filter(|s| !s.explicit && s.base() == name && !s.body.is_empty()).map(|s| s.body.as_str());
        bodies.into_iter().any(|body| {
            let now = of(self, body);
            !now.is_empty() && now != of(old, body)
        })
    }
}

impl Step {
    /// The stored name of a local of this step, by the same rule as [`Cut::stored_name`].
    ///
    /// [`Cut::stored_name`]: crate::frame::machine::Cut::stored_name
    fn source_of<'a>(&'a self, local: &'a Kept, has: impl Fn(&str, LocalRole) -> bool) -> Option<&'a str> {
        if has(&local.name, local.role) {
            return Some(&local.name);
        }
        let old = local.was.as_deref().filter(|old| has(old, local.role))?;
        (self.claimants(old, has).count() == 1).then_some(old)
    }

    /// The locals of this step to which a name may belong.
    fn claimants<'a>(&'a self, name: &'a str, has: impl Fn(&str, LocalRole) -> bool + 'a) -> impl Iterator<Item = &'a Kept> {
        self.keeps.iter().filter(move |local| local.name == name || local.was.as_deref() == Some(name) && !has(&local.name, local.role))
    }
}

impl Kept {
    /// Whether it is a variable of the source: values that the macro names are not.
    fn is_let(&self) -> bool {
        self.role == LocalRole::Value && !self.name.contains([' ', '('])
    }

    /// Whether a kept local belongs to the same loop as an old one.
    fn is_loop_of(&self, then: &Kept) -> bool {
        self.role == then.role && (self.name == then.name || self.was.as_ref() == Some(&then.name))
    }
}

/// The old name that a step claims by `was`; `None` if the old code already had the new name.
fn renamed_from<'a>(step: &'a Step, old: Option<&Layout>) -> Option<&'a str> {
    let done = old.is_some_and(|old| old.step(&step.name).is_some());
    step.was.as_deref().filter(|_| !done)
}

/// Whether the new code claims that a step was renamed, although the old code had steps of both
/// names.
fn is_unclear(step: &Step, old: Option<&Layout>) -> bool {
    let (Some(old), Some(was)) = (old, &step.was) else { return false };
    old.step(was).is_some() && old.step(&step.name).is_some_and(|then| then.was.as_ref() != Some(was))
}

/// Problems without duplicates, in the order in which they were found.
#[derive(Default)]
struct Found(Vec<Problem>);

impl Found {
    fn add(&mut self, problem: Problem) {
        if !self.0.contains(&problem) {
            self.0.push(problem);
        }
    }

    /// Reports a local that is claimed to be renamed although the old code had both names: neither
    /// can be used for it.
    fn unclear(&mut self, step: &Step, local: &Kept, before: &Step, has: impl Fn(&str, LocalRole) -> bool) -> bool {
        let Some(old) = &local.was else { return false };
        let is_new = before.kept(&local.name).is_some_and(|kept| kept.was != local.was);
        let unclear = is_new && has(&local.name, local.role) && has(old, local.role);
        if unclear {
            self.add(Problem::LocalUnclear { local: local.name.clone(), was: old.clone(), step: step.name.clone() });
        }
        unclear
    }

    /// Reports a local without a stored value.
    fn absent(&mut self, step: &Step, local: &Kept, was: Option<(&Layout, &Step)>, under_way: bool, has: impl Fn(&str, LocalRole) -> bool) {
        match local.was.as_deref().filter(|old| has(old, local.role)) {
            Some(old) => {
                let by = step.claimants(old, has).map(|local| local.name.clone()).collect();
                self.add(Problem::LocalClaimedTwice { local: old.to_owned(), step: step.name.clone(), by });
            }
            None if local.role != LocalRole::Value => {
                self.add(Problem::LoopMissing { items: local.name.clone(), step: step.name.clone() });
            }
            None => self.missing(step, local, was, under_way),
        }
    }

    /// Reports a value that was not kept, with the locals that it may have been at the old step.
    fn missing(&mut self, step: &Step, local: &Kept, was: Option<(&Layout, &Step)>, under_way: bool) {
        let is_claimed = |name: &str| step.keeps.iter().any(|now| now.name == name || now.was.as_deref() == Some(name));
        let may_be = |old: &Layout, then: &Kept| {
            let is_let = local.is_let() && then.is_let() && !old.arguments.contains(&then.name);
            is_let && then.result == local.result && !is_claimed(&then.name)
        };
        let then = was.iter().flat_map(|(old, was)| was.keeps.iter().filter(|then| may_be(old, then)));
        let perhaps = then.map(|then| then.name.clone()).collect();
        self.add(Problem::LocalMissing { local: local.name.clone(), step: step.name.clone(), under_way, perhaps });
    }

    fn renumbered(&mut self, local: &str, now: u32, before: u32) {
        self.add(Problem::LocalAmbiguous { local: base(local).to_owned(), now, before });
    }

    fn kind(&mut self, step: &str, now: CutKind, before: CutKind) {
        self.add(Problem::KindChanged { step: step.to_owned(), now: now.word(), before: before.word() });
    }
}
