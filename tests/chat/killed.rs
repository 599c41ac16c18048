//! Turns whose process is ended at every write.
use forever::agent::Agent;
use forever::chat::message::{ToolState, UiMessage};
use forever::chat::model::ToolSpec;
use forever::chat::{ChatAgent, Entry, Exhausted, ExhaustedReason, RecoveryPolicy, Turn, TurnState};
use forever::prelude::*;
use forever::testing::crash_everywhere;
use forever::{BoxError, Forever};
use forever_testkit::database;
use forever_testkit::notes::Notes;
use forever_testkit::sizes;
use forever_testkit::waiting::{eventually, found};
use serde_json::json;

use crate::scripted::{Scripted, ask, in_world, told};

#[tokio::test(start_paused = true)]
async fn a_turn_goes_on_in_the_same_message_wherever_its_process_ends() {
    let survived = crash_everywhere(in_world, async |forever: Forever| {
        let agent = forever.agent::<Scripted>("a");
        let turn = ask(&agent, "r1", json!({ "n": 3 })).await;
        let mut follow = turn.follow(0).await.unwrap();
        let mut shown = Vec::new();
        loop {
            match follow.next().await.unwrap() {
                Some(Entry::Chunk(number, chunk)) => shown.push((number, chunk.json().to_owned())),
                Some(Entry::End(end)) => break assert!(end.is_completed()),
                _ => unreachable!(),
            }
        }
        assert!(shown.iter().map(|(n, _)| *n).eq(0..shown.len() as u64));
        let messages = agent.messages().await.unwrap();
        (told(&turn).await, messages.iter().map(UiMessage::text).collect::<Vec<_>>())
    })
    .crash_randomly(1, 50)
    .at_most(sizes::at_most(10))
    .await
    .unwrap();
    assert_eq!(survived.outcome.0, "start|text-start|w0 |w1 |w2 |text-end|finish|completed");
    assert_eq!(survived.outcome.1, ["hi", "w0 w1 w2 "]);
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_end_is_the_same_wherever_the_process_ends() {
    for mode in ["error", "throw", "nothing"] {
        let survived = crash_everywhere(in_world, async |forever: Forever| {
            let agent = forever.agent::<Scripted>("a");
            let turn = ask(&agent, "r1", json!({ "n": 2, "mode": mode })).await;
            turn.wait().await.unwrap();
            let messages = agent.messages().await.unwrap();
            (told(&turn).await, messages.iter().map(|m| (m.text(), m.metadata.clone())).collect::<Vec<_>>())
        })
        .crash_randomly(1, 30)
        .at_most(sizes::at_most(10))
        .await
        .unwrap();
        // Over a server and in the gate, some of the deaths.
        let least = if database::is_in_postgres() || !sizes::is_night() { 10 } else { 2 * survived.writes };
        assert!(survived.deaths > least, "{mode}: {survived:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_of_a_clients_tool_is_asked_once_wherever_the_process_ends() {
    let survived = crash_everywhere(in_world, async |forever: Forever| {
        let agent = forever.agent::<Scripted>("a");
        let tool = ToolSpec { name: "getLocation".into(), ..ToolSpec::default() };
        let asked = agent.save_messages([UiMessage::user("u", "hi")]).id("r").body(&json!({ "n": 1, "mode": "tool" }));
        let turn = asked.client_tools([tool]).await.unwrap();
        assert!(turn.wait().await.unwrap().is_completed());
        let message = agent.messages().await.unwrap().pop().unwrap();
        let waits = message.parts.iter().filter(|part| part.tool_state() == Some(ToolState::InputAvailable)).count();
        let half = message.parts.iter().filter(|part| part.tool_state() == Some(ToolState::InputStreaming)).count();
        (message.text(), waits, half, agent.has_pending_interaction().await.unwrap())
    })
    .crash_randomly(1, 50)
    .at_most(sizes::at_most(10))
    .await
    .unwrap();
    assert_eq!(survived.outcome, ("w0 ".to_owned(), 1, 0, true));
}

#[tokio::test(start_paused = true)]
async fn turns_that_wait_are_answered_in_order_wherever_the_process_ends() {
    let survived = crash_everywhere(in_world, async |forever: Forever| {
        let agent = forever.agent::<Scripted>("a");
        let mut turns = Vec::new();
        for n in 0..3 {
            turns.push(ask(&agent, &format!("r{n}"), json!({ "n": 1 })).await);
        }
        for turn in &turns {
            assert!(turn.wait().await.unwrap().is_completed());
        }
        agent.messages().await.unwrap().iter().map(UiMessage::text).collect::<Vec<_>>()
    })
    .crash_randomly(1, 50)
    .at_most(sizes::at_most(10))
    .await
    .unwrap();
    assert_eq!(survived.outcome, ["hi", "w0 ", "hi", "w0 ", "hi", "w0 "]);
}

/// Writes a word and then takes its process with it.
struct Kills {
    seen: Notes,
}

impl Agent for Kills {
    const CLASS: &'static str = "kills";
    type State = ();
}

impl ChatAgent for Kills {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        self.seen.note("called");
        if turn.body().is_some_and(|body| body["progress"] == true) {
            turn.write(forever::chat::message::Chunk::data("tick", None, json!(self.seen.count("called")))).await?;
            turn.flush().await?;
        }
        self.seen.note("ready to die");
        std::future::pending().await
    }

    fn recovery() -> RecoveryPolicy {
        RecoveryPolicy::default().terminal_message("given up").on_exhausted(|exhausted: Exhausted| async move {
            let seen: Notes = EXHAUSTED.with(Clone::clone);
            seen.note(exhausted.reason().as_str());
            Ok(())
        })
    }
}

thread_local! {
    /// What was given up; the runtime of a test has one thread.
    static EXHAUSTED: Notes = Notes::default();
}

async fn dies_again_and_again(body: serde_json::Value) -> (usize, Vec<String>, Vec<Entry>) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("chat.db");
    let seen = Notes::default();
    for _ in 0..50 {
        // It may be called as soon as it is open.
        let calls = seen.count("ready");
        let of_agent = seen.clone();
        let forever = Forever::builder().sqlite(&path).chat_agent(move |_| Kills { seen: of_agent.clone() }).open().await.unwrap();
        let agent = forever.agent::<Kills>("a");
        let turn = agent.save_messages([UiMessage::user("u", "hi")]).id("r").body(&body).await.unwrap();
        let ended = found("the next death, or the end", async || {
            let is_ready = seen.count("ready") > calls;
            (is_ready || turn.status().await.unwrap().state().is_settled()).then_some(!is_ready)
        });
        if ended.await {
            let entries = turn.entries().await.unwrap();
            assert_eq!(turn.status().await.unwrap().state(), TurnState::Error);
            assert_eq!(turn.status().await.unwrap().reason(), Some("given up"));
            let message = agent.messages().await.unwrap().pop().unwrap();
            assert_eq!(message.metadata.unwrap()["forever"]["reason"], "given up", "a plain reload shows it");
            // It is told behind what it is told of.
            eventually("what is told of it", async || !EXHAUSTED.with(Notes::all).is_empty()).await;
            forever.close().await.unwrap();
            return (seen.count("called"), EXHAUSTED.with(Notes::all), entries);
        }
        // As a process that is killed.
        drop((turn, agent, forever));
    }
    panic!("it is tried for ever");
}

#[tokio::test(start_paused = true)]
async fn case_73_74_a_turn_that_kills_its_process_ends_after_its_budget_and_is_told_once() {
    let (calls, told, entries) = dies_again_and_again(json!({})).await;
    assert_eq!(calls, 6, "once, and five times after a death");
    assert_eq!(told, [ExhaustedReason::DeathsExceeded.as_str()]);
    assert_eq!(entries.len(), 1, "its end, for everybody who comes later");
}

#[tokio::test(start_paused = true)]
async fn progress_does_not_let_a_turn_kill_its_process_for_ever() {
    let (calls, told, entries) = dies_again_and_again(json!({ "progress": true })).await;
    assert_eq!(calls, 6);
    assert_eq!(told, [ExhaustedReason::DeathsExceeded.as_str()]);
    assert_eq!(entries.len(), 1 + 6 + 1, "the start, what each process has written, and the end");
}

#[tokio::test(start_paused = true)]
async fn a_clean_close_is_no_death_and_the_turn_goes_on() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("chat.db");
    let seen = Notes::default();
    for n in 1..=12 {
        let of_agent = seen.clone();
        let forever = Forever::builder().sqlite(&path).chat_agent(move |_| Kills { seen: of_agent.clone() }).open().await.unwrap();
        let agent = forever.agent::<Kills>("a");
        let turn = agent.save_messages([UiMessage::user("u", "hi")]).id("r").body(&json!({ "progress": true })).await.unwrap();
        eventually("its call", async || seen.count("ready") >= n).await;
        assert_eq!(turn.status().await.unwrap().state(), TurnState::Running);
        forever.close().await.unwrap();
    }
    assert_eq!(seen.count("called"), 12);
}
