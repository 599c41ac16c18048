//! The lease of a modelled worker, as far as the worker itself knows.
use std::time::Duration;

use tokio::sync::watch;

use super::clock::SimulatedClock;
use crate::future::BoxFuture;
use crate::store::Lease;

pub(super) struct ModelLease {
    length: Duration,
    clock: SimulatedClock,
    /// Time of the last renewal, and how often the lease was in doubt.
    renewed: watch::Sender<Option<(Duration, u64)>>,
}

impl ModelLease {
    /// The lease of a worker that has not joined.
    pub(super) fn new(length: Duration, clock: SimulatedClock) -> Self {
        ModelLease { length, clock, renewed: watch::Sender::new(None) }
    }

    /// It is renewed now. `was_lost` says that the worker counted as dead by then.
    pub(super) fn renew(&self, was_lost: bool) {
        self.renewed.send_modify(|renewed| {
            let in_force = self.in_force(*renewed).filter(|_| !was_lost);
            let doubts = renewed.map_or(0, |(_, doubts)| doubts);
            *renewed = Some((self.clock.passed(), in_force.unwrap_or(doubts + 1)));
        });
    }

    fn in_force(&self, renewed: Option<(Duration, u64)>) -> Option<u64> {
        renewed.filter(|(at, _)| self.clock.passed() - *at < self.length).map(|(_, doubts)| doubts)
    }
}

impl Lease for ModelLease {
    fn generation(&self) -> Option<u64> {
        self.in_force(*self.renewed.borrow())
    }

    fn renewal(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // The sender is in `self`, so the wait cannot fail.
            let _ = self.renewed.subscribe().wait_for(|renewed| self.in_force(*renewed).is_some()).await;
        })
    }
}
