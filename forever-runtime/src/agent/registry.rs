//! The agents in memory: at most one per class and name, woken on demand, unloaded when idle.
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tracing::debug;

use super::cached::{CachedState, Heartbeat};
use super::class::BoxError;
use super::hooks::{Class, Classes, Hooks};
use super::pushed::Pushed;
use super::requests::Requests;
use super::schedule_claims::ScheduleClaims;
use crate::clock::later;
use crate::error::{Error, ErrorKind, Result, chain};
use crate::exec::agent_hooks::check_name;
use crate::exec::executor::Executor;
use crate::fanout;
use crate::future::BoxFuture;
use crate::runtime::link::Link;
use crate::runtime::state::Runtime;
use crate::runtime::timer::{Alarm, Ring};
use crate::store::AgentId;

/// The alarm of an idle agent.
pub(super) const IDLE: &str = "agent idle";

/// Number of locks for becoming the holder of an agent.
const STRIPES: usize = 64;

/// Settings of the builder.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) idle_timeout: Duration,
    pub(crate) keep_alive_interval: Duration,
    pub(crate) hung_schedule_timeout: Duration,
    pub(crate) max_in_memory: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            idle_timeout: Duration::from_secs(90),
            keep_alive_interval: Duration::from_secs(30),
            hung_schedule_timeout: Duration::from_secs(30),
            max_in_memory: 10_000,
        }
    }
}

/// The agents of one runtime.
#[derive(Debug)]
pub(crate) struct Agents {
    me: Weak<Agents>,
    /// Set when the runtime opens.
    exec: OnceLock<Weak<Executor>>,
    pub(super) classes: Classes,
    pub(super) settings: Settings,
    /// Agents that are in memory or held.
    slots: Mutex<Slots>,
    /// Classes of which several workers may have the same agent in memory.
    pub(super) shared: BTreeSet<&'static str>,
    /// Held while a worker becomes the holder of an agent or ceases to be it; one of them for each
    /// agent, by its hash.
    pub(super) holding: Vec<tokio::sync::Mutex<()>>,
    /// Agents of [shared](Self::shared) classes that this worker holds all the same, because it
    /// carries out their calls.
    pub(super) held_for_calls: Mutex<HashSet<AgentId>>,
    /// Calls between workers.
    pub(super) requests: Requests,
    /// Schedules whose run has been handed to their agent, by id, until the outcome is stored.
    begun: Mutex<HashSet<String>>,
    pub(super) claims: ScheduleClaims,
}

#[derive(Debug, Default)]
struct Slots {
    by_id: HashMap<AgentId, Arc<Slot>>,
    /// Idle agents in memory, in the order in which they became idle.
    idle: BTreeMap<u64, AgentId>,
    /// Next number in that order.
    next: u64,
}

impl Slots {
    /// Removes the agents that have been idle longest, until there are at most `most` or all are
    /// busy.
    fn take_surplus(&mut self, runtime: &Runtime, most: usize) -> Vec<Arc<Slot>> {
        let mut surplus = Vec::new();
        while self.by_id.len() > most
            && let Some((_, id)) = self.idle.pop_first()
        {
            runtime.timer.clear(&idle_alarm(&id));
            surplus.extend(self.by_id.remove(&id));
        }
        surplus
    }
}

/// Marks the run of a schedule as begun until it is dropped.
pub(super) struct Begun {
    agents: Arc<Agents>,
    schedule: String,
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.agents.begun_runs().remove(&self.schedule);
    }
}

/// Slot of one agent, while it is held or in memory.
pub(super) struct Slot {
    pub(super) id: AgentId,
    inner: Mutex<Inner>,
    pub(super) heart: tokio::sync::Mutex<Heartbeat>,
    /// The stored state, as far as it is known. Locked while it is written, so that it is pushed in
    /// the order of storing.
    pub(super) state: Arc<tokio::sync::Mutex<CachedState>>,
    /// Locked while a call of the agent is carried out: one at a time, in the order of arrival.
    pub(super) calls: tokio::sync::Mutex<()>,
    /// Sender to the connections; made with the first one.
    pub(super) pushes: OnceLock<fanout::Sender<Pushed>>,
    /// Version of the stored state at the last look, where other workers may set it.
    version: AtomicI64,
}

struct Inner {
    phase: Phase,
    /// Number of holds on the slot.
    holds: usize,
    /// Number of keep-alives among them.
    kept: usize,
    idle_since_ms: i64,
    /// Its number among the idle agents.
    idle: Option<u64>,
}

enum Phase {
    Asleep,
    /// Reports how the waking ended.
    Waking(watch::Receiver<Option<Woke>>),
    Awake(Arc<dyn Hooks>),
}

impl Phase {
    fn is_in_memory(&self) -> bool {
        !matches!(self, Phase::Asleep)
    }
}

type Woke = Result<(), Failed>;

/// Error of a failed waking, shared by all that waited for it.
type Failed = Arc<dyn std::error::Error + Send + Sync>;

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("holds", &self.inner().holds).finish_non_exhaustive()
    }
}

impl Slot {
    fn new(id: AgentId) -> Self {
        let inner = Inner { phase: Phase::Asleep, holds: 0, kept: 0, idle_since_ms: 0, idle: None };
        Slot {
            id,
            inner: Mutex::new(inner),
            heart: tokio::sync::Mutex::default(),
            state: Arc::default(),
            calls: tokio::sync::Mutex::default(),
            pushes: OnceLock::new(),
            version: AtomicI64::new(-1),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of keep-alives that hold it.
    pub(super) fn kept(&self) -> usize {
        self.inner().kept
    }

    /// Sends a message to every connection.
    pub(super) fn push(&self, pushed: Pushed) {
        if let Some(pushes) = self.pushes.get() {
            pushes.send(pushed);
        }
    }
}

/// Keeps a slot, and the agent in it if it is awake.
#[derive(Debug)]
pub(super) struct AgentRef {
    agents: Weak<Agents>,
    pub(super) slot: Arc<Slot>,
}

impl AgentRef {
    /// The agents, if the runtime is still there.
    pub(super) fn agents(&self) -> Option<Arc<Agents>> {
        self.agents.upgrade()
    }

    /// The runtime, if it is still there.
    pub(super) fn runtime(&self) -> Option<Arc<Runtime>> {
        self.agents()?.runtime().ok()
    }
}

impl Drop for AgentRef {
    fn drop(&mut self) {
        if let Some(agents) = self.agents()
            && let Ok(runtime) = agents.runtime()
        {
            agents.let_go(&runtime, &self.slot);
        }
    }
}

/// A hold for a keep-alive.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) hold: AgentRef,
}

impl Kept {
    pub(super) fn new(hold: AgentRef) -> Self {
        hold.slot.inner().kept += 1;
        Kept { hold }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.hold.slot.inner().kept -= 1;
    }
}

/// An agent that is awake, and stays awake while this is held.
pub(crate) struct AwakeAgent {
    pub(crate) agent: Arc<dyn Hooks>,
    pub(super) hold: AgentRef,
}

tokio::task_local! {
    /// The agents in whose `on_start` the task runs: waiting for them would deadlock.
    static WAKING: Vec<AgentId>;
}

/// Whether the current code is part of the `on_start` of an agent.
pub(super) fn is_within_start(id: &AgentId) -> bool {
    WAKING.try_with(|waking| waking.contains(id)).unwrap_or(false)
}

impl Agents {
    pub(crate) fn new(classes: Classes, settings: Settings, shared: BTreeSet<&'static str>) -> Arc<Self> {
        Arc::new_cyclic(|me| Agents {
            me: Weak::clone(me),
            exec: OnceLock::new(),
            classes,
            settings,
            slots: Mutex::default(),
            shared,
            holding: (0..STRIPES).map(|_| tokio::sync::Mutex::default()).collect(),
            held_for_calls: Mutex::default(),
            requests: Requests::default(),
            begun: Mutex::default(),
            claims: ScheduleClaims::default(),
        })
    }

    fn begun_runs(&self) -> MutexGuard<'_, HashSet<String>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the run of a schedule has begun.
    pub(super) fn begin_run(self: &Arc<Self>, schedule: &str) -> Begun {
        self.begun_runs().insert(schedule.to_owned());
        Begun { agents: Arc::clone(self), schedule: schedule.to_owned() }
    }

    /// The schedules whose runs have begun.
    pub(super) fn begun(&self) -> Vec<String> {
        self.begun_runs().iter().cloned().collect()
    }

    /// Sets the executor of the runtime.
    pub(crate) fn attach(&self, exec: &Arc<Executor>) {
        // A runtime has one executor.
        let _ = self.exec.set(Arc::downgrade(exec));
    }

    /// The executor, if the runtime is still there.
    pub(crate) fn exec(&self) -> Result<Arc<Executor>> {
        self.exec.get().and_then(Weak::upgrade).ok_or_else(Error::closed)
    }

    /// The runtime, if it is still there.
    pub(crate) fn runtime(&self) -> Result<Arc<Runtime>> {
        Ok(Arc::clone(&self.exec()?.runtime))
    }

    /// An alarm handler of the agents, for as long as the runtime exists.
    pub(super) fn ring(
        &self,
        work: impl Fn(Arc<Agents>, Arc<Runtime>, Arc<str>) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) -> Ring {
        let me = Weak::clone(&self.me);
        Arc::new(move |runtime, of| match me.upgrade() {
            Some(agents) => work(agents, runtime, of),
            None => Box::pin(async {}),
        })
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn weak(&self) -> Weak<Agents> {
        Weak::clone(&self.me)
    }

    /// Whether an agent is in memory, or on its way there.
    pub(super) fn is_in_memory(&self, id: &AgentId) -> bool {
        self.slot(id).is_some_and(|slot| slot.inner().phase.is_in_memory())
    }

    /// The agents that are in memory.
    pub(super) fn in_memory(&self) -> Vec<AgentId> {
        self.slots().by_id.values().filter(|slot| slot.inner().phase.is_in_memory()).map(|slot| slot.id.clone()).collect()
    }

    /// The agents that have connections.
    pub(super) fn connected(&self) -> Vec<AgentId> {
        let connected = |slot: &&Arc<Slot>| slot.pushes.get().is_some_and(|pushes| pushes.receiver_count() > 0);
        self.slots().by_id.values().filter(connected).map(|slot| slot.id.clone()).collect()
    }

    /// Sends a message to the connections of all agents.
    pub(super) fn push_to_all(&self, pushed: &Pushed) {
        let slots: Vec<Arc<Slot>> = self.slots().by_id.values().map(Arc::clone).collect();
        for slot in slots {
            slot.push(pushed.clone());
        }
    }

    /// Notes the version of an agent's stored state; says whether it is another one than before.
    pub(super) fn is_new_version(&self, id: &AgentId, version: i64) -> bool {
        self.slot(id).is_some_and(|slot| slot.version.swap(version, Ordering::Relaxed) != version)
    }

    /// Unloads an agent. Its holders keep the instance that they have.
    pub(super) fn evict(&self, id: &AgentId) {
        let Some(slot) = self.slot(id) else { return };
        let gone = std::mem::replace(&mut slot.inner().phase, Phase::Asleep);
        drop(gone);
    }

    /// Number of agents that are in memory or held.
    #[cfg(feature = "testing")]
    pub(crate) fn entries(&self) -> usize {
        self.slots().by_id.len()
    }

    /// The slot of an agent that is in memory or held.
    pub(super) fn slot(&self, id: &AgentId) -> Option<Arc<Slot>> {
        self.slots().by_id.get(id).map(Arc::clone)
    }

    /// The agents that keep-alives hold.
    pub(super) fn kept(&self) -> Vec<AgentId> {
        self.slots().by_id.values().filter(|slot| slot.kept() > 0).map(|slot| slot.id.clone()).collect()
    }

    /// Whether an agent is in memory.
    pub(super) fn is_awake(&self, id: &AgentId) -> bool {
        self.slot(id).is_some_and(|slot| matches!(slot.inner().phase, Phase::Awake(_)))
    }

    /// The class of an agent; fails if the class is not registered or the name is invalid.
    pub(super) fn check(&self, id: &AgentId) -> Result<&Arc<dyn Class>> {
        if let Err(why) = check_name(&id.name) {
            return Err(Error::new(ErrorKind::Value, format!("the name of an agent `{}` {why}", id.class)));
        }
        self.classes.get(&id.class).ok_or_else(|| {
            Error::new(ErrorKind::NotRegistered, format!("agent class `{}` is not registered: add it with `.agent(..)`", id.class))
        })
    }

    /// Holds the slot of an agent, whether it is in memory or not.
    pub(super) fn hold(&self, runtime: &Arc<Runtime>, id: &AgentId) -> AgentRef {
        let (slot, surplus) = {
            let mut slots = self.slots();
            let slot = if let Some(slot) = slots.by_id.get(id) {
                Arc::clone(slot)
            } else {
                let slot = Arc::new(Slot::new(id.clone()));
                slots.by_id.insert(id.clone(), Arc::clone(&slot));
                slot
            };
            let mut inner = slot.inner();
            inner.holds += 1;
            if let Some(number) = inner.idle.take() {
                slots.idle.remove(&number);
            }
            if inner.holds == 1 && matches!(inner.phase, Phase::Awake(_)) {
                runtime.timer.clear(&idle_alarm(id));
            }
            drop(inner);
            (slot, slots.take_surplus(runtime, self.settings.max_in_memory))
        };
        self.send_to_sleep(runtime, surplus);
        AgentRef { agents: Weak::clone(&self.me), slot }
    }

    /// Releases a hold on a slot.
    fn let_go(&self, runtime: &Arc<Runtime>, slot: &Arc<Slot>) {
        let mut slots = self.slots();
        let mut inner = slot.inner();
        inner.holds -= 1;
        if inner.holds > 0 {
            return;
        }
        if !matches!(inner.phase, Phase::Awake(_)) {
            slots.by_id.remove(&slot.id);
            return;
        }
        let now_ms = runtime.now_ms();
        inner.idle_since_ms = now_ms;
        runtime.timer.set(idle_alarm(&slot.id), later(now_ms, self.settings.idle_timeout));
        let number = slots.next;
        slots.next += 1;
        inner.idle = Some(number);
        drop(inner);
        slots.idle.insert(number, slot.id.clone());
        let surplus = slots.take_surplus(runtime, self.settings.max_in_memory);
        drop(slots);
        self.send_to_sleep(runtime, surplus);
    }

    /// Agents leave memory because there are too many. What their types do when they are dropped
    /// happens outside the locks.
    fn send_to_sleep(&self, runtime: &Arc<Runtime>, surplus: Vec<Arc<Slot>>) {
        for slot in surplus {
            let phase = std::mem::replace(&mut slot.inner().phase, Phase::Asleep);
            debug!(agent = %slot.id, "agent leaves memory, which is full");
            drop(phase);
            self.release(runtime, slot.id.clone());
        }
    }

    /// Unloads an agent if it has been idle for long enough.
    pub(super) fn leave(&self, runtime: &Arc<Runtime>, of: &str) {
        let Some((class, name)) = of.split_once('/') else { return };
        let id = AgentId { class: class.to_owned(), name: name.to_owned() };
        let gone = {
            let mut slots = self.slots();
            let Some(slot) = slots.by_id.get(&id).map(Arc::clone) else { return };
            let mut inner = slot.inner();
            if inner.holds > 0 {
                return;
            }
            let now_ms = runtime.now_ms();
            // The clock may have been set back since.
            inner.idle_since_ms = inner.idle_since_ms.min(now_ms);
            let over_ms = later(inner.idle_since_ms, self.settings.idle_timeout);
            if now_ms < over_ms {
                return runtime.timer.set(idle_alarm(&id), over_ms);
            }
            slots.by_id.remove(&id);
            if let Some(number) = inner.idle.take() {
                slots.idle.remove(&number);
            }
            std::mem::replace(&mut inner.phase, Phase::Asleep)
        };
        debug!(agent = %id, "agent leaves memory");
        // The drop of the user's type runs outside the lock.
        drop(gone);
        self.release(runtime, id);
    }

    /// Wakes an agent unless it is awake, and keeps it so.
    pub(crate) async fn wake(&self, runtime: &Arc<Runtime>, id: &AgentId) -> Result<AwakeAgent> {
        self.wake_with(runtime, id, Runtime::start).await
    }

    /// The same for what another task brings about, also while the runtime closes.
    pub(super) async fn wake_beside(&self, runtime: &Arc<Runtime>, id: &AgentId) -> Result<AwakeAgent> {
        self.wake_with(runtime, id, Runtime::start_beside).await
    }

    async fn wake_with(
        &self,
        runtime: &Arc<Runtime>,
        id: &AgentId,
        start: impl Fn(&Arc<Runtime>, BoxFuture<'static, ()>) -> Result<()>,
    ) -> Result<AwakeAgent> {
        let class = self.check(id)?;
        if runtime.claims_as().is_none() {
            return Err(Error::new(ErrorKind::Setup, format!("agent `{id}` cannot be woken by a process that runs nothing")));
        }
        if is_within_start(id) {
            let why = format!("agent `{id}` cannot be woken by its own `on_start`, which would wait for itself");
            return Err(Error::new(ErrorKind::Agent, why));
        }
        let hold = self.hold(runtime, id);
        loop {
            let mut woke = {
                let mut inner = hold.slot.inner();
                match &inner.phase {
                    Phase::Awake(agent) => {
                        let agent = Arc::clone(agent);
                        drop(inner);
                        return Ok(AwakeAgent { agent, hold });
                    }
                    Phase::Waking(woke) => woke.clone(),
                    Phase::Asleep => {
                        let (tell, woke) = watch::channel(None);
                        inner.phase = Phase::Waking(woke.clone());
                        drop(inner);
                        let mut within = WAKING.try_with(Clone::clone).unwrap_or_default();
                        within.push(id.clone());
                        let waking = Waking { hold: self.hold(runtime, id), within, tell };
                        start(runtime, Box::pin(waking.run(Arc::clone(class))))?;
                        woke
                    }
                }
            };
            match woke.wait_for(Option::is_some).await.as_deref() {
                Ok(Some(Err(why))) => {
                    if let Some(elsewhere) = why.downcast_ref::<Error>().filter(|why| why.kind() == ErrorKind::AgentElsewhere) {
                        return Err(Error::new(ErrorKind::AgentElsewhere, elsewhere.to_string()));
                    }
                    let failed = Error::new(ErrorKind::Agent, format!("failed to wake agent `{id}`"));
                    return Err(failed.with_shared_source(Arc::clone(why)));
                }
                // It is held, so it is awake.
                Ok(_) => {}
                Err(_) => return Err(Error::closed()),
            }
        }
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        // An agent may hold a guard that holds its slot. It is dropped outside the locks, which
        // that guard takes.
        let slots = std::mem::take(&mut *self.slots());
        for slot in slots.by_id.into_values() {
            let phase = std::mem::replace(&mut slot.inner().phase, Phase::Asleep);
            drop(phase);
        }
    }
}

/// Loads one agent into memory; continues even if the callers that wait for it are gone.
struct Waking {
    hold: AgentRef,
    /// Agents for which `on_start` must not wait.
    within: Vec<AgentId>,
    tell: watch::Sender<Option<Woke>>,
}

impl Waking {
    async fn run(mut self, class: Arc<dyn Class>) {
        let within = std::mem::take(&mut self.within);
        let slot = &self.hold.slot;
        let link = Link::Weak(Weak::clone(&self.hold.agents));
        let started = async {
            let hold = match self.hold.agents() {
                Some(agents) => agents.become_holder(&slot.id).await?,
                None => None,
            };
            let agent = class.make(link, slot.id.clone(), hold)?;
            agent.start().await?;
            Ok::<_, BoxError>(agent)
        };
        let (phase, woke) = match WAKING.scope(within, started).await {
            Ok(agent) => {
                debug!(agent = %slot.id, "agent is awake");
                (Phase::Awake(agent), Ok(()))
            }
            Err(why) => {
                debug!(agent = %slot.id, error = %chain(&*why), "agent could not be woken");
                (Phase::Asleep, Err(Failed::from(why)))
            }
        };
        let failed = !phase.is_in_memory();
        slot.inner().phase = phase;
        if failed && let (Some(agents), Some(runtime)) = (self.hold.agents(), self.hold.runtime()) {
            agents.release(&runtime, slot.id.clone());
        }
        self.tell.send_replace(Some(woke));
    }
}

impl Drop for Waking {
    fn drop(&mut self) {
        let mut inner = self.hold.slot.inner();
        if let Phase::Waking(_) = inner.phase {
            inner.phase = Phase::Asleep;
        }
    }
}

fn idle_alarm(id: &AgentId) -> Alarm {
    Alarm { what: IDLE, of: id.to_string().into() }
}
