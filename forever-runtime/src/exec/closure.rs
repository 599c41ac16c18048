//! Closure fibers: any future as a fiber, which saves its progress explicitly.
//!
//! Only the row and the stash of a closure survive the process: on recovery the hook of its agent
//! decides.
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::{Instrument, info_span, warn};

use crate::error::{Error, ErrorKind, Result, chain};
use crate::exact;
use crate::exec::executor::Executor;
use crate::exec::lease::{LeaseNumber, while_leased};
use crate::exec::spawn::Given;
use crate::exec::{activation, spawn};
use crate::frame::backend::RunBackend;
use crate::frame::context::FiberContext;
use crate::frame::current::spawns_with_secret;
use crate::frame::fiber::{Failure, Value};
use crate::frame::poll::{Guarded, exit_of};
use crate::frame::run::Run;
use crate::frame::saved::{text_to_keep, unreadable};
use crate::frame::{current, poll};
use crate::future::BoxFuture;
use crate::ops::ledger::Ledger;
use crate::ops::stored_ledger::StoredLedger;
use crate::runtime::active::{ActiveGuard, RunState};
use crate::runtime::events::EventKind;
use crate::runtime::exit::Exit;
use crate::runtime::exits;
use crate::runtime::handle::{FiberError, FiberHandle};
use crate::runtime::link::Link;
use crate::runtime::race::race;
use crate::runtime::state::Runtime;
use crate::store::{AgentId, Claim, End, StreamAppend, Suspension};

/// Stores a stash of the current closure fiber, for code without its context.
///
/// See [`FiberContext::stash`].
///
/// # Errors
/// Outside a closure fiber; a task that it spawns is outside. Otherwise as [`FiberContext::stash`].
pub async fn stash<V: Serialize + ?Sized>(value: &V) -> Result<()> {
    let Some(run) = current::run() else {
        return Err(Error::new(ErrorKind::Setup, "`stash` can be used only in a fiber, and in its own task"));
    };
    stash_in(&run, value).await
}

async fn stash_in<V: Serialize + ?Sized>(run: &Run, value: &V) -> Result<()> {
    let text = text_to_keep(value).map_err(|why| Error::new(ErrorKind::Value, format!("the stash {why}")))?;
    // What was sent before it belongs to what it stands for.
    run.flush().await?;
    run.backend.stash(text).await
}

impl FiberContext {
    /// Stashes `value` for the recovery of this closure fiber, replacing the last one.
    ///
    /// It is durable when this returns.
    ///
    /// # Errors
    /// Of kind [`Value`](ErrorKind::Value) when `value` cannot be serialised exactly or takes more
    /// than 16 MiB; of kind [`Setup`](ErrorKind::Setup) in a `#[fiber]` function, which keeps its
    /// locals by itself; when the store fails.
    pub async fn stash<V: Serialize + ?Sized>(&self, value: &V) -> Result<()> {
        stash_in(&self.run, value).await
    }

    /// The last stash of this closure fiber; `None` if there is none.
    ///
    /// # Errors
    /// When it cannot be read as a `V`.
    pub fn stashed<V: DeserializeOwned>(&self) -> Result<Option<V>> {
        let Some(text) = self.run.backend.stashed() else { return Ok(None) };
        exact::from_str(&text).map(Some).map_err(|why| Error::new(ErrorKind::Value, format!("the stash {}", unreadable::<V>(why))))
    }
}

/// Closure fiber, run by `.await` or [`start`](SpawnClosure::start).
///
/// Made by [`Forever::spawn_closure`](crate::Forever::spawn_closure). `.await` gives its result, `start` its handle.
///
/// ```
/// # use forever_runtime as forever;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), forever::BoxError> {
/// # let forever = forever::Forever::builder().in_memory().open().await?;
/// let import = || {
///     let rows = async { Ok::<u64, forever::Error>(3) };
///     forever.spawn_closure("import", |_| rows).key("june")
/// };
/// assert_eq!(import().await?, 3);
/// // The same fiber, by its key: nothing runs again.
/// let handle = import().start().await?;
/// assert!(!handle.accepted());
/// # forever.close().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a fiber is run when this is awaited"]
pub struct SpawnClosure<C> {
    link: Link<Executor>,
    name: String,
    closure: C,
    given: Given,
}

impl<C> std::fmt::Debug for SpawnClosure<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpawnClosure")
            .field("name", &self.name)
            .field("id", &self.given.id)
            .field("key", &self.given.key)
            .finish_non_exhaustive()
    }
}

impl<C> SpawnClosure<C> {
    pub(crate) fn new(link: Link<Executor>, name: String, closure: C) -> Self {
        SpawnClosure { link, name, closure, given: Given::default() }
    }

    /// Sets the id of the fiber. Defaults to a generated one.
    ///
    /// If there is a fiber with this id, that one is joined.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.given.id = Some(id.into());
        self
    }

    /// Sets the idempotency key of the fiber, unique among all fibers of the database.
    ///
    /// If there is a fiber with this key, that one is joined, even if it has ended, and the closure
    /// does not run.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.given.key = Some(key.into());
        self
    }

    /// Stores metadata with the fiber, for people, lists and recovery hooks.
    pub fn metadata(mut self, value: impl Serialize) -> Self {
        self.given.metadata(&value);
        self
    }

    /// Makes it a fiber of an agent, whose hook decides after an interruption.
    pub fn agent(mut self, class: impl Into<String>, name: impl Into<String>) -> Self {
        self.given.agent = Some(AgentId { class: class.into(), name: name.into() });
        self
    }

    /// Stores the fiber, starts it, and returns its handle.
    ///
    /// # Errors
    /// When the name, id or key is empty or belongs to another fiber, the agent's class is not
    /// registered, the store fails, or the runtime is closed.
    pub async fn start<T, E, F>(self) -> Result<FiberHandle<T>>
    where
        C: FnOnce(FiberContext) -> F + Send + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: Value,
        E: Failure + 'static,
    {
        let SpawnClosure { link, name, closure, given } = self;
        if name.trim().is_empty() {
            let why = format!("failed to start fiber `{name}`: its name must not be empty or blank");
            return Err(Error::new(ErrorKind::Value, why));
        }
        let (exec, called) = (link.get()?, name.as_str().into());
        if exec.runtime.claims_as().is_none() {
            let why = format!("failed to start fiber `{name}`: its code is in this process, which runs nothing");
            return Err(Error::new(ErrorKind::Setup, why));
        }
        let lease = LeaseNumber::of(&exec.runtime);
        let is_secret = spawns_with_secret();
        let run: spawn::RunAccepted = Box::new(move |claim, agent, alive| {
            Box::pin(ClosureTask { exec, claim, lease, name: called, agent, alive, is_secret }.run(closure))
        });
        spawn::start(link, &name, true, Ok("{}".to_owned()), given, Some(run)).await.map(FiberHandle::of_type)
    }
}

impl<C, F, T, E> IntoFuture for SpawnClosure<C>
where
    C: FnOnce(FiberContext) -> F + Send + 'static,
    F: Future<Output = Result<T, E>> + Send + 'static,
    T: Value,
    E: Failure + 'static,
{
    type Output = Result<T, FiberError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let name = self.name.clone();
            let handle = self.start().await.map_err(|e| FiberError::not_started(&name, &e))?;
            handle.wait().await
        })
    }
}

/// The task of one closure fiber.
struct ClosureTask {
    exec: Arc<Executor>,
    claim: Claim,
    lease: LeaseNumber,
    name: Arc<str>,
    agent: Option<AgentId>,
    alive: ActiveGuard,
    is_secret: bool,
}

impl ClosureTask {
    async fn run<C, F, T, E>(self, closure: C)
    where
        C: FnOnce(FiberContext) -> F + Send,
        F: Future<Output = Result<T, E>> + Send,
        T: Value,
        E: Failure,
    {
        let _held = self.agent.as_ref().map(|agent| self.exec.agents.hold(&self.exec.runtime, agent));
        let backend = Arc::new(ClosureBackend {
            exec: Arc::clone(&self.exec),
            id: self.alive.id.as_str().into(),
            name: Arc::clone(&self.name),
            ledger: StoredLedger::new(&self.exec.runtime, self.claim, Some(&self.alive.control)),
            stash: std::sync::Mutex::default(),
        });
        let run = Run::first(&self.alive.id, Arc::clone(&backend) as Arc<dyn RunBackend>, self.is_secret);
        let ctx = FiberContext {
            id: self.alive.id.clone(),
            name: Arc::clone(&self.name),
            resuming: false,
            resources: self.exec.resources.clone(),
            clock: Arc::clone(&self.exec.runtime.clock),
            run: Arc::clone(&run),
            interrupted: false,
            handed_over: None,
            host: None,
        };
        self.exec.runtime.tell(&self.alive.id, &self.name, || EventKind::Started { resuming: false });
        let span = info_span!("fiber", fiber.id = %self.alive.id, fiber.name = %self.name, forever.resuming = false);
        let driven = Guarded::new(Box::pin(drive_closure(&run, ctx, closure))).instrument(span);
        let driven = while_leased(&self.exec.runtime, self.claim, self.lease, driven);
        let exit = activation::until_told(&self.exec, &self.alive, &run, driven).await;
        let exit = run.secrets.exit(exit);
        let end = match (self.alive.control.reason(), exit) {
            (_, Exit::ClaimLost) => return self.alive.away(),
            (Some(reason), _) => End::Cancelled(reason.to_string()),
            (None, Exit::Completed(text)) => End::Completed(text.to_string()),
            (None, Exit::Failed(why)) => End::Failed(why.to_string()),
            (None, Exit::Parked(why)) => return self.park(why.to_string()).await,
            // Dropped under way because the runtime is closing.
            (None, _) => return self.alive.stop(Exit::Closed),
        };
        self.keep(end, run.outputs.take()).await;
    }

    /// Parks a closure at an operation whose outcome is unknown.
    async fn park(self, why: String) {
        let reason: Arc<str> = why.as_str().into();
        // If the store fails, the fiber is found running at the next open, and is then interrupted
        // instead of parked.
        if let Ok(Some(end)) = self.exec.runtime.store.suspend(self.claim, Suspension::Parked(why), self.exec.runtime.now_ms()).await {
            let stop = exits::report(&self.exec.runtime, &self.alive.id, &self.name, self.agent.as_ref(), end.into());
            return self.alive.stop(stop);
        }
        Runtime::log_stopped(&self.alive.id, &self.name, "parked", &reason);
        self.exec.runtime.tell(&self.alive.id, &self.name, || EventKind::Parked { reason: Arc::clone(&reason) });
        self.alive.stop(Exit::Parked(reason));
    }

    /// Stores how the closure ended. It cannot run again, so this is retried until the store works
    /// or the runtime closes.
    async fn keep(self, end: End, sent: Vec<StreamAppend>) {
        let mut failed = 0;
        loop {
            let error =
                match self.exec.runtime.store.end(self.claim, end.clone(), Vec::new(), sent.clone(), self.exec.runtime.now_ms()).await {
                    Ok(end) => {
                        let stop = exits::report(&self.exec.runtime, &self.alive.id, &self.name, self.agent.as_ref(), end.into());
                        return self.alive.stop(stop);
                    }
                    Err(error) if error.is_claim_lost() => return self.alive.away(),
                    Err(error) if self.exec.runtime.is_closing() || error.is_closed() => return self.alive.stop(Exit::Closed),
                    Err(error) => error,
                };
            failed += 1;
            let text = chain(&error);
            warn!(fiber.id = %self.alive.id, error = %text, "the end of a fiber could not be stored");
            let _ = self.exec.runtime.store.suspend(self.claim, Suspension::Interrupted(text), self.exec.runtime.now_ms()).await;
            if failed > 1 {
                self.alive.set(RunState::Stopped(Exit::interrupted(error)));
            }
            if race(self.exec.runtime.closing(), self.exec.runtime.pause_after(failed)).await.is_some() {
                return self.alive.stop(Exit::Closed);
            }
        }
    }
}

/// Runs the closure to its end; a panic is a failure.
async fn drive_closure<C, F, T, E>(run: &Arc<Run>, ctx: FiberContext, closure: C) -> Exit
where
    C: FnOnce(FiberContext) -> F + Send,
    F: Future<Output = Result<T, E>> + Send,
    T: Value,
    E: Failure,
{
    let ended = poll::to_end(run, async move { closure(ctx).await }).await;
    exit_of(poll::counted(run, ended).map_err(Exit::from))
}

/// The store, as one closure fiber sees it.
struct ClosureBackend {
    exec: Arc<Executor>,
    id: Arc<str>,
    name: Arc<str>,
    ledger: StoredLedger,
    stash: std::sync::Mutex<Option<String>>,
}

impl RunBackend for ClosureBackend {
    fn link(&self) -> Link<Runtime> {
        Link::from(&self.exec.runtime)
    }

    fn now_ms(&self) -> i64 {
        self.exec.runtime.now_ms()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.exec.runtime.clock.sleep(duration)
    }

    fn stash(&self, data: String) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            self.ledger
                .fence()
                .guard(self.exec.runtime.store.stash(self.ledger.fence().claim(), data.clone(), self.exec.runtime.now_ms()))
                .await?;
            *self.stash.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(data);
            self.exec.runtime.tell(&self.id, &self.name, || EventKind::Stashed);
            Ok(())
        })
    }

    fn append(&self, sent: Vec<StreamAppend>) -> BoxFuture<'_, Result<(), Error>> {
        self.ledger.append_to_streams(&self.id, sent)
    }

    fn set_progress(&self, progress: &str) {
        self.ledger.set_progress(progress);
    }

    fn stashed(&self) -> Option<String> {
        self.stash.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    fn ledger(&self) -> &dyn Ledger {
        &self.ledger
    }

    fn resumes(&self) -> bool {
        false
    }

    fn is_closing(&self) -> bool {
        self.exec.runtime.is_closing()
    }

    fn is_told_to_stop(&self) -> bool {
        self.is_closing()
    }
}
