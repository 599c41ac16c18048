//! Which fiber's code the thread is running now: what ambient functions and restored handles find their runtime by.
//!
//! Set by the driver around every poll of a fiber, so it is right across `.await`s and never leaks into a task that the fiber spawns.
use std::cell::RefCell;
use std::sync::Arc;

use crate::frame::run::Run;
use crate::runtime::link::Link;
use crate::runtime::state::Runtime;

thread_local! {
    static NOW: RefCell<Option<Arc<Run>>> = const { RefCell::new(None) };
}

/// Makes a fiber the one that the thread runs, until the guard goes.
pub(crate) fn enter(run: &Arc<Run>) -> Within {
    Within { before: NOW.replace(Some(Arc::clone(run))) }
}

/// Restores what was before.
pub(crate) struct Within {
    before: Option<Arc<Run>>,
}

impl Drop for Within {
    fn drop(&mut self) {
        NOW.set(self.before.take());
    }
}

/// The fiber that the thread runs.
pub(crate) fn run() -> Option<Arc<Run>> {
    NOW.with_borrow(Clone::clone)
}

/// The way to the runtime of the fiber that the thread runs.
pub(crate) fn link() -> Link<Runtime> {
    run().map_or(Link::None, |run| run.backend.link())
}
