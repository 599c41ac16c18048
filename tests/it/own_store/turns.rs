//! What reaches a turn at each moment between two calls of its store: none of it is lost.
use std::path::Path;

use forever::chat::message::{Chunk, UiMessage};
use forever::chat::{ChatAgent, RecoveryPolicy, Turn, TurnHandle, TurnState};
use forever::prelude::*;
use forever::{Agent, BoxError, EventKind, FiberState, Told};
use tokio::sync::watch;

use super::counting::{Calls, HeldBack};
use super::{Steps, double, file};
use crate::support::soon;

/// A charge that never comes back, and says when it has begun.
#[derive(Clone)]
struct Charges(watch::Sender<u32>);

#[fiber]
async fn charges(charges: Res<Charges>) -> Result<u64, BoxError> {
    let paid = step!("charge", effect, {
        charges.0.send_modify(|begun| *begun += 1);
        std::future::pending::<u64>().await
    });
    Ok(paid)
}

/// Waits for a message, and for a child.
#[fiber]
async fn hears() -> Result<String, BoxError> {
    let child = spawn!(double(21));
    let word: String = recv!("word");
    Ok(format!("{word} {}", wait!(child)?))
}

struct Charging;

impl Agent for Charging {
    const CLASS: &'static str = "charging";
    type State = ();
}

impl ChatAgent for Charging {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        turn.run(charges()).await?;
        Ok(())
    }

    fn recovery() -> RecoveryPolicy {
        RecoveryPolicy::default().max_attempts(1).max_deaths(1)
    }
}

struct Hearing;

impl Agent for Hearing {
    const CLASS: &'static str = "hearing";
    type State = ();
}

impl ChatAgent for Hearing {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        let heard = turn.run(hears()).await?;
        turn.write(Chunk::text_start("t")).await?;
        turn.write(Chunk::text_delta("t", heard)).await?;
        turn.write(Chunk::text_end("t")).await?;
        Ok(())
    }
}

async fn open(path: &Path, calls: &Calls, charges: &Charges) -> Forever {
    let builder = Forever::builder().store(file(path, calls).await).resource(charges.clone()).resource(Steps::default());
    let builder = builder.fiber::<self::charges>().fiber::<hears>().fiber::<double>();
    builder.chat_agent(|_| Charging).chat_agent(|_| Hearing).open().await.unwrap()
}

async fn fiber(forever: &Forever) -> forever::FiberStatus {
    let fibers = forever.fibers().await.unwrap().fibers;
    fibers.into_iter().find(|fiber| fiber.name == "forever.turn").expect("a turn has a fiber")
}

/// A turn that is being parked, in a process behind the one that died in its charge, at a moment `before` calls behind its
/// beginning; `None` if it is parked before that.
async fn about_to_park(path: &Path, before: u64) -> Option<(Forever, TurnHandle, HeldBack, &'static str)> {
    let charges = Charges(watch::Sender::new(0));
    {
        let forever = open(path, &Calls::default(), &charges).await;
        forever.agent::<Charging>("a").save_messages([UiMessage::user("u", "pay")]).id("r").await.unwrap();
        soon("the charge", charges.0.subscribe().wait_for(|begun| *begun == 1)).await.unwrap();
        // As if the process had died.
    }
    let calls = Calls::default();
    let mut held = calls.hold_back("begin_turn", before);
    let forever = open(path, &calls, &charges).await;
    let mut events = forever.events();
    let parked = async {
        while fiber(&forever).await.state != FiberState::Parked {
            match events.next().await {
                Some(Told::Event(event)) if matches!(event.kind, EventKind::Parked { .. }) => return,
                Some(_) => {}
                None => panic!("no more events"),
            }
        }
    };
    let reached = tokio::select! {
        biased;
        operation = held.reached() => Some(operation),
        () = parked => None,
    };
    let turn = forever.agent::<Charging>("a").turn("r").await.unwrap().unwrap();
    reached.map(|operation| (forever, turn, held, operation))
}

/// Ends a turn at each moment while it is being parked, and sees it end.
async fn ends_at_each_moment(end: impl AsyncFn(&Forever, &TurnHandle)) {
    let mut moments = Vec::new();
    loop {
        let folder = tempfile::tempdir().unwrap();
        let about = about_to_park(&folder.path().join("chat.db"), moments.len() as u64);
        let Some((forever, turn, held, operation)) = soon("a call or the end", about).await else { break };
        let at = format!("before call {} of the store, `{operation}`", moments.len());
        moments.push(operation);
        soon(&at, end(&forever, &turn)).await;
        drop(held);
        assert_eq!(soon(&at, turn.wait()).await.unwrap().state(), TurnState::Aborted, "{at}");
        let completed = async {
            while fiber(&forever).await.state != FiberState::Completed {
                tokio::task::yield_now().await;
            }
        };
        soon(&at, completed).await;
        forever.close().await.unwrap();
    }
    assert!(moments.contains(&"park_turn") && moments.contains(&"suspend"), "{moments:?}");
}

#[tokio::test]
async fn turn_that_is_being_parked_can_be_cancelled_at_each_moment() {
    ends_at_each_moment(async |_: &Forever, turn: &TurnHandle| turn.cancel("no").await.unwrap()).await;
}

#[tokio::test]
async fn turn_that_is_being_parked_ends_with_its_chat_at_each_moment() {
    ends_at_each_moment(async |forever: &Forever, _: &TurnHandle| forever.agent::<Charging>("a").clear().await.unwrap()).await;
}

#[tokio::test]
async fn turn_that_waits_in_memory_hears_what_comes_at_each_moment() {
    let mut moments = Vec::new();
    loop {
        let folder = tempfile::tempdir().unwrap();
        let calls = Calls::default();
        let forever = open(&folder.path().join("chat.db"), &calls, &Charges(watch::Sender::new(0))).await;
        let mut held = calls.hold_back("begin_turn", moments.len() as u64);
        let agent = forever.agent::<Hearing>("a");
        let turn = agent.save_messages([UiMessage::user("u", "hear")]).await.unwrap();
        let waits = async {
            // It has looked for a message, and its child has ended: nothing more is called.
            while calls.of("message") == 0 || calls.of("end") == 0 || fiber(&forever).await.at.as_deref() != Some("word pending") {
                tokio::task::yield_now().await;
            }
        };
        let reached = tokio::select! {
            biased;
            operation = held.reached() => Some(operation),
            () = waits => None,
        };
        let at = format!("before call {} of the store, {reached:?}", moments.len());
        forever.send(&fiber(&forever).await.id, "word", "twice 21 is").await.unwrap();
        drop(held);
        assert!(soon(&at, turn.wait()).await.unwrap().is_completed(), "{at}");
        assert_eq!(agent.messages().await.unwrap().pop().unwrap().text(), "twice 21 is 42", "{at}");
        forever.close().await.unwrap();
        let Some(operation) = reached else { break };
        moments.push(operation);
    }
    assert!(moments.contains(&"message") && moments.contains(&"end"), "{moments:?}");
}
