//! `steps!` in every position, and crashed at each result, in several orders of arrival.
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use forever::prelude::{Backoff, Res, Retry, fiber};
use forever::testing::{Outcome, Stage, StartFrom};

use super::harness::{
    Io, Letters, names, places, plain_call as call, plain_recv as recv, plain_sleep as sleep, plain_step as step, plain_steps as steps,
    same, same_with, twin,
};

/// What is done side by side is done in this order only if it is done at once.
async fn now<T>(io: &Io, what: impl Into<String>, value: T) -> anyhow::Result<T> {
    io.log(what);
    Ok(value)
}

twin! {
    async fn positions(io, list: Vec<u32>, fiber: String) -> anyhow::Result<String> {
        let mut found = Vec::new();
        let (a, b) = steps!(io.get("a", list.len()).await, io.did("b", fiber.len()).await?);
        found.push(a + b);
        let both: (u32, String) = steps!(
            {
                let mut sum = 0;
                for n in &list {
                    if *n == 2 { continue; }
                    sum += n;
                }
                io.did("block", sum).await?
            },
            io.get("text", format!("{fiber}{}", found.len())).await,
        );
        let doubled = steps!(for n in &list, limit = 2, now(&io, format!("double {n}"), n * 2).await?);
        for n in list.clone() {
            let (x, _, y) = steps!(io.get(format!("x {n}"), n).await, found.len(), { let n = n + 1; io.did(format!("y {n}"), n).await? });
            found.push((x + y) as usize);
            if n > 1 && steps!(n, io.did("and", true).await?).1 {
                steps!(for (i, x) in found.iter().enumerate().skip(2), now(&io, format!("unit {i} {x}"), ()).await?);
            }
        }
        match steps!(for mut text in vec![fiber.clone(), String::new()], { text.push('!'); now(&io, text.clone(), text).await? }).as_slice() {
            [first, ..] if list.len() > 1 => Ok(format!("{first} {both:?} {doubled:?} {found:?}")),
            other => { let n = step!(io.did("other", other.len()).await?); let all = steps!(for x in found, x); Ok(format!("{n} {}", all.len())) }
        }
    }
}

#[test]
fn steps_stand_wherever_an_await_would() {
    let seen = same(|| positions(vec![1, 2, 3], "fiber".into()));
    assert!(seen.outcome.starts_with("Completed("), "{}", seen.outcome);
    same(|| positions(vec![], String::new()));
    same(|| positions(vec![7], "x".into()));
}

twin! {
    async fn errors(io, n: u32) -> anyhow::Result<u32> {
        let kept = vec![n];
        let (a, b) = steps!(
            if n == 1 { io.fails("first").await? } else { n },
            if n == 2 { io.fails("second").await? } else { kept[0] },
        );
        let all = steps!(for i in 0..4u32, if i == n { anyhow::bail!("item {i}") } else { i });
        Ok(a + b + all.len() as u32)
    }
}

#[test]
fn the_first_error_is_the_fibers() {
    assert_eq!(same(|| errors(1)).outcome, r#"Failed("first failed")"#);
    assert_eq!(same(|| errors(2)).outcome, r#"Failed("second failed")"#);
    assert_eq!(same(|| errors(3)).outcome, r#"Failed("item 3")"#);
    assert_eq!(same(|| errors(9)).outcome, "Completed(22)");
}

twin! {
    async fn with_waits(io, n: u32) -> anyhow::Result<u32> {
        let answer: u32 = recv!("n");
        let (a, b) = steps!(io.get("a", answer).await, io.get("b", n).await);
        sleep!(Duration::from_secs(1));
        let all = steps!(for i in 0..recv!("n"), limit = a as usize, now(&io, format!("{i}"), i).await?);
        let inner = if n > 0 { call!(with_waits(n - 1))? } else { step!(io.did("bottom", 0).await?) };
        Ok(a + b + all.len() as u32 + inner)
    }
}

#[test]
fn steps_stand_among_waits_and_in_callees() {
    let letters = [1, 2, 3, 4].into_iter().fold(Letters::default(), |letters, n: u32| letters.with("n", n));
    let seen = same_with(letters, || with_waits(1));
    assert_eq!(seen.outcome, "Completed(11)");
    assert_eq!(places(&seen.snapshots[..5]), ["answer pending", "answer", "steps pending", "steps", "sleep"]);
    assert_eq!(names(&seen.snapshots[2]), ["answer", "n"]);
    assert_eq!(names(&seen.snapshots[3]), ["a", "b", "n"]);
    assert!(seen.snapshots.iter().any(|s| s.contains(r#""all items":[0,1]"#)), "{:#?}", seen.snapshots);
}

/// Lets branches finish only when it is their turn.
#[derive(Clone, Default)]
struct Turns(Arc<Mutex<(Vec<u32>, Vec<Waker>)>>);

impl Turns {
    fn give(&self, branch: u32) {
        let mut turns = self.0.lock().unwrap();
        turns.0.push(branch);
        turns.1.drain(..).for_each(Waker::wake);
    }

    async fn of(&self, branch: u32) {
        poll_fn(|cx| {
            let mut turns = self.0.lock().unwrap();
            if turns.0.contains(&branch) {
                return Poll::Ready(());
            }
            turns.1.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

#[fiber]
async fn three(io: Res<Io>, turns: Res<Turns>, base: u32) -> anyhow::Result<String> {
    let label = step!(io.did("label", format!("n{base}")).await?);
    let moved = label.clone();
    let (a, b, c) = steps!(
        {
            turns.of(0).await;
            io.did(format!("{label} 0"), base).await?
        },
        {
            turns.of(1).await;
            io.did(format!("{label} 1"), label.len()).await?
        },
        {
            turns.of(2).await;
            io.did(format!("{label} 2"), moved).await?
        },
    );
    step!(io.did("end", ()).await?);
    Ok(format!("{label} {a} {b} {c}"))
}

#[fiber]
async fn each(io: Res<Io>, turns: Res<Turns>, base: u32) -> anyhow::Result<String> {
    let label = step!(io.did("label", format!("n{base}")).await?);
    let items = (0..3u32).map(|n| (n, format!("{label} {n}"))).collect::<Vec<_>>();
    let all = steps!(for (n, what) in items, { turns.of(n).await; io.did(what, n + base).await? });
    step!(io.did("end", ()).await?);
    Ok(format!("{label} {all:?}"))
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Polls a future as long as it gets on; what it came to, or `None` if it is stuck.
fn as_far_as_it_gets<T>(future: impl Future<Output = T>, mut stuck: impl FnMut() -> bool) -> Option<T> {
    let woken = Arc::new(Woken(AtomicBool::new(true)));
    let waker = Waker::from(Arc::clone(&woken));
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        while woken.0.swap(false, Ordering::Relaxed) {
            if let Poll::Ready(value) = future.as_mut().poll(&mut cx) {
                return Some(value);
            }
        }
        if stuck() {
            return None;
        }
        woken.0.store(true, Ordering::Relaxed);
    }
}

/// Crashes a fiber with three branches when so many of them have given a result, in every order, and resumes it.
fn crashed_at_each_result<F: forever::fiber::Fiber<Output = String>>(make: impl Fn() -> F, want: &str) {
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for order in orders {
        for arrived in 0..=3 {
            let (io, turns) = (Io::default(), Turns::default());
            let stage = Stage::new().resource(io.clone()).resource(turns.clone());
            let begun = as_far_as_it_gets(stage.run(StartFrom::Start(make()), Some(2)), || panic!("it comes to its branches")).unwrap();
            assert_eq!(begun.outcome, Outcome::Killed);
            let pending = begun.snapshots[1].clone();
            // One branch after the other has its turn; then the process is gone.
            let mut given = order.into_iter().take(arrived);
            let crashed = as_far_as_it_gets(stage.run::<F>(StartFrom::Snapshot(pending.clone()), Some(1)), || match given.next() {
                Some(branch) => {
                    turns.give(branch);
                    false
                }
                None => true,
            });
            assert_eq!(crashed.is_some(), arrived == 3, "{order:?} {arrived}");
            let done: Vec<String> = order[..arrived].iter().map(|n| format!("n7 {n}")).collect();
            assert_eq!(io.taken()[1..], done, "{order:?} {arrived}");
            // From before the branches, also when all of them were done.
            (0..3).for_each(|n| turns.give(n));
            let from = crashed.and_then(|c| c.snapshots.last().cloned()).unwrap_or(pending);
            let resumed = as_far_as_it_gets(stage.run::<F>(StartFrom::Snapshot(from), None), || panic!("nothing holds it")).unwrap();
            assert_eq!(resumed.outcome, Outcome::Completed(want.to_owned()), "{order:?} {arrived}");
            let mut log = io.taken();
            log[1..4].sort();
            assert_eq!(log, ["label", "n7 0", "n7 1", "n7 2", "end"], "{order:?} {arrived}: each branch once");
        }
    }
}

#[test]
fn each_branch_runs_once_in_whatever_order_they_arrive() {
    crashed_at_each_result(|| three(7), "n7 7 2 n7");
    crashed_at_each_result(|| each(7), "n7 [7, 8, 9]");
}

#[derive(Clone, Default)]
struct Busy(Arc<Mutex<(u32, u32)>>);

impl Busy {
    async fn work(&self) -> u32 {
        {
            let mut busy = self.0.lock().unwrap();
            busy.0 += 1;
            busy.1 = busy.1.max(busy.0);
        }
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        let mut busy = self.0.lock().unwrap();
        busy.0 -= 1;
        busy.1
    }
}

#[fiber]
async fn limited(busy: Res<Busy>, limit: usize) -> anyhow::Result<u32> {
    let seen = steps!(for _ in 0..10, limit = limit, busy.work().await);
    Ok(seen.into_iter().max().unwrap_or(0))
}

#[test]
fn no_more_run_at_once_than_the_limit_says() {
    for limit in [1, 3, 10, 20] {
        let busy = Busy::default();
        let stage = Stage::new().resource(busy);
        let played = as_far_as_it_gets(stage.run(StartFrom::Start(limited(limit)), None), || panic!("nothing holds it")).unwrap();
        assert_eq!(played.outcome, Outcome::Completed(u32::try_from(limit.min(10)).unwrap()));
    }
}

twin! {
    async fn twelve(io, n: u32) -> anyhow::Result<u32> {
        let (a, b, c, d, e, f, g, h, i, j, k, l) = steps!(n, n, n, n, n, n, n, n, n, n, n, io.did("l", 1).await?);
        Ok(a + b + c + d + e + f + g + h + i + j + k + l)
    }
}

#[test]
fn twelve_run_side_by_side() {
    assert_eq!(same(|| twelve(1)).outcome, "Completed(12)");
}

/// The branches of a step with options are steps: named, tried again, with an op each.
#[fiber]
async fn options(io: Res<Io>, list: Vec<u32>) -> anyhow::Result<String> {
    let mut list = list;
    list.push(9);
    let twice = Retry::times(1).backoff(Backoff::none());
    let (a, b, c) = steps!(
        step!("first", retry = twice, |op| {
            if op.attempt() == 1 { io.fails("first").await? } else { io.did("again", op.attempt()).await? }
        }),
        step!("second", effect, key = list.len(), |op| {
            io.log("second");
            op.id().len()
        }),
        io.did("third", list.len()).await?,
    );
    let ids = steps!(for n in &list, limit = 1, retry = twice, effect, key = n, |op| {
        if op.attempt() == 1 && *n == 9 { io.fails("item").await?; }
        (op.id().to_owned(), *n)
    });
    list.clear();
    let caught = steps!(for n in 0..2, limit = 1, timeout = Duration::from_secs(60), catch, step_of(&io, n).await?);
    let named = steps!(for n in [5], step!("named", |op| { io.log("named"); op.attempt() + n }));
    step!(io.did("end", ()).await?);
    let mut different: Vec<&String> = ids.iter().map(|(id, _)| id).collect();
    different.sort();
    different.dedup();
    Ok(format!(
        "{a} {b} {c} {} {} {:?} {named:?} {}",
        ids.len(),
        different.len(),
        caught[1].as_ref().map_err(ToString::to_string),
        list.len()
    ))
}

async fn step_of(io: &Io, n: u32) -> anyhow::Result<u32> {
    if n == 1 { io.fails("one").await } else { io.did("zero", n).await }
}

#[test]
fn branches_take_the_options_of_a_step() {
    let (outcome, log, snapshots) = super::harness::everywhere(|| options(vec![1, 2]));
    assert_eq!(outcome, r#"Completed("2 32 3 3 3 Err(\"one failed\") [6] 0")"#);
    let mut sorted = log[..4].to_vec();
    sorted.sort();
    assert_eq!(sorted, ["again", "first", "second", "third"]);
    assert_eq!(log[4..], ["item", "zero", "one", "named", "end"]);
    assert!(places(&snapshots).contains(&"named".to_owned()), "{:?}", places(&snapshots));
}

#[fiber]
async fn boxed(io: Res<Io>, n: u32) -> Result<u32, forever::BoxError> {
    let (a, b) = steps!(io.did("a", n).await?, n + 1);
    Ok(a + b)
}

#[test]
fn branches_stand_in_a_function_whose_error_is_boxed() {
    assert_eq!(super::harness::everywhere(|| boxed(2)).0, "Completed(5)");
}
