//! What other workers do to things that this worker waits for.
//!
//! Where several workers share a database, a task asks the store for what has changed of the
//! things that something in this process waits for: a few times a second, and sooner when another
//! worker says that it has changed something. A store of one worker has no such task.
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tracing::warn;

use crate::error::{Result, chain};
use crate::future::BoxFuture;
use crate::runtime::race::race;
use crate::runtime::state::Runtime;
use crate::runtime::sync::{Mutex, sleep};
use crate::store::{Changes, ClusterStore, Notification, Watch};

/// Time between two looks while something is waited for.
const LOOK: Duration = Duration::from_millis(250);

/// Time between two looks while nothing is waited for: fibers of this worker may be cancelled,
/// and it may count as dead.
const IDLE_LOOK: Duration = Duration::from_secs(1);

/// Shortest time between two looks, however many notifications there are.
const PAUSE: Duration = Duration::from_millis(20);

/// Part of the runtime that waits for what other workers do.
pub(crate) trait Watcher: Send + Sync {
    /// Adds the things that it waits for.
    fn watch(&self, watch: &mut Watch);

    /// Takes in what is stored of them.
    fn changed<'a>(&'a self, changes: &'a Changes) -> BoxFuture<'a, ()>;
}

/// The watchers of a runtime.
#[derive(Default)]
pub(crate) struct Watchers(Mutex<Vec<Arc<dyn Watcher>>>);

impl std::fmt::Debug for Watchers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watchers")
    }
}

impl Watchers {
    pub(crate) fn add(&self, watcher: Arc<dyn Watcher>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(watcher);
    }

    fn all(&self) -> Vec<Arc<dyn Watcher>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Runtime {
    /// The store, where other workers share it.
    pub(crate) fn cluster(&self) -> Option<&dyn ClusterStore> {
        self.store.cluster()
    }

    fn watched(&self) -> Watch {
        let mut watch = Watch { worker: self.worker, ..Watch::default() };
        (watch.fibers, watch.receivers) = self.active.watched();
        for watcher in self.watchers.all() {
            watcher.watch(&mut watch);
        }
        watch
    }

    /// Takes in what other workers have changed.
    async fn take_in(&self, changes: &Changes) {
        for id in &changes.stopped {
            self.active.tell(id);
        }
        for id in &changes.received {
            if let Some(control) = self.active.get(id).and_then(|entry| entry.control()) {
                control.ring();
            }
        }
        for (id, reason) in &changes.cancelled {
            if let Some(control) = self.active.get(id).and_then(|entry| entry.control()) {
                control.cancel(reason);
            }
        }
        for watcher in self.watchers.all() {
            watcher.changed(changes).await;
        }
    }
}

/// Whether something in this process waits for more than cancels.
fn is_busy(watch: &Watch) -> bool {
    let Watch { worker: _, fibers, receivers, turns, chats, agents, requests } = watch;
    !(fibers.is_empty() && receivers.is_empty() && turns.is_empty() && chats.is_empty() && agents.is_empty() && requests.is_empty())
}

/// Looks for changes of other workers until the runtime closes. `on_ready` is called when fibers
/// may be ready that this worker was not told of.
pub(crate) async fn run<F: Future<Output = ()>>(runtime: Arc<Runtime>, on_ready: impl Fn() -> F) {
    let mut failed = false;
    loop {
        let Some(cluster) = runtime.cluster() else { return };
        let pause = if is_busy(&runtime.watched()) { LOOK } else { IDLE_LOOK };
        let notified = async {
            let notification = cluster.notified().await;
            // Those that follow closely are taken in together with it.
            sleep(PAUSE).await;
            notification
        };
        let waited = race(race(notified, sleep(pause)), runtime.closing()).await;
        let Some(notification) = waited else { return };
        if let Some(Notification { ready: true, .. }) = notification {
            on_ready().await;
        }
        match look(&runtime, cluster).await {
            Ok(()) => failed = false,
            Err(error) if runtime.is_closing() || error.is_closed() => return,
            Err(error) if !failed => {
                failed = true;
                warn!(error = %chain(&error), "changes of other workers could not be looked for");
            }
            Err(_) => {}
        }
    }
}

async fn look(runtime: &Runtime, cluster: &dyn ClusterStore) -> Result<()> {
    let changes = cluster.changes(runtime.watched()).await?;
    runtime.take_in(&changes).await;
    Ok(())
}
