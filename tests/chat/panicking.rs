//! Code of the program that panics, at each place where chat calls it: the turn ends, or goes on, in the way that is promised for a failure there.
use std::cell::Cell;
use std::fmt;
use std::time::Duration;

use forever::agent::{Agent, AgentHandle};
use forever::chat::message::{Chunk, Part, Repair, ToolState, UiMessage};
use forever::chat::model::{ChatModel, FinishReason, ModelEvent, ModelRequest, ModelStream};
use forever::chat::{
    AgentLoop, ChatAgent, ChatRecovery, ChatRecoveryOptions, ErrorClass, RecoveryPolicy, Tool, ToolAnswer, Turn, TurnEnd, TurnState,
};
use forever::fiber::FiberState;
use forever::prelude::*;
use forever::testing::VirtualClock;
use forever::{BoxError, Forever};
use forever_testkit::models::{self, ScriptedModel};
use forever_testkit::notes::Notes;
use forever_testkit::waiting::{over_time, soon};
use serde_json::json;

use crate::agent_loop::Assistant;
use crate::scripted::Passing;

/// Where the program panics.
#[derive(Debug, Clone, Copy, PartialEq)]
enum At {
    Message,
    Recovery,
    Policy,
    Repair,
    Classify,
    ClientText,
    KeepRecovering,
    OnExhausted,
    /// Where its error is shown as text.
    ErrorText,
    /// Where its error is dropped.
    ErrorDrop,
}

thread_local! {
    /// The runtime of a test has one thread.
    static AT: Cell<Option<At>> = const { Cell::new(None) };
}

fn here(at: At) {
    assert!(AT.get() != Some(at), "on purpose");
}

/// An error of the program that panics itself.
#[derive(Debug)]
struct Bad;

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        here(At::ErrorText);
        f.write_str("bad")
    }
}

impl std::error::Error for Bad {}

impl Drop for Bad {
    fn drop(&mut self) {
        here(At::ErrorDrop);
    }
}

/// Fails for good, or so that it is tried again, and the second time answers.
struct Fails {
    seen: Notes,
}

impl Agent for Fails {
    const CLASS: &'static str = "fails";
    type State = ();
}

impl ChatAgent for Fails {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        self.seen.note("asked");
        here(At::Message);
        let body = turn.body().cloned().unwrap_or_default();
        if body["passing"].as_u64().unwrap_or(0) >= self.seen.count("asked") as u64 {
            turn.write(Chunk::tool_input_available("call", "search", json!({}))).await?;
            turn.flush().await?;
            return Err(Passing.into());
        }
        if body["fails"] == true {
            return Err(Bad.into());
        }
        turn.write(Chunk::text_start("t")).await?;
        turn.write(Chunk::text_delta("t", "an answer")).await?;
        turn.write(Chunk::text_end("t")).await?;
        Ok(())
    }

    async fn on_chat_recovery(&self, _: &ChatRecovery) -> Result<ChatRecoveryOptions, BoxError> {
        self.seen.note("recovers");
        here(At::Recovery);
        Ok(ChatRecoveryOptions::default())
    }

    fn recovery() -> RecoveryPolicy {
        here(At::Policy);
        let keep = |_| async {
            here(At::KeepRecovering);
            Ok(true)
        };
        let exhausted = |_| async {
            here(At::OnExhausted);
            Ok(())
        };
        RecoveryPolicy::default().max_attempts(3).terminal_message("given up").should_keep_recovering(keep).on_exhausted(exhausted)
    }

    fn repair_interrupted_tool(&self, _: &Part) -> Repair {
        here(At::Repair);
        Repair::Failed("it was repaired".to_owned())
    }

    fn classify_error(&self, error: &BoxError) -> ErrorClass {
        here(At::Classify);
        if error.is::<Passing>() || error.is::<Bad>() && self.seen.count("asked") == 1 {
            ErrorClass::Transient(None)
        } else {
            ErrorClass::of(error)
        }
    }

    fn client_error_text(&self, _: &BoxError) -> String {
        here(At::ClientText);
        "of the program".to_owned()
    }
}

/// Asks one turn of an agent that panics there; how it ended, and what it was answered with.
async fn asked(at: At, body: serde_json::Value) -> (TurnEnd, Option<UiMessage>, Notes) {
    AT.set(Some(at));
    let (clock, seen) = (VirtualClock::new(), Notes::default());
    let of_agent = seen.clone();
    let forever = Forever::builder()
        .in_memory()
        .clock(clock.clone())
        .turn_batching(1, Duration::ZERO)
        .chat_agent(move |_| Fails { seen: of_agent.clone() })
        .open();
    let forever = forever.await.unwrap();
    let agent = forever.agent::<Fails>("a");
    let turn = agent.save_messages([UiMessage::user("u", "hi")]).body(&body).await.unwrap();
    let passes = || clock.advance(Duration::from_millis(500));
    let end = over_time(&format!("the end of the turn: {at:?}"), turn.wait(), passes).await.unwrap();
    // The next one of the chat is answered whatever became of the first.
    AT.set(None);
    let next = agent.save_messages([UiMessage::user("v", "hi")]).await.unwrap();
    assert!(next.wait().await.unwrap().is_completed());
    let fibers = forever.fibers().state(FiberState::Failed).state(FiberState::Parked).await.unwrap();
    assert!(fibers.fibers.is_empty(), "the turn has ended, and not its fiber alone: {:?}", fibers.fibers);
    let message = agent.messages().await.unwrap().into_iter().find(|message| message.id == turn.message_id());
    (end, message, seen)
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_answer_ends_the_turn_as_an_error_does() {
    let (end, ..) = asked(At::Message, json!({})).await;
    assert_eq!((end.state(), end.reason()), (TurnState::Error, Some("of the program")));
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_classify_error_leaves_the_error_what_it_says_of_itself() {
    let (end, ..) = asked(At::Classify, json!({ "fails": true })).await;
    assert_eq!((end.state(), end.reason()), (TurnState::Error, Some("of the program")));
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_client_error_text_tells_people_the_usual_text() {
    let (end, ..) = asked(At::ClientText, json!({ "fails": true })).await;
    assert_eq!((end.state(), end.reason()), (TurnState::Error, Some("An error occurred.")));
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_text_of_an_error_changes_nothing() {
    let (end, _, seen) = asked(At::ErrorText, json!({ "fails": true })).await;
    assert_eq!((end.state(), end.reason()), (TurnState::Error, Some("of the program")));
    assert_eq!(seen.count("asked"), 2 + 1, "it was tried again");
}

#[tokio::test(start_paused = true)]
async fn a_panic_where_nothing_is_expected_ends_the_turn() {
    let (end, ..) = asked(At::ErrorDrop, json!({ "fails": true })).await;
    assert_eq!((end.state(), end.reason()), (TurnState::Error, Some("An error occurred.")));
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_recovery_leaves_the_usual_policy() {
    let (end, _, seen) = asked(At::Policy, json!({ "passing": 1000 })).await;
    let usual = "The answer was interrupted and could not be completed. Please try again.";
    assert_eq!((end.state(), end.reason()), (TurnState::Error, Some(usual)));
    assert_eq!(seen.count("recovers"), 10, "attempts of the usual policy");
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_on_chat_recovery_is_one_more_interruption() {
    let (end, _, seen) = asked(At::Recovery, json!({ "passing": 1 })).await;
    assert_eq!((end.state(), end.reason()), (TurnState::Error, Some("given up")));
    assert_eq!(seen.count("recovers"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_should_keep_recovering_means_yes() {
    let (end, ..) = asked(At::KeepRecovering, json!({ "passing": 3 })).await;
    assert!(end.is_completed(), "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_on_exhausted_leaves_the_turn_given_up() {
    let (end, ..) = asked(At::OnExhausted, json!({ "passing": 1000 })).await;
    assert_eq!((end.state(), end.reason()), (TurnState::Error, Some("given up")));
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_repair_interrupted_tool_settles_the_call_as_interrupted() {
    let (end, message, _) = asked(At::Repair, json!({ "passing": 1 })).await;
    assert!(end.is_completed(), "{end:?}");
    let message = message.unwrap();
    let call = message.parts.iter().find(|part| part.is_tool()).unwrap();
    assert_eq!(call.get("errorText"), Some(&json!(forever::chat::message::INTERRUPTED)));
    assert_eq!(message.text(), "an answer");
}

/// Asks one turn of a loop; its parts, and how it ended.
async fn loops(looped: AgentLoop) -> (Forever, AgentHandle<Assistant>, TurnEnd, UiMessage) {
    let forever = Forever::builder().in_memory().agent_loop(looped).chat_agent(|_| Assistant).open().await.unwrap();
    let agent = forever.agent::<Assistant>("a");
    let turn = agent.save_messages([UiMessage::user("u", "hi")]).await.unwrap();
    let end = soon("the end of the turn", turn.wait()).await.unwrap();
    let message = agent.messages().await.unwrap().pop().unwrap();
    (forever, agent, end, message)
}

fn model() -> ScriptedModel {
    let says = |results: usize, _: &ModelRequest| match results {
        0 => [vec![Ok(ModelEvent::Chunk(Chunk::tool_input_available("c", "look", json!({}))))], models::ends(FinishReason::ToolCalls)]
            .concat(),
        _ => [models::text(&["Done."]), models::ends(FinishReason::Stop)].concat(),
    };
    ScriptedModel::new(says)
}

fn panics<T>() -> T {
    panic!("on purpose")
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_tool_is_the_failure_of_its_call() {
    let at_once = |_, _| -> std::future::Ready<Result<serde_json::Value, BoxError>> { panics() };
    for tool in [Tool::new("look", at_once), Tool::new("look", |_, _| async { panics() })] {
        let (_forever, _agent, end, message) = loops(AgentLoop::new(model()).tool(tool)).await;
        assert!(end.is_completed(), "{end:?}");
        let call = message.parts.iter().find(|part| part.is_tool()).unwrap();
        assert_eq!((call.tool_state(), call.get("errorText")), (Some(ToolState::OutputError), Some(&json!("panicked: on purpose"))));
        assert_eq!(message.text(), "Done.");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_text_of_a_tools_error_is_no_more_than_that() {
    AT.set(Some(At::ErrorText));
    let (_forever, _agent, end, message) = loops(AgentLoop::new(model()).tool(Tool::new("look", |_, _| async { Err(Bad.into()) }))).await;
    assert!(end.is_completed(), "{end:?}");
    assert_eq!(message.text(), "Done.");
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_needs_approval_asks_a_person() {
    let tool = Tool::new("look", |_, _| async { Ok(json!(1)) }).needs_approval(|_| panics());
    let (_forever, agent, end, message) = loops(AgentLoop::new(model()).tool(tool)).await;
    assert!(end.is_completed(), "{end:?}");
    assert_eq!(message.parts.iter().find_map(Part::tool_state), Some(ToolState::ApprovalRequested));
    let turn = agent.answer_tool("c", ToolAnswer::Approved, true).await.unwrap().continued.unwrap();
    assert!(turn.wait().await.unwrap().is_completed());
    assert_eq!(agent.messages().await.unwrap().pop().unwrap().text(), "Done.");
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_count_tokens_counts_as_without_it() {
    let tool = Tool::new("look", |_, _| async { Ok(json!("x".repeat(4000))) });
    let looped = AgentLoop::new(model()).tool(tool).max_input_tokens(500).count_tokens(|_| panics());
    let compacts = Notes::default();
    let seen = compacts.clone();
    let looped = looped.compact(move |messages| {
        seen.note("compacts");
        async { Ok(messages) }
    });
    let (_forever, _agent, end, _) = loops(looped).await;
    assert!(end.is_completed(), "{end:?}");
    assert_eq!(compacts.count("compacts"), 1, "a thousand tokens are more than five hundred");
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_compact_ends_the_turn_as_an_error_does() {
    let at_once = |_| -> std::future::Ready<Result<Vec<UiMessage>, BoxError>> { panics() };
    let looped = |compacting: AgentLoop| compacting.max_input_tokens(1).count_tokens(|_| 1);
    for looped in [looped(AgentLoop::new(model()).compact(at_once)), looped(AgentLoop::new(model()).compact(|_| async { panics() }))] {
        let (forever, _agent, end, _) = loops(looped).await;
        assert_eq!(end.state(), TurnState::Error);
        assert!(end.reason().unwrap().ends_with("panicked: on purpose"), "{end:?}");
        assert!(forever.fibers().name("forever.turn").state(FiberState::Failed).await.unwrap().fibers.is_empty());
    }
}

/// Panics when it is asked, or when it is listened to.
struct Mute {
    at_once: bool,
}

impl ChatModel for Mute {
    fn answer(&self, _: ModelRequest) -> ModelStream {
        if self.at_once {
            panics::<()>();
        }
        Box::pin(futures_util::stream::poll_fn(|_| panics::<std::task::Poll<Option<Result<ModelEvent, _>>>>()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_model_ends_the_turn_as_an_error_does() {
    for at_once in [true, false] {
        let (forever, _agent, end, _) = loops(AgentLoop::new(Mute { at_once })).await;
        assert_eq!(end.state(), TurnState::Error);
        assert!(end.reason().unwrap().ends_with("panicked: on purpose"), "{end:?}");
        assert!(forever.fibers().name("forever.turn").state(FiberState::Failed).await.unwrap().fibers.is_empty());
    }
}
