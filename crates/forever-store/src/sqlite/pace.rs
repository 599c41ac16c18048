//! How long the callers of a worker wait, and whether one spins for its answer.
//!
//! Putting a task to sleep and waking it takes about as long as a commit that does not sync, and
//! half as long as one that does. So a caller spins if it is alone and comes back as soon as it has
//! its answer, as a fiber whose steps do almost nothing does. A fiber whose steps ask a model comes
//! back late, and sleeps. So do callers that come together, since their threads can serve each
//! other.
use std::time::{Duration, Instant};

use super::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use super::sync::now;

/// Maximum time that an answer is expected to take if a caller is to spin for it.
const LONGEST_ANSWER: Duration = Duration::from_micros(400);

/// Maximum pause between an answer and the next call of a caller that spins.
const SOON: Duration = Duration::from_micros(200);

/// How long a statement on a worker's thread waits while another SQLite tool has the database
/// locked.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Time to spin beyond the expected time of an answer.
pub(super) const SLACK: Duration = Duration::from_micros(20);

/// How long callers may spin before other tasks of their thread get a turn.
pub(super) const LONGEST_SPIN: Duration = Duration::from_millis(1);

/// Measurements of the callers of one worker; all times in nanoseconds.
#[derive(Debug)]
pub(super) struct Pace {
    begun: Instant,
    callers: AtomicUsize,
    /// Time of the last answer, since `begun`.
    answered: AtomicU64,
    /// Time that a caller waits for its answer when it is alone: a moving average.
    expected: AtomicU64,
    /// Time that callers have spun since the last one that slept.
    pub(super) spun: AtomicU64,
}

impl Pace {
    pub(super) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Pace { begun: now(), callers: AtomicUsize::new(0), answered: zero(), expected: zero(), spun: zero() }
    }

    /// Number of callers that wait for an answer.
    pub(super) fn callers(&self) -> usize {
        self.callers.load(Ordering::Relaxed)
    }

    /// Whether other tasks should get a turn; checked before each spin.
    pub(super) fn has_spun_long(&self) -> bool {
        let long = self.spun.load(Ordering::Relaxed) >= ns(LONGEST_SPIN);
        if long {
            self.spun.store(0, Ordering::Relaxed);
        }
        long
    }
}

/// A call under way.
pub(super) struct Caller<'a> {
    pace: &'a Pace,
    begun: Instant,
    is_alone: bool,
}

impl<'a> Caller<'a> {
    pub(super) fn new(pace: &'a Pace) -> Self {
        let others = pace.callers.fetch_add(1, Ordering::Relaxed);
        Caller { pace, begun: now(), is_alone: others == 0 }
    }

    /// How long to spin for the answer, if at all.
    pub(super) fn spins(&self) -> Option<Duration> {
        let expected = Duration::from_nanos(self.pace.expected.load(Ordering::Relaxed));
        let answered = Duration::from_nanos(self.pace.answered.load(Ordering::Relaxed));
        let pause = (self.begun - self.pace.begun).saturating_sub(answered);
        if self.is_alone { spin_limit(pause, expected) } else { None }
    }

    /// Records that the answer has arrived.
    pub(super) fn answered(&self, by_spinning: bool) {
        let (pace, now) = (self.pace, now());
        pace.answered.store(ns(now - pace.begun), Ordering::Relaxed);
        let taken = ns(now - self.begun);
        if self.is_alone {
            let before = pace.expected.load(Ordering::Relaxed);
            let expected = if before == 0 { taken } else { before - before / 8 + taken / 8 };
            pace.expected.store(expected, Ordering::Relaxed);
        }
        if by_spinning {
            pace.spun.fetch_add(taken, Ordering::Relaxed);
        } else {
            pace.spun.store(0, Ordering::Relaxed);
        }
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        self.pace.callers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How long a caller spins, given its pause since the last answer and the expected time of its own.
pub(super) fn spin_limit(pause: Duration, expected: Duration) -> Option<Duration> {
    (pause < SOON && expected < LONGEST_ANSWER).then_some(expected * 3 / 2 + SLACK)
}

pub(super) fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
