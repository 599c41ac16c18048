//! The one place where time and ids come from, so that a test can put its own in their place.
use std::fmt;
use std::future::Future;
use std::pin::Pin;
#[cfg(feature = "testing")]
use std::sync::LazyLock;
#[cfg(feature = "testing")]
use std::time::Instant;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use uuid::{ContextV7, Timestamp, Uuid};

/// How long a clock is not looked at.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// Source of time and ids of a runtime, given to [`Builder::clock`](crate::Builder::clock).
///
/// Defaults to [`SystemClock`]. Tests use `testing::VirtualClock`, which they drive. All stored
/// times, and the waits of the runtime itself, come from the clock; `tokio::time::sleep` in a
/// program does not. On Postgres the time is that of the server
/// ([`is_shared`](Clock::is_shared)). Implement it for ids of your own, or for another source of time:
///
/// ```
/// # use forever_runtime as forever;
/// use forever::{Clock, Forever, SystemClock};
/// use std::future::Future;
/// use std::pin::Pin;
/// use std::time::{Duration, SystemTime};
///
/// /// System time, and ids that say the region.
/// #[derive(Debug, Default)]
/// struct Regional(SystemClock);
///
/// impl Clock for Regional {
///     fn now(&self) -> SystemTime {
///         self.0.now()
///     }
///
///     fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
///         self.0.sleep(duration)
///     }
///
///     fn id(&self) -> String {
///         format!("eu-{}", self.0.id())
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// let forever = Forever::builder().in_memory().clock(Regional::default()).open().await?;
/// let handle = forever.spawn_closure("job", |_| async { Ok::<_, forever::Error>(()) }).start().await?;
/// assert!(handle.id().starts_with("eu-"));
/// # forever.close().await
/// # }
/// ```
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The time now, UTC. It may be set back, as a system clock may.
    fn now(&self) -> SystemTime;

    /// Ready when `duration` has passed on this clock. Dropping it loses nothing.
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>>;

    /// Ready when the time that is `left` away has come, or earlier: the caller looks at
    /// [`now`](Self::now) again.
    ///
    /// Stored waits are due at a time, and a system clock may be set meanwhile. So the default
    /// sleeps for a minute at most. A clock that knows when it is set can sleep longer.
    fn sleep_towards(&self, left: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.sleep(left.min(LONGEST_SLEEP))
    }

    /// A new id for a fiber: unique in the database, and greater in text order than earlier ones.
    fn id(&self) -> String;

    /// Whether all workers over one store go by this clock. Defaults to `false`.
    ///
    /// The clocks of machines differ. So where several workers share a store, their time is that of
    /// the store, and a clock gives sleeps and ids alone. A clock that a test drives is shared, and
    /// gives the time as well.
    fn is_shared(&self) -> bool {
        false
    }
}

/// System time, tokio's timer, and UUIDs of version 7 (RFC 9562), which sort by their creation
/// time.
///
/// With the feature `testing`, the time follows tokio's where that is paused: a durable wait of
/// days is over at once in a test with `#[tokio::test(start_paused = true)]`.
///
/// See [`Clock`] for an example.
#[derive(Debug)]
pub struct SystemClock {
    ids: std::sync::Mutex<ContextV7>,
}

impl SystemClock {
    /// A clock that follows the system's time.
    pub fn new() -> Self {
        SystemClock { ids: std::sync::Mutex::new(ContextV7::new()) }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> SystemTime {
        now()
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(tokio::time::sleep(duration))
    }

    fn id(&self) -> String {
        let since = self.now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let ids = self.ids.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        Uuid::new_v7(Timestamp::from_unix(&*ids, since.as_secs(), since.subsec_nanos())).to_string()
    }
}

#[cfg(not(feature = "testing"))]
#[expect(clippy::disallowed_methods, reason = "this is where time comes from")]
fn now() -> SystemTime {
    SystemTime::now()
}

/// System time, which stands still and jumps with tokio's where a test has paused that.
#[cfg(feature = "testing")]
#[expect(clippy::disallowed_methods, reason = "this is where time comes from")]
fn now() -> SystemTime {
    static BEGUN: LazyLock<(SystemTime, Instant)> = LazyLock::new(|| (SystemTime::now(), Instant::now()));
    let (time, instant) = *BEGUN;
    let now = tokio::time::Instant::now().into_std();
    now.checked_duration_since(instant).map_or_else(|| time - (instant - now), |since| time + since)
}

/// Milliseconds since 1970, UTC: the stored form of a time.
pub fn ms(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms),
    }
}

/// The time of a stored `_ms` column.
pub fn from_ms(ms: i64) -> SystemTime {
    let distance = Duration::from_millis(ms.unsigned_abs());
    let time = if ms < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) };
    time.unwrap_or(UNIX_EPOCH)
}

/// A time later than another by a duration, in milliseconds.
pub(crate) fn later(at_ms: i64, by: Duration) -> i64 {
    at_ms.saturating_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_made_one_after_the_other_sort_in_that_order() {
        let clock = SystemClock::new();
        let ids: Vec<String> = (0..10_000).map(|_| clock.id()).collect();
        assert!(ids.is_sorted());
        assert!(ids.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn stored_times_come_back_to_the_millisecond() {
        for stored in [0, 1, 1_700_000_000_123, -1, -86_400_000] {
            assert_eq!(ms(from_ms(stored)), stored);
        }
    }
}
