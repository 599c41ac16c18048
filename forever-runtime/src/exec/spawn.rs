//! Starting a fiber: from an invocation to a stored row and a running task.
use std::any::Any;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use serde::Serialize;
use tokio::sync::oneshot;

use crate::error::{Error, ErrorKind, Result};
use crate::exact;
use crate::exec::activation::FiberTask;
use crate::exec::adoption::{adopt, adopt_found};
use crate::exec::agent_hooks::check_name;
use crate::exec::executor::Executor;
use crate::exec::lease::LeaseNumber;
use crate::exec::registry::Known;
use crate::frame::arguments::save_arguments;
use crate::frame::current::spawns_with_secret;
use crate::frame::fiber::Fiber;
use crate::future::BoxFuture;
use crate::runtime::active::ActiveGuard;
use crate::runtime::events::EventKind;
use crate::runtime::handle::FiberHandle;
use crate::runtime::link::Link;
use crate::runtime::messages::LONGEST_ID;
use crate::runtime::state::Runtime;
use crate::secret::{plain_arguments, secret_arguments};
use crate::store::{AcceptResult, AgentId, Claim, FiberRef, FiberRow, FiberTombstone, NewFiber};

/// New fiber, started by `.await`.
///
/// Made by [`Forever::spawn`](crate::Forever::spawn).
///
/// ```
/// # use forever_runtime as forever;
/// use forever::Forever;
/// use forever::fiber::{Fiber, FiberHandle};
/// use serde_json::json;
///
/// /// Starts a fiber for an HTTP request, once however often the client repeats it.
/// async fn start<F: Fiber>(
///     forever: &Forever,
///     call: F,
///     request: &str,
/// ) -> forever::Result<FiberHandle<F::Output>> {
///     // For a `#[fiber] async fn order(cart: Cart)`, `call` is `order(cart)`.
///     forever.spawn(call).key(request).metadata(json!({ "from": "web" })).await
/// }
/// ```
#[derive(Debug)]
#[must_use = "a fiber is started when this is awaited"]
pub struct Spawn<F> {
    link: Link<Executor>,
    call: F,
    given: Given,
}

impl<F: Fiber> Spawn<F> {
    pub(crate) fn new(link: Link<Executor>, call: F) -> Self {
        Spawn { link, call, given: Given::default() }
    }

    /// Sets the id of the fiber. Defaults to a generated one.
    ///
    /// If there is a fiber with this id, that one is joined, even if it has ended and was deleted,
    /// for the time of [`Retention::keys`](crate::Retention::keys).
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.given.id = Some(id.into());
        self
    }

    /// Sets the idempotency key of the fiber, unique among all fibers of the database.
    ///
    /// If there is a fiber with this key, that one is joined, even if it has ended and was deleted,
    /// for the time of [`Retention::keys`](crate::Retention::keys). Then no fiber is started, and
    /// the handle's `wait` tells how the earlier one ended.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.given.key = Some(key.into());
        self
    }

    /// Sets metadata for people and lists; the fiber does not see it. A joined fiber keeps its own.
    pub fn metadata(mut self, value: impl Serialize) -> Self {
        self.given.metadata(&value);
        self
    }

    /// Makes it a fiber of an agent, which stays in memory while the fiber runs.
    ///
    /// After an interruption the agent's hook decides. A joined fiber keeps its agent.
    pub fn agent(mut self, class: impl Into<String>, name: impl Into<String>) -> Self {
        self.given.agent = Some(AgentId { class: class.into(), name: name.into() });
        self
    }

    async fn start(self) -> Result<FiberHandle<F::Output>> {
        let Spawn { link, call, given } = self;
        let exec = link.get()?;
        let args = save_arguments(&call);
        // Where a worker runs it, that one has to know its function.
        let known = exec.runtime.claims_as().map(|_| exec.registry.of::<F>()).transpose()?;
        let run = known.map(|known| run_by(exec, known, (Box::new(call), spawns_with_secret())));
        start(link, F::MACHINE.name, false, args, given, run).await.map(FiberHandle::of_type)
    }
}

/// Runs a fiber that was accepted. Neither this nor what takes it is compiled for each function.
pub(crate) type RunAccepted = Box<dyn FnOnce(Claim, Option<AgentId>, ActiveGuard) -> BoxFuture<'static, ()> + Send>;

fn run_by(exec: Arc<Executor>, known: Arc<Known>, call: (Box<dyn Any + Send>, bool)) -> RunAccepted {
    let lease = LeaseNumber::of(&exec.runtime);
    Box::new(move |claim, agent, alive| Box::pin(FiberTask::begin(exec, known, (claim, lease), agent, alive, call)))
}

/// Options of a fiber to be started.
#[derive(Debug, Default)]
pub(crate) struct Given {
    pub(crate) id: Option<String>,
    pub(crate) key: Option<String>,
    /// JSON, or why it cannot be saved.
    metadata: Option<Result<String, String>>,
    pub(crate) agent: Option<AgentId>,
}

impl Given {
    pub(crate) fn metadata(&mut self, value: &impl Serialize) {
        self.metadata = Some(serde_json::to_string(value).map_err(|e| e.to_string()));
    }
}

/// Stores a fiber and runs it by `run`, if this process runs fibers, or joins the one with its id
/// or key.
pub(crate) async fn start(
    link: Link<Executor>,
    name: &str,
    closure: bool,
    args: Result<String, String>,
    given: Given,
    run: Option<RunAccepted>,
) -> Result<FiberHandle<()>> {
    let exec = &link.get()?;
    let Given { id: asked_id, key, metadata, agent } = given;
    let refused = |kind, why: String| Error::new(kind, format!("failed to start fiber `{name}`: {why}"));
    check_ids(asked_id.as_deref(), key.as_deref()).map_err(|why| refused(ErrorKind::Value, why))?;
    check_agent(exec, agent.as_ref()).map_err(|why| refused(ErrorKind::Setup, why))?;
    let args = args.map_err(|why| refused(ErrorKind::Value, why))?;
    let metadata = metadata.transpose().map_err(|why| refused(ErrorKind::Value, format!("its metadata cannot be saved: {why}")))?;
    let id = asked_id.clone().unwrap_or_else(|| exec.runtime.clock.id());
    let new = NewFiber {
        id: id.clone(),
        name: name.to_owned(),
        key: key.clone(),
        id_given: asked_id.is_some(),
        closure,
        args: if spawns_with_secret() { secret_arguments(&args) } else { args.clone() },
        metadata,
        agent,
        parent: None,
        worker: exec.runtime.claims_as(),
        now_ms: exec.runtime.now_ms(),
    };
    let there = accept(exec, new, run).await;
    let there = there.map_err(|e| refused(e.kind(), "it could not be stored".into()).with_source(e))?;
    let Some(there) = there else { return Ok(FiberHandle::new(link.runtime(), id, name, true)) };
    let known = exec.registry.get(name);
    joins(&there, name, &args, known.as_deref(), asked_id.as_deref(), key.as_deref()).map_err(|why| refused(ErrorKind::Conflict, why))?;
    Ok(FiberHandle::new(link.runtime(), there.id(), name, false))
}

/// A fiber that a spawn found in place of its own.
enum There {
    /// It runs, or has ended.
    Stored(Box<FiberRow>),
    /// It has ended and was deleted.
    Past(Box<FiberTombstone>),
}

impl There {
    fn id(&self) -> &str {
        match self {
            There::Stored(row) => &row.id,
            There::Past(past) => &past.id,
        }
    }

    fn key(&self) -> Option<&str> {
        match self {
            There::Stored(row) => row.key.as_deref(),
            There::Past(past) => past.key.as_deref(),
        }
    }

    fn name(&self) -> &str {
        match self {
            There::Stored(row) => &row.name,
            There::Past(past) => &past.name,
        }
    }

    /// Whether it was spawned with these arguments, as the code reads them now.
    fn has_arguments(&self, args: &str, known: Option<&Known>) -> bool {
        match self {
            There::Stored(row) => {
                let stored = plain_arguments(&row.args);
                exact::same(&stored, args) || known.is_some_and(|known| known.same_arguments(&stored, args))
            }
            // Only a digest is stored of a deleted fiber's arguments.
            There::Past(past) => [args, &secret_arguments(args)].iter().any(|args| past.args == exact::digest(args)),
        }
    }
}

/// Checks the id and the key of a fiber.
pub(crate) fn check_ids(id: Option<&str>, key: Option<&str>) -> Result<(), String> {
    for (what, text) in [("id", id), ("key", key)].into_iter().filter_map(|(what, text)| Some((what, text?))) {
        if text.trim().is_empty() {
            return Err(format!("an {what} must not be empty or blank").replace("an key", "a key"));
        }
        if text.len() > LONGEST_ID {
            return Err(format!("its {what} has {} bytes, more than the {LONGEST_ID} that are allowed", text.len()));
        }
    }
    Ok(())
}

/// Checks the agent of a fiber.
fn check_agent(exec: &Executor, agent: Option<&AgentId>) -> Result<(), String> {
    match agent {
        Some(agent) if exec.runtime.claims_as().is_some() && !exec.agents.knows(&agent.class) => {
            Err(format!("agent class `{}` is not registered: add it with `.agent::<..>(..)` before `.open()`", agent.class))
        }
        Some(agent) => check_name(&agent.name).map_err(|why| format!("the name of its agent {why}")),
        None => Ok(()),
    }
}

/// Stores a fiber and runs it, or returns the one that has its id or key.
///
/// The task that runs the fiber also stores it, so a dropped caller leaves nothing half done.
async fn accept(exec: &Arc<Executor>, new: NewFiber, run: Option<RunAccepted>) -> Result<Option<There>> {
    let (tell, told) = oneshot::channel();
    let of_task = Arc::clone(exec);
    exec.runtime.start(async move {
        let (id, name, agent) = (new.id.clone(), new.name.clone(), new.agent.clone());
        let spawn = of_task.runtime.active.announce_spawn(&id);
        let claim = match of_task.runtime.store.accept(new).await {
            Ok(AcceptResult::Created(claim)) => claim,
            Ok(AcceptResult::Existing(row)) => {
                drop(spawn);
                adopt_found(&of_task, &row);
                return drop(tell.send(Ok(Some(There::Stored(row)))));
            }
            Ok(AcceptResult::Deleted(past)) => return drop(tell.send(Ok(Some(There::Past(past))))),
            Err(error) => {
                // Not before it is over: the fiber found may be this one.
                drop(spawn);
                if error.kind() == ErrorKind::OutcomeUnknown {
                    adopt(&of_task, id);
                }
                return drop(tell.send(Err(error)));
            }
        };
        let Some(run) = run else {
            drop(spawn);
            of_task.runtime.tell(&id, &name, || EventKind::Spawned);
            return drop(tell.send(Ok(None)));
        };
        let alive = of_task.runtime.active.activate_new(&id, &name).await;
        drop(spawn);
        of_task.runtime.tell(&id, &name, || EventKind::Spawned);
        drop(tell.send(Ok(None)));
        run(claim, agent, alive).await;
    })?;
    told.await.unwrap_or_else(|_| Err(Error::closed()))
}

/// Checks that a spawn that found `there` meant it.
fn joins(there: &There, name: &str, args: &str, known: Option<&Known>, id: Option<&str>, key: Option<&str>) -> Result<(), String> {
    let what = match (id, key) {
        (Some(id), _) if id == there.id() => format!("id `{id}`"),
        (_, Some(key)) => format!("key `{key}`"),
        _ => format!("id `{}`", there.id()),
    };
    if there.name() != name {
        return Err(format!("{what} belongs to a fiber `{}`", there.name()));
    }
    if let Some(id) = id.filter(|id| *id != there.id()) {
        return Err(format!("{what} belongs to the fiber with id `{}`, not `{id}`", there.id()));
    }
    if let Some(key) = key.filter(|key| Some(*key) != there.key()) {
        return Err(match there.key() {
            Some(other) => format!("{what} belongs to the fiber with key `{other}`, not `{key}`"),
            None => format!("{what} belongs to a fiber without a key, not `{key}`"),
        });
    }
    if !there.has_arguments(args, known) {
        return Err(format!("{what} belongs to a fiber `{name}` with other arguments"));
    }
    Ok(())
}

impl<F: Fiber> IntoFuture for Spawn<F> {
    type Output = Result<FiberHandle<F::Output>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.start())
    }
}

/// Handle of a stored fiber, by key.
pub(crate) async fn by_key<F: Fiber>(link: &Link<Runtime>, key: &str) -> Result<FiberHandle<F::Output>> {
    let runtime = link.get()?;
    let name = F::MACHINE.name;
    let there = match runtime.store.find(FiberRef::Key(key.to_owned())).await? {
        Some(row) => There::Stored(Box::new(row)),
        None => match runtime.store.tombstone(FiberRef::Key(key.to_owned())).await? {
            Some(past) => There::Past(Box::new(past)),
            None => return Err(Error::new(ErrorKind::NotFound, format!("there is no fiber with key `{key}`"))),
        },
    };
    if there.name() != name {
        return Err(Error::new(ErrorKind::Conflict, format!("key `{key}` belongs to a fiber `{}`, not `{name}`", there.name())));
    }
    Ok(FiberHandle::new(link.clone(), there.id(), name, false))
}
