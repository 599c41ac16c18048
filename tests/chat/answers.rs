//! What people and their clients answer: results of tools, approvals, and what follows from them.
use std::path::Path;
use std::sync::Arc;

use forever::agent::{Agent, AgentHandle};
use forever::chat::message::{Chunk, UiMessage};
use forever::chat::model::ToolSpec;
use forever::chat::{ChatAgent, ChatRecovery, ChatRecoveryOptions, ToolAnswer, Turn, TurnHandle};
use forever::prelude::*;
use forever::{BoxError, ErrorKind, Forever};
use forever_testkit::waiting::{eventually, settled};
use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore};

use crate::damaged::{parked, sql};

/// Asks two tools of the client and one approval, then says what it was told.
struct Asks;

impl Agent for Asks {
    const CLASS: &'static str = "asks";
    type State = ();
}

impl ChatAgent for Asks {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        if turn.is_continuation() {
            let message = turn.message().await;
            let answers: Vec<Value> = message.parts.iter().filter(|part| part.is_tool()).map(answer).collect();
            turn.write(Chunk::text_start("t")).await?;
            turn.write(Chunk::text_delta("t", json!(answers).to_string())).await?;
            turn.write(Chunk::text_end("t")).await?;
            return Ok(());
        }
        for call in ["one", "two"] {
            turn.write(Chunk::tool_input_available(call, "look", json!({}))).await?;
        }
        if turn.body().is_some_and(|body| body["approval"] == true) {
            turn.write(Chunk::tool_input_available("pay", "pay", json!({ "amount": 5 }))).await?;
            turn.write(Chunk::tool_approval_request("pay", "approval-1")).await?;
        }
        if let Some(answers) = turn.body().and_then(|body| body["answers"].as_u64()) {
            turn.flush().await?;
            turn.write(Chunk::text_start("slow")).await?;
            while (turn.message().await.parts.iter().filter(|part| part.get("output").is_some()).count() as u64) < answers {
                settled().await;
            }
        }
        Ok(())
    }
}

fn answer(part: &forever::chat::message::Part) -> Value {
    let state = part.get("state").cloned();
    json!([state, part.get("output").or(part.get("errorText")).or(part.get("approval"))])
}

async fn opened(body: Value) -> (Forever, AgentHandle<Asks>) {
    let forever = Forever::builder().in_memory().chat_agent(|_| Asks).open().await.unwrap();
    let agent = forever.agent::<Asks>("a");
    let turn = agent.save_messages([UiMessage::user("u", "hi")]).id("r").body(&body).await.unwrap();
    if body["answers"].is_null() {
        turn.wait().await.unwrap();
    }
    (forever, agent)
}

/// The turn has asked, and ends when it has so many answers.
async fn opened_and_asked(answers: u64) -> (Forever, AgentHandle<Asks>, TurnHandle) {
    let (forever, agent) = opened(json!({ "answers": answers })).await;
    let turn = agent.turn("r").await.unwrap().unwrap();
    let mut follow = turn.follow(0).await.unwrap();
    for _ in 0..4 {
        follow.next().await.unwrap();
    }
    (forever, agent, turn)
}

async fn last_text(agent: &AgentHandle<Asks>) -> String {
    agent.messages().await.unwrap().last().unwrap().text()
}

#[tokio::test(start_paused = true)]
async fn the_turn_goes_on_when_all_calls_are_settled_and_not_before() {
    let (_forever, agent) = opened(json!({})).await;
    assert!(agent.has_pending_interaction().await.unwrap());
    let first = agent.answer_tool("one", ToolAnswer::Output(json!(1)), true).await.unwrap();
    assert!(first.applied && first.continued.is_none());
    let second = agent.answer_tool("two", ToolAnswer::Output(json!(2)), true).await.unwrap();
    let turn = second.continued.unwrap();
    assert!(turn.wait().await.unwrap().is_completed());
    assert_eq!(last_text(&agent).await, r#"[["output-available",1],["output-available",2]]"#);
    assert_eq!(agent.messages().await.unwrap().len(), 2, "it is the same message");
    assert!(!agent.has_pending_interaction().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_continuation_that_was_asked_for_is_not_lost_when_another_call_fails() {
    let (_forever, agent) = opened(json!({})).await;
    agent.answer_tool("one", ToolAnswer::Output(json!(1)), true).await.unwrap();
    // As the client sends an error: without asking for a continuation.
    let failed = agent.answer_tool("two", ToolAnswer::Error("no signal".into()), false).await.unwrap();
    failed.continued.expect("the first answer has asked for it").wait().await.unwrap();
    assert_eq!(last_text(&agent).await, r#"[["output-available",1],["output-error","no signal"]]"#);
}

#[tokio::test(start_paused = true)]
async fn the_first_answer_wins() {
    let (_forever, agent) = opened(json!({})).await;
    assert!(agent.answer_tool("one", ToolAnswer::Output(json!(1)), false).await.unwrap().applied);
    assert!(!agent.answer_tool("one", ToolAnswer::Output(json!(7)), true).await.unwrap().applied);
    assert!(!agent.answer_tool("one", ToolAnswer::Approved, true).await.unwrap().applied, "nobody asked for an approval");
    let unknown = agent.answer_tool("nine", ToolAnswer::Output(json!(1)), true).await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::NotFound);
    let stays = agent.answer_tool("two", ToolAnswer::Output(json!(2)), false).await.unwrap();
    assert!(stays.applied && stays.continued.is_none(), "nobody has asked for a continuation");
    let message = agent.messages().await.unwrap().pop().unwrap();
    assert_eq!(message.parts[0].get("output"), Some(&json!(1)));
}

#[tokio::test(start_paused = true)]
async fn a_tool_may_be_run_when_a_person_says_so() {
    let (_forever, agent) = opened(json!({ "approval": true })).await;
    agent.answer_tool("one", ToolAnswer::Output(json!(1)), true).await.unwrap();
    agent.answer_tool("two", ToolAnswer::Output(json!(2)), true).await.unwrap();
    let done = agent.answer_tool("pay", ToolAnswer::Approved, true).await.unwrap();
    done.continued.unwrap().wait().await.unwrap();
    assert!(
        last_text(&agent).await.ends_with(r#"["approval-responded",{"approved":true,"id":"approval-1"}]]"#),
        "{}",
        last_text(&agent).await
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_a_turn_that_still_writes_goes_into_its_log() {
    let (_forever, agent, turn) = opened_and_asked(2).await;
    agent.answer_tool("one", ToolAnswer::Output(json!(1)), true).await.unwrap();
    let done = agent.answer_tool("two", ToolAnswer::Output(json!(2)), true).await.unwrap();
    assert!(done.applied);
    assert!(turn.wait().await.unwrap().is_completed());
    done.continued.unwrap().wait().await.unwrap();
    assert_eq!(last_text(&agent).await, r#"[["output-available",1],["output-available",2]]"#);
}

#[tokio::test(start_paused = true)]
async fn a_continuation_that_was_asked_for_during_the_turn_is_not_lost() {
    for answers in [1, 2] {
        let (_forever, agent, turn) = opened_and_asked(answers).await;
        agent.answer_tool("one", ToolAnswer::Output(json!(1)), true).await.unwrap();
        if answers == 1 {
            assert!(turn.wait().await.unwrap().is_completed());
        }
        let last = agent.answer_tool("two", ToolAnswer::Output(json!(2)), false).await.unwrap();
        last.continued.expect("the first answer has asked for it").wait().await.unwrap();
        assert_eq!(last_text(&agent).await, r#"[["output-available",1],["output-available",2]]"#);
    }
}

/// Asks the client, says so, and ends at once.
struct Ends(Arc<Notify>);

impl Agent for Ends {
    const CLASS: &'static str = "ends";
    type State = ();
}

impl ChatAgent for Ends {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        if !turn.is_continuation() {
            turn.write(Chunk::tool_input_available("one", "look", json!({}))).await?;
            turn.flush().await?;
            self.0.notify_one();
        }
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_while_its_turn_is_being_settled_counts() {
    let told = Arc::new(Notify::new());
    let of_agent = Arc::clone(&told);
    let forever = Forever::builder().in_memory().chat_agent(move |_| Ends(Arc::clone(&of_agent))).open().await.unwrap();
    let agent = forever.agent::<Ends>("a");
    agent.save_messages([UiMessage::user("u", "hi")]).await.unwrap();
    // There is one thread: the hook has ended, and how it did is on its way to the store.
    told.notified().await;
    let answered = agent.answer_tool("one", ToolAnswer::Output(json!(1)), true).await.unwrap();
    assert!(answered.applied);
    assert!(answered.continued.unwrap().wait().await.unwrap().is_completed());
    assert_eq!(agent.messages().await.unwrap()[1].parts[0].get("output"), Some(&json!(1)));
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_an_earlier_message_is_stored_though_there_is_nothing_to_go_on_with() {
    let (_forever, agent) = opened(json!({})).await;
    let mut messages = agent.messages().await.unwrap();
    messages.push(UiMessage::user("u2", "never mind"));
    agent.set_messages(messages).await.unwrap();
    agent.answer_tool("one", ToolAnswer::Output(json!(1)), true).await.unwrap();
    let last = agent.answer_tool("two", ToolAnswer::Output(json!(2)), true).await.unwrap();
    assert!(last.applied && last.continued.is_none(), "{last:?}");
    let outputs: Vec<_> = agent.messages().await.unwrap()[1].parts.iter().filter_map(|part| part.get("output").cloned()).collect();
    assert_eq!(outputs, [1, 2]);
    assert_eq!(agent.pending_interactions().await.unwrap().interactions, []);
}

/// Messages as a client has them: `parts` are tool calls that wait for the client.
fn asking(id: &str, calls: &[&str]) -> UiMessage {
    let part = |call: &&str| json!({ "type": "tool-look", "toolCallId": call, "state": "input-available", "input": {} });
    let parts: Vec<_> = calls.iter().map(part).collect();
    serde_json::from_value(json!({ "id": id, "role": "assistant", "parts": parts })).unwrap()
}

/// Two messages that ask, of which the second is to be continued once its second call is answered.
async fn two_that_ask() -> (Forever, AgentHandle<Asks>) {
    let forever = Forever::builder().in_memory().chat_agent(|_| Asks).open().await.unwrap();
    let agent = forever.agent::<Asks>("a");
    let [hi, again] = [("u", "hi"), ("u2", "again")].map(|(id, text)| UiMessage::user(id, text));
    agent.set_messages([hi, asking("m", &["one", "two"]), again, asking("m2", &["three", "four"])]).await.unwrap();
    assert!(agent.answer_tool("three", ToolAnswer::Output(json!(3)), true).await.unwrap().continued.is_none());
    (forever, agent)
}

async fn continues_with_the_last_call(agent: &AgentHandle<Asks>) {
    let last = agent.answer_tool("four", ToolAnswer::Output(json!(4)), false).await.unwrap();
    last.continued.expect("the answer to the call before it has asked for it").wait().await.unwrap();
    assert_eq!(last_text(agent).await, r#"[["output-available",3],["output-available",4]]"#);
}

#[tokio::test(start_paused = true)]
async fn a_continuation_that_was_asked_for_is_not_lost_when_an_earlier_message_is_answered() {
    let (_forever, agent) = two_that_ask().await;
    agent.answer_tool("one", ToolAnswer::Output(json!(1)), false).await.unwrap();
    continues_with_the_last_call(&agent).await;
}

#[tokio::test(start_paused = true)]
async fn a_continuation_that_was_asked_for_is_not_that_of_an_earlier_message() {
    let (_forever, agent) = two_that_ask().await;
    agent.answer_tool("one", ToolAnswer::Output(json!(1)), true).await.unwrap();
    continues_with_the_last_call(&agent).await;
}

#[tokio::test(start_paused = true)]
async fn the_answers_to_an_earlier_message_continue_nothing_that_still_waits() {
    let (_forever, agent) = two_that_ask().await;
    for (call, output) in [("one", 1), ("two", 2)] {
        let answered = agent.answer_tool(call, ToolAnswer::Output(json!(output)), true).await.unwrap();
        assert!(answered.applied && answered.continued.is_none(), "{answered:?}");
    }
    continues_with_the_last_call(&agent).await;
}

/// Says what it was told when it is woken at last, which takes until it is let.
struct Sleepy {
    waking: Arc<Notify>,
    wakes: Arc<Semaphore>,
}

impl Agent for Sleepy {
    const CLASS: &'static str = "sleepy";
    type State = ();

    async fn on_start(&self) -> Result<(), BoxError> {
        self.waking.notify_one();
        self.wakes.acquire().await?.forget();
        Ok(())
    }
}

impl ChatAgent for Sleepy {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        let answers: Vec<Value> = turn.message().await.parts.iter().filter(|part| part.is_tool()).map(answer).collect();
        turn.write(Chunk::text_start("t")).await?;
        turn.write(Chunk::text_delta("t", json!(answers).to_string())).await?;
        turn.write(Chunk::text_end("t")).await?;
        Ok(())
    }
}

/// A turn that continues `message` has begun and read it, and its agent is not awake: an answer comes. Gives the message at the end.
async fn answered_before_the_agent_is_awake(message: UiMessage, answer: ToolAnswer, auto_continue: bool) -> UiMessage {
    let (waking, wakes) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
    let of_agent = (Arc::clone(&waking), Arc::clone(&wakes));
    let forever = Forever::builder().in_memory().chat_agent(move |_| {
        let (waking, wakes) = (Arc::clone(&of_agent.0), Arc::clone(&of_agent.1));
        Sleepy { waking, wakes }
    });
    let forever = forever.open().await.unwrap();
    let agent = forever.agent::<Sleepy>("a");
    agent.set_messages([UiMessage::user("u", "hi"), message]).await.unwrap();
    let turn = agent.continue_last_turn().await.unwrap();
    waking.notified().await;
    let asked = agent.clone();
    let answered = tokio::spawn(async move { asked.answer_tool("one", answer, auto_continue).await });
    // The answer is stored, or waits for the turn: each look at the store lets it come further.
    for _ in 0..100 {
        agent.messages().await.unwrap();
    }
    wakes.add_permits(1);
    assert!(turn.wait().await.unwrap().is_completed());
    let answered = answered.await.unwrap().unwrap();
    assert!(answered.applied);
    if let Some(continued) = answered.continued {
        assert!(continued.wait().await.unwrap().is_completed());
    }
    agent.messages().await.unwrap().pop().unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_before_the_agent_of_a_begun_turn_is_awake_is_not_overwritten() {
    for auto_continue in [false, true] {
        let asking = asking("m", &["one"]);
        let message = answered_before_the_agent_is_awake(asking, ToolAnswer::Output(json!(1)), auto_continue).await;
        assert_eq!(message.parts[0].get("output"), Some(&json!(1)), "{message:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_approval_that_comes_before_the_agent_of_a_begun_turn_is_awake_is_not_overwritten() {
    let part = json!({
        "type": "tool-pay", "toolCallId": "one", "state": "approval-requested", "input": {}, "approval": { "id": "p" }
    });
    let asking = serde_json::from_value(json!({ "id": "m", "role": "assistant", "parts": [part] })).unwrap();
    let message = answered_before_the_agent_is_awake(asking, ToolAnswer::Approved, true).await;
    assert_eq!(message.parts[0].get("approval"), Some(&json!({ "id": "p", "approved": true })), "{message:?}");
}

/// Asks its client, and is interrupted; it is recovered when it is let.
struct Interrupted {
    asked: Arc<Notify>,
    recovering: Arc<Notify>,
    recovers: Arc<Semaphore>,
}

impl Agent for Interrupted {
    const CLASS: &'static str = "interrupted";
    type State = ();
}

impl ChatAgent for Interrupted {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        if turn.recovery().is_some() {
            let answered = async || turn.message().await.parts.iter().any(|part| part.get("output") == Some(&json!("here")));
            while !answered().await {
                settled().await;
            }
            return Ok(());
        }
        for (call, tool) in [("look", "look"), ("work", "work")] {
            turn.write(Chunk::tool_input_available(call, tool, json!({}))).await?;
        }
        turn.flush().await?;
        self.asked.notify_one();
        std::future::pending().await
    }

    async fn on_chat_recovery(&self, _: &ChatRecovery) -> Result<ChatRecoveryOptions, BoxError> {
        self.recovering.notify_one();
        self.recovers.acquire().await?.forget();
        Ok(ChatRecoveryOptions::default())
    }
}

/// The notices of the agent, and leave to recover.
#[derive(Clone)]
struct Signals {
    asked: Arc<Notify>,
    recovering: Arc<Notify>,
    recovers: Arc<Semaphore>,
}

impl Signals {
    fn new() -> Self {
        Signals { asked: Arc::default(), recovering: Arc::default(), recovers: Arc::new(Semaphore::new(0)) }
    }
}

async fn interrupted(path: &Path, signals: &Signals) -> (Forever, AgentHandle<Interrupted>) {
    let of_agent = signals.clone();
    let builder = Forever::builder().sqlite(path).chat_agent(move |_| {
        let Signals { asked, recovering, recovers } = of_agent.clone();
        Interrupted { asked, recovering, recovers }
    });
    let forever = builder.open().await.unwrap();
    let agent = forever.agent("a");
    (forever, agent)
}

/// A database of a turn that has asked its client, and was interrupted.
async fn interrupted_after_asking(path: &Path, signals: &Signals) {
    let (forever, agent) = interrupted(path, signals).await;
    let look = ToolSpec { name: "look".to_owned(), ..ToolSpec::default() };
    agent.save_messages([UiMessage::user("u", "hi")]).id("r").client_tools([look]).await.unwrap();
    signals.asked.notified().await;
    forever.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_a_call_that_is_only_in_the_log_of_an_interrupted_turn_is_taken_when_that_is_recovered() {
    let (folder, signals) = (tempfile::tempdir().unwrap(), Signals::new());
    let path = folder.path().join("chat.db");
    interrupted_after_asking(&path, &signals).await;
    let (forever, agent) = interrupted(&path, &signals).await;
    signals.recovering.notified().await;
    let unknown = agent.answer_tool("nine", ToolAnswer::Output(json!(1)), true).await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::NotFound, "no turn has made it");
    let of_task = agent.clone();
    let answered = tokio::spawn(async move { of_task.answer_tool("look", ToolAnswer::Output(json!("here")), true).await });
    // It waits for the turn.
    settled().await;
    signals.recovers.add_permits(1);
    let answered = answered.await.unwrap().unwrap();
    assert!(answered.applied, "{answered:?}");
    assert!(agent.turn("r").await.unwrap().unwrap().wait().await.unwrap().is_completed());
    let message = agent.messages().await.unwrap().remove(1);
    assert_eq!(message.parts[0].get("output"), Some(&json!("here")), "{message:?}");
    forever.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_a_call_of_a_turn_whose_fiber_is_parked_can_be_given_again_later() {
    let (folder, signals) = (tempfile::tempdir().unwrap(), Signals::new());
    let path = folder.path().join("chat.db");
    interrupted_after_asking(&path, &signals).await;
    sql(&path, "CREATE TABLE copy AS SELECT turn, tools FROM turn_requests; UPDATE turn_requests SET tools = 'damaged'");
    // Whether it comes before the fiber is parked or after that.
    for is_parked in [false, true] {
        let (forever, agent) = interrupted(&path, &signals).await;
        if is_parked {
            assert!(parked(&forever, &path).await.is_parked());
        }
        let error = agent.answer_tool("look", ToolAnswer::Output(json!("here")), true).await.unwrap_err();
        assert!(error.is_busy() && error.is_retryable(), "{error}");
        forever.close().await.unwrap();
    }
    sql(&path, "UPDATE turn_requests SET tools = (SELECT tools FROM copy WHERE copy.turn = turn_requests.turn); DROP TABLE copy");
    let (forever, agent) = interrupted(&path, &signals).await;
    signals.recovers.add_permits(1);
    // The fiber is parked until it is recovered.
    eventually("the answer is taken", async || match agent.answer_tool("look", ToolAnswer::Output(json!("here")), true).await {
        Ok(answered) => answered.applied,
        Err(error) if error.is_busy() && error.is_retryable() => false,
        Err(error) => panic!("{error}"),
    })
    .await;
    assert!(agent.turn("r").await.unwrap().unwrap().wait().await.unwrap().is_completed());
    forever.close().await.unwrap();
}
