//! Reasons why a snapshot does not fit the code, each with the fix to write.
use std::fmt;

use crate::frame::machine::PENDING;

/// One reason why a snapshot does not fit the code; `Display` is a sentence for people.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::layout::Problem;
///
/// /// What to write for it in a review.
/// fn advice(problem: &Problem) -> String {
///     match problem {
///         Problem::StepGone { step, perhaps: Some(new) } => {
///             format!("if `{new}` is the old `{step}`, write `was = \"{step}\"` there")
///         }
///         Problem::VersionChanged { .. } => "write a `migrate` function".to_owned(),
///         problem => problem.to_string(),
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// The stored name of the function has changed, so its fibers would not be found.
    FiberRenamed {
        /// The name now.
        now: String,
        /// The name before.
        before: String,
    },
    /// The `version` of the function has changed.
    VersionChanged {
        /// The version now.
        now: u32,
        /// The version before.
        before: u32,
    },
    /// An argument was not saved when the fiber was spawned.
    ArgumentAdded {
        /// Name of the argument.
        argument: String,
    },
    /// The step is not in the code, neither under its name nor by `was`.
    StepGone {
        /// Name of the step.
        step: String,
        /// The new step that it was most likely renamed to, if there is one.
        perhaps: Option<String>,
    },
    /// The fiber waits for the next attempt of a step that has no `retry` any more.
    RetryGone {
        /// Name of the step.
        step: String,
    },
    /// A different number of steps share the step's name, or one of them has it written in the
    /// source now.
    StepAmbiguous {
        /// The shared name.
        step: String,
        /// Number of steps that share it now.
        now: u32,
        /// Number of steps that shared it before.
        before: u32,
    },
    /// A step that has begun as an effect is a plain step now.
    EffectGone {
        /// Name of the step, or of the branch of a `steps!`.
        step: String,
    },
    /// A step that the fiber may have passed comes after its place now.
    StepMovedBehind {
        /// Name of the step, or of the branch of a `steps!`.
        step: String,
        /// The step where the fiber is.
        place: String,
    },
    /// A step that the fiber may not have passed comes only before its place now.
    StepMovedBefore {
        /// Name of the step, or of the branch of a `steps!`.
        step: String,
        /// The step where the fiber is.
        place: String,
    },
    /// Several steps of the code claim to be this one.
    StepClaimedTwice {
        /// Name of the step.
        step: String,
        /// Names of the steps that claim it, by name or by `was`.
        by: Vec<String>,
    },
    /// The step was made by another macro.
    KindChanged {
        /// Name of the step.
        step: String,
        /// Its kind now: `step`, `call`.
        now: &'static str,
        /// Its kind before.
        before: &'static str,
    },
    /// A local that the code needs after a step is not in the snapshots taken there.
    LocalMissing {
        /// Name of the local.
        local: String,
        /// The step.
        step: String,
        /// Whether it is missing only while the call of that name is under way.
        under_way: bool,
        /// Locals that were kept there and are not needed any more: it may be one of them.
        perhaps: Vec<String>,
    },
    /// A local is said to have had another name, but the old code had locals of both names.
    LocalUnclear {
        /// Name of the local.
        local: String,
        /// Its claimed old name.
        was: String,
        /// The step.
        step: String,
    },
    /// Several locals of the code claim to be this one.
    LocalClaimedTwice {
        /// Name of the local.
        local: String,
        /// The step.
        step: String,
        /// Names of the locals that claim it, by name or by `was`.
        by: Vec<String>,
    },
    /// The body of a step with a derived name has changed and the step has moved: it may be another
    /// one.
    StepRewritten {
        /// Name of the step.
        step: String,
    },
    /// A step claims to have been renamed, but the old code had steps of both names.
    StepUnclear {
        /// Name of the step.
        step: String,
        /// Its claimed old name.
        was: String,
    },
    /// A `for` loop that may have items left was removed.
    LoopGone {
        /// The items of the loop, by their name in the snapshot.
        items: String,
        /// The step in the loop.
        step: String,
    },
    /// A step is in a `for` loop whose items or position are not in the snapshot.
    LoopMissing {
        /// The items of the loop, by their name in snapshots.
        items: String,
        /// The step in the loop.
        step: String,
    },
    /// The `for` loops around a step are nested in another order than before.
    LoopsExchanged {
        /// The items of the outermost loop that has moved, by their name in snapshots.
        items: String,
        /// The step in the loops.
        step: String,
    },
    /// The code no longer receives on topics that a fiber waits on.
    TopicsChanged {
        /// The wait.
        step: String,
        /// Its topics now.
        now: Vec<String>,
        /// Its topics before.
        before: Vec<String>,
    },
    /// The branches of a `steps!` were a list and are a `for` now, or the other way round.
    BranchesChanged {
        /// The `steps!`.
        step: String,
    },
    /// A branch whose result is or may be stored is not in the code, neither under its name nor by
    /// `was`.
    BranchGone {
        /// The `steps!`.
        step: String,
        /// The branch.
        branch: String,
    },
    /// Several branches share a derived name, so a stored result may belong to any of them.
    BranchAmbiguous {
        /// The `steps!`.
        step: String,
        /// The shared name.
        branch: String,
    },
    /// The value of a step was an `Option` or a `Result` by its macro, and is another one now: text
    /// of one can be read as the other.
    ValueWrapped {
        /// The local that has the value.
        local: String,
        /// The step.
        step: String,
        /// What is around the value now: `Result` by `catch`, `Option` by a `timeout`, or nothing.
        now: String,
        /// What was around it before.
        before: String,
    },
    /// The stored value of a branch, or of an item, is or was a `Result` by its macro.
    BranchWrapped {
        /// The `steps!`.
        step: String,
        /// The branch; the `steps!` itself where it is a `for`.
        branch: String,
    },
    /// Several arms of a `select!` that share a name are others than before.
    ArmAmbiguous {
        /// The `select!`.
        step: String,
        /// The shared name: `sleep`.
        arm: String,
    },
    /// A different number of variables share the local's name.
    LocalAmbiguous {
        /// The shared name.
        local: String,
        /// Number of variables that share it now.
        now: u32,
        /// Number of variables that shared it before.
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
                write!(f, "it has version {now} now and had {before} before: old snapshots need a `migrate` function")
            }
            Problem::ArgumentAdded { argument } => {
                write!(
                    f,
                    "argument `{argument}` was not saved when the fiber was spawned: put it into a struct argument with `#[serde(default)]`, or \
                     spawn the new function under another name"
                )
            }
            Problem::StepGone { step, perhaps } => {
                let is_wait = step.contains(PENDING);
                let step = step.replacen(PENDING, "", 1);
                let (what, kind) =
                    if is_wait { (format!("`{step}`, where it waits,"), "wait") } else { (format!("step `{step}`"), "step") };
                let now = match perhaps {
                    Some(now) => format!("if it is `{}` now, write `was = \"{step}\"` there", now.replacen(PENDING, "", 1)),
                    None => format!("if it was renamed, write `was = \"{step}\"` at the {kind} that it is now"),
                };
                write!(f, "{what} is gone: {now}")
            }
            Problem::RetryGone { step } => {
                write!(f, "`{step}` waits for its next attempt, and has no `retry` now: give it back until no fiber waits there")
            }
            Problem::StepRewritten { step } => write!(
                f,
                "`{step}` has another body than before and stands elsewhere: whether it is the same step cannot be told; if it is, write its \
                 name out, `step!(\"{step}\", ..)`, and if not, name it otherwise"
            ),
            Problem::StepUnclear { step, was } => write!(
                f,
                "step `{step}` is said to have been `{was}`, but the old code has steps of both names: which one was meant cannot be told; \
                 give it a name that is new"
            ),
            Problem::TopicsChanged { step, now, before } => write!(
                f,
                "`{step}` waits for a message on {}, and receives on {} now: what was sent before would be lost; receive on all of them, \
                 `recv!([..])`",
                listed(before),
                if now.is_empty() { "other topics".to_owned() } else { listed(now) },
            ),
            Problem::BranchesChanged { step } => write!(
                f,
                "the branches of `{step}` are another kind now, a list of branches or a `for`: give the `steps!` another name, and keep the old \
                 one until its fibers have passed it"
            ),
            Problem::BranchGone { step, branch } => write!(
                f,
                "branch `{branch}` of `{step}` may have its result stored, and is gone: if it was renamed, write `step!(was = \"{branch}\", ..)` at \
                 the branch that it is now"
            ),
            Problem::BranchAmbiguous { step, branch } => write!(
                f,
                "`{branch}` stands for other branches of `{step}` than before: which one was meant cannot be told; give them names, \
                 `step!(\"..\", ..)`"
            ),
            Problem::BranchWrapped { step, branch } => write!(
                f,
                "`catch` was added to or taken from `{branch}` of `{step}`, which may have a result stored: leave it as it was until no fiber is \
                 there, or give the `steps!` another name, and keep the old one until its fibers have passed it"
            ),
            Problem::ArmAmbiguous { step, arm } => write!(
                f,
                "`{arm}` stands for other arms of `{step}` than before: what a fiber that waits there waits for cannot be told; leave these arms \
                 as they were until no fiber waits there, or give the `select!` a new name, `select! {{ \"..\", .. }}`, and `migrate` the snapshot"
            ),
            Problem::StepAmbiguous { step, now, before } if now == before => {
                write!(
                    f,
                    "`{step}` stands for {}, not all of them named as before: which one was meant cannot be told; give them names of their own",
                    steps(*now)
                )
            }
            Problem::StepAmbiguous { step, now, before } => write!(
                f,
                "`{step}` stands for {} now and for {before} before: which one was meant cannot be told; give the steps names of their own",
                steps(*now)
            ),
            Problem::StepClaimedTwice { step, by } => {
                write!(f, "step `{step}` is claimed by {}: which one was meant cannot be told; leave `was` at one of them", listed(by))
            }
            Problem::KindChanged { step, now, before } => write!(
                f,
                "`{step}` is a {now} now and was a {before} before: give the new one another name, or mend the snapshot with `migrate`"
            ),
            _ => self.fmt_of_place(f),
        }
    }
}

impl Problem {
    /// Problems with steps that are there.
    fn fmt_of_place(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::EffectGone { step } => {
                write!(f, "`{step}` is no effect now: make it the effect that it was until no operation of it is in doubt")
            }
            Problem::StepMovedBehind { step, place } => write!(
                f,
                "`{step}` was before {} and may come after it now, where it would run again: leave it where it was until no fiber is there, or \
                 give it a new name, `step!(\"..\", ..)`, if it is to run again; otherwise raise `version` and `migrate` the snapshot",
                at(place)
            ),
            Problem::StepMovedBefore { step, place } => write!(
                f,
                "`{step}` was after {} and comes before it now, where it would never run: leave it where it was until no fiber is there, or \
                 give it a new name, `step!(\"..\", ..)`, if it is not to run; otherwise raise `version` and `migrate` the snapshot",
                at(place)
            ),
            _ => self.fmt_of_local(f),
        }
    }

    /// Problems with kept locals.
    fn fmt_of_local(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::LoopGone { items, step } => write!(
                f,
                "the `for` loop around step `{step}` may have items left (`{items}`), and is not in the code any more: keep the loop, or take its \
                 items out of the snapshot with `migrate`"
            ),
            Problem::LoopMissing { items, step } => write!(
                f,
                "step `{step}` is in a `for` loop now whose place (`{items}`) was not kept: the loop is new or goes over something else; give the \
                 step in it another name, or put the place into the snapshot with `migrate`"
            ),
            Problem::LoopsExchanged { items, step } => write!(
                f,
                "the `for` loops around step `{step}` are nested in another order than before (`{items}` has moved): which rounds were done \
                 cannot be told; keep the order, or give the step in them another name"
            ),
            Problem::LocalUnclear { local, was, step } => write!(
                f,
                "local `{local}` is said to have been `{was}`, but both were kept at step `{step}`: which one was meant cannot be told; \
                 give it a name that is new"
            ),
            Problem::LocalClaimedTwice { local, step, by } => {
                let by = listed(by);
                write!(
                    f,
                    "local `{local}` kept at step `{step}` is claimed by {by}: which one was meant cannot be told; leave `#[was]` at one of them"
                )
            }
            Problem::LocalMissing { local, step, under_way: false, perhaps } => {
                let renamed = match &perhaps[..] {
                    [] => String::new(),
                    [was] => format!("if it was `{was}`, write `#[was = \"{was}\"] let {local}`; otherwise "),
                    all => format!("if it was one of {}, write its name, `#[was = \"..\"] let {local}`; otherwise ", listed(all)),
                };
                write!(
                    f,
                    "local `{local}` is needed after step `{step}` but was not kept: {renamed}put it into the snapshot with `migrate`"
                )
            }
            Problem::LocalMissing { local, step, under_way: true, .. } => {
                write!(
                    f,
                    "local `{local}` is needed during call `{step}` but was only kept after it: put it into the snapshot with `migrate`"
                )
            }
            Problem::ValueWrapped { local, step, now, before } => {
                let of = |wraps: &str| if wraps.is_empty() { "plain value".to_owned() } else { format!("`{wraps}`") };
                write!(
                    f,
                    "`{local}` was kept as the {} of `{step}`, and is its {} now: change it in the snapshot with `migrate`",
                    of(before),
                    of(now)
                )
            }
            Problem::LocalAmbiguous { local, now, before } => write!(
                f,
                "`{local}` stands for {now} {} now and for {before} before: which one was kept cannot be told; give them names of their own",
                if *now == 1 { "variable" } else { "variables" }
            ),
            _ => Ok(()),
        }
    }
}

/// The place of a fiber.
fn at(place: &str) -> String {
    let wait = place.replacen(PENDING, "", 1);
    if wait == place { format!("`{place}`") } else { format!("`{wait}`, where the fiber waits,") }
}

fn listed(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" and ")
}

fn steps(n: u32) -> String {
    if n == 1 { "1 step".to_owned() } else { format!("{n} steps") }
}
