//! The executor: the functions, resources and agents that the fibers of a runtime need.
use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::exec::agent_hooks::{AgentHooks, EndedFiber};
use crate::exec::compatibility::Compatibility;
use crate::exec::entry_order::EntryOrder;
use crate::exec::registry::Registry;
use crate::frame::machine::{COMPUTED_TOPIC, Machine, PENDING};
use crate::frame::resources::Resources;
use crate::layout::rows::{machines, row_of};
use crate::layout::spec::Layout;
use crate::runtime::exits::AgentFiberExit;
use crate::runtime::link::Link;
use crate::runtime::race::race;
use crate::runtime::state::{Functions, Runtime};
use crate::store::LayoutRow;

/// Maximum number of activations that are being started: that claim and load their fibers.
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
    /// Limits how many activations are being started.
    pub(crate) entering: Arc<Semaphore>,
    /// Lets fibers with fewer deaths be entered first.
    pub(crate) order: Arc<EntryOrder>,
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
        runtime.register(Registered(registry.machines().map(|machine| (machine.name, machine)).collect()));
        let (order, suspects) = (Arc::default(), Arc::new(Semaphore::new(1)));
        Executor { runtime, registry, resources, agents, compatibility, entering, order, suspects }
    }

    /// Waits for the permit to start an activation; `None` if the runtime closes.
    pub(crate) async fn permit_to_enter(&self) -> Option<OwnedSemaphorePermit> {
        race(Arc::clone(&self.entering).acquire_owned(), self.runtime.closing()).await.and_then(Result::ok)
    }
}

/// The registered functions, by their stored names.
#[derive(Debug)]
struct Registered(BTreeMap<&'static str, &'static Machine>);

impl Functions for Registered {
    fn check_topic(&self, name: &str, topic: &str) -> Result<(), String> {
        let Some(machine) = self.0.get(name) else { return Ok(()) };
        let topics = machine.topics;
        // What it calls may receive on other topics, and computed ones are known only while it
        // waits.
        if machine.calls() || topics.contains(&COMPUTED_TOPIC) || topics.contains(&topic) {
            return Ok(());
        }
        Err(match topics {
            [] => "it receives no messages".to_owned(),
            topics => format!("it receives on {}", topics.iter().map(|t| format!("`{t}`")).collect::<Vec<_>>().join(", ")),
        })
    }

    fn takes(&self, layout: &LayoutRow, topic: &str) -> bool {
        // Of its own layout the code knows more.
        let is_of = |machine: &&'static Machine| machine.name == layout.fiber && row_of(machine).hash == layout.hash;
        !self.0.values().copied().any(|machine| is_of(&machine)) && Layout::read(layout).is_ok_and(|layout| layout.receives(topic))
    }

    fn wait_of(&self, name: &str, at: &str) -> Option<&'static str> {
        if !at.contains(PENDING) {
            return None;
        }
        let own = self.0.get(name).and_then(|machine| machine.wait_of(at));
        // It may be a wait of a function that it calls.
        own.or_else(|| machines().iter().find_map(|machine| machine.wait_of(at)))
    }
}

/// Notifies agents of the ends of their fibers; fibers of the layers above are excluded.
pub(crate) fn report_exits(exec: &Arc<Executor>) {
    let of_listener = Arc::downgrade(exec);
    exec.runtime.exits.listen(move |exit| {
        let Some(exec) = of_listener.upgrade().filter(|exec| !exec.registry.is_ours(&exit.name)) else { return };
        let AgentFiberExit { id, name, agent, state, text } = exit;
        let of_task = Arc::clone(&exec);
        let _ = exec.runtime.start_beside(async move {
            of_task.agents.ended(&of_task.runtime, &agent, EndedFiber::new(id, name, state, text)).await;
        });
    });
}

impl Link<Executor> {
    /// A link to the runtime alone.
    pub(crate) fn runtime(&self) -> Link<Runtime> {
        self.to(|exec| Arc::clone(&exec.runtime))
    }
}
