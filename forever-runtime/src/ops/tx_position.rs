//! Position of a transaction in the code: the step or branch that it is in.
use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::frame::branch_names::StoredBranch;
use crate::frame::machine::{Cut, Machine};
use crate::layout::rows::row_of;
use crate::store::LayoutRow;

/// Position of a run between two checkpoints.
#[derive(Debug, Default)]
pub(crate) struct TxPosition(Mutex<Stand>);

#[derive(Debug, Default)]
struct Stand {
    /// Steps that began, and calls that ended in an error, since the last checkpoint.
    entered: u32,
    /// The step under way, with its function.
    step: Option<(&'static Machine, &'static Cut)>,
    /// The branch of a `steps!` that is being polled.
    branch: Option<Arc<StoredBranch>>,
    /// Transactions without a key that the attempt under way has come to.
    met: BTreeSet<Name>,
}

/// Position of a transaction.
#[derive(Debug)]
pub(crate) struct TransactionPlace {
    pub(crate) function: String,
    /// Layout of the function; `None` between steps.
    pub(crate) layout: Option<Arc<LayoutRow>>,
    /// Name of the step, or of the branch of a `steps!`; empty between steps.
    pub(crate) step: String,
    /// Earlier names of the step.
    pub(crate) was: Vec<String>,
    /// The key, as canonical JSON.
    pub(crate) key: Option<String>,
    /// Its name with the key; without one, with its number among the steps since the checkpoint.
    pub(crate) which: String,
}

/// Branch and name of a transaction without a key.
pub(super) type Name = (Option<String>, String);

impl TxPosition {
    /// Begins a step.
    pub(crate) fn begin(&self, machine: &'static Machine, cut: &'static Cut) {
        let mut stand = self.stand();
        *stand = Stand { entered: stand.entered.saturating_add(1), step: Some((machine, cut)), ..Stand::default() };
    }

    /// Begins an attempt of a step, which comes to the same transactions as the one before.
    pub(crate) fn attempt(&self) {
        let mut stand = self.stand();
        // Those of other branches stay.
        let branch = stand.branch.as_ref().map(|branch| branch.name.clone());
        stand.met.retain(|(of, _)| *of != branch);
    }

    /// Name of the branch of a `steps!` that is being polled.
    pub(crate) fn branch(&self) -> Option<String> {
        self.stand().branch.as_ref().map(|branch| branch.name.clone())
    }

    /// The function and the name of the step under way.
    pub(crate) fn step(&self) -> Option<(&'static str, &'static str)> {
        self.stand().step.map(|(machine, cut)| (machine.name, cut.name))
    }

    /// Resets the position at a checkpoint.
    pub(crate) fn passed(&self) {
        *self.stand() = Stand::default();
    }

    /// Counts the end of a called function, which may be an error that its caller handles.
    pub(crate) fn returned(&self) {
        let mut stand = self.stand();
        *stand = Stand { entered: stand.entered.saturating_add(1), ..Stand::default() };
    }

    /// Polls a branch of a `steps!`, which has names of its own.
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

    /// Marks the transaction without a key that begins now; `None` where the attempt under way has
    /// come to another one of that name.
    pub(super) fn meets(&self, name: &str) -> Option<Name> {
        let mut stand = self.stand();
        let name = (stand.branch.as_ref().map(|branch| branch.name.clone()), name.to_owned());
        stand.met.insert(name.clone()).then_some(name)
    }

    /// The transaction has not been done, and may be tried again.
    pub(super) fn may_meet_again(&self, name: &Name) {
        self.stand().met.remove(name);
    }

    /// The position of the transaction that begins now, in a fiber of `function`.
    pub(crate) fn place(&self, function: &str, name: &str, key: Option<String>) -> TransactionPlace {
        let stand = self.stand();
        let which = match &key {
            // Also when the step is entered again.
            Some(key) => format!("{name} key {key}"),
            None => format!("{name} number {}", stand.entered),
        };
        let (step, was) = match (&stand.branch, stand.step) {
            (Some(branch), _) => (branch.name.clone(), branch.was.clone()),
            (None, Some((_, cut))) => (cut.name.to_owned(), cut.was.map(str::to_owned).into_iter().collect()),
            (None, None) => (String::new(), Vec::new()),
        };
        let machine = stand.step.map(|(machine, _)| machine);
        let (function, layout) = (machine.map_or(function, |machine| machine.name).to_owned(), machine.map(row_of));
        TransactionPlace { function, layout, step, was, key, which }
    }

    /// Locks the position. No panic under this lock leaves it inconsistent, so poison is ignored.
    fn stand(&self) -> MutexGuard<'_, Stand> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
