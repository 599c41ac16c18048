//! How long fibers that have ended are kept, and deleting them when their time is over.
use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, warn};

use super::core::Core;
use super::managed::BATCH;
use super::timer::{Alarm, Ring};
use crate::error::{Result, chain};
use crate::store::{FiberState, Which};

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
}

impl Default for Retention {
    /// 24 hours for completed fibers, 7 days for failed and cancelled ones.
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        Retention { completed: Some(DAY), failed: Some(DAY * 7) }
    }
}

impl Retention {
    /// Keeps everything until it is deleted by hand.
    pub fn forever() -> Self {
        Retention { completed: None, failed: None }
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
}

/// Deletes what is over its time, and sets the alarm for the next look.
pub(crate) fn ring() -> Ring {
    Arc::new(|core, _| {
        Box::pin(async move {
            let retention = core.settings.retention;
            let kept = [
                (FiberState::Completed, retention.completed),
                (FiberState::Failed, retention.failed),
                (FiberState::Cancelled, retention.failed),
            ];
            for (state, keep) in kept.into_iter().filter_map(|(state, keep)| Some((state, keep?))) {
                match delete_older(&core, state, keep).await {
                    Ok(0) => {}
                    Ok(deleted) => debug!(%state, deleted, "deleted fibers that were over their time"),
                    Err(error) if core.is_closing() || error.is_closed() => return,
                    Err(error) => warn!(%state, error = %chain(&error), "fibers that were over their time could not be deleted"),
                }
            }
            set_alarm(&core);
        })
    })
}

async fn delete_older(core: &Core, state: FiberState, keep: Duration) -> Result<u64> {
    let keep_ms = i64::try_from(keep.as_millis()).unwrap_or(i64::MAX);
    let before = core.now_ms().saturating_sub(keep_ms);
    let which = Which { states: vec![state], ended_before_ms: Some(before), not_needed: true, settled: true, ..Which::default() };
    let mut all = 0;
    loop {
        let deleted = core.store.delete(which.clone(), BATCH).await?;
        all += deleted;
        if deleted < u64::from(BATCH) || core.is_closing() {
            return Ok(all);
        }
    }
}

/// Sets the alarm for the next look, unless everything is kept.
pub(crate) fn set_alarm(core: &Core) {
    let Retention { completed, failed } = core.settings.retention;
    let Some(shortest) = [completed, failed].into_iter().flatten().min() else { return };
    let every = (shortest / 10).clamp(EVERY.0, EVERY.1);
    core.timer.set(Alarm::the(RETENTION), core.now_ms().saturating_add(i64::try_from(every.as_millis()).unwrap_or(i64::MAX)));
}
