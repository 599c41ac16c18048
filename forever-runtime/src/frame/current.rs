//! The fiber whose code the thread is running: ambient functions and restored handles find their
//! runtime through it.
//!
//! The driver sets it around every poll of a fiber, so it is right across `.await`s and never leaks
//! into a task that the fiber spawns.
use std::cell::RefCell;
use std::sync::Arc;

use crate::frame::run::Run;
use crate::runtime::link::Link;
use crate::runtime::state::Runtime;

thread_local! {
    static NOW: RefCell<Option<Arc<Run>>> = const { RefCell::new(None) };
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

/// Notes that code of the current fiber, if there is one, has observed that its runtime closes.
pub(crate) fn sees_closing() {
    // Errors are also made while a thread ends.
    if let Some(run) = NOW.try_with(|now| now.borrow().clone()).ok().flatten() {
        run.sees_closing(None);
    }
}

/// Link to the runtime of the current fiber.
pub(crate) fn link() -> Link<Runtime> {
    run().map_or(Link::None, |run| run.backend.link())
}
