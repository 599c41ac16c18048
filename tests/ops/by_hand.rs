//! Operations by hand: the same ledger in closure fibers, in code between steps, and in recovery hooks.
use std::sync::{Arc, Mutex};

use forever::agent::{Agent, AgentHandle, RecoveredFiber, RecoveryAction};
use forever::fiber::{Event, EventItem, EventKind, FiberErrorKind, FiberState};
use forever::ops::{OpResolution, OpState};
use forever::prelude::*;
use forever::{BoxError, ErrorKind};
use forever_testkit::waiting::eventually;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::support::{Bank, Place, Plan, soon, sorted, words};

const ID: &str = "order-1";

/// Code between steps runs again after a crash; what it has done by hand it does not do again.
#[fiber]
async fn between(ctx: &FiberContext, bank: Res<Bank>, orders: Vec<u64>) -> anyhow::Result<Vec<u64>> {
    let mut receipts = Vec::new();
    for order in &orders {
        let bank = bank.clone();
        let key = ("order", *order);
        receipts.push(ctx.op("charge", key, |op| async move { bank.charge(op.id(), 100).await }).await?);
    }
    step!(bank.charge("end", 1).await?);
    Ok(receipts)
}

#[tokio::test(start_paused = true)]
async fn an_operation_by_hand_is_carried_out_once_for_each_key() {
    let (place, bank) = (Place::new(), Bank::default());
    let forever = place.builder(&bank).fiber::<between>().open().await.unwrap();
    let receipts = soon(forever.spawn(between(vec![1, 2, 1, 3])).id(ID).await.unwrap().wait()).await.unwrap();
    assert_eq!(receipts, [1000, 1001, 1000, 1002], "the third is the first");
    assert_eq!(bank.calls(), 4);
    let ops = forever.ops(ID).await.unwrap();
    assert_eq!(words(&ops), ["charge completed 1000", "charge completed 1001", "charge completed 1002"]);
    assert_eq!(ops[0].key, Some(json!(["order", 1])));
    let other = soon(forever.spawn(between(vec![1])).id("other").await.unwrap().wait()).await.unwrap();
    assert_eq!(other, [1004], "another fiber's operations are other ones");
}

#[tokio::test(start_paused = true)]
async fn code_that_runs_again_finds_what_it_has_done_and_parks_at_what_is_unknown() {
    let (place, bank) = (Place::new(), Bank::default());
    let forever = place.builder(&bank).fiber::<between>().open().await.unwrap();
    forever.spawn(between(vec![1, 2])).id(ID).await.unwrap();
    soon(forever.fiber::<between>(ID).wait()).await.unwrap();
    forever.spawn(between(vec![1, 2, 3])).id("again").await.unwrap();
    soon(forever.fiber::<between>("again").wait()).await.unwrap();
    let calls = bank.calls();
    let late = Bank::clone(&bank);
    drop(forever);

    bank.plan([Plan::Silent]);
    let forever = place.builder(&bank).fiber::<between>().open().await.unwrap();
    forever.spawn(between(vec![7, 8])).id("late").await.unwrap();
    soon(late.called(calls + 1)).await;
    drop(forever);
    let forever = place.builder(&bank).fiber::<between>().open().await.unwrap();
    let handle = forever.fiber::<between>("late");
    let error = soon(handle.wait()).await.unwrap_err();
    let op = forever.ops("late").await.unwrap().remove(0);
    assert_eq!(error.kind(), FiberErrorKind::Parked);
    assert_eq!(error.reason(), format!("operation `{}` may have executed; verify, then resolve it: step `charge` was interrupted", op.id));
    assert_eq!(bank.calls(), calls + 1);
    forever.resolve_op(&op.id, OpResolution::Completed(json!(5))).await.unwrap();
    assert_eq!(soon(handle.wait()).await.unwrap()[0], 5);
    assert_eq!(bank.calls(), calls + 3);
}

#[tokio::test(start_paused = true)]
async fn a_restarted_fiber_carries_its_operations_out_anew() {
    let (place, bank) = (Place::new(), Bank::default());
    let forever = place.builder(&bank).fiber::<between>().open().await.unwrap();
    bank.plan([Plan::Declined]);
    let handle = forever.spawn(between(vec![1])).id(ID).await.unwrap();
    assert_eq!(soon(handle.wait()).await.unwrap_err().reason(), "card declined");
    assert_eq!(words(&forever.ops(ID).await.unwrap()), ["charge failed card declined"]);
    // Resumed, it tries again under the same id.
    bank.plan([Plan::Declined]);
    forever.resume(ID).await.unwrap();
    soon(handle.wait()).await.unwrap_err();
    let first = forever.ops(ID).await.unwrap();
    assert_eq!((first.len(), bank.calls()), (1, 2));
    forever.restart(ID).await.unwrap();
    soon(handle.wait()).await.unwrap();
    let ops = forever.ops(ID).await.unwrap();
    assert_eq!(sorted(words(&ops)), ["charge completed 1000", "charge failed card declined"]);
    assert_ne!(ops[0].id, ops[1].id);
}

#[tokio::test(start_paused = true)]
async fn closures_have_the_same_ledger() {
    let (place, bank) = (Place::new(), Bank::default());
    let forever = place.builder(&bank).open().await.unwrap();
    let teller = bank.clone();
    let handle = forever.spawn_closure("shop", move |ctx| async move {
        let receipt: u64 = ctx.op("charge", 1, async |op| teller.charge(op.id(), 100).await).await?;
        let same: u64 = ctx.op("charge", 1, async |op| teller.charge(op.id(), 100).await).await?;
        let wrong = ctx.op("charge", 1, async |_| Ok::<String, anyhow::Error>("no".into())).await.unwrap_err();
        anyhow::Ok((receipt, same, wrong.to_string()))
    });
    let handle = handle.id(ID).start().await.unwrap();
    let (receipt, same, wrong) = soon(handle.wait()).await.unwrap();
    assert_eq!((receipt, same, bank.calls()), (1000, 1000, 1));
    let id = forever.ops(ID).await.unwrap().remove(0).id;
    assert!(wrong.starts_with(&format!("the stored result of operation `charge` ({id}) cannot be read as `String`: ")), "{wrong}");
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_is_under_way_is_not_begun_twice() {
    let (place, bank) = (Place::new(), Bank::default());
    let forever = place.builder(&bank).open().await.unwrap();
    let error = forever
        .spawn_closure("shop", async |ctx: FiberContext| {
            let twice = || {
                ctx.op("charge", 1, async |_| {
                    tokio::task::yield_now().await;
                    Ok::<u32, forever::Error>(1)
                })
            };
            let (one, two) = tokio::join!(twice(), twice());
            one.and(two)
        })
        .await
        .unwrap_err();
    assert!(error.reason().starts_with("operation `charge` with key 1 (") && error.reason().ends_with(") is under way already"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_key_or_a_result_that_cannot_be_saved_is_an_error() {
    #[derive(Debug, Clone, serde::Deserialize)]
    struct Unsavable;
    impl serde::Serialize for Unsavable {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("not this"))
        }
    }
    let (place, bank) = (Place::new(), Bank::default());
    let forever = place.builder(&bank).open().await.unwrap();
    let handle = forever.spawn_closure("shop", async |ctx: FiberContext| {
        let key: Result<u32, forever::Error> = ctx.op("charge", Unsavable, async |_| Ok(1)).await;
        let result: Result<Unsavable, forever::Error> = ctx.op("charge", 2, async |_| Ok(Unsavable)).await;
        Ok::<_, forever::Error>([key.unwrap_err(), result.unwrap_err()].map(|e| format!("{:?} {e}", e.kind())))
    });
    let handle = handle.id(ID).start().await.unwrap();
    let [key, result] = soon(handle.wait()).await.unwrap();
    assert_eq!(key, format!("{:?} key of operation `charge` cannot be saved: not this", ErrorKind::Value));
    assert_eq!(result, format!("{:?} the result of operation `charge` cannot be saved: not this", ErrorKind::Value));
    assert_eq!(forever.ops(ID).await.unwrap()[0].state, OpState::Started, "it was carried out, and nobody can say what it gave");
}

/// An agent whose hook finishes what a closure has begun, in the closure's own ledger.
struct Shop {
    bank: Bank,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Agent for Shop {
    const CLASS: &'static str = "Shop";
    type State = ();

    async fn on_fiber_recovered(&self, fiber: &RecoveredFiber) -> Result<RecoveryAction, BoxError> {
        let first: Result<u64, forever::Error> = fiber.op("charge", 1, async |_| Ok(0)).await;
        self.seen.lock().unwrap().push(format!("{first:?}"));
        let unknown: Result<u64, forever::Error> = fiber.op("charge", 2, async |_| Ok(0)).await;
        self.seen.lock().unwrap().push(format!("{:?}", unknown.unwrap_err().kind()));
        let bank = &self.bank;
        let found = OnUnknown::check(async |op| bank.find(op.id()));
        let second: u64 = fiber.op("charge", 2, async |op| bank.charge(op.id(), 1).await).on_unknown(found).await?;
        let third: u64 = fiber.op("charge", 3, async |op| bank.charge(op.id(), 1).await).await?;
        Ok(RecoveryAction::complete(&[second, third])?)
    }
}

#[tokio::test(start_paused = true)]
async fn a_recovery_hook_goes_on_in_the_ledger_of_its_fiber() {
    let (place, bank, seen) = (Place::new(), Bank::default(), Arc::default());
    let builder = || {
        let (bank, seen) = (bank.clone(), Arc::clone(&seen));
        place.builder(&bank).agent(move |_: AgentHandle<Shop>| Shop { bank: bank.clone(), seen: Arc::clone(&seen) })
    };
    let forever = builder().open().await.unwrap();
    let teller = bank.clone();
    let closure = forever.spawn_closure("orders", move |ctx| async move {
        let mut receipts = Vec::new();
        for order in 1..=3 {
            if order == 2 {
                teller.plan([Plan::Silent]);
            }
            let teller = teller.clone();
            receipts.push(ctx.op("charge", order, |op| async move { teller.charge(op.id(), 1).await }).await?);
        }
        anyhow::Ok(receipts)
    });
    closure.id(ID).agent("Shop", "corner").start().await.unwrap();
    soon(bank.called(2)).await;
    drop(forever);

    let forever = builder().open().await.unwrap();
    let handle = forever.find_fiber::<Vec<u64>>(ID).await.unwrap();
    assert_eq!(soon(handle.wait()).await.unwrap(), [1001, 1002]);
    assert_eq!(*seen.lock().unwrap(), ["Ok(1000)", "OpUnknown"]);
    assert_eq!((bank.calls(), bank.charges().len()), (3, 3));
    assert_eq!(words(&forever.ops(ID).await.unwrap()), ["charge completed 1000", "charge completed 1001", "charge completed 1002"]);
    assert_eq!(handle.status().await.unwrap().state, FiberState::Completed);
}

/// An operation by hand that begins as soon as it may, and a step.
#[fiber]
async fn gated(ctx: &FiberContext, bank: Res<Bank>, gate: Res<Arc<Semaphore>>) -> anyhow::Result<u64> {
    bank.knock();
    gate.acquire().await?.forget();
    let receipt = ctx.op("charge", "x".repeat(100_000), async |op| bank.charge(op.id(), 100).await).await?;
    Ok(step!("last", receipt))
}

#[tokio::test(start_paused = true)]
async fn a_fiber_is_interrupted_where_a_full_disk_keeps_its_operation_from_being_stored() {
    let (place, bank, gate) = (Place::new(), Bank::default(), Arc::new(Semaphore::new(0)));
    let forever = place.builder(&bank).resource(Arc::clone(&gate)).fiber::<gated>().open().await.unwrap();
    let mut events = forever.events();
    let handle = forever.spawn(gated()).id(ID).await.unwrap();
    soon(bank.called(1)).await;
    // SQLite takes this for as many pages as there are.
    forever.limit_pages(1).await.unwrap();
    gate.add_permits(2);
    let why = loop {
        match soon(events.next()).await {
            Some(EventItem::Event(Event { kind: EventKind::Interrupted { reason }, .. })) => break reason,
            Some(EventItem::Event(Event { kind: EventKind::Failed { reason }, .. })) => panic!("it has failed: {reason}"),
            _ => {}
        }
    };
    assert!(why.starts_with("failed to store an operation: database or disk is full"), "{why}");
    forever.limit_pages(u32::MAX / 2).await.unwrap();
    assert_eq!(soon(handle.wait()).await.unwrap(), 1000);
    assert_eq!(words(&forever.ops(ID).await.unwrap()), ["charge completed 1000"]);
}

#[tokio::test(start_paused = true)]
async fn a_fiber_that_comes_to_an_operation_while_the_runtime_closes_goes_on_at_the_next_open() {
    let (place, bank, gate) = (Place::new(), Bank::default(), Arc::new(Semaphore::new(0)));
    let builder = || place.builder(&bank).resource(Arc::clone(&gate)).fiber::<gated>();
    let forever = builder().open().await.unwrap();
    forever.spawn(gated()).id(ID).await.unwrap();
    let (at_gate, teller) = (Arc::clone(&gate), bank.clone());
    let closure = forever.spawn_closure("shop", move |ctx| async move {
        teller.knock();
        at_gate.acquire().await?.forget();
        ctx.op("charge", 1, async |op| teller.charge(op.id(), 1).await).await
    });
    closure.id("closure").start().await.unwrap();
    soon(bank.called(2)).await;
    let closing = tokio::spawn(forever.close().into_future());
    let knock = || forever.spawn_closure("knock", async |_| Ok::<_, forever::Error>(()));
    eventually("the close", async || knock().start().await.is_err()).await;
    gate.add_permits(2);
    soon(closing).await.unwrap().unwrap();
    assert_eq!(place.number("SELECT count(*) FROM fibers WHERE id IN ('order-1', 'closure') AND state = 'interrupted'"), 2);
    assert_eq!(bank.charges(), []);

    gate.add_permits(2);
    let forever = builder().open().await.unwrap();
    assert_eq!(soon(forever.fiber::<gated>(ID).wait()).await.unwrap(), 1000);
}
