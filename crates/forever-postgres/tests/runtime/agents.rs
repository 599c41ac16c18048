//! Agents and chats of two workers.
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forever::agent::{Agent, AgentHandle, Due, Pushed, RecoveredFiber, RecoveryAction};
use forever::chat::message::{Chunk, UiMessage};
use forever::chat::{ChatAgent, ChatEvent, Entry, Turn, TurnState};
use forever::fiber::FiberState;
use forever::prelude::*;
use forever::{BoxError, Error, ErrorKind};
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

/// Says what becomes of its fibers where that is possible, and fails elsewhere.
struct Warden {
    decides: bool,
    /// The fibers that its hook was called for.
    asked: Arc<Mutex<Vec<String>>>,
}

impl Agent for Warden {
    const CLASS: &'static str = "warden";
    type State = ();

    async fn on_fiber_recovered(&self, fiber: &RecoveredFiber) -> Result<RecoveryAction, BoxError> {
        self.asked.lock().unwrap().push(fiber.id().to_owned());
        match fiber.id() {
            "skipped" => Ok(RecoveryAction::Skip),
            _ if !self.decides => Err("the service that it asks is away".into()),
            _ if fiber.is_closure() => Ok(RecoveryAction::Complete(serde_json::json!(7))),
            _ => Ok(RecoveryAction::Resume),
        }
    }
}

#[fiber]
async fn guarded(gate: Res<Gate>) -> Result<u64, BoxError> {
    gate.pass().await;
    Ok(7)
}

/// Keeps the fibers of the first worker from ending.
#[derive(Clone, Default)]
struct Gate(Arc<AtomicBool>);

impl Gate {
    async fn pass(&self) {
        if !self.0.swap(true, Ordering::AcqRel) {
            std::future::pending::<()>().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hook_that_has_failed_is_called_again_in_another_worker() {
    for how in ["its worker closes", "its worker dies", "the agent is in another worker"] {
        let Some(url) = cluster::url() else { return };
        let (schema, gate) = (cluster::schema(), Gate::default());
        let open = async |decides: bool| {
            let asked = Arc::<Mutex<Vec<String>>>::default();
            let of_agent = Arc::clone(&asked);
            let builder = Forever::builder()
                .store(store(&url, &schema, LEASE).await)
                .fiber::<guarded>()
                .resource(gate.clone())
                .agent(move |_: AgentHandle<Warden>| Warden { decides, asked: Arc::clone(&of_agent) });
            let idle = if how == "the agent is in another worker" { Duration::from_millis(100) } else { LEASE };
            (builder.idle_timeout(idle).open().await.unwrap(), asked)
        };
        let (a, _) = open(true).await;
        let of_a = a.agent::<Warden>("tower");
        of_a.spawn(guarded()).id("function").await.unwrap();
        eventually("it is under way", async || gate.0.load(Ordering::Acquire)).await;
        for id in ["closure", "skipped"] {
            let body = async |_| std::future::pending::<Result<u64, Error>>().await;
            of_a.spawn_closure("waits", body).id(id).start().await.unwrap();
        }
        let (b, asked_b) = open(false).await;
        drop((a, of_a));
        let times = |asked: &Mutex<Vec<String>>, id: &str| asked.lock().unwrap().iter().filter(|there| *there == id).count();
        eventually("its hook fails twice", async || times(&asked_b, "function") > 1 && times(&asked_b, "closure") > 1).await;
        let mut deaths = None;
        eventually("it is interrupted between two calls", async || {
            let status = b.fiber::<guarded>("function").status().await.unwrap();
            deaths = (status.state == FiberState::Interrupted).then_some(status.deaths);
            deaths.is_some()
        })
        .await;
        assert_eq!(deaths, Some(1), "{how}: to wait for the next call is no death");

        let by_b = b.agent::<Warden>("tower").wake().await.unwrap();
        let (c, asked_c) = open(true).await;
        drop(by_b);
        let mut held = None;
        let b = match how {
            "its worker closes" => {
                b.close().await.unwrap();
                None
            }
            "its worker dies" => {
                drop(b);
                None
            }
            _ => {
                eventually("c has the agent", async || {
                    held = c.agent::<Warden>("tower").wake().await.ok();
                    held.is_some()
                })
                .await;
                Some(b)
            }
        };
        let ended = async || c.fibers().state(FiberState::Completed).await.unwrap().fibers.len() == 2;
        eventually(&format!("they end after {how}"), ended).await;
        // C asks when it opens, unless the agent is in B by then.
        assert!(times(&asked_b, "skipped") == 1 && times(&asked_c, "skipped") <= 1, "{how}: it waits for a person, or an open");
        drop(held);
        if let Some(b) = b {
            b.close().await.unwrap();
        }
        c.close().await.unwrap();
    }
}
