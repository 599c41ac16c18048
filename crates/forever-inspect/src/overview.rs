//! The overview: what is wrong, grouped by reason, and what is under way.
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use forever_runtime::fiber::{FiberFilter, FiberState};
use forever_runtime::view::ScheduleView;
use serde_json::json;

use crate::Shared;
use crate::api::{Answer, newest_in_doubt, now_ms};
use crate::failure::Failure;

/// How many of each kind the overview shows.
const SHOWN: u32 = 8;

/// How many messages that were not received make a queue.
const QUEUE: u32 = 10;

/// How many schedules are looked at.
const SCHEDULES: u32 = 1_000;

pub(crate) async fn overview(State(shared): State<Arc<Shared>>) -> Answer {
    let forever = &shared.forever;
    let counts = shared.counts.get(forever.counts()).await?;
    let oldest = |state| forever.view_fibers(forever.fibers().filter(FiberFilter::new().state(state)).limit(SHOWN));
    let troubles = shared.troubles.get(forever.view_troubles()).await?;
    let (in_doubt, in_doubt_more) = newest_in_doubt(&shared, SHOWN).await?;
    let (schedules, schedules_more) = failed_schedules(&shared).await?;
    let queues = shared.queues.get(forever.view_queues(QUEUE, SHOWN)).await?;
    let waiting = oldest(FiberState::Waiting).await?;
    let pending = oldest(FiberState::Pending).await?;
    let recent = forever.view_fibers(forever.fibers().limit(SHOWN).newest_first()).await?;
    Ok(Json(json!({
        "now_ms": now_ms(),
        "actions": shared.has_actions,
        "counts": counts.iter().map(|count| json!({ "name": count.name, "state": count.state, "fibers": count.fibers })).collect::<Vec<_>>(),
        "troubles": troubles,
        "in_doubt": in_doubt,
        "in_doubt_more": in_doubt_more,
        "schedules": schedules,
        "schedules_more": schedules_more,
        "queues": queues,
        "oldest_waiting": waiting.fibers,
        "oldest_pending": pending.fibers,
        "recent": recent.fibers,
    })))
}

/// Schedules that failed or are set aside, and whether there may be more.
async fn failed_schedules(shared: &Shared) -> Result<(Vec<ScheduleView>, bool), Failure> {
    let schedules = shared.forever.view_schedules(None, SCHEDULES).await?;
    let looked_at = schedules.len();
    // A repeating one has the error of its last run until one succeeds.
    let has_failed = |schedule: &ScheduleView| schedule.next_ms.is_none() || schedule.attempts > 0 || schedule.error.is_some();
    let mut failed: Vec<_> = schedules.into_iter().filter(has_failed).collect();
    let more = looked_at == SCHEDULES as usize || failed.len() > SHOWN as usize;
    failed.truncate(SHOWN as usize);
    Ok((failed, more))
}
