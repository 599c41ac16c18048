//! Guards calls of the program's code: a panic becomes an error of the fiber that runs it.
use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};

use futures_util::FutureExt;

/// The message of a panic. The payload belongs to the program, and its drop may panic again.
pub fn panic_text(payload: Box<dyn Any + Send>) -> String {
    let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("a value that is not text").to_owned();
    drop_caught(payload);
    text
}

/// Drops a value of the program, ignoring a panic, which has been printed already.
pub(crate) fn drop_caught<T>(value: T) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        std::mem::forget(payload);
    }
}

/// The text of an error of the program, or a substitute if formatting it panics.
pub fn guarded_text(text: impl FnOnce() -> String) -> String {
    guarded(|| Ok(text())).unwrap_or_else(|why| format!("an error whose text cannot be had: it {why}"))
}

/// Runs the program's code outside the function (serde impls, `migrate`): a panic fails only this
/// fiber.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| Err(panicked(payload)))
}

/// As [`guarded`], for code that is async.
pub(crate) async fn guarded_future<F: Future>(work: impl FnOnce() -> F) -> Result<F::Output, String> {
    let work = catch_unwind(AssertUnwindSafe(work)).map_err(panicked)?;
    AssertUnwindSafe(work).catch_unwind().await.map_err(panicked)
}

fn panicked(payload: Box<dyn Any + Send>) -> String {
    format!("panicked: {}", panic_text(payload))
}
