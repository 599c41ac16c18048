//! An agent with an agent loop, tools that run here, and a model that does what the user says.
use std::sync::{Arc, Mutex};

use forever::agent::{Agent, AgentHandle};
use forever::chat::message::{Part, Role, UiMessage};
use forever::chat::model::{FinishReason, ModelRequest};
use forever::chat::{AgentLoop, ChatAgent, Tool, Turn};
use forever::prelude::*;
use forever::serve::Server;
use forever::{BoxError, Forever};
use forever_testkit::gates::Gates;
use forever_testkit::models::{ScriptedModel, ends, text, whole_call};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::client::Client;
use super::{soon, until};

/// What the tools were run with, and what the model was asked.
#[derive(Clone, Default)]
pub(crate) struct Books {
    paid: Arc<Mutex<Vec<Value>>>,
    made: Arc<Mutex<Vec<(String, Value)>>>,
    asked: Arc<Mutex<Vec<ModelRequest>>>,
}

impl Books {
    pub(crate) fn paid(&self) -> Vec<Value> {
        self.paid.lock().unwrap().clone()
    }

    /// The calls that the model has made, with their ids.
    pub(crate) fn made(&self) -> Vec<(String, Value)> {
        self.made.lock().unwrap().clone()
    }

    /// Everything that the model has read so far, as text.
    pub(crate) fn read(&self) -> String {
        let asked = self.asked.lock().unwrap();
        asked.iter().map(|request| serde_json::to_string(&request.messages).unwrap()).collect()
    }

    /// The tools that the model was offered last.
    pub(crate) fn offered(&self) -> Vec<String> {
        self.asked.lock().unwrap().last().map(|last| last.tools.iter().map(|tool| tool.name.clone()).collect()).unwrap_or_default()
    }
}

/// Calls `pay`, `slow` or `locate` when the user says so, and has nothing more to say after that.
fn teller(books: Books) -> ScriptedModel {
    ScriptedModel::new(move |_, request| {
        let wanted = request.messages.iter().rev().find(|message| message.role == Role::User).map(UiMessage::text).unwrap_or_default();
        let mut after = request.messages.iter().rev().take_while(|message| message.role != Role::User);
        let called = after.any(|message| message.parts.iter().any(Part::is_tool));
        books.asked.lock().unwrap().push(request.clone());
        let words: Vec<&str> = wanted.split(' ').collect();
        let said = match words[..] {
            [tool @ ("pay" | "slow" | "locate"), cents, ..] if !called => {
                let input = json!({ "cents": cents.parse::<u64>().unwrap_or(0) });
                let id = format!("call-{tool}-{cents}");
                books.made.lock().unwrap().push((id.clone(), input.clone()));
                whole_call(&id, tool, input)
            }
            _ => text(&["noted"]),
        };
        [said, ends(FinishReason::Stop)].concat()
    })
}

pub(crate) struct Banker;

impl Agent for Banker {
    const CLASS: &'static str = "ChatAgent";
    type State = ();
}

impl ChatAgent for Banker {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        turn.run_agent_loop().await
    }
}

/// A bank that is served.
pub(crate) struct Bank {
    pub(crate) books: Books,
    pub(crate) gates: Gates,
    pub(crate) forever: Forever,
    pub(crate) address: std::net::SocketAddr,
    serving: JoinHandle<forever::Result<()>>,
}

impl Bank {
    pub(crate) async fn open() -> Self {
        Self::open_with(|server| server).await
    }

    pub(crate) async fn open_with(with: impl FnOnce(Server) -> Server) -> Self {
        super::panics::watch();
        let (books, gates) = (Books::default(), Gates::new());
        let paid = |books: &Books| {
            let paid = Arc::clone(&books.paid);
            move |input: Value, _| {
                paid.lock().unwrap().push(input);
                async { Ok(json!("paid")) }
            }
        };
        let (of_slow, at_gate) = (Arc::clone(&books.paid), gates.clone());
        let slow = Tool::new("slow", move |input, _| {
            let (paid, gates) = (Arc::clone(&of_slow), at_gate.clone());
            async move {
                gates.pass("slow").await;
                paid.lock().unwrap().push(input);
                Ok(json!("paid"))
            }
        });
        let pay = Tool::new("pay", paid(&books)).needs_approval(|_| true);
        let answers = AgentLoop::new(teller(books.clone())).tool(pay).tool(slow);
        let forever = Forever::builder().in_memory().agent_loop(answers).chat_agent(|_| Banker).open().await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(with(Server::new(&forever)).listen(listener));
        Bank { books, gates, forever, address, serving }
    }

    pub(crate) fn agent(&self) -> AgentHandle<Banker> {
        self.forever.agent("ada")
    }

    pub(crate) async fn client(&self) -> Client {
        let mut client = Client::connect(self.address, "ada").await;
        client.settled().await;
        client
    }

    /// The conversation, as JSON.
    pub(crate) async fn messages(&self) -> Value {
        serde_json::to_value(self.agent().messages().await.unwrap()).unwrap()
    }

    /// Nothing is under way any more.
    pub(crate) async fn quiet(&self) {
        self.quiet_at("ada").await;
    }

    pub(crate) async fn quiet_at(&self, agent: &str) {
        let agent = self.forever.agent::<Banker>(agent);
        let open = [forever::chat::TurnState::Queued, forever::chat::TurnState::Running];
        until("turns end", async || agent.turns(&open).await.unwrap().is_empty()).await;
    }

    pub(crate) async fn close(self) {
        soon("the runtime closes", async { self.forever.close().await }).await.unwrap();
        soon("`listen` returns", self.serving).await.unwrap().unwrap();
        super::panics::none("at the end");
    }
}
