//! Server-sent events: which fibers something has happened to. They carry no texts, so the page
//! asks for what it shows.
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event as Line, KeepAlive, Sse};
use forever_runtime::fiber::{EventItem, EventKind, Events};
use futures_util::stream::unfold;
use futures_util::{FutureExt, Stream};
use serde_json::json;
use tokio::time::sleep;

use crate::Shared;
use crate::failure::Failure;

/// How many pages may watch at a time.
const MOST: usize = 64;

/// How long events are collected into one line.
const COLLECT: Duration = Duration::from_millis(250);

/// How many events one line counts.
const MOST_COLLECTED: usize = 2048;

/// How many fibers one line names.
const NAMED: usize = 64;

/// Number of pages that watch.
#[derive(Debug, Default)]
pub(crate) struct Watchers(AtomicUsize);

/// One page that watches.
struct Watcher {
    shared: Arc<Shared>,
    events: Events,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.shared.watchers.0.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(crate) async fn events(State(shared): State<Arc<Shared>>) -> Result<Sse<impl Stream<Item = Result<Line, Infallible>>>, Failure> {
    let events = shared.forever.events();
    if shared.watchers.0.fetch_add(1, Ordering::Relaxed) >= MOST {
        shared.watchers.0.fetch_sub(1, Ordering::Relaxed);
        return Err(Failure::busy("too many pages watch already"));
    }
    let lines = unfold(Watcher { shared, events }, async |mut watcher| {
        let line = next(&mut watcher.events).await?;
        Some((Ok(line), watcher))
    });
    Ok(Sse::new(lines).keep_alive(KeepAlive::new().interval(Duration::from_secs(15))))
}

/// What has happened in a while, from the first event on; `None` when the runtime has closed.
async fn next(events: &mut Events) -> Option<Line> {
    let mut told = Some(events.next().await?);
    // Nothing waits for events meanwhile, so none wakes a task.
    sleep(COLLECT).await;
    let (mut fibers, mut states, mut steps, mut missed) = (BTreeSet::new(), 0_u64, 0_u64, 0_u64);
    // What comes while these are read may be for the next line.
    let mut collected = 0;
    while let Some(item) = told {
        match item {
            EventItem::Event(event) => {
                match event.kind {
                    EventKind::StepStarted { .. } | EventKind::StepFinished { .. } | EventKind::Stashed => steps += 1,
                    _ => states += 1,
                }
                if fibers.len() < NAMED {
                    fibers.insert(event.fiber);
                } else if !fibers.contains(&event.fiber) {
                    missed += 1;
                }
            }
            EventItem::Lagged(count) => missed += count,
        }
        collected += 1;
        told = if collected < MOST_COLLECTED { events.next().now_or_never().flatten() } else { None };
    }
    let fibers: Vec<&str> = fibers.iter().map(|id| &**id).collect();
    let line = json!({ "fibers": fibers, "states": states, "steps": steps, "missed": missed });
    Some(Line::default().data(line.to_string()))
}
