//! Waits for what has to happen, with one deadline for all.
//!
//! On tokio's paused time the deadline has passed when nothing moves any more, and a test fails at
//! once.
use std::future::IntoFuture;
use std::time::Duration;

use tokio::time::{sleep, timeout};

/// How long anything may take. No test is about this time.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// The output of a future that has to come to its end.
///
/// # Panics
/// When the deadline has passed.
pub async fn soon<T>(what: &str, future: impl IntoFuture<Output = T>) -> T {
    let Ok(output) = timeout(DEADLINE, future.into_future()).await else { panic!("this never came: {what}") };
    output
}

/// Looks until something holds that gives no signal of its own.
///
/// # Panics
/// When the deadline has passed.
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    soon(what, async {
        while !holds().await {
            // Paused time moves on only while all tasks wait.
            sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

/// Lets all tasks go on until they wait. On paused time: only then it moves.
pub async fn settled() {
    sleep(Duration::from_millis(1)).await;
}
