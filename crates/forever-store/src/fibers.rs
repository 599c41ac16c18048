//! Fibers and their activations: data types and [`FiberStore`].
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    AgentId, ClusterStore, CommandResult, FiberTombstone, OpOutcome, OpRecord, OpRetry, OpsDelta, RestartResult, SnapshotDelta,
    SnapshotRows, StreamAppend, StreamsDelta,
};
use crate::error::Result;
use crate::future::BoxFuture;

/// Sequence number of a fiber: counts up in the order of acceptance.
pub type Seq = i64;

/// Number of a worker, which is one open runtime; never given twice.
pub type WorkerId = i64;

/// Count of a fiber's claims, of their releases, and of the commands that changed its start.
pub type Epoch = i64;

/// Right of one worker to run one fiber: the fiber at an epoch.
///
/// While the stored epoch is this one, no other activation has been claimed since, and no command
/// has changed what the fiber resumes from. Once it has moved on, every operation that takes the
/// claim fails with [`ErrorKind::ClaimLost`](crate::ErrorKind::ClaimLost) and changes nothing.
///
/// See [`FiberStore`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Claim {
    /// The fiber.
    pub fiber: Seq,
    /// Its epoch.
    pub epoch: Epoch,
}

/// Who may run a fiber, as its row has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StoredClaim {
    /// Epoch of the fiber.
    pub epoch: Epoch,
    /// Worker that has it claimed.
    pub worker: Option<WorkerId>,
}

/// Result of [`FiberStore::claim`].
///
/// ```
/// # mod forever { pub use forever_store as store; pub use forever_store::Result; }
/// # use forever::store::{AcceptResult, NewFiber};
/// use forever::store::{ClaimResult, FiberStore, Sqlite};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// let store = Sqlite::in_memory().await?;
/// let worker = store.join(0).await?;
/// # let fiber = NewFiber {
/// #     id: "order-17".to_owned(),
/// #     name: "order".to_owned(),
/// #     args: "{}".to_owned(),
/// #     worker: None,
/// #     now_ms: 1_000,
/// #     key: None,
/// #     id_given: false,
/// #     closure: false,
/// #     metadata: None,
/// #     agent: None,
/// #     parent: None,
/// # };
/// # let AcceptResult::Created(seen) = store.accept(fiber).await? else { panic!() };
/// // `seen` has the epoch at which the fiber was accepted, or listed.
/// match store.claim(seen, worker, 2_000).await? {
///     ClaimResult::Granted(claim, loaded) => assert_eq!((claim.epoch, loaded.number), (1, 0)),
///     ClaimResult::Ended(end) => println!("it was cancelled: {end:?}"),
///     ClaimResult::Refused => println!("another worker was faster"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimResult {
    /// The fiber is `running` under this claim, from what is stored of it. From now on a death of
    /// the worker counts as one of the fiber.
    Granted(Claim, Box<LoadedFiber>),
    /// The fiber had been cancelled before it could run, and has ended so.
    Ended(End),
    /// The fiber is claimed by another worker, waits, has ended, or is at another epoch.
    Refused,
}

/// State of a fiber.
///
/// ```
/// # mod forever { pub mod fiber { pub use forever_store::FiberState; } }
/// use forever::fiber::FiberState;
///
/// fn badge(state: FiberState) -> &'static str {
///     match state {
///         FiberState::Pending | FiberState::Running | FiberState::Waiting => "under way",
///         FiberState::Completed => "done",
///         FiberState::Failed | FiberState::Cancelled => "ended without a result",
///         FiberState::Interrupted => "resumes by itself",
///         FiberState::Parked => "needs a person",
///         _ => "unknown",
///     }
/// }
/// # assert_eq!("parked".parse().map(badge), Ok("needs a person"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FiberState {
    /// Accepted or made ready, and claimed by no worker.
    Pending,
    /// Claimed by a worker.
    Running,
    /// Waiting for time, a message or another fiber.
    Waiting,
    /// Ended with a result.
    Completed,
    /// Ended with an error.
    Failed,
    /// Ended by a cancel.
    Cancelled,
    /// Stopped by something outside of its code; it resumes from its snapshot.
    Interrupted,
    /// Its snapshot does not fit the code, or an operation of it is in doubt. It resumes when the
    /// code is changed, or by a command.
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

/// Fiber to be accepted.
///
/// See [`FiberStore`] for an example.
#[derive(Debug, Clone)]
pub struct NewFiber {
    /// Id, unique in the store.
    pub id: String,
    /// Stored name of its function, or the name that a closure fiber was given.
    pub name: String,
    /// Idempotency key, unique in the store.
    pub key: Option<String>,
    /// Whether the program gave the id. Such an id outlives the fiber, in its [`FiberTombstone`].
    pub id_given: bool,
    /// Whether it is a closure fiber, of which only the stash outlives the process.
    pub closure: bool,
    /// Arguments by name, a JSON object.
    pub args: String,
    /// Metadata of the program, JSON.
    pub metadata: Option<String>,
    /// Agent that owns it.
    pub agent: Option<AgentId>,
    /// Fiber that spawned it.
    pub parent: Option<Seq>,
    /// Worker that claims it in the same transaction, at epoch 1. Without one it is `pending`, at
    /// epoch 0.
    pub worker: Option<WorkerId>,
    /// Time of its acceptance.
    pub now_ms: i64,
}

/// Result of [`FiberStore::accept`].
///
/// See [`FiberStore`] for an example.
#[derive(Debug)]
pub enum AcceptResult {
    /// The fiber is stored. If a worker was named this is its claim, and otherwise the epoch to
    /// claim it at.
    Created(Claim),
    /// A fiber with the same id or key exists. Nothing was changed.
    Existing(Box<FiberRow>),
    /// A fiber with the same id or key existed and was deleted. Nothing was changed.
    Deleted(Box<FiberTombstone>),
}

/// Stored fiber, without its snapshot.
#[derive(Debug, Clone)]
pub struct FiberRow {
    /// Sequence number.
    pub seq: Seq,
    /// Id.
    pub id: String,
    /// Stored name of its function, or the name that a closure fiber was given.
    pub name: String,
    /// Whether it is a closure fiber.
    pub closure: bool,
    /// Agent that owns it.
    pub agent: Option<AgentId>,
    /// Id of the fiber that spawned it.
    pub parent: Option<String>,
    /// Idempotency key.
    pub key: Option<String>,
    /// State.
    pub state: FiberState,
    /// Why it failed, was cancelled, interrupted or parked.
    pub reason: Option<String>,
    /// Arguments by name, a JSON object.
    pub args: String,
    /// Metadata of the program, JSON.
    pub metadata: Option<String>,
    /// Result, JSON, once it has completed.
    pub result: Option<String>,
    /// Number of checkpoints made. 0 once it has completed.
    pub checkpoints: u64,
    /// Name of the cut point of its snapshot.
    pub at: Option<String>,
    /// Deaths of its workers since its last progress.
    pub deaths: u32,
    /// Step under way that has failed and is retried. Of several side by side, the one whose next
    /// attempt is due last.
    pub retry: Option<FiberRetry>,
    /// Condition that wakes it, while it is waiting.
    pub wait: Option<Wait>,
    /// Time of its acceptance.
    pub created_ms: i64,
    /// Time of its last change of state.
    pub changed_ms: i64,
    /// Time of its last checkpoint.
    pub saved_ms: Option<i64>,
    /// Time of its end.
    pub finished_ms: Option<i64>,
}

/// How the text of an error begins, in the row of a fiber, an operation or a turn, that may repeat
/// a value marked `#[secret]`. It is not shown, and searches do not look into it.
#[doc(hidden)]
pub const SECRET_MARK: &str = "#[secret] ";

/// Retried step of a fiber.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FiberRetry {
    /// Stored name of the step.
    pub step: String,
    /// Number of failed attempts.
    pub failed: u32,
    /// The last of them.
    pub last: OpRetry,
}

/// Fiber that has not ended, as the dispatcher and recovery see it.
///
/// See [`Wait`] for an example.
#[derive(Debug, Clone)]
pub struct Runnable {
    /// Sequence number.
    pub seq: Seq,
    /// Id.
    pub id: String,
    /// Stored name of its function, or the name that a closure fiber was given.
    pub name: String,
    /// Whether it is a closure fiber.
    pub closure: bool,
    /// Agent that owns it.
    pub agent: Option<AgentId>,
    /// State.
    pub state: FiberState,
    /// Epoch to claim it at.
    pub epoch: Epoch,
    /// Deaths of its workers since its last progress.
    pub deaths: u32,
}

/// Stored data of a fiber that an activation begins with, all from one moment.
///
/// See [`NewSnapshot`] for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedFiber {
    /// Arguments by name, a JSON object.
    pub args: String,
    /// Main text of its snapshot, JSON; of a closure fiber its stash. `None` before the first.
    pub snapshot: Option<String>,
    /// Rows beside the main text. Empty where there is no snapshot.
    pub rows: SnapshotRows,
    /// Number of checkpoints made.
    pub number: u64,
    /// Number of restarts from the start.
    pub restarts: u32,
    /// Deaths of its workers since its last progress.
    pub deaths: u32,
    /// Whether its last activation was cut off: it neither ended, nor waits, nor is parked.
    pub interrupted: bool,
    /// Epoch.
    pub epoch: Epoch,
    /// Time left, at the claim, of the lease of a worker that the fiber was taken over from, in
    /// milliseconds; negative once it has run out.
    ///
    /// Until then, and in a poll that began before, the worker may be in the middle of the fiber's
    /// code if it is not dead. `None` where a death is certain, and of a fiber that was loaded to
    /// look at it.
    pub lease_left_ms: Option<i64>,
    /// Operations that began since checkpoint `number`, whatever their state, except manual ones.
    pub ops: Vec<OpRecord>,
    /// Branch results stored since checkpoint `number`.
    pub branches: Vec<BranchResult>,
    /// Layout that the snapshot was written under.
    pub layout: Option<LayoutRow>,
    /// Layouts of the functions that were being called, as far as they are stored.
    pub callees: Vec<LayoutRow>,
}

/// Result of a branch of a `steps!`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchResult {
    /// Stored name of the branch: `both[fetch]`.
    pub branch: String,
    /// Value, JSON.
    pub data: String,
    /// Layout of the function that has the `steps!`, when the branch ended. `None` for that of the
    /// snapshot.
    pub layout: Option<Arc<LayoutRow>>,
}

/// Layout of a function's cut points and locals, stored once for all fibers that share it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayoutRow {
    /// Hash of the layout, its key.
    pub hash: String,
    /// Stored name of the function.
    pub fiber: String,
    /// The layout, JSON.
    pub layout: String,
}

impl LayoutRow {
    /// The hashes of layouts as they are stored with a snapshot, with a space between them; `None`
    /// if there are none.
    // For the stores of this library.
    #[doc(hidden)]
    pub fn hashes<'a>(layouts: impl IntoIterator<Item = &'a LayoutRow>) -> Option<String> {
        let hashes: Vec<&str> = layouts.into_iter().map(|layout| layout.hash.as_str()).collect();
        (!hashes.is_empty()).then(|| hashes.join(" "))
    }
}

/// Fibers that have not ended, are no closures, and stand at one cut point under one layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnfinishedGroup {
    /// Stored name of their function.
    pub name: String,
    /// Whether they are waiting.
    pub waiting: bool,
    /// Name of the cut point of their snapshots.
    pub at: Option<String>,
    /// Hash of the layout that their snapshots were written under.
    pub layout: Option<String>,
    /// Hashes of the layouts of the functions that were being called, outermost first, with a space
    /// between them.
    pub callees: Option<String>,
    /// Whether operations or branch results of theirs were stored under other layouts than these.
    pub mixed: bool,
    /// How many there are.
    pub fibers: u64,
}

/// Snapshot that replaces the last one, with all that goes in the same transaction.
///
/// ```
/// # mod forever { pub use forever_store as store; pub use forever_store::Result; }
/// # use forever::store::{AcceptResult, NewFiber};
/// # use forever::store::{OpsDelta, SnapshotDelta, StreamsDelta};
/// use forever::store::{FiberStore, NewSnapshot, Sqlite};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// let store = Sqlite::in_memory().await?;
/// # let worker = store.join(0).await?;
/// # let fiber = NewFiber {
/// #     id: "order-17".to_owned(),
/// #     name: "order".to_owned(),
/// #     args: "{}".to_owned(),
/// #     worker: Some(worker),
/// #     now_ms: 1_000,
/// #     key: None,
/// #     id_given: false,
/// #     closure: false,
/// #     metadata: None,
/// #     agent: None,
/// #     parent: None,
/// # };
/// # let AcceptResult::Created(claim) = store.accept(fiber).await? else { panic!() };
/// let snapshot = NewSnapshot {
///     number: 1,
///     at: "charge",
///     data: r#"{"at":"charge","locals":{"total":700}}"#.to_owned(),
///     now_ms: 2_000,
///     // .. and fields that are empty here.
/// #     replaces: false,
/// #     layouts: None,
/// #     ops: OpsDelta::default(),
/// #     delta: SnapshotDelta::default(),
/// #     streams: StreamsDelta::default(),
/// #     received: Vec::new(),
/// #     closed: None,
/// #     joined: false,
/// #     children: Vec::new(),
/// };
/// store.checkpoint(claim, snapshot).await?;
/// assert_eq!(store.load(claim.fiber).await?.number, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct NewSnapshot {
    /// Number of this checkpoint: the stored number plus one, or the operation fails.
    pub number: u64,
    /// Whether it replaces the stored snapshot under its number, which is then the stored one. What
    /// is stored of operations and branches under this number stays.
    pub replaces: bool,
    /// Name of the cut point.
    pub at: &'static str,
    /// Main text, JSON.
    pub data: String,
    /// Time of the checkpoint.
    pub now_ms: i64,
    /// Layouts of the functions on the call stack, outermost first, where they are not those of
    /// the stored snapshot. Their hashes may be stored already.
    pub layouts: Option<Vec<Arc<LayoutRow>>>,
    /// Changes of the operations that began since the last checkpoint.
    pub ops: OpsDelta,
    /// Changes of the parts beside the main text.
    pub delta: SnapshotDelta,
    /// Changes of the streams of the fiber.
    pub streams: StreamsDelta,
    /// Numbers of received [`PendingMessage`]s, to be deleted.
    pub received: Vec<i64>,
    /// Topic that is closed from this checkpoint on: a message to it is refused.
    pub closed: Option<String>,
    /// Whether the stored branch results of the fiber are to be deleted.
    pub joined: bool,
    /// Fibers that it spawns. An id or key that is taken makes the whole operation fail.
    pub children: Vec<NewFiber>,
}

impl NewSnapshot {
    /// Number of the stored snapshot that it follows or replaces.
    pub fn follows(&self) -> u64 {
        if self.replaces { self.number } else { self.number.saturating_sub(1) }
    }
}

/// Condition that wakes a waiting fiber. Of several, the first that is met.
///
/// ```
/// # mod forever { pub use forever_store as store; pub use forever_store::Result; }
/// # use forever::store::{AcceptResult, NewFiber};
/// use forever::store::{FiberStore, Sqlite, Wait, WaitResult};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// let store = Sqlite::in_memory().await?;
/// # let worker = store.join(0).await?;
/// # let fiber = NewFiber {
/// #     id: "order-17".to_owned(),
/// #     name: "order".to_owned(),
/// #     args: "{}".to_owned(),
/// #     worker: Some(worker),
/// #     now_ms: 1_000,
/// #     key: None,
/// #     id_given: false,
/// #     closure: false,
/// #     metadata: None,
/// #     agent: None,
/// #     parent: None,
/// # };
/// # let AcceptResult::Created(claim) = store.accept(fiber).await? else { panic!() };
/// // A message, but no longer than until 5 000.
/// let topics = vec!["approval".to_owned()];
/// let wait = Wait { due_ms: Some(5_000), topics, ..Wait::default() };
/// assert_eq!(store.wait(claim, wait, 2_000).await?, WaitResult::Waiting);
///
/// assert_eq!(store.take_due(4_999, 10).await?.len(), 0);
/// assert_eq!(store.take_due(5_000, 10).await?[0].id, "order-17");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wait {
    /// Time at which it is due.
    pub due_ms: Option<i64>,
    /// Topics, a message of one of which is enough.
    pub topics: Vec<String>,
    /// Ids of other fibers, all of which have to end. Unknown ids count as ended.
    pub fibers: Vec<String>,
    /// Whether the end of one of `fibers` is enough.
    pub any_fiber: bool,
}

/// Result of [`FiberStore::wait`].
///
/// See [`Wait`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitResult {
    /// The fiber is `waiting`, and the claim is released.
    Waiting,
    /// The condition is met already, or the fiber is cancelled. It stays `running`, under its
    /// claim.
    Ready,
}

/// Message to be sent to a fiber.
///
/// ```
/// # mod forever { pub use forever_store as store; pub use forever_store::Result; }
/// # use forever::store::{AcceptResult, NewFiber};
/// use forever::store::{CommandResult, FiberStore, NewMessage, SendResult, Sqlite};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// let store = Sqlite::in_memory().await?;
/// # let worker = store.join(0).await?;
/// # let fiber = NewFiber {
/// #     id: "order-17".to_owned(),
/// #     name: "order".to_owned(),
/// #     args: "{}".to_owned(),
/// #     worker: Some(worker),
/// #     now_ms: 1_000,
/// #     key: None,
/// #     id_given: false,
/// #     closure: false,
/// #     metadata: None,
/// #     agent: None,
/// #     parent: None,
/// # };
/// # let AcceptResult::Created(claim) = store.accept(fiber).await? else { panic!() };
/// let message = NewMessage {
///     to: "order-17".to_owned(),
///     id: Some("click-1".to_owned()),
///     topic: "approval".to_owned(),
///     data: "true".to_owned(),
///     now_ms: 2_000,
/// };
/// for _ in 0..2 {
///     let sent = store.send(message.clone()).await?;
///     assert!(matches!(sent, CommandResult::Done(SendResult::Sent)));
/// }
/// // Stored once, by its id.
/// let page = store.topic(claim.fiber, message.topic, 0, 10).await?;
/// assert_eq!(page.messages.len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct NewMessage {
    /// Id of the receiving fiber.
    pub to: String,
    /// Message id. A fiber gets one message of each.
    pub id: Option<String>,
    /// Topic.
    pub topic: String,
    /// Value, JSON.
    pub data: String,
    /// Time of the send.
    pub now_ms: i64,
}

/// Message that was sent to a fiber and not yet received.
///
/// See [`NewMessage`] for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingMessage {
    /// Sequence number, in the order of the sends.
    pub seq: i64,
    /// Topic.
    pub topic: String,
    /// Value, JSON.
    pub data: String,
    /// Time of the send.
    pub sent_ms: i64,
}

/// Result of [`FiberStore::send`] to a fiber that exists.
///
/// See [`NewMessage`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendResult {
    /// The message is stored, or was sent before with its id.
    Sent,
    /// Another message was sent with its id. Nothing was changed.
    Conflict,
    /// The fiber has closed the topic. Nothing was changed.
    Closed,
}

/// Messages of one topic, as [`FiberStore::topic`] gives them.
///
/// See [`NewMessage`] for an example.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopicPage {
    /// The first messages that the fiber has not received, in the order of the sends.
    pub messages: Vec<PendingMessage>,
    /// Whether the fiber has closed the topic.
    pub closed: bool,
}

/// Topic of a fiber that has closed it, or has not received all of its messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicRow {
    /// The topic.
    pub topic: String,
    /// Number of messages that the fiber has not received.
    pub unread: u64,
    /// Number of the checkpoint that has closed it.
    pub closed: Option<u64>,
}

/// Fiber that has ended before it had received all of its messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadMessages {
    /// Id of the fiber.
    pub id: String,
    /// Stored name of its function.
    pub name: String,
    /// How it ended. Only a fiber that failed can still receive them, once it is resumed.
    pub state: FiberState,
    /// Its topics with such messages.
    pub topics: Vec<TopicRow>,
}

/// End of a fiber.
///
/// ```
/// # mod forever { pub use forever_store as store; pub use forever_store::Result; }
/// use forever::store::{End, FiberState};
///
/// /// State, result and reason of the row of a fiber that ends.
/// fn columns(end: End) -> (FiberState, Option<String>, Option<String>) {
///     match end {
///         End::Completed(result) => (FiberState::Completed, Some(result), None),
///         End::Failed(reason) => (FiberState::Failed, None, Some(reason)),
///         End::Cancelled(reason) => (FiberState::Cancelled, None, Some(reason)),
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Completed with this result, JSON.
    Completed(String),
    /// Failed with this error.
    Failed(String),
    /// Cancelled for this reason.
    Cancelled(String),
}

/// Stop of a fiber that has not ended.
///
/// ```
/// # mod forever { pub use forever_store as store; pub use forever_store::Result; }
/// use forever::store::{FiberState, Suspension};
///
/// /// State and reason of the row of a fiber that stops.
/// fn columns(suspension: Suspension) -> (FiberState, String) {
///     match suspension {
///         Suspension::Interrupted(reason) => (FiberState::Interrupted, reason),
///         Suspension::HookFailed { reason, .. } => (FiberState::Interrupted, reason),
///         Suspension::Parked(reason) => (FiberState::Parked, reason),
///     }
/// }
/// ```
#[derive(Debug, Clone)]
pub enum Suspension {
    /// Interrupted for this reason; see [`FiberState::Interrupted`].
    Interrupted(String),
    /// Interrupted, because the recovery hook of its agent has failed.
    HookFailed {
        /// Text of the failure.
        reason: String,
        /// The worker that calls the hook again. Another one does once that one is gone, or once it
        /// holds the agent itself: then [`ready`](FiberStore::ready) lists the fiber.
        worker: WorkerId,
    },
    /// Parked for this reason; see [`FiberState::Parked`].
    Parked(String),
}

/// Receiver of every fiber that a committed transaction has made ready.
///
/// A fiber that is ready is `pending` in the store, and a sweep finds it within a second. So a
/// notification is a hint, which saves the time until the sweep.
///
/// ```
/// # mod forever { pub use forever_store as store; pub use forever_store::Result; }
/// use forever::store::{FiberStore, ReadySender, Runnable};
/// use std::sync::mpsc;
///
/// /// The fibers that a store reports as ready, in a test of it.
/// fn ready(store: &impl FiberStore) -> mpsc::Receiver<Runnable> {
///     let (sender, fibers) = mpsc::channel();
///     store.on_ready(ReadySender::new(move |fiber| drop(sender.send(fiber))));
///     fibers
/// }
/// ```
#[derive(Clone)]
pub struct ReadySender(Arc<dyn Fn(Runnable) + Send + Sync>);

impl ReadySender {
    /// Makes a sender from the function that is called for each fiber. It must not block.
    pub fn new(send: impl Fn(Runnable) + Send + Sync + 'static) -> Self {
        ReadySender(Arc::new(send))
    }

    /// Notifies the dispatcher of a fiber that is `pending`.
    pub fn send(&self, fiber: Runnable) {
        (self.0)(fiber);
    }
}

impl fmt::Debug for ReadySender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadySender").finish_non_exhaustive()
    }
}

/// Receiver of [`UnreadMessages`] that a committed transaction has left.
///
/// Used as a [`ReadySender`] is.
#[derive(Clone)]
pub struct UnreadSender(Arc<dyn Fn(UnreadMessages) + Send + Sync>);

impl UnreadSender {
    /// Makes a sender from the function that is called for each fiber. It must not block.
    pub fn new(send: impl Fn(UnreadMessages) + Send + Sync + 'static) -> Self {
        UnreadSender(Arc::new(send))
    }

    /// Reports a fiber that has ended with unread messages.
    pub fn send(&self, unread: UnreadMessages) {
        (self.0)(unread);
    }
}

impl fmt::Debug for UnreadSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnreadSender").finish_non_exhaustive()
    }
}

/// What committed transactions tell the runtime.
// For the stores of this library.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct CommitNotices {
    /// Fibers that were made ready.
    pub ready: Vec<Runnable>,
    /// Fibers that have ended with unread messages.
    pub unread: Vec<UnreadMessages>,
}

/// Storage of fibers: acceptance, claims, and the writes of activations.
///
/// "Makes ready" means in all operations: the fiber becomes `pending`, and is sent to the
/// [`ReadySender`] once that is durable and before the operation's future is ready.
///
/// ```
/// # mod forever { pub use forever_store as store; pub use forever_store::Result; }
/// use forever::store::{AcceptResult, End, FiberStore, NewFiber, Sqlite};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// let store = Sqlite::in_memory().await?;
/// let worker = store.join(0).await?;
/// let fiber = NewFiber {
///     id: "order-17".to_owned(),
///     name: "order".to_owned(),
///     args: r#"{"cart":[3,4]}"#.to_owned(),
///     worker: Some(worker),
///     now_ms: 1_000,
///     // .. and fields that are `None` or `false` here.
/// #     key: None,
/// #     id_given: false,
/// #     closure: false,
/// #     metadata: None,
/// #     agent: None,
/// #     parent: None,
/// };
/// let AcceptResult::Created(claim) = store.accept(fiber).await? else { panic!() };
/// let end = End::Completed("7".to_owned());
/// store.end(claim, end.clone(), Vec::new(), Vec::new(), 2_000).await?;
///
/// // Every write of an activation is conditional on its claim.
/// let late = store.end(claim, end, Vec::new(), Vec::new(), 3_000).await;
/// assert!(late.unwrap_err().is_claim_lost());
/// # Ok(())
/// # }
/// ```
pub trait FiberStore {
    /// Sets the receiver of fibers that become ready.
    ///
    /// Called once, before the first fiber is claimed. A store serves one runtime.
    fn on_ready(&self, ready: ReadySender);

    /// Sets the receiver of fibers that end with messages that they have not received.
    ///
    /// Called once, before the first fiber is claimed. Whatever ends such a fiber, it is sent once
    /// that is durable and before the operation's future is ready.
    fn on_unread(&self, unread: UnreadSender);

    /// The ability to share the database with other workers.
    ///
    /// Defaults to none: then this store has one worker.
    fn cluster(&self) -> Option<&dyn ClusterStore> {
        None
    }

    /// Registers a worker, and takes over from the workers that are gone by then.
    ///
    /// Called once, when a runtime opens. The claims are handled as in
    /// [`take_over`](Self::take_over).
    fn join(&self, now_ms: i64) -> BoxFuture<'_, Result<WorkerId>>;

    /// Takes over the claims of all workers that are gone.
    ///
    /// For each fiber that such a worker has claimed: counts a death, raises the epoch, and calls
    /// it `interrupted`. Each claim is taken over once. The store decides which workers are gone:
    /// on SQLite all but `by`, since the file lock is their lease.
    fn take_over(&self, by: WorkerId, now_ms: i64) -> BoxFuture<'_, Result<()>>;

    /// Stores a fiber, unless its id or key is taken.
    ///
    /// A [tombstone](FiberTombstone) of its key, or of its id where that was
    /// [given](NewFiber::id_given), comes first, then a fiber with its id, then one with its key.
    fn accept(&self, fiber: NewFiber) -> BoxFuture<'_, Result<AcceptResult>>;

    /// Lists the pending, running, interrupted and parked fibers behind `after`, by number.
    fn unfinished(&self, after: Seq, limit: u32) -> BoxFuture<'_, Result<Vec<Runnable>>>;

    /// Lists the fibers behind `after` that are pending, by number. Among several workers those are
    /// listed too whose [recovery hook has failed](Suspension::HookFailed) in another one.
    fn ready(&self, after: Seq, limit: u32) -> BoxFuture<'_, Result<Vec<Runnable>>>;

    /// Groups the fibers that have not ended, waiting ones included and closures excluded.
    fn unfinished_groups(&self) -> BoxFuture<'_, Result<Vec<UnfinishedGroup>>>;

    /// Lists the fibers of a group behind `after`, by number.
    fn unfinished_of(&self, group: UnfinishedGroup, after: Seq, limit: u32) -> BoxFuture<'_, Result<Vec<Seq>>>;

    /// Makes waiting fibers ready, whatever they wait for. Those that do not wait are left as they
    /// are.
    fn wake(&self, fibers: Vec<Seq>, now_ms: i64) -> BoxFuture<'_, Result<()>>;

    /// Loads a fiber, to look at it. An activation runs from what its [claim](Self::claim) gives.
    ///
    /// Everything is from one moment, whatever is written meanwhile. A row that cannot be read, or
    /// a fiber that has not completed and has lost its snapshot, is an error of kind
    /// [`Value`](crate::ErrorKind::Value).
    fn load(&self, seq: Seq) -> BoxFuture<'_, Result<LoadedFiber>>;

    /// Gives the epoch of a fiber and the worker that has it claimed; `None` once it has completed.
    ///
    /// Also of one that cannot be loaded, so that it can be parked.
    fn claim_of(&self, seq: Seq) -> BoxFuture<'_, Result<Option<StoredClaim>>>;

    /// Claims a fiber for a worker, and loads what it runs from, in one transaction.
    ///
    /// Granted if the epoch is still that of `seen`, and the fiber is `pending`, `interrupted` or
    /// `parked`, or `running` under a claim of the same worker. Then the epoch is raised, and the
    /// fiber is `running` without a reason; what is loaded is as [`load`](Self::load) gives it
    /// before the claim, with the epoch of the claim. One that was cancelled meanwhile ends as
    /// cancelled instead. Nothing is changed where the fiber cannot be loaded.
    ///
    /// The epoch is raised at each release too ([`wait`](Self::wait), [`suspend`](Self::suspend),
    /// [`take_over`](Self::take_over), [`close`](Self::close)), so that nothing that was read
    /// before an activation of another worker can be used after it.
    fn claim(&self, seen: Claim, worker: WorkerId, now_ms: i64) -> BoxFuture<'_, Result<ClaimResult>>;

    /// Replaces the snapshot of a fiber; gives the claims of the children made with it, in order.
    ///
    /// One transaction for all that [`NewSnapshot`] has. It is progress, so the deaths are set to
    /// 0. Fails if `number` does not follow the stored one, and if a fiber that was cancelled is to
    /// have children.
    fn checkpoint(&self, claim: Claim, snapshot: NewSnapshot) -> BoxFuture<'_, Result<Vec<Claim>>>;

    /// Replaces the stash of a closure fiber.
    ///
    /// Raises its checkpoint number. It is progress, so the deaths are set to 0.
    fn stash(&self, claim: Claim, data: String, now_ms: i64) -> BoxFuture<'_, Result<()>>;

    /// Stores the result of a branch of a `steps!` that began after checkpoint `number`.
    ///
    /// Appends to streams of the fiber with it. It is progress, so the deaths are set to 0.
    fn save_branch(
        &self,
        claim: Claim,
        number: u64,
        result: BranchResult,
        appended: Vec<StreamAppend>,
        now_ms: i64,
    ) -> BoxFuture<'_, Result<()>>;

    /// Lets a fiber wait, unless the condition is met already.
    ///
    /// The look and the change are one transaction, so no wake-up is lost in between.
    fn wait(&self, claim: Claim, wait: Wait, now_ms: i64) -> BoxFuture<'_, Result<WaitResult>>;

    /// Makes waiting fibers `pending` whose time has come, the earliest first, and gives them.
    ///
    /// They are *not* sent to the [`ReadySender`].
    fn take_due(&self, now_ms: i64, limit: u32) -> BoxFuture<'_, Result<Vec<Runnable>>>;

    /// Gives the earliest time at which a waiting fiber is due.
    fn next_due(&self) -> BoxFuture<'_, Result<Option<i64>>>;

    /// Stores a message, and makes the fiber ready if it waits on the topic.
    ///
    /// A message whose id was sent to the fiber before changes nothing, whatever the state of the
    /// fiber: it is [`Sent`](SendResult::Sent) if its [digest](super::message_digest) is that of the
    /// first, and otherwise a [`Conflict`](SendResult::Conflict). Without such an id, a fiber that has
    /// ended is [`InvalidState`](CommandResult::InvalidState), and a topic that it has closed is
    /// [`Closed`](SendResult::Closed).
    ///
    /// It is decided in one transaction with the end of the fiber and with the checkpoint that
    /// closes the topic: a message is stored before either of them, where both see it, or refused.
    fn send(&self, message: NewMessage) -> BoxFuture<'_, Result<CommandResult<SendResult>>>;

    /// Gives the pending messages of a topic with numbers above `after`, the oldest first, and
    /// leaves them there.
    fn topic(&self, seq: Seq, topic: String, after: i64, limit: u32) -> BoxFuture<'_, Result<TopicPage>>;

    /// Ends a fiber; gives how it ended.
    ///
    /// That is `Cancelled` with the first reason, whatever `end` says, if the fiber was cancelled
    /// before. Stores the outcomes of operations with it, and appends to streams of the fiber.
    /// Releases the claim, which raises the epoch of a fiber whose snapshot stays. Deletes waits,
    /// and makes ready each parent that waited for this fiber last. Unless the fiber failed, and so
    /// may be resumed, its branch results and temporary operations are deleted; of a completed one
    /// the snapshot as well. Messages that it has not received stay for as long as the fiber, and
    /// are [reported](Self::on_unread).
    fn end(&self, claim: Claim, end: End, outcomes: Vec<OpOutcome>, appended: Vec<StreamAppend>, now_ms: i64)
    -> BoxFuture<'_, Result<End>>;

    /// Stops a fiber without ending it, and releases its claim; gives its end instead if it was
    /// cancelled before.
    ///
    /// A claimed fiber has its epoch raised by one; of one that is stopped already the epoch stays.
    fn suspend(&self, claim: Claim, suspension: Suspension, now_ms: i64) -> BoxFuture<'_, Result<Option<End>>>;

    /// Makes a claimed fiber ready again from its start, unless an operation of it is in doubt.
    ///
    /// As [`AdminStore::restart`](super::AdminStore::restart) with
    /// [`FromStart`](super::Restart::FromStart).
    fn restart_claimed(&self, claim: Claim, now_ms: i64) -> BoxFuture<'_, Result<RestartResult>>;

    /// Interrupts the fibers that a worker has claimed, and closes the store.
    ///
    /// No death is counted.
    ///
    /// The deaths that were counted in advance for running schedules, woken agents and running
    /// turns are taken back. The store is closed when the future is ready, also where that is an
    /// error: every operation fails with [`Closed`](crate::ErrorKind::Closed), this one too.
    fn close(&self, worker: WorkerId, now_ms: i64) -> BoxFuture<'_, Result<()>>;

    /// Closes the store at once, as a dying process would; returns when its resources are free.
    ///
    /// Operations under way may be carried out or not. Called when a runtime is dropped without a
    /// close, also after [`close`](Self::close), and from threads without an async runtime.
    fn abandon(&self);
}
