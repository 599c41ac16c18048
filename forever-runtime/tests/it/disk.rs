//! A disk that is full, and then is not.
use std::time::Duration;

use forever_runtime::fiber::FiberState;
use forever_runtime::{ErrorKind, Forever};

use crate::child;
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

#[tokio::test(start_paused = true)]
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

#[tokio::test(start_paused = true)]
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

#[tokio::test(start_paused = true)]
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

#[tokio::test(start_paused = true)]
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
    assert_eq!(forever.fiber::<Big>(&id).wait().await.unwrap(), 1 << 20);
    assert_eq!(probe.log(), ["big.fill", "big.end"]);
}

#[tokio::test(start_paused = true)]
async fn a_single_statement_that_does_not_fit_is_not_stored() {
    let (place, probe) = (Place::new(), Probe::default());
    let forever = place.open(&probe).await;
    let (gate, noted) = (probe.hold("filled"), probe.clone());
    let stashes = forever.spawn_closure("stashes", |ctx| async move {
        ctx.stash("short").await?;
        noted.step("filled").await.unwrap();
        noted.note(format!("{:?}", ctx.stash(&"long".repeat(100_000)).await.map_err(|error| error.kind())));
        Ok::<_, forever_runtime::Error>(())
    });
    let running = tokio::spawn(stashes.into_future());
    probe.reached("filled").await;
    fill(&place, &forever).await;
    gate.add_permits(1);
    probe.reached("Err(Store)").await;
    free(&forever).await;
    running.await.unwrap().unwrap();
}

/// The log may not grow by what one commit needs, so that the commit fails in the middle of its writing.
#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn a_write_whose_commit_fails_says_that_its_outcome_is_unknown_and_can_be_repeated_by_its_id() {
    let (place, probe) = (Place::new(), Probe::default());
    let mut command = std::process::Command::new("sh");
    // Without the signal that ends a process which writes too much, the write fails. 1024 KiB, in blocks of 512 bytes.
    command.args(["-c", "trap '' XFSZ; ulimit -f 2048; exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
    let mut limited = child::start_by("write too much", &place.path(), command);
    for said in [
        // Several statements, and one by itself.
        // 778 is SQLITE_IOERR_WRITE.
        "spawn: OutcomeUnknown, retryable: failed to start fiber `three`: it could not be stored: failed to store a fiber: \
         the commit failed, and may be found stored at the next open: disk I/O error: Error code 778: disk I/O error",
        "stash: OutcomeUnknown, retryable: failed to store a stash: the commit failed, and may be found stored at the next open: disk I/O error: Error code 778: disk I/O error",
        // What is wrong with the call itself is no doubt about the disk.
        "conflict: Conflict",
        "there: 2",
    ] {
        assert_eq!(limited.said().unwrap().as_deref(), Some(said));
    }
    limited.kill().unwrap();
    // Something was stored since, so that neither can be found.
    assert_eq!(place.number("SELECT count(*) FROM fibers"), 2);
    assert_eq!(place.text("SELECT data FROM snapshots WHERE data IS NOT NULL").as_deref(), Some("\"short\""));
    let forever = place.open(&probe).await;
    let again = forever.spawn(three(&"long".repeat(300_000))).id("large").await.unwrap();
    assert!(again.accepted());
    assert_eq!(again.wait().await.unwrap(), 3 * 1_200_000 + 14);
}
