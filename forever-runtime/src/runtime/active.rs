//! The activations of this process, and how those who wait for a fiber hear of its end.
//!
//! A fiber is live from before its claim until its exit or suspension is stored.
//! [`ActiveFibers::activate`] gives at most one activation of a fiber at a time: a fiber that
//! becomes ready while an earlier activation is on its way out is noted, and dispatched when that
//! one has left. Fibers that are waited for have entries here too, so that a thousand waiters hear
//! of theirs and of no other.
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, Weak};
use std::time::SystemTime;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::runtime::exit::Exit;
use crate::runtime::sync::{Mutex, MutexGuard, watch};
use crate::store::{Epoch, ReadySender, Runnable};

/// Where a fiber stands, as far as this process knows.
#[derive(Debug, Clone)]
pub(crate) enum RunState {
    /// Not live: the store knows.
    Away,
    Running,
    /// Stopped with this exit. Callers that begin to wait later read the row: a command may have
    /// changed it since.
    Stopped(Exit),
}

/// What is known of one fiber, for as long as it is live or watched.
#[derive(Debug)]
pub(crate) struct Entry {
    live: Weak<ActiveFibers>,
    id: Arc<str>,
    phase: watch::Sender<RunState>,
    control: Mutex<Option<Arc<Control>>>,
    /// Spawns of this process that store the fiber now, and start it if they made it.
    spawns: AtomicUsize,
    /// Tells readers of its streams that items were stored.
    items: Notify,
}

/// Stop request of a live fiber.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) name: String,
    /// Whether its code may run under this guard; otherwise a recovery hook decides about it.
    activation: bool,
    /// Waits for messages in memory.
    receivers: AtomicUsize,
    /// The step under way, and when it began; of several side by side the last one to begin.
    step: Mutex<Option<(&'static str, SystemTime)>>,
    /// The progress that it has set, JSON.
    progress: Mutex<Option<Arc<str>>>,
    // One channel for all signals: each channel costs 300 bytes a fiber and a look at each poll.
    signals: watch::Sender<Signals>,
}

/// Stop signal of an activation.
#[derive(Debug, Default)]
struct Signals {
    /// The reason with which the fiber was asked to end.
    cancelled: Option<Arc<str>>,
    /// The fiber became ready while this activation was there.
    ready: Option<Box<Runnable>>,
    /// The store has refused a write of this activation.
    lost: bool,
    /// How many messages were sent to the fiber while this activation was there.
    messages: u64,
}

impl Control {
    fn new(name: &str, activation: bool) -> Self {
        let receivers = AtomicUsize::new(0);
        let (step, progress) = (Mutex::default(), Mutex::default());
        Control { name: name.to_owned(), activation, receivers, step, progress, signals: watch::Sender::default() }
    }

    /// Asks the fiber to end, with a reason.
    pub(crate) fn cancel(&self, reason: &str) {
        self.signals.send_if_modified(|signals| {
            let first = signals.cancelled.is_none();
            if first {
                signals.cancelled = Some(reason.into());
            }
            first
        });
    }

    /// Notes the step under way; returns the one that was.
    pub(crate) fn set_step(&self, step: Option<(&'static str, SystemTime)>) -> Option<(&'static str, SystemTime)> {
        std::mem::replace(&mut *self.step.lock().unwrap_or_else(PoisonError::into_inner), step)
    }

    /// Notes the progress, JSON.
    pub(crate) fn set_progress(&self, progress: &str) {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = Some(progress.into());
    }

    /// The reason with which it was asked to end.
    pub(crate) fn reason(&self) -> Option<Arc<str>> {
        self.signals.borrow().cancelled.clone()
    }

    /// A message was sent to the fiber.
    pub(crate) fn ring(&self) {
        self.signals.send_modify(|signals| signals.messages += 1);
    }

    /// Ready when a message is sent to the fiber after this call, or its activation is gone.
    pub(crate) fn message(self: &Arc<Self>) -> impl Future<Output = ()> + Send + use<> {
        let mut signals = self.signals.subscribe();
        let before = self.signals.borrow().messages;
        let waits = Receiving::new(Arc::downgrade(self));
        async move {
            drop(signals.wait_for(|signals| signals.messages > before).await);
            drop(waits);
        }
    }

    /// Whether its code waits for a message in memory.
    fn receives(&self) -> bool {
        self.receivers.load(Ordering::Acquire) > 0
    }

    /// The claim of this activation is lost: it stops at once.
    pub(crate) fn lose(&self) {
        self.signals.send_modify(|signals| signals.lost = true);
    }

    /// Ready when the claim is lost.
    pub(crate) async fn lost(&self) {
        self.until(|signals| signals.lost).await;
    }

    /// Ready when the fiber has become ready under the feet of this activation, or is asked to end.
    pub(crate) async fn made_ready_or_asked(&self) {
        self.until(|signals| signals.ready.is_some() || signals.cancelled.is_some()).await;
    }

    /// What had become ready by now is claimed by this activation itself, at this epoch.
    pub(crate) fn claimed(&self, epoch: Epoch) {
        self.signals.send_if_modified(|signals| {
            signals.ready.take_if(|ready| ready.epoch < epoch);
            false
        });
    }

    /// Ready when the fiber is asked to end.
    pub(crate) async fn asked(&self) {
        self.until(|signals| signals.cancelled.is_some()).await;
    }

    /// Ready when the activation is gone, and everything that it was made of with it.
    pub(crate) fn gone(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut signals = self.signals.subscribe();
        async move { while signals.changed().await.is_ok() {} }
    }

    async fn until(&self, holds: impl FnMut(&Signals) -> bool) {
        // The sender is in `self`, so the wait cannot fail.
        let _ = self.signals.subscribe().wait_for(holds).await;
    }

    fn make_ready(&self, fiber: &Runnable) {
        self.signals.send_if_modified(|signals| {
            // Notifications may come late.
            let is_newer = signals.ready.as_ref().is_none_or(|there| there.epoch <= fiber.epoch);
            if is_newer {
                signals.ready = Some(Box::new(fiber.clone()));
            }
            is_newer
        });
    }

    fn take_ready(&self) -> Option<Box<Runnable>> {
        let mut taken = None;
        self.signals.send_if_modified(|signals| {
            taken = signals.ready.take();
            false
        });
        taken
    }
}

/// A wait for a message in memory.
struct Receiving(Weak<Control>);

impl Receiving {
    fn new(control: Weak<Control>) -> Self {
        if let Some(control) = control.upgrade() {
            control.receivers.fetch_add(1, Ordering::AcqRel);
        }
        Receiving(control)
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        if let Some(control) = self.0.upgrade() {
            control.receivers.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Entry {
    pub(crate) fn watch(&self) -> watch::Receiver<RunState> {
        self.phase.subscribe()
    }

    /// Ready when items of its streams were stored after it was enabled.
    pub(crate) fn items_stored(&self) -> Notified<'_> {
        self.items.notified()
    }

    /// Name and stop signal of a live fiber; `None` if it is not live.
    pub(crate) fn control(&self) -> Option<Arc<Control>> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(live) = self.live.upgrade() {
            let mut fibers = live.fibers();
            if fibers.get(&self.id).is_some_and(|there| there.strong_count() == 0) {
                fibers.remove(&self.id);
            }
        }
    }
}

/// All live or watched fibers by id.
#[derive(Debug, Default)]
pub(crate) struct ActiveFibers {
    fibers: Mutex<HashMap<Arc<str>, Weak<Entry>>>,
    /// Fibers whose tasks were dropped under way, kept so that their waiters end.
    dropped: Mutex<Vec<Arc<Entry>>>,
    /// Told of fibers that have become ready while an activation of them was on its way out.
    ready: OnceLock<ReadySender>,
}

impl ActiveFibers {
    /// Names the receiver of fibers that are to be dispatched.
    pub(crate) fn on_ready(&self, ready: ReadySender) {
        // A runtime has one dispatcher.
        let _ = self.ready.set(ready);
    }

    /// Begins an activation, until the guard goes; `None` while there is one, which then leaves the
    /// fiber to the dispatcher.
    pub(crate) fn activate(self: &Arc<Self>, fiber: &Runnable) -> Option<ActiveGuard> {
        self.enter(&fiber.id, &fiber.name, Some(fiber))
    }

    /// Announces a spawn before it is stored. Until the guard is dropped, a fiber that is found
    /// stored under this id may be about to be started, under the claim that it was made with.
    pub(crate) fn announce_spawn(self: &Arc<Self>, id: &str) -> SpawnGuard {
        let entry = self.entry(id);
        entry.spawns.fetch_add(1, Ordering::AcqRel);
        SpawnGuard(entry)
    }

    /// Whether a spawn of this id is under way. To be asked after the fiber was found stored: the
    /// spawn that made it is over by then, and its activation has begun, or it is seen here.
    pub(crate) fn is_being_spawned(&self, id: &str) -> bool {
        self.get(id).is_some_and(|entry| entry.spawns.load(Ordering::Acquire) > 0)
    }

    /// Begins the activation of a fiber that was just made, when one that had its id before has
    /// left.
    pub(crate) async fn activate_new(self: &Arc<Self>, id: &str, name: &str) -> ActiveGuard {
        loop {
            let entry = self.entry(id);
            let mut phase = entry.watch();
            phase.mark_unchanged();
            if let Some(alive) = self.enter(id, name, None) {
                return alive;
            }
            // The sender is in `entry`, so the wait cannot fail.
            let _ = phase.changed().await;
        }
    }

    /// Keeps those who wait for a fiber waiting while a recovery hook decides about it; an
    /// activation may begin all the same.
    pub(crate) fn decide(self: &Arc<Self>, id: &str, name: &str) -> ActiveGuard {
        let entry = self.entry(id);
        let control = Arc::new(Control::new(name, false));
        {
            let mut there = entry.control.lock().unwrap_or_else(PoisonError::into_inner);
            if there.is_none() {
                *there = Some(Arc::clone(&control));
                entry.phase.send_replace(RunState::Running);
            }
        }
        ActiveGuard { entry, control, id: id.to_owned() }
    }

    fn enter(self: &Arc<Self>, id: &str, name: &str, ready: Option<&Runnable>) -> Option<ActiveGuard> {
        let entry = self.entry(id);
        let control = Arc::new(Control::new(name, true));
        {
            let mut there = entry.control.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(there) = there.as_ref().filter(|there| there.activation) {
                if let Some(ready) = ready {
                    there.make_ready(ready);
                }
                return None;
            }
            *there = Some(Arc::clone(&control));
            entry.phase.send_replace(RunState::Running);
        }
        Some(ActiveGuard { entry, control, id: id.to_owned() })
    }

    /// The entry of a fiber, made if there is none.
    pub(crate) fn entry(self: &Arc<Self>, id: &str) -> Arc<Entry> {
        let mut fibers = self.fibers();
        if let Some(there) = fibers.get(id).and_then(Weak::upgrade) {
            return there;
        }
        let id: Arc<str> = id.into();
        let entry = Arc::new(Entry {
            live: Arc::downgrade(self),
            id: Arc::clone(&id),
            phase: watch::Sender::new(RunState::Away),
            control: Mutex::default(),
            spawns: AtomicUsize::new(0),
            items: Notify::new(),
        });
        fibers.insert(id, Arc::downgrade(&entry));
        entry
    }

    /// The entry of a fiber that is live or watched.
    pub(crate) fn get(&self, id: &str) -> Option<Arc<Entry>> {
        self.fibers().get(id).and_then(Weak::upgrade)
    }

    /// Ready when something new is known of a fiber: its activation has ended, or the store knows
    /// more.
    pub(crate) fn changed(self: &Arc<Self>, id: &str) -> impl Future<Output = ()> + Send + use<> {
        let entry = self.entry(id);
        let mut phase = entry.watch();
        phase.mark_unchanged();
        async move {
            // The sender is in `entry`, so the wait cannot fail.
            let _ = phase.changed().await;
            drop(entry);
        }
    }

    /// Whether the code of a fiber runs, or a hook decides about it.
    pub(crate) fn is_live(&self, id: &str) -> bool {
        self.get(id).is_some_and(|entry| entry.control().is_some())
    }

    /// The step that a fiber is at in this process, and when it began.
    pub(crate) fn step(&self, id: &str) -> Option<(&'static str, SystemTime)> {
        *self.get(id)?.control()?.step.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The progress, JSON, that a fiber has set in its activation in this process.
    pub(crate) fn progress(&self, id: &str) -> Option<Arc<str>> {
        self.get(id)?.control()?.progress.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells readers that items of streams of a fiber were stored.
    pub(crate) fn items_stored(&self, id: &str) {
        if let Some(entry) = self.get(id) {
            entry.items.notify_waiters();
        }
    }

    /// Whether the code of a fiber runs, or is about to.
    pub(crate) fn is_active(&self, id: &str) -> bool {
        self.get(id).and_then(|entry| entry.control()).is_some_and(|control| control.activation)
    }

    /// Ids of the fibers that something in this process waits for while they are not live here, and
    /// of those that are and wait for messages in memory.
    pub(crate) fn watched(&self) -> (Vec<String>, Vec<String>) {
        let entries: Vec<_> = self.fibers().values().filter_map(Weak::upgrade).collect();
        let (mut away, mut receivers) = (Vec::new(), Vec::new());
        for entry in entries {
            match entry.control() {
                None if entry.phase.receiver_count() > 0 => away.push(entry.id.to_string()),
                Some(control) if control.receives() => receivers.push(entry.id.to_string()),
                _ => {}
            }
        }
        (away, receivers)
    }

    /// Number of fibers that are live in this process.
    pub(crate) fn count(&self) -> usize {
        let entries: Vec<_> = self.fibers().values().filter_map(Weak::upgrade).collect();
        entries.iter().filter(|entry| entry.control().is_some()).count()
    }

    /// Tells those who wait for a fiber that the store knows something new of it.
    pub(crate) fn tell(&self, id: &str) {
        if let Some(entry) = self.get(id) {
            entry.phase.send_if_modified(|phase| {
                let told = !matches!(phase, RunState::Running);
                if told {
                    *phase = RunState::Away;
                }
                told
            });
        }
    }

    /// Tells everybody who waits that the runtime is gone.
    pub(crate) fn close(&self) {
        let entries: Vec<_> = self.fibers().values().filter_map(Weak::upgrade).collect();
        for entry in entries {
            entry.phase.send_if_modified(|phase| {
                let away = matches!(phase, RunState::Away);
                if away {
                    *phase = RunState::Stopped(Exit::Closed);
                }
                away
            });
        }
    }

    fn fibers(&self) -> MutexGuard<'_, HashMap<Arc<str>, Weak<Entry>>> {
        self.fibers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A spawn under way, from before it is stored until the fiber is live.
#[derive(Debug)]
pub(crate) struct SpawnGuard(Arc<Entry>);

impl Drop for SpawnGuard {
    fn drop(&mut self) {
        self.0.spawns.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Keeps a fiber live; held by its task.
#[derive(Debug)]
pub(crate) struct ActiveGuard {
    entry: Arc<Entry>,
    pub(crate) control: Arc<Control>,
    pub(crate) id: String,
}

impl ActiveGuard {
    /// Says where the fiber stands.
    pub(crate) fn set(&self, phase: RunState) {
        self.entry.phase.send_replace(phase);
    }

    /// The fiber has stopped, and the store knows it.
    pub(crate) fn stop(self, exit: Exit) {
        self.leave(RunState::Stopped(exit));
    }

    /// The fiber waits, and the store knows it.
    pub(crate) fn away(self) {
        self.leave(RunState::Away);
    }

    /// The fiber is not live any more, unless this guard was replaced; one that has become ready
    /// meanwhile is dispatched.
    fn leave(&self, phase: RunState) -> bool {
        let ready = {
            let mut control = self.entry.control.lock().unwrap_or_else(PoisonError::into_inner);
            if !control.as_ref().is_some_and(|there| Arc::ptr_eq(there, &self.control)) {
                return false;
            }
            *control = None;
            self.entry.phase.send_replace(phase);
            self.control.take_ready()
        };
        if let (Some(ready), Some(live)) = (ready, self.entry.live.upgrade())
            && let Some(dispatcher) = live.ready.get()
        {
            dispatcher.send(*ready);
        }
        true
    }
}

impl Drop for ActiveGuard {
    fn drop(&mut self) {
        let under_way = self.leave(RunState::Stopped(Exit::Closed));
        if let Some(live) = self.entry.live.upgrade().filter(|_| under_way) {
            live.dropped.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&self.entry));
        }
    }
}
