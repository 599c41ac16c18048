//! Settings of the builder that apply to all fibers of a runtime.
use std::time::Duration;

use crate::history::History;
use crate::runtime::timings::Timings;

/// Default maximum time of a check.
pub(crate) const CHECK_TIMEOUT: Duration = Duration::from_secs(30);

/// Retention of ended fibers and their keys.
///
/// A fiber that has not ended, including `interrupted` and `parked` ones, is never deleted
/// automatically.
///
/// The result of a child is kept for as long as its parent can ask for it: until the parent has
/// completed or was cancelled, or the row of a failed parent, which can be resumed, is deleted. A
/// fiber with an operation in doubt is kept until
/// [`Forever::resolve_op`](crate::Forever::resolve_op) has settled the operation.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::{Forever, Retention};
/// use std::time::Duration;
///
/// const DAY: Duration = Duration::from_secs(24 * 60 * 60);
///
/// // Results for a week, failed fibers for 90 days, and the default for keys.
/// let retention = Retention::default().completed(7 * DAY).failed(90 * DAY);
/// let builder = Forever::builder().in_memory().retention(retention);
/// # let _ = builder;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    pub(crate) completed: Option<Duration>,
    pub(crate) failed: Option<Duration>,
    pub(crate) keys: Option<Duration>,
}

impl Default for Retention {
    /// 24 hours for completed fibers, 7 days for failed and cancelled ones, and 30 days more for
    /// their keys.
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        Retention { completed: Some(DAY), failed: Some(DAY * 7), keys: Some(DAY * 30) }
    }
}

impl Retention {
    /// Keeps everything until it is deleted by a command.
    pub fn forever() -> Self {
        Retention { completed: None, failed: None, keys: None }
    }

    /// Sets how long completed fibers are kept, with their results. Defaults to 24 hours.
    pub fn completed(mut self, keep: Duration) -> Self {
        self.completed = Some(keep);
        self
    }

    /// Sets how long failed and cancelled fibers are kept. Defaults to 7 days.
    pub fn failed(mut self, keep: Duration) -> Self {
        self.failed = Some(keep);
        self
    }

    /// Sets how long the keys and given ids of deleted fibers are kept. Defaults to 30 days.
    ///
    /// During that time a spawn with the same key or id joins the deleted fiber. It starts no
    /// fiber, so no effect is carried out under another operation id, and the handle's `wait`
    /// returns an error of kind [`NotFound`](crate::fiber::FiberErrorKind::NotFound) that tells when and
    /// how the fiber ended. Other arguments, or another function, are refused as before. A row
    /// takes about 150 bytes. With [`Duration::ZERO`] no keys are kept.
    pub fn keys(mut self, keep: Duration) -> Self {
        self.keys = Some(keep);
        self
    }
}

/// Settings of all fibers of a runtime.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) retention: Retention,
    pub(crate) history: History,
    /// How long a cancelled fiber may continue before its future is dropped.
    pub(crate) cancel_grace: Duration,
    /// Maximum time of an agent's recovery hook.
    pub(crate) hook_timeout: Duration,
    /// Maximum time of a check whether an operation was carried out.
    pub(crate) check_timeout: Duration,
    pub(crate) timings: Timings,
    /// What holds back the tasks of a worker that a test pauses.
    #[cfg(feature = "testing")]
    pub(crate) gate: Option<std::sync::Arc<crate::runtime::gate::Gate>>,
    /// What counts the polls of the code of fibers.
    #[cfg(feature = "testing")]
    pub(crate) fuse: Option<crate::testing::fuse::Fuse>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            retention: Retention::default(),
            history: History::default(),
            cancel_grace: Duration::from_secs(5),
            hook_timeout: Duration::from_secs(10),
            check_timeout: CHECK_TIMEOUT,
            timings: Timings::default(),
            #[cfg(feature = "testing")]
            gate: None,
            #[cfg(feature = "testing")]
            fuse: None,
        }
    }
}
