//! How long fibers that have ended are kept, and deleting them when their time is over.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tracing::{debug, warn};

use super::core::Core;
use super::managed::BATCH;
use super::timer::{Alarm, Ring};
use crate::error::{Result, chain};
use crate::store::{DeleteResult, Deletion, FiberQuery, FiberState};

/// The alarm of the next look at what has ended.
pub(crate) const RETENTION: &str = "retention";

/// How often it is looked: a tenth of the shortest time, within these bounds.
const EVERY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60 * 60));

/// How long the rows of fibers that have ended are kept; what has not ended, `interrupted` and `parked` ones too, is never deleted
/// by itself.
///
/// The result of a child is kept for as long as its parent can ask for it: until the parent has completed or was cancelled, or the row
/// of a failed parent, which can be resumed, is gone. A fiber with an operation in doubt, an effect of which no outcome is known, is
/// kept until [`Forever::resolve_op`](crate::Forever::resolve_op) has settled it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    pub(crate) completed: Option<Duration>,
    pub(crate) failed: Option<Duration>,
    pub(crate) keys: Option<Duration>,
}

impl Default for Retention {
    /// 24 hours for completed fibers, 7 days for failed and cancelled ones, and 30 days more for their keys.
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        Retention { completed: Some(DAY), failed: Some(DAY * 7), keys: Some(DAY * 30) }
    }
}

impl Retention {
    /// Keeps everything until it is deleted by hand.
    pub fn forever() -> Self {
        Retention { completed: None, failed: None, keys: None }
    }

    /// How long completed fibers are kept.
    pub fn completed(mut self, keep: Duration) -> Self {
        self.completed = Some(keep);
        self
    }

    /// How long failed and cancelled fibers are kept.
    pub fn failed(mut self, keep: Duration) -> Self {
        self.failed = Some(keep);
        self
    }

    /// How long the key of a fiber, and an id that the program gave, are remembered after the fiber was deleted.
    ///
    /// For as long a spawn with the same key or id joins the fiber that is gone: nothing is begun, so no effect is carried out under
    /// another operation id, and the handle's `wait` is an error of kind [`NotFound`](crate::FiberErrorKind::NotFound) that says when and
    /// how the fiber ended. Other arguments, or another function, are refused as before. A row takes about 150 bytes. With
    /// [`Duration::ZERO`] nothing is remembered.
    pub fn keys(mut self, keep: Duration) -> Self {
        self.keys = Some(keep);
        self
    }
}

/// Deletes what is over its time, and sets the alarm for the next look.
pub(crate) fn ring() -> Ring {
    // How many fibers were held when that was said last.
    let said = Arc::new(AtomicU64::new(0));
    Arc::new(move |core, _| {
        let said = Arc::clone(&said);
        Box::pin(async move {
            let retention = core.settings.retention;
            let kept = [
                (FiberState::Completed, retention.completed),
                (FiberState::Failed, retention.failed),
                (FiberState::Cancelled, retention.failed),
            ];
            let mut held = 0;
            for (state, keep) in kept.into_iter().filter_map(|(state, keep)| Some((state, keep?))) {
                match delete_older(&core, state, keep).await {
                    Ok(deleted) => {
                        held += deleted.held;
                        if deleted.count > 0 {
                            debug!(%state, deleted = deleted.count, "deleted fibers that were over their time");
                        }
                    }
                    Err(error) if core.is_closing() || error.is_closed() => return,
                    Err(error) => warn!(%state, error = %chain(&error), "fibers that were over their time could not be deleted"),
                }
            }
            if said.swap(held, Ordering::Relaxed) != held && held > 0 {
                warn!(
                    fibers = held,
                    "fibers that are over their time are kept: rows of the program's own tables refer to them (let the foreign keys say \
                     `ON DELETE CASCADE` or `SET NULL`, or delete the rows), or their own rows are damaged"
                );
            }
            if let Some(keep) = retention.keys
                && let Err(error) = forget(&core, Deletion { limit: BATCH, ..Deletion::default() }, Some(before(&core, keep))).await
                && !core.is_closing()
            {
                warn!(error = %chain(&error), "keys that were over their time could not be forgotten");
            }
            set_alarm(&core);
        })
    })
}

async fn delete_older(core: &Core, state: FiberState, keep: Duration) -> Result<DeleteResult> {
    let before = before(core, keep);
    let query = FiberQuery {
        states: vec![state],
        ended_before_ms: Some(before),
        exclude_awaited: true,
        exclude_in_doubt: true,
        ..FiberQuery::default()
    };
    delete(core, deletion(core, query, false)).await
}

fn before(core: &Core, keep: Duration) -> i64 {
    core.now_ms().saturating_sub(i64::try_from(keep.as_millis()).unwrap_or(i64::MAX))
}

/// The deletion of what agrees with a filter.
pub(crate) fn deletion(core: &Core, query: FiberQuery, forget_keys: bool) -> Deletion {
    let remembers = !forget_keys && core.settings.retention.keys != Some(Duration::ZERO);
    Deletion { query, after: None, limit: BATCH, tombstone_ms: remembers.then(|| core.now_ms()) }
}

/// Deletes all that it asks for, and tells how many were deleted and how many are held.
pub(crate) async fn delete(core: &Core, deletion: Deletion) -> Result<DeleteResult> {
    let mut all = DeleteResult::default();
    for state in &deletion.query.states {
        let query = FiberQuery { states: vec![*state], ..deletion.query.clone() };
        let mut page = Deletion { query, ..deletion.clone() };
        loop {
            let DeleteResult { count, held, next } = core.store.delete(page.clone()).await?;
            all.count += count;
            all.held += held;
            if next.is_none() || core.is_closing() {
                break;
            }
            page.after = next;
        }
    }
    Ok(all)
}

/// Forgets all that is remembered of fibers that a deletion asks for, and that were deleted before a time if there is one.
pub(crate) async fn forget(core: &Core, deletion: Deletion, deleted_before_ms: Option<i64>) -> Result<()> {
    while core.store.delete_tombstones(deletion.clone(), deleted_before_ms).await? >= u64::from(BATCH) && !core.is_closing() {}
    Ok(())
}

/// Sets the alarm for the next look, unless everything is kept.
pub(crate) fn set_alarm(core: &Core) {
    let Retention { completed, failed, keys } = core.settings.retention;
    let Some(shortest) = [completed, failed, keys.filter(|keep| !keep.is_zero())].into_iter().flatten().min() else { return };
    let every = (shortest / 10).clamp(EVERY.0, EVERY.1);
    core.timer.set(Alarm::the(RETENTION), core.now_ms().saturating_add(i64::try_from(every.as_millis()).unwrap_or(i64::MAX)));
}
