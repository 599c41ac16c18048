//! Attempts of a step with `retry` or `timeout`.
//!
//! Generated code loops; [`Attempts`] counts, waits and decides whether to loop again. The body is
//! a new future each time, because it borrows the locals of the function. The number of failed
//! attempts and the time of the next one are stored before the wait for it, and only then: an
//! attempt begins at its time, in whichever process. During a long pause the fiber leaves memory:
//! [`Frame::pause`], or for branches their `steps!`.
use std::future::Future;
use std::time::Duration;

use tracing::warn;

use crate::error::{Error, ErrorKind, chain};
use crate::frame::activation::Frame;
use crate::frame::fiber::Failure;
use crate::frame::pause::Pauses;
use crate::frame::poll::text_of_failure;
use crate::frame::retry::Retry;
use crate::frame::step_error::{FromLibraryError, Make, StepError, Trouble};
use crate::ops::op::Op;
use crate::runtime::events::EventKind;
use crate::runtime::race::race;
use crate::secret::{marked, shown};
use crate::store::{OpRetry, OpState};

/// The attempts of one step.
#[doc(hidden)]
#[derive(Debug)]
pub struct Attempts<E> {
    op: Op,
    retry: Option<Retry<E>>,
    timeout: Option<Duration>,
    /// The pauses of the `steps!` that has the step as a branch.
    pauses: Option<Pauses>,
}

/// Result of one attempt.
#[doc(hidden)]
#[derive(Debug)]
pub enum Attempt<T, E> {
    /// The body's value.
    Done(T),
    /// The error that leaves the step.
    Failed(E),
    /// It failed, and another one is to come.
    Again,
}

impl Frame {
    /// Begins a step with `retry` or `timeout`, counting the attempts of earlier runs.
    pub fn attempts<E>(&self, cut: u32, retry: Option<Retry<E>>, timeout: Option<Duration>) -> Attempts<E> {
        Attempts::new(self.op(cut), retry).within(timeout)
    }
}

impl<E> Attempts<E> {
    pub(crate) fn new(op: Op, retry: Option<Retry<E>>) -> Self {
        Attempts { op, retry, timeout: None, pauses: None }
    }

    /// Of a branch of a `steps!`.
    pub(crate) fn in_branch(self, pauses: Pauses) -> Self {
        Attempts { pauses: Some(pauses), ..self }
    }

    /// Gives each attempt a time limit.
    pub(crate) fn within(self, timeout: Option<Duration>) -> Self {
        Attempts { timeout, ..self }
    }

    /// The `Op` of the next attempt.
    pub fn op(&self) -> Op {
        self.op.current()
    }

    /// Makes an attempt without a time limit.
    pub async fn run<T>(&mut self, body: impl Future<Output = Result<T, E>>) -> Attempt<T, E>
    where
        E: Failure,
    {
        self.begin().await;
        match body.await {
            Ok(value) => Attempt::Done(value),
            Err(error) => self.failed(error).await.map_or(Attempt::Again, Attempt::Failed),
        }
    }

    /// Makes an attempt; one that takes longer than the timeout is dropped and fails.
    pub async fn run_within<T>(&mut self, body: impl Future<Output = Result<T, E>>) -> Attempt<T, E>
    where
        E: FromLibraryError + Failure,
    {
        let Some(limit) = self.timeout else { return self.run(body).await };
        let (late, op) = (self.late(limit), self.op.clone());
        self.run(async move { race(body, op.backend().sleep(limit)).await.unwrap_or_else(|| Err(E::__made_of(late))) }).await
    }

    /// Makes an attempt of a step with `catch`: the error of the last one is a value.
    pub async fn run_caught<T>(&mut self, body: impl Future<Output = Result<T, E>>, make: Option<Make<E>>) -> Attempt<T, StepError>
    where
        E: Failure,
    {
        self.begin().await;
        let result = match self.timeout {
            None => body.await.map_err(Trouble::Body),
            Some(limit) => match race(body, self.op.backend().sleep(limit)).await {
                Some(result) => result.map_err(Trouble::Body),
                None => Err(Trouble::Library(self.late(limit))),
            },
        };
        let trouble = match result {
            Ok(value) => return Attempt::Done(value),
            Err(trouble) => trouble,
        };
        self.op.run().error_counts().await;
        let attempts = self.op.failed().saturating_add(1);
        let wait = match &trouble {
            Trouble::Body(error) => self.wait_after(Some(error)),
            // An error that cannot be converted to the fiber's type cannot be checked by the
            // condition.
            Trouble::Library(_) => self.wait_after(make.zip(self.timeout).map(|(make, limit)| make(self.late(limit))).as_ref()),
        };
        match wait {
            // The count of failed attempts stays stored until the checkpoint, so a crash before it
            // repeats only the last attempt.
            None => Attempt::Failed(trouble.caught(attempts)),
            Some(wait) => {
                let error = match trouble {
                    Trouble::Body(error) => text_of_failure(error),
                    Trouble::Library(error) => chain(&error),
                };
                self.again_after(wait, error, OpState::Started).await;
                Attempt::Again
            }
        }
    }

    fn late(&self, limit: Duration) -> Error {
        Error::new(ErrorKind::Timeout, format!("step `{}` took longer than {limit:?}", self.op.step()))
    }

    /// Begins an attempt when it is due.
    async fn begin(&self) {
        self.is_due().await;
        self.op.begin_attempt();
    }

    /// Waits in memory until the next attempt is due.
    pub(crate) async fn is_due(&self) {
        if let Some(next_ms) = self.op.next_ms() {
            let _paused = self.pauses.as_ref().map(|pauses| pauses.begin(next_ms));
            self.op.run().wait_until(next_ms).await;
        }
    }

    /// When the next attempt is due, if the fiber leaves memory until then. A step without `retry`
    /// makes its attempt at once, or waits for it in memory.
    pub fn pauses_until(&self) -> Option<i64> {
        let (run, backend) = (self.op.run(), self.op.backend());
        self.retry.as_ref()?;
        let long = self.op.next_ms().filter(|next_ms| run.is_long_until(*next_ms));
        long.or_else(|| backend.pauses().then(|| backend.now_ms()))
    }

    /// Stores that another attempt is to come, or returns the error if there is none. The count
    /// stays stored until the checkpoint: a later run repeats only the last attempt, unless a
    /// person has resumed the fiber since. In this run the code may come here again, for all.
    async fn failed(&mut self, error: E) -> Option<E>
    where
        E: Failure,
    {
        self.op.run().error_counts().await;
        let Some(wait) = self.wait_after(Some(&error)) else {
            self.op.forget_failed();
            return Some(error);
        };
        self.again_after(wait, text_of_failure(error), OpState::Started).await;
        None
    }

    /// How long to wait after one more failed attempt; `None` if it was the last.
    pub(crate) fn wait_after(&self, error: Option<&E>) -> Option<Duration> {
        let failed = self.op.failed().saturating_add(1);
        self.retry.as_ref()?.wait(failed, error, self.op.chance(failed))
    }

    /// Stores that another attempt comes after one that ended in this error, and what is known of
    /// the operation until then.
    pub(crate) async fn again_after(&self, wait: Duration, error: String, state: OpState) {
        let (failed, step, sink) = (self.op.failed().saturating_add(1), self.op.step(), self.op.backend());
        let error = shortened(error);
        let error = if self.op.run().secrets.mentions() { marked(&error) } else { error };
        warn!(step, failed, error = shown(&error), wait_ms = wait.as_millis(), "step failed and is retried");
        // Not before its time: a part of a millisecond counts as a whole one.
        let wait_ms = wait.as_nanos().div_ceil(1_000_000);
        let next_ms = sink.now_ms().saturating_add(i64::try_from(wait_ms).unwrap_or(i64::MAX));
        self.op.record_failed(failed, Some(OpRetry { error: error.clone(), next_ms }), state).await;
        sink.tell(EventKind::StepRetried { step: step.into(), failed, error: error.into() });
    }
}

/// Maximum length in bytes of the stored error of a failed attempt.
const LONGEST_ERROR: usize = 4096;

fn shortened(mut error: String) -> String {
    if error.len() > LONGEST_ERROR {
        let end = (0..=LONGEST_ERROR).rev().find(|&end| error.is_char_boundary(end));
        error.truncate(end.unwrap_or(0));
        error.push('…');
    }
    error
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::frame::retry::Backoff;
    use crate::ops::op::tests::{Store, first_run, interrupted, later_run};

    #[derive(Debug, PartialEq)]
    enum Trouble {
        Code(u16),
        Library(String),
    }

    impl std::fmt::Display for Trouble {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "{self:?}")
        }
    }

    impl std::error::Error for Trouble {}

    impl From<Error> for Trouble {
        fn from(error: Error) -> Self {
            assert_eq!(error.kind(), ErrorKind::Timeout);
            Trouble::Library(error.to_string())
        }
    }

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    /// 1, 2, 4 .. seconds.
    fn plain() -> Retry<Trouble> {
        Retry::times(3).backoff(Backoff::exponential(seconds(1), seconds(60)).no_jitter())
    }

    /// What generated code does.
    macro_rules! step {
        ($fiber:expr, $retry:expr, $timeout:expr, $run:ident, |$op:ident| $body:expr) => {
            async {
                let mut attempts = $fiber.attempts::<Trouble>(0, $retry, $timeout);
                let value = loop {
                    let $op = &attempts.op();
                    match attempts.$run(async { Ok::<_, Trouble>($body) }).await {
                        Attempt::Done(value) => break value,
                        Attempt::Failed(error) => return Err(error),
                        Attempt::Again => {}
                    }
                };
                $fiber.checkpoint(0, |_| {}).await;
                Ok(value)
            }
        };
    }

    async fn fails_until(op: &Op, good: u32) -> Result<u32, Trouble> {
        tokio::task::yield_now().await;
        if op.attempt() < good { Err(Trouble::Code(500)) } else { Ok(op.attempt()) }
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_that_succeeds_writes_only_its_checkpoint() {
        let store = Arc::new(Store::default());
        let mut fiber = first_run(&store);
        assert_eq!(step!(fiber, Some(plain()), None, run, |op| fails_until(op, 1).await?).await, Ok(1));
        assert_eq!(store.diary(), ["commit first, 0 go"]);
    }

    #[tokio::test(start_paused = true)]
    async fn each_failed_attempt_is_stored_before_the_wait() {
        let store = Arc::new(Store::default());
        let mut fiber = first_run(&store);
        let begun = Instant::now();
        assert_eq!(step!(fiber, Some(plain()), None, run, |op| fails_until(op, 3).await?).await, Ok(3));
        assert_eq!(begun.elapsed(), seconds(1 + 2));
        assert_eq!(store.diary(), ["save first started failed 1 stash -", "save first started failed 2 stash -", "commit first, 1 go"]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_error_leaves_the_step_and_a_later_run_repeats_the_last_attempt() {
        let store = Arc::new(Store::default());
        let mut fiber = first_run(&store);
        let bodies = Cell::new(0);
        let result: Result<(), _> = step!(fiber, Some(plain()), None, run, |op| {
            bodies.set(bodies.get() + 1);
            op.stash(&op.attempt()).await?;
            Err(Trouble::Code(op.attempt().try_into().unwrap()))?;
        })
        .await;
        assert_eq!((result, bodies.get()), (Err(Trouble::Code(4)), 4));
        assert_eq!(store.diary().last().unwrap(), "save first started failed 3 stash 4");
        let again = step!(fiber, Some(plain()), None, run, |op| fails_until(op, 9).await?).await;
        assert_eq!((again, store.diary().len()), (Err::<u32, _>(Trouble::Code(500)), 3), "the same run may come there again");

        let mut resumed = later_run(&store, 0);
        assert_eq!(step!(resumed, Some(plain()), None, run, |op| (op.attempt(), op.stashed::<u32>()?)).await, Ok((4, Some(4))));
    }

    #[tokio::test(start_paused = true)]
    async fn failed_attempts_survive_a_restart() {
        let store = Arc::new(Store::default());
        let mut fiber = first_run(&store);
        let killed = step!(fiber, Some(plain()), None, run, |op| fails_until(op, 9).await?);
        // In the second wait, which lasts from 1 s to 3 s.
        assert!(tokio::time::timeout(seconds(2), killed).await.is_err());
        store.diary();

        let begun = Instant::now();
        let mut fiber = later_run(&store, 0);
        let result: Result<u32, _> = step!(fiber, Some(plain()), None, run, |op| fails_until(op, 9).await?).await;
        assert_eq!(result, Err(Trouble::Code(500)));
        assert_eq!(begun.elapsed(), seconds(1 + 4), "the rest of the second wait, and the third");
        assert_eq!(store.diary(), ["save first started failed 3 stash -"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_was_killed_is_made_again_under_its_number() {
        let store = Arc::new(Store::default());
        let mut fiber = first_run(&store);
        let killed = step!(fiber, Some(plain()), None, run, |op| {
            fails_until(op, 2).await?;
            sleep(seconds(100)).await;
        });
        assert!(tokio::time::timeout(seconds(50), killed).await.is_err());
        let mut fiber = later_run(&store, 0);
        assert_eq!(step!(fiber, Some(plain()), None, run, |op| op.attempt()).await, Ok(2));
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_takes_too_long_is_dropped_and_has_failed() {
        let store = Arc::new(Store::default());
        let mut fiber = first_run(&store);
        let begun = Instant::now();
        let dropped = Cell::new(0);
        let result: Result<(), _> = step!(fiber, None, Some(seconds(2)), run_within, |_op| {
            let _guard = OnDrop(&dropped);
            sleep(seconds(5)).await;
        })
        .await;
        assert_eq!(result, Err(Trouble::Library("step `first` took longer than 2s".into())));
        assert_eq!((begun.elapsed(), dropped.get()), (seconds(2), 1));
        assert_eq!(store.diary(), [""; 0]);
    }

    struct OnDrop<'a>(&'a Cell<u32>);

    impl Drop for OnDrop<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_took_too_long_is_made_again_if_the_condition_holds() {
        let store = Arc::new(Store::default());
        let slow_then_quick = |op: &Op| sleep(seconds(if op.attempt() == 1 { 5 } else { 1 }));
        let begun = Instant::now();
        let retry = plain().when(|e| matches!(e, Trouble::Library(_)));
        let mut fiber = first_run(&store);
        assert_eq!(
            step!(fiber, Some(retry), Some(seconds(2)), run_within, |op| {
                slow_then_quick(op).await;
                op.attempt()
            })
            .await,
            Ok(2)
        );
        assert_eq!(begun.elapsed(), seconds(2 + 1 + 1));

        let retry = plain().when(|e| matches!(e, Trouble::Code(_)));
        let mut fiber = first_run(&store);
        let result = step!(fiber, Some(retry), Some(seconds(2)), run_within, |op| slow_then_quick(op).await).await;
        assert!(matches!(result, Err(Trouble::Library(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_outside_the_condition_leaves_at_once() {
        let store = Arc::new(Store::default());
        let mut fiber = first_run(&store);
        let retry = plain().when(|e| *e == Trouble::Code(500));
        let result: Result<(), _> = step!(fiber, Some(retry), None, run, |_op| Err(Trouble::Code(404))?).await;
        assert_eq!(result, Err(Trouble::Code(404)));
        assert_eq!(store.diary(), [""; 0]);
    }

    /// What generated code does for a step with `catch` whose body always fails.
    async fn caught(fiber: &crate::frame::activation::Frame, timeout: Option<Duration>) -> StepError {
        let retry = Retry::<std::io::Error>::times(2).backoff(Backoff::none());
        let mut attempts = fiber.attempts(0, Some(retry), timeout);
        loop {
            let body = async {
                if timeout.is_some() {
                    sleep(seconds(100)).await;
                }
                Err::<(), _>(std::io::Error::other("disk"))
            };
            match attempts.run_caught(body, None).await {
                Attempt::Failed(error) => return error,
                Attempt::Again => {}
                Attempt::Done(()) => unreachable!("it always fails"),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_crash_after_a_caught_error_makes_the_last_attempt_again_and_no_other() {
        let store = Arc::new(Store::default());
        let error = caught(&first_run(&store), None).await;
        assert_eq!((error.to_string(), error.attempts()), ("disk".to_owned(), 3));
        assert_eq!(store.diary(), ["save first started failed 1 stash -", "save first started failed 2 stash -"]);

        let mut resumed = later_run(&store, 0);
        assert_eq!(caught(&resumed, None).await.attempts(), 3);
        resumed.checkpoint(0, |_| {}).await;
        assert_eq!(store.diary(), ["commit first, 1 go"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_timeout_is_caught_without_an_error_type_that_knows_it() {
        let store = Arc::new(Store::default());
        let error = caught(&first_run(&store), Some(seconds(1))).await;
        assert_eq!((error.to_string(), error.attempts()), ("step `first` took longer than 1s".to_owned(), 3));
        assert!(error.is_timeout());
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_cannot_count_interrupts_the_fiber() {
        let store = Arc::new(Store::default());
        let fiber = first_run(&store);
        let mut attempts = fiber.attempts::<Trouble>(0, Some(plain()), None);
        store.break_down();
        assert_eq!(interrupted(&fiber, attempts.run(async { Err::<(), _>(Trouble::Code(1)) })).await, "disk on fire");
    }

    #[tokio::test(start_paused = true)]
    async fn jitter_is_the_same_in_every_run_and_differs_between_attempts() {
        let store = Arc::new(Store::default());
        let op = first_run(&store).op(0);
        let again = later_run(&store, 0).op(0);
        assert_eq!(op.chance(1), again.chance(1));
        assert_ne!(op.chance(1), op.chance(2));
    }

    #[test]
    fn a_step_can_be_sent_to_another_thread_if_its_body_can() {
        fn is_send<T: Send>(value: T) -> T {
            value
        }
        let store = Arc::new(Store::default());
        let mut fiber = first_run(&store);
        drop(is_send(step!(fiber, Some(plain()), Some(seconds(1)), run_within, |op| {
            op.stash(&1).await?;
            op.cancelled().await;
        })));
    }
}
