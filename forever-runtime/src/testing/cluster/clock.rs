//! The clock of a modelled cluster: the time of a tokio runtime that is paused.
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use crate::clock::{Clock, ms};

/// 2024-01-01 00:00:00 UTC.
const START: Duration = Duration::from_secs(1_704_067_200);

/// Simulated time, the same for all workers but for its skew, and ids that count up.
#[derive(Debug, Clone)]
pub(super) struct SimulatedClock {
    begun: Instant,
    /// How far it is ahead.
    skew_ms: i64,
    ids: Arc<AtomicU64>,
}

impl SimulatedClock {
    /// A clock at its start. The tokio runtime must be paused.
    pub(super) fn new() -> Self {
        SimulatedClock { begun: Instant::now(), skew_ms: 0, ids: Arc::default() }
    }

    /// The same time on a clock that is wrong.
    pub(super) fn ahead_by(&self, skew_ms: i64) -> Self {
        SimulatedClock { skew_ms, ..self.clone() }
    }

    pub(super) fn passed(&self) -> Duration {
        self.begun.elapsed()
    }

    pub(super) fn now_ms(&self) -> i64 {
        ms(self.now())
    }
}

impl Clock for SimulatedClock {
    fn now(&self) -> SystemTime {
        let (now, skew) = (UNIX_EPOCH + START + self.passed(), Duration::from_millis(self.skew_ms.unsigned_abs()));
        if self.skew_ms < 0 { now - skew } else { now + skew }
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(tokio::time::sleep(duration))
    }

    fn sleep_towards(&self, left: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        // Simulated time is never set.
        self.sleep(left)
    }

    fn id(&self) -> String {
        format!("simulated-{:012}", self.ids.fetch_add(1, Ordering::Relaxed) + 1)
    }
}
