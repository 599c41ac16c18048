//! Several workers over one database: data types and [`ClusterStore`].
use std::fmt;

use crate::error::Result;
use crate::future::BoxFuture;
use crate::{AgentId, Claim, End, TurnSeq, TurnState, WorkerId};

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
    /// Reason with which it was cancelled.
    pub cancel: Option<String>,
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
}

/// Ability of a store that several workers share.
///
/// A store without it ([`FiberStore::cluster`](crate::FiberStore::cluster)) has one worker, which
/// knows of everything that happens.
pub trait ClusterStore: Send + Sync {
    /// Reads what has become of the things that a worker waits for.
    fn changes(&self, watch: Watch) -> BoxFuture<'_, Result<Changes>>;

    /// Waits until another worker says that it has changed something.
    ///
    /// A hint that saves the time until the next poll. Notifications may be lost, come together,
    /// and never come at all.
    fn notified(&self) -> BoxFuture<'_, Notification>;

    /// Stores that a worker cannot resume a fiber, at the epoch at which it was loaded or claimed.
    ///
    /// Another worker that is alive and has not declined it at this checkpoint may claim it.
    /// Without one it is parked for `reason`. The epoch stays.
    fn decline(&self, seen: Claim, worker: WorkerId, reason: String, now_ms: i64) -> BoxFuture<'_, Result<DeclineResult>>;

    /// Lists the workers that count as alive, by number.
    fn workers(&self) -> BoxFuture<'_, Result<Vec<WorkerRow>>>;

    /// Makes a worker the holder of an agent; gives the other worker that holds it, if one does.
    ///
    /// A worker that is gone holds no agents.
    fn hold_agent(&self, agent: AgentId, worker: WorkerId) -> BoxFuture<'_, Result<Option<WorkerRow>>>;

    /// Ends the hold of a worker on an agent.
    fn release_agent(&self, agent: AgentId, worker: WorkerId) -> BoxFuture<'_, Result<()>>;
}
