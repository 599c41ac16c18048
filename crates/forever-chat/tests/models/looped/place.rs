//! A database on the disk, an agent that runs the loop, and tools that count.
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forever_chat::message::{ToolState, UiMessage};
use forever_chat::model::{Anthropic, OpenAiCompatible, OpenAiResponses};
use forever_chat::{
    AgentLoop, ChatAgent, ChatBuilder, ChatHandle, ChatRecovery, ChatRecoveryOptions, Entry, RecoveryPolicy, Tool, Turn, TurnHandle,
};
use forever_runtime::agent::{Agent, AgentHandle};
use forever_runtime::testing::VirtualClock;
use forever_runtime::{BoxError, Durability, Forever};
use forever_testkit::waiting::{over_time, soon};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::watch;

use crate::support::server::Server;
use crate::support::{Provider, client};

/// Answers with the loop; its model may be silent for so many seconds, or as long as it likes.
pub(crate) struct Assistant<const STALL: u64> {
    recoveries: Arc<AtomicU32>,
}

impl<const STALL: u64> Agent for Assistant<STALL> {
    const CLASS: &'static str = "assistant";
    type State = ();
}

impl<const STALL: u64> ChatAgent for Assistant<STALL> {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        turn.run_agent_loop().await
    }

    async fn on_chat_recovery(&self, _: &ChatRecovery) -> Result<ChatRecoveryOptions, BoxError> {
        self.recoveries.fetch_add(1, Ordering::Relaxed);
        Ok(ChatRecoveryOptions::default())
    }

    fn client_error_text(&self, error: &BoxError) -> String {
        error.to_string()
    }

    fn recovery() -> RecoveryPolicy {
        let policy = RecoveryPolicy::default();
        if STALL == 0 { policy } else { policy.stall_timeout(Duration::from_secs(STALL)) }
    }
}

/// What outlives a process.
pub(crate) struct Place {
    folder: TempDir,
    pub(crate) clock: VirtualClock,
    ran: Arc<Mutex<BTreeMap<&'static str, u32>>>,
    recoveries: Arc<AtomicU32>,
    /// Tools end when this is there.
    pub(crate) tools_may_end: watch::Sender<bool>,
}

impl Place {
    pub(crate) fn new() -> Self {
        Place {
            folder: tempfile::tempdir().expect("a folder can be made"),
            clock: VirtualClock::new(),
            ran: Arc::default(),
            recoveries: Arc::default(),
            tools_may_end: watch::Sender::new(true),
        }
    }

    /// A process with an agent that asks this provider.
    pub(crate) async fn open<const STALL: u64>(&self, by: Provider, server: &Server) -> (Forever, AgentHandle<Assistant<STALL>>) {
        let looped = match by {
            Provider::Responses => {
                let extra = json!({ "include": ["reasoning.encrypted_content"] });
                AgentLoop::new(OpenAiResponses::new("m").base_url(server.url()).client(client()).extra(extra))
            }
            Provider::Completions => AgentLoop::new(OpenAiCompatible::new("m").base_url(server.url()).client(client())),
            Provider::Anthropic => AgentLoop::new(Anthropic::new("m").base_url(server.url()).client(client()).go_on("Go on.")),
        };
        let looped = looped.system("Be brief.").tool(self.tool("search")).tool(self.tool("now"));
        // What a power cut would do is not what is looked at here.
        let builder = Forever::builder().sqlite(self.folder.path().join("chat.db")).durability(Durability::Process);
        let builder = builder.clock(self.clock.clone()).turn_batching(1, Duration::ZERO);
        let recoveries = Arc::clone(&self.recoveries);
        let assistant = move |_| Assistant::<STALL> { recoveries: Arc::clone(&recoveries) };
        let forever = builder.agent_loop(looped).chat_agent(assistant).open().await.expect("it opens");
        let agent = forever.agent::<Assistant<STALL>>("a");
        (forever, agent)
    }

    fn tool(&self, name: &'static str) -> Tool {
        let (ran, may_end) = (Arc::clone(&self.ran), self.tools_may_end.subscribe());
        Tool::new(name, move |input, _| {
            *ran.lock().expect("nobody panics with it").entry(name).or_default() += 1;
            let mut may_end = may_end.clone();
            async move {
                may_end.wait_for(|may| *may).await?;
                Ok(json!({ "found": input }))
            }
        })
    }

    /// How often a tool has run.
    pub(crate) fn ran(&self, tool: &str) -> u32 {
        self.ran.lock().expect("nobody panics with it").get(tool).copied().unwrap_or_default()
    }

    /// How often a turn was taken up again.
    pub(crate) fn recoveries(&self) -> u32 {
        self.recoveries.load(Ordering::Relaxed)
    }

    /// The answer, when the turn has ended well.
    pub(crate) async fn answer<const STALL: u64>(&self, agent: &AgentHandle<Assistant<STALL>>) -> UiMessage {
        let turn = ask(agent).await;
        let end = if STALL == 0 {
            over_time("the end of the turn", turn.wait(), || self.clock.advance(Duration::from_secs(60))).await
        } else {
            soon("the end of the turn", turn.wait()).await
        };
        let end = end.expect("it ends");
        assert!(end.is_completed(), "{end:?}");
        agent.messages().await.expect("they are there").pop().expect("there is an answer")
    }
}

/// Asks, or finds the turn that was asked for.
pub(crate) async fn ask<const STALL: u64>(agent: &AgentHandle<Assistant<STALL>>) -> TurnHandle {
    agent.save_messages([UiMessage::user("u", "How high?")]).id("r").await.expect("it is accepted")
}

/// The chunks of a turn, as JSON.
pub(crate) async fn log(turn: &TurnHandle) -> Vec<String> {
    let chunk = |entry| if let Entry::Chunk(_, chunk) = entry { Some(chunk.json().to_owned()) } else { None };
    turn.entries().await.expect("they can be read").into_iter().filter_map(chunk).collect()
}

/// The calls of a message: tool, id and state.
pub(crate) fn calls(message: &UiMessage) -> Vec<(&str, &str, ToolState)> {
    message.parts.iter().filter_map(|part| Some((part.tool_name()?, part.tool_call_id()?, part.tool_state()?))).collect()
}
