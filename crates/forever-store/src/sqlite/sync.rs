//! Synchronization between the threads of the store. The schedule tests in
//! `forever-runtime/tests/schedules` replace the locks and threads here, so that any thread may
//! come first wherever two meet.
use std::hint;
pub(super) use std::sync::{Mutex, atomic};
pub(super) use std::thread;
use std::time::{Duration, Instant};

pub(super) use tokio::runtime::Handle;
pub(super) use tokio::sync::{mpsc, oneshot};
pub(super) use tokio::task::yield_now;

/// Number of jobs that may be queued; further callers wait for a place.
pub(super) const QUEUE: usize = 1024;

/// Number of answers from which on a task of the runtime sends them.
pub(super) const HANDED_OVER: usize = 8;

/// Number of spins between two yields of the processor, which the other thread may need.
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

    /// Spins once; `false` when the time is over.
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

/// What another thread answers.
pub(super) async fn heard<T>(answer: oneshot::Receiver<T>) -> Result<T, oneshot::error::RecvError> {
    #[cfg(any(test, feature = "testing"))]
    return crate::paused::heard(answer).await;
    #[cfg(not(any(test, feature = "testing")))]
    answer.await
}

/// The machine's clock. Threads wait for each other in real time, whatever the clock of the runtime
/// is.
#[expect(clippy::disallowed_methods, reason = "threads that wait for each other do so in real time")]
pub(super) fn now() -> Instant {
    Instant::now()
}
