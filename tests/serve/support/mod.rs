//! What the tests share: an agent whose answers are scripted (`scripted`), places in which it is served (`place`), and clients: of web sockets
//! (`client`), of requests (`request`), and of bytes that no library would send (`raw`).
pub(crate) mod bank;
pub(crate) mod client;
pub(crate) mod events;
pub(crate) mod panics;
pub(crate) mod place;
pub(crate) mod raw;
pub(crate) mod request;
pub(crate) mod scripted;

use std::future::Future;
use std::time::Duration;

/// How long something that has to happen may take on a machine that is busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for something that has to happen.
pub(crate) async fn soon<F: Future>(what: &str, happens: F) -> F::Output {
    tokio::time::timeout(PATIENCE, happens).await.unwrap_or_else(|_| panic!("it does not happen: {what}"))
}

/// Tries until it holds.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    soon(what, async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}
