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

use std::fmt;
use std::str::FromStr;

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
    /// Whether it is a closure, of which only the stash outlives the process.
    pub(crate) closure: bool,
    /// JSON object of the arguments by name.
    pub(crate) args: String,
    /// JSON.
    pub(crate) metadata: Option<String>,
    pub(crate) agent: Option<AgentId>,
    /// The fiber that spawned it.
    pub(crate) parent: Option<Seq>,
    pub(crate) now_ms: i64,
}

/// What became of a [`NewFiber`].
#[derive(Debug)]
pub(crate) enum Accepted {
    /// It is stored as running: the caller enters it now.
    New(Seq),
    /// A fiber with the same id or key was there before.
    Existing(Box<FiberRow>),
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

/// A fiber that has not ended and is to be entered.
#[derive(Debug, Clone)]
pub(crate) struct Unfinished {
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

/// What became of something that was asked of a fiber by id.
#[derive(Debug)]
pub(crate) enum Asked<T> {
    Done(T),
    /// There is no such fiber.
    Unknown,
    /// The fiber stands where this cannot be asked of it.
    Not(FiberState),
}

/// How a fiber that stopped is made to run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    FromSnapshot,
    FromStart,
}

/// What became of a fiber that is to run again.
#[derive(Debug)]
pub(crate) enum RunsAgain {
    Yes(Unfinished),
    /// An operation of it, by id, may have been carried out, and would be repeated under another id.
    InDoubt(String),
}

/// Fibers that were told to end.
#[derive(Debug, Default)]
pub(crate) struct Cancelled {
    /// All of them, as they stood before; those that run end in their own time, the others have ended.
    pub(crate) fibers: Vec<Unfinished>,
    /// Other fibers, that waited for one that has ended with this.
    pub(crate) woken: Vec<Unfinished>,
}

/// Which fibers: all that agree with everything that is said here.
#[derive(Debug, Clone, Default)]
pub(crate) struct Which {
    pub(crate) states: Vec<FiberState>,
    pub(crate) name: Option<String>,
    pub(crate) class: Option<String>,
    pub(crate) agent: Option<String>,
    pub(crate) ended_before_ms: Option<i64>,
    /// Not those whose parent has not ended: it may still ask for their results.
    pub(crate) not_needed: bool,
}

/// How a fiber ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// With this result, JSON.
    Completed(String),
    Failed(String),
    Cancelled(String),
}

/// How the end of a fiber was stored.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Cancelled, if that was asked before.
    pub(crate) end: End,
    /// Fibers that waited for this one.
    pub(crate) woken: Vec<Unfinished>,
}

/// Why a fiber that has not ended does not run.
#[derive(Debug, Clone)]
pub(crate) enum Aside {
    Interrupted(String),
    Parked(String),
}

/// The storage of one runtime.
pub(crate) trait Store: AgentStore + OpStore + chat::ChatStore + Send + Sync + fmt::Debug {
    /// Stores a fiber as running, unless one with its id or key is there.
    fn accept(&self, fiber: NewFiber) -> BoxFuture<'_, Result<Accepted>>;

    /// Counts a death for every fiber left running, and calls it interrupted. Done once, when a runtime opens.
    fn recover(&self, now_ms: i64) -> BoxFuture<'_, Result<()>>;

    /// The fibers after `after` that have not ended and do not wait, oldest first.
    fn unfinished(&self, after: Seq, limit: u32) -> BoxFuture<'_, Result<Vec<Unfinished>>>;

    /// What is needed to enter a fiber.
    fn load(&self, seq: Seq) -> BoxFuture<'_, Result<Stored>>;

    /// Calls a fiber running: from now on the death of the process counts as one of the fiber. `false` if it has ended or is told to.
    fn enter(&self, seq: Seq, now_ms: i64) -> BoxFuture<'_, Result<bool>>;

    /// Replaces a fiber's snapshot; it has come further, so its deaths are forgotten. Gives the numbers of the children made with it:
    /// a fiber that is told to end makes none, and is refused.
    fn checkpoint(&self, seq: Seq, snapshot: NewSnapshot) -> BoxFuture<'_, Result<Vec<Seq>>>;

    /// Replaces a closure fiber's stash; its deaths are forgotten.
    fn stash(&self, seq: Seq, data: String, now_ms: i64) -> BoxFuture<'_, Result<()>>;

    /// Keeps what one of several steps side by side has given, those that begin after checkpoint `number`; the fiber's deaths are
    /// forgotten.
    fn arrive(&self, seq: Seq, number: u64, n: u32, data: String) -> BoxFuture<'_, Result<()>>;

    /// What [`Store::arrive`] kept.
    fn arrived(&self, seq: Seq, number: u64) -> BoxFuture<'_, Result<Vec<(u32, String)>>>;

    /// Lets a fiber wait, unless what it is to wait for is there.
    fn wait(&self, seq: Seq, wait: Wait, now_ms: i64) -> BoxFuture<'_, Result<Waits>>;

    /// Wakes the waiting fibers whose time has come, the earliest first.
    fn take_due(&self, now_ms: i64, limit: u32) -> BoxFuture<'_, Result<Vec<Unfinished>>>;

    /// When the next waiting fiber is due.
    fn next_due(&self) -> BoxFuture<'_, Result<Option<i64>>>;

    /// Stores a message, and wakes the fiber if it waits for it.
    fn send(&self, message: NewMessage) -> BoxFuture<'_, Result<Asked<Option<Unfinished>>>>;

    /// The oldest message of a topic.
    fn message(&self, seq: Seq, topic: &'static str) -> BoxFuture<'_, Result<Option<Message>>>;

    /// Ends a fiber, with operations that have ended but are not stored as such. What its steps keep between attempts goes, and so do its
    /// messages and what has arrived, unless it failed and may be resumed; and its snapshot, when it has completed.
    fn end(&self, seq: Seq, end: End, settled: Vec<SettledOp>, now_ms: i64) -> BoxFuture<'_, Result<Ended>>;

    /// Ends a fiber that is interrupted or parked.
    fn resolve(&self, id: String, end: End, now_ms: i64) -> BoxFuture<'_, Result<Asked<(FiberRow, Ended)>>>;

    /// Tells a fiber and all fibers below it to end: those that do not run have ended when this is ready.
    fn cancel(&self, id: String, reason: String, now_ms: i64) -> BoxFuture<'_, Result<Asked<Cancelled>>>;

    /// Makes a fiber that stopped pending again; from its start only if no operation of it is in doubt.
    fn again(&self, id: String, again: Again, now_ms: i64) -> BoxFuture<'_, Result<Asked<RunsAgain>>>;

    /// Takes a fiber out of the running ones without ending it.
    fn set_aside(&self, seq: Seq, aside: Aside, now_ms: i64) -> BoxFuture<'_, Result<()>>;

    /// A fiber by id or key.
    fn find(&self, which: Find) -> BoxFuture<'_, Result<Option<FiberRow>>>;

    /// Fibers in the order of acceptance, after `after`.
    fn list(&self, which: Which, after: Seq, limit: u32) -> BoxFuture<'_, Result<Vec<FiberRow>>>;

    /// Deletes fibers that have ended, the oldest first, at most `limit`; says how many.
    fn delete(&self, which: Which, limit: u32) -> BoxFuture<'_, Result<u64>>;

    /// Calls every running fiber interrupted, without counting a death, and lets go of the database.
    fn close(&self, now_ms: i64) -> BoxFuture<'_, Result<()>>;

    /// Lets go of the database at once, as a dying process would, and returns when it is free.
    fn abandon(&self);

    /// Sets how many pages the database may have, to try what happens on a full disk.
    fn limit_pages(&self, pages: u32) -> BoxFuture<'_, Result<()>>;
}
