//! The lease of this worker, as far as its own process knows.
//!
//! A process may be paused for any time at any place: by SIGSTOP, a debugger, a machine that
//! sleeps. What it does when it goes on must not rest on what it knew before. So the age of the
//! last renewal decides whether code of fibers may run, by a clock that goes on while the machine
//! sleeps, and each time that the lease was in doubt has a number: a claim of before is looked up
//! again.
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forever_store::{BoxFuture, Lease};
use tokio::sync::watch;

/// The lease, and its renewals.
#[derive(Debug)]
pub(crate) struct OwnLease {
    length: Duration,
    state: watch::Sender<State>,
    /// Whether renewals are left out, for tests.
    still: AtomicBool,
}

#[derive(Debug, Clone, Copy)]
struct State {
    /// Time at which the last renewal was requested; `None` while others may have taken over.
    renewed: Option<Duration>,
    /// How often the lease was in doubt.
    generation: u64,
}

impl State {
    fn is_in_force(&self, length: Duration, now: Duration) -> bool {
        self.renewed.is_some_and(|renewed| now.saturating_sub(renewed) < length)
    }
}

impl OwnLease {
    /// The lease of a worker that has not joined.
    pub(crate) fn new(length: Duration) -> Self {
        OwnLease { length, state: watch::Sender::new(State { renewed: None, generation: 0 }), still: AtomicBool::new(false) }
    }

    /// Whether it is to be renewed.
    pub(crate) fn goes_on(&self) -> bool {
        !self.still.load(Ordering::Acquire)
    }

    /// Lets the lease end as if the process were paused, or lets it go on.
    pub(crate) fn stand_still(&self, still: bool) {
        self.still.store(still, Ordering::Release);
        if still {
            self.state.send_modify(|state| state.renewed = Some(Duration::ZERO));
        }
    }

    /// The lease was renewed by a write that was requested at `asked`. `was_lost` says that the
    /// worker counted as dead by then.
    pub(crate) fn renewed(&self, asked: Duration, was_lost: bool) {
        self.state.send_modify(|state| {
            if was_lost || !state.is_in_force(self.length, asked) {
                state.generation += 1;
            }
            state.renewed = Some(asked);
        });
    }

    /// Others may take over from now on, until the lease is renewed.
    pub(crate) fn doubt(&self) {
        self.state.send_modify(|state| state.renewed = None);
    }
}

impl Lease for OwnLease {
    fn generation(&self) -> Option<u64> {
        let state = *self.state.borrow();
        state.is_in_force(self.length, now()).then_some(state.generation)
    }

    fn renewal(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // The sender is in `self`, so the wait cannot fail.
            let _ = self.state.subscribe().wait_for(|state| state.is_in_force(self.length, now())).await;
        })
    }
}

/// Time since the machine has started, sleep included.
#[cfg(target_os = "linux")]
pub(crate) fn now() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// Time since the first call. On these systems it may stand still while the machine sleeps.
#[cfg(not(target_os = "linux"))]
pub(crate) fn now() -> Duration {
    use std::sync::OnceLock;
    use std::time::Instant;

    static FIRST: OnceLock<Instant> = OnceLock::new();
    // The first call is not at zero, which would be older than any lease.
    FIRST.get_or_init(Instant::now).elapsed() + Duration::from_secs(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_is_in_force_until_its_last_renewal_is_too_old() {
        let length = Duration::from_secs(3600);
        let lease = OwnLease::new(length);
        assert_eq!(lease.generation(), None, "its worker has not joined");
        lease.renewed(now(), false);
        assert_eq!(lease.generation(), Some(1));
        lease.renewed(now(), false);
        assert_eq!(lease.generation(), Some(1), "it was never in doubt");
        // A process that was paused for longer than the lease.
        lease.state.send_modify(|state| state.renewed = now().checked_sub(length));
        assert_eq!(lease.generation(), None);
        lease.renewed(now(), false);
        assert_eq!(lease.generation(), Some(2), "what was claimed before is looked up again");
    }

    #[test]
    fn lease_is_in_doubt_after_a_take_over_and_without_its_lock() {
        let lease = OwnLease::new(Duration::from_secs(3600));
        lease.renewed(now(), false);
        lease.renewed(now(), true);
        assert_eq!(lease.generation(), Some(2), "its row was gone");
        lease.doubt();
        assert_eq!(lease.generation(), None);
        lease.renewed(now(), false);
        assert_eq!(lease.generation(), Some(3));
    }
}
