//! The step in which a fiber has failed: stored with its end, for people.
//!
//! The code of a step that fails leaves the function, so that the step under way at the end is the
//! one that has failed. Between two steps nothing is stored.
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::runtime::state::Runtime;
use crate::store::{FAILED_IN, FiberRow, FiberState, StreamAppend};

/// Step in which a fiber has failed.
///
/// ```
/// # use forever_runtime as forever;
/// # async fn show(forever: &forever::Forever) -> forever::Result<()> {
/// if let Some(failed) = forever.failed_step("order-17").await? {
///     println!("it failed in step `{}` of `{}`", failed.step, failed.function);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FailedStep {
    /// Stored name of the function that has the step.
    pub function: String,
    /// Stored name of the step.
    pub step: String,
}

/// The record of the step in which a fiber failed, in place of that of an earlier end.
pub(crate) fn record(function: &str, step: &str) -> StreamAppend {
    let failed = FailedStep { function: function.to_owned(), step: step.to_owned() };
    let data = serde_json::to_string(&failed).unwrap_or_default();
    StreamAppend { name: FAILED_IN.into(), first: Some(0), count: 1, data, keep: None }
}

/// The step in which a fiber has failed; `None` if it has not, or failed between two steps.
pub(crate) async fn of(runtime: &Runtime, row: &FiberRow) -> Result<Option<FailedStep>> {
    if row.state != FiberState::Failed {
        return Ok(None);
    }
    let batches = runtime.store.stream(row.seq, FAILED_IN.to_owned(), 0, 1).await?;
    // One of an earlier end is older than this end.
    let stored = batches.first().filter(|batch| Some(batch.stored_ms) == row.finished_ms);
    Ok(stored.and_then(|batch| serde_json::from_str(&batch.data).ok()))
}
