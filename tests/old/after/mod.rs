//! What becomes of what the databases hold: each of these finishes what the program of one version has left, and looks at it.
pub(crate) mod eight;
pub(crate) mod eleven;
pub(crate) mod five;
pub(crate) mod four;
pub(crate) mod nine;
pub(crate) mod one;
pub(crate) mod seven;
pub(crate) mod six;
pub(crate) mod ten;
pub(crate) mod thirteen;
pub(crate) mod three;
pub(crate) mod twelve;
pub(crate) mod two;

use std::future::Future;
use std::time::Duration;

/// What comes of `future`, which must not take long.
pub(crate) async fn soon<T>(what: &str, future: impl IntoFuture<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(30), future).await {
        Ok(value) => value,
        Err(elapsed) => panic!("{what} takes too long: {elapsed}"),
    }
}

/// Waits until that is so.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut so: impl FnMut() -> F) {
    let all = async {
        while !so().await {
            tokio::task::yield_now().await;
        }
    };
    soon(what, all).await;
}
