//! What can be seen of a fiber whose step fails and is retried.
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use forever::Clock;
use forever::fiber::{EventItem, EventKind, Events, Fiber, FiberState};
use forever::ops::OnUnknown;
use forever::prelude::*;
use forever::testing::VirtualClock;
use forever_testkit::database;

const MINUTE: Duration = Duration::from_secs(60);

/// A server that is down for so many requests.
#[derive(Clone, Default)]
struct Server {
    down: Arc<AtomicU32>,
}

impl Server {
    async fn ask(&self) -> anyhow::Result<u32> {
        tokio::task::yield_now().await;
        let down = self.down.load(Ordering::Relaxed);
        if down == 0 {
            return Ok(7);
        }
        self.down.store(down - 1, Ordering::Relaxed);
        Err(anyhow::anyhow!("connection refused").context(format!("{down} to go")))
    }
}

#[fiber]
async fn asks(server: Res<Server>) -> anyhow::Result<u32> {
    let backoff = Backoff::exponential(MINUTE, MINUTE * 10).no_jitter();
    let answer = step!("ask", retry = Retry::times(5).backoff(backoff), server.ask().await?);
    Ok(answer)
}

#[fiber]
async fn pays(server: Res<Server>) -> anyhow::Result<u32> {
    let backoff = Backoff::exponential(MINUTE, MINUTE * 10).no_jitter();
    let (paid, ()) = steps!(
        step!("pay", effect, on_unknown = OnUnknown::Retry, retry = Retry::times(5).backoff(backoff), server.ask().await?),
        step!("note", tokio::task::yield_now().await)
    );
    Ok(paid)
}

/// Waits until so many attempts have failed; gives the error that is told.
async fn failed(events: &mut Events, times: u32) -> String {
    loop {
        match events.next().await.unwrap() {
            EventItem::Event(event) => match event.kind {
                EventKind::StepRetried { failed, error, .. } if failed == times => return error.to_string(),
                _ => {}
            },
            told @ EventItem::Lagged(_) => panic!("{told:?}"),
        }
    }
}

async fn shows_its_retries<F: Fiber<Output = u32>>(call: F, step: &str) {
    let folder = tempfile::tempdir().unwrap();
    let (clock, server) = (VirtualClock::new(), Server::default());
    server.down.store(3, Ordering::Relaxed);
    let builder = || {
        let builder = Forever::builder().sqlite(folder.path().join("fibers.db"));
        builder.clock(clock.clone()).resource(server.clone()).fiber::<F>()
    };
    let forever = builder().open().await.unwrap();
    let mut events = forever.events();
    let handle = forever.spawn(call).id("f").await.unwrap();
    let shown = async |forever: &Forever| {
        let status = forever.fiber::<F>("f").status().await.unwrap();
        // Interrupted until another process has claimed it; over Postgres ready for any.
        let left = if database::is_in_postgres() { FiberState::Pending } else { FiberState::Interrupted };
        assert!(status.state == FiberState::Running || status.state == left, "{status:?}");
        status.retry.unwrap()
    };
    assert_eq!(failed(&mut events, 1).await, "3 to go: connection refused");
    let retry = shown(&forever).await;
    assert_eq!((retry.step.as_str(), retry.failed, retry.error.as_str()), (step, 1, "3 to go: connection refused"));
    assert_eq!(retry.next_attempt, clock.now() + MINUTE);
    clock.advance(MINUTE);
    assert_eq!(failed(&mut events, 2).await, "2 to go: connection refused");
    let retry = shown(&forever).await;
    assert_eq!((retry.failed, retry.next_attempt), (2, clock.now() + MINUTE * 2));
    assert_eq!(forever.fibers().await.unwrap().fibers[0].retry, Some(retry), "the list shows it as well");
    drop((handle, events, forever));

    // Another process goes on counting where that one was.
    let forever = builder().open().await.unwrap();
    while shown(&forever).await.failed < 3 {
        tokio::task::yield_now().await;
    }
    let retry = shown(&forever).await;
    assert_eq!((retry.error.as_str(), retry.next_attempt), ("1 to go: connection refused", clock.now() + MINUTE * 4));
    let handle = forever.fiber::<F>("f");
    let ended = loop {
        tokio::select! {
            biased;
            ended = handle.wait() => break ended,
            () = tokio::time::sleep(Duration::from_millis(5)) => clock.advance(MINUTE),
        }
    };
    assert_eq!(ended.unwrap(), 7);
    assert_eq!(handle.status().await.unwrap().retry, None);
    forever.close().await.unwrap();
}

#[tokio::test]
async fn a_retried_step_shows_its_attempts_its_error_and_when_it_is_next() {
    shows_its_retries(asks(), "ask").await;
}

#[tokio::test]
async fn a_retried_effect_in_a_branch_shows_the_same() {
    shows_its_retries(pays(), "steps[pay]").await;
}
