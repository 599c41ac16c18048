//! Layouts as they are stored, and what is known of the code that left a snapshot.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::frame::machine::Machine;
use crate::frame::snapshot::Snapshot;
use crate::layout::problem::Problem;
use crate::layout::spec::Layout;
use crate::store::{LayoutRow, LoadedFiber, OpKind, OpRecord, OpState};

/// The rows of the functions of this program, each made once. They are made of constants alone, so
/// one for all runtimes is enough.
static ROWS: RwLock<BTreeMap<usize, (&'static Machine, Arc<LayoutRow>)>> = RwLock::new(BTreeMap::new());

/// The stored form of a function's layout.
pub(crate) fn row_of(machine: &'static Machine) -> Arc<LayoutRow> {
    // A machine is static: its address is its own for as long as the program runs.
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

/// One of [`machines`] by its stored name, that with a layout if there are several.
pub(crate) fn machine_of(name: &str, layout: Option<&str>) -> Option<&'static Machine> {
    let rows = ROWS.read().unwrap_or_else(PoisonError::into_inner);
    let of_name = || rows.values().filter(|(machine, _)| machine.name == name);
    let found = of_name().find(|(_, row)| Some(row.hash.as_str()) == layout).or_else(|| of_name().next());
    found.map(|(machine, _)| *machine)
}

impl Layout {
    /// The layout in a row; `Err` says why it cannot be read.
    pub(crate) fn read(row: &LayoutRow) -> Result<Self, String> {
        serde_json::from_str(&row.layout).map_err(|e| format!("the layout `{}` it was left under cannot be read: {e}", row.hash))
    }
}

/// What is known of the code that left a snapshot.
#[derive(Debug, Default)]
pub(crate) struct LeftUnder {
    /// The layouts of the functions that were being called.
    pub(crate) callees: Vec<LayoutRow>,
    /// The branches whose results are stored since the snapshot.
    branches: Vec<BranchUnder>,
    /// Their values, until the `steps!` begins.
    results: Mutex<BTreeMap<String, String>>,
    /// The operations that were begun since the snapshot, and that the code has to tell.
    unsettled: Vec<Unsettled>,
    /// The functions whose values could not be read when the fiber was entered before, by their
    /// depth of calls: their `migrate` functions are asked.
    pub(crate) unreadable: BTreeSet<u32>,
    /// Whether a `migrate` function has made the snapshot, and so answers for what is stored beside
    /// it.
    migrated: AtomicBool,
}

/// An operation that an earlier run has begun.
#[derive(Debug)]
struct Unsettled {
    id: String,
    kind: OpKind,
    function: String,
    step: String,
    /// The layout that it began under; `None` for that of the snapshot.
    layout: Option<Arc<LayoutRow>>,
}

/// A branch whose result an earlier run has stored.
#[derive(Debug)]
struct BranchUnder {
    name: String,
    /// The layout that it was stored under; `None` for that of the snapshot.
    layout: Option<Arc<LayoutRow>>,
}

impl LeftUnder {
    /// What is stored of a fiber beside its snapshot.
    pub(crate) fn of(stored: &LoadedFiber) -> Self {
        let counts = |op: &&OpRecord| match op.kind {
            OpKind::Effect | OpKind::Transaction => matches!(op.state, OpState::Started | OpState::Completed),
            // Failed attempts alone are not worth a person's time: another step would be given
            // fewer of them.
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
        Layout::read(row.ok_or_else(|| format!("the layout `{hash}` it was left under is not stored"))?)
    }

    /// What branches have given that is stored since the snapshot.
    #[cfg(feature = "testing")]
    pub(crate) fn with_results(results: BTreeMap<String, String>) -> Self {
        LeftUnder { results: Mutex::new(results), ..LeftUnder::default() }
    }

    /// The functions that have begun something that the code has to tell.
    pub(crate) fn functions(&self) -> BTreeSet<&str> {
        let of_branches = self.branches.iter().filter_map(|branch| branch.layout.as_ref()).map(|layout| layout.fiber.as_str());
        self.unsettled.iter().map(|op| op.function.as_str()).chain(of_branches).collect()
    }

    /// The results of branches that earlier runs have stored, for the `steps!` that begins.
    pub(crate) fn take_results(&self) -> BTreeMap<String, String> {
        std::mem::take(&mut *self.results.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether a function can tell what it has begun under other layouts than its own and that of
    /// its snapshot, which has this hash; `Err` says why not.
    ///
    /// An activation under changed code may store results of branches and begin operations before
    /// its first checkpoint. They are in the names of that code, and the snapshot before them is in
    /// those of the code before it.
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
            Layout::of(machine).tells(&Layout::read(layout)?, &op.step).map_err(|problem| op.cannot_be_told(&problem))?;
        }
        Ok(())
    }

    /// Whether code can resume a snapshot that was left under `old`; `Err` says why not.
    pub(crate) fn check(&self, code: &Layout, old: &Layout, snapshot: &Snapshot) -> Result<(), String> {
        let hash = old.hash();
        // Only the innermost function can be in the middle of a `steps!`.
        let of_snapshot = |layout: &Option<Arc<LayoutRow>>| layout.as_ref().is_none_or(|layout| layout.hash == hash);
        let branches = self.branches.iter().filter(|branch| of_snapshot(&branch.layout) && snapshot.call.is_none());
        let branches: Vec<&str> = branches.map(|branch| branch.name.as_str()).collect();
        code.check_with(Some(old), snapshot, &branches).map_err(|drift| drift.to_string())?;
        for op in self.unsettled.iter().filter(|op| of_snapshot(&op.layout) && op.function == code.fiber) {
            code.tells(old, &op.step).map_err(|problem| op.cannot_be_told(&problem))?;
        }
        Ok(())
    }
}

impl Unsettled {
    /// Why nothing can go on before it is known which step began it.
    fn cannot_be_told(&self, problem: &Problem) -> String {
        let Unsettled { id, kind, step, .. } = self;
        if *kind == OpKind::Step {
            return format!("step `{step}` has stored a stash or a log, and which step that is now cannot be told, {problem}");
        }
        format!("operation `{id}` may have executed; verify before retrying: which step began it cannot be told, {problem}")
    }
}
