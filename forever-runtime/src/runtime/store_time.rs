//! The time of a store that several workers share.
//!
//! What one worker stores as due, another one may wake, and the clocks of machines differ. So all
//! workers go by the clock of the store: when they store a time, and when they look what is due. A
//! worker asks the store for its time at open and every few seconds, and counts on from there.
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;
use tracing::debug;

use crate::clock::{Clock, from_ms};
use crate::error::{Result, chain};
use crate::runtime::race::race;
use crate::runtime::state::Runtime;
use crate::runtime::sync::sleep;
use crate::store::Store;

/// Clock of a runtime whose store has a clock of its own.
pub(crate) struct StoreTime {
    /// Where sleeps and ids come from.
    own: Arc<dyn Clock>,
    store: Arc<dyn Store>,
    /// A time of the store, in milliseconds, and when that was.
    known: Mutex<(i64, Instant)>,
}

impl fmt::Debug for StoreTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreTime").field("own", &self.own).finish_non_exhaustive()
    }
}

impl StoreTime {
    /// The time of `store`; `None` where that has no clock, or `own` is the time of all workers.
    pub(crate) async fn of(store: &Arc<dyn Store>, own: &Arc<dyn Clock>) -> Result<Option<Arc<Self>>> {
        if own.is_shared() {
            return Ok(None);
        }
        let known = ask(&**store).await?.map(Mutex::new);
        Ok(known.map(|known| Arc::new(StoreTime { own: Arc::clone(own), store: Arc::clone(store), known })))
    }

    /// Asks the store again and again, until the runtime closes.
    pub(crate) async fn follow(self: Arc<Self>, runtime: Arc<Runtime>) {
        while race(runtime.closing(), sleep(runtime.settings.timings.store_time)).await.is_none() {
            match ask(&*self.store).await {
                Ok(Some(known)) => *self.known.lock().unwrap_or_else(PoisonError::into_inner) = known,
                Ok(None) => {}
                Err(error) => debug!(error = %chain(&error), "the store could not be asked for its time"),
            }
        }
    }
}

/// The time of a store, and when that was.
async fn ask(store: &dyn Store) -> Result<Option<(i64, Instant)>> {
    let Some(cluster) = store.cluster() else { return Ok(None) };
    let begun = Instant::now();
    let now_ms = cluster.now_ms().await?;
    // The store has read its clock in between.
    Ok(now_ms.map(|now_ms| (now_ms, begun + begun.elapsed() / 2)))
}

impl Clock for StoreTime {
    fn now(&self) -> SystemTime {
        let (now_ms, at) = *self.known.lock().unwrap_or_else(PoisonError::into_inner);
        from_ms(now_ms) + at.elapsed()
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.own.sleep(duration)
    }

    fn sleep_towards(&self, left: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.own.sleep_towards(left)
    }

    fn id(&self) -> String {
        self.own.id()
    }
}
