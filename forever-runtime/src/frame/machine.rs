//! Static description of a fiber function, written by the macro: its cut points and the locals that
//! each of them keeps.

use serde::{Deserialize, Serialize};

use crate::frame::snapshot::{Snapshot, json_string};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// End of a path through the function, in [`Cut::next`].
pub const END: u32 = u32::MAX;

/// Suffix of the name of the cut point that stores the locals of a wait.
pub(crate) const PENDING: &str = " pending";

/// Placeholder in [`Machine::topics`] for topics that are computed at run time.
pub const COMPUTED_TOPIC: &str = "";

/// One `#[fiber]` function.
#[derive(Debug)]
pub struct Machine {
    /// The stored name.
    pub name: &'static str,
    /// `version = N`, or 0.
    pub version: u32,
    /// `max_recoveries = N`.
    pub max_recoveries: Option<u32>,
    /// Names of the saved arguments, in order.
    pub arguments: &'static [&'static str],
    /// All cut points in source order; a cut's number is its place here.
    pub cuts: &'static [Cut],
    /// The cuts that may come first; [`END`] if the function may end without one.
    pub first: &'static [u32],
    /// Topics of its `recv!`s: each literal one once, and [`COMPUTED_TOPIC`] if there are computed
    /// ones.
    pub topics: &'static [&'static str],
    /// `migrate = path`.
    pub migrate: Option<fn(Snapshot) -> Result<Snapshot, BoxError>>,
    /// What may hold a value marked `#[secret]`: names of arguments and variables, `@NAME` for a
    /// cut point whose code mentions one, and `return` for the result. Part of the layout, so that
    /// a reader of a row without the code knows them too.
    pub secrets: &'static [&'static str],
    /// Where the function stands in its file. No part of the layout.
    pub source: Option<SourceSpec>,
}

/// Text of a function and places in it, for people.
#[derive(Debug, Clone, Copy)]
pub struct SourceSpec {
    /// Path of the file, as the compiler was given it.
    pub file: &'static str,
    /// Line of the file that the text begins at, from 1.
    pub line: u32,
    /// Column of the file that the text begins at, from 1.
    pub column: u32,
    /// The function without its attributes; empty with `source = false`.
    pub text: &'static str,
    /// Of each cut point, in the order of [`Machine::cuts`], the line of the text from 0, the
    /// column from 1, and the last line. A cut point that stands elsewhere has line `u32::MAX`.
    pub cuts: &'static [(u32, u32, u32)],
    /// Line of the declaration of each kept local, by stored name.
    pub locals: &'static [(&'static str, u32)],
}

/// One cut point.
#[derive(Debug)]
pub struct Cut {
    /// The stored name: `search`, `search#2`.
    pub name: &'static str,
    /// Whether the name is a literal in the source, and so stays with its step when code is added
    /// around it.
    pub explicit: bool,
    /// Number of cut points of the function that share the name before `#`.
    pub of: u32,
    /// A fingerprint of the body. For a call, a fingerprint of its function and, after `-`, one of
    /// the whole call. The layout has it where the name is derived.
    pub body: &'static str,
    /// `was = "old"`.
    pub was: Option<&'static str>,
    /// Which macro made it.
    pub kind: CutKind,
    /// Whether its body is an effect; for a `steps!(for ..)`, that of each item.
    pub effect: bool,
    /// Whether that effect has `on_unknown`; without it one in doubt parks the fiber.
    pub decides: bool,
    /// The type that the macro puts around its value: `Result` by `catch`, `Option` by a `timeout`.
    /// For a `steps!`, that of an item.
    pub wraps: &'static str,
    /// The kept locals, by name.
    pub locals: &'static [Local],
    /// Branches of a `steps!` that is not a `steps!(for ..)`, or the arms of a `select!`.
    pub branches: &'static [BranchSpec],
    /// Literal topics that it receives on.
    pub topics: &'static [&'static str],
    /// The cuts that may come next.
    pub next: &'static [u32],
    /// Source line, for messages.
    pub line: u32,
}

/// One branch of `steps!(a, b, ..)`, or one arm of `select!`.
#[derive(Debug)]
pub struct BranchSpec {
    /// Its name among the branches: `fetch`, `fetch#2`.
    pub name: &'static str,
    /// The stored name: `both[fetch]`. Empty for an arm.
    pub stored: &'static str,
    /// Whether the name is a literal in the source.
    pub explicit: bool,
    /// Number of branches that share the name before `#`.
    pub of: u32,
    /// A fingerprint of the body. The layout has it where the name is derived.
    pub body: &'static str,
    /// `was = "old"`.
    pub was: Option<&'static str>,
    /// Whether its body is an effect.
    pub effect: bool,
    /// Whether that effect has `on_unknown`.
    pub decides: bool,
    /// The type that the macro puts around its value: `Result` by `catch`.
    pub wraps: &'static str,
}

/// Which macro made a cut point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CutKind {
    /// `step!`
    Step,
    /// `call!`
    Call,
    /// The locals that a waiting cut point saves before it waits, under its name and ` pending`.
    Pending,
    /// `steps!`
    Steps,
    /// `sleep!`, `sleep_until!`
    Sleep,
    /// `recv!`
    Recv,
    /// `spawn!`
    Spawn,
    /// `wait!`, `wait_all!`
    Wait,
    /// `select!`
    Select,
}

/// One value kept at a cut point.
#[derive(Debug)]
pub struct Local {
    /// The stored name: `hits`, `hits#2`.
    pub name: &'static str,
    /// Number of bindings of the function that share the name before `#`.
    pub of: u32,
    /// `#[was = "old"]`.
    pub was: Option<&'static str>,
    /// Whether it is the value of the cut point itself, absent while a `call!` is under way.
    pub result: bool,
    /// Whether it belongs to a `for` loop: the remaining items, or the position.
    pub role: LocalRole,
    /// Why it is kept: where it is used later.
    pub why: &'static str,
}

/// Role of a kept value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LocalRole {
    /// A variable, or the value of an operand.
    #[default]
    Value,
    /// The remaining items of a `for` loop by value.
    Items,
    /// The position of a `for` loop by borrow.
    Position,
}

impl Machine {
    /// Whether the code of a cut point mentions what may hold a secret.
    pub(crate) fn mentions_secret(&self, cut: &str) -> bool {
        self.secrets.iter().any(|entry| entry.strip_prefix('@') == Some(cut))
    }

    /// Number of the cut point that a snapshot names, by its own name or by `was`.
    pub(crate) fn find(&self, at: &str) -> Option<u32> {
        let by_name = self.cuts.iter().position(|c| c.name == at);
        let place = by_name.or_else(|| self.cuts.iter().position(|c| c.was == Some(at)))?;
        u32::try_from(place).ok()
    }

    /// The wait whose locals the cut point `at` stores; `None` if that is no such cut point.
    pub(crate) fn wait_of(&self, at: &str) -> Option<&'static str> {
        self.cuts.iter().find(|cut| cut.kind == CutKind::Pending && cut.name == at)?;
        let wait = at.replacen(PENDING, "", 1);
        self.cuts.iter().map(|cut| cut.name).find(|name| *name == wait)
    }

    /// Whether it calls other functions inline.
    pub(crate) fn calls(&self) -> bool {
        self.cuts.iter().any(|cut| cut.kind == CutKind::Call)
    }

    /// Heading of a callee's frame in its caller's snapshot: its function, and its layout.
    pub(crate) fn heading(&self, layout: &str) -> String {
        format!("\"fiber\":{},\"layout\":{},", json_string(self.name), json_string(layout))
    }
}

impl Cut {
    /// Whether it has or had this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.name == name || self.was == Some(name)
    }

    /// The name of a local of this cut point in a snapshot: its own, or the one from before it was
    /// renamed. `None` if neither is there, or if another local claims the old name as well.
    pub(crate) fn stored_name(&self, local: &Local, has: impl Fn(&str) -> bool) -> Option<&'static str> {
        if has(local.name) {
            return Some(local.name);
        }
        let old = local.was.filter(|old| has(old))?;
        let claims = |other: &&Local| other.name == old || other.was == Some(old) && !has(other.name);
        (self.locals.iter().filter(claims).count() == 1).then_some(old)
    }
}
