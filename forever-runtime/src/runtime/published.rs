//! What this process publishes to other workers, and what it reads of theirs: broadcasts of agents,
//! and events of fibers.
//!
//! Each worker numbers its items when they are queued, and a task stores them in that order. A
//! reader has the number of the last item that it has read of each worker, so a gap says how many
//! it has missed. Nothing here is durable.
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, PoisonError};

use tokio::sync::Notify;
use tracing::debug;

use crate::error::{Result, chain};
use crate::runtime::event_json;
use crate::runtime::events::{Event, EventItem};
use crate::runtime::race::race;
use crate::runtime::state::Runtime;
use crate::runtime::sync::{Mutex, MutexGuard, sleep};
use crate::store::{AgentId, ClusterStore, Publication, PublishedItem, PublishedQuery, WorkerId};

/// Most items that wait to be stored. The oldest are dropped beyond that, and counted as missed.
const CAPACITY: usize = 8192;

/// Most items of one transaction.
const BATCH: usize = 512;

/// An item to publish.
#[derive(Debug)]
enum Item {
    Broadcast(AgentId, Arc<str>),
    Event(Box<Event>),
}

/// The items of one runtime, outbound and inbound.
#[derive(Debug, Default)]
pub(crate) struct Published {
    outbound: Arc<Outbound>,
    /// Locked while items are read, so that they are read once and in order.
    read: tokio::sync::Mutex<Cursors>,
}

/// What was read of each worker; `None` until the first look, which skips what was there before.
type Cursors = Option<BTreeMap<WorkerId, Cursor>>;

#[derive(Debug, Default)]
struct Cursor {
    /// Number of the last item that was read.
    last: u64,
    /// Whether the worker was not alive at the last look.
    gone: bool,
}

/// Most cursors, beyond which those of workers that are gone are dropped.
const CURSORS: usize = 512;

#[derive(Debug, Default)]
struct Outbound {
    queue: Mutex<Queue>,
    queued: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    items: VecDeque<Item>,
    /// Number of the first item in the queue, less one.
    before: u64,
}

impl Outbound {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, item: Item) {
        let mut queue = self.queue();
        if queue.items.len() == CAPACITY {
            queue.items.pop_front();
            queue.before += 1;
        }
        queue.items.push_back(item);
        drop(queue);
        self.queued.notify_one();
    }

    /// The next batch with the number of its first item, empty where there is none.
    fn take(&self) -> (u64, Vec<Item>) {
        let mut queue = self.queue();
        let count = queue.items.len().min(BATCH);
        let first = queue.before + 1;
        queue.before += count as u64;
        (first, queue.items.drain(..count).collect())
    }
}

/// What was read of other workers, for the parts of the runtime.
pub(crate) enum Inbound {
    /// A broadcast of an agent, JSON.
    Broadcast(AgentId, String),
    /// So many broadcasts, at most, were missed.
    Lagged(u64),
}

impl Published {
    /// Publishes a broadcast of an agent.
    pub(crate) fn broadcast(&self, agent: &AgentId, text: &Arc<str>) {
        self.outbound.push(Item::Broadcast(agent.clone(), Arc::clone(text)));
    }

    /// Publishes the events of this process while another worker listens to them.
    fn relay(&self, runtime: &Runtime, is_heard: bool) {
        if is_heard == runtime.listeners.is_relayed() {
            return;
        }
        let outbound = Arc::clone(&self.outbound);
        runtime.listeners.set_relay(is_heard.then_some(move |event: &Event| outbound.push(Item::Event(Box::new(event.clone())))));
    }

    /// Stores who listens to events: the other workers here, and this one there.
    pub(crate) async fn set_listeners(&self, runtime: &Runtime, cluster: &dyn ClusterStore, others: bool, this: bool) -> Result<()> {
        self.relay(runtime, others);
        let listens = runtime.listeners.is_heard();
        if listens == this { Ok(()) } else { cluster.set_listens(runtime.worker, listens).await }
    }

    /// Reads what other workers have published since the last call: broadcasts of `agents`, and
    /// events if this process listens to them.
    pub(crate) async fn read(&self, runtime: &Runtime, cluster: &dyn ClusterStore, agents: Vec<AgentId>) -> Result<Vec<Inbound>> {
        let mut cursors = self.read.lock().await;
        let first = cursors.is_none();
        let read = cursors.get_or_insert_default();
        let mut inbound = Vec::new();
        loop {
            let events = !first && runtime.listeners.is_heard();
            let agents = if first { Vec::new() } else { agents.clone() };
            let after = read.iter().map(|(worker, cursor)| (*worker, cursor.last)).collect();
            let asked = events || !agents.is_empty();
            let page = cluster.published(PublishedQuery { worker: runtime.worker, after, agents, events }).await?;
            for item in &page.items {
                take_in(runtime, read, item, events, &mut inbound);
            }
            for (worker, last) in &page.workers {
                let cursor = read.entry(*worker).or_default();
                cursor.gone = false;
                if !asked {
                    cursor.last = cursor.last.max(*last);
                }
            }
            for (worker, cursor) in &mut *read {
                let gone = page.workers.iter().all(|(alive, _)| alive != worker);
                if gone && !std::mem::replace(&mut cursor.gone, gone) && events {
                    runtime.listeners.tell_of_others(&EventItem::Lagged(1));
                }
            }
            if read.len() > CURSORS {
                read.retain(|_, cursor| !cursor.gone);
            }
            if !page.more {
                return Ok(inbound);
            }
        }
    }
}

/// Takes in one item of another worker.
fn take_in(runtime: &Runtime, read: &mut BTreeMap<WorkerId, Cursor>, item: &PublishedItem, events: bool, inbound: &mut Vec<Inbound>) {
    let cursor = read.entry(item.worker).or_default();
    let missed = item.number.saturating_sub(cursor.last).saturating_sub(1);
    cursor.last = cursor.last.max(item.number);
    if missed > 0 {
        inbound.push(Inbound::Lagged(missed));
        if events {
            runtime.listeners.tell_of_others(&EventItem::Lagged(missed));
        }
    }
    match (&item.agent, &item.data) {
        (Some(agent), Some(data)) => inbound.push(Inbound::Broadcast(agent.clone(), data.clone())),
        (None, Some(data)) if events => match event_json::read(data) {
            Some(event) => runtime.listeners.tell_of_others(&EventItem::Event(event)),
            // It is of a kind that this version does not know.
            None => runtime.listeners.tell_of_others(&EventItem::Lagged(1)),
        },
        _ => {}
    }
}

/// Stores what this process publishes, until the runtime closes.
pub(crate) async fn run(runtime: Arc<Runtime>) {
    let outbound = Arc::clone(&runtime.watchers.published.outbound);
    let Some(cluster) = runtime.cluster() else { return };
    loop {
        let (first, items) = outbound.take();
        if items.is_empty() {
            if runtime.is_closing() {
                return;
            }
            race(outbound.queued.notified(), runtime.closing()).await;
            continue;
        }
        let items: Vec<Publication> = items.into_iter().map(publication).collect();
        while let Err(error) = cluster.publish(runtime.worker, first, items.clone()).await {
            debug!(error = %chain(&error), "other workers do not hear of broadcasts and events at the moment");
            if error.is_closed() || race(runtime.closing(), sleep(runtime.settings.timings.store_retry)).await.is_some() {
                return;
            }
        }
    }
}

fn publication(item: Item) -> Publication {
    match item {
        Item::Broadcast(agent, text) => Publication { agent: Some(agent), data: text.to_string() },
        Item::Event(event) => Publication { agent: None, data: event_json::write(&event) },
    }
}
