//! Events of fibers that another worker runs.
use std::time::Duration;

use forever::Forever;
use forever::fiber::{Event, EventItem, EventKind, Events};
use forever_testkit::waiting::{eventually, soon};

use crate::{Steps, cluster, long, open};

const LEASE: Duration = Duration::from_secs(3600);

/// Events of a fiber, until one that is asked for.
async fn events_until(events: &mut Events, id: &str, is_last: impl Fn(&EventKind) -> bool) -> Vec<Event> {
    let mut seen = Vec::new();
    loop {
        match soon("it hears of the fiber", events.next()).await.unwrap() {
            EventItem::Event(event) if *event.fiber == *id => {
                seen.push(event.clone());
                if is_last(&event.kind) {
                    return seen;
                }
            }
            EventItem::Event(_) => {}
            EventItem::Lagged(missed) => panic!("{missed} were missed"),
        }
    }
}

async fn listen(a: &Forever, b: &Forever, steps: &Steps) -> Events {
    let mut events = b.events();
    // From here on, a knows that b listens.
    let first = a.spawn(long("first".into(), 1000)).await.unwrap();
    events_until(&mut events, first.id(), |kind| matches!(kind, EventKind::StepFinished { .. })).await;
    a.cancel(first.id(), "enough").await.unwrap();
    events_until(&mut events, first.id(), |kind| matches!(kind, EventKind::Cancelled { .. })).await;
    steps.0.lock().unwrap().clear();
    events
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_a_fiber_are_heard_in_order_in_another_worker() {
    let Some(url) = cluster::url() else { return };
    let (schema, steps) = (cluster::schema(), Steps::default());
    let (a, b) = (open(&url, &schema, LEASE, &steps).await, open(&url, &schema, LEASE, &steps).await);
    let mut events = listen(&a, &b, &steps).await;
    let handle = a.spawn(long("f".into(), 20)).await.unwrap();
    let heard = events_until(&mut events, handle.id(), |kind| *kind == EventKind::Completed).await;
    let name = |kind: &EventKind| match kind {
        EventKind::StepFinished { step, checkpoint } => format!("{step} {checkpoint}"),
        kind => format!("{kind:?}"),
    };
    let is_wanted = |kind: &EventKind| !matches!(kind, EventKind::StepStarted { .. });
    let heard: Vec<String> = heard.iter().map(|event| &event.kind).filter(|kind| is_wanted(kind)).map(name).collect();
    let steps = (1..=20).map(|n| format!("add {n}"));
    let expected: Vec<String> =
        ["Spawned".to_owned(), "Started { resuming: false }".to_owned()].into_iter().chain(steps).chain(["Completed".to_owned()]).collect();
    assert_eq!(heard, expected);
    a.close().await.unwrap();
    b.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listener_is_told_that_a_worker_that_dies_may_have_more_events() {
    let Some(url) = cluster::url() else { return };
    let (schema, steps) = (cluster::schema(), Steps::default());
    let (a, b) = (open(&url, &schema, LEASE, &steps).await, open(&url, &schema, LEASE, &steps).await);
    let mut events = listen(&a, &b, &steps).await;
    let handle = a.spawn(long("f".into(), 60)).await.unwrap();
    let id = handle.id().to_owned();
    drop(handle);
    eventually("it is under way", async || steps.0.lock().unwrap().len() > 5).await;
    drop(a);
    let mut missed = false;
    loop {
        match soon("it hears of the fiber", events.next()).await.unwrap() {
            EventItem::Lagged(1) => missed = true,
            EventItem::Lagged(more) => panic!("{more}"),
            EventItem::Event(event) if *event.fiber == *id && event.kind == EventKind::Completed => break,
            EventItem::Event(_) => {}
        }
    }
    assert!(missed);
    b.close().await.unwrap();
}
