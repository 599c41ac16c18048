//! What several of these tests use.
use std::collections::BTreeMap;

use forever::Forever;
use forever::fiber::{EventItem, EventKind, Events, FiberHandle, FiberState};
use forever_testkit::waiting::{eventually, soon};

/// Waits until a fiber stands so.
pub(crate) async fn stands<T>(handle: &FiberHandle<T>, state: FiberState) {
    eventually(&format!("{} {state}", handle.id()), async || handle.status().await.unwrap().state == state).await;
}

/// Hears what happens to fibers.
pub(crate) struct Ears {
    events: Events,
    /// How often each fiber waited, was woken, and so on.
    heard: BTreeMap<(String, &'static str), usize>,
}

impl Ears {
    pub(crate) fn of(forever: &Forever) -> Self {
        Ears { events: forever.events(), heard: BTreeMap::new() }
    }

    pub(crate) fn times(&self, fiber: &str, what: &'static str) -> usize {
        self.heard.get(&(fiber.to_owned(), what)).copied().unwrap_or(0)
    }

    /// Ready when it has happened so often.
    pub(crate) async fn hear(&mut self, fiber: &str, what: &'static str, times: usize) {
        while self.times(fiber, what) < times {
            let wanted = format!("`{fiber}` {what} {times} times, after {:?}", self.heard);
            match soon(&wanted, self.events.next()).await.expect("the runtime is open") {
                EventItem::Event(event) => *self.heard.entry((event.fiber.to_string(), word(&event.kind))).or_default() += 1,
                EventItem::Lagged(missed) => panic!("{missed} events missed"),
            }
        }
    }
}

fn word(kind: &EventKind) -> &'static str {
    match kind {
        EventKind::Waiting => "waiting",
        EventKind::Woken => "woken",
        EventKind::Completed => "completed",
        EventKind::Failed { .. } => "failed",
        EventKind::Cancelled { .. } => "cancelled",
        EventKind::Spawned => "spawned",
        EventKind::Started { .. } => "started",
        _ => "other",
    }
}
