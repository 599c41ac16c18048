//! The fibers that this process runs, and how those who wait for one hear of its end.
//!
//! A fiber is live from before it is entered until after its end is stored: one that is not live stands in the store as it is.
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

/// Where a live fiber stands.
#[derive(Debug, Clone)]
pub(crate) enum Phase {
    Running,
    Stopped(Stop),
}

/// Why a fiber does not run any more, or not now.
#[derive(Debug, Clone)]
pub(crate) enum Stop {
    /// With its result, JSON.
    Completed(Arc<str>),
    Failed(Arc<str>),
    Parked(Arc<str>),
    Interrupted(Arc<str>),
    Closed,
}

/// One live fiber, for those who wait.
#[derive(Debug, Clone)]
pub(crate) struct Watched {
    pub(crate) name: String,
    pub(crate) phase: watch::Receiver<Phase>,
}

/// All live fibers by id.
#[derive(Debug, Default)]
pub(crate) struct Live {
    fibers: Mutex<HashMap<String, Watched>>,
    /// Told each time a fiber becomes live.
    pub(crate) entered: Notify,
}

impl Live {
    /// Makes a fiber live until the guard goes.
    pub(crate) fn enter(self: &Arc<Self>, id: &str, name: &str) -> Alive {
        let (sender, phase) = watch::channel(Phase::Running);
        self.fibers().insert(id.to_owned(), Watched { name: name.to_owned(), phase });
        self.entered.notify_waiters();
        Alive { live: Arc::clone(self), id: id.to_owned(), phase: sender }
    }

    pub(crate) fn get(&self, id: &str) -> Option<Watched> {
        self.fibers().get(id).cloned()
    }

    fn fibers(&self) -> MutexGuard<'_, HashMap<String, Watched>> {
        self.fibers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a fiber live; held by its task.
#[derive(Debug)]
pub(crate) struct Alive {
    live: Arc<Live>,
    pub(crate) id: String,
    phase: watch::Sender<Phase>,
}

impl Alive {
    /// Says where the fiber stands.
    pub(crate) fn set(&self, phase: Phase) {
        self.phase.send_replace(phase);
    }

    /// The fiber has stopped, and the store knows it.
    pub(crate) fn stop(self, stop: Stop) {
        self.set(Phase::Stopped(stop));
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        if matches!(*self.phase.borrow(), Phase::Running) {
            // The task was dropped under way. The fiber stays in the list, so that nobody waits for it in vain.
            self.set(Phase::Stopped(Stop::Closed));
        } else {
            self.live.fibers().remove(&self.id);
        }
    }
}
