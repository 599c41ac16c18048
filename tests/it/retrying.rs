//! What can be seen of a fiber whose step fails and is retried.
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use forever::Clock;
use forever::fiber::{EventItem, EventKind, Events, Fiber, FiberState};
use forever::ops::{OnUnknown, Op};
use forever::prelude::*;
use forever::testing::VirtualClock;
use forever_testkit::waiting::{eventually, over_time, settled, soon};

use crate::support::stands;

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
        // On its way out of memory, or into it.
        let possible = [FiberState::Running, FiberState::Waiting, FiberState::Pending, FiberState::Interrupted];
        assert!(possible.contains(&status.state), "{status:?}");
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
    eventually("the third failure", async || shown(&forever).await.failed == 3).await;
    let retry = shown(&forever).await;
    assert_eq!((retry.error.as_str(), retry.next_attempt), ("1 to go: connection refused", clock.now() + MINUTE * 4));
    let handle = forever.fiber::<F>("f");
    assert_eq!(over_time("the end", handle.wait(), || clock.advance(MINUTE)).await.unwrap(), 7);
    assert_eq!(handle.status().await.unwrap().retry, None);
    forever.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_retried_step_shows_its_attempts_its_error_and_when_it_is_next() {
    shows_its_retries(asks(), "ask").await;
}

#[tokio::test(start_paused = true)]
async fn a_retried_effect_in_a_branch_shows_the_same() {
    shows_its_retries(pays(), "steps[pay]").await;
}

#[fiber]
async fn asks_in_vain(server: Res<Server>) -> anyhow::Result<u32> {
    Ok(step!("ask", retry = Retry::times(3).backoff(Backoff::fixed(Duration::from_millis(1))), server.ask().await?))
}

#[fiber]
async fn asks_and_compensates(begun: Res<Arc<AtomicU32>>) -> anyhow::Result<u32> {
    match call!(asks_in_vain()) {
        Ok(answer) => Ok(answer),
        Err(_) => Ok(step!("compensate", |op| {
            begun.fetch_add(1, Ordering::Relaxed);
            op.closing().await;
            8
        })),
    }
}

#[tokio::test(start_paused = true)]
async fn restart_repeats_the_last_attempt_alone_when_all_are_used_up() {
    let folder = tempfile::tempdir().unwrap();
    let (server, begun) = (Server::default(), Arc::<AtomicU32>::default());
    server.down.store(1000, Ordering::Relaxed);
    let open = || {
        let builder = Forever::builder().sqlite(folder.path().join("fibers.db")).resource(server.clone()).resource(begun.clone());
        builder.fiber::<asks_and_compensates>().fiber::<asks_in_vain>().open()
    };
    let mut asked = Vec::new();
    for deploy in 1..=3 {
        let forever = open().await.unwrap();
        forever.spawn(asks_and_compensates()).id("f").await.unwrap();
        eventually("it compensates", async || begun.load(Ordering::Relaxed) == deploy).await;
        asked.push(1000 - server.down.load(Ordering::Relaxed));
        forever.close().await.unwrap();
    }
    assert_eq!(asked, [4, 5, 6]);

    // A person resumes one that has failed: that is another matter.
    let forever = open().await.unwrap();
    let handle = forever.spawn(asks_in_vain()).id("g").await.unwrap();
    assert!(soon("its end", handle.wait()).await.unwrap_err().is_failed());
    let before = server.down.load(Ordering::Relaxed);
    handle.resume().await.unwrap();
    assert!(soon("its end", handle.wait()).await.unwrap_err().is_failed());
    assert_eq!(before - server.down.load(Ordering::Relaxed), 4);
    forever.close().await.unwrap();
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
    eventually("the first attempts", async || calls.count() == FIBERS as usize).await;
    // Its deadline is by a clock that stands: who waits for a time is not waited for.
    for _ in 0..DEPLOYS {
        soon("a close", forever.close()).await.unwrap();
        clock.advance(MINUTE / DEPLOYS);
        forever = soon("a database", open()).await.unwrap();
        settled().await;
    }
    assert_eq!(calls.count(), FIBERS as usize, "none was asked for before its time");
    for n in 0..u64::from(FIBERS) {
        let handle = forever.fiber::<F>(&n.to_string());
        let passes = || clock.advance(clock.next_sleeper().unwrap_or_default());
        assert_eq!(over_time("the end", handle.wait(), passes).await.unwrap(), n);
    }
    forever.close().await.unwrap();
    for (n, at) in &*calls.0.lock().unwrap() {
        assert_eq!(at.len(), ATTEMPTS as usize, "attempts of {n}");
        assert!(at[0] == begun && at.windows(2).all(|pair| pair[1].duration_since(pair[0]).unwrap() >= MINUTE * 10), "{n}: {at:?}");
    }
    println!("fibers={FIBERS} deploys={DEPLOYS} attempts={}", calls.count());
}

#[tokio::test(start_paused = true)]
async fn attempts_of_a_step_keep_their_times_over_ten_deploys() {
    come_through_deploys(asks_in_a_step).await;
}

#[tokio::test(start_paused = true)]
async fn attempts_of_a_branch_keep_their_times_over_ten_deploys() {
    come_through_deploys(asks_in_a_branch).await;
}

#[tokio::test(start_paused = true)]
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

#[tokio::test(start_paused = true)]
async fn error_says_how_long_the_next_attempt_waits() {
    let (clock, calls) = (VirtualClock::new(), Calls::default());
    let builder = Forever::builder().in_memory().clock(clock.clone()).resource(calls.clone());
    let forever = builder.fiber::<asks_politely>().open().await.unwrap();
    let handle = forever.spawn(asks_politely()).await.unwrap();
    assert_eq!(over_time("the end", handle.wait(), || clock.advance(MINUTE)).await.unwrap(), 1);
    let at = &calls.0.lock().unwrap()[&1];
    assert!(at.windows(2).all(|pair| pair[1].duration_since(pair[0]).unwrap() >= MINUTE * 7), "{at:?}");
}

/// What the code of a fiber has done, in order.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    fn note(&self, entry: impl Into<String>) {
        self.0.lock().unwrap().push(entry.into());
    }

    /// Fails until the third attempt, and notes what it has found.
    async fn ask(&self, op: &Op, question: &str) -> anyhow::Result<u32> {
        self.note(format!("{question} {} of {}, {:?} there", op.attempt(), op.id(), op.stashed::<u32>()?));
        op.stash(&op.attempt()).await?;
        anyhow::ensure!(op.attempt() == 3, "busy");
        Ok(op.attempt())
    }

    /// What was done, with each id as its place among the ids.
    fn read(&self) -> Vec<String> {
        let mut ids: Vec<String> = Vec::new();
        let entries = self.0.lock().unwrap().clone();
        let read = |entry: String| match entry.split_once(" of ") {
            None => entry,
            Some((before, rest)) => {
                let (id, after) = rest.split_once(',').unwrap();
                let place = ids.iter().position(|known| known == id).unwrap_or_else(|| {
                    ids.push(id.to_owned());
                    ids.len() - 1
                });
                format!("{before} of op {place},{after}")
            }
        };
        entries.into_iter().map(read).collect()
    }
}

/// What the question is made of is not needed after the step, and the code before it must not run again.
#[fiber]
async fn prepares_and_asks(diary: Res<Diary>, topic: String) -> anyhow::Result<u32> {
    diary.note("prepares");
    let question = format!("how is {topic}?");
    let answer = step!("ask", retry = patient(), |op| diary.ask(op, &question).await?);
    diary.note("goes on");
    Ok(answer + step!("more", 1))
}

#[fiber]
async fn prepares_and_catches(diary: Res<Diary>, topic: String) -> anyhow::Result<u32> {
    let before = step!("before", 1u32);
    diary.note("prepares");
    let question = format!("how is {topic}?");
    match step!("ask", retry = patient(), timeout = MINUTE, catch, |op| diary.ask(op, &question).await?) {
        Ok(answer) => Ok(answer + before),
        Err(error) => anyhow::bail!("{error}"),
    }
}

#[fiber]
async fn prepares_and_pays(diary: Res<Diary>, topic: String) -> anyhow::Result<u32> {
    diary.note("prepares");
    let question = format!("how is {topic}?");
    let paid = step!("pay", effect, key = &topic, retry = patient(), |op| diary.ask(op, &question).await?);
    Ok(paid + 1)
}

/// Whose outcome is unknown at each failure.
#[fiber]
async fn prepares_and_pays_in_doubt(diary: Res<Diary>, topic: String) -> anyhow::Result<u32> {
    diary.note("prepares");
    let question = format!("how is {topic}?");
    let paid = step!("pay", effect, on_unknown = OnUnknown::Retry, retry = patient(), |op| {
        diary.ask(op, &question).await.map_err(|error| op.unknown(error))?
    });
    Ok(paid + 1)
}

/// In a loop and a condition, and in a function that is called.
#[fiber]
async fn calls_what_prepares(diary: Res<Diary>, topic: String) -> anyhow::Result<u32> {
    let mut answers = 0;
    for part in ["a", "b"] {
        let question = format!("{topic} {part}");
        diary.note("calls");
        if answers > 0 && step!("ask", retry = patient(), |op| diary.ask(op, &question).await?) > 2 {
            answers += 10;
        }
        answers += call!(prepares_and_asks(question))?;
    }
    Ok(answers - 14)
}

#[fiber]
async fn prepares_and_asks_side_by_side(diary: Res<Diary>, topic: String) -> anyhow::Result<u32> {
    diary.note("prepares");
    let question = format!("how is {topic}?");
    let (asked, ()) = steps!(step!("ask", retry = patient(), |op| diary.ask(op, &question).await?), step!("note", diary.note("beside it")));
    Ok(asked + 1)
}

#[fiber]
async fn prepares_and_asks_for_each(diary: Res<Diary>, topic: String) -> anyhow::Result<u32> {
    diary.note("prepares");
    let asked = steps!(for part in [1, 2], limit = 1, retry = patient(), |op| diary.ask(op, &format!("{topic} {part}?")).await?);
    Ok(asked.iter().sum::<u32>() - 2)
}

/// In each pause the fiber waits as in a `sleep!`, with nothing of it in memory, in one process and over deploys.
async fn waits_out_of_memory<F: Fiber<Output = u32>>(call: impl Fn() -> F) -> Vec<String> {
    let mut read = Vec::new();
    for deploys in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (clock, diary) = (VirtualClock::new(), Diary::default());
        let open = || {
            let builder = Forever::builder().sqlite(folder.path().join("fibers.db")).clock(clock.clone()).resource(diary.clone());
            builder.fiber::<prepares_and_asks>().fiber::<F>().open()
        };
        let mut forever = open().await.unwrap();
        forever.spawn(call()).id("f").await.unwrap();
        loop {
            let status = forever.fiber::<F>("f").status().await.unwrap();
            match status.state {
                FiberState::Completed => break,
                FiberState::Waiting => {
                    let retry = status.retry.unwrap();
                    assert_eq!((retry.error.as_str(), retry.next_attempt), ("busy", clock.now() + MINUTE * 10));
                    if deploys {
                        soon("a close", forever.close()).await.unwrap();
                        forever = open().await.unwrap();
                    }
                    let asked = diary.read().len();
                    clock.advance(MINUTE * 10);
                    eventually("the next attempt", async || diary.read().len() > asked).await;
                }
                FiberState::Pending | FiberState::Running | FiberState::Interrupted => settled().await,
                other => panic!("{other:?}: {status:?}"),
            }
        }
        assert_eq!(forever.fiber::<F>("f").wait().await.unwrap(), 4);
        assert_eq!(forever.fiber::<F>("f").status().await.unwrap().retry, None);
        forever.close().await.unwrap();
        read.push(diary.read());
    }
    assert_eq!(read[0], read[1]);
    read.remove(0)
}

const ASKED: [&str; 3] =
    ["how is tea? 1 of op 0, None there", "how is tea? 2 of op 0, Some(1) there", "how is tea? 3 of op 0, Some(2) there"];

#[tokio::test(start_paused = true)]
async fn fiber_leaves_memory_before_an_attempt_and_its_code_does_not_run_again() {
    let topic = || "tea".to_owned();
    let asked = |before: &[&'static str], after: &[&'static str]| [before, &ASKED, after].concat();
    assert_eq!(waits_out_of_memory(|| prepares_and_asks(topic())).await, asked(&["prepares"], &["goes on"]));
    assert_eq!(waits_out_of_memory(|| prepares_and_catches(topic())).await, asked(&["prepares"], &[]));
    assert_eq!(waits_out_of_memory(|| prepares_and_pays(topic())).await, asked(&["prepares"], &[]));
    assert_eq!(waits_out_of_memory(|| prepares_and_pays_in_doubt(topic())).await, asked(&["prepares"], &[]));
}

#[tokio::test(start_paused = true)]
async fn fiber_leaves_memory_in_a_called_function_as_well() {
    let of = |question: &str, op: u32| {
        [(1, "None"), (2, "Some(1)"), (3, "Some(2)")].map(|(n, stashed)| format!("{question} {n} of op {op}, {stashed} there")).to_vec()
    };
    let note = |text: &str| vec![text.to_owned()];
    let expected = [
        note("calls"),
        note("prepares"),
        of("how is tea a?", 0),
        note("goes on"),
        note("calls"),
        of("tea b", 1),
        note("prepares"),
        of("how is tea b?", 2),
        note("goes on"),
    ];
    assert_eq!(waits_out_of_memory(|| calls_what_prepares("tea".to_owned())).await, expected.concat());
}

#[tokio::test(start_paused = true)]
async fn fiber_leaves_memory_when_each_branch_that_runs_waits_for_its_next_attempt() {
    let asked = waits_out_of_memory(|| prepares_and_asks_side_by_side("tea".to_owned())).await;
    let asks: Vec<&String> = asked.iter().filter(|entry| entry.starts_with("how")).collect();
    assert_eq!((asks.len(), asked.len(), asked[0].as_str()), (3, 5, "prepares"), "{asked:?}");
    let asked = waits_out_of_memory(|| prepares_and_asks_for_each("tea".to_owned())).await;
    assert_eq!(asked.len(), 7, "{asked:?}");
}

/// A branch that works keeps the fiber in memory.
#[fiber]
async fn asks_beside_work(work: Res<Work>, diary: Res<Diary>) -> anyhow::Result<u32> {
    let (asked, ()) = steps!(step!("ask", retry = patient(), |op| diary.ask(op, "what?").await?), step!("work", work.done().await));
    Ok(asked)
}

/// Work that ends when the test says so.
#[derive(Clone, Default)]
struct Work(Arc<tokio::sync::Notify>);

impl Work {
    async fn done(&self) {
        self.0.notified().await;
    }
}

#[tokio::test(start_paused = true)]
async fn fiber_stays_in_memory_while_another_branch_works() {
    let (clock, diary, work) = (VirtualClock::new(), Diary::default(), Work::default());
    let builder = Forever::builder().in_memory().clock(clock.clone()).resource(diary.clone()).resource(work.clone());
    let forever = builder.fiber::<asks_beside_work>().open().await.unwrap();
    let mut events = forever.events();
    let handle = forever.spawn(asks_beside_work()).await.unwrap();
    failed(&mut events, 1).await;
    settled().await;
    assert_eq!(handle.status().await.unwrap().state, FiberState::Running);
    work.0.notify_one();
    for asked in 1..3 {
        // When the work is done, and after the second attempt.
        stands(&handle, FiberState::Waiting).await;
        clock.advance(MINUTE * 10);
        eventually("the next attempt", async || diary.read().len() > asked).await;
    }
    assert_eq!(handle.wait().await.unwrap(), 3);
    assert_eq!(diary.read().len(), 3);
}
