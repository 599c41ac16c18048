//! The order in which fibers are entered that were there when their process died: those with fewer
//! deaths first.
//!
//! A fiber that kills its process would otherwise be entered at each open beside healthy ones, and
//! kill it again before they have made a checkpoint. So each activation stands here from its start
//! until it has made progress or has left, and a suspect, which has several deaths, waits for those
//! with fewer. The wait has a limit, as a healthy step may take long. Suspects are entered one at a
//! time: of those that wait the one with the fewest deaths, and the oldest of these. All other
//! fibers resume at once, as after a crash each that was running has a death.
use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use tokio::sync::Notify;

use crate::runtime::sync::{Mutex, MutexGuard};
use crate::store::{Runnable, Seq};

/// After so many deaths without a checkpoint a fiber may be the one that kills the process: such
/// fibers are entered one at a time, so that the guilty one uses up its own recoveries and not
/// those of the others.
const SUSPECT: u32 = 3;

/// Deaths of a fiber, and its number.
type Place = (u32, Seq);

#[derive(Debug, Default)]
struct Places {
    /// Activations without progress.
    standing: BTreeSet<Place>,
    /// Of these, suspects that were not entered.
    suspects: BTreeSet<Place>,
}

impl Places {
    fn has_healthier(&self, (deaths, _): Place) -> bool {
        self.standing.first().is_some_and(|(fewest, _)| *fewest < deaths)
    }
}

/// Activations without progress.
#[derive(Debug, Default)]
pub(crate) struct EntryOrder {
    places: Mutex<Places>,
    /// Wakes those that wait in the order in which they came.
    changed: Notify,
}

impl EntryOrder {
    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Places)) {
        change(&mut self.places());
        self.changed.notify_waiters();
    }

    /// Lets an activation stand here until what comes back is dropped.
    pub(crate) fn stand(self: &Arc<Self>, fiber: &Runnable) -> Standing {
        let standing = Standing { order: Arc::clone(self), place: (fiber.deaths, fiber.seq) };
        self.change(|places| {
            places.standing.insert(standing.place);
            if standing.is_suspect() {
                places.suspects.insert(standing.place);
            }
        });
        standing
    }
}

/// An activation without progress.
#[derive(Debug)]
pub(crate) struct Standing {
    order: Arc<EntryOrder>,
    place: Place,
}

impl Standing {
    /// Whether its fiber is entered alone.
    pub(crate) fn is_suspect(&self) -> bool {
        let (deaths, _) = self.place;
        deaths >= SUSPECT
    }

    /// Ready when no activation stands here whose fiber has fewer deaths.
    pub(crate) async fn healthier_gone(&self) {
        self.until(|places| !places.has_healthier(self.place)).await;
    }

    /// Ready when this is the first of the suspects that were not entered.
    pub(crate) async fn is_next(&self) {
        self.until(|places| places.suspects.first().is_none_or(|first| *first == self.place)).await;
    }

    /// The suspect is entered, and the next one may be after it.
    pub(crate) fn entered(&self) {
        self.order.change(|places| {
            places.suspects.remove(&self.place);
        });
    }

    async fn until(&self, holds: impl Fn(&Places) -> bool) {
        loop {
            let changed = self.order.changed.notified();
            if holds(&self.order.places()) {
                return;
            }
            changed.await;
        }
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        self.order.change(|places| {
            places.standing.remove(&self.place);
            places.suspects.remove(&self.place);
        });
    }
}
