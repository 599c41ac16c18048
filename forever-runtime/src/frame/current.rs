//! The fiber whose code the thread is running: ambient functions and restored handles find their
//! runtime through it.
//!
//! The driver sets it around every poll of a fiber, so it is right across `.await`s and never leaks
//! into a task that the fiber spawns.
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Once};

use crate::frame::run::Run;
use crate::runtime::link::Link;
use crate::runtime::state::Runtime;
use crate::secret::{HIDDEN, plain, shown};

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
    if run.secrets.holds() {
        hush_panics();
    }
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
    // Errors are also made, and panics reported, while a thread ends.
    NOW.try_with(|now| now.borrow().clone()).ok().flatten()
}

/// Notes that the code of a fiber or a hook which the thread is running, if there is any, has
/// observed that its runtime closes.
pub(crate) fn sees_closing() {
    let _ = SAW_CLOSING.try_with(|saw| saw.set(true));
    if let Some(run) = run() {
        run.sees_closing(None);
    }
}

/// Link to the runtime of the current fiber.
pub(crate) fn link() -> Link<Runtime> {
    run().map_or(Link::None, |run| run.backend.link())
}

/// A text for the program. A fiber gets of another one's only that there is one, since nothing
/// would mark the texts that it makes of it.
pub fn told(text: &str) -> &str {
    if run().is_some() { shown(text) } else { plain(text) }
}

/// Whether a fiber that the current code spawns may be given a secret.
pub(crate) fn spawns_with_secret() -> bool {
    run().is_some_and(|run| run.secrets.mentions())
}

/// From now on, a panic in code that may hold a secret is reported without its message.
fn hush_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| match (run().filter(|run| run.secrets.mentions()), panic.location()) {
            (Some(_), Some(at)) => eprintln!("the code of a fiber panicked at {at}; the message is {HIDDEN}"),
            (Some(_), None) => eprintln!("the code of a fiber panicked; the message is {HIDDEN}"),
            (None, _) => usual(panic),
        }));
    });
}
