//! What can be seen of a fiber whose step fails and is retried.
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use forever::Clock;
use forever::fiber::{EventItem, EventKind, Events, Fiber, FiberState};
use forever::ops::OnUnknown;
use forever::prelude::*;
use forever::testing::VirtualClock;
use forever_testkit::database;

use crate::support::{soon, until};

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

    // Another process counts on from there, and makes the next attempt when it is due.
    let forever = builder().open().await.unwrap();
    clock.advance(MINUTE * 2);
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

/// When each fiber has asked, by its number.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<BTreeMap<u64, Vec<SystemTime>>>>);

impl Calls {
    /// Refuses all but the last one of [`ATTEMPTS`].
    fn ask(&self, n: u64, now: SystemTime) -> anyhow::Result<u64> {
        let mut calls = self.0.lock().unwrap();
        let of_fiber = calls.entry(n).or_default();
        of_fiber.push(now);
        anyhow::ensure!(of_fiber.len() == ATTEMPTS as usize, "busy");
        Ok(n)
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap().values().map(Vec::len).sum()
    }
}

const ATTEMPTS: u32 = 5;
const FIBERS: u32 = 200;
const DEPLOYS: u32 = 10;

fn patient() -> Retry<anyhow::Error> {
    Retry::times(ATTEMPTS - 1).backoff(Backoff::fixed(MINUTE * 10))
}

#[fiber]
async fn asks_in_a_step(ctx: &FiberContext, calls: Res<Calls>, n: u64) -> anyhow::Result<u64> {
    Ok(step!("ask", retry = patient(), calls.ask(n, ctx.clock().now())?))
}

#[fiber]
async fn asks_in_a_branch(ctx: &FiberContext, calls: Res<Calls>, n: u64) -> anyhow::Result<u64> {
    let (asked, ()) = steps!(step!("ask", retry = patient(), calls.ask(n, ctx.clock().now())?), step!("note", ()));
    Ok(asked)
}

/// With the default policy, under which an effect in doubt parks its fiber.
#[fiber]
async fn asks_in_an_effect(ctx: &FiberContext, calls: Res<Calls>, n: u64) -> anyhow::Result<u64> {
    Ok(step!("ask", effect, retry = patient(), calls.ask(n, ctx.clock().now())?))
}

async fn come_through_deploys<F: Fiber<Output = u64>>(call: impl Fn(u64) -> F) {
    let folder = tempfile::tempdir().unwrap();
    let (clock, calls) = (VirtualClock::new(), Calls::default());
    let open = || {
        let builder = Forever::builder().sqlite(folder.path().join("fibers.db"));
        builder.clock(clock.clone()).resource(calls.clone()).fiber::<F>().open()
    };
    let begun = clock.now();
    let mut forever = soon("a database", open()).await.unwrap();
    for n in 0..u64::from(FIBERS) {
        forever.spawn(call(n)).id(n.to_string()).await.unwrap();
    }
    until("the first attempts", || calls.count() == FIBERS as usize).await;
    // Its deadline is by a clock that stands: who waits for a time is not waited for.
    for _ in 0..DEPLOYS {
        soon("a close", forever.close()).await.unwrap();
        clock.advance(MINUTE / DEPLOYS);
        forever = soon("a database", open()).await.unwrap();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(calls.count(), FIBERS as usize, "none was asked for before its time");
    for n in 0..u64::from(FIBERS) {
        let handle = forever.fiber::<F>(&n.to_string());
        let ended = loop {
            tokio::select! {
                biased;
                ended = handle.wait() => break ended,
                () = tokio::time::sleep(Duration::from_millis(1)) => drop(clock.next_sleeper().map(|left| clock.advance(left))),
            }
        };
        assert_eq!(ended.unwrap(), n);
    }
    forever.close().await.unwrap();
    for (n, at) in &*calls.0.lock().unwrap() {
        assert_eq!(at.len(), ATTEMPTS as usize, "attempts of {n}");
        assert!(at[0] == begun && at.windows(2).all(|pair| pair[1].duration_since(pair[0]).unwrap() >= MINUTE * 10), "{n}: {at:?}");
    }
    println!("fibers={FIBERS} deploys={DEPLOYS} attempts={}", calls.count());
}

#[tokio::test]
async fn attempts_of_a_step_keep_their_times_over_ten_deploys() {
    come_through_deploys(asks_in_a_step).await;
}

#[tokio::test]
async fn attempts_of_a_branch_keep_their_times_over_ten_deploys() {
    come_through_deploys(asks_in_a_branch).await;
}

#[tokio::test]
async fn attempts_of_an_effect_keep_their_times_over_ten_deploys() {
    come_through_deploys(asks_in_an_effect).await;
}

/// A service that says how long to wait.
#[derive(Debug)]
struct Busy(Duration);

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "busy for {:?}", self.0)
    }
}

impl std::error::Error for Busy {}

#[fiber]
async fn asks_politely(ctx: &FiberContext, calls: Res<Calls>) -> Result<u64, Busy> {
    let retry = Retry::times(4).backoff(Backoff::none()).when_after(|busy: &Busy| Some(busy.0));
    let asked = step!("ask", retry = retry, calls.ask(1, ctx.clock().now()).map_err(|_| Busy(MINUTE * 7))?);
    Ok(asked)
}

#[tokio::test]
async fn error_says_how_long_the_next_attempt_waits() {
    let (clock, calls) = (VirtualClock::new(), Calls::default());
    let builder = Forever::builder().in_memory().clock(clock.clone()).resource(calls.clone());
    let forever = builder.fiber::<asks_politely>().open().await.unwrap();
    let handle = forever.spawn(asks_politely()).await.unwrap();
    let ended = loop {
        tokio::select! {
            biased;
            ended = handle.wait() => break ended,
            () = tokio::time::sleep(Duration::from_millis(1)) => clock.advance(MINUTE),
        }
    };
    assert_eq!(ended.unwrap(), 1);
    let at = &calls.0.lock().unwrap()[&1];
    assert!(at.windows(2).all(|pair| pair[1].duration_since(pair[0]).unwrap() >= MINUTE * 7), "{at:?}");
}
