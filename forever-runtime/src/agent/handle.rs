//! `AgentHandle`: the commands to an agent, whether it is in memory or not.
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::call::AgentCall;
use super::class::Agent;
use super::connection::Connection;
use super::keep_alive::KeepAlive;
use super::pushed::{Message, Pushed};
use super::registry::{Agents, AwakeAgent, is_within_start};
use super::schedule::{NewSchedule, Schedule, When};
use super::state;
use crate::error::{Error, ErrorKind, Result};
use crate::exact;
use crate::exec::closure::SpawnClosure;
use crate::exec::executor::Executor;
use crate::exec::spawn::Spawn;
use crate::frame::context::FiberContext;
use crate::frame::fiber::{Failure, Fiber, Value};
use crate::runtime::link::Link;
use crate::runtime::state::Runtime;
use crate::store::{AgentHold, AgentId};

/// Handle of an agent, by class and name.
///
/// Made by [`Forever::agent`](crate::Forever::agent), or given to the agent itself when it is made.
///
/// Making a handle has no cost and no effect. A handle from outside keeps the runtime open, like
/// every other handle; the one that an agent is given does not.
///
/// State, schedules and broadcasts of an agent are available without waking it.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::Forever;
/// use forever::agent::{Agent, AgentHandle};
/// use std::time::Duration;
///
/// # struct Counter;
/// # impl Agent for Counter {
/// #     const CLASS: &'static str = "counter";
/// #     type State = u64;
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// # let forever = Forever::builder().in_memory().agent(|_| Counter).open().await?;
/// let visits: AgentHandle<Counter> = forever.agent("visits");
/// visits.set_state(&(visits.state().await? + 1)).await?;
/// visits.schedule(Duration::from_secs(3600), "report", ()).await?;
/// assert_eq!(visits.state().await?, 1);
/// // None of this needs the agent in memory.
/// assert!(!visits.is_awake());
/// # Ok(())
/// # }
/// ```
pub struct AgentHandle<A> {
    link: Link<Agents>,
    id: Arc<AgentId>,
    /// Of the handle of an agent in memory, among several workers: the hold under which it was
    /// loaded.
    hold: Option<AgentHold>,
    agent: PhantomData<fn() -> A>,
}

impl<A> AgentHandle<A> {
    pub(crate) fn new(link: Link<Agents>, id: AgentId) -> Self {
        Self::of_instance(link, id, None)
    }

    /// The handle that an agent is given when it is loaded.
    pub(crate) fn of_instance(link: Link<Agents>, id: AgentId, hold: Option<AgentHold>) -> Self {
        AgentHandle { link, id: Arc::new(id), hold, agent: PhantomData }
    }

    /// Name of the agent.
    pub fn name(&self) -> &str {
        &self.id.name
    }

    pub(crate) fn id(&self) -> &AgentId {
        &self.id
    }

    pub(crate) fn link(&self) -> &Link<Agents> {
        &self.link
    }

    pub(crate) fn agents(&self) -> Result<Arc<Agents>> {
        self.link.get()
    }

    pub(crate) fn exec(&self) -> Result<Arc<Executor>> {
        self.agents()?.exec()
    }

    pub(crate) fn runtime(&self) -> Result<Arc<Runtime>> {
        self.agents()?.runtime()
    }
}

impl Link<Agents> {
    /// Link to the executor, which keeps the runtime open if this handle does.
    pub(crate) fn exec(&self) -> Link<Executor> {
        match self {
            Link::Open(agents, guard) => agents.exec().map_or_else(|_| Link::Weak(Weak::new()), |exec| Link::Open(exec, Arc::clone(guard))),
            Link::Weak(agents) => {
                let exec = agents.upgrade().and_then(|agents| agents.exec().ok());
                Link::Weak(exec.map_or_else(Weak::new, |exec| Arc::downgrade(&exec)))
            }
            Link::None => Link::None,
        }
    }
}

impl<A: Agent> AgentHandle<A> {
    /// Wakes the agent, and keeps it in memory while the guard lives.
    ///
    /// # Errors
    /// When its class is not registered or its name cannot be, `on_start` fails, or the runtime is
    /// closed.
    pub async fn wake(&self) -> Result<Awake<A>> {
        let woken = self.request().await?;
        let agent = Arc::clone(&woken.agent).any().downcast().map_err(|_| {
            let why = format!("agent class `{}` is registered for another type than `{}`", A::CLASS, std::any::type_name::<A>());
            Error::new(ErrorKind::NotRegistered, why)
        })?;
        Ok(Awake { _link: self.link.clone(), agent, woken })
    }

    /// Wakes the agent for a caller. A runtime that is closing accepts no new requests, but work in
    /// flight may still use its agents.
    async fn request(&self) -> Result<AwakeAgent> {
        let agents = self.agents()?;
        let runtime = agents.runtime()?;
        if runtime.is_closing() {
            return Err(Error::closed());
        }
        agents.wake(&runtime, &self.id).await
    }

    /// Whether the agent is in memory.
    pub fn is_awake(&self) -> bool {
        let Ok(agents) = self.agents() else { return false };
        agents.runtime().is_ok_and(|runtime| !runtime.is_closing()) && agents.is_awake(&self.id)
    }

    /// The agent's state as last set, or its default.
    ///
    /// # Errors
    /// When the stored text cannot be read as an `A::State`, or the store cannot be read.
    pub async fn state(&self) -> Result<A::State> {
        let Some(text) = state::load(&*self.agents()?, &self.id).await? else { return Ok(A::State::default()) };
        exact::from_str(&text).map_err(|why| {
            let wanted = std::any::type_name::<A::State>();
            Error::new(ErrorKind::Value, format!("the state of agent `{}` cannot be read as `{wanted}`: {why}", self.id))
        })
    }

    /// Replaces the agent's state, durably, and sends it to every connection.
    ///
    /// By the handle that the agent was given when it was loaded, it is stored only while this
    /// worker has had the agent in memory since: a worker that was paused, and whose agents others
    /// have loaded meanwhile, does not overwrite what these have stored.
    ///
    /// # Errors
    /// When it cannot be saved, or the store fails; then the state is unchanged. Of kind
    /// [`AgentElsewhere`](ErrorKind::AgentElsewhere) when this worker counted as dead after it had
    /// loaded the agent.
    pub async fn set_state(&self, state: &A::State) -> Result<()> {
        let text = exact::to_string(state)
            .map_err(|why| Error::new(ErrorKind::Value, format!("the state of agent `{}` cannot be saved: {why}", self.id)))?;
        state::save(&*self.agents()?, &self.id, text, self.hold).await
    }

    /// As [`set_state`](Self::set_state), for a state that is text already.
    pub(crate) async fn set_state_text(&self, text: String) -> Result<()> {
        state::save(&*self.agents()?, &self.id, text, self.hold).await
    }

    /// Sends a value to all current connections, in all workers. It is not stored durably.
    ///
    /// # Errors
    /// When it cannot be written as JSON, or the runtime is gone.
    pub fn broadcast<V: Serialize + ?Sized>(&self, value: &V) -> Result<()> {
        let text = exact::to_string(value)
            .map_err(|why| Error::new(ErrorKind::Value, format!("what agent `{}` broadcasts cannot be saved: {why}", self.id)))?;
        let (agents, text): (_, Arc<str>) = (self.agents()?, text.into());
        if let Some(slot) = agents.slot(&self.id) {
            slot.push(Pushed::Broadcast(Message(Arc::clone(&text))));
        }
        if let Ok(runtime) = agents.runtime()
            && runtime.cluster().is_some()
        {
            runtime.watchers.published.broadcast(&self.id, &text);
        }
        Ok(())
    }

    /// Calls a method of the agent by name, from any worker.
    ///
    /// The method is registered with [`Builder::callable`](crate::Builder::callable). The arguments
    /// and the value are JSON. The calls of one agent are carried out one at a time, in the order
    /// in which they arrive, by the worker that has the agent in memory. If there is none, this
    /// worker wakes it. A call of an agent that another worker has in memory is a stored request:
    /// it is carried out once at most, whatever dies.
    ///
    /// Dropping the future of a call that has not begun voids it.
    ///
    /// # Errors
    /// - Of kind [`Timeout`](ErrorKind::Timeout) when it has not begun within the
    ///   [time limit](AgentCall::within): then it never will.
    /// - Of kind [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) when it has begun, and its worker died
    ///   or it did not end within the time limit. It is not repeated.
    /// - Of kind [`Agent`](ErrorKind::Agent) when the method fails or panics, or the agent cannot be
    ///   woken; also when a method calls its own agent, which would wait for itself.
    /// - Of kind [`NotRegistered`](ErrorKind::NotRegistered) when the class or the method is not
    ///   registered, and of kind [`Value`](ErrorKind::Value) when the arguments or the value cannot
    ///   be saved or read.
    ///
    /// ```
    /// # use forever_runtime as forever;
    /// use std::sync::Arc;
    /// use forever::agent::{Agent, AgentHandle};
    /// use forever::{BoxError, Forever};
    ///
    /// struct Counter {
    ///     me: AgentHandle<Counter>,
    /// }
    ///
    /// impl Agent for Counter {
    ///     const CLASS: &'static str = "counter";
    ///     type State = u64;
    /// }
    ///
    /// impl Counter {
    ///     async fn add(self: Arc<Self>, n: u64) -> Result<u64, BoxError> {
    ///         // No other call of this agent is in between.
    ///         let sum = self.me.state().await? + n;
    ///         self.me.set_state(&sum).await?;
    ///         Ok(sum)
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> forever::Result<()> {
    /// let builder = Forever::builder().in_memory().agent(|me| Counter { me }).callable("add", Counter::add);
    /// let forever = builder.open().await?;
    /// let visits = forever.agent::<Counter>("visits");
    /// assert_eq!(visits.call::<u64>("add", 2).await?, 2);
    /// assert_eq!(visits.call::<u64>("add", 3).await?, 5);
    /// forever.close().await
    /// # }
    /// ```
    pub fn call<R: DeserializeOwned>(&self, method: impl Into<String>, args: impl Serialize) -> AgentCall<R> {
        let args = exact::to_string(&args).map_err(|why| why.to_string());
        AgentCall::new(self.link.clone(), Arc::clone(&self.id), method.into(), args)
    }

    /// Receives the agent's state and its broadcasts.
    ///
    /// Wakes the agent and keeps it awake, unless another worker has it in memory: then the
    /// connection receives the same, and does not keep it there.
    ///
    /// # Errors
    /// Those of [`wake`](AgentHandle::wake), or when the store cannot be read.
    pub async fn connect(&self) -> Result<Connection> {
        match self.request().await {
            Ok(woken) => Connection::open(self.link.clone(), woken.hold, Some(woken.agent)).await,
            Err(error) if error.kind() == ErrorKind::AgentElsewhere => {
                let agents = self.agents()?;
                let hold = agents.hold(&agents.runtime()?, &self.id);
                Connection::open(self.link.clone(), hold, None).await
            }
            Err(error) => Err(error),
        }
    }

    /// Wakes the agent and keeps it awake until the guard is dropped or released.
    ///
    /// If the process dies meanwhile, the agent is woken when the database is opened again. There
    /// may be any number of guards.
    ///
    /// # Errors
    /// Those of [`wake`](AgentHandle::wake), or when the store fails.
    pub async fn keep_alive(&self) -> Result<KeepAlive> {
        let agents = self.agents()?;
        let runtime = agents.runtime()?;
        let hold = if is_within_start(&self.id) { agents.hold(&runtime, &self.id) } else { agents.wake(&runtime, &self.id).await?.hold };
        KeepAlive::take(self.link.clone(), hold).await
    }

    /// Keeps the agent awake while `work` runs.
    ///
    /// # Errors
    /// Those of [`keep_alive`](AgentHandle::keep_alive); then `work` has not started.
    pub async fn keep_alive_while<F: Future>(&self, work: F) -> Result<F::Output> {
        let mut guard = self.keep_alive().await?;
        let value = work.await;
        // A heartbeat that is left over wakes the agent once more, which is no reason to lose the
        // value.
        let _ = guard.release().await;
        Ok(value)
    }

    /// Spawns a fiber of this agent.
    ///
    /// As [`Forever::spawn`](crate::Forever::spawn) with [`Spawn::agent`]. While the fiber runs, an
    /// agent that is awake stays awake. If the fiber is interrupted, the recovery hook of the agent
    /// decides, and `on_fiber_completed` is called when it has ended.
    pub fn spawn<F: Fiber>(&self, call: F) -> Spawn<F> {
        Spawn::new(self.link.exec(), call).agent(&*self.id.class, &*self.id.name)
    }

    /// Runs a closure as a fiber of this agent.
    ///
    /// As [`Forever::spawn_closure`](crate::Forever::spawn_closure) does.
    pub fn spawn_closure<C, F, T, E>(&self, name: impl Into<String>, closure: C) -> SpawnClosure<C>
    where
        C: FnOnce(FiberContext) -> F + Send + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: Value,
        E: Failure + 'static,
    {
        SpawnClosure::new(self.link.exec(), name.into(), closure).agent(&*self.id.class, &*self.id.name)
    }

    /// Schedules [`on_schedule`](Agent::on_schedule), once or by a cron pattern.
    ///
    /// Once after a [`Duration`] or at a [`SystemTime`](std::time::SystemTime), or at the times of
    /// a cron pattern, UTC. It is stored when awaited.
    ///
    /// A pattern has 5 fields, `minute hour day-of-month month day-of-week`, or 6 with seconds in
    /// front. Names (`MON`, `JAN`), `L`, `W`, `#` and macros such as `@daily` are supported. If
    /// both days are given, either one matches, as in cron.
    ///
    /// A schedule that becomes due while no process is running runs when the database is opened:
    /// once, not for each missed time.
    ///
    /// One with a pattern is idempotent: a schedule with the same pattern, name and payload is
    /// joined. Another pattern is another schedule, and the old one stays until it is
    /// [cancelled](AgentHandle::cancel_schedule).
    pub fn schedule<P: Serialize>(&self, when: impl Into<When>, name: impl Into<String>, payload: P) -> NewSchedule {
        NewSchedule::new(
            self.link.clone(),
            (*self.id).clone(),
            when.into(),
            name.into(),
            exact::to_string(&payload).map_err(|e| e.to_string()),
        )
    }

    /// Schedules [`on_schedule`](Agent::on_schedule) at an interval.
    ///
    /// The first run is due after one interval. Runs never overlap: times that pass while it runs
    /// are skipped.
    ///
    /// It is idempotent: a schedule with the same name and payload is joined, and a changed
    /// interval takes effect.
    pub fn schedule_every<P: Serialize>(&self, interval: Duration, name: impl Into<String>, payload: P) -> NewSchedule {
        self.schedule(When::Every(interval), name, payload)
    }

    /// Cancels a schedule of this agent; returns whether there was one.
    ///
    /// A run of it that has begun continues.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn cancel_schedule(&self, id: &str) -> Result<bool> {
        self.runtime()?.store.cancel_schedule((*self.id).clone(), id.to_owned()).await
    }

    /// Lists the schedules of this agent in the order in which they were made, including suspended
    /// ones.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn schedules(&self) -> Result<Vec<Schedule>> {
        let agents = self.agents()?;
        agents.check(&self.id)?;
        Ok(agents.runtime()?.store.schedules((*self.id).clone()).await?.into_iter().map(Schedule::of).collect())
    }
}

impl<A> Clone for AgentHandle<A> {
    fn clone(&self) -> Self {
        AgentHandle { link: self.link.clone(), id: Arc::clone(&self.id), hold: self.hold, agent: PhantomData }
    }
}

impl<A> fmt::Debug for AgentHandle<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentHandle").field("class", &self.id.class).field("name", &self.id.name).finish_non_exhaustive()
    }
}

/// An agent in memory; it stays there for as long as this guard lives.
///
/// It dereferences to the agent:
///
/// ```
/// # use forever_runtime as forever;
/// use forever::Forever;
/// use forever::agent::Agent;
///
/// struct Greeter;
///
/// impl Greeter {
///     fn greet(&self) -> &str {
///         "good morning"
///     }
/// }
///
/// # impl Agent for Greeter {
/// #     const CLASS: &'static str = "greeter";
/// #     type State = ();
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// # let forever = Forever::builder().in_memory().agent(|_| Greeter).open().await?;
/// let hall = forever.agent::<Greeter>("hall").wake().await?;
/// assert_eq!(hall.greet(), "good morning");
/// # Ok(())
/// # }
/// ```
pub struct Awake<A> {
    /// Keeps the runtime open, if the handle did.
    _link: Link<Agents>,
    agent: Arc<A>,
    woken: AwakeAgent,
}

impl<A> Deref for Awake<A> {
    type Target = A;

    fn deref(&self) -> &A {
        &self.agent
    }
}

impl<A> fmt::Debug for Awake<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Awake").field("agent", &self.woken.hold.slot.id).finish_non_exhaustive()
    }
}
