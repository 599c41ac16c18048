//! The layout: steps, locals, and the transitions between steps.
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

use crate::exact::hex;
use crate::frame::machine::{BranchSpec, Cut, CutKind, Local, LocalRole, Machine};
use crate::store::LayoutRow;

/// Layout of a fiber function: its steps, and the locals stored at each.
///
/// `Display` is a table for people, serde a stable form for storing; see [`of`](crate::layout::of).
///
/// ```
/// # use forever_runtime as forever;
/// use forever::fiber::Fiber;
/// use forever::layout::{self, Layout};
///
/// /// Text to keep under version control.
/// fn stored<F: Fiber>() -> serde_json::Result<String> {
///     let layout: Layout = layout::of::<F>();
///     println!("{layout}");
///     serde_json::to_string_pretty(&layout)
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    pub(super) format: Format,
    pub(super) fiber: String,
    pub(super) version: u32,
    pub(super) arguments: Vec<String>,
    /// The steps that may come first; `None` is the end of the function, here and in
    /// [`Step::next`].
    pub(super) first: Vec<Option<String>>,
    pub(super) steps: Vec<Step>,
    /// What is not shown, as [`Machine::secrets`] lists it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) secrets: Vec<String>,
}

/// One cut point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Step {
    pub(super) name: String,
    /// Whether the name is written in the source, not derived.
    pub(super) explicit: bool,
    /// For a derived name, a fingerprint of the body.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) body: String,
    /// Number of steps that share the name before `#`.
    pub(super) of: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) was: Option<String>,
    pub(super) kind: CutKind,
    /// Whether its body is an effect; for a `steps!(for ..)`, that of each item.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) effect: bool,
    /// The type that the macro puts around its value.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) wraps: String,
    pub(super) keeps: Vec<Kept>,
    /// Branches of a `steps!` that is not a `steps!(for ..)`, or the arms of a `select!`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) branches: Vec<Branch>,
    /// Topics written in the source.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) topics: Vec<String>,
    pub(super) next: Vec<Option<String>>,
}

/// One branch of `steps!(a, b, ..)`, or one arm of `select!`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Branch {
    pub(super) name: String,
    pub(super) explicit: bool,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) body: String,
    pub(super) of: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) was: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) effect: bool,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) wraps: String,
}

/// One local kept at a cut point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) name: String,
    /// Number of bindings that share the name before `#`.
    pub(super) of: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) was: Option<String>,
    /// Whether it is the value of the step itself, which a call under way does not have yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) result: bool,
    #[serde(default, skip_serializing_if = "is_value")]
    pub(super) role: LocalRole,
    pub(super) why: String,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(super) fn is_value(role: &LocalRole) -> bool {
    *role == LocalRole::Value
}

/// Version of the stored form; other versions cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Format;

pub(super) const FORMAT: u32 = 1;

impl Serialize for Format {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(FORMAT)
    }
}

impl<'de> Deserialize<'de> for Format {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u32::deserialize(deserializer)? {
            FORMAT => Ok(Format),
            other => Err(serde::de::Error::custom(format!("layout has format {other}, but only {FORMAT} can be read"))),
        }
    }
}

impl Layout {
    pub(crate) fn of(machine: &Machine) -> Self {
        let names = |cuts: &[u32]| cuts.iter().map(|&cut| machine.cuts.get(cut as usize).map(|c| c.name.to_owned())).collect();
        let step = |cut: &Cut| Step {
            name: cut.name.to_owned(),
            explicit: cut.explicit,
            body: if cut.explicit { String::new() } else { cut.body.to_owned() },
            of: cut.of,
            was: cut.was.map(str::to_owned),
            kind: cut.kind,
            effect: cut.effect,
            wraps: cut.wraps.to_owned(),
            keeps: cut.locals.iter().map(kept).collect(),
            branches: cut.branches.iter().map(branch).collect(),
            topics: cut.topics.iter().map(|&topic| topic.to_owned()).collect(),
            next: names(cut.next),
        };
        Layout {
            format: Format,
            fiber: machine.name.to_owned(),
            version: machine.version,
            arguments: machine.arguments.iter().map(|&name| name.to_owned()).collect(),
            first: names(machine.first),
            steps: machine.cuts.iter().map(step).collect(),
            secrets: machine.secrets.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    /// Stored name of the fiber function.
    pub fn fiber(&self) -> &str {
        &self.fiber
    }

    /// The `version = N` of the fiber function, or 0.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Hash of the layout: 32 hexadecimal digits, the same in every build.
    ///
    /// Code can resume snapshots of other code with the same hash. The hash covers everything
    /// except the reasons why locals are kept.
    pub fn hash(&self) -> String {
        let mut hash = Sha256::new();
        // Counts and lengths precede the data, so that different layouts never have the same bytes.
        let number = |hash: &mut Sha256, n: usize| hash.update((n as u64).to_be_bytes());
        let text = |hash: &mut Sha256, text: &str| {
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text);
        };
        text(&mut hash, "layout");
        text(&mut hash, &self.fiber);
        hash.update(self.version.to_be_bytes());
        number(&mut hash, self.arguments.len());
        for argument in &self.arguments {
            text(&mut hash, argument);
        }
        let follows = |hash: &mut Sha256, next: &[Option<String>]| {
            number(hash, next.len());
            for step in next {
                text(hash, step.as_deref().unwrap_or_default());
            }
        };
        follows(&mut hash, &self.first);
        number(&mut hash, self.steps.len());
        for step in &self.steps {
            text(&mut hash, &step.name);
            hash.update([u8::from(step.explicit)]);
            text(&mut hash, &step.body);
            hash.update(step.of.to_be_bytes());
            number(&mut hash, usize::from(step.was.is_some()));
            text(&mut hash, step.was.as_deref().unwrap_or_default());
            text(&mut hash, step.kind.word());
            number(&mut hash, step.keeps.len());
            for kept in &step.keeps {
                text(&mut hash, &kept.name);
                hash.update(kept.of.to_be_bytes());
                hash.update([u8::from(kept.result), u8::from(kept.was.is_some()), kept.role as u8]);
                text(&mut hash, kept.was.as_deref().unwrap_or_default());
            }
            number(&mut hash, step.branches.len());
            for branch in &step.branches {
                text(&mut hash, &branch.name);
                hash.update([u8::from(branch.explicit), u8::from(branch.was.is_some())]);
                text(&mut hash, &branch.body);
                hash.update(branch.of.to_be_bytes());
                text(&mut hash, branch.was.as_deref().unwrap_or_default());
                text(&mut hash, &branch.wraps);
            }
            number(&mut hash, step.topics.len());
            for topic in &step.topics {
                text(&mut hash, topic);
            }
            follows(&mut hash, &step.next);
        }
        number(&mut hash, self.secrets.len());
        for secret in &self.secrets {
            text(&mut hash, secret);
        }
        // Only where there are effects and wrapped values, so that other layouts keep the hashes
        // that they had before.
        for (place, step) in self.steps.iter().enumerate() {
            if !step.wraps.is_empty() {
                number(&mut hash, place);
                text(&mut hash, &step.wraps);
            }
            let branches = step.branches.iter().enumerate().filter(|(_, branch)| branch.effect).map(|(branch, _)| branch + 1);
            for branch in step.effect.then_some(0).into_iter().chain(branches) {
                number(&mut hash, place);
                number(&mut hash, branch);
            }
        }
        hex(&hash.finalize()[..16])
    }

    /// The layout as it is stored.
    pub(crate) fn row(&self) -> LayoutRow {
        // Names and numbers can always be written as JSON.
        let layout = serde_json::to_string(self).unwrap_or_default();
        LayoutRow { hash: self.hash(), fiber: self.fiber.clone(), layout }
    }

    /// Whether a step may receive on a topic; computed topics may be any.
    pub(crate) fn receives(&self, topic: &str) -> bool {
        let mut waits = self.steps.iter().filter(|step| matches!(step.kind, CutKind::Recv | CutKind::Select));
        waits.any(|step| step.topics.is_empty() || step.topics.iter().any(|there| there == topic))
    }

    /// The role of a local that is kept at a cut point.
    pub(crate) fn role(&self, at: &str, name: &str) -> Option<LocalRole> {
        self.step(at)?.kept(name).map(|kept| kept.role)
    }

    /// Whether the value with this stored name is not shown.
    pub(crate) fn is_secret(&self, name: &str) -> bool {
        // It may be the text of an expression, and has words of its own behind a variable's name.
        let mut words = name.split(|char: char| !char.is_alphanumeric() && char != '_');
        words.any(|word| self.secrets.iter().any(|secret| secret == word))
    }

    /// What may be secret, as [`Machine::secrets`] lists it.
    pub(crate) fn secrets(&self) -> &[String] {
        &self.secrets
    }

    pub(super) fn step(&self, name: &str) -> Option<&Step> {
        self.steps.iter().find(|step| step.name == name)
    }
}

pub(super) fn kept(local: &Local) -> Kept {
    Kept {
        name: local.name.to_owned(),
        of: local.of,
        was: local.was.map(str::to_owned),
        result: local.result,
        role: local.role,
        why: local.why.to_owned(),
    }
}

pub(super) fn branch(branch: &BranchSpec) -> Branch {
    let BranchSpec { name, stored: _, explicit, of, body, was, effect, decides: _, wraps } = *branch;
    let body = if explicit { String::new() } else { body.to_owned() };
    Branch { name: name.to_owned(), explicit, body, of, was: was.map(str::to_owned), effect, wraps: wraps.to_owned() }
}

impl CutKind {
    /// Name of the kind in messages.
    pub(crate) fn word(self) -> &'static str {
        match self {
            CutKind::Step => "step",
            CutKind::Call => "call",
            CutKind::Pending => "pending",
            CutKind::Steps => "steps",
            CutKind::Sleep => "sleep",
            CutKind::Recv => "recv",
            CutKind::Spawn => "spawn",
            CutKind::Wait => "wait",
            CutKind::Select => "select",
        }
    }
}

impl Step {
    /// The name before `#`, which steps of a derived name share.
    pub(super) fn base(&self) -> &str {
        if self.explicit { &self.name } else { base(&self.name) }
    }

    pub(super) fn kept(&self, name: &str) -> Option<&Kept> {
        self.keeps.iter().find(|kept| kept.name == name)
    }
}

/// The part of a name before `#`: `search` for `search#2`.
pub(super) fn base(name: &str) -> &str {
    match name.rsplit_once('#') {
        Some((base, number)) if !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) => base,
        _ => name,
    }
}
