//! Branches of `steps!` that are effects, have retries and catch their errors: killed at every write, parked, resolved.
use std::time::Duration;

use forever::fiber::{Fiber, FiberErrorKind, StepError};
use forever::ops::OpResolution;
use forever::prelude::*;
use forever::testing::{Fuse, VirtualClock};
use forever_testkit::waiting::eventually;

use crate::support::{Bank, Place, Plan, soon, sorted, words};

const ID: &str = "orders";
const LONG: Duration = Duration::from_secs(3600);

#[fiber(name = "orders")]
async fn checking(bank: Res<Bank>) -> anyhow::Result<Vec<u64>> {
    let mut receipts = Vec::new();
    let (law, sales) = steps!(
        step!("law", effect, on_unknown = OnUnknown::check(async |op| bank.find(op.id())), |op| bank.charge(op.id(), 1).await?),
        step!("sales", effect, on_unknown = OnUnknown::Retry, |op| bank.charge(op.id(), 2).await?),
    );
    receipts.extend([law, sales]);
    let each = steps!(for cents in [3, 4, 5], limit = 2, effect, key = cents, on_unknown = OnUnknown::check(async |op| bank.find(op.id())), catch, |op| {
        bank.charge(op.id(), cents).await?
    });
    for receipt in each {
        receipts.push(receipt?);
    }
    step!(noted(receipts.len()));
    Ok(receipts)
}

fn noted(_: usize) {}

/// The charges that were made, in order of their sums.
fn sums(bank: &Bank) -> Vec<u64> {
    let mut sums: Vec<u64> = bank.charges().into_iter().map(|(_, cents)| cents).collect();
    sums.sort_unstable();
    sums
}

#[tokio::test(start_paused = true)]
async fn every_branch_charges_once_wherever_the_process_dies() {
    let (place, bank, fuse) = (Place::new(), Bank::default(), Fuse::never());
    let forever = place.builder(&bank).fiber::<checking>().fuse(fuse.clone()).open().await.unwrap();
    let opened = fuse.writes();
    forever.spawn(checking()).id(ID).await.unwrap().wait().await.unwrap();
    let writes = fuse.writes() - opened;
    let ops = forever.ops(ID).await.unwrap();
    let mut names: Vec<&str> = ops.iter().map(|op| op.step.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["each[3]", "each[4]", "each[5]", "steps[law]", "steps[sales]"]);
    assert!(writes > 10, "{writes}");

    for (n, after) in (1..=writes).flat_map(|n| [(n, false), (n, true)]) {
        let (place, bank) = (Place::new(), Bank::default());
        let fuse = if after { Fuse::after(opened + n) } else { Fuse::before(opened + n) };
        let forever = place.builder(&bank).fiber::<checking>().fuse(fuse.clone()).open().await.unwrap();
        let life = async { forever.spawn(checking()).id(ID).await.unwrap().wait().await };
        tokio::select! {
            ended = soon(life) => assert!(n == writes, "it lived at write {n}: {ended:?}"),
            () = fuse.blown() => {}
        }
        drop(forever);

        let forever = place.builder(&bank).fiber::<checking>().open().await.unwrap();
        let receipts = soon(forever.spawn(checking()).id(ID).await.unwrap().wait()).await.unwrap();
        assert_eq!(sums(&bank), [1, 2, 3, 4, 5], "write {n}, after: {after}");
        let mut sorted = receipts.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), 5, "write {n}, after: {after}: {receipts:?}");
        let ops = forever.ops(ID).await.unwrap();
        assert!(ops.len() == 5 && words(&ops).iter().all(|op| op.contains(" completed ")), "write {n}, after: {after}: {ops:?}");
        forever.close().await.unwrap();
    }
}

#[fiber]
async fn parking(bank: Res<Bank>) -> anyhow::Result<(u64, u64, u64)> {
    // The bank is called in this order: the last one, the first, the second.
    let orders = steps!(
        step!("law", effect, |op| {
            bank.called(1).await;
            bank.charge(op.id(), 1).await?
        }),
        step!("sales", effect, |op| {
            bank.called(2).await;
            bank.charge(op.id(), 2).await?
        }),
        step!("plain", |op| bank.charge(op.id(), 3).await?),
    );
    Ok(orders)
}

#[tokio::test(start_paused = true)]
async fn a_branch_in_doubt_parks_the_fiber_and_the_others_keep_their_results() {
    for fate in [Plan::Silent, Plan::Lost] {
        let (place, bank) = (Place::new(), Bank::default());
        bank.plan([Plan::Lost, fate, Plan::Answers]);
        let forever = place.builder(&bank).fiber::<parking>().open().await.unwrap();
        forever.spawn(parking()).id(ID).await.unwrap();
        soon(bank.called(3)).await;
        // The result of the second is stored a little later.
        eventually("its result", async || place.number("SELECT count(*) FROM branch_results") > 0).await;
        drop(forever);

        for _ in 0..2 {
            let forever = place.builder(&bank).fiber::<parking>().open().await.unwrap();
            let error = soon(forever.fiber::<parking>(ID).wait()).await.unwrap_err();
            let ops = forever.ops(ID).await.unwrap();
            let law = ops.iter().find(|op| op.step == "orders[law]").unwrap();
            let why = format!("operation `{}` may have executed; verify, then resolve it: step `orders[law]` was interrupted", law.id);
            assert_eq!((error.kind(), error.reason()), (FiberErrorKind::Parked, why.as_str()));
            assert_eq!(bank.calls(), 3, "nothing begins while it is in doubt, not even the step without effect");
            forever.close().await.unwrap();
        }

        let forever = place.builder(&bank).fiber::<parking>().open().await.unwrap();
        let handle = forever.fiber::<parking>(ID);
        soon(handle.wait()).await.unwrap_err();
        let law = forever.ops(ID).await.unwrap().into_iter().find(|op| op.step == "orders[law]").unwrap();
        // A value of another type is refused at once.
        let text = OpResolution::completed("paid").unwrap();
        assert!(forever.resolve_op(&law.id, text).await.unwrap_err().is_conflict());
        let found = bank.find(&law.id).map_or(OpResolution::NotExecuted, |receipt| OpResolution::completed(&receipt).unwrap());
        let again = usize::from(found == OpResolution::NotExecuted);
        forever.resolve_op(&law.id, found).await.unwrap();
        let (law, sales, plain) = soon(handle.wait()).await.unwrap();
        assert!(law != sales && sales != plain && plain != law);
        assert_eq!((sums(&bank), bank.calls()), (vec![1, 2, 3], 4 + again));
        forever.close().await.unwrap();
    }
}

#[fiber]
async fn parking_items(bank: Res<Bank>, orders: Vec<u64>) -> anyhow::Result<Vec<u64>> {
    Ok(steps!(for cents in &orders, limit = 1, effect, |op| bank.charge(op.id(), *cents).await?))
}

#[tokio::test(start_paused = true)]
async fn an_item_in_doubt_comes_before_those_that_wait_for_it() {
    let (place, bank) = (Place::new(), Bank::default());
    bank.plan([Plan::Answers, Plan::Silent]);
    let forever = place.builder(&bank).fiber::<parking_items>().open().await.unwrap();
    forever.spawn(parking_items(vec![1, 2, 3])).id(ID).await.unwrap();
    soon(bank.called(2)).await;
    drop(forever);
    let forever = place.builder(&bank).fiber::<parking_items>().open().await.unwrap();
    let handle = forever.fiber::<parking_items>(ID);
    assert_eq!(soon(handle.wait()).await.unwrap_err().kind(), FiberErrorKind::Parked);
    // They changed in the same millisecond, perhaps.
    let mut ops = forever.ops(ID).await.unwrap();
    ops.sort_by(|a, b| a.step.cmp(&b.step));
    assert_eq!(words(&ops), ["charge[1] completed 1000", "charge[2] started"]);
    forever.resolve_op(&ops[1].id, OpResolution::completed(&77).unwrap()).await.unwrap();
    assert_eq!(soon(handle.wait()).await.unwrap(), [1000, 77, 1002]);
    assert_eq!(bank.calls(), 3);
}

#[fiber]
async fn catching(bank: Res<Bank>) -> anyhow::Result<Vec<Result<u64, StepError>>> {
    let none = Retry::times(1).backoff(Backoff::none());
    let all = steps!(for cents in 1..=3, limit = 1, effect, retry = none, catch, |op| bank.charge(op.id(), cents).await?);
    step!(noted(all.len()));
    Ok(all)
}

#[tokio::test(start_paused = true)]
async fn a_caught_branch_is_failed_in_the_ledger_and_ends_no_other() {
    let (place, bank) = (Place::new(), Bank::default());
    let forever = place.builder(&bank).fiber::<catching>().open().await.unwrap();
    bank.plan([Plan::Down, Plan::Declined, Plan::Down]);
    let all = soon(forever.spawn(catching()).id(ID).await.unwrap().wait()).await.unwrap();
    let error = all[0].as_ref().unwrap_err();
    assert_eq!((error.to_string(), error.attempts()), ("card declined".to_owned(), 2));
    assert_eq!((all[1].as_ref().unwrap(), all[2].as_ref().unwrap()), (&1000, &1001));
    let ops = forever.ops(ID).await.unwrap();
    assert_eq!(sorted(words(&ops)), ["all[1] failed card declined", "all[2] completed 1000", "all[3] completed 1001"]);
    assert_eq!(bank.calls(), 5);
}

#[fiber]
async fn slow_branch(bank: Res<Bank>) -> anyhow::Result<(u32, u64)> {
    let slow = Retry::times(2).backoff(Backoff::fixed(LONG));
    Ok(steps!(
        step!("slow", retry = slow, |op| {
            bank.charge(op.id(), 1).await?;
            op.attempt()
        }),
        7,
    ))
}

#[tokio::test(start_paused = true)]
async fn the_attempts_of_a_branch_go_on_where_the_process_died() {
    let (place, bank, clock) = (Place::new(), Bank::default(), VirtualClock::new());
    let builder = || place.builder(&bank).fiber::<slow_branch>().clock(clock.clone());
    bank.plan([Plan::Down, Plan::Down]);
    let forever = builder().open().await.unwrap();
    forever.spawn(slow_branch()).id(ID).await.unwrap();
    soon(bank.called(1)).await;
    eventually("the pause", async || clock.next_sleeper() == Some(LONG)).await;
    drop(forever);
    let forever = builder().open().await.unwrap();
    eventually("the pause", async || clock.next_sleeper() == Some(LONG)).await;
    assert_eq!(bank.calls(), 1, "the next attempt is not due");
    clock.advance(LONG);
    soon(bank.called(2)).await;
    eventually("the pause", async || clock.next_sleeper() == Some(LONG)).await;
    clock.advance(LONG);
    assert_eq!(soon(forever.fiber::<slow_branch>(ID).wait()).await.unwrap(), (3, 7), "the third attempt");
}

#[fiber]
async fn fails_late(bank: Res<Bank>) -> anyhow::Result<String> {
    let charge = step!("charge", effect, on_unknown = OnUnknown::Fail, catch, |op| bank.charge(op.id(), 1).await?);
    step!(noted(1));
    Ok(match charge {
        Ok(_) => "charged".to_owned(),
        Err(error) => format!("{} {}", error.is_op_unknown(), error.attempts()),
    })
}

#[fiber]
async fn times_out(bank: Res<Bank>) -> anyhow::Result<String> {
    let limit = Duration::from_millis(5);
    let charge = step!("charge", effect, timeout = limit, on_unknown = OnUnknown::Retry, catch, |op| bank.charge(op.id(), 1).await?);
    step!(noted(1));
    Ok(charge.map_or_else(|error| format!("{} {error}", error.is_timeout()), |_| "charged".to_owned()))
}

async fn caught<F: Fiber<Output = String>>(call: F, dies: bool) -> (String, Vec<String>) {
    let (place, bank) = (Place::new(), Bank::default());
    bank.plan([Plan::Silent]);
    let forever = place.builder(&bank).fiber::<F>().open().await.unwrap();
    let handle = forever.spawn(call).id(ID).await.unwrap();
    if !dies {
        return (soon(handle.wait()).await.unwrap(), words(&forever.ops(ID).await.unwrap()));
    }
    soon(bank.called(1)).await;
    drop((handle, forever));
    let forever = place.builder(&bank).fiber::<F>().open().await.unwrap();
    let value = soon(forever.fiber::<F>(ID).wait()).await.unwrap();
    (value, words(&forever.ops(ID).await.unwrap()))
}

#[tokio::test(start_paused = true)]
async fn an_effect_in_doubt_or_too_late_is_caught() {
    assert_eq!(caught(fails_late(), true).await, ("true 1".to_owned(), vec!["charge started".to_owned()]));
    let late = "step `charge` took longer than 5ms";
    assert_eq!(caught(times_out(), false).await, (format!("true {late}"), vec![format!("charge failed {late}")]));
}
