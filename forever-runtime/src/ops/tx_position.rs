//! Position of a transaction in the code, which identifies it among those of its step.
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::panic::Location;
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
pub(crate) struct Stand {
    /// Steps that began, and calls that ended in an error, since the last checkpoint.
    entered: u32,
    /// The function under way.
    function: Option<&'static Machine>,
    /// The step under way, with its function.
    step: Option<(&'static Machine, &'static Cut)>,
    /// The branch of a `steps!` that is being polled.
    branch: Option<Arc<StoredBranch>>,
    /// Number of transactions without a key in the attempt under way, by branch.
    made: BTreeMap<Option<String>, u32>,
}

/// Path of the trait of fiber functions, as it is in the type names of closures in their bodies.
const TRAIT: &str = "forever_runtime::frame::fiber::Fiber";

/// The type name of a closure, reduced to the function that contains it.
fn stable_name(work: &str) -> String {
    let name = work.replace(TRAIT, "Fiber");
    let function = name.trim_end_matches("::{{closure}}");
    if function.len() < name.len() { format!("{function}::{{{{closure}}}}") } else { name }
}

/// What is known of a transaction without a key.
#[derive(Debug)]
pub(crate) struct CallSite {
    /// Whether its closure is written in the body of a fiber function.
    is_in_body: bool,
    /// Line, column and function, without the modules of this library and without the nesting depth
    /// of the closure in generated code.
    place: String,
    /// Type of its result.
    value: String,
}

impl CallSite {
    pub(crate) fn new(at: &Location<'_>, work: &str, value: &str) -> Self {
        let place = format!("{}:{} {}", at.line(), at.column(), stable_name(work));
        CallSite { is_in_body: work.contains(TRAIT), place, value: value.to_owned() }
    }

    /// Text that identifies the transaction among those of a step, or of what is between steps.
    ///
    /// In the body of a fiber function that is the text around it: another transaction may come to
    /// be at its line. A closure elsewhere has no text here, so there its place has to be the same
    /// too.
    fn identity(&self, text: &str) -> String {
        let place = if self.is_in_body && !text.is_empty() { "" } else { &self.place };
        format!("{place} {} {text}", self.value)
    }
}

impl Stand {
    /// Text around a transaction: a fingerprint of its step or branch, or what the function is
    /// between its steps. Empty if the text of the function is not in the program.
    fn text(&self) -> &'static str {
        match self.step {
            Some((_, cut)) => {
                let branch = self.branch.as_ref().and_then(|branch| cut.branches.iter().find(|spec| spec.stored == branch.name));
                branch.map_or(cut.body, |branch| branch.body)
            }
            None => self.function.and_then(|machine| machine.source).map_or("", |source| source.text),
        }
    }
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
    /// Text that identifies the transaction among those of the step.
    pub(crate) which: String,
    /// Text around a transaction without a key.
    pub(crate) text: Option<&'static str>,
}

impl TxPosition {
    /// Begins a step.
    pub(crate) fn begin(&self, machine: &'static Machine, cut: &'static Cut) {
        let mut stand = self.stand();
        *stand =
            Stand { entered: stand.entered.saturating_add(1), function: Some(machine), step: Some((machine, cut)), ..Stand::default() };
    }

    /// Enters a function.
    pub(crate) fn enter(&self, machine: &'static Machine) {
        self.stand().function = Some(machine);
    }

    /// Begins an attempt of a step, which comes to the same transactions as the one before.
    pub(crate) fn attempt(&self) {
        let mut stand = self.stand();
        // The counts of other branches continue.
        let branch = stand.branch.as_ref().map(|branch| branch.name.clone());
        stand.made.remove(&branch);
    }

    /// Name of the branch of a `steps!` that is being polled.
    pub(crate) fn branch(&self) -> Option<String> {
        self.stand().branch.as_ref().map(|branch| branch.name.clone())
    }

    /// Resets the position at a checkpoint.
    pub(crate) fn passed(&self) {
        let mut stand = self.stand();
        *stand = Stand { function: stand.function, ..Stand::default() };
    }

    /// Counts the end of a called function, which may be an error that its caller handles.
    pub(crate) fn returned(&self, caller: &'static Machine) {
        let mut stand = self.stand();
        *stand = Stand { entered: stand.entered.saturating_add(1), function: Some(caller), ..Stand::default() };
    }

    /// Polls a branch of a `steps!`, which has a count of its own.
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

    /// The position of the transaction that begins now.
    pub(crate) fn place(&self, name: &str, key: Option<String>, stands: &CallSite) -> TransactionPlace {
        let mut stand = self.stand();
        let (entered, branch) = (stand.entered, stand.branch.clone());
        let cut = stand.step.map(|(_, cut)| cut);
        let (which, text) = if let Some(key) = &key {
            // The key alone identifies the transaction, also when the step is entered again.
            (format!("key {key}"), None)
        } else {
            let made = stand.made.entry(branch.as_ref().map(|branch| branch.name.clone())).or_default();
            *made += 1;
            let made = *made;
            let text = stand.text();
            (format!("number {entered} {made} at {}", stands.identity(text)), Some(text))
        };
        let (step, was) = match (&branch, cut) {
            (Some(branch), _) => (branch.name.clone(), branch.was.clone()),
            (None, Some(cut)) => (cut.name.to_owned(), cut.was.map(str::to_owned).into_iter().collect()),
            (None, None) => (String::new(), Vec::new()),
        };
        let machine = stand.step.map(|(machine, _)| machine);
        let (function, layout) = (machine.map_or(name, |machine| machine.name).to_owned(), machine.map(row_of));
        TransactionPlace { function, layout, step, was, key, which, text }
    }

    /// Locks the position. No panic under this lock leaves it inconsistent, so poison is ignored.
    pub(crate) fn stand(&self) -> MutexGuard<'_, Stand> {
        locked(&self.0)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
