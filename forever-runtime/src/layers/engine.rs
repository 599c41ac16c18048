//! The runtime with its executor, as a layer above uses it.
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::exec::dispatch;
use crate::exec::executor::Executor;
use crate::exec::slots::Slot;
use crate::frame::current;
use crate::frame::fiber::Fiber;
use crate::frame::resources::Res;
use crate::frame::saved::ReturnValue;
use crate::future::BoxFuture;
use crate::runtime::cluster::Watcher;
use crate::runtime::detached::detached;
use crate::runtime::exit::Exit;
use crate::runtime::handle::{FiberError, FiberHandle};
use crate::runtime::link::Link;
use crate::runtime::timer::{Alarm, Ring};
use crate::store::{Changes, Runnable, Store, Watch};

/// An open runtime with its executor. A clone is the same runtime.
#[derive(Debug, Clone)]
pub struct Engine(pub(super) Arc<Executor>);

impl Engine {
    pub(crate) fn new(exec: Arc<Executor>) -> Self {
        Engine(exec)
    }

    /// The store.
    pub fn store(&self) -> &dyn Store {
        &*self.0.runtime.store
    }

    /// The clock.
    pub fn clock(&self) -> &dyn Clock {
        &*self.0.runtime.clock
    }

    /// Time of the clock, in milliseconds since 1970, UTC.
    pub fn now_ms(&self) -> i64 {
        self.0.runtime.now_ms()
    }

    /// Whether the runtime has begun to close.
    pub fn is_closing(&self) -> bool {
        self.0.runtime.is_closing()
    }

    /// Ready when the runtime begins to close. Code of a fiber that waits for it has seen it then.
    pub async fn closing(&self) {
        self.0.runtime.closing().await;
        current::sees_closing();
    }

    /// Runs a task that ends with the runtime at the latest.
    ///
    /// # Errors
    /// When the runtime is closing.
    pub fn start(&self, task: impl Future<Output = ()> + Send + 'static) -> Result<()> {
        self.0.runtime.start(task)
    }

    /// Runs `work` to its end in a task of the runtime, whether or not the caller waits for it.
    ///
    /// # Errors
    /// Those of `work`, or when the runtime is closed.
    pub async fn detached<T: Send + 'static>(&self, work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
        detached(&self.0.runtime, work).await
    }

    /// A resource of the program.
    pub fn resource<T: Send + Sync + 'static>(&self) -> Option<Res<T>> {
        self.0.resources.get()
    }

    /// The state of a layer, if it is registered.
    pub fn layer<T: Slot>(&self) -> Option<Arc<T>> {
        self.0.registry.layers.get()
    }

    /// Grace of a cancelled fiber before it is dropped where it is.
    pub fn cancel_grace(&self) -> Duration {
        self.0.runtime.settings.cancel_grace
    }

    /// Longest run of a recovery hook.
    pub fn hook_timeout(&self) -> Duration {
        self.0.runtime.settings.hook_timeout
    }

    /// How long failed fibers are kept, if not for ever.
    pub fn keeps_failed(&self) -> Option<Duration> {
        self.0.runtime.settings.retention.failed
    }

    /// Fails if a function is not registered.
    ///
    /// # Errors
    /// Of kind [`NotRegistered`](crate::ErrorKind::NotRegistered).
    pub fn check_registered<F: Fiber>(&self) -> Result<()> {
        self.0.registry.of::<F>().map(drop)
    }

    /// Starts a fiber that was stored as ready.
    pub fn dispatch(&self, fiber: &Runnable) {
        dispatch::start(&self.0, fiber, None);
    }

    /// Sets the alarm of the fibers that wait for a time, after such times were changed.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn set_wait_alarm(&self) -> Result<()> {
        dispatch::set_alarm(&self.0.runtime).await
    }

    /// The result of a fiber that has ended with `exit`.
    ///
    /// # Errors
    /// When it has not completed, or its result cannot be read.
    pub fn result_of<T: ReturnValue>(&self, id: &str, name: &str, exit: Exit) -> Result<T, FiberError> {
        self.handle(id, name).exited(exit)
    }

    fn handle<T>(&self, id: &str, name: &str) -> FiberHandle<T> {
        FiberHandle::new(Link::from(&self.0.runtime), id, name, false)
    }

    /// Registers the action of the alarm of this name.
    pub fn on_alarm(&self, what: &'static str, action: impl Fn(Engine) -> BoxFuture<'static, ()> + Send + Sync + 'static) {
        self.0.runtime.timer.on(what, self.ring(action));
    }

    /// Registers an action for a clock that was set back.
    pub fn on_set_back(&self, action: impl Fn(Engine) -> BoxFuture<'static, ()> + Send + Sync + 'static) {
        self.0.runtime.timer.on_set_back(self.ring(action));
    }

    fn ring(&self, action: impl Fn(Engine) -> BoxFuture<'static, ()> + Send + Sync + 'static) -> Ring {
        let engine = self.weak();
        Arc::new(move |_, _| {
            let Some(engine) = engine.upgrade() else { return Box::pin(async {}) };
            action(engine)
        })
    }

    /// Sets the alarm of this name, replacing its earlier time.
    pub fn set_alarm(&self, what: &'static str, at_ms: i64) {
        self.0.runtime.timer.set(Alarm::the(what), at_ms);
    }

    /// Takes in what other workers do, where several share the store.
    pub fn watch(&self, watcher: impl ClusterWatcher + 'static) {
        if self.0.runtime.cluster().is_some() {
            self.0.runtime.watchers.add(Arc::new(Watching(watcher)));
        }
    }

    /// A reference that does not keep the executor in memory.
    pub fn weak(&self) -> WeakEngine {
        WeakEngine(Arc::downgrade(&self.0))
    }
}

/// Why a function could not be started.
pub fn not_started(name: &str, error: &Error) -> FiberError {
    FiberError::not_started(name, error)
}

/// A reference to an [`Engine`] that does not keep it in memory.
#[derive(Debug, Clone)]
pub struct WeakEngine(Weak<Executor>);

impl WeakEngine {
    /// The engine, if it is still there.
    pub fn upgrade(&self) -> Option<Engine> {
        self.0.upgrade().map(Engine)
    }
}

/// Link of a handle to its runtime.
#[derive(Debug, Clone)]
pub struct EngineLink(Link<Executor>);

impl EngineLink {
    pub(crate) fn new(link: Link<Executor>) -> Self {
        EngineLink(link)
    }

    /// The runtime, if it is still there.
    ///
    /// # Errors
    /// Of kind [`Closed`](crate::ErrorKind::Closed).
    pub fn get(&self) -> Result<Engine> {
        self.0.get().map(Engine)
    }
}

/// Part of a layer that waits for what other workers do.
pub trait ClusterWatcher: Send + Sync {
    /// Adds the things that it waits for.
    fn watch(&self, watch: &mut Watch);

    /// Takes in what is stored of them.
    fn changed<'a>(&'a self, changes: &'a Changes) -> BoxFuture<'a, ()>;
}

struct Watching<W>(W);

impl<W: ClusterWatcher> Watcher for Watching<W> {
    fn watch(&self, watch: &mut Watch) {
        self.0.watch(watch);
    }

    fn changed<'a>(&'a self, changes: &'a Changes) -> BoxFuture<'a, ()> {
        self.0.changed(changes)
    }
}
