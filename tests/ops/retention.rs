//! What retention and `Forever::delete` keep: results that are still asked for, operations in doubt, what the program's tables refer
//! to, and the keys of what is gone.
use std::time::Duration;

use forever::fiber::{FiberErrorKind, FiberFilter, FiberHandle, FiberState};
use forever::ops::{OnUnknown, OpResolution, OpState};
use forever::prelude::*;
use forever::testing::VirtualClock;
use forever::{BoxError, Builder, Clock, Retention};
use forever_testkit::waiting::eventually;

use crate::support::{Bank, Place, Plan};

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
    Ok(step!("charge", effect, on_unknown = OnUnknown::Fail, |op| { bank.charge(op.id(), cents).await.map_err(|why| op.unknown(why))? }))
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
    eventually("the end of its retention", async || {
        clock.advance(Duration::from_secs(1));
        canary.status().await.is_err()
    })
    .await;
    assert!(clock.now() >= end);
}

async fn ids(forever: &Forever) -> Vec<String> {
    forever.fibers().await.unwrap().fibers.into_iter().map(|fiber| fiber.id).collect()
}

#[tokio::test(start_paused = true)]
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

#[tokio::test(start_paused = true)]
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

#[tokio::test(start_paused = true)]
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
        forever.resolve_op(&ops[0].id, OpResolution::Failed("it was not done".into())).await.unwrap();
    }
    a_minute_later(&forever, &clock).await;
    a_minute_later(&forever, &clock).await;
    assert!(ids(&forever).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn deleting_by_hand_takes_operations_in_doubt_along_only_if_it_says_so() {
    let (place, bank, clock) = (Place::new(), Bank::default(), VirtualClock::new());
    bank.plan([Plan::Broken]);
    let forever = builder(&place, &bank, &clock, Retention::forever()).open().await.unwrap();
    forever.spawn(charging(1)).id("doubt").await.unwrap().wait().await.unwrap_err();
    forever.spawn(child(1)).await.unwrap().wait().await.unwrap();
    assert_eq!(forever.delete(FiberFilter::new()).await.unwrap(), 1);
    assert_eq!(forever.delete(FiberFilter::new().state(FiberState::Failed)).await.unwrap(), 0);
    assert_eq!(forever.delete(FiberFilter::new().delete_in_doubt()).await.unwrap(), 1);
    assert_eq!(place.number("SELECT count(*) FROM op_ledger"), 0);
}

/// A table of the program's that keeps fibers: the reason why, as SQLite sees it.
const HOLDS: [&str; 5] = [
    "CREATE TABLE notes (of TEXT REFERENCES fibers (id)) STRICT",
    "CREATE TABLE notes (of TEXT REFERENCES FIBERS (id) ON DELETE RESTRICT) STRICT",
    "CREATE TABLE notes (of TEXT REFERENCES fibers (id) DEFERRABLE INITIALLY DEFERRED) STRICT",
    "CREATE TABLE notes (of TEXT NOT NULL REFERENCES fibers (id) ON DELETE SET NULL) STRICT",
    "CREATE TABLE notes (of TEXT PRIMARY KEY REFERENCES fibers (id) ON DELETE CASCADE) STRICT;
     CREATE TABLE notes_on_notes (of TEXT REFERENCES notes (of)) STRICT;
     CREATE TRIGGER copies AFTER INSERT ON notes BEGIN INSERT INTO notes_on_notes VALUES (new.of); END",
];

#[tokio::test(start_paused = true)]
async fn rows_that_the_programs_tables_refer_to_keep_no_others_from_being_deleted() {
    for holds in HOLDS {
        let (place, bank, clock) = (Place::new(), Bank::default(), VirtualClock::new());
        let builder = builder(&place, &bank, &clock, Retention::forever().completed(MINUTE)).migration("notes", holds);
        let forever = builder.open().await.unwrap();
        for id in ["a", "held", "b"] {
            forever.spawn(child(1)).id(id).await.unwrap().wait().await.unwrap();
        }
        let note = "INSERT INTO notes VALUES ('held')";
        forever.transaction(move |tx| Ok::<_, BoxError>(tx.execute(note, ())?)).await.unwrap();
        // More than a page of them would be tried again and again.
        for _ in 0..2 {
            a_minute_later(&forever, &clock).await;
            assert_eq!(ids(&forever).await, ["held"], "{holds}");
        }
        forever.spawn(child(1)).await.unwrap().wait().await.unwrap();
        assert_eq!(forever.delete(FiberFilter::new()).await.unwrap(), 1, "{holds}");
        let free = if holds.contains("notes_on_notes") { "DELETE FROM notes_on_notes" } else { "DELETE FROM notes" };
        forever.transaction(move |tx| Ok::<_, BoxError>(tx.execute_batch(free)?)).await.unwrap();
        a_minute_later(&forever, &clock).await;
        assert!(ids(&forever).await.is_empty(), "{holds}");
    }
}

#[tokio::test(start_paused = true)]
async fn more_held_rows_than_a_page_keep_none_behind_them() {
    let (place, bank, clock) = (Place::new(), Bank::default(), VirtualClock::new());
    let builder = builder(&place, &bank, &clock, Retention::forever().completed(MINUTE)).migration("notes", HOLDS[0]);
    let forever = builder.open().await.unwrap();
    place.database().run(
        "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 1200)
         INSERT INTO fibers (id, name, state, args, created_ms, changed_ms, finished_ms)
         SELECT 'f' || n, 'child', 'completed', '{}', 1, 1, 1 FROM n;
         INSERT INTO notes SELECT id FROM fibers",
    );
    a_minute_later(&forever, &clock).await;
    assert_eq!(place.number("SELECT count(*) FROM fibers"), 1200);
    assert_eq!(forever.delete(FiberFilter::new()).await.unwrap(), 0);
    place.database().run("DELETE FROM notes WHERE of <> 'f7'");
    assert_eq!(forever.delete(FiberFilter::new()).await.unwrap(), 1199);
}

/// That the fiber of a handle is gone, and what is said of it.
async fn gone(handle: &FiberHandle<u64>) -> String {
    let error = handle.wait().await.unwrap_err();
    assert_eq!(error.kind(), FiberErrorKind::NotFound);
    assert_eq!(handle.status().await.unwrap_err(), error);
    error.to_string()
}

#[tokio::test(start_paused = true)]
async fn an_effect_is_not_made_again_under_a_key_whose_fiber_was_deleted() {
    let (place, bank, clock) = (Place::new(), Bank::default(), VirtualClock::new());
    let retention = Retention::default().completed(MINUTE).keys(60 * MINUTE);
    let open = async || builder(&place, &bank, &clock, retention).open().await.unwrap();
    let forever = open().await;
    let first = forever.spawn(charging(5)).key("order-1").await.unwrap();
    assert!(first.accepted());
    assert_eq!(first.wait().await.unwrap(), 1000);
    let id = first.id().to_owned();
    a_minute_later(&forever, &clock).await;
    drop((first, forever));

    // Another process, that knows no more than the key.
    let forever = open().await;
    let second = forever.spawn(charging(5)).key("order-1").await.unwrap();
    assert_eq!((second.accepted(), second.id()), (false, id.as_str()));
    let said = gone(&second).await;
    let beginning = format!("there is no fiber with id `{id}` any more: it ended on ");
    assert!(said.starts_with(&beginning) && said.ends_with(" GMT as completed, and its result is no longer kept"), "{said}");
    let by_key = forever.fiber_by_key::<charging>("order-1").await.unwrap();
    assert_eq!(gone(&by_key).await, said);
    assert_eq!(bank.calls(), 1);

    for (refused, why) in [
        (forever.spawn(charging(6)).key("order-1").await.map(drop), "key `order-1` belongs to a fiber `charging` with other arguments"),
        (forever.spawn(child(5)).key("order-1").await.map(drop), "key `order-1` belongs to a fiber `charging`"),
        (forever.fiber_by_key::<child>("order-1").await.map(drop), "key `order-1` belongs to a fiber `charging`, not `child`"),
    ] {
        let refused = refused.unwrap_err();
        assert!(refused.is_conflict() && refused.to_string().ends_with(why), "{refused}");
    }
    // When its time is over too, the key is free.
    clock.advance(60 * MINUTE);
    a_minute_later(&forever, &clock).await;
    assert!(forever.fiber_by_key::<charging>("order-1").await.unwrap_err().is_not_found());
    assert!(forever.spawn(charging(5)).key("order-1").await.unwrap().accepted());
}

#[tokio::test(start_paused = true)]
async fn an_id_that_the_program_gave_is_remembered_and_one_of_the_runtimes_is_not() {
    let (place, bank, clock) = (Place::new(), Bank::default(), VirtualClock::new());
    bank.plan([Plan::Declined]);
    let forever = builder(&place, &bank, &clock, Retention::default()).open().await.unwrap();
    forever.spawn(child(1)).await.unwrap().wait().await.unwrap();
    forever.spawn(parent()).id("order-2").await.unwrap().wait().await.unwrap_err();
    assert_eq!(forever.delete(FiberFilter::new()).await.unwrap(), 3);
    assert_eq!(place.number("SELECT count(*) FROM past_fibers"), 1);
    let again = forever.spawn(parent()).id("order-2").await.unwrap();
    assert!(!again.accepted());
    assert!(gone(&again).await.contains(" as failed, "), "{}", gone(&again).await);
}

#[tokio::test(start_paused = true)]
async fn keys_are_forgotten_where_the_program_says_so() {
    let (place, bank, clock) = (Place::new(), Bank::default(), VirtualClock::new());
    let end = async |forever: &Forever, key: &str| {
        let handle = forever.spawn(child(1)).key(key).await.unwrap();
        handle.wait().await.unwrap();
        handle.accepted()
    };
    let forever = builder(&place, &bank, &clock, Retention::default()).open().await.unwrap();
    assert!(end(&forever, "a").await);
    assert_eq!(forever.delete(FiberFilter::new()).await.unwrap(), 1);
    assert!(end(&forever, "b").await);
    assert_eq!(forever.delete(FiberFilter::new().name("parent").forget_keys()).await.unwrap(), 0);
    assert!(!forever.spawn(child(1)).key("a").await.unwrap().accepted());
    assert_eq!(forever.delete(FiberFilter::new().forget_keys()).await.unwrap(), 1);
    assert!(end(&forever, "a").await && end(&forever, "b").await);
    drop(forever);
    let forever = builder(&place, &bank, &clock, Retention::default().keys(Duration::ZERO)).open().await.unwrap();
    assert_eq!(forever.delete(FiberFilter::new()).await.unwrap(), 2);
    assert!(end(&forever, "a").await);
}

#[tokio::test(start_paused = true)]
async fn a_damaged_row_of_which_nothing_can_be_remembered_keeps_no_others() {
    let (place, bank, clock) = (Place::new(), Bank::default(), VirtualClock::new());
    let forever = builder(&place, &bank, &clock, Retention::default()).open().await.unwrap();
    for key in ["a", "damaged", "b"] {
        forever.spawn(child(1)).key(key).await.unwrap().wait().await.unwrap();
    }
    place.database().run("UPDATE fibers SET args = CAST(x'ff' AS TEXT) WHERE key = 'damaged'");
    assert_eq!(forever.delete(FiberFilter::new()).await.unwrap(), 2);
    assert_eq!(forever.delete(FiberFilter::new().forget_keys()).await.unwrap(), 1);
}
