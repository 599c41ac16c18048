//! Storage in terms of whole operations: each is one transaction, durable when its future is ready.
//!
//! What goes in and out is text and numbers; the store knows nothing of fibers' types. Every operation is atomic, and one
//! that fails has changed nothing. `sqlite` is the one implementation; `conformance` says what every implementation keeps to.
mod agents;
pub(crate) mod chat;
#[cfg(test)]
mod conformance;
mod ops;
pub(crate) mod sqlite;

use std::any::Any;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Weak};

use serde::{Deserialize, Serialize};

pub(crate) use agents::{AgentStore, FarSchedules, LeftAwake, NewSchedule, Ran, ScheduleRow, Timing};
pub use ops::OpState;
pub(crate) use ops::{OpKind, OpRecord, OpRow, OpStore, OpsBehind, ResolveOp, ResolvedOp, SettledOp, Transacted, Work};
pub use sqlite::user::Tx;

use crate::error::Result;
use crate::fiber::frame::BoxFuture;
use crate::fiber::owner::AgentId;
use crate::fiber::parts::{Beside, Changes};

/// The store's own number of a fiber: counts up in the order of acceptance.
pub(crate) type Seq = i64;

/// The store's own number of a worker: one open runtime, never given twice.
pub(crate) type WorkerId = i64;

/// How often a fiber was claimed, or changed by a command under the feet of its activations.
pub(crate) type Epoch = i64;

/// A fiber at an epoch: what every write of an activation is conditional on.
///
/// While the stored epoch is this one, no other activation has been claimed since, and no command has changed what the fiber goes on with. Once it
/// has moved on, every operation that takes the claim fails with [`ErrorKind::ClaimLost`](crate::ErrorKind::ClaimLost) and changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Claim {
    pub(crate) fiber: Seq,
    pub(crate) epoch: Epoch,
}

/// Result of asking for a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Claimed {
    /// The fiber is `running` under this claim: from now on the death of the worker counts as one of the fiber.
    Yes(Claim),
    /// The fiber had been told to end before it could run: it has ended so, with this.
    Ended(End),
    /// The fiber is another's, waits, has ended, or has been changed since it was looked at.
    No,
}

/// Where a fiber stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FiberState {
    /// Accepted, not yet entered.
    Pending,
    /// Entered by the process that owns the database.
    Running,
    /// Waiting for time, a message or another fiber.
    Waiting,
    /// Ended with a result.
    Completed,
    /// Ended with an error.
    Failed,
    /// Ended because it was told to.
    Cancelled,
    /// Stopped by no fault of its own; it goes on from its snapshot.
    Interrupted,
    /// Its snapshot does not fit the code; it goes on when the code does.
    Parked,
}

impl FiberState {
    pub(crate) const ALL: [FiberState; 8] = [
        FiberState::Pending,
        FiberState::Running,
        FiberState::Waiting,
        FiberState::Completed,
        FiberState::Failed,
        FiberState::Cancelled,
        FiberState::Interrupted,
        FiberState::Parked,
    ];

    /// The stored word.
    pub fn as_str(self) -> &'static str {
        match self {
            FiberState::Pending => "pending",
            FiberState::Running => "running",
            FiberState::Waiting => "waiting",
            FiberState::Completed => "completed",
            FiberState::Failed => "failed",
            FiberState::Cancelled => "cancelled",
            FiberState::Interrupted => "interrupted",
            FiberState::Parked => "parked",
        }
    }

    /// Whether the fiber has ended and will not run again by itself.
    pub fn is_final(self) -> bool {
        matches!(self, FiberState::Completed | FiberState::Failed | FiberState::Cancelled)
    }
}

impl fmt::Display for FiberState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for FiberState {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        FiberState::ALL.into_iter().find(|s| s.as_str() == word).ok_or_else(|| format!("`{word}` is not a state of a fiber"))
    }
}

/// A fiber to be accepted.
#[derive(Debug, Clone)]
pub(crate) struct NewFiber {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) key: Option<String>,
    /// Whether the program gave the id, which is remembered then when the fiber is deleted.
    pub(crate) id_given: bool,
    /// Whether it is a closure, of which only the stash outlives the process.
    pub(crate) closure: bool,
    /// JSON object of the arguments by name.
    pub(crate) args: String,
    /// JSON.
    pub(crate) metadata: Option<String>,
    pub(crate) agent: Option<AgentId>,
    /// The fiber that spawned it.
    pub(crate) parent: Option<Seq>,
    /// The worker that claims it in the same transaction; without one it is `pending`.
    pub(crate) worker: Option<WorkerId>,
    pub(crate) now_ms: i64,
}

/// Result of accepting a [`NewFiber`].
#[derive(Debug)]
pub(crate) enum Accepted {
    /// It is stored, and claimed if a worker was named.
    New(Claim),
    /// A fiber with the same id or key was there before.
    Existing(Box<FiberRow>),
    /// A fiber with the same id or key has ended and was deleted.
    Past(Box<PastFiber>),
}

/// What is remembered of a fiber that had a key or an id of the program's, after it was deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PastFiber {
    pub(crate) id: String,
    pub(crate) key: Option<String>,
    pub(crate) name: String,
    /// The [`digest`](crate::exact::digest) of its arguments.
    pub(crate) args: String,
    pub(crate) state: FiberState,
    pub(crate) finished_ms: i64,
}

/// A fiber as it is stored, without its snapshot.
#[derive(Debug, Clone)]
pub(crate) struct FiberRow {
    pub(crate) seq: Seq,
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) closure: bool,
    pub(crate) agent: Option<AgentId>,
    /// The id of the fiber that spawned it.
    pub(crate) parent: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) state: FiberState,
    /// Why it failed, was cancelled, interrupted or parked.
    pub(crate) reason: Option<String>,
    pub(crate) args: String,
    pub(crate) metadata: Option<String>,
    pub(crate) result: Option<String>,
    /// Checkpoints made.
    pub(crate) checkpoints: u64,
    /// The cut point it stands at.
    pub(crate) at: Option<String>,
    pub(crate) deaths: u32,
    pub(crate) created_ms: i64,
    pub(crate) finished_ms: Option<i64>,
}

/// Which fiber to look for.
#[derive(Debug, Clone)]
pub(crate) enum Find {
    Id(String),
    Key(String),
    Seq(Seq),
}

/// A fiber that has not ended and does not wait.
#[derive(Debug, Clone)]
pub(crate) struct Runnable {
    pub(crate) seq: Seq,
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) closure: bool,
    pub(crate) agent: Option<AgentId>,
    pub(crate) state: FiberState,
    /// How often the process died with it since its last checkpoint.
    pub(crate) deaths: u32,
}

/// What a fiber is entered with.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) args: String,
    /// The last checkpoint's snapshot, JSON; none before the first.
    pub(crate) snapshot: Option<String>,
    /// What is stored beside it.
    pub(crate) beside: Beside,
    /// Checkpoints made.
    pub(crate) number: u64,
    /// How often it was begun anew.
    pub(crate) restarts: u32,
    /// How often the process died with it since its last checkpoint.
    pub(crate) deaths: u32,
    /// The epoch at which it was looked at.
    pub(crate) epoch: Epoch,
    /// What it began since its last checkpoint.
    pub(crate) ops: Vec<OpRecord>,
    /// The layout the snapshot was written under.
    pub(crate) layout: Option<StoredLayout>,
}

/// A row of the table of layouts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredLayout {
    pub(crate) hash: String,
    pub(crate) fiber: String,
    /// JSON.
    pub(crate) layout: String,
}

/// A snapshot to be put in the place of the last one.
#[derive(Debug)]
pub(crate) struct NewSnapshot {
    pub(crate) number: u64,
    pub(crate) at: &'static str,
    pub(crate) data: String,
    pub(crate) now_ms: i64,
    /// Set when the stored snapshot was written under another layout, or none.
    pub(crate) layout: Option<StoredLayout>,
    /// What becomes of the operations since the last one.
    pub(crate) ops: OpsBehind,
    /// What changes beside `data`.
    pub(crate) changes: Changes,
    /// The message that was received, and goes.
    pub(crate) received: Option<i64>,
    /// Whether what steps side by side have left is taken up in this snapshot.
    pub(crate) joined: bool,
    /// The fibers that are made with it.
    pub(crate) children: Vec<NewFiber>,
}

/// What wakes a waiting fiber: whatever comes first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) due_ms: Option<i64>,
    pub(crate) topic: Option<String>,
    /// The ids of other fibers, all of which have to end.
    pub(crate) fibers: Vec<String>,
}

/// What became of a fiber that was to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waits {
    /// It waits.
    Yes,
    /// What it was to wait for is there already.
    No,
}

/// A message to a fiber.
#[derive(Debug, Clone)]
pub(crate) struct NewMessage {
    pub(crate) to: String,
    /// The sender's id of it: one that the fiber was sent before changes nothing.
    pub(crate) id: Option<String>,
    pub(crate) topic: String,
    /// Text of [`crate::exact`].
    pub(crate) data: String,
    pub(crate) now_ms: i64,
}

/// A message that was sent to a fiber and not yet received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) seq: i64,
    pub(crate) data: String,
}

/// Result of a command addressed to a fiber: decided on the stored state, in the transaction that carries it out.
#[derive(Debug)]
pub(crate) enum CommandResult<T> {
    Done(T),
    NotFound,
    /// The fiber is in a state in which the command is refused.
    InvalidState(FiberState),
}

/// Where a stopped fiber is to begin again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Restart {
    FromSnapshot,
    FromStart,
}

/// Result of a [`Restart`].
#[derive(Debug)]
pub(crate) enum Restarted {
    /// The fiber is ready.
    Ready,
    /// An operation of it, by id, may have been carried out, and would be repeated under another id.
    InDoubt(String),
}

/// Fibers that were told to end, as they stood before: those that run end in their own time, the others have ended.
pub(crate) type Cancelled = Vec<Runnable>;

/// Which fibers: all that agree with everything that is said here.
#[derive(Debug, Clone, Default)]
pub(crate) struct Which {
    pub(crate) states: Vec<FiberState>,
    pub(crate) name: Option<String>,
    pub(crate) class: Option<String>,
    pub(crate) agent: Option<String>,
    pub(crate) ended_before_ms: Option<i64>,
    /// Not those whose parent has not ended, or has failed and can be resumed: it may still ask for their results.
    pub(crate) not_needed: bool,
    /// Not those with an operation in doubt: an effect or one by hand that began, and of which no outcome is stored.
    pub(crate) settled: bool,
}

/// Fibers to be deleted: those that have ended and agree with a filter, a page at a time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Deletion {
    pub(crate) which: Which,
    /// Where the page before stopped; only where the filter is for one state.
    pub(crate) after: Option<EndedAt>,
    /// How many are looked at.
    pub(crate) limit: u32,
    /// The time now, if the keys and ids that the program gave are to be remembered.
    pub(crate) remember_ms: Option<i64>,
}

/// A place among the fibers of one state that have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EndedAt {
    pub(crate) finished_ms: i64,
    pub(crate) seq: Seq,
}

/// Result of a [`Deletion`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Deleted {
    pub(crate) count: u64,
    /// How many are kept: by constraints of the program's tables, or because what is to be remembered of them cannot be read.
    pub(crate) held: u64,
    /// Where the next page begins, if there may be one.
    pub(crate) next: Option<EndedAt>,
}

/// How a fiber ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// With this result, JSON.
    Completed(String),
    Failed(String),
    Cancelled(String),
}

/// Why a fiber that has not ended does not run.
#[derive(Debug, Clone)]
pub(crate) enum Suspend {
    Interrupted(String),
    Parked(String),
}

/// The ownership of a database, as it is seen by the tasks of the runtime that has it open.
#[derive(Debug, Clone)]
pub(crate) struct Ownership(Weak<dyn Any + Send + Sync>);

impl Ownership {
    /// Of what frees the database when it is dropped.
    pub(crate) fn of<T: Any + Send + Sync>(lock: &Arc<T>) -> Self {
        let lock: Arc<dyn Any + Send + Sync> = Arc::<T>::clone(lock);
        Ownership(Arc::downgrade(&lock))
    }

    /// Keeps the database until this is dropped; none if it may be another's by now.
    pub(crate) fn hold(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.0.upgrade()
    }
}

/// Receives every fiber that a committed transaction has made ready, before the caller of that transaction has its answer.
///
/// Only a hint: a fiber that is ready is `pending` in the store, and a sweep finds those of which nothing was heard.
pub(crate) type ReadySender = tokio::sync::mpsc::UnboundedSender<Runnable>;

/// The storage of fibers.
///
/// An operation that takes a [`Claim`] is conditional on it. One that makes fibers ready tells the [`ReadySender`] when it is durable.
pub(crate) trait FiberStore {
    /// Names the receiver of fibers that become ready.
    fn on_ready(&self, ready: ReadySender);

    /// Registers a worker, and takes over what those have left that are gone by then.
    fn join(&self, now_ms: i64) -> BoxFuture<'_, Result<WorkerId>>;

    /// Takes over the claims of workers that are gone: counts a death for each of their fibers, raises its epoch, and calls it interrupted. On
    /// SQLite all workers but `by` are gone, since the lock of the file is the lease.
    #[cfg_attr(not(test), allow(dead_code, reason = "a store of several workers takes over at other times than at `join`"))]
    fn take_over(&self, by: WorkerId, now_ms: i64) -> BoxFuture<'_, Result<()>>;

    /// Stores a fiber, unless one with its id or key is there.
    fn accept(&self, fiber: NewFiber) -> BoxFuture<'_, Result<Accepted>>;

    /// The fibers after `after` that have not ended and do not wait, oldest first.
    fn unfinished(&self, after: Seq, limit: u32) -> BoxFuture<'_, Result<Vec<Runnable>>>;

    /// The fibers that are ready and claimed by no worker, oldest first.
    fn ready(&self, after: Seq, limit: u32) -> BoxFuture<'_, Result<Vec<Runnable>>>;

    /// What is needed to enter a fiber, from one moment.
    fn load(&self, seq: Seq) -> BoxFuture<'_, Result<Stored>>;

    /// The epoch of a fiber, also of one that cannot be loaded; none once it has completed.
    fn epoch(&self, seq: Seq) -> BoxFuture<'_, Result<Option<Epoch>>>;

    /// Claims a fiber for a worker, raising its epoch, if it is ready, interrupted or parked, or already this worker's, and its epoch is the one at
    /// which it was looked at. One that was told to end ends instead.
    fn claim(&self, seen: Claim, worker: WorkerId, now_ms: i64) -> BoxFuture<'_, Result<Claimed>>;

    /// Replaces a fiber's snapshot; it has come further, so its deaths are forgotten. Gives the claims of the children made with it:
    /// a fiber that is told to end makes none, and is refused.
    fn checkpoint(&self, claim: Claim, snapshot: NewSnapshot) -> BoxFuture<'_, Result<Vec<Claim>>>;

    /// Replaces a closure fiber's stash; its deaths are forgotten.
    fn stash(&self, claim: Claim, data: String, now_ms: i64) -> BoxFuture<'_, Result<()>>;

    /// Keeps what one of several steps side by side has given, those that begin after checkpoint `number`; the fiber's deaths are
    /// forgotten.
    fn arrive(&self, claim: Claim, number: u64, n: u32, data: String) -> BoxFuture<'_, Result<()>>;

    /// What [`FiberStore::arrive`] kept.
    fn arrived(&self, seq: Seq, number: u64) -> BoxFuture<'_, Result<Vec<(u32, String)>>>;

    /// Lets a fiber wait, unless what it is to wait for is there.
    fn wait(&self, claim: Claim, wait: Wait, now_ms: i64) -> BoxFuture<'_, Result<Waits>>;

    /// Makes waiting fibers ready whose time has come, the earliest first. They are given back, and not told to the [`ReadySender`].
    fn take_due(&self, now_ms: i64, limit: u32) -> BoxFuture<'_, Result<Vec<Runnable>>>;

    /// When the next waiting fiber is due.
    fn next_due(&self) -> BoxFuture<'_, Result<Option<i64>>>;

    /// Stores a message, and wakes the fiber if it waits for it.
    fn send(&self, message: NewMessage) -> BoxFuture<'_, Result<CommandResult<()>>>;

    /// The oldest message of a topic.
    fn message(&self, seq: Seq, topic: &'static str) -> BoxFuture<'_, Result<Option<Message>>>;

    /// Ends a fiber, with operations that have ended but are not stored as such; gives how, which is cancelled if that was asked before. What its
    /// steps keep between attempts goes, and so do its messages and what has arrived, unless it failed and may be resumed; and its snapshot, when
    /// it has completed.
    fn end(&self, claim: Claim, end: End, settled: Vec<SettledOp>, now_ms: i64) -> BoxFuture<'_, Result<End>>;

    /// Takes a fiber out of the running ones without ending it. One that was told to end meanwhile ends as cancelled, which is given.
    fn suspend(&self, claim: Claim, suspend: Suspend, now_ms: i64) -> BoxFuture<'_, Result<Option<End>>>;

    /// Makes a claimed fiber ready again, from its start; only if no operation of it is in doubt.
    fn restart_claimed(&self, claim: Claim, now_ms: i64) -> BoxFuture<'_, Result<Restarted>>;

    /// Calls every fiber that a worker has claimed interrupted, without counting a death, and lets go of the database.
    fn close(&self, worker: WorkerId, now_ms: i64) -> BoxFuture<'_, Result<()>>;

    /// Lets go of the database at once, as a dying process would, and returns when it is free.
    fn abandon(&self);
}

/// Commands of people: each is decided on the stored state of its fiber, in one transaction.
pub(crate) trait AdminStore {
    /// Ends a fiber that is interrupted or parked.
    fn resolve(&self, id: String, end: End, now_ms: i64) -> BoxFuture<'_, Result<CommandResult<(FiberRow, End)>>>;

    /// Tells a fiber and all fibers below it to end: those that do not run have ended when this is ready.
    fn cancel(&self, id: String, reason: String, now_ms: i64) -> BoxFuture<'_, Result<CommandResult<Cancelled>>>;

    /// Makes a fiber that stopped ready again; from its start only if no operation of it is in doubt.
    fn restart(&self, id: String, how: Restart, now_ms: i64) -> BoxFuture<'_, Result<CommandResult<Restarted>>>;

    /// A fiber by id or key.
    fn find(&self, which: Find) -> BoxFuture<'_, Result<Option<FiberRow>>>;

    /// Fibers in the order of acceptance, after `after`.
    fn list(&self, which: Which, after: Seq, limit: u32) -> BoxFuture<'_, Result<Vec<FiberRow>>>;

    /// Deletes fibers that have ended, the oldest first, and leaves those that constraints of the program's tables keep.
    fn delete(&self, deletion: Deletion) -> BoxFuture<'_, Result<Deleted>>;

    /// What is remembered of a fiber that was deleted, by its id or key.
    fn past(&self, which: Find) -> BoxFuture<'_, Result<Option<PastFiber>>>;

    /// Forgets a page of what is remembered of the fibers of a deletion, and of those deleted before a time if there is one; says
    /// how many. The filter's agent means nothing here.
    fn forget(&self, deletion: Deletion, deleted_before_ms: Option<i64>) -> BoxFuture<'_, Result<u64>>;

    /// Copies the database, as it is at one moment, to a new file, which is on the disk when this is ready. Until then it
    /// has `part` in its name.
    fn back_up(&self, path: PathBuf, part: String) -> BoxFuture<'_, Result<()>>;

    /// What tasks hold while they run, so that nobody else opens the database.
    fn ownership(&self) -> Ownership;

    /// Sets how many pages the database may have, to try what happens on a full disk.
    fn limit_pages(&self, pages: u32) -> BoxFuture<'_, Result<()>>;
}

/// The storage of one runtime.
pub(crate) trait Store: FiberStore + AdminStore + AgentStore + OpStore + chat::ChatStore + Send + Sync + fmt::Debug {}

impl<S: FiberStore + AdminStore + AgentStore + OpStore + chat::ChatStore + Send + Sync + fmt::Debug> Store for S {}
