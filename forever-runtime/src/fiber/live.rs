//! The fibers that this process runs, and how those who wait for one hear of its end.
//!
//! A fiber is live from before it is entered until after its end, or that it waits, is stored: one that is not live stands in the store
//! as it is. A fiber that somebody waits for has an entry here too, so that a thousand waiters hear of theirs and of no other.
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::watch;

/// Where a fiber stands, as far as this process knows.
#[derive(Debug, Clone)]
pub(crate) enum Phase {
    /// Not live: the store knows.
    Away,
    Running,
    Stopped(Stop),
}

/// Why a fiber does not run any more, or not now.
#[derive(Debug, Clone)]
pub(crate) enum Stop {
    /// With its result, JSON.
    Completed(Arc<str>),
    Failed(Arc<str>),
    Cancelled(Arc<str>),
    Parked(Arc<str>),
    Interrupted(Arc<str>),
    Closed,
}

/// What is known of one fiber, for as long as it is live or watched.
#[derive(Debug)]
pub(crate) struct Entry {
    live: Weak<Live>,
    id: Arc<str>,
    phase: watch::Sender<Phase>,
    control: Mutex<Option<Arc<Control>>>,
}

/// How a live fiber is told to end.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) name: String,
    cancelled: watch::Sender<Option<Arc<str>>>,
}

impl Control {
    /// Asks the fiber to end, with a reason.
    pub(crate) fn cancel(&self, reason: &str) {
        self.cancelled.send_if_modified(|asked| {
            let first = asked.is_none();
            if first {
                *asked = Some(reason.into());
            }
            first
        });
    }

    /// The reason with which it was asked to end.
    pub(crate) fn reason(&self) -> Option<Arc<str>> {
        self.cancelled.borrow().clone()
    }

    /// Ready when the fiber is asked to end.
    pub(crate) async fn asked(&self) -> Arc<str> {
        let mut asked = self.cancelled.subscribe();
        loop {
            if let Some(reason) = asked.borrow_and_update().clone() {
                return reason;
            }
            // The sender is in `self`, so the wait cannot fail.
            let _ = asked.changed().await;
        }
    }
}

impl Entry {
    pub(crate) fn watch(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// What the live fiber is called and how it is told to end; `None` if it is not live.
    pub(crate) fn control(&self) -> Option<Arc<Control>> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_control(&self, control: Option<Arc<Control>>) {
        *self.control.lock().unwrap_or_else(PoisonError::into_inner) = control;
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
pub(crate) struct Live {
    fibers: Mutex<HashMap<Arc<str>, Weak<Entry>>>,
    /// Fibers whose tasks were dropped under way, kept so that nobody waits for one in vain.
    dropped: Mutex<Vec<Arc<Entry>>>,
}

impl Live {
    /// Makes a fiber live until the guard goes.
    pub(crate) fn enter(self: &Arc<Self>, id: &str, name: &str) -> Alive {
        let entry = self.entry(id);
        let control = Arc::new(Control { name: name.to_owned(), cancelled: watch::Sender::new(None) });
        entry.set_control(Some(Arc::clone(&control)));
        entry.phase.send_replace(Phase::Running);
        Alive { entry, control, id: id.to_owned() }
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
            phase: watch::Sender::new(Phase::Away),
            control: Mutex::default(),
        });
        fibers.insert(id, Arc::downgrade(&entry));
        entry
    }

    /// The entry of a fiber that is live or watched.
    pub(crate) fn get(&self, id: &str) -> Option<Arc<Entry>> {
        self.fibers().get(id).and_then(Weak::upgrade)
    }

    /// Tells those who wait for a fiber that the store knows something new of it.
    pub(crate) fn tell(&self, id: &str) {
        if let Some(entry) = self.get(id) {
            entry.phase.send_if_modified(|phase| {
                let told = !matches!(phase, Phase::Running);
                if told {
                    *phase = Phase::Away;
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
                let away = matches!(phase, Phase::Away);
                if away {
                    *phase = Phase::Stopped(Stop::Closed);
                }
                away
            });
        }
    }

    fn fibers(&self) -> MutexGuard<'_, HashMap<Arc<str>, Weak<Entry>>> {
        self.fibers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a fiber live; held by its task.
#[derive(Debug)]
pub(crate) struct Alive {
    entry: Arc<Entry>,
    pub(crate) control: Arc<Control>,
    pub(crate) id: String,
}

impl Alive {
    /// Says where the fiber stands.
    pub(crate) fn set(&self, phase: Phase) {
        self.entry.phase.send_replace(phase);
    }

    /// The fiber has stopped, and the store knows it.
    pub(crate) fn stop(self, stop: Stop) {
        self.leave(Phase::Stopped(stop));
    }

    /// The fiber waits, and the store knows it.
    pub(crate) fn away(self) {
        self.leave(Phase::Away);
    }

    /// The fiber is not live any more, unless it was entered again meanwhile.
    fn leave(&self, phase: Phase) -> bool {
        let mut control = self.entry.control.lock().unwrap_or_else(PoisonError::into_inner);
        let mine = control.as_ref().is_some_and(|there| Arc::ptr_eq(there, &self.control));
        if mine {
            *control = None;
            self.entry.phase.send_replace(phase);
        }
        mine
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        let under_way = self.leave(Phase::Stopped(Stop::Closed));
        if let Some(live) = self.entry.live.upgrade().filter(|_| under_way) {
            live.dropped.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&self.entry));
        }
    }
}
