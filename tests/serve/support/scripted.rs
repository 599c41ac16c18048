//! An agent that does what the body of its turn says, and stands still at gates until the test opens them.
use forever::BoxError;
use forever::agent::Agent;
use forever::chat::message::{Chunk, ToolState};
use forever::chat::{ChatAgent, ChatRecovery, ChatRecoveryOptions, RecoveryPolicy, Turn};
use forever_testkit::gates::Gates;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Does what the `script` in its turn's body says, and what `then` says when a call of the answer is settled.
pub(crate) struct Scripted {
    pub(crate) gates: Gates,
}

#[derive(Serialize, Deserialize, Default, Debug, Clone, PartialEq)]
pub(crate) struct Shared {
    pub(crate) count: u64,
    #[serde(default)]
    pub(crate) note: String,
}

impl Agent for Scripted {
    const CLASS: &'static str = "ChatAgent";
    type State = Shared;
}

impl ChatAgent for Scripted {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        let body = turn.body().cloned().unwrap_or_default();
        let settled = turn.message().await.parts.iter().any(|part| part.tool_state().is_some_and(ToolState::is_settled));
        let script = if settled { &body["then"] } else { &body["script"] };
        let steps = script.as_array().cloned().unwrap_or_else(|| vec![json!({ "say": "w0 " }), json!({ "say": "w1 " })]);
        let done = turn.stashed::<usize>()?.unwrap_or(0);
        let mut speaking = false;
        for (n, step) in steps.iter().enumerate().skip(done) {
            let Some((what, with)) = step.as_object().and_then(|step| step.iter().next()) else { continue };
            let text = with.as_str().unwrap_or_default();
            if matches!(what.as_str(), "say" | "many") != speaking && what != "wait" {
                speaking = !speaking;
                turn.write(if speaking { Chunk::text_start("t") } else { Chunk::text_end("t") }).await?;
            }
            match what.as_str() {
                "say" => turn.write(Chunk::text_delta("t", text)).await?,
                // So many pieces of so many spaces, each with its number.
                "many" => {
                    let (pieces, bytes) = (with[0].as_u64().unwrap_or(0), usize::try_from(with[1].as_u64().unwrap_or(0))?);
                    for piece in 0..pieces {
                        turn.write(Chunk::text_delta("t", format!("{}{piece} ", " ".repeat(bytes)))).await?;
                    }
                }
                "wait" => {
                    turn.flush().await?;
                    turn.stash(&n).await?;
                    self.gates.pass(text).await;
                }
                "tool" | "approval" => {
                    turn.write(Chunk::tool_input_start(text, "look")).await?;
                    turn.write(Chunk::tool_input_available(text, "look", json!({ "at": 1 }))).await?;
                    if what == "approval" {
                        turn.write(Chunk::tool_approval_request(text, format!("of-{text}"))).await?;
                    }
                }
                // A tool that is not the client's.
                "work" => turn.write(Chunk::tool_input_available(text, "work", json!({}))).await?,
                "error" => return Ok(turn.write(Chunk::error(text)).await?),
                "throw" => return Err(text.into()),
                "panic" => panic!("{text}"),
                _ => {}
            }
        }
        if speaking {
            turn.write(Chunk::text_end("t")).await?;
        }
        if !steps.is_empty() {
            turn.write(Chunk::finish()).await?;
        }
        Ok(())
    }

    /// Stands at the gate `recovery`, if the turn asks for that.
    async fn on_chat_recovery(&self, recovery: &ChatRecovery) -> Result<ChatRecoveryOptions, BoxError> {
        if recovery.last_body().is_some_and(|body| body["recovers"] == "late") {
            self.gates.pass("recovery").await;
        }
        Ok(ChatRecoveryOptions::default())
    }

    fn recovery() -> RecoveryPolicy {
        RecoveryPolicy::default().max_deaths(1000)
    }

    fn client_error_text(&self, error: &BoxError) -> String {
        if error.to_string().contains("kitchen") { "The kitchen is closed.".to_owned() } else { "An error occurred.".to_owned() }
    }
}

/// A body that has its words said one by one.
pub(crate) fn says(words: &[&str]) -> Value {
    json!({ "script": words.iter().map(|word| json!({ "say": word })).collect::<Vec<_>>() })
}
