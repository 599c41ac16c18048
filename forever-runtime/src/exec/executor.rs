//! The executor: the functions, resources and agents that the fibers of a runtime need.
use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::exec::agent_hooks::{AgentHooks, EndedFiber};
use crate::exec::compatibility::Compatibility;
use crate::exec::registry::Registry;
use crate::frame::machine::Machine;
use crate::frame::resources::Resources;
use crate::layout::rows::machines;
use crate::runtime::exits::AgentFiberExit;
use crate::runtime::link::Link;
use crate::runtime::state::Runtime;

/// Maximum number of fibers that are being loaded from the store.
const ENTERING: usize = 512;

/// Runs the fibers of one runtime.
///
/// Its tasks hold it, the dispatcher for as long as the runtime is open.
#[derive(Debug)]
pub(crate) struct Executor {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) registry: Registry,
    pub(crate) resources: Resources,
    /// The agents, which own fibers and decide about interrupted ones.
    pub(crate) agents: Arc<dyn AgentHooks>,
    /// Result of comparing the stored fibers with the code at open.
    pub(crate) compatibility: Compatibility,
    /// Limits how many fibers are being loaded.
    pub(crate) entering: Arc<Semaphore>,
    /// Admits suspects (fibers with many deaths) one at a time.
    pub(crate) suspects: Arc<Semaphore>,
}

impl Executor {
    pub(crate) fn new(
        runtime: Arc<Runtime>,
        registry: Registry,
        resources: Resources,
        agents: Arc<dyn AgentHooks>,
        compatibility: Compatibility,
    ) -> Self {
        let entering = Arc::new(Semaphore::new(ENTERING));
        let (with_secrets, callers) = registry
            .machines()
            .filter(|machine| !machine.secrets.is_empty() || machine.calls())
            .partition::<Vec<_>, _>(|machine| !machine.secrets.is_empty());
        let names = |machines: Vec<&'static Machine>| machines.into_iter().map(|machine| machine.name).collect::<BTreeSet<_>>();
        let (with_secrets, callers) = (names(with_secrets), names(callers));
        runtime.hide_texts(move |name| {
            // Which functions are called is known once they were.
            with_secrets.contains(name) || callers.contains(name) && machines().iter().any(|machine| !machine.secrets.is_empty())
        });
        Executor { runtime, registry, resources, agents, compatibility, entering, suspects: Arc::new(Semaphore::new(1)) }
    }
}

/// Notifies agents of the ends of their fibers; fibers of the layers above are excluded.
pub(crate) fn report_exits(exec: &Arc<Executor>) {
    let of_listener = Arc::downgrade(exec);
    exec.runtime.exits.listen(move |exit| {
        let Some(exec) = of_listener.upgrade().filter(|exec| !exec.registry.is_ours(&exit.name)) else { return };
        let AgentFiberExit { id, name, agent, state, text } = exit;
        let of_task = Arc::clone(&exec);
        // A runtime that is closing sends no more notifications.
        let _ = exec.runtime.start(async move {
            of_task.agents.ended(&of_task.runtime, &agent, EndedFiber { id, name, state, text }).await;
        });
    });
}

impl Link<Executor> {
    /// A link to the runtime alone.
    pub(crate) fn runtime(&self) -> Link<Runtime> {
        self.to(|exec| Arc::clone(&exec.runtime))
    }
}
