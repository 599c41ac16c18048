//! The fiber whose code the thread is running: ambient functions and restored handles find their
//! runtime through it.
//!
//! The driver sets it around every poll of a fiber, so it is right across `.await`s and never leaks
//! into a task that the fiber spawns.
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;

use crate::frame::run::Run;
use crate::runtime::link::Link;
use crate::runtime::state::Runtime;

thread_local! {
    static NOW: RefCell<Option<Arc<Run>>> = const { RefCell::new(None) };
    /// Whether the hook that the thread is running has observed that its runtime closes.
    static SAW_CLOSING: Cell<bool> = const { Cell::new(false) };
}

/// Runs a hook; gives its value, and whether it has observed that its runtime closes.
pub(crate) async fn watched<T>(hook: impl Future<Output = T>) -> (T, bool) {
    let (mut hook, mut saw) = (pin!(hook), false);
    poll_fn(|cx| {
        let outer = SAW_CLOSING.replace(false);
        let polled = hook.as_mut().poll(cx);
        saw |= SAW_CLOSING.replace(outer);
        polled.map(|value| (value, saw))
    })
    .await
}

/// Makes a fiber the current one of the thread until the guard is dropped.
pub(crate) fn enter(run: &Arc<Run>) -> Within {
    Within { before: NOW.replace(Some(Arc::clone(run))) }
}

/// Guard that restores the previous current fiber.
pub(crate) struct Within {
    before: Option<Arc<Run>>,
}

impl Drop for Within {
    fn drop(&mut self) {
        NOW.set(self.before.take());
    }
}

/// The current fiber of the thread.
pub(crate) fn run() -> Option<Arc<Run>> {
    NOW.with_borrow(Clone::clone)
}

/// Notes that the code of a fiber or a hook which the thread is running, if there is any, has
/// observed that its runtime closes.
pub(crate) fn sees_closing() {
    let _ = SAW_CLOSING.try_with(|saw| saw.set(true));
    // Errors are also made while a thread ends.
    if let Some(run) = NOW.try_with(|now| now.borrow().clone()).ok().flatten() {
        run.sees_closing(None);
    }
}

/// Link to the runtime of the current fiber.
pub(crate) fn link() -> Link<Runtime> {
    run().map_or(Link::None, |run| run.backend.link())
}
