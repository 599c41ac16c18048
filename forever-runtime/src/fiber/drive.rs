//! Drives one run of a fiber to its end: returned, stopped or panicked.
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use super::frame::{BoxFuture, Frame, Run, Stopped};
use super::within;
use super::{Fiber, FiberContext};

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
                Err(payload) => return Poll::Ready(Ended::Panicked(panic_message(payload.as_ref()))),
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

pub(crate) fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a value that is not text").to_owned()
}
