//! Several workers over one database: data types and [`ClusterStore`].
use std::fmt;

use crate::error::Result;
use crate::future::BoxFuture;
use crate::{AgentHold, AgentId, Claim, End, TurnSeq, TurnState, WorkerId};

/// Worker that counts as alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerRow {
    /// Its number.
    pub id: WorkerId,
    /// Number of its operating system process, where it is known.
    pub process: Option<u32>,
    /// Network address that it connects from; `None` for a local socket.
    pub address: Option<String>,
    /// Time at which it joined, by its own clock.
    pub joined_ms: i64,
    /// Age of its last heartbeat, by the clock of the database.
    pub silent_ms: i64,
    /// Length of its lease.
    pub lease_ms: i64,
    /// Whether others notice its death before the lease has run out.
    pub shows_life: bool,
    /// Number of fibers that it runs.
    pub running: u64,
}

impl fmt::Display for WorkerRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {}", self.id)?;
        match (self.process, &self.address) {
            (Some(process), Some(address)) => write!(f, " (process {process} at {address})"),
            (Some(process), None) => write!(f, " (process {process})"),
            (None, Some(address)) => write!(f, " (at {address})"),
            (None, None) => Ok(()),
        }
    }
}

/// What a worker waits for that other workers may do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Watch {
    /// The worker that asks. The cancelled fibers are those that it runs.
    pub worker: WorkerId,
    /// Ids of fibers whose stop it waits for.
    pub fibers: Vec<String>,
    /// Ids of fibers that it runs and that wait for messages in memory.
    pub receivers: Vec<String>,
    /// Turns whose logs it follows, or that it answers.
    pub turns: Vec<TurnSeq>,
    /// Chats that it has listeners of.
    pub chats: Vec<AgentId>,
    /// Agents whose states it shows to connections.
    pub agents: Vec<AgentId>,
    /// Ids of its requests to agents whose outcomes it waits for.
    pub requests: Vec<String>,
}

/// What is stored of the things in a [`Watch`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Ids of watched fibers that do not exist, have ended, or have stopped without ending.
    pub stopped: Vec<String>,
    /// Ids of watched receivers that have a message.
    pub received: Vec<String>,
    /// Ids of fibers of the worker that were cancelled, with the reasons.
    pub cancelled: Vec<(String, String)>,
    /// The watched turns that exist.
    pub turns: Vec<TurnProgress>,
    /// Versions of the watched chats. A version is raised with every change of a chat's turns and
    /// messages.
    pub chats: Vec<(AgentId, i64)>,
    /// Versions of the states of the watched agents. A version is raised with every change of the
    /// state.
    pub agents: Vec<(AgentId, i64)>,
    /// Ids of watched requests for which [`take_request`](ClusterStore::take_request) has a result.
    pub requests: Vec<String>,
    /// Agents with requests that have not begun, and that this worker carries out: it holds the
    /// agent, or no living worker does and the request is its own.
    pub requested: Vec<AgentId>,
    /// Whether another worker listens to events of fibers.
    pub listeners: bool,
    /// Whether it is stored that this worker listens to them.
    pub listens: bool,
    /// Whether the worker counted as dead since the last call. Then it has lost its claims and the
    /// agents that it held.
    pub fenced: bool,
}

/// Progress of a turn, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnProgress {
    /// The turn.
    pub turn: TurnSeq,
    /// Number of its chunks.
    pub chunks: u64,
    /// State.
    pub state: TurnState,
    /// Why it ended as it did.
    pub reason: Option<String>,
    /// The error that ended it.
    pub error: Option<String>,
    /// Reason with which it was cancelled.
    pub cancel: Option<String>,
}

/// Result of [`ClusterStore::hold_agent`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HoldResult {
    /// The worker holds the agent.
    Held(AgentHold),
    /// Another worker holds it.
    Elsewhere(WorkerRow),
}

/// Result of [`ClusterStore::decline`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeclineResult {
    /// The fiber is `pending`, for a worker that has not declined it.
    Left,
    /// Every worker that is alive has declined it: it is `parked`, with the reason.
    Parked,
    /// The fiber had been cancelled, and has ended so.
    Ended(End),
}

/// Notification of a [`ClusterStore`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Notification {
    /// Whether a fiber may be ready of which no worker was notified.
    pub ready: bool,
    /// Whether a request to an agent, or its outcome, was stored.
    pub requested: bool,
}

/// Call of a method of an agent that another worker holds, to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAgentRequest {
    /// Id, unique in the store.
    pub id: String,
    /// The agent.
    pub agent: AgentId,
    /// Name of the method.
    pub method: String,
    /// Arguments, JSON.
    pub args: String,
    /// The worker that waits for the outcome. With its row the request is deleted.
    pub caller: WorkerId,
    /// Time from now after which the request does not begin any more.
    pub limit_ms: i64,
}

/// Request that a worker has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentRequest {
    /// Id.
    pub id: String,
    /// Name of the method.
    pub method: String,
    /// Arguments, JSON.
    pub args: String,
}

/// Outcome of a request.
///
/// See [`RequestProgress`] for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestOutcome {
    /// The method has returned this value, JSON.
    Answered(String),
    /// The call has failed, with this text.
    Failed(String),
}

/// Result of [`ClusterStore::take_request`].
///
/// ```
/// # mod forever { pub use forever_store as store; pub use forever_store::Result; }
/// use forever::store::{RequestOutcome, RequestProgress};
///
/// /// What the caller of an agent's method gets; `None` while it has to wait.
/// fn answer(progress: RequestProgress) -> Option<Result<String, String>> {
///     match progress {
///         RequestProgress::Waiting | RequestProgress::Begun => None,
///         RequestProgress::Ended(RequestOutcome::Answered(value)) => Some(Ok(value)),
///         RequestProgress::Ended(RequestOutcome::Failed(why)) => Some(Err(why)),
///         RequestProgress::Lost => Some(Err("the outcome is unknown".to_owned())),
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestProgress {
    /// It has not begun.
    Waiting,
    /// The holder of the agent has begun it.
    Begun,
    /// It has ended, and is deleted.
    Ended(RequestOutcome),
    /// It does not exist, or the worker that has begun it does not hold the agent any more. It is
    /// deleted, and its outcome stays unknown.
    Lost,
}

/// Item that a worker publishes to the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publication {
    /// The agent that broadcasts; `None` for an event of a fiber.
    pub agent: Option<AgentId>,
    /// The broadcast or the event, JSON.
    pub data: String,
}

/// Published item, as another worker reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedItem {
    /// The worker that has published it.
    pub worker: WorkerId,
    /// Its number among the items of that worker.
    pub number: u64,
    /// The agent that broadcasts; `None` for an event of a fiber.
    pub agent: Option<AgentId>,
    /// The broadcast or the event; `None` where it was not asked for.
    pub data: Option<String>,
}

/// Query for published items.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PublishedQuery {
    /// The worker that asks. It does not get its own items.
    pub worker: WorkerId,
    /// Numbers of the last items that it has read, by worker. 0 for all others.
    pub after: Vec<(WorkerId, u64)>,
    /// Agents whose broadcasts it asks for.
    pub agents: Vec<AgentId>,
    /// Whether it asks for events of fibers.
    pub events: bool,
}

/// Result of [`ClusterStore::published`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PublishedPage {
    /// The items, by worker and number. Where the query asks for nothing there are none.
    pub items: Vec<PublishedItem>,
    /// The other workers that count as alive, with the numbers of their last items.
    pub workers: Vec<(WorkerId, u64)>,
    /// Whether there may be more items.
    pub more: bool,
}

/// Lease of this worker, as far as its own process knows.
///
/// In force means that no other worker can have taken over: the last renewal is younger than the
/// lease, by a clock that goes on while the machine sleeps.
///
/// ```
/// # mod forever { pub use forever_store as store; pub use forever_store::Result; }
/// use forever::store::Lease;
///
/// /// Runs `work` while no other worker can have taken over.
/// async fn leased<T>(lease: &dyn Lease, work: impl Future<Output = T>) -> Option<T> {
///     lease.renewal().await;
///     let before = lease.generation()?;
///     let value = work.await;
///     (lease.generation() == Some(before)).then_some(value)
/// }
/// ```
pub trait Lease: Send + Sync {
    /// How often the lease was in doubt, from 1; `None` while it is.
    ///
    /// A claim that was requested under another number may have been taken over since.
    fn generation(&self) -> Option<u64>;

    /// Waits until the lease is in force.
    fn renewal(&self) -> BoxFuture<'_, ()>;
}

/// Ability of a store that several workers share.
///
/// A store without it ([`FiberStore::cluster`](crate::FiberStore::cluster)) has one worker, which
/// knows of everything that happens.
///
/// ```
/// # mod forever { pub use forever_store as store; pub use forever_store::Result; }
/// use forever::store::{FiberStore, Sqlite};
///
/// /// Number of workers that are alive.
/// async fn workers(store: &impl FiberStore) -> forever::Result<usize> {
///     match store.cluster() {
///         Some(cluster) => Ok(cluster.workers().await?.len()),
///         None => Ok(1),
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// assert_eq!(workers(&Sqlite::in_memory().await?).await?, 1);
/// # Ok(())
/// # }
/// ```
pub trait ClusterStore: Send + Sync {
    /// Reads what has become of the things that a worker waits for.
    fn changes(&self, watch: Watch) -> BoxFuture<'_, Result<Changes>>;

    /// The lease of the worker that has joined.
    ///
    /// Defaults to none: then code of fibers runs whatever the process knows, and only its writes
    /// are refused after a takeover.
    fn lease(&self) -> Option<&dyn Lease> {
        None
    }

    /// Whether other workers were alive at the last look. With the default, `true`, a worker does
    /// not learn that it has become the only one.
    fn has_others(&self) -> bool {
        true
    }

    /// Waits until another worker says that it has changed something.
    ///
    /// A hint that saves the time until the next poll. Notifications may be lost, come together,
    /// and never come at all.
    fn notified(&self) -> BoxFuture<'_, Notification>;

    /// Stores that a worker cannot resume a fiber that it has claimed, or that is parked at this
    /// epoch.
    ///
    /// Another worker that is alive and has not declined it at this checkpoint may claim it.
    /// Without one it is parked for `reason`. A claim is released, which raises the epoch; such a
    /// fiber stays one that was interrupted if it was so before the claim, by `interrupted`.
    fn decline(
        &self,
        seen: Claim,
        worker: WorkerId,
        reason: String,
        interrupted: bool,
        now_ms: i64,
    ) -> BoxFuture<'_, Result<DeclineResult>>;

    /// Lists the workers that count as alive, by number.
    fn workers(&self) -> BoxFuture<'_, Result<Vec<WorkerRow>>>;

    /// Makes a worker the holder of an agent, unless another one holds it.
    ///
    /// A worker that is gone holds no agents. A worker that holds the agent already keeps its hold.
    fn hold_agent(&self, agent: AgentId, worker: WorkerId) -> BoxFuture<'_, Result<HoldResult>>;

    /// Ends the hold of a worker on an agent.
    fn release_agent(&self, agent: AgentId, worker: WorkerId) -> BoxFuture<'_, Result<()>>;

    /// Stores a request to an agent.
    fn request(&self, request: NewAgentRequest) -> BoxFuture<'_, Result<()>>;

    /// Begins the oldest request to an agent that has not begun, if `worker` holds the agent.
    ///
    /// A request begins once at most, and not after its time limit, by the clock of the store.
    fn begin_request(&self, agent: AgentId, worker: WorkerId) -> BoxFuture<'_, Result<Option<AgentRequest>>>;

    /// Stores the outcome of a request that `worker` has begun; gives whether it was stored.
    ///
    /// It is not where the worker has ceased to hold the agent since the begin, also if it holds it
    /// again, nor where the caller has withdrawn the request.
    fn end_request(&self, id: String, worker: WorkerId, outcome: RequestOutcome) -> BoxFuture<'_, Result<bool>>;

    /// Gives the progress of a request, and deletes it if it has ended or is lost.
    fn take_request(&self, id: String) -> BoxFuture<'_, Result<RequestProgress>>;

    /// Deletes a request; gives whether it is certain that it has not begun and never will.
    fn withdraw_request(&self, id: String) -> BoxFuture<'_, Result<bool>>;

    /// Stores items for other workers, numbered from `first`.
    ///
    /// An item that is stored stays as it is.
    /// Items are kept for a minute at least, and not durably: a crash of the store may lose them.
    fn publish(&self, worker: WorkerId, first: u64, items: Vec<Publication>) -> BoxFuture<'_, Result<()>>;

    /// Reads the items that other workers have published.
    fn published(&self, query: PublishedQuery) -> BoxFuture<'_, Result<PublishedPage>>;

    /// The time by the store's own clock, which all workers go by; `None` if it has none, and their
    /// clocks are one.
    fn now_ms(&self) -> BoxFuture<'_, Result<Option<i64>>> {
        Box::pin(async { Ok(None) })
    }

    /// Stores whether a worker listens to events of fibers.
    fn set_listens(&self, worker: WorkerId, listens: bool) -> BoxFuture<'_, Result<()>>;
}
