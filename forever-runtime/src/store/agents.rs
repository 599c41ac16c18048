//! What is stored of agents: their state, what keeps them awake, and their schedules.
use crate::error::Result;
use crate::fiber::frame::BoxFuture;
use crate::fiber::owner::AgentId;

/// An agent that a dead process has left awake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeftAwake {
    pub(crate) agent: AgentId,
    /// How often the process died while the agent was woken for this reason.
    pub(crate) deaths: u32,
}

/// What makes a schedule due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Timing {
    /// Once, some time after it was made.
    Delay,
    /// Once, at a time.
    Time,
    /// At the times of a cron pattern.
    Cron(String),
    /// Each time so many milliseconds have passed.
    Every(i64),
}

impl Timing {
    /// The stored word.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Timing::Delay => "delay",
            Timing::Time => "time",
            Timing::Cron(_) => "cron",
            Timing::Every(_) => "every",
        }
    }

    /// Whether it comes again.
    pub(crate) fn repeats(&self) -> bool {
        matches!(self, Timing::Cron(_) | Timing::Every(_))
    }
}

/// A schedule to be stored.
#[derive(Debug, Clone)]
pub(crate) struct NewSchedule {
    pub(crate) id: String,
    pub(crate) agent: AgentId,
    pub(crate) name: String,
    /// In the format of snapshots.
    pub(crate) payload: String,
    pub(crate) timing: Timing,
    pub(crate) due_ms: i64,
    /// Whether one like it, if there is one, is to take its place.
    pub(crate) idempotent: bool,
    /// The ids of schedules whose run has begun: of what is due once they are none like it.
    pub(crate) begun: Vec<String>,
    pub(crate) now_ms: i64,
}

/// A schedule as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScheduleRow {
    pub(crate) id: String,
    pub(crate) agent: AgentId,
    pub(crate) name: String,
    pub(crate) payload: String,
    pub(crate) timing: Timing,
    /// When it is, or was, due.
    pub(crate) due_ms: i64,
    /// When it is run next: later than `due_ms` if a run has failed; none if it is not run again.
    pub(crate) next_ms: Option<i64>,
    /// Since when it runs.
    pub(crate) running_ms: Option<i64>,
    /// How many runs for `due_ms` have failed.
    pub(crate) attempts: u32,
    /// How many runs in a row the process has not survived; one that runs now counts.
    pub(crate) deaths: u32,
    /// Why the last run failed.
    pub(crate) error: Option<String>,
    pub(crate) created_ms: i64,
}

/// How a run of a schedule ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ran {
    /// It is done and comes no more.
    Done,
    /// It comes again; `error` says why this time came to nothing.
    Next { due_ms: i64, error: Option<String> },
    /// It has failed and is tried again.
    Again { next_ms: i64, error: String },
    /// It is not run again.
    Aside { error: String },
}

/// Schedules that are due later than they can be, unless the clock was ahead when that was computed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FarSchedules {
    /// The patterns of all cron schedules that are not due soon, each with the latest time at which one is due.
    pub(crate) crons: Vec<(String, i64)>,
    /// Whether there are others.
    pub(crate) others: bool,
}

/// The storage of agents and their schedules. `classes` are those that are registered; what is of others stays as it is.
pub(crate) trait AgentStore {
    /// An agent's state, if it was ever set.
    fn load_state(&self, agent: AgentId) -> BoxFuture<'_, Result<Option<String>>>;

    /// Puts an agent's state in the place of the last one.
    fn save_state(&self, agent: AgentId, state: String, now_ms: i64) -> BoxFuture<'_, Result<()>>;

    /// Stores that something keeps an agent awake.
    fn keep_awake(&self, agent: AgentId, now_ms: i64) -> BoxFuture<'_, Result<()>>;

    /// Stores that agents are still kept awake; those that are not any more stay so.
    fn still_awake(&self, agents: Vec<AgentId>, now_ms: i64) -> BoxFuture<'_, Result<()>>;

    /// Stores that nothing keeps an agent awake any more.
    fn let_sleep(&self, agent: AgentId) -> BoxFuture<'_, Result<()>>;

    /// The agents that something keeps awake.
    fn left_awake(&self) -> BoxFuture<'_, Result<Vec<LeftAwake>>>;

    /// Counts a death in advance for an agent that is woken because it was left awake.
    fn count_waking(&self, agent: AgentId) -> BoxFuture<'_, Result<()>>;

    /// Takes the deaths of an agent back: it has been woken.
    fn has_woken(&self, agent: AgentId) -> BoxFuture<'_, Result<()>>;

    /// Stores a schedule; gives the row, and whether it is a new one.
    fn add_schedule(&self, new: NewSchedule) -> BoxFuture<'_, Result<(ScheduleRow, bool)>>;

    /// An agent's schedules, in the order in which they were made.
    fn schedules(&self, agent: AgentId) -> BoxFuture<'_, Result<Vec<ScheduleRow>>>;

    /// Takes away a schedule of an agent; says whether there was one.
    fn cancel_schedule(&self, agent: AgentId, id: String) -> BoxFuture<'_, Result<bool>>;

    /// Takes back that schedules run, which an earlier process has left so, and sets those aside that `strikes` processes in a row
    /// have not survived. Done once, when a runtime opens.
    fn recover_schedules(&self, strikes: u32) -> BoxFuture<'_, Result<()>>;

    /// Calls schedules running that are due, the earliest first, and counts a death for each in advance. Of those that have seen
    /// a death one at a time is let in.
    fn claim_schedules(&self, classes: Vec<String>, now_ms: i64, limit: u32) -> BoxFuture<'_, Result<Vec<ScheduleRow>>>;

    /// Stores how a run ended. The schedule it was of may have been taken away or changed since.
    fn end_run(&self, run: ScheduleRow, ran: Ran) -> BoxFuture<'_, Result<()>>;

    /// What may be due later than it can be, by more than `slack_ms`.
    fn far_schedules(&self, now_ms: i64, slack_ms: i64) -> BoxFuture<'_, Result<FarSchedules>>;

    /// Makes schedules due earlier that are due later than they can be, by more than `slack_ms`: intervals at the next time of their rhythm, those of
    /// these patterns at these times, delays that were made later than now after their delay, and what has failed now. What is due at a time stays so.
    fn correct_schedules(&self, now_ms: i64, slack_ms: i64, crons: Vec<(i64, String)>) -> BoxFuture<'_, Result<u64>>;

    /// When the next schedule may be claimed.
    fn next_schedule(&self, classes: Vec<String>) -> BoxFuture<'_, Result<Option<i64>>>;

    /// The classes with schedules, or agents left awake, that are not registered.
    fn other_classes(&self, classes: Vec<String>) -> BoxFuture<'_, Result<Vec<String>>>;
}
