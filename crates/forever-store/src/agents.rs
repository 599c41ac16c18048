//! Agents, what keeps them awake, and their schedules: data types and [`AgentStore`].
use std::fmt;

use crate::WorkerId;
use crate::error::{Error, ErrorKind, Result};
use crate::future::BoxFuture;

/// Identity of an agent: its class and its name.
///
/// See [`AgentStore`] for an example.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AgentId {
    /// Class.
    pub class: String,
    /// Name, unique within the class.
    pub name: String,
}

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.class, self.name)
    }
}

/// Hold of a worker on an agent that it has in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentHold {
    /// The worker.
    pub worker: WorkerId,
    /// Number that no other hold on the agent has.
    pub epoch: i64,
}

impl AgentHold {
    /// The error of a write under this hold once it has ended.
    pub fn lost(self, agent: &AgentId) -> Error {
        Error::new(
            ErrorKind::ClaimLost,
            format!("worker {} does not hold agent `{agent}` any more, as it did at {}", self.worker, self.epoch),
        )
    }
}

/// Agent that is kept awake, also after the death of its process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeepAliveRow {
    /// The agent.
    pub agent: AgentId,
    /// Deaths of the process in a row while the agent was being woken for this reason.
    pub deaths: u32,
}

/// Rule that makes a schedule due.
///
/// ```
/// # mod forever { pub use forever_store as store; pub use forever_store::Result; }
/// use forever::store::ScheduleTiming;
///
/// /// The columns of a row for it.
/// fn columns(timing: &ScheduleTiming) -> (&'static str, Option<&str>, Option<i64>) {
///     match timing {
///         ScheduleTiming::Delay | ScheduleTiming::Time => (timing.kind(), None, None),
///         ScheduleTiming::Cron(pattern) => (timing.kind(), Some(pattern), None),
///         ScheduleTiming::Every(interval_ms) => (timing.kind(), None, Some(*interval_ms)),
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScheduleTiming {
    /// Once, after a delay.
    Delay,
    /// Once, at a time.
    Time,
    /// At the times of a cron pattern.
    Cron(String),
    /// At an interval in milliseconds.
    Every(i64),
}

impl ScheduleTiming {
    /// The stored word.
    pub fn kind(&self) -> &'static str {
        match self {
            ScheduleTiming::Delay => "delay",
            ScheduleTiming::Time => "time",
            ScheduleTiming::Cron(_) => "cron",
            ScheduleTiming::Every(_) => "every",
        }
    }

    /// Whether the schedule is due more than once.
    pub fn repeats(&self) -> bool {
        matches!(self, ScheduleTiming::Cron(_) | ScheduleTiming::Every(_))
    }
}

/// Schedule to be stored.
///
/// ```
/// # mod forever { pub use forever_store as store; pub use forever_store::Result; }
/// use forever::store::{AgentId, AgentStore, NewScheduleRow, ScheduleTiming, Sqlite};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// # let store = Sqlite::in_memory().await?;
/// let hourly = NewScheduleRow {
///     id: "s1".to_owned(),
///     agent: AgentId { class: "counter".to_owned(), name: "visits".to_owned() },
///     name: "report".to_owned(),
///     payload: "null".to_owned(),
///     timing: ScheduleTiming::Every(3_600_000),
///     due_ms: 3_600_000,
///     idempotent: true,
///     begun: Vec::new(),
///     now_ms: 0,
/// };
/// let again = NewScheduleRow { id: "s2".to_owned(), ..hourly.clone() };
/// assert!(store.add_schedule(hourly).await?.1);
/// // The same schedule, so it is renewed.
/// let (row, is_new) = store.add_schedule(again).await?;
/// assert_eq!((&*row.id, is_new), ("s1", false));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct NewScheduleRow {
    /// Id, unique in the store.
    pub id: String,
    /// Agent that owns it.
    pub agent: AgentId,
    /// Name that the agent's hook gets.
    pub name: String,
    /// Payload that the hook gets, JSON.
    pub payload: String,
    /// Rule that makes it due.
    pub timing: ScheduleTiming,
    /// Time at which it is due first.
    pub due_ms: i64,
    /// Whether a schedule that is the same is renewed instead.
    ///
    /// The same is one of the agent with the same kind, name and
    /// [payload](super::is_same_payload), and for cron the same pattern.
    pub idempotent: bool,
    /// Ids of schedules whose run has begun. One of these that is due once is never renewed: it is
    /// deleted when its run ends.
    pub begun: Vec<String>,
    /// Time of the request.
    pub now_ms: i64,
}

/// Stored schedule.
///
/// See [`NewScheduleRow`] for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleRow {
    /// Id.
    pub id: String,
    /// Agent that owns it.
    pub agent: AgentId,
    /// Name that the agent's hook gets.
    pub name: String,
    /// Payload that the hook gets, JSON.
    pub payload: String,
    /// Rule that makes it due.
    pub timing: ScheduleTiming,
    /// Time at which it is, or was, due.
    pub due_ms: i64,
    /// Time of its next run: later than `due_ms` after a failed run, `None` once it is suspended.
    pub next_ms: Option<i64>,
    /// Time at which the run under way began.
    pub running_ms: Option<i64>,
    /// Number of failed runs for `due_ms`.
    pub attempts: u32,
    /// Deaths of the process in a row during its runs, with the run under way counted in advance.
    pub deaths: u32,
    /// Error of the last run.
    pub error: Option<String>,
    /// Time of the request.
    pub created_ms: i64,
}

/// Result of a run of a schedule.
///
/// ```
/// # mod forever { pub use forever_store as store; pub use forever_store::Result; }
/// use forever::store::RunResult;
///
/// /// The time of the next run, if there is one.
/// fn next_ms(result: &RunResult) -> Option<i64> {
///     match result {
///         RunResult::Done | RunResult::Suspended { .. } => None,
///         RunResult::Next { due_ms, .. } => Some(*due_ms),
///         RunResult::Retry { next_ms, .. } => Some(*next_ms),
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunResult {
    /// The schedule is done, and is deleted.
    Done,
    /// It is due again.
    Next {
        /// Next time at which it is due.
        due_ms: i64,
        /// Error of this run, if it failed for good.
        error: Option<String>,
    },
    /// The run failed and is tried again. Counts as one more attempt.
    Retry {
        /// Time of the next attempt.
        next_ms: i64,
        /// Error of this run.
        error: String,
    },
    /// The schedule is not run again, and stays in lists. Counts as one more attempt.
    Suspended {
        /// Error of this run.
        error: String,
    },
}

/// Schedules that are due implausibly late.
///
/// Their time was computed while the clock was ahead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FarSchedules {
    /// Patterns of cron schedules, each with the latest time at which one is due.
    ///
    /// Of those without failed runs that are due more than the slack from now.
    pub crons: Vec<(String, i64)>,
    /// Whether there are schedules of other kinds to correct.
    pub others: bool,
}

/// Storage of agents and their schedules.
///
/// `classes` are the registered ones. Schedules of other classes are left as they are.
///
/// ```
/// # mod forever { pub use forever_store as store; pub use forever_store::Result; }
/// use forever::store::{AgentId, AgentStore, Sqlite};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// # let store = Sqlite::in_memory().await?;
/// let visits = AgentId { class: "counter".to_owned(), name: "visits".to_owned() };
/// store.save_state(visits.clone(), "7".to_owned(), None, 1_000).await?;
/// assert_eq!(store.load_state(visits).await?.as_deref(), Some("7"));
/// # Ok(())
/// # }
/// ```
pub trait AgentStore {
    /// Gives the state of an agent, JSON, if it was ever saved.
    fn load_state(&self, agent: AgentId) -> BoxFuture<'_, Result<Option<String>>>;

    /// Replaces the state of an agent.
    ///
    /// With a `hold`, for code of the agent itself, only while that hold lasts: afterwards the
    /// write is refused as one whose [claim is lost](crate::Error::is_claim_lost). Only a
    /// [`ClusterStore`](crate::ClusterStore) gives holds.
    fn save_state(&self, agent: AgentId, state: String, hold: Option<AgentHold>, now_ms: i64) -> BoxFuture<'_, Result<()>>;

    /// Stores that an agent is kept awake, with `now_ms` as its heartbeat.
    fn keep_awake(&self, agent: AgentId, now_ms: i64) -> BoxFuture<'_, Result<()>>;

    /// Renews the heartbeats of agents that are kept awake. Agents that are not any more stay so.
    fn renew_keep_alives(&self, agents: Vec<AgentId>, now_ms: i64) -> BoxFuture<'_, Result<()>>;

    /// Stores that an agent is not kept awake any more. Its deaths are set to 0.
    fn end_keep_alive(&self, agent: AgentId) -> BoxFuture<'_, Result<()>>;

    /// Lists the agents that are kept awake, the oldest heartbeat first.
    fn awake_agents(&self) -> BoxFuture<'_, Result<Vec<KeepAliveRow>>>;

    /// Counts a death of an agent in advance, before it is woken.
    fn count_wake_attempt(&self, agent: AgentId) -> BoxFuture<'_, Result<()>>;

    /// Sets the deaths of an agent to 0, once it has been woken.
    fn reset_wake_attempts(&self, agent: AgentId) -> BoxFuture<'_, Result<()>>;

    /// Stores a schedule; gives the row, and whether it is new.
    ///
    /// An [idempotent](NewScheduleRow::idempotent) one renews the schedule that it is a repetition
    /// of.
    ///
    /// A renewal takes over the new interval and due time, and lets a schedule run again that was
    /// suspended for its errors. One that was suspended for deaths stays so. Where neither applies,
    /// nothing is changed.
    fn add_schedule(&self, new: NewScheduleRow) -> BoxFuture<'_, Result<(ScheduleRow, bool)>>;

    /// Lists the schedules of an agent, in the order in which they were added.
    fn schedules(&self, agent: AgentId) -> BoxFuture<'_, Result<Vec<ScheduleRow>>>;

    /// Deletes a schedule of an agent; gives whether there was one.
    fn cancel_schedule(&self, agent: AgentId, id: String) -> BoxFuture<'_, Result<bool>>;

    /// Ends the runs that an earlier process has left under way, and those of this one.
    ///
    /// Called when a runtime opens, and where a claim had no answer and no run is under way.
    /// Schedules with `strikes` deaths in a row or more are
    /// suspended, with an error that says so.
    fn recover_schedules(&self, strikes: u32) -> BoxFuture<'_, Result<()>>;

    /// Begins the runs of schedules that are due, the earliest first.
    ///
    /// Counts a death of each in advance.
    ///
    /// A schedule with deaths is begun only if no other one of those runs, and one at a time.
    fn claim_schedules(&self, classes: Vec<String>, now_ms: i64, limit: u32) -> BoxFuture<'_, Result<Vec<ScheduleRow>>>;

    /// Ends a run, and sets the deaths of the schedule to 0.
    ///
    /// A schedule that was deleted meanwhile stays so. One whose [`due_ms`](ScheduleRow::due_ms)
    /// was changed meanwhile, by a renewal, keeps its new times.
    fn end_run(&self, run: ScheduleRow, result: RunResult) -> BoxFuture<'_, Result<()>>;

    /// Gives the schedules that are due implausibly late, by more than `slack_ms`.
    fn far_schedules(&self, now_ms: i64, slack_ms: i64) -> BoxFuture<'_, Result<FarSchedules>>;

    /// Corrects schedules that are due implausibly late, by more than `slack_ms`; gives how many.
    ///
    /// - Intervals become due at the next time of their rhythm.
    /// - Delays that were requested later than now become due after their delay, from now on.
    /// - Failed runs are tried again now, of a [`Time`](ScheduleTiming::Time) not before that time.
    /// - Cron schedules become due at the times of `crons`, which holds times with their patterns.
    ///
    /// Schedules that are due at a time, and those that run, stay as they are.
    fn correct_schedules(&self, now_ms: i64, slack_ms: i64, crons: Vec<(i64, String)>) -> BoxFuture<'_, Result<u64>>;

    /// Gives the earliest time at which a schedule may be claimed.
    fn next_schedule(&self, classes: Vec<String>) -> BoxFuture<'_, Result<Option<i64>>>;

    /// Lists the classes with schedules or awake agents that are not registered, by name.
    fn unregistered_classes(&self, classes: Vec<String>) -> BoxFuture<'_, Result<Vec<String>>>;
}
