//! When values are dropped, and which values a fiber may hold between threads.
//!
//! What is observed: a value that is needed after a step is dropped where the plain function drops it. A value that is not
//! needed any more at a step is not in its snapshot, so a resumed run has none to drop: its drop happened in the run before.
use std::cell::{Cell, RefCell};
use std::sync::Mutex;

use forever::prelude::{Res, fiber};
use serde::{Deserialize, Serialize};

use super::harness::{Io, everywhere, plain_step as step, same, twin};

thread_local! {
    pub(super) static DROPPED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Noisy(pub(super) String, #[serde(skip)] Original);

/// Whether a value was made by the body, not read from a snapshot.
#[derive(Debug, Default)]
struct Original(bool);

impl Drop for Noisy {
    fn drop(&mut self) {
        if self.1.0 {
            DROPPED.with_borrow_mut(|d| d.push(self.0.clone()));
        }
    }
}

pub(super) fn noisy(name: &str) -> Noisy {
    Noisy(name.to_owned(), Original(true))
}

pub(super) fn dropped() -> Vec<String> {
    DROPPED.take()
}

/// What is dropped in a plain run and in a run of the fiber without a kill, with the marks that the body itself makes.
pub(super) fn drops<F: super::harness::Twin>(make: impl Fn() -> F) -> (Vec<String>, Vec<String>)
where
    F::Output: std::fmt::Debug,
{
    use forever::testing::{Stage, StartFrom};
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    dropped();
    runtime.block_on(make().plain()).ok();
    let plain = dropped();
    runtime.block_on(Stage::new().resource(Io::default()).run(StartFrom::Start(make()), None));
    (plain, dropped())
}

pub(super) fn mark(text: &str) {
    DROPPED.with_borrow_mut(|d| d.push(format!("-{text}")));
}

twin! {
    async fn needed_to_the_end(io, n: u32) -> anyhow::Result<u32> {
        let first = noisy("first");
        let second = noisy("second");
        step!("one", io.did("one", ()).await?);
        {
            let inner = noisy("inner");
            step!("two", io.did("two", ()).await?);
            mark(&inner.0);
        }
        mark("after inner");
        step!("three", io.did("three", ()).await?);
        mark(&first.0);
        mark(&second.0);
        Ok(n)
    }
}

#[test]
fn values_needed_to_the_end_of_their_block_are_dropped_in_reverse_order_there() {
    let (plain, fiber) = drops(|| needed_to_the_end(1));
    assert_eq!(plain, ["-inner", "inner", "-after inner", "-first", "-second", "second", "first"]);
    assert_eq!(fiber, plain);
}

twin! {
    async fn round(io, n: u32) -> anyhow::Result<u32> {
        for i in 0..n {
            let value = noisy(&format!("v{i}"));
            step!("one", io.did("one", ()).await?);
            if i == 1 { mark("continue"); mark(&value.0); continue }
            step!("two", io.did("two", ()).await?);
            mark(&format!("end of {i} {}", value.0));
        }
        Ok(n)
    }
}

#[test]
fn a_value_of_a_round_is_dropped_at_its_end() {
    let (plain, fiber) = drops(|| round(3));
    assert_eq!(plain, ["-end of 0 v0", "v0", "-continue", "-v1", "v1", "-end of 2 v2", "v2"]);
    assert_eq!(fiber, plain);
}

twin! {
    async fn replaced(io, n: u32) -> anyhow::Result<u32> {
        let mut value = noisy("a");
        step!("one", io.did(value.0.clone(), ()).await?);
        mark(&value.0);
        value = noisy("b");
        mark("set");
        step!("two", io.did("two", ()).await?);
        drop(value);
        mark("dropped");
        value = noisy("c");
        step!("three", io.did("three", ()).await?);
        mark(&value.0);
        Ok(n)
    }
}

#[test]
fn a_replaced_value_is_dropped_when_it_is_replaced() {
    let (plain, fiber) = drops(|| replaced(1));
    assert_eq!(plain, ["-a", "a", "-set", "b", "-dropped", "-c", "c"]);
    assert_eq!(fiber, plain);
}

twin! {
    async fn early(io, n: u32) -> anyhow::Result<u32> {
        let kept = noisy("kept");
        let other = noisy("other");
        step!("one", io.did("one", ()).await?);
        if n == 1 {
            let branch = noisy("branch");
            step!("two", io.did("two", ()).await?);
            mark(&branch.0);
            return Ok(kept.0.len() as u32 + other.0.len() as u32);
        }
        if n == 2 { anyhow::bail!("{}{}", kept.0, other.0) }
        Ok(0)
    }
}

#[test]
fn an_early_return_drops_from_the_inside_out() {
    for n in 1..3 {
        let (plain, fiber) = drops(|| early(n));
        assert_eq!(fiber, plain, "{n}");
    }
    assert_eq!(drops(|| early(1)).0, ["-branch", "branch", "other", "kept"]);
}

twin! {
    async fn still_same(io, n: u32) -> anyhow::Result<u32> {
        let a = noisy("a");
        let b = noisy("b");
        step!("one", io.did("one", n).await?);
        let list = vec![a, b];
        step!("two", io.did("two", ()).await?);
        for (i, x) in list.into_iter().enumerate() {
            step!("x", io.did(format!("{i}{}", x.0), ()).await?);
        }
        Ok(n)
    }
}

#[test]
fn values_with_drop_come_through_a_kill() {
    assert_eq!(same(|| still_same(1)).log, ["one", "two", "0a", "1b"]);
    same(|| early(1));
    same(|| replaced(1));
    same(|| round(3));
}

#[fiber]
async fn not_sync(io: Res<Io>, n: u32) -> anyhow::Result<u32> {
    let cell = Cell::new(n);
    let shared = RefCell::new(vec![n]);
    let lock = Mutex::new(3);
    let a = step!(io.did("a", 1).await?);
    cell.set(cell.get() + a);
    for x in 0..2 {
        shared.borrow_mut().push(x);
        step!("x", io.did("x", x).await?);
        cell.set(cell.get() * 2);
    }
    *lock.lock().unwrap() += 1;
    step!("end", io.did("end", ()).await?);
    let list = shared.into_inner();
    Ok(cell.get() + list.len() as u32 + *lock.lock().unwrap())
}

#[test]
fn values_that_threads_cannot_share_are_kept_across_steps() {
    let (outcome, ..) = everywhere(|| not_sync(4));
    assert_eq!(outcome, "Completed(27)");
}

#[test]
fn the_future_of_a_fiber_is_send() {
    fn send<T: Send>(value: T) -> T {
        value
    }
    use forever::testing::{Outcome, Stage, StartFrom};
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let played = runtime.block_on(async {
        let play = async { Stage::new().resource(Io::default()).run(StartFrom::Start(not_sync(4)), None).await };
        tokio::spawn(send(play)).await.unwrap()
    });
    assert_eq!(played.outcome, Outcome::Completed(27));
}

/// A value whose drop has an effect, whether it was made by the body or read from a snapshot.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Counted(pub(super) String);

impl Drop for Counted {
    fn drop(&mut self) {
        DROPPED.with_borrow_mut(|d| d.push(self.0.clone()));
    }
}

twin! {
    async fn counted(io, n: u32) -> anyhow::Result<u32> {
        let value = Counted("value".to_owned());
        step!("one", io.did("one", ()).await?);
        step!("two", io.did("two", ()).await?);
        mark(&value.0);
        Ok(n)
    }
}

#[test]
fn the_read_back_of_debug_builds_drops_no_copy() {
    let (plain, fiber) = drops(|| counted(1));
    assert_eq!(plain, ["-value", "value"]);
    assert_eq!(fiber, plain);
}
