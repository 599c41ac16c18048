//! Processes that die for real.
use forever_runtime::fiber::FiberState;

use crate::child;
use crate::fibers::Three;
use crate::support::{Place, Probe};

#[tokio::test(start_paused = true)]
async fn a_fiber_goes_on_after_its_process_was_killed() {
    let (place, probe) = (Place::new(), Probe::default());
    assert!(!child::start("die in a step", &place).wait().unwrap().success());
    let forever = place.open(&probe).await;
    let handle = forever.fiber_by_key::<Three>("k").await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), 17);
    assert_eq!(probe.log(), ["a.two", "a.three", "a.end"]);
}

#[tokio::test(start_paused = true)]
async fn a_fiber_that_kills_its_process_each_time_fails_and_the_others_do_not() {
    let place = Place::new();
    // Entered once, and recovered ten times.
    for _ in 0..11 {
        assert!(!child::start("die among others", &place).wait().unwrap().success());
    }
    let probe = Probe::default();
    let forever = place.open(&probe).await;
    let killer = forever.fiber_by_key::<Three>("killer").await.unwrap();
    let error = killer.wait().await.unwrap_err();
    assert!(error.is_failed());
    assert_eq!(error.reason(), "the process died 11 times while it ran, without a checkpoint in between; 10 recoveries are allowed");
    assert_eq!(killer.status().await.unwrap().at.as_deref(), Some("one"), "the snapshot is kept");
    for name in ["x", "y"] {
        let other = forever.fiber_by_key::<Three>(name).await.unwrap();
        assert_eq!(other.wait().await.unwrap(), 17);
        assert_eq!(other.status().await.unwrap().state, FiberState::Completed);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn dropping_the_runtime_leaves_no_thread_behind() {
    let place = Place::new();
    let mut child = child::start("leave nothing behind", &place);
    child.until_said("nothing left").unwrap();
}
