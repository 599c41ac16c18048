//! What this worker knows of the schedules that it has claimed.
use std::sync::Arc;

/// Claims of schedules by this worker.
#[derive(Debug, Default)]
pub(super) struct ScheduleClaims {
    /// Whether claims may be stored that this worker does not know of, because their answer was
    /// lost. Locked while schedules are claimed.
    pub(super) in_doubt: tokio::sync::Mutex<bool>,
    /// Held by every run under way.
    pub(super) under_way: Arc<()>,
}
