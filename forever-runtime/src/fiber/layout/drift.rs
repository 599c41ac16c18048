//! Whether code of one layout can resume what code of another left, and if not, every reason why.
//!
//! A snapshot names its step and its locals. A name that is written in the source (`step!("search", ..)`) means the same
//! step as long as it is there. A name that is derived means what it meant only while as many steps share it as before:
//! when a second `search` appears, nobody can tell whether it came before or after the first. The same holds for locals.
//! Where a name could mean two things the fiber is parked; it is never resumed at a place that may be wrong.
use std::collections::BTreeSet;
use std::fmt;

use super::super::machine::CutKind;
use super::super::snapshot::Snapshot;
use super::{Kept, Layout, Step, base};

/// Why code cannot resume what code of another layout left: all reasons, and both layouts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift(Box<Parts>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Parts {
    problems: Vec<Problem>,
    now: Layout,
    before: Option<Layout>,
}

impl Drift {
    /// The reasons; there is at least one, and none is there twice.
    pub fn problems(&self) -> &[Problem] {
        &self.0.problems
    }

    /// The layout of the code.
    pub fn now(&self) -> &Layout {
        &self.0.now
    }

    /// The layout of the code that left the snapshot, if it is known.
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

/// One reason why a snapshot does not fit the code; `Display` is a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// The stored name of the function is another, so that its fibers would not be found.
    FiberRenamed {
        /// The name now.
        now: String,
        /// The name before.
        before: String,
    },
    /// The `version` of the function is another.
    VersionChanged {
        /// The version now.
        now: u32,
        /// The version before.
        before: u32,
    },
    /// An argument was not saved when the fiber was spawned.
    ArgumentAdded {
        /// Its name.
        argument: String,
    },
    /// The step is not in the code, under its name or by `was`.
    StepGone {
        /// Its name.
        step: String,
    },
    /// Another number of steps share the step's name, or one of them has it written in the source now.
    StepAmbiguous {
        /// The shared name.
        step: String,
        /// How many share it now.
        now: u32,
        /// How many shared it before.
        before: u32,
    },
    /// Several steps of the code claim to be this one.
    StepClaimedTwice {
        /// Its name.
        step: String,
        /// The names of those that claim it, by name or by `was`.
        by: Vec<String>,
    },
    /// The step was made by another macro.
    KindChanged {
        /// Its name.
        step: String,
        /// What it is now: `step`, `call`.
        now: &'static str,
        /// What it was before.
        before: &'static str,
    },
    /// A local that the code needs after a step is not in the snapshots taken there.
    LocalMissing {
        /// Its name.
        local: String,
        /// The step.
        step: String,
        /// Whether it is missing only while the call of that name is under way.
        under_way: bool,
    },
    /// A local is said to have had another name, but the old code had locals of both names.
    LocalUnclear {
        /// Its name.
        local: String,
        /// The name that it is said to have had.
        was: String,
        /// The step.
        step: String,
    },
    /// Several locals of the code claim to be this one.
    LocalClaimedTwice {
        /// Its name.
        local: String,
        /// The step.
        step: String,
        /// The names of those that claim it, by name or by `was`.
        by: Vec<String>,
    },
    /// Another number of variables share the local's name.
    LocalAmbiguous {
        /// The shared name.
        local: String,
        /// How many share it now.
        now: u32,
        /// How many shared it before.
        before: u32,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::FiberRenamed { now, before } => {
                write!(f, "it was called `{before}` and is called `{now}` now: give it `name = \"{before}\"`")
            }
            Problem::VersionChanged { now, before } => {
                write!(f, "it has version {now} now and had {before} before: snapshots need a `migrate` function")
            }
            Problem::ArgumentAdded { argument } => {
                write!(f, "argument `{argument}` was not saved when the fiber was spawned")
            }
            Problem::StepGone { step } => write!(f, "step `{step}` is gone"),
            Problem::StepAmbiguous { step, now, before } if now == before => {
                write!(f, "`{step}` stands for {}, not all of them named as before: which one was meant cannot be told", steps(*now))
            }
            Problem::StepAmbiguous { step, now, before } => write!(
                f,
                "`{step}` stands for {} now and for {before} before: which one was meant cannot be told; give the steps names of their own",
                steps(*now)
            ),
            Problem::StepClaimedTwice { step, by } => {
                write!(f, "step `{step}` is claimed by {}: which one was meant cannot be told", listed(by))
            }
            Problem::LocalUnclear { local, was, step } => write!(
                f,
                "local `{local}` is said to have been `{was}`, but both were kept at step `{step}`: which one was meant cannot be told; \
                 give it a name that is new"
            ),
            Problem::LocalClaimedTwice { local, step, by } => {
                let by = listed(by);
                write!(f, "local `{local}` kept at step `{step}` is claimed by {by}: which one was meant cannot be told")
            }
            Problem::KindChanged { step, now, before } => write!(f, "`{step}` is a {now} now and was a {before} before"),
            Problem::LocalMissing { local, step, under_way: false } => {
                write!(f, "local `{local}` is needed after step `{step}` but was not kept")
            }
            Problem::LocalMissing { local, step, under_way: true } => {
                write!(f, "local `{local}` is needed during call `{step}` but was only kept after it")
            }
            Problem::LocalAmbiguous { local, now, before } => write!(
                f,
                "`{local}` stands for {now} {} now and for {before} before: which one was kept cannot be told; give them names of their own",
                if *now == 1 { "variable" } else { "variables" }
            ),
        }
    }
}

fn listed(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" and ")
}

fn steps(n: u32) -> String {
    if n == 1 { "1 step".to_owned() } else { format!("{n} steps") }
}

impl Layout {
    /// Whether this code resumes every snapshot that code with the layout `old` can have left, and every fiber of it that
    /// has not come to its first step.
    ///
    /// What a `migrate` function does is not looked at. Whether the values of the locals can still be read as their types
    /// is seen only when a snapshot is restored.
    ///
    /// # Errors
    /// Everything that does not fit.
    pub fn can_resume(&self, old: &Layout) -> Result<(), Drift> {
        let mut found = Found::default();
        self.compare(old, &mut found);
        for argument in &self.arguments {
            if !old.arguments.contains(argument) {
                found.add(Problem::ArgumentAdded { argument: argument.clone() });
            }
        }
        for was in &old.steps {
            let Some(step) = self.identify(Some(old), &was.name, &mut found) else { continue };
            for local in &step.keeps {
                if found.unclear(step, local, was, |name| was.kept(name).is_some()) {
                    continue;
                }
                let kept = step.source_of(local, |name| was.kept(name).is_some()).and_then(|name| was.kept(name));
                match kept {
                    None => found.absent(step, local, false, |name| was.kept(name).is_some()),
                    Some(kept) if kept.of != self.bearers(old, &kept.name) => {
                        found.renumbered(&kept.name, self.bearers(old, &kept.name), kept.of);
                    }
                    Some(kept) if kept.result && !local.result && step.kind == CutKind::Call => {
                        found.missing(&local.name, &step.name, true);
                    }
                    Some(_) => {}
                }
            }
        }
        self.verdict(found, Some(old))
    }

    /// Whether this code resumes one snapshot; `old` is the layout of the code that left it, if it is known.
    ///
    /// A snapshot that a `migrate` function has made is in the names of this code: it has no old layout. Of a call under way
    /// only the caller's part is looked at; the callee looks at its own.
    ///
    /// # Errors
    /// Everything that does not fit.
    pub fn check(&self, old: Option<&Layout>, snapshot: &Snapshot) -> Result<(), Drift> {
        let mut found = Found::default();
        if let Some(old) = old {
            self.compare(old, &mut found);
        }
        if let Some(step) = self.identify(old, &snapshot.at, &mut found) {
            let under_way = snapshot.call.is_some();
            if under_way && step.kind != CutKind::Call {
                found.kind(&step.name, step.kind, CutKind::Call);
            }
            let was = old.and_then(|old| old.step(&snapshot.at));
            for local in step.keeps.iter().filter(|local| !(under_way && local.result)) {
                let has = |name: &str| snapshot.locals.contains_key(name);
                if was.is_some_and(|was| found.unclear(step, local, was, has)) {
                    continue;
                }
                let kept = |name: &str| was.and_then(|was| was.kept(name));
                let Some(stored) = step.source_of(local, has) else {
                    let only_after = under_way && kept(&local.name).is_some();
                    found.absent(step, local, only_after, has);
                    continue;
                };
                if let (Some(old), Some(kept)) = (old, kept(stored))
                    && kept.of != self.bearers(old, stored)
                {
                    found.renumbered(stored, self.bearers(old, stored), kept.of);
                }
            }
        }
        self.verdict(found, old)
    }

    fn verdict(&self, found: Found, old: Option<&Layout>) -> Result<(), Drift> {
        if found.0.is_empty() {
            return Ok(());
        }
        Err(Drift(Box::new(Parts { problems: found.0, now: self.clone(), before: old.cloned() })))
    }

    /// What concerns the function as a whole.
    fn compare(&self, old: &Layout, found: &mut Found) {
        if self.fiber != old.fiber {
            found.add(Problem::FiberRenamed { now: self.fiber.clone(), before: old.fiber.clone() });
        }
        if self.version != old.version {
            found.add(Problem::VersionChanged { now: self.version, before: old.version });
        }
    }

    /// The step that a snapshot taken at `at` by the code of `old` means.
    fn identify(&self, old: Option<&Layout>, at: &str, found: &mut Found) -> Option<&Step> {
        let mut claims: Vec<&Step> = self.steps.iter().filter(|step| step.name == at || renamed_from(step, old) == Some(at)).collect();
        if old.is_none() {
            // Without an old layout the names are those of this code, and `was` is for the ones that are not.
            claims.sort_by_key(|step| step.name != at);
            claims.truncate(1);
        }
        let step = match claims[..] {
            [] => {
                found.add(Problem::StepGone { step: at.to_owned() });
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
        // Within a group of one name a literal takes the plain name and the others move up by one.
        let literal = |layout: &Layout| layout.steps.iter().any(|step| step.explicit && step.name == name);
        let same_literal = renamed || now == 1 || literal(self) == literal(old);
        let exchanged = self.exchanged(old, name);
        (now != was.of || !same_literal || exchanged).then(|| Problem::StepAmbiguous { step: name.to_owned(), now, before: was.of })
    }
}

impl Layout {
    /// How many locals of this code share the name of a local of `old` that is not a new one: with those that had it then.
    fn bearers(&self, old: &Layout, name: &str) -> u32 {
        let name = base(name);
        let all = || self.steps.iter().flat_map(|step| &step.keeps);
        let bearers = all().find(|local| base(&local.name) == name).map_or(0, |local| local.of);
        let knew = |local: &str| old.steps.iter().any(|step| step.kept(local).is_some());
        let renamed = |local: &&Kept| base(&local.name) != name && local.was.as_deref().is_some_and(|was| base(was) == name);
        let leavers: BTreeSet<&str> = all().filter(renamed).map(|local| local.name.as_str()).filter(|local| !knew(local)).collect();
        bearers.saturating_add(u32::try_from(leavers.len()).unwrap_or(u32::MAX))
    }

    /// Whether, of the steps that share a derived name, one's body has another number than before: they were exchanged, or
    /// one was taken out and another put in.
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
    /// The name under which a local of this step is among those that are there, as [`Cut::stored_name`] has it.
    ///
    /// [`Cut::stored_name`]: super::super::machine::Cut::stored_name
    fn source_of<'a>(&'a self, local: &'a Kept, has: impl Fn(&str) -> bool) -> Option<&'a str> {
        if has(&local.name) {
            return Some(&local.name);
        }
        let old = local.was.as_deref().filter(|old| has(old))?;
        (self.claimants(old, has).count() == 1).then_some(old)
    }

    /// The locals of this step that a name may stand for.
    fn claimants<'a>(&'a self, name: &'a str, has: impl Fn(&str) -> bool + 'a) -> impl Iterator<Item = &'a Kept> {
        self.keeps.iter().filter(move |local| local.name == name || local.was.as_deref() == Some(name) && !has(&local.name))
    }
}

/// The old name that a step claims by `was`; none if the old code knew it under its new name already.
fn renamed_from<'a>(step: &'a Step, old: Option<&Layout>) -> Option<&'a str> {
    let done = old.is_some_and(|old| old.step(&step.name).is_some());
    step.was.as_deref().filter(|_| !done)
}

/// Problems, each once, in the order in which they were found.
#[derive(Default)]
struct Found(Vec<Problem>);

impl Found {
    fn add(&mut self, problem: Problem) {
        if !self.0.contains(&problem) {
            self.0.push(problem);
        }
    }

    /// Whether a local was renamed after the old code, which had both names: then neither can be taken for it.
    fn unclear(&mut self, step: &Step, local: &Kept, before: &Step, has: impl Fn(&str) -> bool) -> bool {
        let Some(old) = &local.was else { return false };
        let is_new = before.kept(&local.name).is_some_and(|kept| kept.was != local.was);
        let unclear = is_new && has(&local.name) && has(old);
        if unclear {
            self.add(Problem::LocalUnclear { local: local.name.clone(), was: old.clone(), step: step.name.clone() });
        }
        unclear
    }

    /// A local that has no value among those that are there.
    fn absent(&mut self, step: &Step, local: &Kept, under_way: bool, has: impl Fn(&str) -> bool) {
        match local.was.as_deref().filter(|old| has(old)) {
            Some(old) => {
                let by = step.claimants(old, has).map(|local| local.name.clone()).collect();
                self.add(Problem::LocalClaimedTwice { local: old.to_owned(), step: step.name.clone(), by });
            }
            None => self.missing(&local.name, &step.name, under_way),
        }
    }

    fn missing(&mut self, local: &str, step: &str, under_way: bool) {
        self.add(Problem::LocalMissing { local: local.to_owned(), step: step.to_owned(), under_way });
    }

    fn renumbered(&mut self, local: &str, now: u32, before: u32) {
        self.add(Problem::LocalAmbiguous { local: base(local).to_owned(), now, before });
    }

    fn kind(&mut self, step: &str, now: CutKind, before: CutKind) {
        self.add(Problem::KindChanged { step: step.to_owned(), now: now.word(), before: before.word() });
    }
}
