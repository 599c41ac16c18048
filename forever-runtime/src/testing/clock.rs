//! A clock that stands still until a test moves it.
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::oneshot;

use crate::clock::Clock;

/// Clock that a test drives.
///
/// Sleeps, timeouts, schedules and retention end when the test moves the clock, without real
/// waiting. The clock never advances by itself, also not while everything waits for it.
///
/// It starts at 2024-01-01 00:00:00 UTC. Clones share the time, so a runtime that is opened again
/// continues at the time of the last one. It has no part in `tokio::time`: a `tokio::time::sleep`
/// in a step waits in real time, or on tokio's own paused clock.
///
/// ```
/// # use forever_runtime as forever;
/// use std::time::Duration;
/// use forever::{Clock, testing::VirtualClock};
///
/// let clock = VirtualClock::new();
/// let begun = clock.now();
/// clock.advance(Duration::from_secs(3600));
/// assert_eq!(clock.now().duration_since(begun).unwrap(), Duration::from_secs(3600));
/// ```
#[derive(Debug, Clone, Default)]
pub struct VirtualClock {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    passed: Duration,
    /// Total times that the clock was set ahead and back.
    ahead: Duration,
    back: Duration,
    /// Sleepers by wake-up time; the second number separates equal times.
    sleepers: BTreeMap<(Duration, u64), Sleeper>,
    made: u64,
}

#[derive(Debug)]
struct Sleeper {
    wake: oneshot::Sender<()>,
    /// Whether it waits for a time, and checks again when the clock is set.
    looks: bool,
}

impl Shared {
    /// Wakes the sleepers that wait for a time.
    fn look_again(&mut self) {
        let all = std::mem::take(&mut self.sleepers);
        for (at, sleeper) in all {
            if sleeper.looks {
                let _ = sleeper.wake.send(());
            } else {
                self.sleepers.insert(at, sleeper);
            }
        }
    }
}

/// 2024-01-01 00:00:00 UTC.
const START: Duration = Duration::from_secs(1_704_067_200);

impl VirtualClock {
    /// A clock at its start.
    pub fn new() -> Self {
        Self::default()
    }

    /// Advances the time, and wakes all sleepers up to then, the earliest first.
    ///
    /// It returns before the woken tasks have run. Wait for what they do: for a result with
    /// [`FiberHandle::wait`](crate::fiber::FiberHandle::wait), or for a state. A sleeper that begins
    /// only then sleeps from the new time, so make sure that a fiber waits before time passes; its
    /// [status](crate::fiber::FiberHandle::status) says so.
    ///
    /// # Panics
    /// When the sum of all times is longer than a [`Duration`] can be.
    pub fn advance(&self, by: Duration) {
        let mut shared = self.shared();
        shared.passed += by;
        let passed = shared.passed;
        while let Some(sleeper) = shared.sleepers.first_entry()
            && sleeper.key().0 <= passed
        {
            // A sleeper that was dropped needs no waking.
            let _ = sleeper.remove().wake.send(());
        }
    }

    /// Sets the clock ahead without time passing, as a system clock is set.
    ///
    /// Sleeps last as long as before.
    pub fn set_ahead(&self, by: Duration) {
        let mut shared = self.shared();
        shared.ahead += by;
        shared.look_again();
    }

    /// Sets the clock back without time passing, as a system clock is set.
    ///
    /// Sleeps last as long as before.
    pub fn set_back(&self, by: Duration) {
        let mut shared = self.shared();
        shared.back += by;
        shared.look_again();
    }

    /// Time until the next sleeper wakes; `None` without sleepers.
    ///
    /// With [`advance`](Self::advance) it jumps from one event to the next:
    /// `while let Some(left) = clock.next_sleeper() { clock.advance(left); .. }`.
    pub fn next_sleeper(&self) -> Option<Duration> {
        let mut shared = self.shared();
        shared.sleepers.retain(|_, sleeper| !sleeper.wake.is_closed());
        let (at, _) = *shared.sleepers.first_key_value()?.0;
        Some(at.saturating_sub(shared.passed))
    }

    fn sleeps(&self, duration: Duration, looks: bool) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let (wake, woken) = oneshot::channel();
        let mut shared = self.shared();
        if duration.is_zero() {
            return Box::pin(async {});
        }
        shared.made += 1;
        let key = (shared.passed.saturating_add(duration), shared.made);
        shared.sleepers.insert(key, Sleeper { wake, looks });
        drop(shared);
        let clock = self.clone();
        Box::pin(async move {
            // The clock owns the sender, so the wait ends at its time and not before.
            let _ = woken.await;
            drop(clock);
        })
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for VirtualClock {
    fn is_shared(&self) -> bool {
        true
    }

    fn now(&self) -> SystemTime {
        let shared = self.shared();
        UNIX_EPOCH + (START + shared.passed + shared.ahead).saturating_sub(shared.back)
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.sleeps(duration, false)
    }

    fn sleep_towards(&self, left: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.sleeps(left, true)
    }

    fn id(&self) -> String {
        let mut shared = self.shared();
        shared.made += 1;
        format!("virtual-{:012}", shared.made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sleepers_wake_when_their_time_has_come_and_not_before() {
        let clock = VirtualClock::new();
        let mut short = clock.sleep(Duration::from_secs(1));
        let mut long = clock.sleep(Duration::from_secs(10));
        assert_eq!(clock.next_sleeper(), Some(Duration::from_secs(1)));
        clock.advance(Duration::from_millis(999));
        assert!(crate::runtime::race::race(&mut short, async {}).await.is_none());
        clock.advance(Duration::from_millis(1));
        short.await;
        assert!(crate::runtime::race::race(&mut long, async {}).await.is_none());
        assert_eq!(clock.next_sleeper(), Some(Duration::from_secs(9)));
        drop(long);
        assert_eq!(clock.next_sleeper(), None);
    }
}
