//! The one place where chat calls code of the program: hooks, policies, tools, models, and what their errors say.
//!
//! A panic in it is the failure of that call and of nothing else. Each caller says what follows.
use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};

use futures_util::FutureExt;
use tracing::warn;

use crate::agent::BoxError;
use crate::error::chain;
use crate::guard::{guarded_text, panic_text};

/// What people are told of an error unless the program says otherwise.
pub(super) const USUAL_TEXT: &str = "An error occurred.";

/// What code of the program gives.
pub(super) fn called<T>(code: impl FnOnce() -> T) -> Result<T, BoxError> {
    catch_unwind(AssertUnwindSafe(code)).map_err(panicked)
}

/// What code of the program gives; after a panic, which is logged, what stands in for it.
pub(super) fn called_or<T>(what: &str, code: impl FnOnce() -> T, instead: impl FnOnce() -> T) -> T {
    called(code).unwrap_or_else(|why| {
        warn!(error = %why, "`{what}` panicked, and what is usual is done in its place");
        instead()
    })
}

/// What asynchronous code of the program gives.
pub(super) async fn awaited<T, F: Future<Output = Result<T, BoxError>>>(code: impl FnOnce() -> F) -> Result<T, BoxError> {
    caught(called(code)?).await?
}

/// What a future gives in which code of the program may run.
pub(super) async fn caught<T>(future: impl Future<Output = T>) -> Result<T, BoxError> {
    AssertUnwindSafe(future).catch_unwind().await.map_err(panicked)
}

/// An error of the program as text, with its causes.
pub(super) fn text_of(error: &BoxError) -> String {
    guarded_text(|| chain(&**error))
}

/// What an error of the program says itself.
pub(super) fn said_of(error: &BoxError) -> String {
    called(|| error.to_string()).unwrap_or_else(|_| text_of(error))
}

fn panicked(payload: Box<dyn Any + Send>) -> BoxError {
    format!("panicked: {}", panic_text(payload)).into()
}
