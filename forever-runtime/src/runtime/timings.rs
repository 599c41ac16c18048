//! Pauses and intervals of the library itself, in one place.
use std::time::Duration;

/// Pauses and intervals of the library that no setting of the builder has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timings {
    /// Interval of the sweep for fibers that are ready and of which no notification came.
    pub(crate) sweep: Duration,
    /// Interval of looks at what other workers have done, where something waits for it.
    pub(crate) look: Duration,
    /// Interval of these looks otherwise: a fiber may be cancelled, or the worker count as dead.
    pub(crate) idle_look: Duration,
    /// Shortest interval of these looks, however many notifications there are.
    pub(crate) shortest_look: Duration,
    /// Pause after the store has failed.
    pub(crate) store_retry: Duration,
    /// First and longest pause before what failed is tried again.
    pub(crate) backoff: (Duration, Duration),
    /// Longest time that other fibers wait for one that may kill the process, and it for them.
    pub(crate) suspect: Duration,
    /// Added to the lease of an earlier worker: a poll that has begun under it ends later, and
    /// clocks of machines run at slightly different rates.
    pub(crate) lease_margin: Duration,
    /// Interval at which a store is asked for its time. Counting on is wrong by less than a
    /// millisecond after it.
    pub(crate) store_time: Duration,
    /// How long `close` waits for aborted tasks to be dropped. A task that blocks its thread is not
    /// waited for longer.
    pub(crate) drop: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        const SECOND: Duration = Duration::from_secs(1);
        Timings {
            sweep: SECOND,
            look: SECOND / 4,
            idle_look: SECOND,
            shortest_look: SECOND / 50,
            store_retry: SECOND,
            backoff: (SECOND, Duration::from_secs(300)),
            suspect: SECOND,
            lease_margin: SECOND,
            store_time: Duration::from_secs(5),
            drop: SECOND,
        }
    }
}

impl Timings {
    /// How long to wait after `failed` failures in a row.
    pub(crate) fn pause_after(&self, failed: u32) -> Duration {
        let (first, longest) = self.backoff;
        first.saturating_mul(1 << (failed.saturating_sub(1)).min(16)).min(longest)
    }
}
