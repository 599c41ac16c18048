//! What reaches a turn at each moment between two calls of its store: none of it is lost.
use std::future::IntoFuture;
use std::path::Path;

use forever::agent::Agent;
use forever::chat::message::{Chunk, UiMessage};
use forever::chat::{ChatAgent, RecoveryPolicy, Turn, TurnHandle, TurnState};
use forever::fiber::{EventItem, EventKind, FiberState};
use forever::prelude::*;
use forever::{BoxError, ErrorKind};
use forever_testkit::waiting::{eventually, found, settled, soon};
use tokio::sync::watch;

use super::counting::{Calls, Fate, HeldBack};
use super::{Steps, double, file};
use crate::given_up::polled;

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
    let doubled = wait!(child)?;
    Ok(format!("{word} {doubled}"))
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

/// The fiber of the turn, as soon as it is accepted.
async fn fiber(forever: &Forever) -> forever::fiber::FiberStatus {
    let of_turn = async || forever.fibers().await.unwrap().fibers.into_iter().find(|fiber| fiber.name == "forever.turn");
    found("the fiber of the turn", of_turn).await
}

/// Ready when a turn has looked for its message and its child has ended: then it calls nothing more.
async fn waits_for_a_word(forever: &Forever, calls: &Calls) {
    let both = || calls.of("topic let through") > 0 && calls.of("end let through") > 0;
    eventually("the wait for a word", async || both() && fiber(forever).await.at.as_deref() == Some("word")).await;
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
                Some(EventItem::Event(event)) if matches!(event.kind, EventKind::Parked { .. }) => return,
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
    let operation = reached?;
    let turn = forever.agent::<Charging>("a").turn("r").await.unwrap().unwrap();
    Some((forever, turn, held, operation))
}

/// Ends a turn at each moment while it is being parked, and sees it end.
async fn ends_at_each_moment(end: impl AsyncFn(&Forever, &TurnHandle)) {
    let mut moments = Vec::new();
    loop {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chat.db");
        let about = soon(&format!("one of {moments:?} or the end"), about_to_park(&path, moments.len() as u64)).await;
        let Some((forever, turn, held, operation)) = about else { break };
        let at = format!("before call {} of the store, `{operation}`", moments.len());
        moments.push(operation);
        soon(&at, end(&forever, &turn)).await;
        drop(held);
        assert_eq!(soon(&at, turn.wait()).await.unwrap().state(), TurnState::Aborted, "{at}");
        eventually(&at, async || fiber(&forever).await.state == FiberState::Completed).await;
        forever.close().await.unwrap();
    }
    assert!(moments.contains(&"park_turn") && moments.contains(&"suspend"), "{moments:?}");
}

#[tokio::test(start_paused = true)]
async fn turn_that_is_being_parked_can_be_cancelled_at_each_moment() {
    ends_at_each_moment(async |_: &Forever, turn: &TurnHandle| turn.cancel("no").await.unwrap()).await;
}

#[tokio::test(start_paused = true)]
async fn turn_that_is_being_parked_ends_with_its_chat_at_each_moment() {
    ends_at_each_moment(async |forever: &Forever, _: &TurnHandle| forever.agent::<Charging>("a").clear().await.unwrap()).await;
}

#[tokio::test(start_paused = true)]
async fn turn_that_waits_in_memory_hears_what_comes_at_each_moment() {
    let (mut moments, mut seen) = (Vec::new(), Vec::new());
    // The end of the child and the calls of its parent come in any order, so one round may hold none of the ends back.
    for _ in 0..20 {
        if ["topic", "end"].iter().all(|call| seen.contains(call)) {
            break;
        }
        moments.clear();
        hears_at_each_moment(&mut moments).await;
        seen.extend(&moments);
    }
    assert!(seen.contains(&"topic") && seen.contains(&"end"), "{moments:?}");
}

async fn hears_at_each_moment(moments: &mut Vec<&'static str>) {
    loop {
        let folder = tempfile::tempdir().unwrap();
        let calls = Calls::default();
        let forever = open(&folder.path().join("chat.db"), &calls, &Charges(watch::Sender::new(0))).await;
        let mut held = calls.hold_back("begin_turn", moments.len() as u64);
        let agent = forever.agent::<Hearing>("a");
        let asked = agent.save_messages([UiMessage::user("u", "hear")]).into_future();
        // It may be held back as well.
        let asked = tokio::spawn(asked);
        let reached = tokio::select! {
            biased;
            operation = held.reached() => Some(operation),
            () = waits_for_a_word(&forever, &calls) => None,
        };
        let at = format!("before call {} of the store, {reached:?}", moments.len());
        let held = reached.map(|_| held);
        forever.send(&fiber(&forever).await.id, "word", "twice 21 is").await.unwrap();
        drop(held);
        let turn = soon(&at, asked).await.unwrap().unwrap();
        assert!(soon(&at, turn.wait()).await.unwrap().is_completed(), "{at}");
        assert_eq!(agent.messages().await.unwrap().pop().unwrap().text(), "twice 21 is 42", "{at}");
        forever.close().await.unwrap();
        let Some(operation) = reached else { break };
        moments.push(operation);
    }
}

#[tokio::test(start_paused = true)]
async fn turn_that_waits_in_memory_hears_of_a_message_whose_sender_is_gone() {
    let mut stored = Vec::new();
    for polls in 1.. {
        let folder = tempfile::tempdir().unwrap();
        let calls = Calls::default();
        let forever = open(&folder.path().join("chat.db"), &calls, &Charges(watch::Sender::new(0))).await;
        let turn = forever.agent::<Hearing>("a").save_messages([UiMessage::user("u", "hear")]).await.unwrap();
        waits_for_a_word(&forever, &calls).await;
        let id = fiber(&forever).await.id;
        let sent = polled(forever.send(&id, "word", "hello").message_id("once"), polls).await;
        // What was begun is carried out.
        settled().await;
        stored.push(calls.of("send let through") > 0);
        if calls.of("send let through") == 0 {
            forever.send(&id, "word", "hello").message_id("once").await.unwrap();
        }
        let at = format!("given up at poll {polls}, stored: {stored:?}");
        assert!(soon(&at, turn.wait()).await.unwrap().is_completed(), "{at}");
        forever.close().await.unwrap();
        if sent.is_some() {
            break;
        }
    }
    assert!(stored.len() > 2, "it is given up before it is stored and while it is: {stored:?}");
}

#[tokio::test(start_paused = true)]
async fn turn_that_waits_in_memory_hears_of_a_message_whose_answer_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let calls = Calls::default();
    let forever = open(&folder.path().join("chat.db"), &calls, &Charges(watch::Sender::new(0))).await;
    let turn = forever.agent::<Hearing>("a").save_messages([UiMessage::user("u", "hear")]).await.unwrap();
    waits_for_a_word(&forever, &calls).await;
    calls.next("send", Fate::AnswerLost);
    let unknown = forever.send(&fiber(&forever).await.id, "word", "hello").await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::OutcomeUnknown);
    assert!(soon("the end", turn.wait()).await.unwrap().is_completed());
    forever.close().await.unwrap();
}
