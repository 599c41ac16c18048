//! How long fibers that have ended are kept.
use std::time::Duration;

/// How long the rows of fibers that have ended are kept; what has not ended, `interrupted` and `parked` ones too, is never deleted
/// by itself.
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
