//! Tracing span of the current step.
//!
//! The body of a step is code of the function, not a future of its own, so that it may use `?` and
//! change locals. So its span is entered and left by hand: entered when the body begins, left when
//! the task yields, and entered again at the next poll.
use std::sync::{Mutex, MutexGuard, PoisonError};

use tracing::{Span, info_span};

/// The span of the step under way, if there is one.
#[derive(Debug, Default)]
pub(crate) struct StepSpan(Mutex<Option<Span>>);

impl StepSpan {
    /// Opens the span of a step, inside a poll.
    pub(crate) fn begin(&self, step: &'static str) {
        // A step that ended in an error which the function handled is over now.
        self.end();
        let span = info_span!("step", step.name = step);
        if !span.is_none() {
            enter(&span);
            *self.span() = Some(span);
        }
    }

    /// Closes the span, inside a poll.
    pub(crate) fn end(&self) {
        if let Some(span) = self.span().take() {
            exit(&span);
        }
    }

    /// Enters the span when a poll of the fiber begins.
    pub(crate) fn resume(&self) {
        if let Some(span) = &*self.span() {
            enter(span);
        }
    }

    /// Leaves the span when a poll of the fiber ends.
    pub(crate) fn suspend(&self) {
        if let Some(span) = &*self.span() {
            exit(span);
        }
    }

    fn span(&self) -> MutexGuard<'_, Option<Span>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn enter(span: &Span) {
    span.with_subscriber(|(id, subscriber)| subscriber.enter(id));
}

fn exit(span: &Span) {
    span.with_subscriber(|(id, subscriber)| subscriber.exit(id));
}
