//! Closing a runtime, and dropping it without.
use std::time::Duration;

use forever_runtime::Forever;
use forever_runtime::fiber::{FiberErrorKind, FiberState};
use forever_testkit::waiting::settled;

use crate::fibers::{Three, three};
use crate::support::{Place, Probe};

#[tokio::test(start_paused = true)]
async fn closing_lets_the_step_in_flight_finish_and_stops_at_its_checkpoint() {
    let (place, probe) = (Place::new(), Probe::default());
    let gate = probe.hold("a.two");
    let forever = place.open(&probe).await;
    let handle = forever.spawn(three("a")).key("k").await.unwrap();
    probe.reached("a.two").await;
    let closing = tokio::spawn(forever.close().into_future());
    let told = handle.clone();
    let waiter = tokio::spawn(async move { told.wait().await });
    while forever.spawn(three("late")).await.is_ok() {
        settled().await;
    }
    gate.add_permits(1);
    closing.await.unwrap().unwrap();
    let error = waiter.await.unwrap().unwrap_err();
    assert!(error.is_closed());
    assert!(!probe.log().contains(&"a.three".to_owned()));
    assert_eq!(place.text("SELECT state FROM fibers WHERE key = 'k'").as_deref(), Some("interrupted"));

    probe.clear();
    drop((forever, handle));
    let forever = place.open(&probe).await;
    assert_eq!(forever.fiber_by_key::<Three>("k").await.unwrap().wait().await.unwrap(), 17);
    assert!(!probe.log().contains(&"a.two".to_owned()), "its step was finished");
}

#[tokio::test(start_paused = true)]
async fn closing_drops_what_has_not_come_to_a_checkpoint_by_the_deadline() {
    let (place, probe) = (Place::new(), Probe::default());
    probe.hold("a.two");
    let forever = place.open(&probe).await;
    let handle = forever.spawn(three("a")).key("k").await.unwrap();
    probe.reached("a.two").await;
    forever.close().deadline(Duration::ZERO).await.unwrap();
    let error = handle.wait().await.unwrap_err();
    assert_eq!(error.kind(), FiberErrorKind::Closed);

    probe.clear();
    drop((forever, handle));
    let forever = place.open(&probe).await;
    assert_eq!(forever.fiber_by_key::<Three>("k").await.unwrap().wait().await.unwrap(), 17);
    assert_eq!(probe.log(), ["a.two", "a.three", "a.end"]);
}

#[tokio::test(start_paused = true)]
async fn a_clean_close_is_no_death() {
    let (place, probe) = (Place::new(), Probe::default());
    probe.hold("a.two");
    let forever = place.open(&probe).await;
    forever.spawn(three("a")).key("k").await.unwrap();
    probe.reached("a.two").await;
    forever.close().deadline(Duration::ZERO).await.unwrap();
    drop(forever);
    for _ in 0..12 {
        probe.clear();
        probe.hold("a.two");
        let forever = place.open(&probe).await;
        probe.reached("a.two").await;
        let status = forever.fiber_by_key::<Three>("k").await.unwrap().status().await.unwrap();
        assert_eq!((status.state, status.deaths), (FiberState::Running, 0));
        forever.close().deadline(Duration::ZERO).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_closed_runtime_says_so() {
    let (place, probe) = (Place::new(), Probe::default());
    let forever = place.open(&probe).await;
    let handle = forever.spawn(three("a")).await.unwrap();
    handle.wait().await.unwrap();
    forever.close().await.unwrap();
    forever.close().await.unwrap();
    assert!(forever.spawn(three("b")).await.unwrap_err().is_closed());
    assert!(forever.run(three("b")).await.unwrap_err().is_closed());
    assert!(handle.wait().await.unwrap_err().is_closed());
    assert!(handle.status().await.unwrap_err().is_closed());
    assert!(forever.fiber_by_key::<Three>("k").await.unwrap_err().is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_close_that_is_given_up_goes_on_and_can_be_done_again() {
    let (place, probe) = (Place::new(), Probe::default());
    let gate = probe.hold("a.one");
    let forever = place.open(&probe).await;
    let handle = forever.spawn(three("a")).id("a").await.unwrap();
    probe.reached("a.one").await;
    let gave_up = tokio::time::timeout(Duration::ZERO, forever.close().into_future()).await;
    assert!(gave_up.is_err());
    let closing = tokio::spawn(forever.close().into_future());
    settled().await;
    assert!(!closing.is_finished(), "the step is under way");
    gate.add_permits(1);
    closing.await.unwrap().unwrap();
    assert_eq!(place.number("SELECT deaths FROM snapshots"), 0);
    assert!(handle.wait().await.unwrap_err().is_closed());
    drop((forever, handle));

    let forever = place.open(&probe).await;
    assert_eq!(forever.fiber::<Three>("a").wait().await.unwrap(), 17);
    assert_eq!(probe.times("a.one"), 1, "it was not cut off");
}

#[tokio::test(start_paused = true)]
async fn dropping_the_runtime_is_like_a_crash() {
    let (place, probe) = (Place::new(), Probe::default());
    let gate = probe.hold("a.two");
    let forever = place.open(&probe).await;
    let handle = forever.spawn(three("a")).await.unwrap();
    let id = handle.id().to_owned();
    probe.reached("a.two").await;
    drop(forever.clone());
    drop(forever);
    assert!(handle.status().await.is_ok(), "a handle keeps the runtime open");
    drop(handle);
    gate.add_permits(1);

    probe.clear();
    let forever = place.open(&probe).await;
    let handle = forever.fiber::<Three>(&id);
    assert_eq!(handle.wait().await.unwrap(), 17);
    assert_eq!(probe.log(), ["a.two", "a.three", "a.end"], "the dropped run did not go on");
}

#[test]
fn an_async_runtime_that_ends_first_loses_nothing() {
    let (place, probe) = (Place::new(), Probe::default());
    probe.hold("a.two");
    let start = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = start();
    let forever = first.block_on(async {
        let forever = place.open(&probe).await;
        forever.spawn(three("a")).key("k").await.unwrap();
        probe.reached("a.two").await;
        forever
    });
    drop(first);
    start().block_on(async {
        let handle = forever.fiber_by_key::<Three>("k").await.unwrap();
        assert!(handle.wait().await.unwrap_err().is_closed());
        drop((forever, handle));
        probe.clear();
        let forever = place.open(&probe).await;
        assert_eq!(forever.fiber_by_key::<Three>("k").await.unwrap().wait().await.unwrap(), 17);
    });
}

/// A runtime is closed while a step keeps its thread; what may be open until that step has gone on?
async fn nobody_opens_it_before_the_blocked_step_is_gone(close: impl AsyncFnOnce(Forever)) {
    let (place, probe) = (Place::new(), Probe::default());
    let free = probe.block("a.two");
    let forever = place.open(&probe).await;
    forever.spawn(three("a")).key("k").await.unwrap();
    probe.reached("a.two").await;
    close(forever).await;

    let second = Probe::default();
    let error = place.builder(&second).open().await.unwrap_err();
    assert!(error.is_busy(), "{error}");
    let why = format!("owned by this process ({}): a task of a runtime that was closed still runs", std::process::id());
    assert!(error.to_string().ends_with(&why), "{error}");
    assert!(!probe.log().contains(&"a.two is no longer blocked".to_owned()));

    let waiting = tokio::spawn(place.builder(&second).wait_for_lock(Duration::from_secs(60)).open());
    free.send(()).unwrap();
    let forever = waiting.await.unwrap().unwrap();
    assert_eq!(probe.log().last().unwrap(), "a.two is no longer blocked", "the step was over by then, and nothing came after it");
    assert_eq!(forever.fiber_by_key::<Three>("k").await.unwrap().wait().await.unwrap(), 17);
    assert_eq!(second.log(), ["a.two", "a.three", "a.end"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_database_stays_locked_while_a_task_keeps_its_thread() {
    nobody_opens_it_before_the_blocked_step_is_gone(async |forever| forever.close().deadline(Duration::ZERO).await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_database_stays_locked_while_a_task_keeps_its_thread() {
    nobody_opens_it_before_the_blocked_step_is_gone(async |forever| drop(forever)).await;
}
