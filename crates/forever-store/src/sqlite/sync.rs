//! By what the threads of the store meet. The tests of their schedules, in
//! `forever-runtime/tests/schedules`, put other locks and threads here, so that at each meeting any
//! of them may come first.
use std::hint;
pub(super) use std::sync::{Mutex, atomic};
pub(super) use std::thread;
use std::time::{Duration, Instant};

pub(super) use tokio::sync::{mpsc, oneshot};
pub(super) use tokio::task::yield_now;

/// How many jobs may wait; more callers wait for their turn to queue.
pub(super) const QUEUE: usize = 1024;

/// Spins between two yields of the processor, which the thread that is waited for may need.
const SPINS_TO_YIELD: u32 = 64;

/// A thread that spins for a limited time before it sleeps.
pub(super) struct Spin {
    until: Instant,
    spins: u32,
}

impl Spin {
    pub(super) fn new(limit: Duration) -> Self {
        Spin { until: now() + limit, spins: 0 }
    }

    /// Spins once. False when the time is over.
    pub(super) fn once(&mut self) -> bool {
        self.spins += 1;
        if self.spins.is_multiple_of(SPINS_TO_YIELD) {
            thread::yield_now();
            return now() < self.until;
        }
        hint::spin_loop();
        true
    }
}

/// The machine's clock: threads wait for each other in real time, whatever the clock of the runtime
/// says.
#[expect(clippy::disallowed_methods, reason = "threads that wait for each other do so in real time")]
pub(super) fn now() -> Instant {
    Instant::now()
}
