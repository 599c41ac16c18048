//! Calls that are given up: each is dropped at every place where it waits, and what it has begun comes to its end all the same.
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use forever::agent::{Agent, AgentHandle};
use forever::chat::message::{Chunk, MAX_CHUNK, MessageBuilder, UiMessage};
use forever::chat::{ChatAgent, ChatEvent, ChatEvents, Entry, RecoveryPolicy, ToolAnswer, Turn, TurnHandle, TurnState};
use forever::fiber::FiberState;
use forever::prelude::*;
use forever::{BoxError, Forever};
use forever_testkit::database::Database;
use forever_testkit::notes::Notes;
use forever_testkit::waiting::{eventually, settled, soon};
use serde_json::{Value, json};

use crate::hooks::{self, Hooks, begun, policy};
use crate::scripted::Passing;

/// Polls a future so often, each time when it is woken, and drops it then; what it gives if it is ready before.
pub(crate) async fn polled<F: Future>(future: F, times: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = times;
    poll_fn(|cx| {
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Does what the body of its turn says.
struct Obeys;

impl Agent for Obeys {
    const CLASS: &'static str = "obeys";
    type State = ();
}

impl ChatAgent for Obeys {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        let body = turn.body().and_then(Value::as_str).unwrap_or("answers");
        if turn.is_continuation() || body == "answers" {
            turn.write(Chunk::text_start("t")).await?;
            turn.write(Chunk::text_delta("t", "an answer")).await?;
            turn.write(Chunk::text_end("t")).await?;
            return Ok(());
        }
        match body {
            "hangs" => std::future::pending().await,
            "runs" => drop(turn.run(never()).await),
            "asks" => turn.write(Chunk::tool_input_available("call", "look", json!({}))).await?,
            "asks and hangs" => {
                turn.write(Chunk::tool_input_available("call", "look", json!({}))).await?;
                turn.flush().await?;
                while turn.message().await.parts.iter().all(|part| part.get("output").is_none()) {
                    settled().await;
                }
            }
            _ => unreachable!(),
        }
        Ok(())
    }
}

#[fiber]
async fn never() -> Result<(), BoxError> {
    let _nothing: bool = recv!("never");
    Ok(())
}

/// A database with a second pair of eyes on it.
struct Place {
    folder: tempfile::TempDir,
    forever: Forever,
}

impl Place {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let forever = Forever::builder()
            .sqlite(folder.path().join("chat.db"))
            .turn_batching(1, Duration::ZERO)
            .fiber::<never>()
            .chat_agent(|_| Obeys)
            .open();
        Place { forever: forever.await.unwrap(), folder }
    }

    fn chat(&self, name: impl std::fmt::Display) -> AgentHandle<Obeys> {
        self.forever.agent::<Obeys>(name.to_string())
    }

    /// What is stored when everything is that was asked for before.
    async fn stored(&self, query: &str) -> i64 {
        // Writes are carried out in their order.
        self.chat("another").set_state(&()).await.unwrap();
        Database::open(self.folder.path().join("chat.db")).number(query)
    }
}

async fn ask(chat: &AgentHandle<Obeys>, id: &str, body: &str) -> TurnHandle {
    chat.save_messages([UiMessage::user(format!("u-{id}"), "hi")]).id(id).body(&body).await.unwrap()
}

/// One who waited for the end of a turn before anything was done to it.
async fn waits_for(turn: &TurnHandle) -> tokio::task::JoinHandle<TurnState> {
    let mut follow = turn.follow(0).await.unwrap();
    tokio::spawn(async move {
        loop {
            if let Entry::End(end) = follow.next().await.unwrap().unwrap() {
                return end.state();
            }
        }
    })
}

async fn heard(events: &mut ChatEvents, wanted: impl Fn(&ChatEvent) -> bool) {
    soon("an event", async { while !wanted(&events.recv().await.unwrap().unwrap()) {} }).await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_is_cancelled_although_the_call_is_given_up() {
    let place = Place::new().await;
    for times in 1.. {
        let chat = place.chat(times);
        let (first, second) = (ask(&chat, "first", "hangs").await, ask(&chat, "second", "hangs").await);
        begun(&first).await;
        let (first_ends, second_ends) = (waits_for(&first).await, waits_for(&second).await);
        let given_up = [polled(second.cancel("no"), times).await.is_none(), polled(first.cancel("no"), times).await.is_none()];
        assert_eq!(soon("the end of a turn that waited", second_ends).await.unwrap(), TurnState::Aborted);
        assert_eq!(soon("the end of a turn", first_ends).await.unwrap(), TurnState::Aborted);
        if given_up == [false; 2] {
            assert!(times > 1);
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_cancelled_by_its_id_ends_if_that_is_stored() {
    let place = Place::new().await;
    for times in 1.. {
        let chat = place.chat(times);
        let turn = ask(&chat, "r", "hangs").await;
        begun(&turn).await;
        let ends = waits_for(&turn).await;
        let cancelled = polled(chat.cancel("r", "no"), times).await;
        let chat_of = format!("(SELECT seq FROM chats WHERE agent = '{times}')");
        if place.stored(&format!("SELECT count(cancel) FROM turns WHERE chat = {chat_of}")).await > 0 {
            assert_eq!(soon("the end of a turn", ends).await.unwrap(), TurnState::Aborted);
        } else {
            assert!(cancelled.is_none());
            assert!(chat.cancel("r", "no").await.unwrap());
        }
        if cancelled.is_some() {
            assert!(times > 1);
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_chat_is_cleared_although_the_call_is_given_up() {
    let place = Place::new().await;
    for times in 1.. {
        let chat = place.chat(times);
        let (first, second) = (ask(&chat, "first", "runs").await, ask(&chat, "second", "hangs").await);
        begun(&first).await;
        let mine = || place.forever.fibers().name("forever.turn").agent("obeys", chat.name());
        let running = async || mine().state(FiberState::Running).await.unwrap().fibers;
        eventually("what it runs", async || running().await.iter().any(|fiber| fiber.checkpoints > 0)).await;
        let (first_ends, second_ends) = (waits_for(&first).await, waits_for(&second).await);
        let mut events = chat.chat_events().unwrap();
        let cleared = polled(chat.clear(), times).await;
        assert_eq!(soon("the end of a turn", first_ends).await.unwrap(), TurnState::Aborted);
        assert_eq!(soon("the end of a turn that waited", second_ends).await.unwrap(), TurnState::Skipped);
        heard(&mut events, |event| matches!(event, ChatEvent::Cleared)).await;
        let ended = async || mine().await.unwrap().fibers.iter().all(|fiber| fiber.state.is_final());
        eventually("the end of what the turn has run", ended).await;
        assert!(chat.messages().await.unwrap().is_empty());
        if cleared.is_some() {
            assert!(times > 1);
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn messages_that_are_replaced_are_told_of_although_the_call_is_given_up() {
    let place = Place::new().await;
    for times in 1.. {
        let chat = place.chat(times);
        let mut events = chat.chat_events().unwrap();
        let replaced = polled(chat.set_messages([UiMessage::user("u", "hi")]), times).await;
        heard(&mut events, |event| matches!(event, ChatEvent::Replaced)).await;
        assert_eq!(chat.messages().await.unwrap().len(), 1);
        if replaced.is_some() {
            assert!(times > 1);
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_is_answered_although_the_call_is_given_up() {
    let place = Place::new().await;
    for times in 1.. {
        let chat = place.chat(times);
        let asked = polled(chat.submit("key", [UiMessage::user("u", "hi")]).into_future(), times).await;
        // The same key is the same turn.
        let turn = chat.submit("key", [UiMessage::user("u", "hi")]).await.unwrap();
        assert!(soon("an answer", turn.wait()).await.unwrap().is_completed());
        let continued = polled(chat.continue_last_turn().key("more").into_future(), times).await;
        let turn = chat.continue_last_turn().key("more").await.unwrap();
        assert!(soon("more of the answer", turn.wait()).await.unwrap().is_completed());
        assert_eq!(chat.messages().await.unwrap()[1].text(), "an answer".repeat(2));
        if asked.is_some() && continued.is_some() {
            assert!(times > 1);
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_a_person_is_followed_by_its_turn_although_the_call_is_given_up() {
    for body in ["asks", "asks and hangs"] {
        let place = Place::new().await;
        for times in 1.. {
            let chat = place.chat(times);
            let turn = ask(&chat, "r", body).await;
            if body == "asks" {
                turn.wait().await.unwrap();
            } else {
                let mut follow = turn.follow(0).await.unwrap();
                for _ in 0..2 {
                    follow.next().await.unwrap();
                }
            }
            let answered = polled(chat.answer_tool("call", ToolAnswer::Output(json!(1)), true), times).await;
            let follows = async || chat.turns(&[TurnState::Completed]).await.unwrap().len() >= 2;
            eventually("the turn that continues after an answer", follows).await;
            let message = chat.messages().await.unwrap().pop().unwrap();
            assert_eq!((message.parts[0].get("output"), message.text().as_str()), (Some(&json!(1)), "an answer"));
            if answered.is_some() {
                assert!(times > 1);
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_only_reads_leaves_nothing_behind_when_it_is_given_up() {
    let place = Place::new().await;
    let chat = place.chat("a");
    let turn = ask(&chat, "r", "answers").await;
    turn.wait().await.unwrap();
    for times in 1.. {
        let ready = [
            polled(chat.messages(), times).await.is_some(),
            polled(chat.turn("r"), times).await.is_some(),
            polled(chat.turn_by_key("r"), times).await.is_some(),
            polled(chat.turns(&[]), times).await.is_some(),
            polled(chat.has_pending_interaction(), times).await.is_some(),
            polled(chat.wait_until_stable(Duration::from_secs(60)), times).await.is_some(),
            polled(turn.wait(), times).await.is_some(),
            polled(turn.follow(0), times).await.is_some(),
            polled(turn.entries(), times).await.is_some(),
            polled(turn.status(), times).await.is_some(),
            polled(turn.metadata::<Value>(), times).await.is_some(),
        ];
        if ready.iter().all(|ready| *ready) {
            break;
        }
    }
    assert!(chat.wait_until_stable(Duration::from_secs(60)).await.unwrap());
    assert_eq!(turn.entries().await.unwrap().len(), 5);
}

/// Writes a chunk behind one that fills the buffer, and gives up after one poll, two polls, and so on until it is written.
async fn writes(turn: &Turn, chunk: Chunk, given_up: &Notes) -> Result<(), BoxError> {
    for times in 1.. {
        // The buffer has room for one chunk, and nothing is stored before this task waits.
        turn.write(Chunk::data("fills", None, json!(times))).await?;
        match polled(turn.write(chunk.clone()), times).await {
            Some(written) => {
                written?;
                return Ok(());
            }
            None => given_up.note(chunk.kind()),
        }
        match polled(turn.flush(), times).await {
            Some(flushed) => flushed?,
            None => given_up.note("flush"),
        }
        if let Some(stashed) = polled(turn.stash(&times), times).await {
            stashed?;
        } else {
            given_up.note("stash");
            turn.stash(&times).await?;
        }
        assert_eq!(turn.stashed::<usize>()?, Some(times));
    }
    Ok(())
}

/// What the chunks of a log make, as a client makes it.
async fn built(turn: &TurnHandle) -> UiMessage {
    let mut builder = MessageBuilder::default();
    for entry in turn.entries().await.unwrap() {
        if let Entry::Chunk(_, chunk) = entry {
            builder.apply(&chunk.read().unwrap()).unwrap();
        }
    }
    builder.into_message()
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_given_up_has_changed_nothing() {
    policy(RecoveryPolicy::default());
    let (place, given_up) = (hooks::Place::new(), Notes::default());
    let seen = given_up.clone();
    let long = "long ".repeat(MAX_CHUNK / 4);
    let text = long.clone();
    let hooks = Hooks::new(move |turn, before| {
        let (seen, long) = (seen.clone(), text.clone());
        async move {
            let chunks = match before {
                0 => vec![
                    Chunk::start_step(),
                    Chunk::reasoning_start("r"),
                    Chunk::reasoning_delta("r", "hm"),
                    Chunk::reasoning_end("r"),
                    Chunk::tool_input_start("call", "search"),
                    Chunk::tool_input_delta("call", "{\"a\":"),
                    Chunk::tool_input_delta("call", "1}"),
                    Chunk::tool_input_available("call", "search", json!({ "a": 1 })),
                    Chunk::tool_input_available("cut off", "search", json!({})),
                    Chunk::tool_output_available("call", json!(2)),
                    Chunk::text_start("t"),
                    Chunk::text_delta("t", "One "),
                ],
                _ => vec![
                    Chunk::start(),
                    Chunk::start_step(),
                    Chunk::text_start("u"),
                    Chunk::text_delta("u", "two "),
                    Chunk::text_delta("u", long),
                    Chunk::text_end("u"),
                    Chunk::finish_step(),
                    Chunk::finish(),
                ],
            };
            for chunk in chunks {
                writes(&turn, chunk, &seen).await?;
            }
            if before == 0 { Err(Passing.into()) } else { Ok(()) }
        }
    });
    let (_forever, agent) = place.open(&hooks).await;
    let turn = hooks::ask(&agent, json!({})).await;
    let end = place.ended(&turn).await;
    assert!(end.is_completed(), "{end:?}");
    let message = hooks::last(&agent).await;
    let without_fills = |message: &UiMessage| message.parts.iter().filter(|part| part.kind() != "data-fills").cloned().collect::<Vec<_>>();
    assert_eq!(without_fills(&message), without_fills(&built(&turn).await));
    assert_eq!(message.parts.len(), built(&turn).await.parts.len());
    assert_eq!(message.text(), format!("One two {long}"));
    assert_eq!(message.parts.iter().filter(|part| part.is_tool()).count(), 2);
    let times = |what: &str| given_up.count(what);
    assert!(times("flush") > 10 && times("stash") > 10 && times("text-start") > 1, "{:?}", given_up.all());
}
