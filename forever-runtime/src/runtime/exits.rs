//! Reports the end of a fiber to everything that waits for it.
use std::sync::{Arc, OnceLock};

use crate::runtime::events::EventKind;
use crate::runtime::exit::Exit;
use crate::runtime::state::Runtime;
use crate::store::{AgentId, FiberState};

/// A fiber of an agent that has ended.
#[derive(Debug)]
pub(crate) struct AgentFiberExit {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) agent: AgentId,
    pub(crate) state: FiberState,
    /// The result, JSON, or the reason.
    pub(crate) text: Arc<str>,
}

/// Callback of the executor for ended fibers of agents.
#[derive(Default)]
pub(crate) struct ExitListener(OnceLock<Box<dyn Fn(AgentFiberExit) + Send + Sync>>);

impl std::fmt::Debug for ExitListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ExitListener")
    }
}

impl ExitListener {
    /// Sets the listener. A runtime has one.
    pub(crate) fn listen(&self, listener: impl Fn(AgentFiberExit) + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(listener));
    }
}

/// Reports a stored end to events and to the fiber's agent; returns the exit for waiters.
pub(crate) fn report(runtime: &Runtime, id: &str, name: &str, agent: Option<&AgentId>, exit: Exit) -> Exit {
    let (state, text) = match &exit {
        Exit::Completed(text) => (FiberState::Completed, text),
        Exit::Failed(why) => (FiberState::Failed, why),
        Exit::Cancelled(why) => (FiberState::Cancelled, why),
        _ => return exit,
    };
    if state == FiberState::Failed {
        Runtime::log_stopped(id, name, "failed", text);
    }
    runtime.tell(id, name, || match state {
        FiberState::Completed => EventKind::Completed,
        FiberState::Failed => EventKind::Failed { reason: Arc::clone(text) },
        _ => EventKind::Cancelled { reason: Arc::clone(text) },
    });
    if let (Some(agent), Some(listener)) = (agent, runtime.exits.0.get()) {
        let (id, name, agent) = (id.to_owned(), name.to_owned(), agent.clone());
        listener(AgentFiberExit { id, name, agent, state, text: Arc::clone(text) });
    }
    exit
}
