//! Agents among several workers: of each agent at most one instance in one worker's memory, its
//! state shown in all of them, and schedules and keep-alives of workers that are gone.
//!
//! Agents of chat classes are not held by one worker: a client may connect to any of them, and
//! what a chat is made of is in the database. Their calls are carried out by one of them, which
//! holds the agent for that.
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, MutexGuard, PoisonError, Weak};

use tracing::{debug, warn};

use super::cached::CachedState;
use super::pushed::{Message, Pushed};
use super::registry::{Agents, AwakeAgent};
use super::{keep_alive, schedule};
use crate::error::{Error, ErrorKind, Result, chain};
use crate::future::BoxFuture;
use crate::runtime::cluster::Watcher;
use crate::runtime::published::Inbound;
use crate::runtime::race::race;
use crate::runtime::state::Runtime;
use crate::runtime::sync::sleep;
use crate::store::{AgentHold, AgentId, Changes, HoldResult, Watch};

/// Number of such looks between two for keep-alives of workers that are gone.
const KEEP_ALIVES: u32 = 5;

impl Agents {
    fn is_shared(&self, id: &AgentId) -> bool {
        self.shared.contains(&*id.class)
    }

    fn held_for_calls(&self) -> MutexGuard<'_, HashSet<AgentId>> {
        self.held_for_calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes an agent in the worker that carries out its calls.
    ///
    /// # Errors
    /// As [`wake`](Agents::wake), and of kind [`ErrorKind::AgentElsewhere`] also for an agent of a
    /// chat class whose calls another worker carries out.
    pub(super) async fn wake_for_calls(&self, runtime: &Arc<Runtime>, id: &AgentId) -> Result<AwakeAgent> {
        let woken = self.wake(runtime, id).await?;
        if self.is_shared(id) && runtime.cluster().is_some() && !self.held_for_calls().contains(id) {
            let _alone = self.lock_of(id).lock().await;
            self.hold_agent(runtime, id).await?;
            self.held_for_calls().insert(id.clone());
        }
        Ok(woken)
    }

    /// Stores that this worker holds an agent; gives the hold, among several workers.
    async fn hold_agent(&self, runtime: &Runtime, id: &AgentId) -> Result<Option<AgentHold>> {
        let Some(cluster) = runtime.cluster() else { return Ok(None) };
        match cluster.hold_agent(id.clone(), runtime.worker).await? {
            HoldResult::Held(hold) => Ok(Some(hold)),
            HoldResult::Elsewhere(holder) => {
                let way = "call a method there with `AgentHandle::call`, or send a message to one of its fibers";
                Err(Error::new(ErrorKind::AgentElsewhere, format!("agent `{id}` is in the memory of {holder}: {way}")))
            }
        }
    }

    fn lock_of(&self, id: &AgentId) -> &tokio::sync::Mutex<()> {
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        let stripes = self.holding.len() as u64;
        &self.holding[usize::try_from(hasher.finish() % stripes).unwrap_or(0)]
    }

    /// Makes this worker the holder of an agent that it loads; gives the hold, if there are others
    /// that could hold it.
    ///
    /// # Errors
    /// Of kind [`ErrorKind::AgentElsewhere`] when another worker has it in memory.
    pub(super) async fn become_holder(&self, id: &AgentId) -> Result<Option<AgentHold>> {
        let runtime = self.runtime()?;
        if runtime.cluster().is_none() || self.is_shared(id) {
            return Ok(None);
        }
        let _alone = self.lock_of(id).lock().await;
        self.hold_agent(&runtime, id).await
    }

    /// Lets other workers hold an agent that has left memory.
    pub(super) fn release(&self, runtime: &Arc<Runtime>, id: AgentId) {
        let is_held = !self.is_shared(&id) || self.held_for_calls().remove(&id);
        if runtime.cluster().is_none() || !is_held {
            return;
        }
        let (agents, of_task) = (self.weak(), Arc::clone(runtime));
        // A worker that closes holds no agents any more.
        let _ = runtime.start(async move {
            let (Some(agents), Some(cluster)) = (agents.upgrade(), of_task.cluster()) else { return };
            let _alone = agents.lock_of(&id).lock().await;
            if agents.is_in_memory(&id) && (!agents.is_shared(&id) || agents.held_for_calls().contains(&id)) {
                return;
            }
            if let Err(error) = cluster.release_agent(id.clone(), of_task.worker).await
                && !error.is_closed()
            {
                warn!(agent = %id, error = %chain(&error), "it could not be stored that an agent has left memory");
            }
        });
    }

    /// Unloads the agents that this worker held, after it counted as dead: other workers may have
    /// had them since. The next call loads one again, if no other worker has it by then, and so
    /// does the next look for agents that are kept awake.
    fn unload_held(&self) {
        self.held_for_calls().clear();
        for id in self.in_memory().into_iter().filter(|id| !self.is_shared(id)) {
            warn!(agent = %id, "this worker counted as dead, so the agent leaves its memory");
            self.evict(&id);
        }
    }

    /// Shows a state that another worker has set to the connections of this one.
    async fn show_state(&self, runtime: &Runtime, id: &AgentId) -> Result<()> {
        let Some(slot) = self.slot(id) else { return Ok(()) };
        let mut state = slot.state.lock().await;
        let Some(text) = runtime.store.load_state(id.clone()).await? else { return Ok(()) };
        let text: Arc<str> = text.into();
        if matches!(&*state, CachedState::Stored(Some(known)) if *known == text) {
            return Ok(());
        }
        *state = CachedState::Stored(Some(Arc::clone(&text)));
        slot.push(Pushed::State(Message(text)));
        Ok(())
    }
}

/// Takes in what other workers do with agents.
struct AgentWatcher(Weak<Agents>);

impl Watcher for AgentWatcher {
    fn watch(&self, watch: &mut Watch) {
        if let Some(agents) = self.0.upgrade() {
            watch.agents = agents.connected();
            watch.requests = agents.requests.ids();
        }
    }

    fn changed<'a>(&'a self, changes: &'a Changes) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let Some(agents) = self.0.upgrade() else { return };
            let Ok(runtime) = agents.runtime() else { return };
            if changes.fenced {
                agents.unload_held();
            }
            for id in &changes.requests {
                agents.requests.news(id);
            }
            for id in &changes.requested {
                agents.serve_requests(&runtime, id);
            }
            for (id, version) in &changes.agents {
                if !agents.is_new_version(id, *version) {
                    continue;
                }
                if let Err(error) = agents.show_state(&runtime, id).await {
                    debug!(agent = %id, error = %chain(&error), "the state of an agent could not be read");
                }
            }
        })
    }

    fn published(&self, inbound: &Inbound) {
        let Some(agents) = self.0.upgrade() else { return };
        match inbound {
            Inbound::Broadcast(id, text) => {
                if let Some(slot) = agents.slot(id) {
                    slot.push(Pushed::Broadcast(Message(text.as_str().into())));
                }
            }
            Inbound::Lagged(missed) => agents.push_to_all(&Pushed::Lagged(*missed)),
        }
    }
}

/// Begins to take in what other workers do with agents.
pub(super) async fn begin(agents: &Arc<Agents>, runtime: &Arc<Runtime>) -> Result<()> {
    if runtime.cluster().is_none() {
        return Ok(());
    }
    // What was published before is not for this process.
    runtime.read_published().await?;
    runtime.watchers.add(Arc::new(AgentWatcher(Arc::downgrade(agents))));
    let (agents, of_task) = (Arc::clone(agents), Arc::clone(runtime));
    runtime.start(async move {
        for look in 1_u32.. {
            if race(of_task.closing(), sleep(of_task.settings.timings.idle_look)).await.is_some() {
                return;
            }
            let looked = async {
                schedule::arm(&of_task, &agents).await?;
                if look % KEEP_ALIVES == 0 { keep_alive::revive(&agents, &of_task).await } else { Ok(()) }
            };
            match looked.await {
                Err(error) if error.is_closed() => return,
                Err(error) => debug!(error = %chain(&error), "schedules of other workers could not be looked for"),
                Ok(()) => {}
            }
        }
    })
}
