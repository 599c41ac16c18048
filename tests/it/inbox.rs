//! Messages and the end of their fiber: what is accepted is received, handed over by `close!`, or
//! reported as unread.
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forever::agent::{Agent, AgentHandle, EndedFiber};
use forever::fiber::{EventItem, EventKind, FiberState, UnreadTopic};
use forever::prelude::*;
use forever::{BoxError, Builder, ErrorKind, Retention};
use forever_testkit::waiting::{eventually, soon};
use tokio::sync::Semaphore;

use crate::support::stands;

mod senders;

const HOUR: Duration = Duration::from_secs(3600);

/// Lets the step of a fiber go on.
#[derive(Clone)]
struct Gate(Arc<Semaphore>);

impl Gate {
    fn shut() -> Self {
        Gate(Arc::new(Semaphore::new(0)))
    }

    async fn pass(&self) {
        self.0.acquire().await.unwrap().forget();
    }

    fn open(&self) {
        self.0.add_permits(1);
    }
}

/// Receives one message, and comes to its end behind a step.
#[fiber]
async fn one(gate: Res<Gate>, fails: bool) -> anyhow::Result<u32> {
    let first: u32 = recv!("go");
    step!("last", gate.pass().await);
    if fails && recv!("again", timeout = Duration::ZERO).is_none_or(|yes: bool| !yes) {
        anyhow::bail!("no");
    }
    Ok(first)
}

/// Closes a topic between two steps, and says what was left.
#[fiber]
async fn closes(gate: Res<Gate>) -> anyhow::Result<Vec<u32>> {
    step!("before", gate.pass().await);
    let mut all: Vec<u32> = close!("go");
    step!("behind", gate.pass().await);
    all.push(recv!("go", timeout = HOUR).unwrap_or(0));
    let none: Option<u32> = try_recv!("go");
    all.push(none.unwrap_or(0));
    Ok(all)
}

#[fiber]
async fn waits_for_a_closed_topic() -> anyhow::Result<u32> {
    let left: Vec<u32> = close!("go");
    let more: u32 = recv!("go");
    Ok(more + u32::try_from(left.len())?)
}

/// What the agent has heard of.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<Unread>>>);

/// Topics, and the values of the messages in them.
type Unread = (Vec<UnreadTopic>, Vec<i64>);

struct Clerk(Heard);

impl Agent for Clerk {
    const CLASS: &'static str = "clerk";
    type State = ();

    async fn on_fiber_completed(&self, fiber: &EndedFiber) -> Result<(), BoxError> {
        let unread = fiber.unread();
        let mut values = Vec::new();
        let mut after = None;
        loop {
            // By pages of one.
            let page = unread.messages(after, 1).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.number);
            values.extend(page.iter().filter_map(|message| message.value.as_i64()));
        }
        assert_eq!(u64::try_from(values.len())?, unread.count());
        self.0.0.lock().unwrap().push((unread.topics().to_vec(), values));
        Ok(())
    }
}

fn builder(gate: &Gate, heard: &Heard) -> Builder {
    let heard = heard.clone();
    let clerk = move |_: AgentHandle<Clerk>| Clerk(heard.clone());
    let builder = Forever::builder().in_memory().retention(Retention::forever()).resource(gate.clone()).agent(clerk);
    builder.fiber::<one>().fiber::<closes>().fiber::<waits_for_a_closed_topic>()
}

async fn open(gate: &Gate) -> Forever {
    builder(gate, &Heard::default()).open().await.unwrap()
}

async fn unread(forever: &Forever, id: &str) -> Vec<(String, u64)> {
    let status = forever.status(id).await.unwrap();
    status.unread.into_iter().map(|UnreadTopic { topic, messages, .. }| (topic, messages)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_a_fiber_that_ends_are_reported_and_stay_readable() {
    let gate = Gate::shut();
    let forever = open(&gate).await;
    let mut events = forever.events();
    let handle = forever.spawn(one(false)).await.unwrap();
    for n in 1..=3_u32 {
        forever.send(handle.id(), "go", &n).await.unwrap();
    }
    forever.send(handle.id(), "again", &true).await.unwrap();
    gate.open();
    assert_eq!(soon("the end", handle.wait()).await.unwrap(), 1);
    assert_eq!(unread(&forever, handle.id()).await, [("again".into(), 1), ("go".into(), 2)]);
    assert_eq!(handle.status().await.unwrap().unread.len(), 2);
    let left = handle.messages().await.unwrap();
    assert_eq!(left.iter().map(|message| message.value.to_string()).collect::<Vec<_>>(), ["2", "3", "true"]);
    assert_eq!(forever.view(handle.id()).await.unwrap().messages.len(), 3);
    let mut told = Vec::new();
    loop {
        match soon("an event", events.next()).await.unwrap() {
            EventItem::Event(event) => match event.kind {
                EventKind::Unread { topics } => told.push(topics),
                EventKind::Completed => break,
                _ => {}
            },
            EventItem::Lagged(_) => unreachable!("there are few"),
        }
    }
    let topics: Vec<_> = told.concat().into_iter().map(|topic| (topic.topic, topic.messages)).collect();
    assert_eq!(topics, [("again".into(), 1), ("go".into(), 2)]);
    let refused = forever.send(handle.id(), "go", &4_u32).await.unwrap_err();
    assert!(refused.is_invalid_state(), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_fiber_keeps_its_messages_for_its_next_run() {
    let gate = Gate::shut();
    let forever = open(&gate).await;
    let handle = forever.spawn(one(true)).await.unwrap();
    for (topic, value) in [("go", 1_u32), ("go", 2)] {
        forever.send(handle.id(), topic, &value).await.unwrap();
    }
    gate.open();
    assert!(soon("the end", handle.wait()).await.unwrap_err().is_failed());
    assert_eq!(unread(&forever, handle.id()).await, [("go".into(), 1)]);
    assert!(forever.send(handle.id(), "again", &true).await.unwrap_err().is_invalid_state());
    handle.restart().await.unwrap();
    gate.open();
    assert!(soon("the end", handle.wait()).await.unwrap_err().is_failed(), "the second message was its first now");
    assert_eq!(unread(&forever, handle.id()).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_fiber_leaves_its_messages_and_a_restart_begins_without_them() {
    let gate = Gate::shut();
    let forever = open(&gate).await;
    let handle = forever.spawn(one(false)).await.unwrap();
    stands(&handle, FiberState::Waiting).await;
    forever.send(handle.id(), "again", &true).await.unwrap();
    forever.cancel(handle.id(), "enough").await.unwrap();
    assert!(soon("the end", handle.wait()).await.unwrap_err().is_cancelled());
    assert_eq!(unread(&forever, handle.id()).await, [("again".into(), 1)]);
    forever.restart(handle.id()).await.unwrap();
    assert_eq!(unread(&forever, handle.id()).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_a_close_on_messages_are_refused() {
    let gate = Gate::shut();
    let forever = open(&gate).await;
    let handle = forever.spawn(closes()).await.unwrap();
    for n in 1..=2_u32 {
        forever.send(handle.id(), "go", &n).message_id(format!("m{n}")).await.unwrap();
    }
    gate.open();
    eventually("the close of the topic", async || handle.status().await.unwrap().at.as_deref() == Some("all")).await;
    let refused = forever.send(handle.id(), "go", &3_u32).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TopicClosed);
    assert!(refused.is_topic_closed() && refused.to_string().contains("it has closed this topic"), "{refused}");
    forever.send(handle.id(), "go", &2_u32).message_id("m2").await.unwrap();

    // A fork has the topic closed where it was, and open before; an import has it as the export.
    let behind = forever.fork(handle.id()).id("behind").await.unwrap();
    assert!(forever.send(behind.id(), "go", &3_u32).await.unwrap_err().is_topic_closed());
    let export = forever.export(handle.id()).await.unwrap();
    let export = serde_json::from_str(&serde_json::to_string(&export).unwrap()).unwrap();
    let imported = forever.import(export).id("imported").resume().await.unwrap();
    assert!(forever.send(imported.id(), "go", &3_u32).await.unwrap_err().is_topic_closed());
    gate.0.add_permits(9);
    for id in [handle.id(), behind.id(), imported.id()] {
        assert_eq!(soon("the end", forever.fiber::<closes>(id).wait()).await.unwrap(), [1, 2, 0, 0], "{id}");
    }
    assert_eq!(unread(&forever, handle.id()).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_a_closed_topic_fails_the_fiber() {
    let forever = open(&Gate::shut()).await;
    let error = soon("the end", forever.run(waits_for_a_closed_topic())).await.unwrap_err();
    assert!(error.is_failed() && error.reason().contains("waits for a message on topic `go`, which it has closed"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_agent_of_a_fiber_reads_its_unread_messages_by_page() {
    let (gate, heard) = (Gate::shut(), Heard::default());
    let forever = builder(&gate, &heard).open().await.unwrap();
    let handle = forever.agent::<Clerk>("ada").spawn(one(false)).await.unwrap();
    for n in 1..=3_u32 {
        forever.send(handle.id(), "go", &n).await.unwrap();
    }
    gate.open();
    soon("the end", handle.wait()).await.unwrap();
    eventually("the hook", async || !heard.0.lock().unwrap().is_empty()).await;
    let heard = heard.0.lock().unwrap().clone();
    let [(topics, values)] = heard.as_slice() else { panic!("{heard:?}") };
    assert_eq!((topics.len(), topics[0].messages, values.as_slice()), (1, 2, [2, 3].as_slice()));
    assert_eq!(forever.status(handle.id()).await.unwrap().state, FiberState::Completed);
}
