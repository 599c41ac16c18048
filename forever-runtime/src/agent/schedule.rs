//! Schedules: the public types.
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::de::DeserializeOwned;
use tracing::warn;

use super::cron;
use super::due::payload;
use super::registry::Agents;
use crate::clock::{from_ms, ms};
use crate::error::{Error, ErrorKind, Result, chain};
use crate::exec::agent_hooks::check_name;
use crate::runtime::detached::detached;
use crate::runtime::link::Link;
use crate::runtime::state::Runtime;
use crate::runtime::timer::{Alarm, SET_BACK_MS};
use crate::store::{self, AgentId, ScheduleRow, ScheduleTiming};

/// The alarm of the next schedule.
pub(super) const DUE: &str = "schedule due";

/// 9999-12-31T23:59:59.999Z, the latest time of a schedule.
const LATEST_MS: i64 = 253_402_300_799_999;

/// Time or rule of a schedule.
///
/// Most are made by `into`:
///
/// ```
/// # use forever_runtime as forever;
/// use forever::agent::{Agent, AgentHandle, When};
/// use std::time::{Duration, SystemTime};
///
/// const HOUR: Duration = Duration::from_secs(60 * 60);
///
/// async fn plan<A: Agent>(ada: &AgentHandle<A>) -> forever::Result<()> {
///     ada.schedule(HOUR, "once", ()).await?; // `When::After`
///     ada.schedule(SystemTime::now() + HOUR, "once", ()).await?; // `When::At`
///     ada.schedule("0 9 * * MON", "weekly", ()).await?; // `When::Cron`
///     ada.schedule(When::Every(HOUR), "hourly", ()).await?;
///     Ok(())
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum When {
    /// Once, after this time.
    After(Duration),
    /// Once, at a time; at once if it has passed.
    At(SystemTime),
    /// At the times of a cron pattern, UTC.
    Cron(String),
    /// At this interval.
    Every(Duration),
}

impl From<Duration> for When {
    fn from(delay: Duration) -> Self {
        When::After(delay)
    }
}

impl From<SystemTime> for When {
    fn from(time: SystemTime) -> Self {
        When::At(time)
    }
}

impl From<&str> for When {
    fn from(pattern: &str) -> Self {
        When::Cron(pattern.to_owned())
    }
}

impl From<String> for When {
    fn from(pattern: String) -> Self {
        When::Cron(pattern)
    }
}

impl When {
    /// Its stored form, and the first time it is due.
    fn plan(self, now_ms: i64) -> Result<(ScheduleTiming, i64), String> {
        let add = |by: Duration| {
            let by_ms = i64::try_from(by.as_millis()).ok();
            by_ms.and_then(|by_ms| Some((by_ms, now_ms.checked_add(by_ms).filter(|at| *at <= LATEST_MS)?)))
        };
        let too_late = || "it would be due after the year 9999".to_owned();
        match self {
            When::After(delay) => add(delay).map(|(_, at)| (ScheduleTiming::Delay, at)).ok_or_else(too_late),
            When::At(time) if ms(time) > LATEST_MS => Err(too_late()),
            When::At(time) => Ok((ScheduleTiming::Time, ms(time))),
            When::Cron(pattern) => match cron::next(&pattern, now_ms) {
                Ok(at) => Ok((ScheduleTiming::Cron(pattern), at)),
                Err(why) => Err(format!("`{pattern}` does not say when: {why}")),
            },
            When::Every(interval) if interval < Duration::from_millis(1) => Err("an interval must be at least a millisecond".to_owned()),
            When::Every(interval) => add(interval).map(|(every, at)| (ScheduleTiming::Every(every), at)).ok_or_else(too_late),
        }
    }
}

/// Whether a time is so far ahead that the clock must have been set back since.
fn is_far(at_ms: i64, now_ms: i64) -> bool {
    at_ms.saturating_sub(now_ms) > SET_BACK_MS
}

/// The time at which a schedule is due after `now_ms`: the first of its times that has not passed.
pub(super) fn next_due(timing: &ScheduleTiming, due_ms: i64, now_ms: i64) -> Result<i64, String> {
    match timing {
        ScheduleTiming::Delay | ScheduleTiming::Time => Err("it is due once".to_owned()),
        ScheduleTiming::Cron(pattern) => {
            // A later time than now was due by a clock that was ahead.
            let after_ms = if is_far(due_ms, now_ms) { now_ms } else { now_ms.max(due_ms) };
            cron::next(pattern, after_ms).map_err(|why| format!("`{pattern}` does not say when: {why}"))
        }
        ScheduleTiming::Every(every_ms) if *every_ms <= 0 => Err(format!("its interval cannot be {every_ms} ms")),
        // The first time of the interval after now.
        ScheduleTiming::Every(every_ms) if is_far(due_ms, now_ms) => Ok(due_ms - (due_ms.saturating_sub(now_ms) - 1) / every_ms * every_ms),
        ScheduleTiming::Every(every_ms) => {
            let passed = now_ms.saturating_sub(due_ms).max(0) / every_ms;
            let next = passed.checked_add(1).and_then(|times| times.checked_mul(*every_ms)).and_then(|after| due_ms.checked_add(after));
            next.filter(|at| *at <= LATEST_MS).ok_or_else(|| "it would be due after the year 9999".to_owned())
        }
    }
}

/// New schedule, stored by `.await`.
///
/// Made by [`AgentHandle::schedule`](super::AgentHandle::schedule) and [`schedule_every`](super::AgentHandle::schedule_every).
///
/// ```
/// # use forever_runtime as forever;
/// # use forever::Forever;
/// # use forever::agent::Agent;
/// # use std::time::Duration;
/// # struct Assistant;
/// # impl Agent for Assistant {
/// #     const CLASS: &'static str = "assistant";
/// #     type State = ();
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// # let forever = Forever::builder().in_memory().agent(|_| Assistant).open().await?;
/// # let ada = forever.agent::<Assistant>("ada");
/// let in_an_hour = Duration::from_secs(60 * 60);
/// let first = ada.schedule(in_an_hour, "call", "Grace").idempotent(true).await?;
/// let second = ada.schedule(in_an_hour, "call", "Grace").idempotent(true).await?;
/// assert_eq!(first.id(), second.id());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a schedule is made when this is awaited"]
pub struct NewSchedule {
    link: Link<Agents>,
    agent: AgentId,
    when: When,
    name: String,
    payload: Result<String, String>,
    idempotent: Option<bool>,
}

impl NewSchedule {
    pub(super) fn new(link: Link<Agents>, agent: AgentId, when: When, name: String, payload: Result<String, String>) -> Self {
        NewSchedule { link, agent, when, name, payload, idempotent: None }
    }

    /// Sets whether an existing equal schedule is joined.
    ///
    /// Schedules are equal if kind, name and payload are, and for cron the pattern. Defaults to
    /// `true` for cron and intervals, and to `false` for schedules that are due once.
    ///
    /// A joined schedule keeps its due time. A one-time schedule whose run has begun does not count
    /// as existing, so that it can schedule itself again. A schedule that was suspended for its
    /// errors runs again; one that was suspended because the process died stays suspended, with its
    /// [`error`](Schedule::error), until it is cancelled.
    pub fn idempotent(mut self, idempotent: bool) -> Self {
        self.idempotent = Some(idempotent);
        self
    }

    async fn store(self) -> Result<Schedule> {
        let NewSchedule { link, agent, when, name, payload, idempotent } = self;
        let agents = link.get()?;
        let runtime = agents.runtime()?;
        agents.check(&agent)?;
        let refused = |why: String| Error::new(ErrorKind::Value, format!("failed to schedule `{name}` of agent `{agent}`: {why}"));
        check_name(&name).map_err(|why| refused(format!("its name {why}")))?;
        let payload = payload.map_err(|why| refused(format!("its payload cannot be saved: {why}")))?;
        let now_ms = runtime.now_ms();
        let (timing, due_ms) = when.plan(now_ms).map_err(refused)?;
        let idempotent = idempotent.unwrap_or(timing.repeats());
        let new = store::NewScheduleRow {
            id: runtime.clock.id(),
            agent: agent.clone(),
            name: name.clone(),
            payload,
            timing,
            due_ms,
            idempotent,
            begun: agents.begun(),
            now_ms,
        };
        let of_work = Arc::clone(&runtime);
        let work = async move {
            let (row, _) = of_work.store.add_schedule(new).await?;
            if let Some(next_ms) = row.next_ms {
                // The existing one may have lost its alarm.
                due_at(&of_work, next_ms);
            } else {
                let (id, error) = (&row.id, &row.error);
                warn!(%agent, schedule.name = %name, schedule.id = id, error, "a suspended schedule was requested again");
            }
            Ok(Schedule::of(row))
        };
        detached(&runtime, work).await
    }
}

impl IntoFuture for NewSchedule {
    type Output = Result<Schedule>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.store())
    }
}

/// Makes sure that the alarm is set for the next schedule.
pub(super) async fn arm(runtime: &Runtime, agents: &Agents) -> Result<()> {
    if let Some(at) = runtime.store.next_schedule(agents.classes.names()).await? {
        due_at(runtime, at);
    }
    Ok(())
}

/// Corrects times that were computed while the clock was ahead: no schedule waits longer than from
/// one of its times to the next, or than the delay that it was made with.
pub(super) async fn correct(runtime: &Runtime, agents: &Agents) {
    let corrected = async {
        let now_ms = runtime.now_ms();
        let far = runtime.store.far_schedules(now_ms, SET_BACK_MS).await?;
        let next = |pattern: String| Some((cron::next(&pattern, now_ms).ok()?, pattern));
        let crons = far.crons.into_iter().filter_map(|(pattern, latest_ms)| Some((latest_ms, next(pattern)?)));
        let crons: Vec<_> = crons.filter(|(latest_ms, (next_ms, _))| is_far(*latest_ms, *next_ms)).map(|(_, cron)| cron).collect();
        if far.others || !crons.is_empty() {
            let corrected = runtime.store.correct_schedules(now_ms, SET_BACK_MS, crons).await?;
            warn!(schedules = corrected, "schedules that were far ahead, as the clock had been, are due earlier");
        }
        arm(runtime, agents).await
    };
    if let Err(why) = corrected.await
        && !why.is_closed()
    {
        warn!(error = %chain(&why), "schedules that are far ahead could not be looked up");
    }
}

/// Kind of a schedule.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::agent::{Schedule, ScheduleKind};
///
/// fn describe(schedule: &Schedule) -> String {
///     match schedule.kind() {
///         ScheduleKind::Delay | ScheduleKind::Time => "once".to_owned(),
///         ScheduleKind::Cron(pattern) => format!("at `{pattern}`"),
///         ScheduleKind::Every(interval) => format!("every {interval:?}"),
///         kind => format!("{kind:?}"),
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScheduleKind {
    /// Once, after a delay.
    Delay,
    /// Once, at a time.
    Time,
    /// At the times of a cron pattern.
    Cron(String),
    /// At this interval.
    Every(Duration),
}

/// Stored schedule of an agent.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::agent::{Agent, AgentHandle};
///
/// /// Cancels the schedules whose last run has failed.
/// async fn clean_up<A: Agent>(ada: &AgentHandle<A>) -> forever::Result<()> {
///     for schedule in ada.schedules().await? {
///         if let Some(error) = schedule.error() {
///             eprintln!("{} failed {} times: {error}", schedule.name(), schedule.attempts());
///             ada.cancel_schedule(schedule.id()).await?;
///         }
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct Schedule {
    row: ScheduleRow,
    kind: ScheduleKind,
}

impl Schedule {
    pub(super) fn of(row: ScheduleRow) -> Self {
        let kind = match &row.timing {
            ScheduleTiming::Delay => ScheduleKind::Delay,
            ScheduleTiming::Time => ScheduleKind::Time,
            ScheduleTiming::Cron(pattern) => ScheduleKind::Cron(pattern.clone()),
            ScheduleTiming::Every(every_ms) => ScheduleKind::Every(Duration::from_millis(u64::try_from(*every_ms).unwrap_or(0))),
        };
        Schedule { row, kind }
    }

    /// Id, for [`cancel_schedule`](super::AgentHandle::cancel_schedule).
    pub fn id(&self) -> &str {
        &self.row.id
    }

    /// Name.
    pub fn name(&self) -> &str {
        &self.row.name
    }

    /// Payload.
    ///
    /// # Errors
    /// When it cannot be read as a `P`.
    pub fn payload<P: DeserializeOwned>(&self) -> Result<P> {
        payload(&self.row)
    }

    /// Kind: the rule by which it is due.
    pub fn kind(&self) -> &ScheduleKind {
        &self.kind
    }

    /// Time of the next run, UTC; of a running one, the time at which it was due.
    ///
    /// `None` if it is suspended: [`error`](Schedule::error) has the reason.
    pub fn next(&self) -> Option<SystemTime> {
        self.row.next_ms.map(from_ms)
    }

    /// Whether a run is under way.
    pub fn is_running(&self) -> bool {
        self.row.running_ms.is_some()
    }

    /// Number of failed runs for the current due time.
    pub fn attempts(&self) -> u32 {
        self.row.attempts
    }

    /// Error of its last run.
    pub fn error(&self) -> Option<&str> {
        self.row.error.as_deref()
    }

    /// Time at which it was made, UTC.
    pub fn created(&self) -> SystemTime {
        from_ms(self.row.created_ms)
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schedule")
            .field("id", &self.row.id)
            .field("agent", &self.row.agent)
            .field("name", &self.row.name)
            .field("payload", &self.row.payload)
            .field("kind", &self.kind)
            .field("next", &self.next())
            .field("running", &self.is_running())
            .field("error", &self.row.error)
            .finish_non_exhaustive()
    }
}

/// Makes sure that schedules are checked at this time, or earlier.
pub(super) fn due_at(runtime: &Runtime, at_ms: i64) {
    runtime.timer.set_earlier(Alarm::the(DUE), at_ms);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_keeps_its_rhythm_and_leaves_out_what_was_missed() {
        let every = ScheduleTiming::Every(100);
        assert_eq!(next_due(&every, 1000, 1000), Ok(1100));
        assert_eq!(next_due(&every, 1000, 1099), Ok(1100));
        assert_eq!(next_due(&every, 1000, 1100), Ok(1200));
        assert_eq!(next_due(&every, 1000, 1950), Ok(2000));
        assert_eq!(next_due(&every, 1000, 500), Ok(1100), "the clock was set back");
    }

    #[test]
    fn after_a_clock_that_was_far_ahead_a_rhythm_goes_on_from_now() {
        let year = 365 * 24 * 3_600_000;
        for (every_ms, now_ms, next) in [(100, 1050, 1100), (100, 1000, 1100), (100, 1099, 1100), (7_000, 1000, 1000 + 6_000)] {
            let due_ms = year / every_ms * every_ms;
            assert_eq!(next_due(&ScheduleTiming::Every(every_ms), due_ms, now_ms).map(|at| at % every_ms), Ok(0));
            assert_eq!(next_due(&ScheduleTiming::Every(every_ms), due_ms, now_ms), Ok(next));
        }
        assert_eq!(next_due(&ScheduleTiming::Cron("0 * * * *".into()), year, 1000), Ok(3_600_000));
        assert_eq!(
            next_due(&ScheduleTiming::Cron("0 * * * *".into()), 3_600_000, 3_599_000),
            Ok(7_200_000),
            "a clock that is corrected a little"
        );
    }

    #[test]
    fn a_damaged_rhythm_is_an_error() {
        assert!(next_due(&ScheduleTiming::Every(0), 0, 5).is_err());
        assert!(next_due(&ScheduleTiming::Every(-5), 0, 5).is_err());
        assert!(next_due(&ScheduleTiming::Every(i64::MAX), 1, i64::MAX).is_err());
        assert!(next_due(&ScheduleTiming::Every(1), i64::MIN, i64::MAX).is_err());
        assert!(next_due(&ScheduleTiming::Cron("often".into()), 0, 5).is_err());
    }
}
