//! Copies of fibers, and changes of what a stopped fiber has stored: the data of two commands of
//! [`AdminStore`](super::AdminStore).
use super::{BranchResult, Claim, FiberState, LayoutRow, NewFiber, OpRecord, PendingMessage, StreamAppend};

/// A fiber with what is stored of it, to be stored as another one.
#[derive(Debug, Clone)]
pub struct FiberCopy {
    /// The fiber. A worker that it names does not claim it.
    pub fiber: NewFiber,
    /// State: `pending`, or one of the states of a fiber that has ended.
    pub state: FiberState,
    /// Why it failed or was cancelled.
    pub reason: Option<String>,
    /// Result, JSON, of one that has completed.
    pub result: Option<String>,
    /// Number of restarts from the start.
    pub restarts: u32,
    /// Number of checkpoints made.
    pub number: u64,
    /// Its snapshot. `None` before the first, and once it has completed.
    pub snapshot: Option<SnapshotCopy>,
    /// Operations, with the ids that they have as those of the new fiber.
    pub ops: Vec<OpRecord>,
    /// Branch results stored since checkpoint `number`.
    pub branches: Vec<BranchResult>,
    /// Items of its streams, none of which it has yet.
    pub streams: Vec<StreamAppend>,
    /// Messages that it has not received, in order. They get new numbers.
    pub messages: Vec<PendingMessage>,
    /// Topics that it has closed, with the numbers of the checkpoints that did.
    pub closed: Vec<(String, u64)>,
}

/// Snapshot of a [`FiberCopy`].
#[derive(Debug, Clone)]
pub struct SnapshotCopy {
    /// Name of the cut point.
    pub at: String,
    /// Main text, JSON, which refers to no other rows.
    pub data: String,
    /// Layout that it was written under.
    pub layout: Option<LayoutRow>,
    /// Layouts of the functions that were being called, outermost first.
    pub callees: Vec<LayoutRow>,
}

/// Change of what a fiber resumes from.
#[derive(Debug, Clone)]
pub struct FiberEdit {
    /// The fiber, at the epoch at which it was read.
    pub seen: Claim,
    /// New arguments by name, a JSON object.
    pub args: Option<String>,
    /// New main text of the snapshot, JSON.
    pub snapshot: Option<String>,
    /// Names of parts that the new main text does not refer to.
    pub removed_parts: Vec<String>,
    /// Record of the change, which is appended to a stream of the fiber.
    pub record: StreamAppend,
    /// Time of the change.
    pub now_ms: i64,
}
