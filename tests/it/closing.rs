//! `close()` waits for bodies, and for no wait of ours: its deadline is by a clock that stands here, so that it would never come.
use std::time::Duration;

use forever::fiber::{Fiber, FiberState};
use forever::prelude::*;
use forever::testing::VirtualClock;
use forever_testkit::waiting::{eventually, soon};

const HOUR: Duration = Duration::from_secs(3600);

fn hourly() -> Retry<anyhow::Error> {
    Retry::times(9).backoff(Backoff::fixed(HOUR))
}

/// With pauses in which the fiber stays in memory.
fn soon_again() -> Retry<anyhow::Error> {
    Retry::times(9).backoff(Backoff::fixed(Duration::from_millis(20)))
}

async fn fails() -> anyhow::Result<u64> {
    tokio::task::yield_now().await;
    anyhow::bail!("not yet")
}

#[fiber]
async fn sleeps() -> anyhow::Result<u64> {
    sleep!(HOUR);
    Ok(1)
}

#[fiber]
async fn receives() -> anyhow::Result<u64> {
    Ok(recv!("topic"))
}

#[fiber]
async fn receives_in_time() -> anyhow::Result<u64> {
    Ok(recv!("topic", timeout = HOUR).unwrap_or(1))
}

#[fiber]
async fn joins() -> anyhow::Result<u64> {
    let child = spawn!(sleeps());
    Ok(wait!(child)?)
}

#[fiber]
async fn joins_all() -> anyhow::Result<u64> {
    let first = spawn!(sleeps());
    let second = spawn!(receives());
    Ok(wait_all!([&first, &second]).len() as u64)
}

#[fiber]
async fn selects() -> anyhow::Result<u64> {
    let child = spawn!(sleeps());
    Ok(select! {
        value = recv!("topic") => value,
        _ = sleep!(HOUR) => 1,
        value = wait!(child) => value?,
    })
}

#[fiber]
async fn retries() -> anyhow::Result<u64> {
    Ok(step!("ask", retry = hourly(), fails().await?))
}

#[fiber]
async fn retries_in_memory() -> anyhow::Result<u64> {
    Ok(step!("ask", retry = soon_again(), fails().await?))
}

#[fiber]
async fn retries_an_effect_in_memory() -> anyhow::Result<u64> {
    Ok(step!("charge", effect, retry = soon_again(), fails().await?))
}

#[fiber]
async fn retries_in_time() -> anyhow::Result<u64> {
    Ok(step!("ask", retry = hourly(), timeout = HOUR, fails().await?))
}

#[fiber]
async fn retries_and_catches() -> anyhow::Result<u64> {
    Ok(step!("ask", retry = hourly(), catch, fails().await?).unwrap_or(1))
}

#[fiber]
async fn retries_an_effect() -> anyhow::Result<u64> {
    Ok(step!("charge", effect, retry = hourly(), fails().await?))
}

#[fiber]
async fn retries_branches() -> anyhow::Result<u64> {
    let (asked, charged) =
        steps!(step!("ask", retry = hourly(), fails().await?), step!("charge", effect, retry = hourly(), fails().await?));
    let all = steps!(for n in 0..3u64, limit = 2, retry = hourly(), n + fails().await?);
    Ok(asked + charged + all.len() as u64)
}

/// Comes to the wait, and closes; the fiber is where it was in the next process.
async fn is_not_waited_for<F: Fiber<Output = u64>>(call: F) {
    let folder = tempfile::tempdir().unwrap();
    let clock = VirtualClock::new();
    let open = || {
        let builder = Forever::builder().sqlite(folder.path().join("fibers.db")).clock(clock.clone());
        builder.fiber::<sleeps>().fiber::<receives>().fiber::<F>().open()
    };
    let name = F::MACHINE.name;
    let forever = open().await.unwrap();
    let handle = forever.spawn(call).id("f").await.unwrap();
    let waits = async || {
        let status = handle.status().await.unwrap();
        status.state == FiberState::Waiting || status.retry.is_some()
    };
    eventually(name, waits).await;
    soon(name, forever.close()).await.unwrap();
    let forever = soon(name, open()).await.unwrap();
    let status = forever.fiber::<F>("f").status().await.unwrap();
    let is_alive = !matches!(status.state, FiberState::Completed | FiberState::Failed | FiberState::Cancelled | FiberState::Parked);
    assert!(is_alive && status.deaths == 0, "{status:?}");
    soon(name, forever.close()).await.unwrap();
}

macro_rules! are_not_waited_for {
    ($($function:ident)*) => {
        $(is_not_waited_for($function()).await;)*
    };
}

#[tokio::test(start_paused = true)]
async fn close_waits_for_none_of_the_waits_of_fibers() {
    are_not_waited_for!(receives_in_time joins joins_all selects);
    are_not_waited_for!(retries retries_in_time retries_and_catches retries_an_effect retries_branches);
    are_not_waited_for!(retries_in_memory retries_an_effect_in_memory);
}
