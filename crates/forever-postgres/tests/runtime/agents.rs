//! Agents and chats of two workers.
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use forever::agent::{Agent, AgentHandle, Due, Pushed};
use forever::chat::message::{Chunk, UiMessage};
use forever::chat::{ChatAgent, ChatEvent, Entry, Turn, TurnState};
use forever::prelude::*;
use forever::{BoxError, ErrorKind};
use forever_testkit::waiting::{eventually, soon};

use crate::{cluster, store};

const LEASE: Duration = Duration::from_secs(3600);

/// Counts until it is told to stop.
struct Counter;

impl Agent for Counter {
    const CLASS: &'static str = "counter";
    type State = u32;
}

impl ChatAgent for Counter {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        let first: u32 = turn.stashed()?.unwrap_or(0);
        let endless = turn.messages().iter().any(|message| message.text().contains("for ever"));
        turn.write(Chunk::text_start("text")).await?;
        for n in first..if endless { u32::MAX } else { 10 } {
            turn.write(Chunk::text_delta("text", format!("{n} "))).await?;
            turn.stash(&(n + 1)).await?;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        turn.write(Chunk::text_end("text")).await?;
        turn.write(Chunk::finish()).await?;
        Ok(())
    }
}

async fn open(url: &str, schema: &str) -> Forever {
    Forever::builder().store(store(url, schema, LEASE).await).chat_agent(|_| Counter).open().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turn_is_followed_and_cancelled_in_another_worker() {
    let Some(url) = cluster::url() else { return };
    let schema = cluster::schema();
    let (a, b) = (open(&url, &schema).await, open(&url, &schema).await);
    let (by_a, by_b) = (a.agent::<Counter>("ada"), b.agent::<Counter>("ada"));
    let mut events = by_b.chat_events().unwrap();

    let turn = by_a.submit("first", [UiMessage::user("u1", "count, please")]).await.unwrap();
    let accepted = soon("b hears of the turn", events.recv()).await.unwrap().unwrap();
    assert!(matches!(&accepted, ChatEvent::Accepted(status) if status.id() == turn.id()), "{accepted:?}");
    let followed = by_b.turn(turn.id()).await.unwrap().unwrap();
    let mut log = followed.follow(0).await.unwrap();
    let mut text = String::new();
    let end = loop {
        match soon("b follows", log.next()).await.unwrap().unwrap() {
            Entry::Chunk(_, chunk) => {
                let chunk: serde_json::Value = serde_json::from_str(chunk.json()).unwrap();
                text.push_str(chunk["delta"].as_str().unwrap_or_default());
            }
            Entry::End(end) => break end,
            other => panic!("{other:?}"),
        }
    };
    assert!(end.is_completed(), "{end:?}");
    assert_eq!(text, "0 1 2 3 4 5 6 7 8 9 ");

    let turn = by_a.submit("second", [UiMessage::user("u2", "count for ever")]).await.unwrap();
    let followed = by_b.turn(turn.id()).await.unwrap().unwrap();
    let mut log = followed.follow(3).await.unwrap();
    soon("b follows", log.next()).await.unwrap();
    followed.cancel("enough").await.unwrap();
    let end = loop {
        if let Some(Entry::End(end)) = soon("b hears of the end", log.next()).await.unwrap() {
            break end;
        }
    };
    assert_eq!((end.state(), end.reason()), (TurnState::Aborted, Some("enough")));
    a.close().await.unwrap();
    b.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_set_in_one_worker_is_shown_in_the_other() {
    let Some(url) = cluster::url() else { return };
    let schema = cluster::schema();
    let (a, b) = (open(&url, &schema).await, open(&url, &schema).await);
    let (by_a, by_b) = (a.agent::<Counter>("ada"), b.agent::<Counter>("ada"));
    by_a.set_state(&1).await.unwrap();
    let mut connection = by_b.connect().await.unwrap();
    let state = |pushed: Option<Pushed>| match pushed {
        Some(Pushed::State(text)) => text.read::<u32>().unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!(state(connection.recv().await), 1);
    by_a.set_state(&2).await.unwrap();
    assert_eq!(state(soon("b is shown it", connection.recv()).await), 2);
    assert_eq!(by_b.state().await.unwrap(), 2);
    // Its own, once.
    by_b.set_state(&3).await.unwrap();
    by_a.set_state(&4).await.unwrap();
    assert_eq!(state(soon("its own", connection.recv()).await), 3);
    assert_eq!(state(soon("the other one", connection.recv()).await), 4);
    a.close().await.unwrap();
    b.close().await.unwrap();
}

/// Counts the runs of its schedule.
struct Gardener {
    watered: Arc<AtomicU32>,
}

impl Agent for Gardener {
    const CLASS: &'static str = "gardener";
    type State = ();

    async fn on_schedule(&self, _: &Due) -> Result<(), BoxError> {
        self.watered.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

async fn garden(url: &str, schema: &str, watered: &Arc<AtomicU32>) -> Forever {
    let watered = Arc::clone(watered);
    let make = move |_: AgentHandle<Gardener>| Gardener { watered: Arc::clone(&watered) };
    Forever::builder().store(store(url, schema, LEASE).await).agent(make).idle_timeout(Duration::from_millis(100)).open().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_is_in_the_memory_of_one_worker_and_of_another_when_that_is_gone() {
    let Some(url) = cluster::url() else { return };
    let (schema, by_a, by_b) = (cluster::schema(), Arc::default(), Arc::default());
    let (a, b) = (garden(&url, &schema, &by_a).await, garden(&url, &schema, &by_b).await);
    let awake = a.agent::<Gardener>("roses").wake().await.unwrap();
    let roses = b.agent::<Gardener>("roses");
    let refused = roses.wake().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AgentElsewhere, "{refused}");
    assert!(refused.to_string().contains(&format!("worker 1 (process {})", std::process::id())), "{refused}");
    // Another agent of the class is free.
    drop(b.agent::<Gardener>("tulips").wake().await.unwrap());

    // What b schedules runs where the agent is.
    roses.schedule(Duration::ZERO, "water", ()).await.unwrap();
    eventually("a waters", async || by_a.load(Ordering::Relaxed) == 1).await;
    drop(awake);
    // It leaves memory, so that b can have it.
    eventually("b may wake it", async || roses.wake().await.is_ok()).await;
    let held = roses.wake().await.unwrap();
    assert_eq!(a.agent::<Gardener>("roses").wake().await.unwrap_err().kind(), ErrorKind::AgentElsewhere);
    a.agent::<Gardener>("roses").schedule(Duration::ZERO, "water", ()).await.unwrap();
    eventually("b waters", async || by_b.load(Ordering::Relaxed) == 1).await;
    drop(held);
    assert_eq!((by_a.load(Ordering::Relaxed), by_b.load(Ordering::Relaxed)), (1, 1));

    // As if the process had died with it.
    let awake = b.agent::<Gardener>("roses").wake().await.unwrap();
    std::mem::forget(awake);
    b.close().await.unwrap();
    eventually("a may wake it", async || a.agent::<Gardener>("roses").wake().await.is_ok()).await;
    a.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedule_of_a_dead_worker_runs_in_another() {
    let Some(url) = cluster::url() else { return };
    let (schema, watered) = (cluster::schema(), Arc::default());
    let (a, b) = (garden(&url, &schema, &watered).await, garden(&url, &schema, &watered).await);
    let awake = a.agent::<Gardener>("roses").wake().await.unwrap();
    a.agent::<Gardener>("roses").schedule(Duration::from_secs(2), "water", ()).await.unwrap();
    drop(awake);
    // As if the process had died. The other worker was never told of the schedule.
    drop(a);
    eventually("b waters", async || watered.load(Ordering::Relaxed) == 1).await;
    b.close().await.unwrap();
}
