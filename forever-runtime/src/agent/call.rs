//! Calls of agents' methods, from any worker.
//!
//! The calls of one agent are carried out one at a time, by the worker that holds it. A call in
//! that worker waits for its turn in memory. Every other call is a stored request (`requests`).
use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use super::method::CallFailure;
use super::registry::{Agents, AwakeAgent};
use super::requests;
use crate::error::{Error, ErrorKind, Result};
use crate::exact;
use crate::future::BoxFuture;
use crate::runtime::link::Link;
use crate::runtime::race::race;
use crate::runtime::state::Runtime;
use crate::store::AgentId;

/// Default of [`AgentCall::within`].
const LIMIT: Duration = Duration::from_secs(30);

tokio::task_local! {
    /// The agents whose methods the task runs: a call of one of them would wait for itself.
    static CALLING: Vec<AgentId>;
}

/// Runs a method as part of the calls that have led to it.
pub(super) async fn within<T>(mut callers: Vec<AgentId>, id: &AgentId, method: impl Future<Output = T>) -> T {
    callers.push(id.clone());
    CALLING.scope(callers, method).await
}

/// Call of a method of an agent, made by [`AgentHandle::call`](super::AgentHandle::call). It begins
/// when it is awaited.
///
/// ```
/// # use forever_runtime as forever;
/// # struct Counter;
/// # impl forever::agent::Agent for Counter {
/// #     const CLASS: &'static str = "counter";
/// #     type State = u64;
/// # }
/// use forever::ErrorKind;
/// use forever::agent::AgentHandle;
/// use std::time::Duration;
///
/// async fn add(visits: &AgentHandle<Counter>) -> forever::Result<Option<u64>> {
///     match visits.call("add", 1).within(Duration::from_secs(2)).await {
///         Ok(sum) => Ok(Some(sum)),
///         // The agent was busy: the call has not begun, and never will.
///         Err(error) if error.kind() == ErrorKind::Timeout => Ok(None),
///         Err(error) => Err(error),
///     }
/// }
/// ```
#[must_use = "a call does nothing unless awaited"]
pub struct AgentCall<R> {
    link: Link<Agents>,
    id: Arc<AgentId>,
    method: String,
    args: std::result::Result<String, String>,
    limit: Duration,
    value: PhantomData<fn() -> R>,
}

impl<R> AgentCall<R> {
    pub(super) fn new(link: Link<Agents>, id: Arc<AgentId>, method: String, args: std::result::Result<String, String>) -> Self {
        AgentCall { link, id, method, args, limit: LIMIT, value: PhantomData }
    }

    /// Sets the time limit. Defaults to 30 s.
    ///
    /// A call that has not begun by then never begins, and fails with
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout). A call that has begun is not stopped, and
    /// fails with [`ErrorKind::OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown).
    pub fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }
}

impl<R> fmt::Debug for AgentCall<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentCall").field("agent", &self.id).field("method", &self.method).finish_non_exhaustive()
    }
}

impl<R: DeserializeOwned> IntoFuture for AgentCall<R> {
    type Output = Result<R>;
    type IntoFuture = BoxFuture<'static, Result<R>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let AgentCall { link, id, method, args, limit, .. } = self;
            let args =
                args.map_err(|why| Error::new(ErrorKind::Value, format!("the arguments of method `{method}` cannot be saved: {why}")))?;
            let call = Call { id: (*id).clone(), method, args, limit };
            let text = link.get()?.call(call.clone()).await?;
            exact::from_str(&text).map_err(|why| {
                let (wanted, method) = (std::any::type_name::<R>(), &call.method);
                Error::new(ErrorKind::Value, format!("the value of method `{method}` of agent `{id}` cannot be read as `{wanted}`: {why}"))
            })
        })
    }
}

/// A call, with its values as JSON.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) id: AgentId,
    pub(crate) method: String,
    pub(crate) args: String,
    pub(crate) limit: Duration,
}

impl Call {
    /// Error of a call that has not begun in time.
    pub(super) fn late(&self) -> Error {
        let Call { id, method, limit, .. } = self;
        Error::new(ErrorKind::Timeout, format!("method `{method}` of agent `{id}` did not begin within {limit:?}, and never will"))
    }

    /// Error of a call that has begun, and whose outcome the caller does not get.
    pub(super) fn unknown(&self, why: &str) -> Error {
        let Call { id, method, .. } = self;
        Error::new(ErrorKind::OutcomeUnknown, format!("method `{method}` of agent `{id}` has begun, and {why}"))
    }
}

/// Whether a call has begun, decided once: by the agent that begins it, or by a caller that is
/// gone or whose time is over.
#[derive(Debug, Default)]
struct Begin(AtomicU8);

const WAITING: u8 = 0;
const BEGUN: u8 = 1;
const VOID: u8 = 2;

impl Begin {
    fn decide(&self, what: u8) -> bool {
        self.0.compare_exchange(WAITING, what, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// Voids a call that has not begun, when its caller is gone.
struct Caller(Arc<Begin>);

impl Drop for Caller {
    fn drop(&mut self) {
        self.0.decide(VOID);
    }
}

impl Agents {
    /// Calls a method, wherever the agent is.
    pub(crate) async fn call(self: &Arc<Self>, call: Call) -> Result<String> {
        let runtime = self.runtime()?;
        if runtime.is_closing() {
            return Err(Error::closed());
        }
        self.check(&call.id)?;
        let callers = CALLING.try_with(Clone::clone).unwrap_or_default();
        if callers.contains(&call.id) {
            let why = format!("agent `{}` is called by a method of its own, which would wait for itself", call.id);
            return Err(Error::new(ErrorKind::Agent, why));
        }
        let late = runtime.clock.sleep(call.limit);
        match race(self.wake_for_calls(&runtime, &call.id), late).await {
            None => Err(call.late()),
            Some(Ok(woken)) => self.call_here(&runtime, woken, call, callers).await,
            Some(Err(error)) if error.kind() == ErrorKind::AgentElsewhere => requests::call(self, &runtime, call).await,
            Some(Err(error)) => Err(error),
        }
    }

    /// Calls a method of an agent that this worker holds.
    async fn call_here(self: &Arc<Self>, runtime: &Arc<Runtime>, woken: AwakeAgent, call: Call, callers: Vec<AgentId>) -> Result<String> {
        let begin = Arc::new(Begin::default());
        let caller = Caller(Arc::clone(&begin));
        let (answer, answered) = oneshot::channel();
        let (agents, of_task) = (Arc::clone(self), call.clone());
        runtime.start(async move {
            let turn = woken.hold.slot.calls.lock().await;
            if !begin.decide(BEGUN) {
                return;
            }
            let Call { id, method, args, .. } = of_task;
            let agent = Arc::clone(&woken.agent);
            let outcome = within(callers, &id, agents.classes.methods.run(agent, &id.class, &method, args)).await;
            drop(turn);
            // The caller may be gone.
            drop(answer.send(outcome));
        })?;
        match race(answered, runtime.clock.sleep(call.limit)).await {
            Some(Ok(outcome)) => outcome.map_err(|failure: CallFailure| failure.into_error(&call.id, &call.method)),
            Some(Err(_)) if caller.0.decide(VOID) => Err(Error::closed()),
            Some(Err(_)) => Err(call.unknown("the runtime was closed meanwhile")),
            None if caller.0.decide(VOID) => Err(call.late()),
            None => Err(call.unknown(&format!("did not end within {:?}", call.limit))),
        }
    }
}
