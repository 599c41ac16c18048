//! The one place where time and ids come from, so that a test can put its own in their place.
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use uuid::{ContextV7, Timestamp, Uuid};

/// How long a clock is not looked at.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// Time and ids for a runtime.
///
/// All stored times and all waits of a runtime come from its clock. Implement it to drive time in a
/// test.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The time now, UTC.
    fn now(&self) -> SystemTime;

    /// Ready when `duration` has passed on this clock.
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>>;

    /// Ready when a time is there that is `left` away, or before: the caller looks at the time
    /// again. What is stored is due at a time and not after a while, and a system clock may be set;
    /// so this sleeps for a minute at most, unless a clock knows better.
    fn sleep_towards(&self, left: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.sleep(left.min(LONGEST_SLEEP))
    }

    /// A new id for a fiber: unique, and greater in text order than earlier ones.
    fn id(&self) -> String;
}

/// System time, tokio's timer, and UUIDs of version 7 (RFC 9562), which sort by their creation
/// time.
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
    #[expect(clippy::disallowed_methods, reason = "this is where time comes from")]
    fn now(&self) -> SystemTime {
        SystemTime::now()
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
