//! The lease of a modelled worker, as far as the worker itself knows.
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;

use super::clock::SimulatedClock;
use super::database::lock;
use crate::future::BoxFuture;
use crate::store::Lease;

pub(super) struct ModelLease {
    length: Duration,
    clock: SimulatedClock,
    /// Time of the last renewal, and how often the lease was in doubt.
    renewed: Mutex<Option<(Duration, u64)>>,
    /// Wakes in the order of the waits, unlike `watch`.
    changed: Notify,
}

impl ModelLease {
    /// The lease of a worker that has not joined.
    pub(super) fn new(length: Duration, clock: SimulatedClock) -> Self {
        ModelLease { length, clock, renewed: Mutex::default(), changed: Notify::new() }
    }

    /// It is renewed now. `was_lost` says that the worker counted as dead by then.
    pub(super) fn renew(&self, was_lost: bool) {
        let in_force = self.generation().filter(|_| !was_lost);
        let mut renewed = lock(&self.renewed);
        let doubts = renewed.map_or(0, |(_, doubts)| doubts);
        *renewed = Some((self.clock.passed(), in_force.unwrap_or(doubts + 1)));
        drop(renewed);
        self.changed.notify_waiters();
    }
}

impl Lease for ModelLease {
    fn generation(&self) -> Option<u64> {
        lock(&self.renewed).filter(|(at, _)| self.clock.passed() < *at + self.length).map(|(_, doubts)| doubts)
    }

    fn renewal(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            loop {
                let changed = self.changed.notified();
                if self.generation().is_some() {
                    return;
                }
                changed.await;
            }
        })
    }
}
