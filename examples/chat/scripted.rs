//! Answers for `tests/web` (`--script words`): numbered words, with which the sessions in
//! `tests/web/recorded` were recorded.
//!
//! The body of a request says how many (`n`), how fast (`delay`, ms), and in which `mode`: `ok`,
//! `error` (in the stream), `throw` (of the program), `tool` (of the page), `approval`.
use std::time::Duration;

use forever::BoxError;
use forever::agent::{Agent, AgentHandle};
use forever::chat::message::{Chunk, Part, ToolState};
use forever::chat::{ChatAgent, RecoveryPolicy, Turn};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Chat agent that answers by a script.
pub(crate) struct Scripted {
    pub(crate) me: AgentHandle<Scripted>,
}

#[derive(Serialize, Deserialize, Default)]
pub(crate) struct Shared {
    hello: String,
}

impl Agent for Scripted {
    const CLASS: &'static str = "ChatAgent";
    type State = Shared;

    async fn on_start(&self) -> Result<(), BoxError> {
        if self.me.state().await?.hello.is_empty() {
            self.me.set_state(&Shared { hello: "state".to_owned() }).await?;
        }
        Ok(())
    }
}

impl ChatAgent for Scripted {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        let body = turn.body().cloned().unwrap_or_default();
        let (words, delay) = (body["n"].as_u64().unwrap_or(1), body["delay"].as_u64().unwrap_or(10));
        let mode = body["mode"].as_str().unwrap_or("ok");
        // The words of an interrupted attempt are not repeated.
        let said = turn.text().split_inclusive(' ').count() as u64;
        turn.write(Chunk::start()).await?;
        turn.write(Chunk::text_start("t1")).await?;
        for word in said..words {
            turn.write(Chunk::text_delta("t1", format!("w{word} "))).await?;
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        for call in approved(turn).await {
            turn.write(Chunk::tool_output_available(call, json!({ "paid": true }))).await?;
        }
        match mode {
            "error" => {
                turn.write(Chunk::error("provider said no")).await?;
                return Ok(());
            }
            "throw" => return Err("boom".into()),
            _ => turn.write(Chunk::text_end("t1")).await?,
        }
        match mode {
            "tool" if !turn.is_continuation() => {
                turn.write(Chunk::tool_input_start("call1", "getLocation")).await?;
                turn.write(Chunk::tool_input_available("call1", "getLocation", json!({ "a": 1 }))).await?;
            }
            "approval" if !turn.is_continuation() => {
                turn.write(Chunk::tool_input_start("call2", "pay")).await?;
                turn.write(Chunk::tool_input_available("call2", "pay", json!({ "amt": 5 }))).await?;
                turn.write(Chunk::tool_approval_request("call2", "ap1")).await?;
            }
            _ => {}
        }
        turn.write(Chunk::finish()).await?;
        Ok(())
    }

    fn recovery() -> RecoveryPolicy {
        // The default would give up: this program is made to be killed.
        RecoveryPolicy::default().max_deaths(1000)
    }

    fn client_error_text(&self, error: &BoxError) -> String {
        error.to_string()
    }
}

/// The calls of the answer that a person has approved, and that have no result yet.
async fn approved(turn: &Turn) -> Vec<String> {
    let message = turn.message().await;
    let yes = |part: &&Part| {
        let answered = part.tool_state() == Some(ToolState::ApprovalResponded);
        answered && part.get("approval").is_some_and(|approval| approval["approved"] == Value::Bool(true))
    };
    message.parts.iter().filter(yes).filter_map(|part| part.tool_call_id()).map(str::to_owned).collect()
}
