//! Starting fibers, joining those that are there, and asking for them.
use std::future::IntoFuture;
use std::task::Poll;

use forever_runtime::__private::{Arguments, Frame, Machine, Needs, Unreadable};
use forever_runtime::fiber::{Fiber, FiberContext, FiberErrorKind, FiberHandle, FiberState};
use forever_runtime::{ErrorKind, Forever};
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::Error as _};

use crate::fibers::{Big, Outer, Three, machine, plain, three};
use crate::support::{Place, Probe, Still, usual};

async fn in_memory(probe: &Probe) -> Forever {
    usual(probe).fiber::<Unsavable>().fiber::<OneWay>().in_memory().open().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_same_key_joins_the_fiber_that_is_there() {
    let probe = Probe::default();
    let gate = probe.hold("a.one");
    let forever = in_memory(&probe).await;
    let first = forever.spawn(three("a")).key("k").await.unwrap();
    let second = forever.spawn(three("a")).key("k").await.unwrap();
    assert!(first.accepted() && !second.accepted());
    assert_eq!(first.id(), second.id());
    gate.add_permits(1);
    assert_eq!(second.wait().await.unwrap(), 17);
    assert_eq!(first.wait().await.unwrap(), 17);
    let third = forever.spawn(three("a")).key("k").await.unwrap();
    assert!(!third.accepted());
    assert_eq!(third.wait().await.unwrap(), 17);
    assert_eq!(probe.log(), ["a.one", "a.two", "a.three", "a.end"]);
}

#[tokio::test(start_paused = true)]
async fn the_same_id_joins_the_fiber_that_is_there() {
    let forever = in_memory(&Probe::default()).await;
    let first = forever.spawn(three("a")).id("mine").await.unwrap();
    assert_eq!(first.id(), "mine");
    let second = forever.spawn(three("a")).id("mine").await.unwrap();
    assert!(!second.accepted());
    assert_eq!(second.wait().await.unwrap(), 17);
}

#[tokio::test(start_paused = true)]
async fn a_key_or_id_with_other_arguments_is_a_conflict() {
    let forever = in_memory(&Probe::default()).await;
    forever.spawn(three("a")).key("k").id("i").await.unwrap();
    let refused = [
        (forever.spawn(three("b")).key("k").await, "key `k` belongs to a fiber `three` with other arguments"),
        (forever.spawn(three("b")).id("i").await, "id `i` belongs to a fiber `three` with other arguments"),
        (forever.spawn(three("a")).key("k").id("j").await, "key `k` belongs to the fiber with id `i`, not `j`"),
        (forever.spawn(three("a")).key("l").id("i").await, "id `i` belongs to the fiber with key `k`, not `l`"),
    ];
    for (result, why) in refused {
        let error = result.unwrap_err();
        assert!(error.is_conflict());
        assert_eq!(error.to_string(), format!("failed to start fiber `three`: {why}"));
    }
    let error = forever.spawn(Outer { label: "a".into() }).key("k").await.unwrap_err();
    assert!(error.is_conflict());
    assert_eq!(error.to_string(), "failed to start fiber `outer`: key `k` belongs to a fiber `three`");
}

#[tokio::test(start_paused = true)]
async fn a_fiber_that_ended_is_joined_by_key_after_a_restart() {
    let (place, probe) = (Place::new(), Probe::default());
    let forever = place.open(&probe).await;
    forever.spawn(three("a")).key("k").await.unwrap().wait().await.unwrap();
    forever.close().await.unwrap();
    probe.clear();

    let forever = place.open(&probe).await;
    let again = forever.spawn(three("a")).key("k").await.unwrap();
    assert!(!again.accepted());
    assert_eq!(again.wait().await.unwrap(), 17);
    assert!(forever.spawn(three("b")).key("k").await.unwrap_err().is_conflict());
    assert!(probe.log().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_spawn_whose_caller_goes_away_leaves_nothing_half_done() {
    let probe = Probe::default();
    let forever = in_memory(&probe).await;
    let mut spawn = forever.spawn(three("a")).key("k").into_future();
    std::future::poll_fn(|cx| {
        assert!(spawn.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
    drop(spawn);
    probe.reached("a.end").await;
    assert_eq!(forever.fiber_by_key::<Three>("k").await.unwrap().wait().await.unwrap(), 17);
}

#[tokio::test(start_paused = true)]
async fn arguments_that_cannot_be_saved_are_an_error_and_nothing_is_stored() {
    let forever = in_memory(&Probe::default()).await;
    let error = forever.spawn(Unsavable { value: Refuses }).key("k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Value);
    let text = error.to_string();
    assert!(text.starts_with("failed to start fiber `unsavable`: argument `value` cannot be saved: "), "{text}");
    assert!(text.contains("not this one"), "{text}");
    assert!(forever.fiber_by_key::<Unsavable>("k").await.unwrap_err().is_not_found());
}

#[cfg(debug_assertions)]
#[tokio::test(start_paused = true)]
async fn arguments_that_do_not_come_back_are_an_error_in_debug_builds() {
    let forever = in_memory(&Probe::default()).await;
    let error = forever.spawn(OneWay { value: Writes }).await.unwrap_err();
    assert!(error.to_string().starts_with("failed to start fiber `one_way`: argument `value` cannot be saved: "), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_fiber_that_is_not_registered_is_refused() {
    let forever = Forever::builder().in_memory().open().await.unwrap();
    let error = forever.spawn(three("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotRegistered);
    assert_eq!(error.to_string(), "fiber `three` is not registered: add `.fiber::<three>()` before `.open()`");
    let error = forever.run(three("a")).await.unwrap_err();
    assert_eq!(error.kind(), FiberErrorKind::NotStarted);
    assert_eq!(error.to_string(), "fiber `three` is not registered: add `.fiber::<three>()` before `.open()`");
}

#[tokio::test(start_paused = true)]
async fn an_empty_id_or_key_is_refused() {
    let forever = in_memory(&Probe::default()).await;
    assert_eq!(forever.spawn(three("a")).id("").await.unwrap_err().kind(), ErrorKind::Value);
    assert_eq!(forever.spawn(three("a")).key("").await.unwrap_err().kind(), ErrorKind::Value);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_an_id_that_nobody_has_is_an_error() {
    let forever = in_memory(&Probe::default()).await;
    let handle = forever.fiber::<Three>("nobody");
    for error in [handle.wait().await.unwrap_err(), handle.status().await.unwrap_err()] {
        assert!(error.is_not_found());
        assert_eq!(error.to_string(), "there is no fiber with id `nobody`");
    }
    let error = forever.fiber_by_key::<Three>("none").await.unwrap_err();
    assert!(error.is_not_found());
    assert_eq!(error.to_string(), "there is no fiber with key `none`");
}

#[tokio::test(start_paused = true)]
async fn a_handle_of_the_wrong_type_is_an_error() {
    let probe = Probe::default();
    let gate = probe.hold("a.one");
    let forever = in_memory(&probe).await;
    let handle = forever.spawn(three("a")).key("k").await.unwrap();
    let wrong = forever.fiber::<Big>(handle.id());
    let running = wrong.wait().await.unwrap_err();
    assert_eq!(running.kind(), FiberErrorKind::OtherFiber);
    assert_eq!(running.to_string(), format!("fiber `{}` cannot be awaited: it is a fiber `three`, not `big`", handle.id()));
    gate.add_permits(1);
    handle.wait().await.unwrap();
    assert_eq!(wrong.wait().await.unwrap_err(), running);
    assert!(forever.fiber_by_key::<Big>("k").await.unwrap_err().is_conflict());
}

#[tokio::test(start_paused = true)]
async fn the_status_tells_where_a_fiber_stands() {
    let probe = Probe::default();
    let gate = probe.hold("a.three");
    let clock = Still::new();
    let forever = usual(&probe).clock(clock).in_memory().open().await.unwrap();
    let metadata = serde_json::json!({"user": 7});
    let handle = forever.spawn(three("a")).key("k").metadata(&metadata).await.unwrap();
    assert_eq!(handle.id(), "id-0001", "ids come from the clock");
    probe.reached("a.three").await;
    let status = handle.status().await.unwrap();
    assert_eq!((status.state, status.at.as_deref(), status.checkpoints), (FiberState::Running, Some("two"), 2));
    assert_eq!((status.name.as_str(), status.key.as_deref(), status.metadata), ("three", Some("k"), Some(metadata)));
    assert_eq!(status.created, std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000));
    assert_eq!(status.finished, None);
    gate.add_permits(1);
    handle.wait().await.unwrap();
    let status = handle.status().await.unwrap();
    assert_eq!(status.state, FiberState::Completed);
    assert!(status.finished.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_fibers_at_once_all_come_to_their_results() {
    let (place, probe) = (Place::new(), Probe::default());
    let forever = place.open(&probe).await;
    let mut runs = tokio::task::JoinSet::new();
    for n in 0..200 {
        let forever = forever.clone();
        runs.spawn(async move { forever.run(three(&n.to_string())).await });
    }
    while let Some(result) = runs.join_next().await {
        result.unwrap().unwrap();
    }
    forever.close().await.unwrap();
    assert_eq!(place.number("SELECT count(*) FROM fibers WHERE state = 'completed'"), 200);
    assert_eq!(place.number("SELECT count(*) FROM snapshots"), 0);
}

#[test]
fn handles_and_runtimes_can_be_sent_shared_cloned_and_shown() {
    fn all<T: Send + Sync + Clone + std::fmt::Debug>() {}
    all::<Forever>();
    all::<FiberHandle<std::rc::Rc<u8>>>();
    all::<FiberHandle<u64>>();
}

plain!(Unsavable, "unsavable", value: Refuses, (), String, { let _: Refuses = value; Ok(()) });
plain!(OneWay, "one_way", value: Writes, (), String, { let _: Writes = value; Ok(()) });

#[derive(Debug, Deserialize)]
pub struct Refuses;

impl Serialize for Refuses {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(S::Error::custom("not this one"))
    }
}

#[derive(Serialize)]
pub struct Writes;

impl<'de> Deserialize<'de> for Writes {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(serde::de::Error::custom("never comes back"))
    }
}
