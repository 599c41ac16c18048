//! Retention: deletes fibers that ended longer ago than they are kept.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tracing::{debug, warn};

use crate::api::admin::BATCH;
use crate::error::{Result, chain};
use crate::runtime::settings::Retention;
use crate::runtime::state::Runtime;
use crate::runtime::timer::{Alarm, Ring};
use crate::store::{DeleteResult, Deletion, FiberQuery, FiberState};

/// The alarm of the next check.
pub(crate) const RETENTION: &str = "retention";

/// Interval of the checks: a tenth of the shortest retention, within these bounds.
const EVERY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60 * 60));

/// Deletes expired fibers, and sets the alarm for the next check.
pub(crate) fn ring() -> Ring {
    // Number of fibers that could not be deleted when that was last logged.
    let said = Arc::new(AtomicU64::new(0));
    Arc::new(move |runtime, _| {
        let said = Arc::clone(&said);
        Box::pin(async move {
            let retention = runtime.settings.retention;
            let kept = [
                (FiberState::Completed, retention.completed),
                (FiberState::Failed, retention.failed),
                (FiberState::Cancelled, retention.failed),
            ];
            let mut held = 0;
            for (state, keep) in kept.into_iter().filter_map(|(state, keep)| Some((state, keep?))) {
                match delete_older(&runtime, state, keep).await {
                    Ok(deleted) => {
                        held += deleted.held;
                        if deleted.count > 0 {
                            debug!(%state, deleted = deleted.count, "deleted expired fibers");
                        }
                    }
                    Err(error) if runtime.is_closing() || error.is_closed() => return,
                    Err(error) => warn!(%state, error = %chain(&error), "expired fibers could not be deleted"),
                }
            }
            if said.swap(held, Ordering::Relaxed) != held && held > 0 {
                warn!(
                    fibers = held,
                    "expired fibers are kept: rows of the program's own tables refer to them (let the foreign keys say \
                     `ON DELETE CASCADE` or `SET NULL`, or delete the rows), or their own rows are damaged"
                );
            }
            if let Some(keep) = retention.keys
                && let Err(error) = forget(&runtime, Deletion { limit: BATCH, ..Deletion::default() }, Some(before(&runtime, keep))).await
                && !runtime.is_closing()
            {
                warn!(error = %chain(&error), "expired keys could not be deleted");
            }
            set_alarm(&runtime);
        })
    })
}

async fn delete_older(runtime: &Runtime, state: FiberState, keep: Duration) -> Result<DeleteResult> {
    let before = before(runtime, keep);
    let query = FiberQuery {
        states: vec![state],
        ended_before_ms: Some(before),
        exclude_awaited: true,
        exclude_in_doubt: true,
        ..FiberQuery::default()
    };
    delete(runtime, deletion(runtime, query, false)).await
}

fn before(runtime: &Runtime, keep: Duration) -> i64 {
    runtime.now_ms().saturating_sub(i64::try_from(keep.as_millis()).unwrap_or(i64::MAX))
}

/// The deletion of the fibers that match a query.
pub(crate) fn deletion(runtime: &Runtime, query: FiberQuery, forget_keys: bool) -> Deletion {
    let remembers = !forget_keys && runtime.settings.retention.keys != Some(Duration::ZERO);
    Deletion { query, after: None, limit: BATCH, tombstone_ms: remembers.then(|| runtime.now_ms()) }
}

/// Deletes page by page until done; returns how many were deleted and how many are held.
pub(crate) async fn delete(runtime: &Runtime, deletion: Deletion) -> Result<DeleteResult> {
    let mut all = DeleteResult::default();
    for state in &deletion.query.states {
        let query = FiberQuery { states: vec![*state], ..deletion.query.clone() };
        let mut page = Deletion { query, ..deletion.clone() };
        loop {
            let DeleteResult { count, held, next } = runtime.store.delete(page.clone()).await?;
            all.count += count;
            all.held += held;
            if next.is_none() || runtime.is_closing() {
                break;
            }
            page.after = next;
        }
    }
    Ok(all)
}

/// Deletes the tombstones that a deletion selects; with a time, only those of fibers deleted before
/// it.
pub(crate) async fn forget(runtime: &Runtime, deletion: Deletion, deleted_before_ms: Option<i64>) -> Result<()> {
    while runtime.store.delete_tombstones(deletion.clone(), deleted_before_ms).await? >= u64::from(BATCH) && !runtime.is_closing() {}
    Ok(())
}

/// Sets the alarm for the next check, unless everything is kept.
pub(crate) fn set_alarm(runtime: &Runtime) {
    let Retention { completed, failed, keys } = runtime.settings.retention;
    let Some(shortest) = [completed, failed, keys.filter(|keep| !keep.is_zero())].into_iter().flatten().min() else { return };
    let every = (shortest / 10).clamp(EVERY.0, EVERY.1);
    runtime.timer.set(Alarm::the(RETENTION), runtime.now_ms().saturating_add(i64::try_from(every.as_millis()).unwrap_or(i64::MAX)));
}
