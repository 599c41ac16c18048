//! Calls of the program's code from the chat layer: hooks, policies, tools, models, and texts of
//! errors. All of them go through here.
//!
//! A panic makes that call fail, and nothing else. Each caller decides what follows.
use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};

use forever_runtime::__layers::{chain, guarded_text, panic_text};
use forever_runtime::BoxError;
use futures_util::FutureExt;
use tracing::warn;

/// Text shown to clients for an error, by default.
pub(super) const USUAL_TEXT: &str = "An error occurred.";

/// Calls code of the program; a panic is an error.
pub(super) fn called<T>(code: impl FnOnce() -> T) -> Result<T, BoxError> {
    catch_unwind(AssertUnwindSafe(code)).map_err(panicked)
}

/// Calls code of the program; after a panic, which is logged, returns the value of `instead`.
pub(super) fn called_or<T>(what: &str, code: impl FnOnce() -> T, instead: impl FnOnce() -> T) -> T {
    called(code).unwrap_or_else(|why| {
        warn!(error = %why, "`{what}` panicked, and the default is used instead");
        instead()
    })
}

/// Awaits asynchronous code of the program; a panic is an error.
pub(super) async fn awaited<T, F: Future<Output = Result<T, BoxError>>>(code: impl FnOnce() -> F) -> Result<T, BoxError> {
    caught(called(code)?).await?
}

/// Awaits a future that may run code of the program; a panic is an error.
pub(super) async fn caught<T>(future: impl Future<Output = T>) -> Result<T, BoxError> {
    AssertUnwindSafe(future).catch_unwind().await.map_err(panicked)
}

/// An error of the program as text, with its causes.
pub(super) fn text_of(error: &BoxError) -> String {
    guarded_text(|| chain(&**error))
}

/// The message of an error of the program.
pub(super) fn said_of(error: &BoxError) -> String {
    called(|| error.to_string()).unwrap_or_else(|_| text_of(error))
}

fn panicked(payload: Box<dyn Any + Send>) -> BoxError {
    format!("panicked: {}", panic_text(payload)).into()
}
