//! Agents as fibers see them: owners, whose hooks decide about interrupted fibers.
use std::any::Any;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, ErrorKind, Result, chain};
use crate::exact;
use crate::frame::run::Run;
use crate::frame::saved::{result_as_json, unreadable};
use crate::future::BoxFuture;
use crate::ops::manual::OpCall;
use crate::ops::op::Op;
use crate::runtime::link::Link;
use crate::runtime::messages::{self, Unread};
use crate::runtime::state::Runtime;
use crate::secret::{plain, shown};
use crate::store::{AgentId, FiberState};

/// Maximum length in bytes of the name of a class, an agent or a schedule.
const LONGEST_NAME: usize = 256;

/// Checks a name.
pub fn check_name(name: &str) -> Result<(), String> {
    match name.len() {
        0 => Err("must not be empty".to_owned()),
        n if n > LONGEST_NAME => Err(format!("must not be longer than {LONGEST_NAME} bytes, and has {n}")),
        _ => Ok(()),
    }
}

/// The agents of a runtime, as fibers see them. The layer above implements it.
pub(crate) trait AgentHooks: Any + Send + Sync + fmt::Debug {
    /// Whether a class of this name is registered.
    fn knows(&self, class: &str) -> bool;

    /// Keeps an agent in memory, if it is there, until the result is dropped: while a fiber of it
    /// runs.
    fn hold(&self, runtime: &Arc<Runtime>, agent: &AgentId) -> Box<dyn Any + Send>;

    /// Wakes the agent and asks in which order it wants its interrupted fibers.
    fn order<'a>(
        &'a self,
        runtime: &'a Arc<Runtime>,
        agent: &'a AgentId,
        fibers: Vec<RecoveredFiber>,
    ) -> BoxFuture<'a, Result<Vec<RecoveredFiber>>>;

    /// Wakes the agent and calls its recovery hook for an interrupted fiber.
    fn recovered<'a>(
        &'a self,
        runtime: &'a Arc<Runtime>,
        agent: &'a AgentId,
        fiber: &'a RecoveredFiber,
    ) -> BoxFuture<'a, Result<RecoveryAction>>;

    /// Notifies the agent that a fiber of it has ended.
    fn ended<'a>(&'a self, runtime: &'a Arc<Runtime>, agent: &'a AgentId, fiber: EndedFiber) -> BoxFuture<'a, ()>;
}

/// An interrupted fiber, as an agent's recovery hook sees it.
///
/// ```
/// # use forever_runtime as forever;
/// # use forever::BoxError;
/// # use forever::agent::{Agent, RecoveredFiber, RecoveryAction};
/// # struct Importer;
/// # impl Agent for Importer {
/// #     const CLASS: &'static str = "importer";
/// #     type State = ();
/// // In `impl Agent for Importer`:
/// async fn on_fiber_recovered(&self, fiber: &RecoveredFiber) -> Result<RecoveryAction, BoxError> {
///     if !fiber.is_closure() {
///         return Ok(RecoveryAction::Resume);
///     }
///     // What the closure has stashed last: the number of rows.
///     Ok(match fiber.snapshot::<u64>()? {
///         Some(rows) => RecoveryAction::complete(&rows)?,
///         None => RecoveryAction::fail(format!("{}: nothing was imported", fiber.reason())),
///     })
/// }
/// # }
/// ```
#[derive(Clone)]
pub struct RecoveredFiber {
    pub(crate) seq: i64,
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) key: Option<String>,
    pub(crate) closure: bool,
    pub(crate) metadata: Option<serde_json::Value>,
    pub(crate) reason: String,
    pub(crate) at: Option<String>,
    pub(crate) data: Option<String>,
    pub(crate) deaths: u32,
    pub(crate) created: SystemTime,
    /// Access to its ledger.
    pub(crate) run: Arc<Run>,
}

impl RecoveredFiber {
    /// Runs an operation of the fiber once, in the fiber's own ledger.
    ///
    /// For an operation that [`FiberContext::op`](crate::fiber::FiberContext::op) did not reach, or left
    /// in doubt. One that has completed returns its result and is not carried out again.
    ///
    /// A hook cannot be parked. If the outcome is unknown and there is no [`OpCall::on_unknown`],
    /// the call returns an error of kind [`OpUnknown`](ErrorKind::OpUnknown). A hook that returns
    /// this error leaves the fiber interrupted, and is called again later.
    ///
    /// # Errors
    /// As [`FiberContext::op`](crate::fiber::FiberContext::op).
    pub fn op<'a, F, B, T, E>(&self, kind: impl Into<String>, key: impl Serialize, body: F) -> OpCall<'a, F, T, E>
    where
        F: FnOnce(Op) -> B,
        B: Future<Output = std::result::Result<T, E>>,
    {
        OpCall::new(Arc::clone(&self.run), self.name.as_str().into(), kind.into(), &key, body)
    }

    /// Id of the fiber.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Stored name of its function, or the name that a closure fiber was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its idempotency key.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Whether it is a closure, which cannot be resumed or restarted.
    pub fn is_closure(&self) -> bool {
        self.closure
    }

    /// The value given to `.metadata(..)`.
    pub fn metadata(&self) -> Option<&serde_json::Value> {
        self.metadata.as_ref()
    }

    /// Reason of the interruption.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The last completed cut point; `None` before the first, and for a closure.
    pub fn at(&self) -> Option<&str> {
        self.at.as_deref()
    }

    /// Number of deaths of the process since its last checkpoint or stash.
    pub fn deaths(&self) -> u32 {
        self.deaths
    }

    /// Time of its acceptance, UTC.
    pub fn created(&self) -> SystemTime {
        self.created
    }

    /// The last stash of a closure fiber; for a `#[fiber]`, its [`Snapshot`](crate::fiber::Snapshot).
    ///
    /// # Errors
    /// When the stored value cannot be read as a `V`.
    pub fn snapshot<V: DeserializeOwned>(&self) -> Result<Option<V>> {
        let Some(text) = &self.data else { return Ok(None) };
        exact::from_str(text)
            .map(Some)
            .map_err(|why| Error::new(ErrorKind::Value, format!("what fiber `{}` ({}) left {}", self.name, self.id, unreadable::<V>(why))))
    }
}

/// Decision about an interrupted fiber.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::agent::{RecoveredFiber, RecoveryAction};
///
/// /// After three deaths of its process, a person has to look at a fiber.
/// fn decide(fiber: &RecoveredFiber) -> RecoveryAction {
///     if fiber.is_closure() {
///         RecoveryAction::fail("a closure cannot be resumed")
///     } else if fiber.deaths() < 3 {
///         RecoveryAction::Resume
///     } else {
///         RecoveryAction::Skip
///     }
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum RecoveryAction {
    /// It resumes from its snapshot: the default for every `#[fiber]`.
    Resume,
    /// It restarts with its arguments.
    Restart,
    /// It stays interrupted until a person resumes, restarts or resolves it, or the runtime is
    /// opened again.
    Skip,
    /// It has completed, with this result.
    Complete(serde_json::Value),
    /// It has failed, for this reason.
    Fail(String),
}

impl RecoveryAction {
    /// Completes the fiber with `result`.
    ///
    /// # Errors
    /// When `result` cannot be saved.
    pub fn complete<T: Serialize + ?Sized>(result: &T) -> Result<Self> {
        result_as_json(result).map(RecoveryAction::Complete)
    }

    /// Fails the fiber with `error`.
    pub fn fail(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        RecoveryAction::Fail(chain(&*error.into()))
    }
}

/// A fiber that has ended, as its agent's hook sees it.
///
/// ```
/// # use forever_runtime as forever;
/// # use forever::BoxError;
/// # use forever::agent::{Agent, AgentHandle, EndedFiber};
/// # use forever::fiber::FiberState;
/// # struct Researcher { me: AgentHandle<Researcher> }
/// # impl Agent for Researcher {
/// #     const CLASS: &'static str = "researcher";
/// #     type State = String;
/// // In `impl Agent for Researcher`:
/// async fn on_fiber_completed(&self, fiber: &EndedFiber) -> Result<(), BoxError> {
///     match fiber.state() {
///         FiberState::Completed => self.me.set_state(&fiber.result()?).await?,
///         state => eprintln!("{} ({}) is {state}", fiber.name(), fiber.id()),
///     }
///     Ok(())
/// }
/// # }
/// ```
#[derive(Clone)]
pub struct EndedFiber {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) state: FiberState,
    /// The result, JSON, or the reason.
    pub(crate) text: Arc<str>,
    unread: Unread,
}

impl EndedFiber {
    pub(crate) fn new(id: String, name: String, state: FiberState, text: Arc<str>) -> Self {
        let unread = Unread::new(Link::None, id.clone(), Vec::new());
        EndedFiber { id, name, state, text, unread }
    }

    /// Looks for messages that it has not received.
    pub(crate) async fn with_unread(mut self, runtime: &Arc<Runtime>) -> Result<Self> {
        let topics = messages::unread(runtime, &self.id).await?;
        self.unread = Unread::new(Link::from(runtime), self.id.clone(), topics);
        Ok(self)
    }

    /// As JSON, for another worker.
    pub(crate) fn json(&self) -> String {
        let state = self.state.to_string();
        serde_json::json!({ "id": self.id, "name": self.name, "state": state, "text": &*self.text }).to_string()
    }

    /// Reads it; what it has not received is in the store.
    pub(crate) fn from_json(text: &str) -> Result<Self, String> {
        let row: serde_json::Value = serde_json::from_str(text).map_err(|why| why.to_string())?;
        let of = |name: &str| row[name].as_str().ok_or_else(|| format!("an ended fiber has no `{name}`"));
        Ok(EndedFiber::new(of("id")?.to_owned(), of("name")?.to_owned(), of("state")?.parse()?, of("text")?.into()))
    }

    /// Id of the fiber.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Stored name of its function, or the name that a closure fiber was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `Completed`, `Failed` or `Cancelled`.
    pub fn state(&self) -> FiberState {
        self.state
    }

    /// The messages that it had not received.
    pub fn unread(&self) -> &Unread {
        &self.unread
    }

    /// Why it failed or was cancelled.
    ///
    /// It may repeat a value marked `#[secret]`, which the error of [`result`](Self::result) hides.
    pub fn reason(&self) -> Option<&str> {
        (self.state != FiberState::Completed).then(|| plain(&self.text))
    }

    /// The result of a completed fiber, otherwise the error with the reason.
    ///
    /// # Errors
    /// When it has failed or was cancelled, or its result cannot be read as a `T`.
    pub fn result<T: DeserializeOwned>(&self) -> Result<T> {
        match self.state {
            FiberState::Completed => exact::from_str(&self.text).map_err(|why| {
                Error::new(ErrorKind::Value, format!("the result of fiber `{}` ({}) {}", self.name, self.id, unreadable::<T>(why)))
            }),
            state => {
                let ended = if state == FiberState::Cancelled { "was cancelled" } else { "has failed" };
                let why = format!("fiber `{}` ({}) {ended}: {}", self.name, self.id, shown(&self.text));
                Err(Error::new(ErrorKind::NotFound, why))
            }
        }
    }
}

/// Without its values and reason, which may be secret.
impl fmt::Debug for RecoveredFiber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RecoveredFiber { id, name, at, deaths, .. } = self;
        f.debug_struct("RecoveredFiber").field("id", id).field("name", name).field("at", at).field("deaths", deaths).finish_non_exhaustive()
    }
}

/// Without its result or reason, which may be secret.
impl fmt::Debug for EndedFiber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EndedFiber { id, name, state, text: _, unread } = self;
        f.debug_struct("EndedFiber").field("id", id).field("name", name).field("state", state).field("unread", unread).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::{HIDDEN, marked};

    #[test]
    fn ended_fiber_gives_what_is_secret_to_the_program_and_prints_it_nowhere() {
        let ended = |state, text: &str| EndedFiber::new("f-1".into(), "open".into(), state, text.into());
        let failed = ended(FiberState::Failed, &marked("code 4711 is wrong"));
        assert_eq!(failed.reason(), Some("code 4711 is wrong"));
        let error = chain(&failed.result::<u32>().unwrap_err());
        assert_eq!(error, format!("fiber `open` (f-1) has failed: {HIDDEN}"));
        let completed = ended(FiberState::Completed, "4711");
        assert_eq!((completed.reason(), completed.result().ok()), (None, Some(4711)));
        for fiber in [failed, completed] {
            assert!(!format!("{fiber:?}").contains("4711"));
        }
        let error = chain(&ended(FiberState::Cancelled, "the guest left").result::<u32>().unwrap_err());
        assert_eq!(error, "fiber `open` (f-1) was cancelled: the guest left");
    }
}
