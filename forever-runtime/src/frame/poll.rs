//! Polls one run of a fiber until it returns, stops or panics.
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::error::{ErrorKind, chain};
use crate::frame::activation::Frame;
use crate::frame::context::FiberContext;
use crate::frame::current;
use crate::frame::fiber::{Failure, Fiber};
use crate::frame::run::Run;
use crate::frame::saved::ReturnValue;
use crate::future::BoxFuture;
use crate::guard::{drop_caught, guarded, guarded_text, panic_text};
use crate::runtime::exit::Exit;

/// Runs `frame` until the function returns, stops or panics.
pub(crate) async fn drive<F: Fiber>(
    start: Option<F>,
    ctx: &FiberContext,
    mut frame: Frame,
    run: &Arc<Run>,
) -> Result<Result<F::Output, F::Error>, Exit> {
    let ended = to_end(run, F::drive(start, ctx, &mut frame)).await;
    match exit_in_place_of(Gave::of(&ended), run, frame.missed()) {
        Some(exit) => Err(exit),
        None => ended.map_err(Exit::from),
    }
}

/// What code gave, without its types.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gave {
    Value,
    Error,
    Panic,
    /// It was stopped.
    Nothing,
}

impl Gave {
    fn of<T, E>(ended: &Result<Result<T, E>, End>) -> Self {
        match ended {
            Ok(Ok(_)) => Gave::Value,
            Ok(Err(_)) => Gave::Error,
            Err(End::Panicked(_)) => Gave::Panic,
            Err(End::Stopped(_)) => Gave::Nothing,
        }
    }
}

/// The exit of a run whose end does not count.
fn exit_in_place_of(gave: Gave, run: &Run, missed: Option<String>) -> Option<Exit> {
    if is_void(gave, run) {
        return Some(Exit::cut_off());
    }
    match (gave, missed) {
        (Gave::Nothing, _) | (Gave::Panic, None) => None,
        // It ran past the place that it was to go on from: whatever it did is not this fiber's end.
        (_, Some(why)) => Some(Exit::unfit(why)),
        (Gave::Value, None) => run.ops.passed_over().map(Exit::parked),
        (Gave::Error, None) => run.take_unreadable().map(Exit::unfit),
    }
}

/// Whether an end is no outcome because the runtime closes.
fn is_void(gave: Gave, run: &Run) -> bool {
    match gave {
        Gave::Value => run.ended_early(|_| false),
        Gave::Error | Gave::Panic => run.is_interrupted(),
        Gave::Nothing => false,
    }
}

/// End of code that did not return.
#[derive(Debug)]
pub(crate) enum End {
    Stopped(Exit),
    Panicked(String),
}

impl From<End> for Exit {
    fn from(end: End) -> Self {
        match end {
            End::Stopped(exit) => exit,
            End::Panicked(message) => Exit::failed(format!("panicked: {message}")),
        }
    }
}

/// The end of code, unless it is no outcome because the runtime closes.
pub(crate) fn counted<T, E>(run: &Run, ended: Result<Result<T, E>, End>) -> Result<Result<T, E>, End> {
    if is_void(Gave::of(&ended), run) { Err(End::Stopped(Exit::cut_off())) } else { ended }
}

/// Runs the code of a fiber until it returns, stops or panics.
///
/// A called function is polled in its caller's place until it returns, so the stack does not grow
/// with the calls.
pub(crate) async fn to_end<T: Send>(run: &Arc<Run>, code: impl Future<Output = T> + Send) -> Result<T, End> {
    let mut returned = None;
    poll_to_end(run, pin!(async { returned = Some(code.await) })).await?;
    Ok(returned.unwrap_or_else(|| unreachable!("it has ended")))
}

/// Not compiled for each function.
async fn poll_to_end(run: &Arc<Run>, mut code: Pin<&mut (dyn Future<Output = ()> + Send)>) -> Result<(), End> {
    let mut calls = Calls::default();
    poll_fn(|cx| {
        loop {
            let within = current::enter(run);
            run.step.resume();
            let polled = catch_unwind(AssertUnwindSafe(|| match calls.0.last_mut() {
                Some(innermost) => innermost.as_mut().poll(cx).map(|()| None),
                None => code.as_mut().poll(cx).map(Some),
            }));
            run.step.suspend();
            drop(within);
            match polled {
                Err(payload) => return Poll::Ready(Err(End::Panicked(panic_text(payload)))),
                Ok(Poll::Ready(Some(()))) => return Poll::Ready(Ok(())),
                Ok(Poll::Ready(None)) => drop(calls.0.pop()),
                Ok(Poll::Pending) => match (run.take_stopped(), run.take_called()) {
                    (Some(stopped), _) => return Poll::Ready(Err(End::Stopped(stopped))),
                    (None, Some(called)) => calls.0.push(called),
                    (None, None) => return Poll::Pending,
                },
            }
        }
    })
    .await
}

/// The functions on the call stack, outermost first.
#[derive(Default)]
struct Calls(Vec<BoxFuture<'static, ()>>);

impl Drop for Calls {
    /// In the order in which the values of nested functions are dropped: the innermost first.
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}

/// A run whose every panic is a failure of its fiber: in the code, in the text of its error, and
/// when its values are dropped, even if it is dropped under way.
pub(crate) struct Guarded<'a>(Option<BoxFuture<'a, Exit>>);

impl<'a> Guarded<'a> {
    pub(crate) fn new(code: BoxFuture<'a, Exit>) -> Self {
        Guarded(Some(code))
    }
}

impl Future for Guarded<'_> {
    type Output = Exit;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Exit> {
        // A run that has ended is not polled again.
        let Some(code) = &mut self.0 else { return Poll::Pending };
        let outcome = match catch_unwind(AssertUnwindSafe(|| code.as_mut().poll(cx))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(outcome)) => outcome,
            Err(payload) => Exit::failed(format!("panicked: {}", panic_text(payload))),
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

/// The exit of a run, without its types.
pub fn exit_of<T: ReturnValue, E: Failure>(returned: Result<Result<T, E>, Exit>) -> Exit {
    match returned {
        Ok(Ok(value)) => match guarded(|| value.__saved().save()) {
            Ok(text) => Exit::Completed(text.into()),
            Err(why) => Exit::failed(format!("the result cannot be saved: {why}")),
        },
        Ok(Err(error)) => Exit::failed(text_of_failure(error)),
        // A stored value cannot be read: a retry would not help.
        Err(Exit::Interrupted(error)) if error.kind() == ErrorKind::Value => Exit::parked(chain(&*error)),
        Err(Exit::Unreadable { why, migrates: false, .. }) => Exit::Unfit(why),
        Err(exit) => exit,
    }
}

/// The text of an error that the function has returned.
pub(crate) fn text_of_failure(error: impl Failure) -> String {
    guarded_text(|| {
        let error = error.into();
        let text = chain(&*error);
        drop_caught(error);
        text
    })
}
