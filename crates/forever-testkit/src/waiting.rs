//! Waits for what has to happen, with one deadline for all: when it has passed, a test panics.
//!
//! On tokio's paused time it has passed when nothing moves any more, and a test fails at once.
use std::future::IntoFuture;
use std::time::Duration;

use tokio::time::{sleep, timeout};

/// How long anything may take. No test is about this time.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Between two looks. Paused time moves on only while all tasks wait.
const MOMENT: Duration = Duration::from_millis(1);

/// The output of a future that has to come to its end.
pub fn soon<T>(what: &str, future: impl IntoFuture<Output = T>) -> impl Future<Output = T> {
    // Some are large, and stand in the futures of tests.
    let future = Box::pin(future.into_future());
    async move { timeout(DEADLINE, future).await.unwrap_or_else(|_| panic!("this never came: {what}")) }
}

/// The output of a future that comes to its end while time passes, some of it with each call of `passes`.
pub async fn over_time<T>(what: &str, future: impl IntoFuture<Output = T>, mut passes: impl FnMut()) -> T {
    let mut future = Box::pin(future.into_future());
    soon(what, async {
        loop {
            match timeout(MOMENT, future.as_mut()).await {
                Ok(output) => break output,
                Err(_) => passes(),
            }
        }
    })
    .await
}

/// Looks until something is there that gives no signal of its own.
pub async fn found<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    soon(what, async {
        loop {
            if let Some(found) = look().await {
                break found;
            }
            settled().await;
        }
    })
    .await
}

/// Looks until something holds that gives no signal of its own.
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    found(what, async || holds().await.then_some(())).await;
}

/// Lets all tasks go on until they wait. On paused time: only then it moves.
pub async fn settled() {
    sleep(MOMENT).await;
}
