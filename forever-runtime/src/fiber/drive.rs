//! Drives one run of a fiber to its end: returned, stopped or panicked.
use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use super::frame::{Frame, Run, Stopped};
use super::registry::Outcome;
use super::within;
use super::{Fiber, FiberContext};
use crate::future::BoxFuture;

/// How a run ended.
#[derive(Debug)]
pub(crate) enum Ended<T, E> {
    Returned(Result<T, E>),
    Stopped(Stopped),
    Panicked(String),
}

/// Runs `frame` until the function returns, stops or panics.
pub(crate) async fn drive<F: Fiber>(start: Option<F>, ctx: &FiberContext, mut frame: Frame, run: &Arc<Run>) -> Ended<F::Output, F::Error> {
    let ended = to_end(run, F::drive(start, ctx, &mut frame)).await;
    match (ended, frame.missed()) {
        // It ran past the place that it was to go on from: whatever it did is not this fiber's end.
        (Ended::Returned(_) | Ended::Panicked(_), Some(why)) => Ended::Stopped(Stopped::Parked(why)),
        (Ended::Returned(Ok(value)), None) => match run.ops.passed_over() {
            Some(why) => Ended::Stopped(Stopped::Parked(why)),
            None => Ended::Returned(Ok(value)),
        },
        (Ended::Returned(Err(error)), None) => match run.take_unreadable() {
            Some(why) => Ended::Stopped(Stopped::Parked(why)),
            None => Ended::Returned(Err(error)),
        },
        (ended, _) => ended,
    }
}

/// Runs the code of a fiber until it returns, stops or panics.
///
/// A function that it calls is polled in its place until that has returned: the stack does not grow with the calls.
pub(crate) async fn to_end<T, E>(run: &Arc<Run>, code: impl Future<Output = Result<T, E>>) -> Ended<T, E> {
    let mut future = pin!(code);
    let mut calls = Calls::default();
    poll_fn(|cx| {
        loop {
            let within = within::enter(run);
            run.step.resume();
            let polled = catch_unwind(AssertUnwindSafe(|| match calls.0.last_mut() {
                Some(innermost) => innermost.as_mut().poll(cx).map(|()| None),
                None => future.as_mut().poll(cx).map(Some),
            }));
            run.step.suspend();
            drop(within);
            match polled {
                Err(payload) => return Poll::Ready(Ended::Panicked(panic_text(payload))),
                Ok(Poll::Ready(Some(result))) => return Poll::Ready(Ended::Returned(result)),
                Ok(Poll::Ready(None)) => drop(calls.0.pop()),
                Ok(Poll::Pending) => match (run.take_stopped(), run.take_called()) {
                    (Some(stopped), _) => return Poll::Ready(Ended::Stopped(stopped)),
                    (None, Some(called)) => calls.0.push(called),
                    (None, None) => return Poll::Pending,
                },
            }
        }
    })
    .await
}

/// The functions that are being called, outermost first.
#[derive(Default)]
struct Calls(Vec<BoxFuture<'static, ()>>);

impl Drop for Calls {
    /// As values of nested functions are: the innermost one's first.
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}

/// The message of a panic. What was thrown is the program's too, and its drop may panic again.
pub(crate) fn panic_text(payload: Box<dyn Any + Send>) -> String {
    let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("a value that is not text").to_owned();
    drop_caught(payload);
    text
}

/// Drops what belongs to the program. A panic ends here: it has been printed by then.
pub(crate) fn drop_caught<T>(value: T) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        std::mem::forget(payload);
    }
}

/// A run of which every panic is the failure of its fiber: in the code, in the text of its error, and in
/// the drop of what it holds, also when it is dropped under way.
pub(crate) struct Guarded<'a>(Option<BoxFuture<'a, Outcome>>);

impl<'a> Guarded<'a> {
    pub(crate) fn new(code: BoxFuture<'a, Outcome>) -> Self {
        Guarded(Some(code))
    }
}

impl Future for Guarded<'_> {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        // One that has ended is not polled again.
        let Some(code) = &mut self.0 else { return Poll::Pending };
        let outcome = match catch_unwind(AssertUnwindSafe(|| code.as_mut().poll(cx))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(outcome)) => outcome,
            Err(payload) => Outcome::Failed(format!("panicked: {}", panic_text(payload))),
        };
        drop_caught(self.0.take());
        Poll::Ready(outcome)
    }
}

impl Drop for Guarded<'_> {
    fn drop(&mut self) {
        drop_caught(self.0.take());
    }
}
