//! Bodies that hear of the end of their process, or fail by it, come through a close at every write and
//! before every poll: as if nothing had happened. A close is no outcome, and no cancel.
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forever::Builder;
use forever::ops::{Op, OpResolution};
use forever::prelude::*;
use forever::testing::{World, crash_everywhere};

use forever_testkit::sizes;

use crate::kinds::noted;

/// Charges by the ids of their operations.
#[derive(Clone, Debug, Default)]
struct Bank(Arc<Mutex<BTreeMap<String, u64>>>);

impl Bank {
    fn of(world: &World) -> Self {
        world.shared()
    }

    fn charge(&self, world: &World, id: &str, cents: u64) -> u64 {
        world.effect(format!("charge of {cents}"));
        self.0.lock().unwrap().insert(id.to_owned(), cents);
        cents
    }

    fn find(&self, id: &str) -> Option<u64> {
        self.0.lock().unwrap().get(id).copied()
    }
}

/// How often a close has met the body of a test.
static MET: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());

fn meets(kind: &'static str) {
    *MET.lock().unwrap().entry(kind).or_default() += 1;
}

fn met(kind: &str) -> u64 {
    let met = MET.lock().unwrap().get(kind).copied().unwrap_or_default();
    println!("{kind}={met}");
    met
}

/// Work of a few polls that fails when the process ends, as a pool does that is closed.
async fn works(kind: &'static str, op: &Op) -> anyhow::Result<u64> {
    for _ in 0..3 {
        if op.is_closing() {
            meets(kind);
            anyhow::bail!("the pool is closed");
        }
        tokio::task::yield_now().await;
    }
    Ok(1)
}

fn setup(world: &World) -> Builder {
    Forever::builder().in_memory().resource(world.clone()).clock(world.clock())
}

/// Closed at every write and before every poll, killed at every write, and both at random ones.
async fn comes_through<R: Debug + PartialEq>(setup: impl Fn(&World) -> Builder, call: impl AsyncFn(Forever) -> R) -> R {
    let survived = crash_everywhere(setup, call).crash_randomly(3, sizes::crashes(50)).await.unwrap();
    println!("writes={} deaths={} closes={}", survived.writes, survived.deaths, survived.closes);
    assert!(survived.closes > survived.writes, "{survived:?}");
    survived.outcome
}

/// Spawns the function in each process; gives its outcome.
macro_rules! survives {
    ($kind:literal, $function:ident $(, $other:ident)*) => {{
        let setup = |world: &World| setup(world).fiber::<$function>()$(.fiber::<$other>())*;
        let outcome = comes_through(setup, async |forever: Forever| {
            let handle = forever.spawn($function()).key("once").await.unwrap();
            handle.wait().await.map_err(|error| error.to_string())
        })
        .await;
        assert!(met($kind) > 0, "no close has met it");
        outcome
    }};
}

#[fiber]
async fn hands_over(world: Res<World>) -> anyhow::Result<u64> {
    let pages = step!("crawl", |op| {
        let mut pages: u64 = op.stashed()?.unwrap_or_default();
        while pages < 5 {
            if op.is_closing() {
                meets("hands_over");
                op.stash(&pages).await?;
                Err(op.interrupted())?;
            }
            tokio::task::yield_now().await;
            pages += 1;
        }
        pages
    });
    Ok(step!("note", noted(&world, "pages", pages)))
}

#[tokio::test]
async fn step_that_hands_over_its_partial_work_is_not_failed() {
    assert_eq!(survives!("hands_over", hands_over), Ok(5));
}

#[fiber]
async fn plain(world: Res<World>) -> anyhow::Result<u64> {
    let value = step!("work", |op| works("plain", op).await?);
    Ok(step!("note", noted(&world, "note", value)))
}

#[tokio::test]
async fn step_whose_pool_was_closed_is_not_failed() {
    assert_eq!(survives!("plain", plain), Ok(1));
}

#[fiber]
async fn early(world: Res<World>) -> anyhow::Result<u64> {
    let pages = step!("crawl", |op| {
        let mut pages = 0;
        while pages < 4 && !op.is_closing() {
            tokio::task::yield_now().await;
            pages += 1;
        }
        if pages < 4 {
            meets("early");
        }
        pages
    });
    Ok(step!("note", noted(&world, "note", pages)))
}

#[tokio::test]
async fn value_of_a_step_that_saw_the_close_is_not_stored() {
    assert_eq!(survives!("early", early), Ok(4));
}

#[fiber]
async fn retried(world: Res<World>) -> anyhow::Result<u32> {
    let attempts = step!("work", retry = Retry::times(2).backoff(Backoff::fixed(Duration::from_secs(600))), |op| {
        works("retried", op).await?;
        if op.attempt() < 3 {
            anyhow::bail!("not yet")
        }
        op.attempt()
    });
    Ok(step!("note", {
        world.attempt("note");
        attempts
    }))
}

#[tokio::test]
async fn attempt_that_was_ended_by_a_close_does_not_count() {
    assert_eq!(survives!("retried", retried), Ok(3));
}

#[fiber]
async fn in_time(world: Res<World>) -> anyhow::Result<u64> {
    let value = step!("work", timeout = Duration::from_secs(3600), |op| works("in_time", op).await?);
    Ok(step!("note", noted(&world, "note", value)))
}

#[tokio::test]
async fn step_with_a_time_limit_is_not_failed() {
    assert_eq!(survives!("in_time", in_time), Ok(1));
}

#[fiber]
async fn caught(world: Res<World>) -> anyhow::Result<u64> {
    let value: Result<u64, StepError> = step!("work", catch, |op| works("caught", op).await?);
    let value = match value {
        Ok(value) => value,
        // The way of a person who has pressed Stop.
        Err(_) => step!("tidy up", noted(&world, "tidied up", 100)),
    };
    Ok(step!("note", noted(&world, "note", value)))
}

#[tokio::test]
async fn close_is_caught_as_no_error() {
    assert_eq!(survives!("caught", caught), Ok(1));
}

/// A charge that fails by the close before it is made, and comes through after it.
#[fiber]
async fn charged(world: Res<World>) -> anyhow::Result<u64> {
    let retry = Retry::times(1).backoff(Backoff::fixed(Duration::from_secs(600)));
    let cents = step!("charge", effect, retry = retry, |op| {
        works("charged", op).await?;
        if op.attempt() < 2 {
            anyhow::bail!("refused: try again later");
        }
        Bank::of(&world).charge(&world, op.id(), 100)
    });
    Ok(step!("note", noted(&world, "note", cents)))
}

/// A kill between the charge and its record parks it, so it is only closed.
#[tokio::test]
async fn effect_that_was_not_carried_out_is_carried_out_after_the_close() {
    let setup = |world: &World| setup(world).fiber::<charged>();
    let bank = Mutex::new(World::default());
    let outcome = comes_through(
        |world| {
            *bank.lock().unwrap() = world.clone();
            setup(world)
        },
        async |forever: Forever| {
            let handle = forever.spawn(charged()).id("order").await.unwrap();
            loop {
                match handle.wait().await {
                    Err(stopped) if stopped.is_parked() => {
                        let op = forever.ops("order").await.unwrap().remove(0);
                        let found = Bank::of(&bank.lock().unwrap()).find(&op.id);
                        let how = found.map_or(OpResolution::NotExecuted, |cents| OpResolution::completed(&cents).unwrap());
                        forever.resolve_op(&op.id, how).await.unwrap();
                    }
                    ended => break ended.map_err(|error| error.to_string()),
                }
            }
        },
    )
    .await;
    assert_eq!(outcome, Ok(100));
    assert!(met("charged") > 0);
}

/// The request is on its way when the process ends, and the body says so.
#[fiber]
async fn unsure(world: Res<World>) -> anyhow::Result<u64> {
    let check = OnUnknown::check(async |op| Ok::<_, anyhow::Error>(Bank::of(&world).find(op.id())));
    let cents = step!("charge", effect, on_unknown = check, |op| {
        let cents = Bank::of(&world).charge(&world, op.id(), 100);
        works("unsure", op).await.map_err(|error| op.unknown(error))?;
        cents
    });
    Ok(step!("note", noted(&world, "note", cents)))
}

#[tokio::test]
async fn effect_of_unknown_outcome_is_looked_up_after_the_close() {
    assert_eq!(survives!("unsure", unsure), Ok(100));
}

/// The value of an effect counts, whatever its body has seen.
#[fiber]
async fn carried_out(world: Res<World>) -> anyhow::Result<u64> {
    let check = OnUnknown::check(async |op| Ok::<_, anyhow::Error>(Bank::of(&world).find(op.id())));
    let cents = step!("charge", effect, on_unknown = check, |op| {
        let cents = Bank::of(&world).charge(&world, op.id(), 100);
        let _ = works("carried_out", op).await;
        cents
    });
    Ok(step!("note", noted(&world, "note", cents)))
}

#[tokio::test]
async fn value_of_an_effect_is_stored_in_any_case() {
    assert_eq!(survives!("carried_out", carried_out), Ok(100));
}

#[fiber]
async fn checked(world: Res<World>) -> anyhow::Result<u64> {
    let check = OnUnknown::check(async |op| {
        works("checked", &op).await?;
        Ok::<_, anyhow::Error>(Bank::of(&world).find(op.id()))
    });
    let retry = Retry::times(1).backoff(Backoff::none());
    // The answer to the request is lost, so the bank is asked in the same run.
    let cents: u64 = step!("charge", effect, retry = retry, on_unknown = check, |op| {
        Bank::of(&world).charge(&world, op.id(), 100);
        Err(op.unknown(anyhow::anyhow!("no answer")))?
    });
    Ok(step!("note", noted(&world, "note", cents)))
}

#[tokio::test]
async fn check_that_fails_by_a_close_parks_nothing() {
    assert_eq!(survives!("checked", checked), Ok(100));
}

#[fiber]
async fn side_by_side(world: Res<World>) -> anyhow::Result<u64> {
    let (a, b) = steps!(
        step!("a", |op| works("side_by_side", op).await?),
        step!("b", |op| {
            let early = op.is_closing();
            tokio::task::yield_now().await;
            if early { 50 } else { 2 }
        })
    );
    let all = steps!(for n in 3..6u64, limit = 2, |op| works("side_by_side", op).await? + n);
    Ok(step!("note", noted(&world, "note", a + b + all.iter().sum::<u64>())))
}

#[tokio::test]
async fn branch_that_was_ended_by_a_close_ends_no_other() {
    assert_eq!(survives!("side_by_side", side_by_side), Ok(1 + 2 + 4 + 5 + 6));
}

/// A charge of a few polls.
async fn charges(world: &World, op: &Op, cents: u64) -> u64 {
    for _ in 0..4 {
        tokio::task::yield_now().await;
    }
    if op.is_closing() {
        meets("siblings");
    }
    Bank::of(world).charge(world, op.id(), cents)
}

fn looked_up(world: &World) -> OnUnknown<'_, u64, anyhow::Error> {
    OnUnknown::check(async |op| Ok(Bank::of(world).find(op.id())))
}

/// Charges beside branches that end, fail and wait for their next attempt.
#[fiber]
async fn siblings(world: Res<World>) -> anyhow::Result<u64> {
    let retry = Retry::times(1).backoff(Backoff::fixed(Duration::from_secs(1)));
    let (first, worked, asked) = steps!(
        step!("charge", effect, on_unknown = looked_up(&world), |op| charges(&world, op, 100).await),
        step!("work", |op| works("siblings", op).await?),
        step!("ask", retry = retry, |op| {
            if op.attempt() < 2 {
                anyhow::bail!("not yet")
            }
            2
        })
    );
    let more = steps!(for n in 0..3u64, limit = 2, effect, on_unknown = looked_up(&world), |op| charges(&world, op, n).await);
    Ok(step!("note", noted(&world, "note", first + worked + asked + more.iter().sum::<u64>())))
}

#[tokio::test]
async fn charges_beside_branches_that_stop_are_made_once() {
    assert_eq!(survives!("siblings", siblings), Ok(100 + 1 + 2 + 3));
}

#[fiber]
async fn between(ctx: &FiberContext, world: Res<World>) -> anyhow::Result<u64> {
    let first = step!("first", noted(&world, "first", 1));
    for _ in 0..3 {
        if ctx.is_closing() {
            meets("between");
            anyhow::bail!("the pool is closed");
        }
        tokio::task::yield_now().await;
    }
    Ok(first + step!("second", noted(&world, "second", 2)))
}

#[tokio::test]
async fn code_between_steps_is_not_failed() {
    assert_eq!(survives!("between", between), Ok(3));
}

#[fiber]
async fn half(ctx: &FiberContext, world: Res<World>) -> anyhow::Result<u64> {
    let mut sum = step!("first", noted(&world, "first", 1));
    for _ in 0..3 {
        if ctx.is_closing() {
            meets("half");
            return Ok(sum);
        }
        tokio::task::yield_now().await;
        sum += 1;
    }
    Ok(sum)
}

#[tokio::test]
async fn function_that_saw_the_close_has_not_completed() {
    assert_eq!(survives!("half", half), Ok(4));
}

#[fiber]
async fn panics(world: Res<World>) -> anyhow::Result<u64> {
    let value = step!("work", |op| works("panics", op).await.expect("the pool is open"));
    Ok(step!("note", noted(&world, "note", value)))
}

#[tokio::test]
async fn panic_by_a_close_is_not_a_failure() {
    assert_eq!(survives!("panics", panics), Ok(1));
}

#[fiber]
async fn callee() -> anyhow::Result<u64> {
    Ok(step!("work", |op| works("caller", op).await?))
}

#[fiber]
async fn caller(world: Res<World>) -> anyhow::Result<u64> {
    let value = match call!(callee()) {
        Ok(value) => value,
        Err(_) => step!("compensate", noted(&world, "compensated", 100)),
    };
    Ok(step!("note", noted(&world, "note", value)))
}

#[tokio::test]
async fn caller_does_not_compensate_for_a_close() {
    assert_eq!(survives!("caller", caller, callee), Ok(1));
}

#[fiber]
async fn child() -> anyhow::Result<u64> {
    Ok(step!("work", |op| works("parent", op).await?))
}

#[fiber]
async fn parent(world: Res<World>) -> anyhow::Result<u64> {
    let handle = spawn!(child());
    let value = match wait!(handle) {
        Ok(value) => value,
        Err(_) => step!("compensate", noted(&world, "compensated", 100)),
    };
    Ok(step!("note", noted(&world, "note", value)))
}

#[tokio::test]
async fn parent_does_not_take_its_child_for_failed() {
    assert_eq!(survives!("parent", parent, child), Ok(1));
}

#[fiber]
async fn by_hand(ctx: &FiberContext, world: Res<World>) -> anyhow::Result<u64> {
    let work = ctx.op("work", 1, async |op: Op| works("by_hand", &op).await).on_unknown(OnUnknown::Retry);
    let value = step!("work", work.await?);
    Ok(step!("note", noted(&world, "note", value)))
}

#[tokio::test]
async fn manual_operation_is_not_failed() {
    assert_eq!(survives!("by_hand", by_hand), Ok(1));
}
