//! What other workers do to things that this worker waits for.
//!
//! Where several workers share a database, a task asks the store for what has changed of the
//! things that something in this process waits for: a few times a second, and sooner when another
//! worker says that it has changed something. A store of one worker has no such task.
use std::sync::{Arc, PoisonError};

use tokio::sync::Notify;
use tracing::warn;

use crate::error::{Result, chain};
use crate::future::BoxFuture;
use crate::runtime::published::{self, Inbound, Published};
use crate::runtime::race::race;
use crate::runtime::state::Runtime;
use crate::runtime::sync::{Mutex, sleep};
use crate::store::{Changes, ClusterStore, Notification, Watch};

/// Part of the runtime that waits for what other workers do.
pub(crate) trait Watcher: Send + Sync {
    /// Adds the things that it waits for.
    fn watch(&self, watch: &mut Watch);

    /// Takes in what is stored of them.
    fn changed<'a>(&'a self, changes: &'a Changes) -> BoxFuture<'a, ()>;

    /// Takes in what another worker has published.
    fn published(&self, inbound: &Inbound) {
        let _ = inbound;
    }
}

/// The watchers of a runtime.
#[derive(Default)]
pub(crate) struct Watchers {
    all: Mutex<Vec<Arc<dyn Watcher>>>,
    pub(crate) published: Published,
    /// Rung for a look before the next one is due.
    look: Notify,
}

impl std::fmt::Debug for Watchers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watchers")
    }
}

impl Watchers {
    pub(crate) fn add(&self, watcher: Arc<dyn Watcher>) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).push(watcher);
    }

    /// Lets the next look come at once.
    pub(crate) fn look_soon(&self) {
        self.look.notify_one();
    }

    fn all(&self) -> Vec<Arc<dyn Watcher>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).clone()
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

    /// Takes in what other workers have published.
    pub(crate) async fn read_published(&self) -> Result<()> {
        let Some(cluster) = self.cluster() else { return Ok(()) };
        let inbound = self.watchers.published.read(self, cluster, self.watched().agents).await?;
        for inbound in &inbound {
            for watcher in self.watchers.all() {
                watcher.published(inbound);
            }
        }
        Ok(())
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
fn is_busy(runtime: &Runtime) -> bool {
    let watch = &runtime.watched();
    let Watch { worker: _, fibers, receivers, turns, chats, agents, requests } = watch;
    let waits =
        !(fibers.is_empty() && receivers.is_empty() && turns.is_empty() && chats.is_empty() && agents.is_empty() && requests.is_empty());
    waits || runtime.listeners.is_heard()
}

/// Looks for changes of other workers until the runtime closes. `on_ready` is called when fibers
/// may be ready that this worker was not told of, and `on_alone` when all others seem to have left,
/// if there were some; it says whether they have.
pub(crate) async fn run<R: Future<Output = ()>, A: Future<Output = bool>>(
    runtime: Arc<Runtime>,
    on_ready: impl Fn() -> R,
    on_alone: impl Fn() -> A,
    mut had_others: bool,
) {
    let mut failed = false;
    if runtime.claims_as().is_some() {
        // A runtime that closes publishes nothing.
        let _ = runtime.start(published::run(Arc::clone(&runtime)));
    }
    loop {
        let Some(cluster) = runtime.cluster() else { return };
        let timings = &runtime.settings.timings;
        let pause = if is_busy(&runtime) { timings.look } else { timings.idle_look };
        let notified = async {
            let notification = cluster.notified().await;
            if !notification.requested {
                // Those that follow closely are taken in together with it.
                sleep(timings.shortest_look).await;
            }
            notification
        };
        let sooner = async {
            race(sleep(pause), runtime.watchers.look.notified()).await;
        };
        let waited = race(race(notified, sooner), runtime.closing()).await;
        let Some(notification) = waited else { return };
        if let Some(Notification { ready: true, .. }) = notification {
            on_ready().await;
        }
        had_others = cluster.has_others() || had_others && !on_alone().await;
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
    if runtime.claims_as().is_some() {
        runtime.watchers.published.set_listeners(runtime, cluster, changes.listeners, changes.listens).await?;
    }
    runtime.read_published().await
}
