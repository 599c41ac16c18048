//! How an activation ended.
use std::any::Any;
use std::sync::Arc;

use crate::error::{Error, ErrorKind};
use crate::store::{End, FiberState, Wait};

/// How an activation ended, from the code that stopped to the caller that waits for its fiber.
#[derive(Debug, Clone)]
pub enum Exit {
    /// With this result, JSON.
    Completed(Arc<str>),
    /// With this error.
    Failed(Arc<str>),
    /// Because it was asked to end.
    Cancelled(Arc<str>),
    /// An operation is in doubt, or what is stored is damaged.
    Parked(Arc<str>),
    /// As [`Parked`](Self::Parked), and stored with another change already, unless the fiber was
    /// cancelled by then.
    StoredAsParked(Arc<str>),
    /// What is stored does not fit the code of this worker. Another worker may have code that fits.
    Unfit(Arc<str>),
    /// A stored value cannot be read by the function at this depth of calls.
    Unreadable {
        /// The reason.
        why: Arc<str>,
        /// Depth of the function, from 0.
        depth: u32,
        /// Whether the function has a `migrate` function.
        migrates: bool,
    },
    /// The store failed, and the fiber goes back to its last checkpoint.
    Interrupted(Arc<Error>),
    /// The fiber goes back to its last checkpoint at once. Its next activation is given this value.
    Again(Arc<dyn Any + Send + Sync>),
    /// There is nothing to do until something happens.
    Waiting(Wait),
    /// Another activation or a command took the fiber.
    ClaimLost,
    /// The runtime closed under way.
    Closed,
    /// There is no such fiber.
    NotFound,
}

impl Exit {
    /// The exit of a function that has failed.
    pub fn failed(why: impl Into<Arc<str>>) -> Self {
        Exit::Failed(why.into())
    }

    /// The exit of a fiber that needs a person.
    pub fn parked(why: impl Into<Arc<str>>) -> Self {
        Exit::Parked(why.into())
    }

    pub(crate) fn unfit(why: impl Into<Arc<str>>) -> Self {
        Exit::Unfit(why.into())
    }

    /// The exit of a fiber whose store has failed.
    pub fn interrupted(error: Error) -> Self {
        Exit::Interrupted(Arc::new(error))
    }

    /// The error that ends an activation whose runtime closes. Its code does not get it, and has
    /// observed nothing: other branches may still end.
    pub(crate) fn told_to_stop() -> Error {
        Error::new(ErrorKind::Closed, "the runtime is closed")
    }

    /// The exit of code that is cut off, as when its runtime closes: it runs again on resume.
    pub(crate) fn cut_off() -> Self {
        Exit::interrupted(Exit::told_to_stop())
    }

    pub(crate) fn is_cut_off(&self) -> bool {
        matches!(self, Exit::Interrupted(error) if error.is_closed())
    }

    /// The exit of a fiber whose end is stored in its row; `None` while it has none.
    pub(crate) fn of_row(state: FiberState, result: Option<String>, reason: Option<String>) -> Option<Self> {
        let reason = || reason.unwrap_or_default().into();
        match state {
            FiberState::Completed => Some(Exit::Completed(result.unwrap_or_default().into())),
            FiberState::Failed => Some(Exit::Failed(reason())),
            FiberState::Cancelled => Some(Exit::Cancelled(reason())),
            _ => None,
        }
    }

    /// The word for it in logs.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Exit::Completed(_) => "completed",
            Exit::Failed(_) => "failed",
            Exit::Cancelled(_) => "cancelled",
            Exit::Parked(_) | Exit::StoredAsParked(_) | Exit::Unfit(_) | Exit::Unreadable { .. } => "parked",
            Exit::Interrupted(_) | Exit::Again(_) => "interrupted",
            Exit::Waiting(_) => "waiting",
            Exit::ClaimLost => "claim lost",
            Exit::Closed => "closed",
            Exit::NotFound => "not found",
        }
    }
}

impl From<End> for Exit {
    fn from(end: End) -> Self {
        match end {
            End::Completed(result) => Exit::Completed(result.into()),
            End::Failed(why) => Exit::Failed(why.into()),
            End::Cancelled(why) => Exit::Cancelled(why.into()),
        }
    }
}
