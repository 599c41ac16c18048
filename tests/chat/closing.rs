//! A close while an answer calls tools: those that are under way end, and nothing begins.
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forever::Forever;
use forever::agent::{Agent, AgentHandle, Due, RecoveredFiber, RecoveryAction};
use forever::chat::message::{Chunk, UiMessage};
use forever::chat::model::{FinishReason, ModelRequest};
use forever::chat::{AgentLoop, ChatAgent, Tool, ToolAnswer, Turn};
use forever::prelude::*;
use forever::testing::VirtualClock;
use forever::{BoxError, Builder};
use forever_testkit::models::{Event, ScriptedModel, call, ends, text};
use forever_testkit::notes::Notes;
use forever_testkit::waiting::{eventually, settled, soon};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::agent_loop::{Assistant, outline};

/// An answer that calls two tools, each of which lasts until its gate is open.
struct Desk {
    folder: tempfile::TempDir,
    clock: VirtualClock,
    seen: Notes,
    gates: [Arc<Semaphore>; 2],
}

/// Calls both tools, and says how many results it has.
fn both(results: usize, _: &ModelRequest) -> Vec<Event> {
    match results {
        0 => [call("c1", "slow", json!({})), call("c2", "slower", json!({})), ends(FinishReason::ToolCalls)].concat(),
        _ => [text(&["Done."]), ends(FinishReason::Stop)].concat(),
    }
}

impl Desk {
    fn new() -> Self {
        let gates = [(); 2].map(|()| Arc::new(Semaphore::new(0)));
        Desk { folder: tempfile::tempdir().unwrap(), clock: VirtualClock::new(), seen: Notes::default(), gates }
    }

    fn tool(&self, n: usize) -> Tool {
        let (seen, gate, name) = (self.seen.clone(), Arc::clone(&self.gates[n]), ["slow", "slower"][n]);
        Tool::new(name, move |_, _| {
            let (seen, gate) = (seen.clone(), Arc::clone(&gate));
            async move {
                seen.note(name);
                gate.acquire().await?.forget();
                Ok(json!(name))
            }
        })
    }

    fn looped(&self) -> AgentLoop {
        AgentLoop::new(ScriptedModel::new(both).noting(&self.seen)).tool(self.tool(0)).tool(self.tool(1))
    }

    fn builder(&self, looped: AgentLoop) -> Builder {
        let builder = Forever::builder().sqlite(self.folder.path().join("chat.db")).clock(self.clock.clone());
        builder.turn_batching(1, Duration::ZERO).agent_loop(looped)
    }

    /// Opens a runtime, asks, and begins to close it when these calls are under way.
    async fn close_within<A: ChatAgent>(&self, builder: Builder, begun: &[&str]) -> tokio::task::JoinHandle<forever::Result<()>> {
        let forever = builder.open().await.unwrap();
        forever.agent::<A>("a").save_messages([UiMessage::user("u", "go")]).id("r").await.unwrap();
        self.close(&forever, begun).await
    }

    async fn close(&self, forever: &Forever, begun: &[&str]) -> tokio::task::JoinHandle<forever::Result<()>> {
        eventually("the calls", async || begun.iter().all(|tool| self.seen.all().iter().any(|seen| seen == tool))).await;
        settled().await;
        let closing = tokio::spawn(forever.close().into_future());
        forever.closing().await;
        settled().await;
        closing
    }

    /// The answer of the next process.
    async fn answer<A: ChatAgent>(&self, builder: Builder) -> Vec<String> {
        let forever = builder.open().await.unwrap();
        let agent: AgentHandle<A> = forever.agent("a");
        let turn = soon("the turn", agent.turn("r")).await.unwrap().unwrap();
        let end = soon("the answer", turn.wait()).await.unwrap();
        assert!(end.is_completed(), "{end:?}");
        let message = agent.messages().await.unwrap().pop().unwrap();
        forever.close().await.unwrap();
        outline(&message)
    }

    async fn lets_both_end<A: ChatAgent>(&self, builder: impl Fn() -> Builder) {
        let closing = self.close_within::<A>(builder(), &["slow", "slower"]).await;
        assert!(!closing.is_finished(), "both tools are under way");
        self.gates[0].add_permits(1);
        settled().await;
        assert!(!closing.is_finished(), "one tool is under way");
        self.gates[1].add_permits(1);
        soon("the close", closing).await.unwrap().unwrap();
        assert_eq!(self.seen.count("asked"), 1, "the model is not asked by a process that ends");

        let answer = self.answer::<A>(builder()).await;
        let results = ["slow", "slower"].map(|tool| format!("tool-{tool} \"output-available\" \"{tool}\""));
        assert_eq!(answer, ["-".to_owned(), results[0].clone(), results[1].clone(), "-".to_owned(), "Done.".to_owned()]);
        assert_eq!(self.seen.all().len(), 4, "{:?}", self.seen.all());
    }
}

#[tokio::test(start_paused = true)]
async fn close_lets_the_tools_of_an_answer_end() {
    let desk = Desk::new();
    desk.lets_both_end::<Assistant>(|| desk.builder(desk.looped()).chat_agent(|_| Assistant)).await;
}

/// Ends in an error of its own while its tools run.
struct Hasty;

impl Agent for Hasty {
    const CLASS: &'static str = "hasty";
    type State = ();
}

impl ChatAgent for Hasty {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        tokio::select! {
            answered = turn.run_agent_loop() => answered,
            () = turn.closing() => Err("the process ends".into()),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn close_lets_the_tools_end_of_a_hook_that_does_not_wait_for_them() {
    let desk = Desk::new();
    desk.lets_both_end::<Hasty>(|| desk.builder(desk.looped()).chat_agent(|_| Hasty)).await;
}

#[tokio::test(start_paused = true)]
async fn close_begins_no_call_in_the_place_of_one_that_ends() {
    let desk = Desk::new();
    let builder = || desk.builder(desk.looped().parallel_tools(1)).chat_agent(|_| Assistant);
    let closing = desk.close_within::<Assistant>(builder(), &["slow"]).await;
    desk.gates[0].add_permits(1);
    desk.gates[1].add_permits(1);
    soon("the close", closing).await.unwrap().unwrap();
    assert_eq!(desk.seen.count("slower"), 0);
    let answer = desk.answer::<Assistant>(builder()).await;
    assert_eq!(answer[1], r#"tool-slow "output-available" "slow""#);
    assert_eq!((answer.last().unwrap().as_str(), desk.seen.all().len()), ("Done.", 4), "{:?}", desk.seen.all());
}

#[tokio::test(start_paused = true)]
async fn close_lets_an_approved_call_end() {
    let desk = Desk::new();
    let says = |results: usize, _: &ModelRequest| match results {
        0 => [call("c1", "slow", json!({})), ends(FinishReason::ToolCalls)].concat(),
        _ => [text(&["Done."]), ends(FinishReason::Stop)].concat(),
    };
    let looped = || AgentLoop::new(ScriptedModel::new(says).noting(&desk.seen)).tool(desk.tool(0).needs_approval(|_| true));
    let builder = || desk.builder(looped()).chat_agent(|_| Assistant);
    let forever = builder().open().await.unwrap();
    let agent = forever.agent::<Assistant>("a");
    agent.save_messages([UiMessage::user("u", "go")]).await.unwrap().wait().await.unwrap();
    let continued = agent.answer_tool("c1", ToolAnswer::Approved, true).await.unwrap().continued.unwrap();
    let id = continued.id().to_owned();
    let closing = desk.close(&forever, &["slow"]).await;
    assert!(!closing.is_finished(), "the call is under way");
    desk.gates[0].add_permits(1);
    soon("the close", closing).await.unwrap().unwrap();
    drop((continued, agent, forever));

    let forever = builder().open().await.unwrap();
    let agent = forever.agent::<Assistant>("a");
    let turn = agent.turn(&id).await.unwrap().unwrap();
    assert!(soon("the answer", turn.wait()).await.unwrap().is_completed());
    let message = agent.messages().await.unwrap().pop().unwrap();
    assert_eq!(outline(&message), ["-", r#"tool-slow "output-available" "slow""#, "-", "Done."]);
    assert_eq!(desk.seen.count("slow"), 1);
    forever.close().await.unwrap();
}

/// Where an effect of a function waits that a hook runs.
#[derive(Clone)]
struct Till {
    seen: Notes,
    gate: Arc<Semaphore>,
}

impl Till {
    async fn pay(&self, what: &str) -> anyhow::Result<u64> {
        self.seen.note(what);
        self.gate.acquire().await?.forget();
        Ok(5)
    }
}

#[fiber]
async fn pays(ctx: &FiberContext, till: Res<Till>) -> anyhow::Result<u64> {
    let paid = step!("pay", effect, till.pay("step").await?);
    let more: u64 = ctx.op("more", 1, async |_| till.pay("by hand").await).await?;
    Ok(step!("sum", paid + more))
}

struct Cashier;

impl Agent for Cashier {
    const CLASS: &'static str = "cashier";
    type State = ();
}

impl ChatAgent for Cashier {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        let paid = turn.run(pays()).await?;
        turn.write(Chunk::text_start("t")).await?;
        turn.write(Chunk::text_delta("t", format!("paid {paid}"))).await?;
        turn.write(Chunk::text_end("t")).await?;
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn close_lets_an_effect_and_an_operation_by_hand_end_in_a_run_of_a_hook() {
    let desk = Desk::new();
    let till = Till { seen: desk.seen.clone(), gate: Arc::clone(&desk.gates[0]) };
    let builder = || desk.builder(desk.looped()).resource(till.clone()).fiber::<pays>().chat_agent(|_| Cashier);
    for (n, begun) in ["step", "by hand"].into_iter().enumerate() {
        let forever = builder().open().await.unwrap();
        if n == 0 {
            forever.agent::<Cashier>("a").save_messages([UiMessage::user("u", "go")]).id("r").await.unwrap();
        }
        let closing = desk.close(&forever, &[begun]).await;
        assert!(!closing.is_finished(), "{begun}: it is under way");
        desk.gates[0].add_permits(1);
        soon("the close", closing).await.unwrap().unwrap();
    }
    assert_eq!(desk.answer::<Cashier>(builder()).await, ["paid 10"]);
    assert_eq!(desk.seen.all(), ["step", "by hand"], "each was carried out once");
}

#[tokio::test(start_paused = true)]
async fn tool_that_has_not_ended_at_the_deadline_of_a_close_is_in_doubt() {
    let desk = Desk::new();
    let builder = || desk.builder(desk.looped()).chat_agent(|_| Assistant);
    let closing = desk.close_within::<Assistant>(builder(), &["slow", "slower"]).await;
    desk.gates[0].add_permits(1);
    settled().await;
    assert!(!closing.is_finished(), "the other tool is under way");
    desk.clock.advance(Duration::from_secs(10));
    soon("the close", closing).await.unwrap().unwrap();

    let answer = desk.answer::<Assistant>(builder()).await;
    assert_eq!(answer[1], r#"tool-slow "output-available" "slow""#);
    assert!(answer[2].starts_with(r#"tool-slower "output-error" "The process ended while the tool ran"#), "{answer:?}");
    assert_eq!((desk.seen.count("slow"), answer.last().unwrap().as_str()), (2, "Done."), "each was called once");
}

/// Ends early in each of its hooks when the runtime closes, of which it learns by itself.
struct Watcher(Seen);

#[derive(Clone, Default)]
struct Seen {
    process: Arc<Mutex<Option<Forever>>>,
    notes: Notes,
}

impl Seen {
    /// Whether the work is whole.
    async fn work(&self, what: &str) -> bool {
        self.notes.note(what);
        let process = self.process.lock().unwrap().clone();
        if self.notes.count(what) == 1 {
            process.unwrap().closing().await;
            return false;
        }
        true
    }

    async fn open(&self, builder: Builder) -> Forever {
        let seen = self.clone();
        let forever = builder.chat_agent(move |_| Watcher(seen.clone())).open().await.unwrap();
        *self.process.lock().unwrap() = Some(forever.clone());
        forever
    }

    /// Closes the runtime within a hook.
    async fn close_within(&self, what: &str, forever: Forever) {
        eventually(what, async || self.notes.count(what) == 1).await;
        soon("the close", forever.close().into_future()).await.unwrap();
        *self.process.lock().unwrap() = None;
    }
}

impl Agent for Watcher {
    const CLASS: &'static str = "watcher";
    type State = ();

    async fn on_schedule(&self, _: &Due) -> Result<(), BoxError> {
        self.0.work("tea").await;
        Ok(())
    }

    async fn on_fiber_recovered(&self, _: &RecoveredFiber) -> Result<RecoveryAction, BoxError> {
        let whole = self.0.work("decides").await;
        Ok(if whole { RecoveryAction::complete(&7)? } else { RecoveryAction::fail("a part") })
    }
}

impl ChatAgent for Watcher {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        let whole = self.0.work("answers").await;
        turn.write(Chunk::text_start("t")).await?;
        turn.write(Chunk::text_delta("t", if whole { "whole" } else { "a part" })).await?;
        turn.write(Chunk::text_end("t")).await?;
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn hook_that_learns_of_the_close_by_itself_is_called_again() {
    let (desk, seen) = (Desk::new(), Seen::default());
    let builder = || desk.builder(desk.looped());
    let forever = seen.open(builder()).await;
    forever.agent::<Watcher>("a").schedule(Duration::from_secs(1), "tea", ()).await.unwrap();
    desk.clock.advance(Duration::from_secs(1));
    seen.close_within("tea", forever).await;

    let forever = seen.open(builder()).await;
    eventually("tea", async || seen.notes.count("tea") == 2).await;
    forever.agent::<Watcher>("a").save_messages([UiMessage::user("u", "go")]).id("r").await.unwrap();
    seen.close_within("answers", forever).await;

    let forever = seen.open(builder()).await;
    let agent = forever.agent::<Watcher>("a");
    let turn = agent.turn("r").await.unwrap().unwrap();
    assert!(soon("the turn", turn.wait()).await.unwrap().is_completed());
    assert!(agent.messages().await.unwrap().pop().unwrap().text().ends_with("whole"));
    let closure = forever.spawn_closure("shop", async |_| std::future::pending::<anyhow::Result<u64>>().await);
    closure.id("f").agent("watcher", "a").start().await.unwrap();
    soon("the close", forever.close().deadline(Duration::ZERO).into_future()).await.unwrap();
    *seen.process.lock().unwrap() = None;
    drop((agent, turn, forever));

    let forever = seen.open(builder()).await;
    seen.close_within("decides", forever).await;
    let forever = seen.open(builder()).await;
    assert_eq!(soon("the fiber", forever.find_fiber::<u64>("f").await.unwrap().wait()).await.unwrap(), 7);
    assert_eq!(["tea", "answers", "decides"].map(|what| seen.notes.count(what)), [2, 2, 2]);
}
