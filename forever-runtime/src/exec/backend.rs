//! Backend of a running fiber: stores its checkpoints, and answers its requests from the store.
use std::any::TypeId;
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::OwnedSemaphorePermit;
use tracing::debug;

use crate::error::{Error, ErrorKind, Result};
use crate::exec::activation::FiberTask;
use crate::exec::adoption;
use crate::exec::entry_order::Standing;
use crate::exec::executor::Executor;
use crate::exec::lease::{EarlierLease, LeaseNumber};
use crate::exec::registry::Known;
use crate::frame::backend::{Checkpoint, RunBackend};
use crate::frame::locals::OnRenamedField;
use crate::future::BoxFuture;
use crate::history::Recorder;
use crate::ops::ledger::Ledger;
use crate::ops::stored_ledger::StoredLedger;
use crate::runtime::active::{ActiveGuard, Control};
use crate::runtime::detached::detached;
use crate::runtime::events::EventKind;
use crate::runtime::exit::Exit;
use crate::runtime::fence::Fence;
use crate::runtime::link::Link;
#[cfg(feature = "metrics")]
use crate::runtime::metrics;
use crate::runtime::race::race;
use crate::runtime::state::Runtime;
use crate::runtime::type_checks::Check;
use crate::secret::are_secret;
use crate::store::{AgentId, BranchResult, Claim, FiberRef, LayoutRow, NewFiber, NewSnapshot, StreamAppend, TopicPage};

/// The store, as one running fiber uses it.
pub(super) struct StoreBackend {
    exec: Arc<Executor>,
    known: Arc<Known>,
    id: Arc<str>,
    agent: Option<AgentId>,
    control: Weak<Control>,
    /// The layouts of the stored snapshot, where they are known.
    layouts_stored: Mutex<Option<Vec<Arc<LayoutRow>>>>,
    /// Whether the run is to stop although its fiber is not.
    told_to_stop: AtomicBool,
    /// Whether this run has made a checkpoint.
    pub(super) progress: AtomicBool,
    ledger: StoredLedger,
    /// On the heap: most fibers have none.
    history: Option<Box<Mutex<Recorder>>>,
    /// Held by a suspect until it has made progress.
    suspect: Mutex<Option<OwnedSemaphorePermit>>,
    /// Held until the fiber has made progress.
    standing: Mutex<Option<Standing>>,
    /// The lease of a worker that the fiber was taken over from.
    earlier_lease: OnceLock<EarlierLease>,
}

impl StoreBackend {
    pub(super) fn new(
        exec: &Arc<Executor>,
        known: &Arc<Known>,
        claim: Claim,
        alive: &ActiveGuard,
        agent: Option<AgentId>,
        same_layout: bool,
    ) -> Self {
        // For a snapshot with a call under way, the layouts of the callees are not compared.
        let layouts_stored = same_layout.then(|| vec![Arc::clone(known.row())]);
        StoreBackend {
            exec: Arc::clone(exec),
            known: Arc::clone(known),
            id: alive.id.as_str().into(),
            agent,
            control: Arc::downgrade(&alive.control),
            layouts_stored: Mutex::new(layouts_stored),
            told_to_stop: AtomicBool::new(false),
            progress: AtomicBool::new(false),
            ledger: StoredLedger::new(&exec.runtime, claim, Some(&alive.control)),
            history: exec
                .runtime
                .settings
                .history
                .recorder(&known.row().hash, exec.runtime.now_ms())
                .map(|recorder| Box::new(Mutex::new(recorder))),
            suspect: Mutex::new(None),
            standing: Mutex::new(None),
            earlier_lease: OnceLock::new(),
        }
    }

    /// The recorder of the fiber's history, unless none is kept.
    pub(super) fn history(&self) -> Option<MutexGuard<'_, Recorder>> {
        self.history.as_ref().map(|history| history.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn claim(&self) -> Claim {
        self.ledger.fence().claim()
    }

    /// Keeps other suspects, and fibers with more deaths, from starting until this fiber has made
    /// progress.
    pub(super) fn hold_until_progress(&self, suspect: Option<OwnedSemaphorePermit>, standing: Option<Standing>) {
        *self.suspect.lock().unwrap_or_else(PoisonError::into_inner) = suspect;
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner) = standing;
    }

    /// Sets the lease of the worker before, of which so much was left at the claim.
    pub(super) fn set_earlier_lease(&self, left_ms: Option<i64>) {
        if let Some(lease) = EarlierLease::of(&self.exec.runtime, left_ms) {
            // It is set once.
            let _ = self.earlier_lease.set(lease);
        }
    }

    /// Drives a run. A suspect that neither makes a checkpoint nor ends keeps the others waiting
    /// for a limited time.
    pub(super) async fn let_others_in<T>(&self, driven: impl Future<Output = T>) -> T {
        let mut driven = std::pin::pin!(driven);
        let suspected = self.suspect.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if suspected {
            if let Some(ended) = race(driven.as_mut(), self.exec.runtime.clock.sleep(self.exec.runtime.settings.timings.suspect)).await {
                return ended;
            }
            self.suspect.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
        driven.await
    }

    fn name(&self) -> &'static str {
        self.known.machine.name
    }

    /// Stores a checkpoint that creates children, and starts them. They are claimed with the
    /// commit, so they are started even if this activation is dropped right after it.
    fn commit_with_children(&self, new: NewSnapshot, children: Vec<Child>) -> impl Future<Output = Result<()>> + Send + use<> {
        let (exec, claim, agent, parent) = (Arc::clone(&self.exec), self.claim(), self.agent.clone(), self.control.clone());
        let of_work = Arc::clone(&exec);
        let lease = LeaseNumber::of(&exec.runtime);
        let work = async move {
            let stored = of_work.runtime.store.checkpoint(claim, new).await.inspect_err(|error| {
                if error.kind() == ErrorKind::OutcomeUnknown {
                    for child in &children {
                        adoption::adopt(&of_work, child.id.clone());
                    }
                }
            });
            for (claim, child) in stored?.into_iter().zip(children) {
                start_child(&of_work, (claim, lease), child, agent.clone(), &parent).await;
            }
            Ok(())
        };
        async move { detached(&exec.runtime, work).await }
    }

    /// The layouts of all functions on the call stack, unless the stored snapshot has them.
    fn layouts_to_store(&self, callees: &[Arc<LayoutRow>]) -> Option<Vec<Arc<LayoutRow>>> {
        let stack = || std::iter::once(self.known.row()).chain(callees);
        let stored = self.layouts_stored.lock().unwrap_or_else(PoisonError::into_inner);
        let same = stored.as_ref().is_some_and(|stored| stored.iter().map(|row| &row.hash).eq(stack().map(|row| &row.hash)));
        (!same).then(|| stack().cloned().collect())
    }

    /// Waits until a checkpoint is stored, and reports it.
    async fn pass<T>(&self, stored: impl Future<Output = Result<T>>, passed: Passed) -> Result<()> {
        #[cfg(feature = "metrics")]
        let begun = self.exec.runtime.clock.now();
        self.ledger.fence().guard(stored).await?;
        #[cfg(feature = "metrics")]
        metrics::stored(self.exec.runtime.clock.now().duration_since(begun).unwrap_or_default());
        let Passed { at, number, is_step, bytes, stack, has_sent } = passed;
        if stack.is_some() {
            *self.layouts_stored.lock().unwrap_or_else(PoisonError::into_inner) = stack;
        }
        if has_sent {
            self.exec.runtime.active.items_stored(&self.id);
        }
        self.progressed();
        debug!(at, number, bytes, "checkpoint");
        if is_step {
            self.tell(EventKind::StepFinished { step: at.into(), checkpoint: number });
        }
        if self.is_told_to_stop() { Err(Exit::told_to_stop()) } else { Ok(()) }
    }
}

/// A completed checkpoint, for logs and events.
struct Passed {
    at: &'static str,
    number: u64,
    /// Whether a cut point is passed, or what it needs is stored.
    is_step: bool,
    bytes: usize,
    /// The layouts that are stored with it.
    stack: Option<Vec<Arc<LayoutRow>>>,
    /// Whether it has items of streams.
    has_sent: bool,
}

/// Data to start a child once it is stored.
struct Child {
    id: String,
    known: Arc<Known>,
    call: Box<dyn std::any::Any + Send>,
    is_secret: bool,
}

/// Starts a child that is stored, under the claim of its creation.
async fn start_child(exec: &Arc<Executor>, claim: (Claim, LeaseNumber), child: Child, agent: Option<AgentId>, parent: &Weak<Control>) {
    let Child { id, known, call, is_secret } = child;
    let name = known.machine.name;
    exec.runtime.tell(&id, name, || EventKind::Spawned);
    let alive = exec.runtime.active.activate_new(&id, name).await;
    if let Some(reason) = parent.upgrade().and_then(|control| control.reason()) {
        // A command that cancelled its parent right after the child was stored did not find it in
        // memory.
        alive.control.cancel(&reason);
    }
    // A runtime that is closing leaves it for the next one.
    let _ = exec.runtime.start(FiberTask::begin(Arc::clone(exec), known, claim, agent, alive, (call, is_secret)));
}

impl RunBackend for StoreBackend {
    fn link(&self) -> Link<Runtime> {
        Link::from(&self.exec.runtime)
    }

    fn fence(&self) -> Option<Arc<Fence>> {
        Some(Arc::clone(self.ledger.fence()))
    }

    fn now_ms(&self) -> i64 {
        self.exec.runtime.now_ms()
    }

    fn listen(&self, fibers: &[String]) -> Option<BoxFuture<'static, ()>> {
        let message = self.control.upgrade()?.message();
        let mut ends: FuturesUnordered<_> = fibers.iter().map(|id| self.exec.runtime.active.changed(id)).collect();
        Some(Box::pin(async move {
            let end = async {
                if ends.next().await.is_none() {
                    std::future::pending::<()>().await;
                }
            };
            race(message, end).await;
        }))
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.exec.runtime.clock.sleep(duration)
    }

    fn sleep_towards(&self, left: Duration) -> BoxFuture<'static, ()> {
        self.exec.runtime.clock.sleep_towards(left)
    }

    fn tell(&self, what: EventKind) {
        if let (EventKind::StepRetried { failed, error, .. }, Some(mut history)) = (&what, self.history()) {
            history.attempt_failed(*failed, error);
        }
        let step = match &what {
            EventKind::StepStarted { step: Cow::Borrowed(step) } => Some(Some((*step, self.exec.runtime.clock.now()))),
            EventKind::StepFinished { .. } => Some(None),
            _ => None,
        };
        if let (Some(step), Some(control)) = (step, self.control.upgrade()) {
            let before = control.set_step(step);
            #[cfg(feature = "metrics")]
            if let (None, Some((name, began))) = (step, before) {
                metrics::step(self.name(), name, self.exec.runtime.clock.now().duration_since(began).unwrap_or_default());
            }
            #[cfg(not(feature = "metrics"))]
            let _ = before;
        }
        self.exec.runtime.tell(&self.id, self.name(), || what);
    }

    fn commit(&self, checkpoint: Checkpoint) -> BoxFuture<'_, Result<(), Error>> {
        let layouts = self.layouts_to_store(&checkpoint.callees);
        let stack = layouts.clone();
        let (at, number, replaces) = (checkpoint.at, checkpoint.number, checkpoint.replaces);
        let bytes = checkpoint.snapshot.len() + checkpoint.delta.bytes() + checkpoint.streams.bytes();
        let mut outbox = checkpoint.outbox;
        let mut children = Vec::new();
        let mut to_start = Vec::new();
        for (new, call) in std::mem::take(&mut outbox.children) {
            if let Some(known) = self.exec.registry.get(&new.name) {
                to_start.push(Child { id: new.id.clone(), known, call, is_secret: are_secret(&new.args) });
                children.push(new);
            }
        }
        let now_ms = self.exec.runtime.now_ms();
        let recorded = self
            .history()
            .filter(|_| !replaces)
            .map(|mut history| history.record(number, at, &checkpoint.snapshot, &checkpoint.delta, self.claim().epoch, now_ms));
        let mut streams = checkpoint.streams;
        let has_sent = !streams.appended.is_empty();
        streams.appended.extend(recorded);
        let new = NewSnapshot {
            number,
            replaces,
            at,
            data: checkpoint.snapshot,
            now_ms,
            layouts,
            ops: checkpoint.ops,
            delta: checkpoint.delta,
            streams,
            received: outbox.received,
            closed: outbox.closed,
            joined: outbox.joined,
            children,
        };
        let passed = Passed { at, number, is_step: !replaces, bytes, stack, has_sent };
        if to_start.is_empty() {
            // The store's future is made here, so that the snapshot is not moved into this one.
            Box::pin(self.pass(self.exec.runtime.store.checkpoint(self.claim(), new), passed))
        } else {
            Box::pin(self.pass(self.commit_with_children(new, to_start), passed))
        }
    }

    fn topic<'a>(&'a self, topic: &'a str, after: i64, limit: u32) -> BoxFuture<'a, Result<TopicPage, Error>> {
        self.exec.runtime.store.topic(self.claim().fiber, topic.to_owned(), after, limit)
    }

    fn takes(&self, topic: &'static str, check: Check) {
        self.exec.runtime.topics.takes(self.name(), topic, check);
    }

    fn gives(&self, function: &'static str, step: &'static str, check: Check) {
        self.exec.runtime.results.takes(function, step, check);
    }

    fn ended<'a>(&'a self, fiber: &'a str) -> BoxFuture<'a, Result<Option<Exit>, Error>> {
        Box::pin(async move {
            let row = self.exec.runtime.store.find(FiberRef::Id(fiber.to_owned())).await?;
            Ok(row.map_or(Some(Exit::NotFound), |row| Exit::of_row(row.state, row.result, row.reason)))
        })
    }

    fn child(&self, name: &'static str, function: TypeId, args: String) -> Result<NewFiber, Error> {
        self.exec.registry.of_function(name, function)?;
        Ok(NewFiber {
            id: self.exec.runtime.clock.id(),
            name: name.to_owned(),
            key: None,
            id_given: false,
            closure: false,
            args,
            metadata: None,
            agent: self.agent.clone(),
            parent: Some(self.claim().fiber),
            worker: Some(self.exec.runtime.worker),
            now_ms: self.exec.runtime.now_ms(),
        })
    }

    fn save_branch(&self, number: u64, result: BranchResult, sent: Vec<StreamAppend>) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let (now_ms, has_sent) = (self.exec.runtime.now_ms(), !sent.is_empty());
            self.ledger.fence().guard(self.exec.runtime.store.save_branch(self.claim(), number, result, sent, now_ms)).await?;
            if has_sent {
                self.exec.runtime.active.items_stored(&self.id);
            }
            self.progressed();
            if self.is_told_to_stop() { Err(Exit::told_to_stop()) } else { Ok(()) }
        })
    }

    fn append(&self, sent: Vec<StreamAppend>) -> BoxFuture<'_, Result<(), Error>> {
        self.ledger.append_to_streams(&self.id, sent)
    }

    fn set_progress(&self, progress: &str) {
        self.ledger.set_progress(progress);
    }

    fn on_renamed_field(&self) -> OnRenamedField {
        self.exec.registry.on_renamed_field
    }

    fn earlier_lease_over(&self) -> BoxFuture<'_, Result<(), Error>> {
        EarlierLease::over(self.earlier_lease.get(), &self.exec.runtime)
    }

    fn ledger(&self) -> &dyn Ledger {
        &self.ledger
    }

    fn progressed(&self) {
        self.progress.store(true, Ordering::Relaxed);
        self.hold_until_progress(None, None);
    }

    fn tell_to_stop(&self) {
        self.told_to_stop.store(true, Ordering::Relaxed);
    }

    fn is_closing(&self) -> bool {
        self.exec.runtime.is_closing()
    }

    fn is_told_to_stop(&self) -> bool {
        self.told_to_stop.load(Ordering::Relaxed)
            || self.is_closing()
            || self.control.upgrade().is_some_and(|control| control.reason().is_some())
    }
}
