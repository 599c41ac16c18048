//! Retry policies: how often a failed step is retried, and the backoff before each attempt. Pure
//! arithmetic; `step` does the waiting.
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Retry policy of a step whose body ends in an error:
/// `step!("search", retry = Retry::times(3), ..)`.
///
/// | setting | default |
/// |---|---|
/// | [`times`](Self::times): attempts after the first | none: it is given |
/// | [`backoff`](Self::backoff): waits between attempts | exponential, 200 ms to 30 s, full jitter |
/// | [`when`](Self::when): errors after which it retries | all, a `timeout` of the step included |
/// | [`when_after`](Self::when_after): wait that an error asks for | none: the backoff's |
///
/// A panic is not retried: it fails the fiber. A checkpoint that cannot be stored is no failed
/// attempt: it interrupts the fiber, which resumes by itself.
///
/// `E` is the error type of the fiber. It is inferred, except that a closure given to
/// [`Retry::when`] has to name it.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::fiber::{Backoff, Retry};
/// use std::io::{Error, ErrorKind};
/// use std::time::Duration;
///
/// let retry = Retry::times(3)
///     .backoff(Backoff::exponential(Duration::from_secs(1), Duration::from_secs(60)))
///     .when(|e: &Error| e.kind() != ErrorKind::PermissionDenied);
/// # let _ = retry;
/// ```
///
/// The number of failed attempts and the time of the next one are stored before each wait: a
/// restart neither forgets nor repeats an attempt, and none begins before its time, in whichever
/// process. An attempt that ends in an error while the runtime closes has not failed: it is made
/// again on resume. When the last attempt fails, its error leaves the step as it would without
/// `retry`. Until the next checkpoint a restart repeats this attempt alone, and a failed fiber that
/// a person resumes has all its retries again.
///
/// In a wait of more than 5 s the fiber leaves memory. Each failed attempt is a `tracing` warning
/// and an event, [`EventKind::StepRetried`](crate::fiber::EventKind::StepRetried), and
/// [`FiberStatus::retry`](crate::fiber::FiberStatus::retry) has the last one.
pub struct Retry<E> {
    times: u32,
    backoff: Backoff,
    when: Option<Arc<Condition<E>>>,
    after: Option<Arc<After<E>>>,
}

type Condition<E> = dyn Fn(&E) -> bool + Send + Sync;
type After<E> = dyn Fn(&E) -> Option<Duration> + Send + Sync;

impl<E> Retry<E> {
    /// Retries up to this many times after the first attempt: `times(3)` runs the body at most four
    /// times.
    ///
    /// With 0 there is no retry, and [`u32::MAX`] has no limit that matters.
    pub const fn times(retries: u32) -> Self {
        Retry { times: retries, backoff: Backoff::DEFAULT, when: None, after: None }
    }

    /// Sets how long to wait before each further attempt. Defaults to [`Backoff::default`].
    pub const fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Retries only after errors for which `condition` returns `true`; any other leaves the step at
    /// once. Defaults to all errors. A second call replaces the condition.
    ///
    /// An attempt that ran into the step's `timeout` is included: its error is made from a
    /// [`crate::Error`] of kind [`Timeout`](crate::ErrorKind::Timeout).
    pub fn when(mut self, condition: impl Fn(&E) -> bool + Send + Sync + 'static) -> Self {
        self.when = Some(Arc::new(condition));
        self
    }

    /// Takes the wait from the error, such as from the header `Retry-After` of an answer. `None` is
    /// the wait of the [`backoff`](Self::backoff). Defaults to that for all errors. A second call
    /// replaces the function.
    ///
    /// ```
    /// # use forever_runtime as forever;
    /// use forever::fiber::Retry;
    /// use std::time::Duration;
    ///
    /// #[derive(Debug)]
    /// struct Answer {
    ///     status: u16,
    ///     retry_after: Option<Duration>,
    /// }
    ///
    /// let retry = Retry::times(5).when(|e: &Answer| e.status == 429).when_after(|e| e.retry_after);
    /// # let _ = retry;
    /// ```
    pub fn when_after(mut self, wait: impl Fn(&E) -> Option<Duration> + Send + Sync + 'static) -> Self {
        self.after = Some(Arc::new(wait));
        self
    }

    /// How long to wait before the next attempt; `None` if there is none.
    ///
    /// `failed` is the number of attempts, including the one that ended in `error`. `None` is an
    /// error that is no `E`, so the condition cannot be evaluated. `chance` is the random value for
    /// the jitter.
    pub(crate) fn wait(&self, failed: u32, error: Option<&E>, chance: u32) -> Option<Duration> {
        let holds = |error: &E| self.when.as_ref().is_none_or(|holds| holds(error));
        let again = failed <= self.times && error.is_none_or(holds);
        let asked_for = || self.after.as_ref().zip(error).and_then(|(after, error)| after(error));
        again.then(|| asked_for().unwrap_or_else(|| self.backoff.wait(failed, chance)))
    }
}

impl<E> Clone for Retry<E> {
    fn clone(&self) -> Self {
        Retry { times: self.times, backoff: self.backoff, when: self.when.clone(), after: self.after.clone() }
    }
}

impl<E> fmt::Debug for Retry<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retry")
            .field("times", &self.times)
            .field("backoff", &self.backoff)
            .field("conditional", &self.when.is_some())
            .field("from_errors", &self.after.is_some())
            .finish()
    }
}

/// Backoff: the waits between the attempts of a step. Defaults to `exponential` from 200 ms to 30
/// s.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::fiber::Backoff;
/// use std::time::Duration;
///
/// const SECOND: Duration = Duration::from_secs(1);
///
/// // Between 0 and 1, 2, 4, .. and at most 60 seconds.
/// let polite = Backoff::exponential(SECOND, 60 * SECOND);
/// // Exactly 1, 2, 4, .. and at most 60 seconds.
/// let exact = polite.no_jitter();
/// // Always 5 seconds.
/// let fixed = Backoff::fixed(5 * SECOND);
/// # assert_ne!(polite, exact);
/// # let _ = fixed;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    jitter: bool,
}

/// One second in nanoseconds.
const SECOND: u128 = 1_000_000_000;

impl Backoff {
    const DEFAULT: Backoff = Backoff::exponential(Duration::from_millis(200), Duration::from_secs(30));

    /// `first` before the second attempt, doubled before each one after it, never longer than
    /// `max`; with full jitter.
    ///
    /// Full jitter spreads the wait evenly between zero and that time, so that fibers that failed
    /// together do not retry together (Brooker, "Exponential Backoff And Jitter", 2015). A `first`
    /// of zero never waits, and a `max` below `first` is the wait from the start.
    pub const fn exponential(first: Duration, max: Duration) -> Self {
        Backoff { first, max, jitter: true }
    }

    /// The same wait before each attempt, without jitter.
    pub const fn fixed(wait: Duration) -> Self {
        Backoff { first: wait, max: wait, jitter: false }
    }

    /// No wait: the next attempt begins at once.
    pub const fn none() -> Self {
        Backoff::fixed(Duration::ZERO)
    }

    /// Removes the jitter: waits exactly the given times.
    pub const fn no_jitter(mut self) -> Self {
        self.jitter = false;
        self
    }

    /// The wait after `failed` attempts (from 1). With jitter it is `chance / u32::MAX` of the full
    /// time.
    fn wait(self, failed: u32, chance: u32) -> Duration {
        let doublings = failed.saturating_sub(1);
        let factor = 1u128.checked_shl(doublings).unwrap_or(u128::MAX);
        let nanos = self.first.as_nanos().saturating_mul(factor).min(self.max.as_nanos());
        // A `Duration` has under 2^94 nanoseconds, so the product fits.
        let nanos = if self.jitter { nanos * u128::from(chance) / u128::from(u32::MAX) } else { nanos };
        let seconds = u64::try_from(nanos / SECOND).unwrap_or(u64::MAX);
        let rest = u32::try_from(nanos % SECOND).unwrap_or(0);
        Duration::new(seconds, rest)
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff::DEFAULT
    }
}

/// A policy with code in it (its condition), made again after a resume, for errors of type `E`.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no `Retry`, `Backoff` or `OnUnknown` of this library",
    label = "taken for one by its name",
    note = "`let retry = Retry::..` is made again after a resume; name another type by another name (`use .. as ..`), or write the value in the step's options"
)]
pub trait Policy<E> {}

impl<E> Policy<E> for Retry<E> {}
impl<E> Policy<E> for Backoff {}

/// Fixes the error type of a policy.
#[doc(hidden)]
pub const fn policy<E, P: Policy<E>>(_: &P) {}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Duration = Duration::from_secs(1);

    fn waits(backoff: Backoff, chance: u32) -> Vec<Duration> {
        [1, 2, 3, 4, 200, u32::MAX].map(|failed| backoff.wait(failed, chance)).into()
    }

    #[test]
    fn an_exponential_wait_doubles_up_to_its_limit() {
        let plain = Backoff::exponential(ONE, 5 * ONE).no_jitter();
        assert_eq!(waits(plain, 7), [1, 2, 4, 5, 5, 5].map(Duration::from_secs));
    }

    #[test]
    fn jitter_spreads_a_wait_between_nothing_and_all_of_it() {
        let spread = Backoff::exponential(ONE, 5 * ONE);
        assert_eq!(waits(spread, 0), [Duration::ZERO; 6]);
        assert_eq!(waits(spread, u32::MAX), [1, 2, 4, 5, 5, 5].map(Duration::from_secs));
        assert_eq!(spread.wait(2, u32::MAX / 2 + 1).as_millis(), 1000);
    }

    #[test]
    fn the_longest_and_the_shortest_durations_do_not_overflow() {
        let longest = Backoff::exponential(Duration::MAX, Duration::MAX);
        assert_eq!(waits(longest, u32::MAX), [Duration::MAX; 6]);
        let upward = Backoff::exponential(Duration::from_nanos(1), Duration::MAX).no_jitter();
        assert_eq!(upward.wait(200, 0), Duration::MAX);
        assert_eq!(Backoff::exponential(ONE, Duration::ZERO).wait(1, u32::MAX), Duration::ZERO);
    }

    #[test]
    fn a_fixed_wait_stays_and_none_is_none() {
        assert_eq!(waits(Backoff::fixed(3 * ONE), 0), [3 * ONE; 6]);
        assert_eq!(waits(Backoff::none(), u32::MAX), [Duration::ZERO; 6]);
    }

    #[test]
    fn three_times_means_three_further_attempts() {
        let retry = Retry::<()>::times(3).backoff(Backoff::none());
        let goes_on: Vec<_> = (1..=5).map(|failed| retry.wait(failed, Some(&()), 0).is_some()).collect();
        assert_eq!(goes_on, [true, true, true, false, false]);
        assert_eq!(Retry::<()>::times(0).wait(1, Some(&()), 0), None);
    }

    #[test]
    fn an_error_asks_for_a_wait_of_its_own() {
        let retry = Retry::times(3).backoff(Backoff::fixed(ONE)).when_after(|after: &Option<Duration>| *after);
        assert_eq!(retry.wait(1, Some(&Some(7 * ONE)), 0), Some(7 * ONE));
        assert_eq!(retry.wait(1, Some(&None), 0), Some(ONE));
        assert_eq!(retry.clone().wait(1, None, 0), Some(ONE), "it cannot be asked");
        assert_eq!(retry.wait(4, Some(&Some(7 * ONE)), 0), None, "no attempt is left");
    }

    #[test]
    fn a_condition_that_does_not_hold_ends_the_attempts() {
        let retry = Retry::times(3).when(|code: &u16| *code >= 500);
        assert!(retry.wait(1, Some(&503), 0).is_some());
        assert_eq!(retry.clone().wait(1, Some(&404), 0), None);
        assert!(retry.wait(1, None, 0).is_some(), "it cannot be asked");
    }
}
