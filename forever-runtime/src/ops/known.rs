//! The operations of a fiber as one run of it knows them.
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};
use tokio::sync::watch;

use crate::error::{Error, ErrorKind, Result};
use crate::exact::hex;
use crate::frame::branch_names::parts_of_branch;
use crate::frame::machine::{Cut, Machine};
use crate::layout::rows::{LeftUnder, row_of};
use crate::ops::tx_position::TransactionPlace;
use crate::secret::are_secret;
use crate::store::{LoadedFiber, OpKind, OpOutcome, OpRecord, OpState, OpsDelta};

/// What earlier runs have left.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// Checkpoints made so far, over all processes.
    pub(crate) checkpoints: u64,
    /// How often the fiber was restarted from its beginning.
    pub(crate) restarts: u32,
    /// The operations that began since the last checkpoint.
    pub(crate) ops: Vec<OpRecord>,
    /// The layout of the code that wrote the snapshot.
    pub(crate) under: LeftUnder,
    /// Whether its arguments may be secret.
    pub(crate) is_secret: bool,
}

impl Left {
    /// Takes the part of a loaded fiber that its operations need.
    pub(crate) fn of(stored: &mut LoadedFiber, unreadable: &BTreeSet<u32>) -> Self {
        let mut under = LeftUnder::of(stored);
        under.unreadable.clone_from(unreadable);
        let is_secret = are_secret(&stored.args);
        Left { checkpoints: stored.number, restarts: stored.restarts, ops: std::mem::take(&mut stored.ops), under, is_secret }
    }
}

/// The operations of one run.
pub(crate) struct Ops {
    /// The fiber's id.
    pub(crate) fiber: String,
    /// How often the fiber was restarted from its beginning.
    restarts: u32,
    /// The checkpoint count at which the run resumed; `None` for a first run.
    resumed_at: Option<u64>,
    known: Mutex<Known>,
    /// Notified of each decision about an operation, and of each that is not under way any more.
    changes: watch::Sender<()>,
    told: watch::Sender<Told>,
}

/// What the code of a run hears from outside.
#[derive(Debug, Clone, Copy, Default)]
struct Told {
    cancelled: bool,
    closing: bool,
}

#[derive(Debug, Default)]
struct Known {
    /// All operations with a record that began since the last checkpoint, by id.
    open: BTreeMap<String, OpRecord>,
    /// The effects among them that an earlier run began, or whose outcome is unknown; and whether
    /// this run has come to them.
    doubtful: BTreeMap<String, bool>,
    /// The operations in doubt about which nothing is decided yet.
    undecided: BTreeSet<String>,
    /// Outcomes to store with the next checkpoint.
    settled: BTreeMap<String, OpOutcome>,
    /// Transactions that an earlier run has committed, until this run comes to their step.
    committed: BTreeSet<String>,
    /// The same transactions, until this run comes to the transaction itself.
    unmet: BTreeSet<String>,
    /// Effects and manual operations that are under way.
    under_way: BTreeMap<Arc<str>, OpKind>,
    /// Whether outcomes of effects wait for the next checkpoint, or for its end.
    unstored: bool,
}

impl Known {
    fn doubtful(&self) -> impl Iterator<Item = &OpRecord> {
        self.doubtful.keys().filter_map(|id| self.open.get(id))
    }

    fn undecided(&self) -> impl Iterator<Item = &OpRecord> {
        self.undecided.iter().filter_map(|id| self.open.get(id))
    }

    /// Effects of an earlier run to which this run has not come.
    fn passed_over(&self) -> impl Iterator<Item = &OpRecord> {
        self.doubtful.iter().filter(|(_, come_to)| !**come_to).filter_map(|(id, _)| self.open.get(id))
    }

    /// Effects that come before any other: they were or may have been executed, and this run has
    /// not come to them.
    fn due(&self) -> impl Iterator<Item = &OpRecord> {
        self.passed_over().filter(|op| is_or_may_be_done(op))
    }
}

fn is_or_may_be_done(op: &OpRecord) -> bool {
    matches!(op.state, OpState::Started | OpState::Completed)
}

/// Place of an operation in a program.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) kind: OpKind,
    pub(crate) machine: &'static Machine,
    pub(crate) step: Cow<'static, str>,
    /// Earlier names of the step.
    pub(crate) was: Vec<Cow<'static, str>>,
    /// The `steps!` that has the operation as a branch.
    pub(crate) steps: Option<&'static Cut>,
    /// Canonical JSON of the key, which is part of the id.
    pub(crate) key: Option<String>,
    /// Checkpoints made so far.
    pub(crate) number: u64,
}

impl Place {
    /// Whether an operation is of this step, with any key.
    fn is_of(&self, op: &OpRecord) -> bool {
        op.function == self.machine.name && (op.step == self.step || self.was.iter().any(|was| op.step == *was))
    }

    /// Whether both are branches of one `steps!`, which decides about all its branches before any
    /// begins.
    fn is_beside(&self, op: &OpRecord) -> bool {
        op.function == self.machine.name && self.steps.is_some_and(|steps| is_branch_of(steps, &op.step))
    }

    /// The record of an operation that begins here.
    fn record(self, id: String) -> OpRecord {
        let Place { kind, machine, step, was: _, steps: _, key, number } = self;
        OpRecord { layout: Some(row_of(machine)), ..OpRecord::begun(id, kind, machine.name, &step, key, Some(number)) }
    }
}

/// Whether a stored step is a branch of this `steps!`, under its name or an earlier one.
pub(crate) fn is_branch_of(steps: &Cut, step: &str) -> bool {
    parts_of_branch(step).any(|(of, _)| steps.has(of))
}

impl Ops {
    /// Operations of the first run of a fiber, without records.
    pub(crate) fn first(fiber: &str) -> Self {
        Ops { resumed_at: None, ..Ops::again(fiber, Left::default()) }
    }

    /// Operations of a later run.
    pub(crate) fn again(fiber: &str, left: Left) -> Self {
        let effects = || left.ops.iter().filter(|op| op.kind == OpKind::Effect);
        let doubtful = effects().map(|op| (op.id.clone(), false)).collect();
        let undecided = effects().filter(|op| op.state == OpState::Started).map(|op| op.id.clone()).collect();
        let is_committed = |op: &&OpRecord| op.kind == OpKind::Transaction && op.state == OpState::Completed;
        let committed: BTreeSet<String> = left.ops.iter().filter(is_committed).map(|op| op.id.clone()).collect();
        let unmet = committed.clone();
        let open = left.ops.into_iter().map(|op| (op.id.clone(), op)).collect();
        Ops {
            fiber: fiber.to_owned(),
            restarts: left.restarts,
            resumed_at: Some(left.checkpoints),
            known: Mutex::new(Known { open, doubtful, undecided, committed, unmet, ..Known::default() }),
            changes: watch::Sender::new(()),
            told: watch::Sender::default(),
        }
    }

    /// Whether an earlier run may have left operations that began after this checkpoint.
    pub(crate) fn may_be_left(&self, checkpoints: u64) -> bool {
        self.resumed_at == Some(checkpoints)
    }

    /// The record of a plain step, created if there is none.
    pub(crate) fn of_step(&self, place: Place) -> OpRecord {
        let id = self.id_at(&place);
        self.known().open.get(&id).cloned().unwrap_or_else(|| place.record(id))
    }

    /// Finds an effect or transaction of an earlier run that has to be decided before the body of a
    /// step may begin, and is not `its_own`.
    pub(crate) fn comes_first(&self, its_own: impl Fn(&OpRecord) -> bool) -> Option<OpRecord> {
        let mut known = self.known();
        let Known { open, committed, .. } = &mut *known;
        // A transaction that was committed between two steps prevents none of them from beginning.
        committed.retain(|id| open.get(id).is_some_and(|op| !op.step.is_empty() && !its_own(op)));
        let transactions = known.committed.iter().filter_map(|id| known.open.get(id));
        known.due().chain(transactions).find(|op| !its_own(op)).cloned()
    }

    /// The record of the effect at a place, created if there is none, and whether its outcome is in
    /// doubt. `Err` when the place has an operation of another key, which this one must not repeat
    /// silently, or when another operation has to be decided first.
    pub(super) fn of_effect(&self, place: Place) -> Result<(OpRecord, bool), String> {
        let its_own = |op: &OpRecord| place.is_of(op) || place.is_beside(op);
        if let Some(op) = self.comes_first(its_own) {
            return Err(must_come_first(&op, &place.step));
        }
        let id = self.id_at(&place);
        let mut known = self.known();
        if let Some(record) = known.open.get(&id).cloned() {
            let doubtful = known.doubtful.get_mut(&id).map(|come_to| *come_to = true).is_some();
            return Ok((record, doubtful));
        }
        match known.doubtful().find(|op| place.is_of(op) && is_or_may_be_done(op)) {
            None => Ok((place.record(id), false)),
            Some(there) => Err(format!(
                "operation `{}` of step `{}` was begun with key {} and is met again with key {}: what it was begun for {}; let the step come \
                 to the same key again, or resolve the operation as not executed",
                there.id,
                place.step,
                there.key.as_deref().unwrap_or("none"),
                place.key.as_deref().unwrap_or("none"),
                if there.state == OpState::Started { "may have been done" } else { "has been done" },
            )),
        }
    }

    /// The id of the operation at a place; it has the step's earlier name if it began under that.
    fn id_at(&self, place: &Place) -> String {
        let id = |step: &str| stable_id(place.kind, &self.fiber, place.machine.name, step, place.number, place.key.as_deref());
        let before = place.was.iter().map(|was| id(was)).find(|id| self.known().open.contains_key(id));
        before.unwrap_or_else(|| id(&place.step))
    }

    /// Whether an undecided operation of an earlier run satisfies a condition.
    pub(crate) fn is_in_doubt(&self, which: impl Fn(&OpRecord) -> bool) -> bool {
        self.known().undecided().any(which)
    }

    /// Records that an operation is decided.
    pub(super) fn has_decided(&self, id: &str) {
        if self.known().undecided.remove(id) {
            // The error says that there is no receiver.
            let _ = self.changes.send(());
        }
    }

    /// Waits until no operation is undecided.
    pub(crate) async fn decided(&self) {
        let mut changes = self.changes.subscribe();
        while self.is_in_doubt(|_| true) {
            // The sender is in `self`, so the wait cannot fail.
            let _ = changes.changed().await;
        }
    }

    /// Marks operations as come to: their results are stored elsewhere, so the code need not come
    /// to them.
    pub(crate) fn come_to(&self, these: impl Fn(&OpRecord) -> bool) {
        let mut known = self.known();
        let Known { open, doubtful, .. } = &mut *known;
        doubtful.iter_mut().filter(|(id, _)| open.get(*id).is_some_and(&these)).for_each(|(_, come_to)| *come_to = true);
    }

    /// Marks an operation of this run as in doubt.
    pub(super) fn doubt(&self, id: &str) {
        self.known().doubtful.insert(id.to_owned(), true);
    }

    /// The record of a manual operation that begins.
    pub(super) fn by_hand(&self, function: &str, kind: &str, key: String) -> OpRecord {
        let id = id_by_hand(&self.fiber, kind, &key, self.restarts);
        OpRecord::begun(id, OpKind::ByHand, function, kind, Some(key), None)
    }

    /// The record of a transaction; that of an earlier run, if it was committed then. `Err` when
    /// the step has a committed one that may or may not be this one.
    pub(super) fn of_transaction(&self, place: TransactionPlace, number: u64) -> Result<OpRecord, String> {
        let TransactionPlace { function, layout, step, was, key, which } = place;
        let id = |step: &str| {
            let mut hash = parts(&[OpKind::Transaction.as_str(), &self.fiber, &function, step, &which]);
            hash.update(number.to_be_bytes());
            hex(&hash.finalize()[..16])
        };
        let mut known = self.known();
        let there = was.iter().chain([&step]).map(|step| id(step)).find(|id| known.open.contains_key(id));
        if let Some(record) = there.and_then(|id| known.open.get(&id).cloned()) {
            known.unmet.remove(&record.id);
            return Ok(record);
        }
        let is_here = |op: &OpRecord| op.function == function && (op.step == step || was.contains(&op.step));
        // A transaction with a key is a different one from those with other keys.
        let may_be = |op: &&OpRecord| is_here(op) && (key.is_none() || op.key.is_none() || op.key == key);
        if let Some(committed) = known.unmet.iter().filter_map(|id| known.open.get(id)).find(may_be) {
            return Err(cannot_be_told(committed, &step));
        }
        Ok(OpRecord { layout, ..OpRecord::begun(id(&step), OpKind::Transaction, &function, &step, key, Some(number)) })
    }

    /// Removes a record that could not be stored.
    pub(super) fn forget(&self, id: &str) {
        self.known().open.remove(id);
    }

    /// Adds a record as stored.
    pub(super) fn remember(&self, record: &OpRecord) {
        if record.kind != OpKind::ByHand {
            let mut known = self.known();
            known.settled.remove(&record.id);
            known.doubtful.remove(&record.id);
            known.open.insert(record.id.clone(), record.clone());
        }
    }

    /// Settles an operation: its outcome is stored with the next checkpoint, or at the end of the
    /// fiber.
    pub(super) fn settle(&self, record: &OpRecord) {
        let mut known = self.known();
        known.doubtful.remove(&record.id);
        known.open.insert(record.id.clone(), record.clone());
        let settled = OpOutcome { number: record.number, id: record.id.clone(), state: record.state, outcome: record.outcome.clone() };
        known.settled.insert(record.id.clone(), settled);
        known.unstored = true;
    }

    /// A checkpoint has stored the outcomes before it.
    pub(crate) fn stored(&self) {
        if std::mem::take(&mut self.known().unstored) {
            let _ = self.changes.send(());
        }
    }

    /// What a checkpoint changes of the operations before it; `Err` when the checkpoint must not be
    /// made.
    pub(crate) fn pass(&self) -> Result<OpsDelta, String> {
        let mut known = self.known();
        let committed = known.committed.iter().filter_map(|id| known.open.get(id)).filter(|op| !op.step.is_empty());
        if let Some(op) = known.due().chain(committed).next() {
            return Err(passed_over(op));
        }
        let temporary = known.open.values().any(|op| op.kind.is_temporary());
        let behind = OpsDelta { temporary, settled: std::mem::take(&mut known.settled).into_values().collect() };
        known.open.clear();
        known.doubtful.clear();
        known.undecided.clear();
        known.committed.clear();
        known.unmet.clear();
        Ok(behind)
    }

    /// Why the fiber must not complete: an operation of an earlier run to which this run has not
    /// come. `None` if it may.
    pub(crate) fn passed_over(&self) -> Option<String> {
        self.known().passed_over().find(|op| op.state == OpState::Started).map(passed_over)
    }

    /// Takes the outcomes since the last checkpoint, for the end of the fiber.
    pub(crate) fn take_settled(&self) -> Vec<OpOutcome> {
        std::mem::take(&mut self.known().settled).into_values().collect()
    }

    /// Marks an operation as under way, unless it is.
    pub(super) fn begins(&self, id: Arc<str>, kind: OpKind) -> bool {
        self.known().under_way.insert(id, kind).is_none()
    }

    /// Marks an operation as not under way.
    pub(super) fn is_over(&self, id: &str) {
        if self.known().under_way.remove(id).is_some() {
            let _ = self.changes.send(());
        }
    }

    /// Waits until no operation of such a kind is under way, or has an outcome that is not stored.
    pub(crate) async fn over(&self, which: impl Fn(OpKind) -> bool) {
        let is_under_way = || {
            let known = self.known();
            known.under_way.values().any(|kind| which(*kind)) || known.unstored && which(OpKind::Effect)
        };
        let mut changes = self.changes.subscribe();
        while is_under_way() {
            // The sender is in `self`, so the wait cannot fail.
            let _ = changes.changed().await;
        }
    }

    /// Ready when the fiber is cancelled.
    pub(crate) async fn cancelled(&self) {
        self.is_told(|told| told.cancelled).await;
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.told.borrow().cancelled
    }

    /// Ready when the runtime closes.
    pub(crate) async fn closing(&self) {
        self.is_told(|told| told.closing).await;
    }

    /// Ready when the fiber is to leave memory: it is cancelled, or the runtime closes.
    pub(crate) async fn to_leave(&self) {
        self.is_told(|told| told.cancelled || told.closing).await;
    }

    async fn is_told(&self, what: impl FnMut(&Told) -> bool) {
        // The sender is in `self`, so the wait cannot fail.
        let _ = self.told.subscribe().wait_for(what).await;
    }

    /// Tells the code that its fiber is cancelled.
    pub(crate) fn cancel(&self) {
        self.told.send_modify(|told| told.cancelled = true);
    }

    /// Tells the code that the runtime closes.
    pub(crate) fn close(&self) {
        self.told.send_modify(|told| told.closing = true);
    }

    /// Locks what is known. No panic under this lock leaves it inconsistent, so poison is ignored.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a checkpoint, or the end of the fiber, must not come before an operation is decided.
pub(crate) fn passed_over(op: &OpRecord) -> String {
    let OpRecord { id, step, .. } = op;
    format!(
        "operation `{id}` {}: the code continues without its step `{step}`, and could begin it anew elsewhere; give the step back, or write \
         `was = \"{step}\"` at the step that it is now",
        what_is_known(op)
    )
}

/// What the code has to do about a committed transaction, which a checkpoint has not confirmed.
pub(crate) fn has_to_be_met(op: &OpRecord) -> String {
    let place = if op.step.is_empty() { "before its next step".to_owned() } else { format!("in step `{}`", op.step) };
    format!("transaction `{}` is committed, and the code has to come to it {place} under its name and key", op.id)
}

fn what_is_known(op: &OpRecord) -> &'static str {
    if op.state == OpState::Started { "may have executed; verify, then resolve it" } else { "has executed" }
}

/// Why it is not known whether a committed transaction is one of this step, which has changed.
fn cannot_be_told(op: &OpRecord, step: &str) -> String {
    let place = if step.is_empty() { "between two steps".to_owned() } else { format!("in step `{step}`") };
    format!(
        "transaction `{}` {place} is committed, and the code has changed: whether it is the one that the code comes to now cannot be told; \
         give transactions keys, `.key(..)`, and let the old code finish this step",
        op.id
    )
}

/// Why a step must not begin before an operation is decided.
pub(crate) fn must_come_first(op: &OpRecord, next: &str) -> String {
    let OpRecord { id, step, function, .. } = op;
    let what = if op.kind == OpKind::Transaction { "transaction" } else { "operation" };
    let known = what_is_known(op);
    if step == next {
        return format!(
            "{what} `{id}` {known}: step `{step}` of `{function}` is another one now, or no effect any more; make it the effect that it was"
        );
    }
    let resolve = if op.state == OpState::Started { ", or resolve the operation as not executed" } else { "" };
    format!(
        "{what} `{id}` {known}: the code comes to step `{next}` before step `{step}` of `{function}`, which began it; let it come to that \
         step first (`was = \"{step}\"` if it was renamed){resolve}"
    )
}

/// The error of an operation whose outcome is unknown.
pub(super) fn unknown(op: &OpRecord, why: &str) -> Error {
    Error::new(ErrorKind::OpUnknown, may_have_executed(op, why))
}

/// Why a fiber is parked, or a step has failed, for an operation whose outcome is unknown.
pub(crate) fn may_have_executed(op: &OpRecord, why: &str) -> String {
    format!("operation `{}` may have executed; verify, then resolve it: step `{}` {why}", op.id, op.step)
}

/// The id of an operation in a function. A hash has one length, and tells the other side nothing of
/// the fiber.
fn stable_id(kind: OpKind, fiber: &str, function: &str, step: &str, checkpoints: u64, key: Option<&str>) -> String {
    let mut hash = parts(&[kind.as_str(), fiber, function, step]);
    hash.update(checkpoints.to_be_bytes());
    if let Some(key) = key {
        hash.update(key);
    }
    hex(&hash.finalize()[..16])
}

/// The id of a manual operation.
fn id_by_hand(fiber: &str, kind: &str, key: &str, restarts: u32) -> String {
    let mut hash = parts(&[OpKind::ByHand.as_str(), fiber, kind, key]);
    hash.update(restarts.to_be_bytes());
    hex(&hash.finalize()[..16])
}

/// The record of an operation as one of another fiber; `Err` for one whose id cannot be made anew.
pub(crate) fn of_another_fiber(op: OpRecord, fiber: &str, restarts: u32) -> Result<OpRecord, String> {
    let id = match (op.kind, op.number, op.key.as_deref()) {
        (OpKind::Step | OpKind::Effect, Some(number), key) => stable_id(op.kind, fiber, &op.function, &op.step, number, key),
        (OpKind::ByHand, _, Some(key)) => id_by_hand(fiber, &op.step, key, restarts),
        (OpKind::Step | OpKind::Effect | OpKind::ByHand | OpKind::Transaction, ..) => {
            return Err(format!(
                "transaction `{}` was committed since the last checkpoint, and would be carried out again: let the fiber come to its next \
                 checkpoint first",
                op.id
            ));
        }
    };
    Ok(OpRecord { id, ..op })
}

fn parts(parts: &[&str]) -> Sha256 {
    let mut hash = Sha256::new();
    for part in parts {
        // The length prefix keeps two different lists of parts from giving the same text.
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::op::tests::MACHINE;

    /// The place of an effect at a step of the function.
    fn effect(step: &'static str) -> Place {
        Place { kind: OpKind::Effect, machine: &MACHINE, step: step.into(), was: Vec::new(), steps: None, key: None, number: 1 }
    }

    /// The operations of a run that resumed with an effect of the step `pay` in doubt.
    fn in_doubt() -> Ops {
        let id = stable_id(OpKind::Effect, "fiber-1", MACHINE.name, "pay", 1, None);
        Ops::again("fiber-1", Left { checkpoints: 1, ops: vec![effect("pay").record(id)], ..Left::default() })
    }

    #[test]
    fn no_effect_begins_before_one_in_doubt() {
        assert!(in_doubt().of_effect(effect("fee")).unwrap_err().contains("comes to step `fee` before step `pay`"));
        assert!(in_doubt().of_effect(effect("pay")).unwrap().1, "it is the one in doubt");
        assert!(!Ops::first("fiber-1").of_effect(effect("fee")).unwrap().1);
    }

    #[test]
    fn no_checkpoint_passes_over_an_operation_in_doubt() {
        assert!(in_doubt().pass().unwrap_err().contains("continues without its step `pay`"));
        let met = in_doubt();
        met.of_effect(effect("pay")).unwrap();
        assert!(met.pass().is_ok());
    }

    #[test]
    fn no_fiber_completes_over_an_operation_in_doubt() {
        assert!(in_doubt().passed_over().is_some());
        assert!(Ops::first("fiber-1").passed_over().is_none());
    }

    #[test]
    fn parts_do_not_run_together() {
        let id = |fiber, function, key| stable_id(OpKind::Step, fiber, function, "d", 0, key);
        assert_ne!(id("a", "bc", None), id("ab", "c", None));
        assert_ne!(id("a", "b", None), id("a", "b", Some("null")));
    }
}
