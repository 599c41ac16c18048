//! Layouts as they are stored, and what is known of the code that left a snapshot.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::super::machine::Machine;
use super::super::snapshot::Snapshot;
use super::Layout;
use crate::store::{LayoutRow, LoadedFiber, OpKind, OpRecord, OpState};

/// The rows of the functions that were called, each made once.
#[derive(Debug, Default)]
pub(crate) struct LayoutRows(Mutex<BTreeMap<usize, Arc<LayoutRow>>>);

impl LayoutRows {
    /// The row of a function, registered or not.
    pub(crate) fn of(&self, machine: &'static Machine) -> Arc<LayoutRow> {
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A machine is static: its address is its own for as long as the program runs.
        let place = std::ptr::from_ref(machine) as usize;
        Arc::clone(rows.entry(place).or_insert_with(|| Arc::new(Layout::of(machine).row())))
    }
}

impl LayoutRow {
    /// The layout in the row; `Err` says why it cannot be read.
    pub(crate) fn read(&self) -> Result<Layout, String> {
        serde_json::from_str(&self.layout).map_err(|e| format!("the layout `{}` it was left under cannot be read: {e}", self.hash))
    }
}

/// What is known of the code that left a snapshot.
#[derive(Debug, Default)]
pub(crate) struct LeftUnder {
    /// The layouts of the functions that were being called.
    pub(crate) callees: Vec<LayoutRow>,
    /// Names of the branch results that are stored since the snapshot.
    pub(crate) branches: Vec<String>,
    /// The effects and transactions that were begun since the snapshot.
    pub(crate) unsettled: Vec<Unsettled>,
    /// The functions whose values could not be read when the fiber was entered before, by their depth of calls: their `migrate` functions are
    /// asked.
    pub(crate) unreadable: BTreeSet<u32>,
    /// Whether a `migrate` function has made the snapshot, and so answers for what is stored beside it.
    migrated: AtomicBool,
}

/// An operation that an earlier run has begun.
#[derive(Debug, Clone)]
pub(crate) struct Unsettled {
    pub(crate) id: String,
    pub(crate) function: String,
    pub(crate) step: String,
}

impl LeftUnder {
    /// What is stored of a fiber beside its snapshot.
    pub(crate) fn of(stored: &LoadedFiber) -> Self {
        let may_be_done = |op: &&OpRecord| {
            matches!(op.kind, OpKind::Effect | OpKind::Transaction) && matches!(op.state, OpState::Started | OpState::Completed)
        };
        let unsettled = |op: &OpRecord| Unsettled { id: op.id.clone(), function: op.function.clone(), step: op.step.clone() };
        LeftUnder {
            callees: stored.callees.clone(),
            branches: stored.branches.clone(),
            unsettled: stored.ops.iter().filter(may_be_done).map(unsettled).collect(),
            ..LeftUnder::default()
        }
    }

    /// Whether the values of the function at this depth of calls could not be read.
    pub(crate) fn is_unreadable(&self, depth: u32) -> bool {
        self.unreadable.contains(&depth)
    }

    /// A `migrate` function has made the snapshot, or a part of it.
    pub(crate) fn migrate(&self) {
        self.migrated.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_migrated(&self) -> bool {
        self.migrated.load(Ordering::Relaxed)
    }

    /// The layout that a callee's snapshot was left under.
    pub(crate) fn layout(&self, hash: &str) -> Result<Layout, String> {
        let row = self.callees.iter().find(|row| row.hash == hash);
        row.ok_or_else(|| format!("the layout `{hash}` it was left under is not stored"))?.read()
    }

    /// Whether code can resume a snapshot that was left under `old`; `Err` says why not.
    pub(crate) fn check(&self, code: &Layout, old: &Layout, snapshot: &Snapshot) -> Result<(), String> {
        // Only the innermost function can be in the middle of a `steps!`.
        let branches = if snapshot.call.is_none() { self.branches.as_slice() } else { &[] };
        code.check_with(Some(old), snapshot, branches).map_err(|drift| drift.to_string())?;
        for Unsettled { id, step, .. } in self.unsettled.iter().filter(|op| op.function == code.fiber) {
            code.tells(old, step).map_err(|problem| {
                format!("operation `{id}` may have executed; verify before retrying: which step began it cannot be told, {problem}")
            })?;
        }
        Ok(())
    }
}
