//! Stored names of the branches of `steps!`: `both[fetch]` for a branch, `pages["law"]` for an item
//! of a list.
use std::collections::BTreeMap;

use crate::frame::machine::{BranchSpec, Cut};
use crate::store::{OpKind, OpRecord};

/// The stored name of a branch: `both[fetch]`.
pub(crate) fn branch_name(steps: &str, branch: &str) -> String {
    format!("{steps}[{branch}]")
}

/// The names that a stored branch may have in the code: `both` and `fetch` for `both[fetch]`. Both
/// may contain brackets.
pub(crate) fn parts_of_branch(name: &str) -> impl Iterator<Item = (&str, &str)> {
    let inner = name.strip_suffix(']');
    inner.into_iter().flat_map(|inner| inner.match_indices('[').filter_map(move |(at, _)| Some((inner.get(..at)?, inner.get(at + 1..)?))))
}

/// Stored names of one branch: its own, and those from before it was renamed.
#[derive(Debug)]
pub(crate) struct StoredBranch {
    pub(crate) name: String,
    pub(crate) was: Vec<String>,
    /// Whether its body is an effect.
    pub(crate) effect: bool,
}

impl StoredBranch {
    pub(crate) fn named(cut: &Cut, branch: &BranchSpec) -> Self {
        Self::new(cut, branch.name, branch.was, branch.effect)
    }

    /// The branch of an item of a `steps!(for ..)`.
    pub(crate) fn of_item(cut: &Cut, item: &str) -> Self {
        Self::new(cut, item, None, cut.effect)
    }

    pub(crate) fn new(cut: &Cut, branch: &str, was: Option<&str>, effect: bool) -> Self {
        let steps = || std::iter::once(cut.name).chain(cut.was);
        let names = || std::iter::once(branch).chain(was);
        let mut all = steps().flat_map(|steps| names().map(move |branch| branch_name(steps, branch)));
        let name = all.next().unwrap_or_default();
        StoredBranch { name, was: all.collect(), effect }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.name == name || self.was.iter().any(|was| was == name)
    }

    /// Whether an operation of the function belongs to this branch.
    pub(crate) fn is_of(&self, function: &str, op: &OpRecord) -> bool {
        op.function == function && self.has(&op.step)
    }

    /// Whether it can settle an operation of its name: only an effect settles an effect of an
    /// earlier run.
    pub(crate) fn settles(&self, op: &OpRecord) -> bool {
        self.effect || op.kind != OpKind::Effect
    }

    /// Whether there is a result for it under one of its names.
    pub(crate) fn is_in(&self, results: &BTreeMap<String, String>) -> bool {
        results.keys().any(|name| self.has(name))
    }
}
