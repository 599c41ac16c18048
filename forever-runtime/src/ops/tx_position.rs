//! Where a transaction stands in the code, which tells it from the others of its step.
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::panic::Location;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::frame::branch_names::StoredBranch;
use crate::frame::machine::{Cut, Machine};
use crate::layout::rows::row_of;
use crate::store::LayoutRow;

/// Where a run stands between two checkpoints.
#[derive(Debug, Default)]
pub(crate) struct TxPosition(Mutex<Stand>);

#[derive(Debug, Default)]
pub(crate) struct Stand {
    /// How many steps have begun, and calls have ended in an error, since the last checkpoint.
    entered: u32,
    /// The step under way, with its function.
    step: Option<(&'static Machine, &'static Cut)>,
    /// The branch of a `steps!` that is polled.
    branch: Option<Arc<StoredBranch>>,
    /// How many transactions have no key, in the attempt under way, by branch.
    made: BTreeMap<Option<String>, u32>,
}

/// The trait of fiber functions, as the names of closures in their bodies have it.
const TRAIT: &str = "forever_runtime::frame::fiber::Fiber";

/// The name of a closure's type by the function that it stands in.
fn stable_name(work: &str) -> String {
    let name = work.replace(TRAIT, "Fiber");
    let function = name.trim_end_matches("::{{closure}}");
    if function.len() < name.len() { format!("{function}::{{{{closure}}}}") } else { name }
}

/// The call of a transaction without a key, in the source.
#[derive(Debug)]
pub(crate) struct CallSite {
    /// Line, column and types, without the modules of this library and without how deep generated code
    /// nests the closure.
    text: String,
    /// The same as version 6 of the schema had it.
    version_6: String,
}

impl CallSite {
    pub(crate) fn new(at: &Location<'_>, work: &str, value: &str) -> Self {
        let (line, column, function) = (at.line(), at.column(), stable_name(work));
        let text = format!("{line}:{column} {function} {value}");
        // The trait stood in another module then.
        let function = work.replace(TRAIT, "forever_runtime::fiber::Fiber");
        CallSite { text, version_6: format!("{line}:{column} {function} {value}") }
    }
}

/// Where a transaction stands.
#[derive(Debug)]
pub(crate) struct TransactionPlace {
    pub(crate) function: String,
    /// Its layout; none between steps.
    pub(crate) layout: Option<Arc<LayoutRow>>,
    /// The step, or the branch of a `steps!`; empty between steps.
    pub(crate) step: String,
    /// What it was called before.
    pub(crate) was: Vec<String>,
    /// The `steps!` of a branch.
    pub(crate) steps: Option<&'static str>,
    /// Canonical JSON.
    pub(crate) key: Option<String>,
    /// What tells it from the others of the step.
    pub(crate) which: String,
    /// What told it in earlier versions of this library.
    pub(crate) before: Vec<String>,
}

impl TxPosition {
    /// A step begins.
    pub(crate) fn begin(&self, machine: &'static Machine, cut: &'static Cut) {
        let mut stand = self.stand();
        *stand = Stand { entered: stand.entered.saturating_add(1), step: Some((machine, cut)), ..Stand::default() };
    }

    /// An attempt of a step begins: it comes to the same transactions as the one before.
    pub(crate) fn attempt(&self) {
        let mut stand = self.stand();
        // Those of the other branches go on.
        let branch = stand.branch.as_ref().map(|branch| branch.name.clone());
        stand.made.remove(&branch);
    }

    /// A checkpoint is made.
    pub(crate) fn passed(&self) {
        *self.stand() = Stand::default();
    }

    /// A function that was called has ended, perhaps in an error that its caller handles.
    pub(crate) fn returned(&self) {
        let mut stand = self.stand();
        *stand = Stand { entered: stand.entered.saturating_add(1), ..Stand::default() };
    }

    /// Polls a branch of a `steps!`, which counts by itself.
    pub(crate) async fn in_branch<T>(&self, branch: Arc<StoredBranch>, body: impl Future<Output = T>) -> T {
        let mut body = pin!(body);
        poll_fn(|cx| {
            let outer = self.stand().branch.replace(Arc::clone(&branch));
            let polled = body.as_mut().poll(cx);
            self.stand().branch = outer;
            polled
        })
        .await
    }

    /// The place of the transaction that begins now.
    pub(crate) fn place(&self, name: &str, key: Option<String>, stands: &CallSite) -> TransactionPlace {
        let mut stand = self.stand();
        let (entered, branch) = (stand.entered, stand.branch.clone());
        // Before version 6 there were none in branches.
        let is_in_branch = branch.is_some();
        let (which, mut before, version_5) = if let Some(key) = &key {
            // It says by itself which one is meant, also when the step is entered anew.
            (format!("key {key}"), Vec::new(), format!("key  {key}"))
        } else {
            let made = stand.made.entry(branch.as_ref().map(|branch| branch.name.clone())).or_default();
            *made += 1;
            let number = format!("number {entered} {made} at ");
            (format!("{number}{}", stands.text), vec![format!("{number}{}", stands.version_6)], format!("number {entered}  {made}"))
        };
        if !is_in_branch {
            before.push(version_5);
        }
        let cut = stand.step.map(|(_, cut)| cut);
        let (step, was) = match (&branch, cut) {
            (Some(branch), _) => (branch.name.clone(), branch.was.clone()),
            (None, Some(cut)) => (cut.name.to_owned(), cut.was.map(str::to_owned).into_iter().collect()),
            (None, None) => (String::new(), Vec::new()),
        };
        let machine = stand.step.map(|(machine, _)| machine);
        let (function, layout) = (machine.map_or(name, |machine| machine.name).to_owned(), machine.map(row_of));
        TransactionPlace { function, layout, step, was, steps: branch.and(cut).map(|cut| cut.name), key, which, before }
    }

    /// Nothing under this lock can panic half way, so a poisoned one is as good as any.
    pub(crate) fn stand(&self) -> MutexGuard<'_, Stand> {
        locked(&self.0)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
