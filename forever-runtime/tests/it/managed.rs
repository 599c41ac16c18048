//! Fibers that are asked for by id: listed, cancelled, resumed, restarted, resolved, deleted, and what is told of them.
use std::time::Duration;

use forever_runtime::fiber::{EventItem, EventKind, FiberFilter, FiberState, Resolution};
use forever_runtime::testing::VirtualClock;
use forever_runtime::{Clock, Retention};
use forever_testkit::waiting::settled;

use crate::fibers::{Three, three};
use crate::support::{Place, Plan, Probe};

/// The names of the kinds of events until one that `last` is true of.
async fn kinds(events: &mut forever_runtime::fiber::Events, last: impl Fn(&EventKind) -> bool) -> Vec<String> {
    let mut seen = Vec::new();
    while let Some(EventItem::Event(event)) = events.next().await {
        let text = format!("{:?}", event.kind);
        seen.push(text.split([' ', '{']).next().unwrap().to_owned());
        if last(&event.kind) {
            break;
        }
    }
    seen
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_fiber_is_asked_and_stops_at_its_next_checkpoint() {
    let (place, probe) = (Place::new(), Probe::default());
    let gate = probe.hold("a.two");
    let forever = place.open(&probe).await;
    let handle = forever.spawn(three("a")).await.unwrap();
    probe.reached("a.two").await;
    handle.cancel("no longer wanted").await.unwrap();
    assert_eq!(handle.status().await.unwrap().state, FiberState::Running);
    gate.add_permits(1);
    let error = handle.wait().await.unwrap_err();
    assert!(error.is_cancelled());
    assert_eq!(error.reason(), "no longer wanted");
    assert_eq!(probe.log(), ["a.one", "a.two"]);
    let status = handle.status().await.unwrap();
    assert_eq!((status.state, status.checkpoints), (FiberState::Cancelled, 2));
    assert!(handle.cancel("again").await.unwrap_err().is_invalid_state());
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_fiber_that_does_not_listen_is_dropped_after_the_grace() {
    let (place, probe, clock) = (Place::new(), Probe::default(), VirtualClock::new());
    probe.hold("a.two");
    let forever = place.builder(&probe).clock(clock.clone()).cancel_grace(Duration::from_secs(3)).open().await.unwrap();
    let handle = forever.spawn(three("a")).await.unwrap();
    probe.reached("a.two").await;
    handle.cancel("enough").await.unwrap();
    while clock.next_sleeper() != Some(Duration::from_secs(3)) {
        settled().await;
    }
    clock.advance(Duration::from_secs(3));
    assert!(handle.wait().await.unwrap_err().is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn a_cancel_whose_process_dies_is_not_forgotten() {
    let (place, probe) = (Place::new(), Probe::default());
    probe.hold("a.two");
    let forever = place.open(&probe).await;
    let handle = forever.spawn(three("a")).id("a").await.unwrap();
    probe.reached("a.two").await;
    handle.cancel("enough").await.unwrap();
    drop((handle, forever));
    probe.clear();
    let forever = place.open(&probe).await;
    let error = forever.fiber::<Three>("a").wait().await.unwrap_err();
    assert!(error.is_cancelled(), "{error}");
    assert_eq!(error.reason(), "enough");
    assert_eq!(probe.log(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_fiber_is_resumed_from_its_snapshot_after_a_fix() {
    let (place, probe) = (Place::new(), Probe::default());
    probe.plan("a.two", Plan::Fail("no network".into()));
    let forever = place.open(&probe).await;
    let handle = forever.spawn(three("a")).await.unwrap();
    assert!(handle.wait().await.unwrap_err().is_failed());
    probe.clear();
    handle.resume().await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), 17);
    assert_eq!(probe.log(), ["a.two", "a.three", "a.end"]);

    let error = forever.resume(handle.id()).await.unwrap_err();
    assert!(error.is_invalid_state());
    assert_eq!(error.to_string(), format!("failed to resume fiber `{}`: it is completed", handle.id()));
    assert!(forever.resume("nobody").await.unwrap_err().is_not_found());
}

#[tokio::test(start_paused = true)]
async fn a_restarted_fiber_begins_anew_with_its_arguments() {
    let (place, probe) = (Place::new(), Probe::default());
    probe.plan("a.two", Plan::Fail("no network".into()));
    let forever = place.open(&probe).await;
    let handle = forever.spawn(three("a")).await.unwrap();
    assert!(handle.wait().await.unwrap_err().is_failed());
    probe.clear();
    forever.restart(handle.id()).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), 17);
    assert_eq!(probe.log(), ["a.one", "a.two", "a.three", "a.end"]);
}

#[tokio::test(start_paused = true)]
async fn a_running_fiber_cannot_be_resumed_restarted_or_resolved() {
    let (place, probe) = (Place::new(), Probe::default());
    let gate = probe.hold("a.one");
    let forever = place.open(&probe).await;
    let handle = forever.spawn(three("a")).await.unwrap();
    probe.reached("a.one").await;
    for refused in [
        forever.resume(handle.id()).await,
        forever.restart(handle.id()).await,
        forever.resolve(handle.id(), Resolution::failed("no")).await,
        handle.resume().await,
        handle.restart().await,
        handle.resolve(Resolution::failed("no")).await,
        forever.delete(FiberFilter::new().state(FiberState::Running)).await.map(drop),
    ] {
        assert!(refused.unwrap_err().is_invalid_state());
    }
    gate.add_permits(1);
    assert_eq!(handle.wait().await.unwrap(), 17);
}

#[tokio::test(start_paused = true)]
async fn a_parked_fiber_is_resolved_by_hand_and_its_waiters_hear_of_it() {
    let (place, probe) = (Place::new(), Probe::default());
    probe.hold("a.two");
    let forever = place.open(&probe).await;
    let id = forever.spawn(three("a")).await.unwrap().id().to_owned();
    probe.reached("a.two").await;
    drop(forever);
    place.sql().execute("UPDATE snapshots SET data = 'nonsense'", ()).unwrap();
    let forever = place.open(&probe).await;
    let handle = forever.fiber::<Three>(&id);
    assert!(handle.wait().await.unwrap_err().is_parked());
    handle.resolve(Resolution::completed(&40_u64).unwrap()).await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), 40);
    assert!(forever.resolve(&id, Resolution::failed("late")).await.unwrap_err().is_invalid_state());
}

#[tokio::test(start_paused = true)]
async fn fibers_are_listed_by_page_and_by_what_they_are() {
    let (place, probe) = (Place::new(), Probe::default());
    probe.plan("x.one", Plan::Fail("no".into()));
    let forever = place.open(&probe).await;
    for label in ["a", "x", "b", "c"] {
        let _ = forever.spawn(three(label)).id(label).metadata(label).await.unwrap().wait().await;
    }
    let first = forever.fibers().limit(3).await.unwrap();
    assert_eq!(first.fibers.iter().map(|f| f.id.as_str()).collect::<Vec<_>>(), ["a", "x", "b"]);
    assert_eq!(first.fibers[1].metadata, Some("x".into()));
    let second = forever.fibers().limit(3).after(first.next.unwrap()).await.unwrap();
    assert_eq!((second.fibers.len(), second.next), (1, None));
    assert_eq!(forever.fibers().state(FiberState::Failed).await.unwrap().fibers[0].id, "x");
    assert!(forever.fibers().name("two").await.unwrap().fibers.is_empty());

    assert_eq!(forever.delete(FiberFilter::new().state(FiberState::Completed)).await.unwrap(), 3);
    assert_eq!(forever.fibers().await.unwrap().fibers.len(), 1);
    assert!(forever.fiber::<Three>("a").wait().await.unwrap_err().is_not_found());
}

#[tokio::test(start_paused = true)]
async fn what_has_ended_is_deleted_when_its_time_is_over_and_nothing_else_is() {
    let (place, probe, clock) = (Place::new(), Probe::default(), VirtualClock::new());
    probe.plan("x.one", Plan::Fail("no".into()));
    let retention = Retention::default().completed(Duration::from_secs(60)).failed(Duration::from_secs(600));
    let forever = place.builder(&probe).clock(clock.clone()).retention(retention).open().await.unwrap();
    for label in ["a", "x", "p"] {
        let _ = forever.spawn(three(label)).id(label).await.unwrap().wait().await;
    }
    place.sql().execute("UPDATE fibers SET state = 'parked', finished_ms = NULL WHERE id = 'p'", ()).unwrap();
    let begun = clock.now();
    // Lets time pass until the list of fibers is another one; says how long that took.
    let changed = async || {
        let list = async || forever.fibers().await.unwrap().fibers.into_iter().map(|f| f.id).collect::<String>();
        let before = list().await;
        loop {
            clock.advance(Duration::from_secs(1));
            tokio::time::sleep(Duration::from_millis(1)).await;
            let now = list().await;
            if now != before {
                return (now, clock.now().duration_since(begun).unwrap());
            }
        }
    };
    let (left, after) = changed().await;
    assert_eq!(left, "xp");
    assert!(after >= Duration::from_secs(60), "{after:?}");
    let (left, after) = changed().await;
    assert_eq!(left, "p");
    assert!(after >= Duration::from_secs(600), "{after:?}");
    clock.advance(Duration::from_secs(100_000));
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(forever.fibers().await.unwrap().fibers.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn events_tell_what_happens_in_order() {
    let (place, probe) = (Place::new(), Probe::default());
    let gate = probe.hold("a.two");
    let forever = place.open(&probe).await;
    let mut events = forever.events();
    let handle = forever.spawn(three("a")).id("a").await.unwrap();
    probe.reached("a.two").await;
    gate.add_permits(1);
    handle.wait().await.unwrap();
    let seen = kinds(&mut events, |kind| matches!(kind, EventKind::Completed)).await;
    assert_eq!(seen, ["Spawned", "Started", "StepFinished", "StepFinished", "StepFinished", "Completed"]);
    drop(handle);
    forever.close().await.unwrap();
    assert_eq!(events.next().await, None);
}

/// Without an index for a condition a page looks at some fibers, and the next one goes on behind them.
#[tokio::test(start_paused = true)]
async fn pages_of_a_search_look_at_a_limited_number_of_fibers() {
    const FIBERS: usize = 90;
    let (place, probe) = (Place::new(), Probe::default());
    let forever = place.open(&probe).await;
    for n in 0..FIBERS {
        // One in thirty has what is searched for, and has failed.
        let (label, found) = (format!("fiber {n}"), n % 30 == 7);
        if found {
            probe.plan(&format!("{label}.one"), Plan::Fail("no".into()));
        }
        let text = if found { "needle" } else { "hay" };
        let _ = forever.spawn(three(&label)).id(&label).metadata(text).await.unwrap().wait().await;
    }
    let pages = async |list: &dyn Fn() -> forever_runtime::fiber::Fibers| {
        let (mut pages, mut next) = (Vec::new(), None);
        loop {
            let page = next.map_or_else(list, |cursor| list().after(cursor)).await.unwrap();
            pages.push(page.fibers.into_iter().map(|fiber| fiber.id).collect::<Vec<_>>());
            next = page.next;
            if next.is_none() {
                return pages;
            }
        }
    };
    let needle = FiberFilter::new().text("needle");
    for within in [1, 39, 40, 80] {
        for newest_first in [false, true] {
            let search = || {
                let list = forever.fibers().filter(needle.clone()).within(within);
                if newest_first { list.newest_first() } else { list }
            };
            let found = pages(&search).await;
            let mut expected = ["fiber 7", "fiber 37", "fiber 67"];
            if newest_first {
                expected.reverse();
            }
            assert_eq!(found.concat(), expected, "within {within}");
            // Forty pieces of equal length.
            let looked_at = 40 * usize::try_from(within).unwrap().div_ceil(40);
            assert_eq!(found.len(), FIBERS.div_ceil(looked_at), "within {within}");
        }
    }
    // Those of other states are not looked at.
    let failed = || forever.fibers().filter(needle.clone().state(FiberState::Failed)).within(40);
    assert_eq!(pages(&failed).await, [["fiber 7", "fiber 37", "fiber 67"]]);
    // A full page ends where it is full.
    let one = || forever.fibers().filter(needle.clone()).limit(1);
    assert_eq!(pages(&one).await.concat(), ["fiber 7", "fiber 37", "fiber 67"]);
}
