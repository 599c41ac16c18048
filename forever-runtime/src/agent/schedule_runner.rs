//! Runs schedules that are due.
//!
//! A schedule is stored as running, with a death counted in advance, before its agent is called. So
//! a process that dies leaves a row that shows it, and the run is repeated at the next open. A
//! one-time schedule is deleted only when its run has succeeded.
use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, info, warn};

use super::class::BoxError;
use super::due::Due;
use super::registry::{Agents, IDLE};
use super::schedule::{self, DUE, due_at, next_due};
use super::schedule_claims::ScheduleClaims;
use super::{elsewhere, keep_alive};
use crate::clock::later;
use crate::error::{Error, ErrorKind, Result, chain};
use crate::frame::retry::{Backoff, Retry};
use crate::runtime::race::race;
use crate::runtime::state::Runtime;
use crate::runtime::timer::Timer;
use crate::store::{RunResult, ScheduleRow};

/// Number of schedules that are claimed in one transaction.
const PAGE: u32 = 256;

/// Retry policy of a failed run: three attempts in all.
const RETRY: Retry<()> = Retry::times(2).backoff(Backoff::exponential(Duration::from_millis(100), Duration::from_secs(3)));

/// Number of deaths in a row after which a schedule is suspended.
const STRIKES: u32 = 3;

impl Agents {
    /// Registers the alarms of agents.
    pub(crate) fn listen(&self, timer: &Timer) {
        timer.on(IDLE, self.ring(|agents, runtime, of| Box::pin(async move { agents.leave(&runtime, &of) })));
        timer.on(DUE, self.ring(|agents, runtime, _| Box::pin(async move { run_due(&agents, &runtime).await })));
        timer.on_set_back(self.ring(|agents, runtime, _| Box::pin(async move { schedule::correct(&runtime, &agents).await })));
        keep_alive::listen(self, timer);
    }

    /// Continues the work of earlier processes: wakes the agents that were kept awake, and sets the
    /// alarm for the next schedule.
    pub(crate) async fn recover(self: &Arc<Self>, runtime: &Arc<Runtime>) -> Result<()> {
        runtime.store.recover_schedules(STRIKES).await?;
        for class in runtime.store.unregistered_classes(self.classes.names()).await? {
            warn!(
                agent.class = class,
                "an agent class that has schedules, or was kept awake, is not registered; what it has stays as it is"
            );
        }
        keep_alive::revive(self, runtime).await?;
        elsewhere::begin(self, runtime).await?;
        schedule::arm(runtime, self).await?;
        // The clock may have been set back while no process was running.
        let (agents, of_task) = (Arc::clone(self), Arc::clone(runtime));
        runtime.start(async move { schedule::correct(&of_task, &agents).await })
    }
}

/// Claims schedules that are due, and gives each with a token of its run.
///
/// # Errors
/// When the store fails, and while claims are in doubt and other runs are under way.
async fn claim(agents: &Agents, runtime: &Runtime) -> Result<Vec<(ScheduleRow, Arc<()>)>> {
    let ScheduleClaims { in_doubt, under_way } = &agents.claims;
    let mut in_doubt = in_doubt.lock().await;
    if *in_doubt {
        if Arc::strong_count(under_way) > 1 {
            return Err(Error::new(ErrorKind::Store, "claims of schedules are in doubt, and others are still running"));
        }
        // No run is under way, so all that are stored as such are those whose claim is not known.
        runtime.store.recover_schedules(STRIKES).await?;
        *in_doubt = false;
    }
    let claimed = runtime.store.claim_schedules(agents.classes.names(), runtime.now_ms(), PAGE).await;
    *in_doubt = claimed.as_ref().is_err_and(Error::is_outcome_unknown);
    Ok(claimed?.into_iter().map(|row| (row, Arc::clone(under_way))).collect())
}

/// Starts all schedules that are due, and sets the alarm for the next one.
async fn run_due(agents: &Arc<Agents>, runtime: &Arc<Runtime>) {
    let all = async {
        loop {
            let due = claim(agents, runtime).await?;
            let last = due.len() < PAGE as usize;
            for (row, token) in due {
                let (agents, of_task) = (Arc::clone(agents), Arc::clone(runtime));
                let run = async move {
                    run(&agents, &of_task, row).await;
                    drop(token);
                };
                // A runtime that is closing takes the runs back.
                runtime.start(run)?;
            }
            if last {
                return schedule::arm(runtime, agents).await;
            }
        }
    };
    if let Err(why) = all.await
        && !why.is_closed()
    {
        warn!(error = %chain(&why), "schedules that are due could not be taken");
        due_at(runtime, later(runtime.now_ms(), runtime.settings.timings.store_retry));
    }
}

/// Runs one schedule once, and stores the outcome.
async fn run(agents: &Arc<Agents>, runtime: &Arc<Runtime>, row: ScheduleRow) {
    let due = Due { row };
    let mut begun = None;
    let told = async {
        let woken = agents.wake(runtime, &due.row.agent).await?;
        // From here on a request for the same schedule makes another run.
        begun = Some(agents.begin_run(due.id()));
        debug!(agent = %due.row.agent, schedule.id = due.id(), schedule.name = due.name(), attempt = due.attempt(), "schedule runs");
        woken.agent.due(&due).await
    };
    let longest = agents.settings.hung_schedule_timeout;
    let outcome: Result<(), BoxError> = match race(told, runtime.clock.sleep(longest)).await {
        Some(outcome) => outcome,
        None => Err(format!("it was dropped after {longest:?}, in which it had not ended").into()),
    };
    if outcome.is_err() && runtime.is_closing() {
        // The error may be a consequence of that; it runs again at the next open.
        return;
    }
    let row = due.row;
    let is_elsewhere = |why: &BoxError| why.downcast_ref::<Error>().is_some_and(|why| why.kind() == ErrorKind::AgentElsewhere);
    let is_not_begun = begun.is_none();
    let ran = match outcome {
        // It is due there.
        Err(why) if is_elsewhere(&why) => RunResult::Next { due_ms: row.due_ms, error: None },
        // Its agent could not be woken, which is no failure of the run.
        Err(why) if is_not_begun && is_of_store(&*why) => {
            warn!(agent = %row.agent, schedule.id = row.id, error = %chain(&*why), "the agent of a schedule could not be woken");
            if race(runtime.closing(), runtime.clock.sleep(runtime.settings.timings.store_retry)).await.is_some() {
                return;
            }
            RunResult::Next { due_ms: row.due_ms, error: None }
        }
        outcome => judge(&row, outcome.map_err(|why| chain(&*why)), runtime),
    };
    let suspect = row.deaths > 1;
    let next = match &ran {
        RunResult::Next { due_ms: at, .. } | RunResult::Retry { next_ms: at, .. } => Some(*at),
        RunResult::Done | RunResult::Suspended { .. } => None,
    };
    // It does not run again until the end of the run is stored.
    while let Err(why) = runtime.store.end_run(row.clone(), ran.clone()).await {
        if why.is_closed() {
            return;
        }
        warn!(agent = %row.agent, schedule.id = row.id, error = %chain(&why), "the outcome of a schedule's run could not be stored");
        if race(runtime.closing(), runtime.clock.sleep(runtime.settings.timings.store_retry)).await.is_some() {
            return;
        }
    }
    drop(begun);
    if let Some(at) = next {
        due_at(runtime, at);
    }
    if suspect {
        // The next suspect may run now.
        due_at(runtime, runtime.now_ms());
    }
}

/// Whether the store has failed, or an error has that cause.
fn is_of_store(why: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(why), |why| why.source()).any(|why| why.downcast_ref::<Error>().is_some_and(Error::is_of_store))
}

/// Result of a run.
fn judge(row: &ScheduleRow, outcome: Result<(), String>, runtime: &Runtime) -> RunResult {
    let (agent, id, name) = (&row.agent, &row.id, &row.name);
    let now_ms = runtime.now_ms();
    let error = match outcome {
        Ok(()) if !row.timing.repeats() => return RunResult::Done,
        Ok(()) => None,
        Err(error) => {
            let failed = row.attempts.saturating_add(1);
            if let Some(wait) = RETRY.wait(failed, Some(&()), chance(row, now_ms)) {
                info!(%agent, schedule.id = id, schedule.name = name, error, failed, "schedule failed, and is tried again");
                return RunResult::Retry { next_ms: later(now_ms, wait), error };
            }
            warn!(%agent, schedule.id = id, schedule.name = name, error, failed, "schedule failed");
            if !row.timing.repeats() {
                return RunResult::Suspended { error };
            }
            Some(error)
        }
    };
    match next_due(&row.timing, row.due_ms, now_ms) {
        Ok(due_ms) => RunResult::Next { due_ms, error },
        Err(why) => {
            warn!(%agent, schedule.id = id, schedule.name = name, error = why, "schedule is suspended");
            RunResult::Suspended { error: why }
        }
    }
}

/// Random value for the jitter of a retry, evenly distributed over schedules and times.
fn chance(row: &ScheduleRow, now_ms: i64) -> u32 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    (&row.id, row.attempts, now_ms).hash(&mut hasher);
    (hasher.finish() >> 32) as u32
}
