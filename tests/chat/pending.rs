//! The list of pending interactions: it has what waits for a person or their client, for as long as it does, in whichever process.
mod killed;
mod random;

use std::time::Duration;

use forever::agent::{Agent, AgentHandle};
use forever::chat::message::{Chunk, ToolState, UiMessage};
use forever::chat::model::{FinishReason, ModelRequest, ToolSpec};
use forever::chat::{
    AgentLoop, ChatAgent, InteractionKind, PendingInteraction, PendingInteractions, Tool, ToolAnswer, ToolCallRef, Turn, TurnHandle,
};
use forever::prelude::*;
use forever::testing::VirtualClock;
use forever::{BoxError, Builder, Clock, ErrorKind, Forever};
use forever_testkit::models::{self, ScriptedModel};
use forever_testkit::notes::Notes;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::agent_loop::Assistant;

/// Asks, each time that it answers, what its body says of that time: `tool` for each result of the client's tool, `approval` for each approval.
/// Waits at the end of an answer until the gate is open.
struct Clerk {
    gate: watch::Receiver<bool>,
}

impl Agent for Clerk {
    const CLASS: &'static str = "clerk";
    type State = ();
}

impl ChatAgent for Clerk {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        let rounds = turn.body().cloned().unwrap_or_default();
        let parts = turn.message().await.parts;
        let began = turn.recovery().is_some_and(|recovery| !recovery.partial_parts().is_empty());
        let round = parts.iter().filter(|part| part.kind() == "data-round").count() - usize::from(began);
        if !began {
            turn.write(Chunk::data("round", None, json!(round))).await?;
        }
        for (n, what) in rounds.get(round).and_then(Value::as_array).into_iter().flatten().enumerate() {
            let call = format!("{}-{round}-{n}", turn.message_id());
            if parts.iter().any(|part| part.tool_call_id() == Some(&*call)) {
                continue;
            }
            let input = json!({ "round": round, "n": n });
            turn.write(Chunk::tool_input_available(&call, what.as_str().unwrap(), input)).await?;
            if what == "approval" {
                turn.write(Chunk::tool_approval_request(&call, format!("may {call}"))).await?;
            }
        }
        turn.flush().await?;
        self.gate.clone().wait_for(|open| *open).await?;
        turn.write(Chunk::finish()).await?;
        Ok(())
    }
}

/// Another class of agents that ask the same.
struct Other(Clerk);

impl Agent for Other {
    const CLASS: &'static str = "other";
    type State = ();
}

impl ChatAgent for Other {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        self.0.on_chat_message(turn).await
    }
}

fn builder(gate: &watch::Sender<bool>, clock: &VirtualClock) -> Builder {
    let (one, other) = (gate.subscribe(), gate.subscribe());
    Forever::builder()
        .turn_batching(1, Duration::ZERO)
        .clock(clock.clone())
        .chat_agent(move |_| Clerk { gate: one.clone() })
        .chat_agent(move |_| Other(Clerk { gate: other.clone() }))
}

struct World {
    forever: Forever,
    clock: VirtualClock,
    gate: watch::Sender<bool>,
}

impl World {
    async fn open() -> Self {
        let (gate, clock) = (watch::Sender::new(true), VirtualClock::new());
        let forever = builder(&gate, &clock).in_memory().open().await.unwrap();
        World { forever, clock, gate }
    }

    fn clerk(&self, name: &str) -> AgentHandle<Clerk> {
        self.forever.agent(name)
    }

    async fn calls(&self) -> Vec<String> {
        calls(self.forever.pending_interactions()).await
    }
}

fn client_tools() -> [ToolSpec; 1] {
    [ToolSpec { name: "tool".into(), ..ToolSpec::default() }]
}

async fn begin<A: ChatAgent>(agent: &AgentHandle<A>, id: &str, rounds: Value) -> TurnHandle {
    let asked = agent.save_messages([UiMessage::user(format!("u-{id}"), "hi")]).id(id);
    asked.body(&rounds).client_tools(client_tools()).await.unwrap()
}

/// Asks, and waits for the end of the turn.
async fn ask<A: ChatAgent>(agent: &AgentHandle<A>, id: &str, rounds: Value) -> TurnHandle {
    let turn = begin(agent, id, rounds).await;
    assert!(turn.wait().await.unwrap().is_completed());
    turn
}

/// Everything, read by pages of one message each.
async fn all(list: impl Fn() -> PendingInteractions) -> Vec<PendingInteraction> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let list = list().limit(1);
        let page = match after {
            Some(after) => list.after(after),
            None => list,
        };
        let page = page.await.unwrap();
        found.extend(page.interactions);
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
}

/// The ids of the calls on the first page, without the ids of their messages.
async fn calls(list: PendingInteractions) -> Vec<String> {
    let page = list.await.unwrap();
    assert_eq!(page.next, None);
    page.interactions.iter().map(|asked| format!("{} {}", asked.agent, asked.call.strip_prefix(&asked.message).unwrap())).collect()
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_is_listed_of_one_chat_and_of_all_the_latest_first() {
    let world = World::open().await;
    let (ada, bob) = (world.clerk("ada"), world.clerk("bob"));
    let grace = world.forever.agent::<Other>("ada");
    assert_eq!(world.calls().await, [] as [&str; 0]);
    let first = ask(&ada, "1", json!([["tool", "approval"]])).await;
    let since = world.clock.now();
    world.clock.advance(Duration::from_secs(5));
    ask(&bob, "1", json!([["approval"]])).await;
    world.clock.advance(Duration::from_secs(5));
    ask(&grace, "1", json!([["tool"]])).await;
    ask(&bob, "2", json!([])).await;
    assert_eq!(world.calls().await, ["ada -0-0", "bob -0-0", "ada -0-0", "ada -0-1"]);
    assert_eq!(calls(ada.pending_interactions()).await, ["ada -0-0", "ada -0-1"]);
    assert_eq!(calls(world.forever.pending_interactions().class("clerk")).await, ["bob -0-0", "ada -0-0", "ada -0-1"]);
    assert_eq!(calls(world.forever.pending_interactions().agent("other", "ada")).await, ["ada -0-0"]);
    assert_eq!(calls(world.forever.pending_interactions().agent("clerk", "eve")).await, [] as [&str; 0]);

    let asked = ada.pending_interactions().await.unwrap().interactions;
    let message = first.message_id();
    assert_eq!((&*asked[0].class, &*asked[0].agent, &*asked[0].message), ("clerk", "ada", message));
    assert_eq!((asked[0].kind, &*asked[0].tool, &asked[0].approval), (InteractionKind::ClientTool, "tool", &None));
    assert_eq!((asked[1].kind, &*asked[1].tool), (InteractionKind::Approval, "approval"));
    assert_eq!(asked[1].approval.as_deref(), Some(&*format!("may {message}-0-1")));
    assert_eq!((&asked[1].input, asked[1].since, asked[1].superseded), (&json!({ "round": 0, "n": 1 }), since, false));
    let since_ms = since.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    assert_eq!(
        serde_json::to_value(&asked[0]).unwrap(),
        json!({ "class": "clerk", "agent": "ada", "message": message, "call": format!("{message}-0-0"), "tool": "tool",
                "input": { "round": 0, "n": 0 }, "kind": "client-tool", "approval": null, "since_ms": u64::try_from(since_ms).unwrap(),
                "superseded": false })
    );
    let earlier = bob.pending_interactions().await.unwrap().interactions;
    assert!(earlier[0].superseded, "something else was asked since");
    assert!(!bob.has_pending_interaction().await.unwrap(), "which is of the last message");
}

#[tokio::test(start_paused = true)]
async fn an_interaction_leaves_the_list_with_its_answer() {
    let world = World::open().await;
    let ada = world.clerk("ada");
    ask(&ada, "1", json!([["tool", "tool", "approval", "approval"], ["approval"]])).await;
    let since = world.clock.now();
    for (answer, left) in [(ToolAnswer::Output(json!(1)), 3), (ToolAnswer::Error("no".into()), 2), (ToolAnswer::Approved, 1)] {
        world.clock.advance(Duration::from_secs(1));
        let asked = world.forever.pending_interactions().await.unwrap().interactions;
        let answered = ada.answer_tool(&asked[0], answer, false).await.unwrap();
        assert!(answered.applied && answered.continued.is_none());
        let now = world.forever.pending_interactions().await.unwrap().interactions;
        assert_eq!(now, asked[1..]);
        assert_eq!(now.len(), left);
        assert_eq!(now[0].since, since);
    }
    // An answer to something that was not asked so leaves it where it is.
    let last = ada.pending_interactions().await.unwrap().interactions.remove(0);
    assert!(!ada.answer_tool(&last, ToolAnswer::Output(json!(1)), true).await.unwrap().applied);
    let other = ToolCallRef::new(&*last.call).seen(json!("something else"));
    assert_eq!(ada.answer_tool(other, ToolAnswer::Refused, true).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(world.calls().await, ["ada -0-3"]);
    // With the last answer the turn goes on, and asks something new.
    let more = ada.answer_tool(&last, ToolAnswer::Refused, true).await.unwrap().continued.unwrap();
    assert!(more.wait().await.unwrap().is_completed());
    assert_eq!(world.calls().await, ["ada -1-0"]);
    assert_eq!(ada.pending_interactions().await.unwrap().interactions[0].since, world.clock.now());
}

#[tokio::test(start_paused = true)]
async fn what_is_replaced_cut_off_or_cleared_leaves_the_list() {
    let world = World::open().await;
    let ada = world.clerk("ada");
    let first = ask(&ada, "1", json!([["tool"]])).await;
    // Given again: the new answer asks, and what the old one has asked is gone.
    let again = ada.save_messages([]).after("u-1").body(&json!([["approval"]])).await.unwrap();
    again.wait().await.unwrap();
    let asked = ada.pending_interactions().await.unwrap().interactions;
    assert_eq!((asked.len(), asked[0].kind), (1, InteractionKind::Approval));
    assert_ne!(asked[0].message, first.message_id());
    // Edited.
    ada.save_messages([UiMessage::user("u-1", "something else")]).after("u-1").body(&json!([[]])).await.unwrap().wait().await.unwrap();
    assert_eq!(world.calls().await, [] as [&str; 0]);
    // Replaced, with a result and without.
    ask(&ada, "2", json!([["tool", "tool"]])).await;
    let since = world.clock.now();
    world.clock.advance(Duration::from_secs(1));
    let mut messages = ada.messages().await.unwrap();
    messages.last_mut().unwrap().parts.retain(|part| part.tool_call_id().is_none_or(|call| call.ends_with("-0")));
    ada.set_messages(messages.clone()).await.unwrap();
    assert_eq!(world.calls().await, ["ada -0-0"]);
    assert_eq!(ada.pending_interactions().await.unwrap().interactions[0].since, since);
    messages.pop();
    ada.set_messages(messages).await.unwrap();
    assert_eq!(world.calls().await, [] as [&str; 0]);
    // Cleared.
    ask(&ada, "3", json!([["tool", "approval"]])).await;
    ask(&world.clerk("bob"), "1", json!([["tool"]])).await;
    ada.clear().await.unwrap();
    assert_eq!(world.calls().await, ["bob -0-0"]);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_under_way_asks_when_it_has_ended_also_when_it_was_cancelled() {
    let world = World::open().await;
    let ada = world.clerk("ada");
    world.gate.send_replace(false);
    let turn = begin(&ada, "1", json!([["tool", "approval"], []])).await;
    let mut follow = turn.follow(0).await.unwrap();
    for _ in 0..4 {
        follow.next().await.unwrap();
    }
    let behind = begin(&ada, "2", json!([["tool"]])).await;
    assert_eq!(world.calls().await, [] as [&str; 0], "it is in the log");
    behind.cancel("not needed").await.unwrap();
    turn.cancel("enough").await.unwrap();
    turn.wait().await.unwrap();
    assert_eq!(world.calls().await, ["ada -0-0", "ada -0-1"], "it can still be answered");
    world.gate.send_replace(true);
    for asked in ada.pending_interactions().await.unwrap().interactions {
        let answer = if asked.kind == InteractionKind::Approval { ToolAnswer::Refused } else { ToolAnswer::Output(json!(1)) };
        assert!(ada.answer_tool(&asked, answer, false).await.unwrap().applied);
    }
    assert_eq!(world.calls().await, [] as [&str; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_is_answered_in_the_log_of_a_running_turn_is_not_listed_meanwhile() {
    let world = World::open().await;
    let ada = world.clerk("ada");
    ask(&ada, "1", json!([["tool", "tool"]])).await;
    world.gate.send_replace(false);
    let more = ada.continue_last_turn().await.unwrap();
    let mut follow = more.follow(0).await.unwrap();
    follow.next().await.unwrap();
    assert_eq!(world.calls().await, [] as [&str; 0]);
    let call = format!("{}-0-0", more.message_id());
    assert!(ada.answer_tool(&call, ToolAnswer::Output(json!(1)), false).await.unwrap().applied);
    assert_eq!(world.calls().await, [] as [&str; 0]);
    world.gate.send_replace(true);
    more.wait().await.unwrap();
    assert_eq!(world.calls().await, ["ada -0-1"]);
}

#[tokio::test(start_paused = true)]
async fn pages_have_each_of_250_chats_once_while_some_are_answered_and_others_ask() {
    let world = World::open().await;
    for n in 0..250 {
        if n % 3 == 0 {
            world.clock.advance(Duration::from_millis(1));
        }
        ask(&world.clerk(&format!("{n:03}")), "1", json!([["tool", "approval"]])).await;
    }
    let (mut seen, mut pages, mut after) = (Vec::new(), 0, None);
    loop {
        let list = world.forever.pending_interactions().limit(20);
        let page = match after {
            Some(after) => list.after(after),
            None => list,
        };
        let page = page.await.unwrap();
        pages += 1;
        seen.extend(page.interactions.iter().map(|asked| asked.agent.clone()));
        // One that was read, one that is still to be read, and a new one.
        world.clock.advance(Duration::from_secs(1));
        for agent in [(pages - 1) * 20, pages * 20].map(|n: usize| 249usize.checked_sub(n)).into_iter().flatten() {
            let agent = world.clerk(&format!("{agent:03}"));
            let asked = agent.pending_interactions().await.unwrap().interactions;
            if let Some(first) = asked.iter().find(|asked| asked.kind == InteractionKind::ClientTool) {
                agent.answer_tool(first, ToolAnswer::Output(json!(1)), false).await.unwrap();
            }
        }
        ask(&world.clerk(&format!("new {pages}")), "1", json!([["tool"]])).await;
        // A place is kept as text as well.
        after = page.next.map(|next| serde_json::from_str(&serde_json::to_string(&next).unwrap()).unwrap());
        if after.is_none() {
            break;
        }
    }
    assert_eq!(pages, 13);
    let mut chats = seen.clone();
    chats.dedup();
    let all: Vec<_> = (0..250).rev().map(|n| format!("{n:03}")).collect();
    assert_eq!(chats, all, "each once, the latest first");
    // Those that were answered before they were read have one left.
    assert_eq!(seen.len(), 2 * 250 - 12);
    let page = world.forever.pending_interactions().await.unwrap();
    assert_eq!(page.interactions[0].agent, "new 13");
    assert!(page.next.is_some(), "50 chats to a page");
}

fn loop_of(says: impl Fn(usize, &ModelRequest) -> Vec<models::Event> + Send + Sync + 'static, tool: Tool) -> Builder {
    let model = ScriptedModel::new(says);
    Forever::builder()
        .in_memory()
        .cancel_grace(Duration::from_millis(10))
        .agent_loop(AgentLoop::new(model).tool(tool))
        .chat_agent(|_| Assistant)
}

#[tokio::test(start_paused = true)]
async fn a_call_of_a_tool_that_runs_here_is_no_question_when_its_turn_is_cancelled() {
    let says = |_: usize, _: &ModelRequest| {
        [models::call("c", "hang", json!({})), models::call("d", "look", json!({})), models::ends(FinishReason::ToolCalls)].concat()
    };
    let forever = loop_of(says, Tool::new("hang", |_, _| std::future::pending())).open().await.unwrap();
    let agent = forever.agent::<Assistant>("a");
    let look = ToolSpec { name: "look".into(), ..ToolSpec::default() };
    let turn = agent.save_messages([UiMessage::user("u", "go")]).client_tools([look]).await.unwrap();
    let mut follow = turn.follow(0).await.unwrap();
    for _ in 0..6 {
        follow.next().await.unwrap();
    }
    turn.cancel("enough").await.unwrap();
    turn.wait().await.unwrap();
    let message = agent.messages().await.unwrap().pop().unwrap();
    let states: Vec<_> = message.parts.iter().filter_map(|part| Some((part.tool_name()?, part.tool_state()?))).collect();
    assert_eq!(states, [("hang", ToolState::InputAvailable), ("look", ToolState::InputAvailable)]);
    let asked = all(|| forever.pending_interactions()).await;
    assert_eq!(asked.iter().map(|asked| &*asked.tool).collect::<Vec<_>>(), ["look"]);
    agent.answer_tool(&asked[0], ToolAnswer::Output(json!(1)), false).await.unwrap();
    assert_eq!(all(|| forever.pending_interactions()).await, []);
    assert!(!agent.has_pending_interaction().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_is_approved_in_an_earlier_message_is_not_run() {
    let says = |results: usize, request: &ModelRequest| match (results, request.messages.last().unwrap().text()) {
        (0, said) if said == "pay" => [models::call("c", "charge", json!({ "cents": 5 })), models::ends(FinishReason::ToolCalls)].concat(),
        _ => [models::text(&["Done."]), models::ends(FinishReason::Stop)].concat(),
    };
    let charged = Notes::default();
    let of_tool = charged.clone();
    let charge = Tool::new("charge", move |_, _| {
        of_tool.note("charge");
        async { Ok(json!("charged")) }
    });
    let forever = loop_of(says, charge.needs_approval(|_| true)).open().await.unwrap();
    let agent = forever.agent::<Assistant>("a");
    for (id, text) in [("u1", "pay"), ("u2", "hello")] {
        agent.save_messages([UiMessage::user(id, text)]).await.unwrap().wait().await.unwrap();
    }
    let asked = agent.pending_interactions().await.unwrap().interactions;
    assert_eq!((asked.len(), asked[0].superseded), (1, true));
    let answered = agent.answer_tool(&asked[0], ToolAnswer::Approved, true).await.unwrap();
    // It is stored, and no turn is paid for that could not run the tool.
    assert!(answered.applied && answered.continued.is_none());
    assert_eq!(agent.turns(&[]).await.unwrap().len(), 2);
    assert_eq!(charged.all(), [] as [&str; 0]);
    assert_eq!(agent.pending_interactions().await.unwrap().interactions, []);
}
