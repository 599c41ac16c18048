//! Stored layouts, and the code that wrote a snapshot.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::frame::machine::Machine;
use crate::frame::snapshot::Snapshot;
use crate::layout::problem::Problem;
use crate::layout::spec::Layout;
use crate::store::{LayoutRow, LoadedFiber, OpKind, OpRecord, OpState};

/// The layout rows of this program's functions, each made once. They depend on constants only, so
/// all runtimes share them.
static ROWS: RwLock<BTreeMap<usize, (&'static Machine, Arc<LayoutRow>)>> = RwLock::new(BTreeMap::new());

/// The stored form of a function's layout.
pub(crate) fn row_of(machine: &'static Machine) -> Arc<LayoutRow> {
    // A machine is static, so its address identifies it.
    let place = std::ptr::from_ref(machine) as usize;
    if let Some((_, row)) = ROWS.read().unwrap_or_else(PoisonError::into_inner).get(&place) {
        return Arc::clone(row);
    }
    let row = Arc::new(Layout::of(machine).row());
    Arc::clone(&ROWS.write().unwrap_or_else(PoisonError::into_inner).entry(place).or_insert((machine, row)).1)
}

/// The functions that this process has entered or registered.
pub(crate) fn machines() -> Vec<&'static Machine> {
    ROWS.read().unwrap_or_else(PoisonError::into_inner).values().map(|(machine, _)| *machine).collect()
}

/// Whether one of [`machines`] has values marked `#[secret]`. A process without functions cannot
/// know what those of others have.
pub(crate) fn may_have_secrets() -> bool {
    let rows = ROWS.read().unwrap_or_else(PoisonError::into_inner);
    rows.is_empty() || rows.values().any(|(machine, _)| !machine.secrets.is_empty())
}

/// One of [`machines`] by its stored name, that with a layout if there are several.
pub(crate) fn machine_of(name: &str, layout: Option<&str>) -> Option<&'static Machine> {
    let rows = ROWS.read().unwrap_or_else(PoisonError::into_inner);
    let of_name = || rows.values().filter(|(machine, _)| machine.name == name);
    let found = of_name().find(|(_, row)| Some(row.hash.as_str()) == layout).or_else(|| of_name().next());
    found.map(|(machine, _)| *machine)
}

impl Layout {
    /// Reads the layout of a row.
    pub(crate) fn read(row: &LayoutRow) -> Result<Self, String> {
        serde_json::from_str(&row.layout).map_err(|e| format!("the layout `{}` it was left under cannot be read: {e}", row.hash))
    }
}

/// The code that wrote a snapshot, as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct LeftUnder {
    /// Layouts of the functions on the call stack.
    pub(crate) callees: Vec<LayoutRow>,
    /// Branches whose results are stored since the snapshot.
    branches: Vec<BranchUnder>,
    /// Their values, until the `steps!` begins.
    results: Mutex<BTreeMap<String, String>>,
    /// Operations that began since the snapshot, and that the code has to identify.
    unsettled: Vec<Unsettled>,
    /// Functions whose values could not be read by an earlier activation, by their depth of calls:
    /// their `migrate` functions are called.
    pub(crate) unreadable: BTreeSet<u32>,
    /// Whether a `migrate` function has made the snapshot, and so is responsible for the rows
    /// beside it.
    migrated: AtomicBool,
}

/// An operation that an earlier run has begun.
#[derive(Debug)]
struct Unsettled {
    id: String,
    kind: OpKind,
    function: String,
    step: String,
    /// Layout under which it began; `None` for that of the snapshot.
    layout: Option<Arc<LayoutRow>>,
}

/// A branch whose result an earlier run has stored.
#[derive(Debug)]
struct BranchUnder {
    name: String,
    /// Layout under which it was stored; `None` for that of the snapshot.
    layout: Option<Arc<LayoutRow>>,
}

impl LeftUnder {
    /// The data stored of a fiber beside its snapshot.
    pub(crate) fn of(stored: &LoadedFiber) -> Self {
        let counts = |op: &&OpRecord| match op.kind {
            OpKind::Effect | OpKind::Transaction => matches!(op.state, OpState::Started | OpState::Completed),
            // Failed attempts alone are not worth parking: in the worst case another step has fewer
            // attempts.
            OpKind::Step => op.stash.is_some() || op.failed == 0,
            OpKind::ByHand => false,
        };
        let unsettled = |op: &OpRecord| Unsettled {
            id: op.id.clone(),
            kind: op.kind,
            function: op.function.clone(),
            step: op.step.clone(),
            layout: op.layout.clone(),
        };
        LeftUnder {
            callees: stored.callees.clone(),
            branches: stored.branches.iter().map(|b| BranchUnder { name: b.branch.clone(), layout: b.layout.clone() }).collect(),
            results: Mutex::new(stored.branches.iter().map(|b| (b.branch.clone(), b.data.clone())).collect()),
            unsettled: stored.ops.iter().filter(counts).map(unsettled).collect(),
            ..LeftUnder::default()
        }
    }

    /// Whether the values of the function at this depth of calls could not be read.
    pub(crate) fn is_unreadable(&self, depth: u32) -> bool {
        self.unreadable.contains(&depth)
    }

    /// Records that a `migrate` function has made the snapshot, or a part of it.
    pub(crate) fn migrate(&self) {
        self.migrated.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_migrated(&self) -> bool {
        self.migrated.load(Ordering::Relaxed)
    }

    /// The layout under which a callee's snapshot was written.
    pub(crate) fn layout(&self, hash: &str) -> Result<Layout, String> {
        let row = self.callees.iter().find(|row| row.hash == hash);
        Layout::read(row.ok_or_else(|| format!("the layout `{hash}` it was left under is not stored"))?)
    }

    /// Branch results stored since the snapshot.
    #[cfg(feature = "testing")]
    pub(crate) fn with_results(results: BTreeMap<String, String>) -> Self {
        LeftUnder { results: Mutex::new(results), ..LeftUnder::default() }
    }

    /// Functions with operations that the code has to identify.
    pub(crate) fn functions(&self) -> BTreeSet<&str> {
        let of_branches = self.branches.iter().filter_map(|branch| branch.layout.as_ref()).map(|layout| layout.fiber.as_str());
        self.unsettled.iter().map(|op| op.function.as_str()).chain(of_branches).collect()
    }

    /// The stored results of branches, for the `steps!` that begins.
    pub(crate) fn take_results(&self) -> BTreeMap<String, String> {
        std::mem::take(&mut *self.results.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether results of branches are stored.
    pub(crate) fn has_results(&self) -> bool {
        !self.results.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Checks that a function can identify everything that began under another layout than its own
    /// and that of its snapshot, which has this hash.
    ///
    /// An activation under changed code may store branch results and begin operations before its
    /// first checkpoint. They use the names of that code, while the snapshot before them uses the
    /// names of older code.
    pub(crate) fn check_begun(&self, machine: &'static Machine, snapshot: Option<&str>) -> Result<(), String> {
        let is_others = |layout: &&Arc<LayoutRow>| {
            layout.fiber == machine.name && Some(layout.hash.as_str()) != snapshot && layout.hash != row_of(machine).hash
        };
        let branches = self.branches.iter().filter_map(|branch| Some((branch, branch.layout.as_ref().filter(is_others)?)));
        for (branch, layout) in branches {
            let (code, old) = (Layout::of(machine), Layout::read(layout)?);
            code.check_branch(&old, &branch.name).map_err(|drift| drift.to_string())?;
        }
        let unsettled = self.unsettled.iter().filter_map(|op| Some((op, op.layout.as_ref().filter(is_others)?)));
        for (op, layout) in unsettled {
            Layout::of(machine)
                .tells(&Layout::read(layout)?, &op.step, op.kind == OpKind::Effect)
                .map_err(|problem| op.cannot_be_told(&problem))?;
        }
        Ok(())
    }

    /// Checks that code can resume a snapshot written under `old`.
    pub(crate) fn check(&self, code: &Layout, old: &Layout, snapshot: &Snapshot) -> Result<(), String> {
        let hash = old.hash();
        // Only the innermost function can be in the middle of a `steps!`.
        let of_snapshot = |layout: &Option<Arc<LayoutRow>>| layout.as_ref().is_none_or(|layout| layout.hash == hash);
        let branches = self.branches.iter().filter(|branch| of_snapshot(&branch.layout) && snapshot.call.is_none());
        let branches: Vec<&str> = branches.map(|branch| branch.name.as_str()).collect();
        code.check_with(Some(old), snapshot, &branches).map_err(|drift| drift.to_string())?;
        for op in self.unsettled.iter().filter(|op| of_snapshot(&op.layout) && op.function == code.fiber) {
            code.tells(old, &op.step, op.kind == OpKind::Effect).map_err(|problem| op.cannot_be_told(&problem))?;
        }
        Ok(())
    }
}

impl Unsettled {
    /// Why the fiber must wait until the step of an operation is identified.
    fn cannot_be_told(&self, problem: &Problem) -> String {
        let Unsettled { id, kind, step, .. } = self;
        if *kind == OpKind::Step {
            return format!("step `{step}` has stored a stash or a log, and which step that is now cannot be told, {problem}");
        }
        if let Problem::EffectGone { .. } = problem {
            return format!("operation `{id}` may have executed; verify, then resolve it: {problem}");
        }
        format!("operation `{id}` may have executed; verify, then resolve it: which step began it cannot be told, {problem}")
    }
}
