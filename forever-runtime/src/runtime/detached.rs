//! Work that a caller asks for and that does not depend on the caller.
//!
//! What follows a commit (waking a fiber, telling followers, setting an alarm) must happen even if
//! the future of the call is dropped in between. So it runs in a task that the runtime owns, and
//! the caller only waits for its answer.
use std::future::Future;
use std::sync::Arc;

use tokio::sync::oneshot;
use tracing::Instrument;

use crate::error::{Error, Result};
use crate::runtime::state::Runtime;

/// Runs `work` to its end in a task of the runtime and waits for its result.
///
/// A runtime that closes starts no tasks: then the work runs in the caller's future, and what is
/// left of it when that is dropped is found at the next open.
pub(crate) async fn detached<T: Send + 'static>(
    runtime: &Arc<Runtime>,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    if runtime.is_closing() {
        return work.await;
    }
    let (answer, answered) = oneshot::channel();
    let work = async move {
        // The caller may be gone.
        drop(answer.send(work.await));
    };
    runtime.start(work.in_current_span())?;
    answered.await.unwrap_or_else(|_| Err(Error::closed()))
}
