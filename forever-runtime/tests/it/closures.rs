//! Closure fibers. The names of the first ones begin with the number of the case of the acceptance catalogue that they are the
//! counterpart of; docs/guide/src/internals/guarantees.md says whose they are.
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use forever_runtime::fiber::{FiberFilter, FiberState, Resolution, stash};
use forever_runtime::testing::VirtualClock;
use forever_runtime::{Error, Forever};
use forever_testkit::waiting::settled;
use tokio::sync::{Notify, Semaphore};

use crate::support::{Place, Probe};

async fn memory() -> Forever {
    Forever::builder().in_memory().open().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn case_01_runs_a_fiber_and_gives_its_result() {
    let forever = memory().await;
    let result: u32 = forever.spawn_closure("work", |_| async { Ok::<_, Error>(41 + 1) }).await.unwrap();
    assert_eq!(result, 42);
}

#[tokio::test(start_paused = true)]
async fn case_02_a_completed_fiber_keeps_its_result_and_no_snapshot() {
    let (place, probe) = (Place::new(), Probe::default());
    let forever = place.open(&probe).await;
    forever.spawn_closure("work", |ctx| async move { ctx.stash(&1).await }).id("a").await.unwrap();
    assert_eq!(place.number("SELECT count(*) FROM snapshots"), 0);
    assert_eq!(place.text("SELECT state FROM fibers").as_deref(), Some("completed"));
    // What upstream deletes at once is kept for as long as the retention says, and can be deleted by hand.
    forever.find_fiber::<()>("a").await.unwrap().wait().await.unwrap();
    assert_eq!(forever.delete(FiberFilter::new()).await.unwrap(), 1);
    assert_eq!(place.number("SELECT count(*) FROM fibers"), 0);
}

#[tokio::test(start_paused = true)]
async fn case_03_and_30_an_error_ends_the_fiber_with_its_text() {
    let forever = memory().await;
    let failing = forever.spawn_closure("work", |_| async { Err::<(), _>("no network") }).id("a").start().await.unwrap();
    let error = failing.wait().await.unwrap_err();
    assert!(error.is_failed());
    assert_eq!(error.reason(), "no network");
    let status = failing.status().await.unwrap();
    assert_eq!((status.state, status.reason.as_deref(), status.is_closure), (FiberState::Failed, Some("no network"), true));
    let panics = forever.spawn_closure("work", |_| async { if true { panic!("at the wall") } else { Ok::<_, Error>(()) } }).await;
    assert_eq!(panics.unwrap_err().reason(), "panicked: at the wall");
}

#[tokio::test(start_paused = true)]
async fn case_05_a_stash_is_in_the_snapshot_while_the_fiber_runs() {
    let (place, probe) = (Place::new(), Probe::default());
    let forever = place.open(&probe).await;
    let (stashed, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (tell, wait) = (Arc::clone(&stashed), Arc::clone(&go));
    let handle = forever
        .spawn_closure("work", |ctx| async move {
            ctx.stash(&vec![1, 2]).await?;
            assert_eq!(ctx.stashed::<Vec<u32>>()?, Some(vec![1, 2]));
            tell.notify_one();
            wait.notified().await;
            Ok::<_, Error>(())
        })
        .start()
        .await
        .unwrap();
    stashed.notified().await;
    assert_eq!(place.text("SELECT data FROM snapshots").as_deref(), Some("[1,2]"));
    go.notify_one();
    handle.wait().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn case_06_and_07_the_ambient_stash_goes_to_the_fiber_that_runs() {
    let (place, probe) = (Place::new(), Probe::default());
    let forever = place.open(&probe).await;
    let gate = Arc::new(Semaphore::new(0));
    let both = Arc::new(tokio::sync::Barrier::new(3));
    let mut handles = Vec::new();
    for name in ["a", "b"] {
        let (gate, both) = (Arc::clone(&gate), Arc::clone(&both));
        let work = move |_| async move {
            for n in 0..10 {
                tokio::task::yield_now().await;
                stash(&format!("{name}{n}")).await?;
            }
            both.wait().await;
            gate.acquire().await.unwrap().forget();
            Ok::<_, Error>(())
        };
        handles.push(forever.spawn_closure("work", work).id(name).start().await.unwrap());
    }
    both.wait().await;
    for name in ["a", "b"] {
        let query = format!("SELECT data FROM snapshots JOIN fibers ON seq = fiber WHERE id = '{name}'");
        assert_eq!(place.text(&query), Some(format!("\"{name}9\"")));
    }
    gate.add_permits(2);
    for handle in handles {
        handle.wait().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn case_11_the_ambient_stash_is_an_error_outside_a_fiber() {
    assert!(stash(&1).await.unwrap_err().to_string().starts_with("`stash` can be used only in a fiber"));
    let forever = memory().await;
    let spawned =
        forever.spawn_closure("work", |_| async { Ok::<_, Error>(tokio::spawn(async { stash(&1).await.is_err() }).await.unwrap()) });
    assert!(spawned.await.unwrap(), "what a fiber spawns is outside");
}

#[tokio::test(start_paused = true)]
async fn case_12_to_16_a_closure_without_an_agent_stays_interrupted_with_its_stash() {
    let (place, probe) = (Place::new(), Probe::default());
    let forever = place.open(&probe).await;
    let ready = Arc::new(tokio::sync::Barrier::new(4));
    for n in 0..3 {
        let ready = Arc::clone(&ready);
        let work = move |ctx: forever_runtime::fiber::FiberContext| async move {
            ctx.stash(&n).await?;
            ready.wait().await;
            std::future::pending::<Result<(), Error>>().await
        };
        forever.spawn_closure("work", work).id(n.to_string()).metadata("m").start().await.unwrap();
    }
    ready.wait().await;
    drop(forever);
    let forever = place.open(&probe).await;
    let left = forever.fibers().state(FiberState::Interrupted).await.unwrap().fibers;
    assert_eq!(left.len(), 3);
    assert_eq!((left[2].id.as_str(), left[2].deaths, left[2].reason.as_deref()), ("2", 1, Some("the process died")));
    let handle = forever.find_fiber::<()>("1").await.unwrap();
    assert!(handle.wait().await.unwrap_err().is_interrupted());
    assert!(forever.resume("1").await.unwrap_err().to_string().contains("is a closure"));

    // Case 41: resolved outside recovery. Case 36: nothing deletes it by itself.
    assert_eq!(forever.delete(FiberFilter::new()).await.unwrap(), 0);
    forever.resolve("1", Resolution::completed(&()).unwrap()).await.unwrap();
    handle.wait().await.unwrap();
    assert!(forever.resolve("1", Resolution::completed(&()).unwrap()).await.unwrap_err().is_invalid_state());
}

#[tokio::test(start_paused = true)]
async fn case_25_many_fibers_that_nobody_waits_for_run_side_by_side() {
    let forever = memory().await;
    let (ran, all) = (Arc::new(AtomicU32::new(0)), Arc::new(tokio::sync::Barrier::new(51)));
    for _ in 0..50 {
        let (ran, all) = (Arc::clone(&ran), Arc::clone(&all));
        let work = move |_| async move {
            ran.fetch_add(1, Ordering::Relaxed);
            all.wait().await;
            Ok::<_, Error>(())
        };
        drop(forever.spawn_closure("work", work).start().await.unwrap());
    }
    all.wait().await;
    assert_eq!(ran.load(Ordering::Relaxed), 50);
}

#[tokio::test(start_paused = true)]
async fn case_26_to_28_a_key_or_id_is_accepted_once_and_joined_after() {
    let forever = memory().await;
    let ran = Arc::new(AtomicU32::new(0));
    let work = || {
        let ran = Arc::clone(&ran);
        move |_| async move { Ok::<_, Error>(ran.fetch_add(1, Ordering::Relaxed) + 7) }
    };
    let first = forever.spawn_closure("work", work()).key("k").id("i").start().await.unwrap();
    assert!(first.accepted());
    assert_eq!(first.wait().await.unwrap(), 7);
    let by_key = forever.spawn_closure("work", work()).key("k").start().await.unwrap();
    let by_id = forever.spawn_closure("work", work()).id("i").start().await.unwrap();
    assert_eq!((by_key.accepted(), by_key.id(), by_id.accepted()), (false, "i", false));
    assert_eq!((by_key.wait().await.unwrap(), by_id.wait().await.unwrap()), (7, 7));
    assert_eq!(ran.load(Ordering::Relaxed), 1);

    for other in [
        forever.spawn_closure("other", work()).key("k").start().await,
        forever.spawn_closure("work", work()).key("k").id("j").start().await,
        forever.spawn_closure("work", work()).key("l").id("i").start().await,
    ] {
        assert!(other.unwrap_err().is_conflict());
    }
}

#[tokio::test(start_paused = true)]
async fn case_29_blank_names_ids_and_keys_are_refused() {
    let forever = memory().await;
    let work = |_| async { Ok::<_, Error>(()) };
    let long = "x".repeat(513);
    for (refused, why) in [
        (forever.spawn_closure(" ", work), "failed to start fiber ` `: its name must not be empty or blank"),
        (forever.spawn_closure("work", work).id(""), "failed to start fiber `work`: an id must not be empty or blank"),
        (forever.spawn_closure("work", work).key(" "), "failed to start fiber `work`: a key must not be empty or blank"),
        (
            forever.spawn_closure("work", work).key(long),
            "failed to start fiber `work`: its key has 513 bytes, more than the 512 that are allowed",
        ),
    ] {
        assert_eq!(refused.start().await.unwrap_err().to_string(), why);
    }
    let error = forever.spawn_closure("work", work).agent("nobody", "a").start().await.unwrap_err();
    assert!(error.to_string().contains("agent class `nobody` is not registered"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn case_31_and_32_waiting_joins_a_live_duplicate() {
    let forever = memory().await;
    let go = Arc::new(Notify::new());
    let wait = Arc::clone(&go);
    let work = |_| async move {
        wait.notified().await;
        Ok::<_, Error>(())
    };
    let first = forever.spawn_closure("work", work).key("k").start().await.unwrap();
    let joined = tokio::spawn(forever.spawn_closure("work", |_| async { Ok::<_, Error>(()) }).key("k").into_future());
    tokio::task::yield_now().await;
    go.notify_one();
    first.wait().await.unwrap();
    joined.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn case_33_and_34_cancelling_asks_the_fiber_and_tells_its_waiters() {
    let forever = memory().await;
    let seen = Arc::new(AtomicU32::new(0));
    let (tell, begun) = (Arc::clone(&seen), Arc::new(Notify::new()));
    let ready = Arc::clone(&begun);
    let work = |ctx: forever_runtime::fiber::FiberContext| async move {
        assert!(!ctx.is_cancelled());
        ready.notify_one();
        ctx.cancelled().await;
        tell.fetch_add(1, Ordering::Relaxed);
        Ok::<_, Error>(())
    };
    let handle = forever.spawn_closure("work", work).id("a").start().await.unwrap();
    begun.notified().await;
    let waiter = tokio::spawn({
        let handle = handle.clone();
        async move { handle.wait().await }
    });
    forever.cancel("a", "changed my mind").await.unwrap();
    let error = waiter.await.unwrap().unwrap_err();
    assert!(error.is_cancelled());
    assert_eq!((error.reason(), seen.load(Ordering::Relaxed)), ("changed my mind", 1));
    assert_eq!(handle.status().await.unwrap().state, FiberState::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn case_34_a_closure_that_does_not_listen_is_dropped_after_the_grace() {
    let clock = VirtualClock::new();
    let forever = Forever::builder().in_memory().clock(clock.clone()).open().await.unwrap();
    let handle = forever.spawn_closure("deaf", |_| std::future::pending::<Result<(), Error>>()).start().await.unwrap();
    handle.cancel("enough").await.unwrap();
    while clock.next_sleeper() != Some(Duration::from_secs(5)) {
        settled().await;
    }
    clock.advance(Duration::from_secs(5));
    assert!(handle.wait().await.unwrap_err().is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn case_35_ended_fibers_are_looked_at_listed_and_deleted() {
    let forever = memory().await;
    for n in 0..3 {
        let work = move |_| async move { if n == 1 { Err("odd") } else { Ok(n) } };
        let _ = forever.spawn_closure("work", work).id(n.to_string()).metadata(n).await;
    }
    let all = forever.fibers().name("work").await.unwrap().fibers;
    assert_eq!(all.iter().map(|f| f.state).collect::<Vec<_>>(), [FiberState::Completed, FiberState::Failed, FiberState::Completed]);
    assert_eq!(forever.delete(FiberFilter::new().name("work").state(FiberState::Failed)).await.unwrap(), 1);
    assert_eq!(forever.fibers().await.unwrap().fibers.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_stash_that_is_too_long_is_an_error_and_keeps_the_one_before() {
    let forever = memory().await;
    let result = forever.spawn_closure("work", |ctx| async move {
        ctx.stash("small").await?;
        let error = ctx.stash(&"x".repeat(17 << 20)).await.unwrap_err();
        Ok::<_, Error>((error.to_string(), ctx.stashed::<String>()?))
    });
    let (error, kept) = result.await.unwrap();
    assert_eq!((error.contains("more than the 16777216 that are allowed"), kept.as_deref()), (true, Some("small")));
}
