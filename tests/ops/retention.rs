//! What retention and `Forever::delete` keep: results that are still asked for, operations in doubt, what the program's tables refer
//! to, and the keys of what is gone.
use std::time::Duration;

use forever::prelude::*;
use forever::testing::VirtualClock;
use forever::{Builder, Clock, FiberFilter, FiberState, OnUnknown, OpState, Resolution, Retention};

use crate::support::{Bank, Place, Plan, soon};

const MINUTE: Duration = Duration::from_secs(60);

#[fiber]
async fn child(number: u64) -> anyhow::Result<u64> {
    Ok(number)
}

#[fiber]
async fn parent(bank: Res<Bank>) -> anyhow::Result<u64> {
    let handle = spawn!(child(7));
    let receipt = step!("charge", bank.charge("parent", 1).await?);
    Ok(wait!(handle)? + receipt)
}

#[fiber]
async fn charging(bank: Res<Bank>, cents: u64) -> anyhow::Result<u64> {
    Ok(step!("charge", effect, on_unknown = OnUnknown::Fail, |op| {
        bank.charge(op.id(), cents).await.map_err(|why| op.unknown(why))?
    }))
}

#[fiber]
async fn tolerant() -> anyhow::Result<u64> {
    Ok(call!(charging(3)).unwrap_or(0))
}

fn builder(place: &Place, bank: &Bank, clock: &VirtualClock, retention: Retention) -> Builder {
    let builder = place.builder(bank).clock(clock.clone()).retention(retention);
    builder.fiber::<child>().fiber::<parent>().fiber::<charging>().fiber::<tolerant>()
}

/// Lets a minute pass and some looks of retention, until a fiber that ended now is gone.
async fn a_minute_later(forever: &Forever, clock: &VirtualClock) {
    let canary = forever.spawn(child(0)).await.unwrap();
    canary.wait().await.unwrap();
    let end = clock.now() + MINUTE;
    soon(async {
        while canary.status().await.is_ok() {
            clock.advance(Duration::from_secs(1));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    assert!(clock.now() >= end);
}

async fn ids(forever: &Forever) -> Vec<String> {
    forever.fibers().await.unwrap().fibers.into_iter().map(|fiber| fiber.id).collect()
}

#[tokio::test]
async fn the_result_of_a_child_is_kept_while_its_failed_parent_can_be_resumed() {
    let (place, bank, clock) = (Place::new(), Bank::default(), VirtualClock::new());
    bank.plan([Plan::Declined, Plan::Answers]);
    let forever = builder(&place, &bank, &clock, Retention::forever().completed(MINUTE)).open().await.unwrap();
    let handle = forever.spawn(parent()).id("p").await.unwrap();
    assert_eq!(handle.wait().await.unwrap_err().reason(), "card declined");
    a_minute_later(&forever, &clock).await;
    assert_eq!(ids(&forever).await.len(), 2, "the parent and its child");
    forever.resume("p").await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), 1007);
    a_minute_later(&forever, &clock).await;
    assert!(ids(&forever).await.is_empty());
}

#[tokio::test]
async fn the_result_of_a_child_goes_after_its_failed_parent() {
    let (place, bank, clock) = (Place::new(), Bank::default(), VirtualClock::new());
    bank.plan([Plan::Declined]);
    let forever = builder(&place, &bank, &clock, Retention::forever().completed(MINUTE).failed(2 * MINUTE)).open().await.unwrap();
    forever.spawn(parent()).await.unwrap().wait().await.unwrap_err();
    for _ in 0..4 {
        a_minute_later(&forever, &clock).await;
    }
    assert!(ids(&forever).await.is_empty());
}

#[tokio::test]
async fn a_fiber_with_an_operation_in_doubt_is_kept_until_that_is_settled() {
    let (place, bank, clock) = (Place::new(), Bank::default(), VirtualClock::new());
    bank.plan([Plan::Broken, Plan::Broken]);
    let forever = builder(&place, &bank, &clock, Retention::forever().completed(MINUTE).failed(MINUTE)).open().await.unwrap();
    forever.spawn(charging(1)).id("failed").await.unwrap().wait().await.unwrap_err();
    // It completes, though nobody knows of the charge.
    assert_eq!(forever.spawn(tolerant()).id("completed").await.unwrap().wait().await.unwrap(), 0);
    forever.spawn(charging(2)).id("settled").await.unwrap().wait().await.unwrap();
    // The second time, what the first one did not come to any more has been looked at too.
    a_minute_later(&forever, &clock).await;
    a_minute_later(&forever, &clock).await;
    assert_eq!(ids(&forever).await, ["failed", "completed"]);
    assert_eq!(forever.delete(FiberFilter::new()).await.unwrap(), 0);
    for id in ["failed", "completed"] {
        let ops = forever.ops(id).await.unwrap();
        assert_eq!(ops[0].state, OpState::Started);
        forever.resolve_op(&ops[0].id, Resolution::Failed("it was not done".into())).await.unwrap();
    }
    a_minute_later(&forever, &clock).await;
    a_minute_later(&forever, &clock).await;
    assert!(ids(&forever).await.is_empty());
}

#[tokio::test]
async fn deleting_by_hand_takes_operations_in_doubt_along_only_if_it_says_so() {
    let (place, bank, clock) = (Place::new(), Bank::default(), VirtualClock::new());
    bank.plan([Plan::Broken]);
    let forever = builder(&place, &bank, &clock, Retention::forever()).open().await.unwrap();
    forever.spawn(charging(1)).id("doubt").await.unwrap().wait().await.unwrap_err();
    forever.spawn(child(1)).await.unwrap().wait().await.unwrap();
    assert_eq!(forever.delete(FiberFilter::new()).await.unwrap(), 1);
    assert_eq!(forever.delete(FiberFilter::new().state(FiberState::Failed)).await.unwrap(), 0);
    assert_eq!(forever.delete(FiberFilter::new().delete_in_doubt()).await.unwrap(), 1);
    assert_eq!(place.number("SELECT count(*) FROM ops"), 0);
}
