//! Commands, lists and deletion: data types and [`AdminStore`].
use super::{
    AcceptResult, AgentId, End, FiberCopy, FiberEdit, FiberRow, FiberState, LayoutRow, PendingMessage, QueueRow, RetryRow, Runnable,
    ScheduleRow, Seq, StopRow, TopicRow,
};
use crate::error::Result;
use crate::future::BoxFuture;

/// Reference to one fiber.
///
/// ```
/// # mod forever { pub use forever_store as store; pub use forever_store::Result; }
/// use forever::store::FiberRef;
///
/// /// The condition of a query for the fiber.
/// fn condition(fiber: &FiberRef) -> &'static str {
///     match fiber {
///         FiberRef::Id(_) => "WHERE id = ?1",
///         FiberRef::Key(_) => "WHERE key = ?1",
///         FiberRef::Seq(_) => "WHERE seq = ?1",
///     }
/// }
/// ```
#[derive(Debug, Clone)]
pub enum FiberRef {
    /// By id.
    Id(String),
    /// By idempotency key.
    Key(String),
    /// By sequence number.
    Seq(Seq),
}

/// Result of a command addressed to a fiber, decided on the state it is carried out on.
///
/// See [`AdminStore`] for an example.
#[derive(Debug)]
pub enum CommandResult<T> {
    /// The command is carried out.
    Done(T),
    /// The fiber does not exist.
    NotFound,
    /// The command is refused in the state of the fiber. Nothing was changed.
    InvalidState(FiberState),
}

/// Where a stopped fiber runs from again.
///
/// ```
/// # mod forever { pub use forever_store as store; pub use forever_store::Result; }
/// use forever::store::{AdminStore, CommandResult, Restart, RestartResult, Sqlite};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// # let store = Sqlite::in_memory().await?;
/// match store.restart("order-17".to_owned(), Restart::FromStart, 2_000).await? {
///     CommandResult::Done(RestartResult::Ready) => println!("it is pending"),
///     CommandResult::Done(RestartResult::InDoubt(op)) => println!("resolve {op} first"),
///     CommandResult::NotFound => println!("there is no such fiber"),
///     CommandResult::InvalidState(state) => println!("it is {state}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// From its snapshot.
    FromSnapshot,
    /// From the start, with its arguments. The snapshot, branch results and temporary operations
    /// are deleted; the number of checkpoints goes on, and the number of restarts is raised.
    FromStart,
}

/// Result of a [`Restart`] that is allowed in the state of the fiber.
///
/// See [`Restart`] for an example.
#[derive(Debug)]
pub enum RestartResult {
    /// The fiber is ready.
    Ready,
    /// The operation with this id is in doubt, and would be repeated. Nothing was changed.
    InDoubt(String),
}

/// Query for fibers; its conditions are combined by AND.
///
/// Called a query because `FiberFilter` is the filter that programs give to `Forever::delete`.
///
/// ```
/// # mod forever { pub use forever_store as store; pub use forever_store::Result; }
/// use forever::store::{AdminStore, FiberQuery, FiberState, Sqlite};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// # let store = Sqlite::in_memory().await?;
/// let query = FiberQuery {
///     states: vec![FiberState::Failed, FiberState::Parked],
///     name: Some("order".to_owned()),
///     ..FiberQuery::default()
/// };
/// for fiber in store.list(query, 0, 100).await? {
///     println!("{}: {:?}", fiber.id, fiber.reason);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a condition of its own")]
pub struct FiberQuery {
    /// States, any of them; empty for all.
    pub states: Vec<FiberState>,
    /// Stored name of the function.
    pub name: Option<String>,
    /// Class of the owning agent.
    pub class: Option<String>,
    /// Name of the owning agent.
    pub agent: Option<String>,
    /// Ended before this time.
    pub ended_before_ms: Option<i64>,
    /// Accepted at this time or later.
    pub created_from_ms: Option<i64>,
    /// Accepted before this time.
    pub created_before_ms: Option<i64>,
    /// Changed its state at this time or later.
    pub changed_from_ms: Option<i64>,
    /// Id of the parent.
    pub parent: Option<String>,
    /// Idempotency key.
    pub key: Option<String>,
    /// Fields of the metadata: name, and value as JSON text. Only scalar values match.
    pub metadata: Vec<(String, String)>,
    /// Text that the id, name, key, agent, reason or metadata contains, whatever the case of ASCII
    /// letters. A reason that may repeat a value marked `#[secret]` is not searched.
    pub text: Option<String>,
    /// Only fibers with an operation in doubt, as in [`exclude_in_doubt`](Self::exclude_in_doubt).
    pub only_in_doubt: bool,
    /// Only fibers with a step under way that has failed and is retried.
    pub only_retrying: bool,
    /// Lowest number that a list looks at. Bounds a search that has no index.
    pub from_seq: Option<Seq>,
    /// Highest number that a list looks at, as [`from_seq`](Self::from_seq) is the lowest.
    pub to_seq: Option<Seq>,
    /// Lists the highest number first.
    pub newest_first: bool,
    /// Leaves out fibers whose parent may still ask for their results.
    ///
    /// Such a parent has not ended, or has failed and so may be resumed.
    pub exclude_awaited: bool,
    /// Leaves out fibers with an operation in doubt.
    ///
    /// That is an effect or a manual operation that is `started`.
    pub exclude_in_doubt: bool,
}

/// Number of fibers of one function in one state.
///
/// ```
/// # mod forever { pub mod fiber { pub use forever_store::{FiberCount, FiberState}; } }
/// use forever::fiber::{FiberCount, FiberState};
///
/// /// Number of fibers that need a person, of what `Forever::counts` gives.
/// fn parked(counts: &[FiberCount]) -> u64 {
///     let parked = counts.iter().filter(|count| count.state == FiberState::Parked);
///     parked.map(|count| count.fibers).sum()
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FiberCount {
    /// Stored name of the function, or the name that a closure fiber was given.
    pub name: String,
    /// State.
    pub state: FiberState,
    /// Number of fibers.
    pub fibers: u64,
}

/// Agent in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentRow {
    /// Identity.
    pub agent: AgentId,
    /// State, JSON.
    pub state: Option<String>,
    /// Time of its last sign of life, while it is kept awake.
    pub awake_ms: Option<i64>,
    /// Deaths of its workers since it was last awake for long.
    pub deaths: u32,
    /// Time of the last change of its state.
    pub changed_ms: i64,
}

/// Page of fibers to be deleted.
///
/// ```
/// # mod forever { pub use forever_store as store; pub use forever_store::Result; }
/// use forever::store::{AdminStore, Deletion, FiberQuery, FiberState, Sqlite};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// # let store = Sqlite::in_memory().await?;
/// let query = FiberQuery {
///     states: vec![FiberState::Completed],
///     ended_before_ms: Some(1_000),
///     ..FiberQuery::default()
/// };
/// let mut page = Deletion { query, limit: 256, ..Deletion::default() };
/// loop {
///     let deleted = store.delete(page.clone()).await?;
///     page.after = deleted.next;
///     if page.after.is_none() {
///         break;
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Deletion {
    /// Which fibers. Those that have not ended are never deleted.
    pub query: FiberQuery,
    /// Where the page before ended. Set only where the query is for one state.
    pub after: Option<DeleteCursor>,
    /// Maximum number of fibers to look at.
    pub limit: u32,
    /// Time of the deletion, if tombstones are to be stored.
    pub tombstone_ms: Option<i64>,
}

/// Place in the list of ended fibers of one state, by time of end and number.
///
/// See [`Deletion`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeleteCursor {
    /// Time of the fiber's end.
    pub finished_ms: i64,
    /// Its sequence number.
    pub seq: Seq,
}

/// Result of a [`Deletion`].
///
/// See [`Deletion`] for an example.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeleteResult {
    /// Number of fibers that were deleted.
    pub count: u64,
    /// Number of fibers that were looked at and kept.
    ///
    /// By constraints of the program's tables, or because their tombstone could not be made.
    pub held: u64,
    /// Where the next page begins, if the page was full.
    pub next: Option<DeleteCursor>,
}

/// Record of a deleted fiber that had a key or a given id.
///
/// It keeps either from starting a second fiber.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FiberTombstone {
    /// Id.
    pub id: String,
    /// Idempotency key.
    pub key: Option<String>,
    /// Stored name of its function, or the name that a closure fiber was given.
    pub name: String,
    /// Digest of its arguments; see [`arguments_digest`](super::arguments_digest).
    pub args: String,
    /// State in which it ended.
    pub state: FiberState,
    /// Time of its end.
    pub finished_ms: i64,
}

/// Commands of people and programs, lists, and deletion.
///
/// Each command is decided on the stored state of its fiber, in one transaction. A command that
/// changes what the fiber resumes from raises its epoch, so that a claim at the state before is
/// lost.
///
/// ```
/// # mod forever { pub use forever_store as store; pub use forever_store::Result; }
/// use forever::store::{AdminStore, CommandResult, Sqlite};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// # let store = Sqlite::in_memory().await?;
/// match store.cancel("order-17".to_owned(), "sold out".to_owned(), 2_000).await? {
///     CommandResult::Done(stopped) => println!("{} fibers stop", stopped.len()),
///     CommandResult::NotFound => println!("there is no such fiber"),
///     CommandResult::InvalidState(state) => println!("it is {state}"),
/// }
/// # Ok(())
/// # }
/// ```
pub trait AdminStore {
    /// Ends a fiber that is interrupted or parked; gives the row as it was, and the end.
    ///
    /// Refused in any other state. The end is `Cancelled` if the fiber was cancelled before, as in
    /// [`FiberStore::end`](super::FiberStore::end).
    fn resolve(&self, id: String, end: End, now_ms: i64) -> BoxFuture<'_, Result<CommandResult<(FiberRow, End)>>>;

    /// Cancels a fiber and its descendants; gives those that had not ended, as they were before.
    ///
    /// Those that are not running have ended when the future is ready. Those that run are marked,
    /// and end as cancelled however they end or stop. The first reason stays. Refused once the
    /// fiber has ended.
    fn cancel(&self, id: String, reason: String, now_ms: i64) -> BoxFuture<'_, Result<CommandResult<Vec<Runnable>>>>;

    /// Makes a stopped fiber ready, and sets its deaths to 0.
    ///
    /// Allowed for fibers that failed, are interrupted or parked, and from the start also for those
    /// that were cancelled. From the start its topics are open again. The messages that were unread
    /// when it was cancelled are deleted: its end has reported them. The ids of all messages that
    /// are not unread are forgotten: the new run has had none of them.
    fn restart(&self, id: String, how: Restart, now_ms: i64) -> BoxFuture<'_, Result<CommandResult<RestartResult>>>;

    /// Lists the messages that a fiber has not received behind the number `after`, in the order of
    /// the sends, also once it has ended. Those of an unknown fiber are none.
    fn pending_messages(&self, id: String, after: i64, limit: u32) -> BoxFuture<'_, Result<Vec<PendingMessage>>>;

    /// Lists the topics that a fiber has closed or has not received all messages of, by name.
    fn topics(&self, id: String) -> BoxFuture<'_, Result<Vec<TopicRow>>>;

    /// Deletes a message that the fiber has not received; gives whether there is one with this
    /// number.
    ///
    /// Refused while the fiber is running, since it may have received the message and not stored so
    /// yet. The message's id stays sent.
    fn discard_message(&self, id: String, message: i64) -> BoxFuture<'_, Result<CommandResult<bool>>>;

    /// Changes what a fiber resumes from; gives whether it was still at the epoch of the edit.
    ///
    /// Where it was not, nothing is changed. Otherwise its epoch is raised, and its state stays.
    /// Refused while the fiber is running, when it has completed, and when it was cancelled.
    fn edit(&self, edit: FiberEdit) -> BoxFuture<'_, Result<CommandResult<bool>>>;

    /// Stores a copy of a fiber, unless its id or key is taken, as
    /// [`accept`](super::FiberStore::accept) does. One that is `pending` is made ready.
    fn import(&self, copy: FiberCopy) -> BoxFuture<'_, Result<AcceptResult>>;

    /// Gives the layouts with these hashes, as far as they are stored.
    fn layouts(&self, hashes: Vec<String>) -> BoxFuture<'_, Result<Vec<LayoutRow>>>;

    /// Finds a fiber.
    fn find(&self, fiber: FiberRef) -> BoxFuture<'_, Result<Option<FiberRow>>>;

    /// Lists the fibers behind `after` that match a query, by number.
    ///
    /// With [`newest_first`](FiberQuery::newest_first), those before `after`, the last one first.
    /// Fewer than `limit` mean that there are no more. A row that cannot be read in full is listed
    /// with what can be read.
    fn list(&self, query: FiberQuery, after: Seq, limit: u32) -> BoxFuture<'_, Result<Vec<FiberRow>>>;

    /// Counts fibers by function and state, ordered by both names: those in one of `states`, or all
    /// of them without any.
    ///
    /// States without [`FiberState::Completed`] are counted at the cost of the fibers in them,
    /// however many have completed.
    fn counts(&self, states: Vec<FiberState>) -> BoxFuture<'_, Result<Vec<FiberCount>>>;

    /// Lists the fibers of a function in a state, the highest number first.
    fn stops(&self, name: String, state: FiberState, limit: u32) -> BoxFuture<'_, Result<Vec<StopRow>>>;

    /// Lists steps of unfinished fibers that have failed and are retried, of the `looked_at` ones
    /// whose next attempt is due last.
    ///
    /// Those of fibers that have stopped are looked at too, and left out.
    fn retries(&self, looked_at: u32) -> BoxFuture<'_, Result<Vec<RetryRow>>>;

    /// Lists fibers that have at least `least` of the `looked_at` newest messages that were not
    /// received, those with the most first, at most `limit`.
    ///
    /// Fibers that have completed or were cancelled are left out.
    fn queues(&self, looked_at: u32, least: u32, limit: u32) -> BoxFuture<'_, Result<Vec<QueueRow>>>;

    /// Lists agents that have a state or are kept awake, behind `after`, by class and name.
    fn agents(&self, after: Option<AgentId>, limit: u32) -> BoxFuture<'_, Result<Vec<AgentRow>>>;

    /// Lists the schedules of all agents behind the one with the id `after`, in the order in which
    /// they were made. An id that is not stored begins at the first.
    fn all_schedules(&self, after: Option<String>, limit: u32) -> BoxFuture<'_, Result<Vec<ScheduleRow>>>;

    /// Deletes a page of ended fibers with all that is stored of them, by state and time of end.
    ///
    /// With [`tombstone_ms`](Deletion::tombstone_ms) a tombstone is stored for each that has a key
    /// or a given id, in the same transaction.
    fn delete(&self, deletion: Deletion) -> BoxFuture<'_, Result<DeleteResult>>;

    /// Finds a tombstone by id or key. By sequence number there is none.
    fn tombstone(&self, fiber: FiberRef) -> BoxFuture<'_, Result<Option<FiberTombstone>>>;

    /// Deletes a page of tombstones; gives how many.
    ///
    /// Of the query the states, the name and the time of the end are looked at. With
    /// `deleted_before_ms`, only those whose fibers were deleted before.
    fn delete_tombstones(&self, deletion: Deletion, deleted_before_ms: Option<i64>) -> BoxFuture<'_, Result<u64>>;
}
