//! The static description of a fiber function, written by the macro: its cut points and what each of them keeps.
use serde::{Deserialize, Serialize};

use super::snapshot::Snapshot;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Where a path through the function ends, in [`Cut::next`].
pub const END: u32 = u32::MAX;

/// One `#[fiber]` function.
#[derive(Debug)]
pub struct Machine {
    /// The stored name.
    pub name: &'static str,
    /// `version = N`, 0 without.
    pub version: u32,
    /// `max_recoveries = N`.
    pub max_recoveries: Option<u32>,
    /// Names of the saved arguments, in order.
    pub arguments: &'static [&'static str],
    /// All cut points in source order; a cut's number is its place here.
    pub cuts: &'static [Cut],
    /// The cuts that may come first; [`END`] if the function may end without one.
    pub first: &'static [u32],
    /// `migrate = path`.
    pub migrate: Option<fn(Snapshot) -> Result<Snapshot, BoxError>>,
}

/// One cut point.
#[derive(Debug)]
pub struct Cut {
    /// The stored name: `search`, `search#2`.
    pub name: &'static str,
    /// Whether the name is a literal in the source, and so stays with its step whatever is added around it.
    pub explicit: bool,
    /// How many cut points of the function share the name before `#`.
    pub of: u32,
    /// `was = "old"`.
    pub was: Option<&'static str>,
    /// Which macro made it.
    pub kind: CutKind,
    /// What is kept at it, by name.
    pub locals: &'static [Local],
    /// The cuts that may come next.
    pub next: &'static [u32],
    /// Source line, for messages.
    pub line: u32,
}

/// Which macro made a cut point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CutKind {
    /// `step!`
    Step,
    /// `call!`
    Call,
}

/// One value kept at a cut point.
#[derive(Debug)]
pub struct Local {
    /// The stored name: `hits`, `hits#2`.
    pub name: &'static str,
    /// How many bindings of the function share the name before `#`.
    pub of: u32,
    /// Whether it is the value of the cut point itself, absent while a `call!` is under way.
    pub result: bool,
    /// Why it is kept: where it is used later.
    pub why: &'static str,
}

impl Machine {
    /// The number of the cut point that a snapshot names, by its own name or by `was`.
    pub(crate) fn find(&self, at: &str) -> Option<u32> {
        let by_name = self.cuts.iter().position(|c| c.name == at);
        let place = by_name.or_else(|| self.cuts.iter().position(|c| c.was == Some(at)))?;
        u32::try_from(place).ok()
    }
}
