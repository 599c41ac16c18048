//! What all fibers of one runtime share, and what owns it.
use std::any::Any;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use tracing::error;

use crate::clock;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::runtime::active::ActiveFibers;
use crate::runtime::cluster::Watchers;
use crate::runtime::database::Database;
use crate::runtime::events::{Event, EventKind, Listeners};
use crate::runtime::exits::ExitListener;
use crate::runtime::race::race;
use crate::runtime::settings::Settings;
use crate::runtime::sync::{Handle, JoinSet, Mutex, MutexGuard, sleep, watch};
use crate::runtime::timer::Timer;
use crate::runtime::type_checks::Kinds;
use crate::secret::shown;
use crate::store::sqlite::Ownership;
use crate::store::{LayoutRow, Store, WorkerId};

/// One open runtime. Tasks hold it; it does not keep them alive.
#[derive(Debug)]
pub(crate) struct Runtime {
    pub(crate) store: Arc<dyn Store>,
    /// The same store, for what only that of one database can do.
    pub(crate) database: Database,
    /// The owner of this runtime's claims.
    pub(crate) worker: WorkerId,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) active: Arc<ActiveFibers>,
    pub(crate) timer: Timer,
    pub(crate) settings: Settings,
    pub(crate) listeners: Listeners,
    pub(crate) exits: ExitListener,
    /// What waits for changes of other workers.
    pub(crate) watchers: Watchers,
    /// What functions receive on their topics.
    pub(crate) topics: Kinds,
    /// What their effects give.
    pub(crate) results: Kinds,
    functions: OnceLock<Box<dyn Functions>>,
    async_handle: Handle,
    tasks: Mutex<JoinSet<()>>,
    /// Whether tasks are dropped where they are.
    aborts: AtomicBool,
    closing: watch::Sender<bool>,
    /// Held while the runtime is closed.
    store_close: tokio::sync::Mutex<StoreClose>,
}

/// The close of the store.
#[derive(Debug, Default)]
struct StoreClose {
    task: JoinSet<Result<()>>,
    is_done: bool,
}

/// What a runtime has to know of the registered functions, by their stored names.
pub(crate) trait Functions: fmt::Debug + Send + Sync {
    /// Whether it receives on a topic; `Err` is why not.
    fn check_topic(&self, name: &str, topic: &str) -> Result<(), String>;

    /// Whether code of this layout may receive on a topic.
    fn takes(&self, layout: &LayoutRow, topic: &str) -> bool;

    /// The wait whose locals a cut point stores; `None` if that is no such cut point.
    fn wait_of(&self, name: &str, at: &str) -> Option<&'static str>;
}

/// What a runtime is made of, for [`Runtime::new`].
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) database: Database,
    pub(crate) worker: WorkerId,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) listeners: Listeners,
    pub(crate) settings: Settings,
}

impl Runtime {
    /// Waits before what has failed so many times in a row is tried again.
    pub(crate) fn pause_after(&self, failed: u32) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.clock.sleep(self.settings.timings.pause_after(failed))
    }

    pub(crate) fn new(parts: Parts, async_handle: Handle) -> Self {
        let Parts { store, database, worker, clock, listeners, settings } = parts;
        Runtime {
            store,
            database,
            worker,
            clock,
            timer: Timer::default(),
            settings,
            active: Arc::default(),
            listeners,
            exits: ExitListener::default(),
            watchers: Watchers::default(),
            topics: Kinds::default(),
            results: Kinds::default(),
            functions: OnceLock::new(),
            async_handle,
            tasks: Mutex::default(),
            aborts: AtomicBool::new(false),
            closing: watch::Sender::new(false),
            store_close: tokio::sync::Mutex::default(),
        }
    }

    pub(crate) fn now_ms(&self) -> i64 {
        let now_ms = clock::ms(self.clock.now());
        self.timer.saw(now_ms);
        now_ms
    }

    /// Logs that a fiber needs a person, with what there is to do.
    pub(crate) fn log_stopped(fiber: &str, name: &str, exit: &'static str, reason: &str) {
        let remedy = match exit {
            "failed" => "fix the cause, then resume it from its last checkpoint or restart it",
            _ if reason.contains("may have executed") => "find out whether the operation was carried out, then resolve it by its id",
            _ => "deploy code that fits what is stored, or resolve the fiber",
        };
        let reason = shown(reason);
        error!(fiber.id = fiber, fiber.name = name, reason, remedy, "fiber {exit}");
    }

    /// Whether a function receives on a topic; `Err` is why not, and functions that this process
    /// does not know may.
    pub(crate) fn check_topic(&self, name: &str, topic: &str) -> Result<(), String> {
        self.functions.get().map_or(Ok(()), |functions| functions.check_topic(name, topic))
    }

    /// Whether code of this layout may receive on a topic.
    pub(crate) fn takes(&self, layout: &LayoutRow, topic: &str) -> bool {
        self.functions.get().is_none_or(|functions| functions.takes(layout, topic))
    }

    /// The wait whose locals a cut point of a function stores, as its source names it.
    pub(crate) fn wait_of(&self, name: &str, at: &str) -> Option<&'static str> {
        self.functions.get()?.wait_of(name, at)
    }

    /// Names the registered functions. A runtime has one registry.
    pub(crate) fn register(&self, functions: impl Functions + 'static) {
        let _ = self.functions.set(Box::new(functions));
    }

    /// Sends an event to all listeners.
    pub(crate) fn tell(&self, fiber: &str, name: &str, what: impl FnOnce() -> EventKind) {
        self.listeners.tell(|| Event { fiber: fiber.into(), name: name.into(), time: self.clock.now(), kind: what() });
    }

    /// The worker that this runtime claims fibers as; `None` if it runs nothing.
    pub(crate) fn claims_as(&self) -> Option<WorkerId> {
        (self.worker > 0).then_some(self.worker)
    }

    pub(crate) fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }

    /// Ready when the runtime begins to close.
    pub(crate) async fn closing(&self) {
        // The sender is in `self`, so the wait cannot fail.
        let _ = self.closing.subscribe().wait_for(|closing| *closing).await;
    }

    /// Runs a task that ends with the runtime at the latest.
    pub(crate) fn start(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) -> Result<()> {
        self.start_unless(|_| self.is_closing(), task)
    }

    /// Runs what another task brings about. A runtime that is closing waits for it as well.
    pub(crate) fn start_beside(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) -> Result<()> {
        self.start_unless(|tasks| self.aborts.load(Ordering::Acquire) || self.is_closing() && tasks.is_empty(), task)
    }

    fn start_unless(
        self: &Arc<Self>,
        is_refused: impl FnOnce(&JoinSet<()>) -> bool,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Result<()> {
        let mut tasks = self.tasks();
        if is_refused(&tasks) {
            return Err(Error::closed());
        }
        let ownership = self.database.ownership();
        let task = Task { work: task, ownership, held: None, runtime: Arc::clone(self) };
        tasks.spawn_on(task, &self.async_handle);
        Ok(())
    }

    /// Frees what is kept of tasks that have ended, so that many of them leave nothing behind.
    fn forget_ended(&self) {
        // The holder of the lock starts tasks or closes; the next task to end makes up for it.
        if let Ok(mut tasks) = self.tasks.try_lock() {
            while tasks.try_join_next().is_some() {}
        }
    }

    /// Lets what runs come to its next checkpoint, drops what has not after `deadline`, and closes
    /// the store. Where the caller is dropped meanwhile, what runs goes on, and the next call waits
    /// for it.
    pub(crate) async fn close(&self, deadline: Duration) -> Result<()> {
        let mut store = self.store_close.lock().await;
        if store.is_done {
            return Ok(());
        }
        {
            let _no_task_begins = self.tasks();
            self.closing.send_replace(true);
        }
        self.active.close();
        if race(self.drained(), self.clock.sleep(deadline)).await.is_none() {
            self.aborts.store(true, Ordering::Release);
            self.tasks().abort_all();
            race(self.drained(), sleep(self.settings.timings.drop)).await;
        }
        self.listeners.close();
        if store.task.is_empty() {
            // A task, since a store is closed once.
            let (closing, worker, now_ms) = (Arc::clone(&self.store), self.worker, self.now_ms());
            store.task.spawn_on(async move { closing.close(worker, now_ms).await }, &self.async_handle);
        }
        let stored = poll_fn(|cx| store.task.poll_join_next(cx)).await;
        store.is_done = true;
        stored.map_or(Ok(()), |stored| stored.unwrap_or_else(|_| Err(Error::closed())))
    }

    /// Stops as a process does that is killed: tasks are dropped where they are, and the database
    /// is let go of.
    pub(crate) fn die(&self) {
        self.closing.send_replace(true);
        self.active.close();
        self.listeners.close();
        self.aborts.store(true, Ordering::Release);
        self.tasks().abort_all();
        self.store.abandon();
    }

    /// The same whether there are handles; ready when the last of its tasks is gone.
    #[cfg(feature = "testing")]
    pub(crate) async fn died(&self) {
        self.die();
        self.store_close.lock().await.task.abort_all();
        self.drained().await;
    }

    /// Ready when no task is left.
    async fn drained(&self) {
        while poll_fn(|cx| self.tasks().poll_join_next(cx)).await.is_some() {}
    }

    fn tasks(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// Written as types, since an `async` block that pins what it has captured holds it twice, and every
// fiber in memory is made of these.
pin_project! {
    /// A task of the runtime, which holds the database while it is polled.
    struct Task<F> {
        #[pin]
        work: F,
        // None for a store of the program's.
        ownership: Option<Ownership>,
        // Dropped after the work.
        held: Option<Arc<dyn Any + Send + Sync>>,
        runtime: Arc<Runtime>,
    }
}

impl<F: Future<Output = ()>> Future for Task<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        #[cfg(feature = "testing")]
        if let Some(gate) = &this.runtime.settings.gate
            && gate.poll_open(cx).is_pending()
        {
            return Poll::Pending;
        }
        // The database is another's at the earliest when no task is being polled and none will be.
        let held = match this.ownership.as_ref().map(Ownership::hold) {
            Some(None) => return Poll::Pending,
            Some(held) => held,
            None => None,
        };
        let polled = this.work.poll(cx);
        if polled.is_ready() {
            this.runtime.forget_ended();
        } else if this.runtime.aborts.load(Ordering::Acquire) {
            // It is dropped next, and its values with it.
            *this.held = held;
        }
        polled
    }
}
