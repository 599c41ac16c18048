//! Calls of agents that another worker holds.
//!
//! The caller stores a request with a time limit. The holder begins it, which is stored, carries
//! it out, and stores the outcome. What decides is stored: a request begins once at most, and an
//! outcome counts only while its worker holds the agent as it did at the begin. If no living worker
//! holds the agent, the worker of the caller becomes the holder.
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tracing::{debug, warn};

use super::call::{Call, within};
use super::method::CallFailure;
use super::registry::{Agents, AwakeAgent};
use crate::error::{Error, ErrorKind, Result, chain};
use crate::exec::agent_hooks::EndedFiber;
use crate::runtime::race::race;
use crate::runtime::rounds::Rounds;
use crate::runtime::state::Runtime;
use crate::store::{AgentId, AgentRequest, ClusterStore, NewAgentRequest, RequestOutcome, RequestProgress};

/// Number of times that it is tried.
const TRIES: u32 = 20;

/// Name of the request that an agent's fiber has ended.
const FIBER_COMPLETED: &str = "forever.fiber_completed";

/// Time limit of that request.
const HOOK_LIMIT: Duration = Duration::from_secs(30);

/// The requests of this worker that wait for their outcomes, and the agents whose requests it
/// carries out.
#[derive(Debug, Default)]
pub(super) struct Requests {
    waiting: Mutex<HashMap<String, Arc<Waiting>>>,
    /// In which the requests of agents are carried out.
    rounds: Arc<Rounds<AgentId>>,
}

#[derive(Debug)]
struct Waiting {
    agent: AgentId,
    news: Notify,
    /// Why this worker could not wake the agent, when it was to carry out the request itself.
    failed: Mutex<Option<Error>>,
}

impl Requests {
    fn waiting(&self) -> MutexGuard<'_, HashMap<String, Arc<Waiting>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ids of the requests that wait for their outcomes.
    pub(super) fn ids(&self) -> Vec<String> {
        self.waiting().keys().cloned().collect()
    }

    /// Tells the caller that there is something to take.
    pub(super) fn news(&self, id: &str) {
        if let Some(waiting) = self.waiting().get(id) {
            waiting.news.notify_one();
        }
    }

    /// Fails the requests to an agent that this worker was to carry out itself.
    fn fail(&self, agent: &AgentId, error: &Error) {
        for waiting in self.waiting().values().filter(|waiting| waiting.agent == *agent) {
            *waiting.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Error::new(error.kind(), chain(error)));
            waiting.news.notify_one();
        }
    }
}

/// Removes a request from those that wait, when its task ends.
struct Registered {
    agents: Arc<Agents>,
    id: String,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.agents.requests.waiting().remove(&self.id);
    }
}

/// Calls a method of an agent that another worker holds.
///
/// The request is a task of its own, which withdraws it when the caller is gone.
pub(super) async fn call(agents: &Arc<Agents>, runtime: &Arc<Runtime>, call: Call) -> Result<String> {
    let (answer, answered) = oneshot::channel();
    let (agents, of_task) = (Arc::clone(agents), Arc::clone(runtime));
    runtime.start(async move {
        let mut answer = answer;
        let outcome = request(&agents, &of_task, &call, &mut answer).await;
        drop(answer.send(outcome));
    })?;
    answered.await.unwrap_or_else(|_| Err(Error::closed()))
}

/// What a waiting request hears of.
enum Heard {
    News,
    /// The caller is gone.
    Dropped,
    Late,
    Closing,
}

async fn request(
    agents: &Arc<Agents>,
    runtime: &Arc<Runtime>,
    call: &Call,
    answer: &mut oneshot::Sender<Result<String>>,
) -> Result<String> {
    let cluster = runtime.cluster().ok_or_else(Error::closed)?;
    let id = runtime.clock.id();
    let new = NewAgentRequest {
        id: id.clone(),
        agent: call.id.clone(),
        method: call.method.clone(),
        args: call.args.clone(),
        caller: runtime.worker,
        limit_ms: i64::try_from(call.limit.as_millis()).unwrap_or(i64::MAX),
    };
    let mut late = pin!(runtime.clock.sleep(call.limit));
    if let Err(error) = cluster.request(new).await {
        return Err(if error.is_outcome_unknown() { withdrawn(cluster, call, &id, error, "may not be stored").await } else { error });
    }
    let waiting = Arc::new(Waiting { agent: call.id.clone(), news: Notify::new(), failed: Mutex::default() });
    agents.requests.waiting().insert(id.clone(), Arc::clone(&waiting));
    let _registered = Registered { agents: Arc::clone(agents), id: id.clone() };
    // The holder may be gone by now.
    runtime.watchers.look_soon();
    loop {
        let mut news = pin!(waiting.news.notified());
        let mut closing = pin!(runtime.closing());
        let heard = poll_fn(|cx| {
            if answer.poll_closed(cx).is_ready() {
                return Poll::Ready(Heard::Dropped);
            }
            if news.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Heard::News);
            }
            if late.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Heard::Late);
            }
            closing.as_mut().poll(cx).map(|()| Heard::Closing)
        });
        let heard = heard.await;
        match heard {
            Heard::Dropped => {
                let dropped = Error::new(ErrorKind::Closed, "the caller is gone");
                return Err(withdrawn(cluster, call, &id, dropped, "its caller is gone").await);
            }
            Heard::News | Heard::Late => {
                let failed = waiting.failed.lock().unwrap_or_else(PoisonError::into_inner).take();
                match cluster.take_request(id.clone()).await {
                    Ok(RequestProgress::Ended(RequestOutcome::Answered(text))) => return Ok(text),
                    Ok(RequestProgress::Ended(RequestOutcome::Failed(text))) => {
                        return Err(CallFailure::read(&text).into_error(&call.id, &call.method));
                    }
                    Ok(RequestProgress::Lost) => return Err(call.unknown("the worker that carried it out is gone or was taken for dead")),
                    Ok(RequestProgress::Waiting) if failed.is_some() => {
                        let error = failed.unwrap_or_else(Error::closed);
                        return Err(withdrawn(cluster, call, &id, error, "its agent could not be woken here").await);
                    }
                    Ok(RequestProgress::Waiting | RequestProgress::Begun) => {}
                    Err(error) if error.is_closed() => return Err(error),
                    Err(error) => debug!(error = %chain(&error), "the outcome of a request could not be read"),
                }
                if matches!(heard, Heard::Late) {
                    let why = format!("did not end within {:?}", call.limit);
                    return Err(withdrawn(cluster, call, &id, call.late(), &why).await);
                }
            }
            Heard::Closing => return Err(withdrawn(cluster, call, &id, Error::closed(), "the runtime was closed meanwhile").await),
        }
    }
}

/// Withdraws a request. Gives `error` if it has not begun, and otherwise that its outcome is not
/// known, for the reason `why`.
async fn withdrawn(cluster: &dyn ClusterStore, call: &Call, id: &str, error: Error, why: &str) -> Error {
    match cluster.withdraw_request(id.to_owned()).await {
        Ok(true) => error,
        Ok(false) => call.unknown(why),
        Err(failed) => {
            let Call { id, method, .. } = call;
            let text = format!("method `{method}` of agent `{id}` may have begun: its request could not be withdrawn, and {why}");
            Error::new(ErrorKind::OutcomeUnknown, text).with_source(failed)
        }
    }
}

/// Sends the end of a fiber to the agent, which another worker holds.
pub(super) async fn tell_of_end(agents: &Arc<Agents>, runtime: &Arc<Runtime>, agent: &AgentId, fiber: &EndedFiber) -> Result<()> {
    let call_of_hook = Call { id: agent.clone(), method: FIBER_COMPLETED.to_owned(), args: fiber.json(), limit: HOOK_LIMIT };
    call(agents, runtime, call_of_hook).await.map(drop)
}

impl Agents {
    /// Carries out the requests to an agent that have not begun, in a task of its own.
    pub(super) fn serve_requests(self: &Arc<Self>, runtime: &Arc<Runtime>, id: &AgentId) {
        let Some(mut round) = self.requests.rounds.ask(id) else { return };
        let (agents, of_task) = (Arc::clone(self), Arc::clone(runtime));
        // A worker that closes leaves requests to others.
        let _ = runtime.start(async move {
            loop {
                let id = round.key();
                if let Err(error) = agents.carry_out_all(&of_task, id).await {
                    if error.is_closed() {
                        return;
                    }
                    debug!(agent = %id, error = %chain(&error), "requests to an agent could not be carried out");
                    if error.kind() != ErrorKind::AgentElsewhere {
                        agents.requests.fail(id, &error);
                    }
                }
                if !round.again() {
                    return;
                }
            }
        });
    }

    async fn carry_out_all(self: &Arc<Self>, runtime: &Arc<Runtime>, id: &AgentId) -> Result<()> {
        let woken = self.wake_for_calls(runtime, id).await?;
        let cluster = runtime.cluster().ok_or_else(Error::closed)?;
        loop {
            let turn = woken.hold.slot.calls.lock().await;
            if runtime.is_closing() {
                // They are for the next holder.
                return Ok(());
            }
            let Some(request) = cluster.begin_request(id.clone(), runtime.worker).await? else { return Ok(()) };
            if request.method == FIBER_COMPLETED {
                // Hooks may run beside calls.
                drop(turn);
                self.run_hook(runtime, &woken, request).await;
                continue;
            }
            let AgentRequest { id: request, method, args } = request;
            let run = self.classes.methods.run(Arc::clone(&woken.agent), &id.class, &method, args);
            let outcome = within(Vec::new(), id, run).await;
            drop(turn);
            let outcome = match outcome {
                Ok(text) => RequestOutcome::Answered(text),
                Err(failure) => RequestOutcome::Failed(failure.json()),
            };
            end(runtime, id, request, outcome).await;
        }
    }

    async fn run_hook(&self, runtime: &Arc<Runtime>, woken: &AwakeAgent, request: AgentRequest) {
        let id = &woken.hold.slot.id;
        let read = async {
            let fiber = EndedFiber::from_json(&request.args)?;
            fiber.with_unread(runtime).await.map_err(|why| chain(&why))
        };
        let ran = match read.await {
            Ok(fiber) => woken.agent.ended(&fiber).await.map_err(|why| chain(&*why)),
            Err(why) => Err(why),
        };
        let outcome = match ran {
            Ok(()) => RequestOutcome::Answered("null".to_owned()),
            Err(why) => RequestOutcome::Failed(why),
        };
        end(runtime, id, request.id, outcome).await;
    }
}

/// Stores an outcome, again and again while the store fails.
async fn end(runtime: &Runtime, agent: &AgentId, request: String, outcome: RequestOutcome) {
    let Some(cluster) = runtime.cluster() else { return };
    for _ in 0..TRIES {
        match cluster.end_request(request.clone(), runtime.worker, outcome.clone()).await {
            Ok(true) => return,
            Ok(false) => {
                debug!(%agent, request, "the outcome of a request was not stored: its caller is gone, or this worker counted as dead");
                return;
            }
            Err(error) if error.is_closed() => return,
            Err(error) => warn!(%agent, request, error = %chain(&error), "the outcome of a request could not be stored"),
        }
        if race(runtime.closing(), runtime.clock.sleep(runtime.settings.timings.store_retry)).await.is_some() {
            return;
        }
    }
}
