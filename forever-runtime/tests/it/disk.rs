//! A disk that is full, and then is not.
use std::time::Duration;

use forever_runtime::{ErrorKind, FiberState, Forever};

use crate::fibers::{Big, three};
use crate::support::{Place, Probe, Still, usual};

/// Leaves room for small changes only.
async fn fill(place: &Place, forever: &Forever) {
    let pages = place.number("PRAGMA page_count");
    forever.limit_pages(u32::try_from(pages).unwrap() + 2).await.unwrap();
}

async fn free(forever: &Forever) {
    forever.limit_pages(u32::MAX / 2).await.unwrap();
}

#[tokio::test]
async fn a_fiber_is_interrupted_while_the_disk_is_full_and_goes_on_when_it_is_not() {
    let (place, probe, clock) = (Place::new(), Probe::default(), Still::new());
    let gate = probe.hold("big.fill");
    let forever = usual(&probe).clock(clock.clone()).sqlite(place.path()).open().await.unwrap();
    let handle = forever.spawn(Big { bytes: 1 << 20 }).await.unwrap();
    probe.reached("big.fill").await;
    fill(&place, &forever).await;
    gate.add_permits(3);
    clock.asleep(1).await;
    assert_eq!(
        place.text("SELECT state || ': ' || reason FROM fibers").unwrap(),
        "interrupted: failed to store a checkpoint: database or disk is full"
    );
    assert_eq!(place.text("SELECT data FROM snapshots"), None);

    // The first time is not told, the second is.
    clock.wake.add_permits(1);
    clock.asleep(2).await;
    let error = handle.wait().await.unwrap_err();
    assert!(error.is_interrupted());
    assert_eq!(error.reason(), "failed to store a checkpoint: database or disk is full");
    assert_eq!(handle.status().await.unwrap().state, FiberState::Interrupted);

    free(&forever).await;
    clock.wake.add_permits(1);
    probe.reached("big.end").await;
    assert_eq!(handle.wait().await.unwrap(), 1 << 20);
    assert_eq!(*clock.slept.lock().unwrap(), [Duration::from_secs(1), Duration::from_secs(2)]);
}

#[tokio::test]
async fn others_go_on_while_one_fiber_does_not_fit() {
    let (place, probe, clock) = (Place::new(), Probe::default(), Still::new());
    let gate = probe.hold("big.fill");
    let small = probe.hold("a.one");
    let forever = usual(&probe).clock(clock.clone()).sqlite(place.path()).open().await.unwrap();
    let big = forever.spawn(Big { bytes: 1 << 20 }).await.unwrap();
    let other = forever.spawn(three("a")).await.unwrap();
    probe.reached("big.fill").await;
    probe.reached("a.one").await;
    fill(&place, &forever).await;
    // Both are let go at once, so that they share a transaction.
    gate.add_permits(1);
    small.add_permits(1);
    assert_eq!(other.wait().await.unwrap(), 17);
    clock.asleep(1).await;
    assert_eq!(big.status().await.unwrap().state, FiberState::Interrupted);
}

#[tokio::test]
async fn a_spawn_on_a_full_disk_is_an_error_and_nothing_is_stored() {
    let (place, probe) = (Place::new(), Probe::default());
    let forever = place.open(&probe).await;
    fill(&place, &forever).await;
    let error = forever.spawn(three(&"long".repeat(100_000))).key("k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store);
    assert!(error.is_retryable());
    assert_eq!(error.to_string(), "failed to start fiber `three`: it could not be stored");
    let mut cause: &dyn std::error::Error = &error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    assert!(cause.to_string().contains("full"), "{cause}");
    assert_eq!(place.number("SELECT count(*) FROM fibers"), 0);
    free(&forever).await;
    assert_eq!(forever.run(three("a")).await.unwrap(), 17);
}

#[tokio::test]
async fn what_a_full_disk_has_stopped_goes_on_at_the_next_open() {
    let (place, probe, clock) = (Place::new(), Probe::default(), Still::new());
    let gate = probe.hold("big.fill");
    let forever = usual(&probe).clock(clock.clone()).sqlite(place.path()).open().await.unwrap();
    let id = forever.spawn(Big { bytes: 1 << 20 }).await.unwrap().id().to_owned();
    probe.reached("big.fill").await;
    fill(&place, &forever).await;
    gate.add_permits(1);
    clock.asleep(1).await;
    drop(forever);

    probe.clear();
    let forever = place.open(&probe).await;
    assert_eq!(forever.handle::<Big>(&id).wait().await.unwrap(), 1 << 20);
    assert_eq!(probe.log(), ["big.fill", "big.end"]);
}
