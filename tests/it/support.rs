//! What several of these tests use.
use std::future::IntoFuture;
use std::time::Duration;

/// How long nothing may happen before a test is called hung.
pub(crate) const LONGEST: Duration = Duration::from_secs(60);

/// What comes of a future, which must not take longer than [`LONGEST`].
pub(crate) async fn soon<T>(what: &str, future: impl IntoFuture<Output = T>) -> T {
    tokio::time::timeout(LONGEST, future.into_future()).await.unwrap_or_else(|_| panic!("{what} never came"))
}

/// Waits until something holds that gives no signal of its own.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    soon(what, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}
