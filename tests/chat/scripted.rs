//! An agent that answers what the body of its turn says, and a model that counts how often it is called.
use std::time::Duration;

use forever::agent::{Agent, AgentHandle};
use forever::chat::message::{Chunk, UiMessage};
use forever::chat::{ChatAgent, ChatRecovery, ChatRecoveryOptions, Entry, ErrorClass, RecoveryPolicy, Turn, TurnHandle};
use forever::prelude::*;
use forever::testing::World;
use forever::{BoxError, Builder, Forever};
use forever_testkit::notes::Notes;
use serde_json::{Value, json};

/// Says `n` words, `w0 w1 ..`, then does what `mode` says.
pub(crate) struct Scripted {
    pub(crate) seen: Notes,
}

impl Agent for Scripted {
    const CLASS: &'static str = "scripted";
    type State = ();
}

#[derive(Debug)]
pub(crate) struct Passing;

impl std::fmt::Display for Passing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the provider is overloaded")
    }
}

impl std::error::Error for Passing {}

impl ChatAgent for Scripted {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        self.seen.note(format!("called {}", turn.id()));
        let asked = turn.body().cloned().unwrap_or_default();
        let words = asked["n"].as_u64().unwrap_or(3);
        let delay = asked["delay"].as_u64().map(Duration::from_millis);
        let mode = asked["mode"].as_str().unwrap_or("ok");
        let said = turn.text().split_inclusive(' ').count() as u64;
        if mode == "nothing" {
            return Ok(());
        }
        // After an interruption: what is there is not said again, and a part that was left open is gone on with.
        let open = turn.message().await.parts.last().is_some_and(|part| part.get("state") == Some(&json!("streaming")));
        let speaks = said < words || open;
        if speaks {
            turn.write(Chunk::text_start("t1")).await?;
        }
        for word in said..words {
            if let Some(delay) = delay {
                tokio::time::sleep(delay).await;
            }
            turn.write(Chunk::text_delta("t1", format!("w{word} "))).await?;
        }
        match mode {
            "error" => {
                turn.write(Chunk::error("provider said no")).await?;
                return Ok(());
            }
            "throw" => return Err("a secret of the program".into()),
            "panic" => panic!("a panic of the program"),
            "hang" => std::future::pending().await,
            "passing" if self.seen.count("called") < 3 => return Err(Passing.into()),
            "always" => return Err(Passing.into()),
            "tool" => {
                if speaks {
                    turn.write(Chunk::text_end("t1")).await?;
                }
                // A model that is asked again gives its calls other ids.
                let call = format!("call{}", self.seen.count("called"));
                turn.write(Chunk::tool_input_start(&call, "getLocation")).await?;
                turn.write(Chunk::tool_input_available(&call, "getLocation", json!({ "a": 1 }))).await?;
            }
            _ if speaks => turn.write(Chunk::text_end("t1")).await?,
            _ => {}
        }
        turn.write(Chunk::finish()).await?;
        Ok(())
    }

    async fn on_chat_recovery(&self, recovery: &ChatRecovery) -> Result<ChatRecoveryOptions, BoxError> {
        self.seen.note(format!("recovers {} attempt {}", recovery.request_id(), recovery.attempt()));
        Ok(ChatRecoveryOptions::default())
    }

    fn recovery() -> RecoveryPolicy {
        RecoveryPolicy::default().retry_delay(Duration::from_millis(1)).max_attempts(3)
    }

    fn classify_error(&self, error: &BoxError) -> ErrorClass {
        if error.is::<Passing>() { ErrorClass::Transient(None) } else { ErrorClass::of(error) }
    }
}

pub(crate) fn scripted(seen: &Notes) -> Builder {
    let seen = seen.clone();
    Forever::builder().turn_batching(1, Duration::ZERO).chat_agent(move |_| Scripted { seen: seen.clone() })
}

/// The same in a world whose processes end; what was seen stays.
pub(crate) fn in_world(world: &World) -> Builder {
    scripted(&world.shared::<Notes>()).in_memory().clock(world.clock())
}

pub(crate) async fn ask(agent: &AgentHandle<Scripted>, id: &str, body: Value) -> TurnHandle {
    agent.save_messages([UiMessage::user(format!("u-{id}"), "hi")]).id(id).body(&body).await.unwrap()
}

/// A log as short text: `start text-start w0  w1  text-end finish` and the end.
pub(crate) async fn told(turn: &TurnHandle) -> String {
    let mut told = Vec::new();
    for entry in turn.entries().await.unwrap() {
        told.push(match entry {
            Entry::Chunk(_, chunk) => {
                let chunk = chunk.read().unwrap();
                chunk.get("delta").and_then(Value::as_str).map_or_else(|| chunk.kind().to_owned(), str::to_owned)
            }
            Entry::End(end) => match end.reason() {
                Some(reason) => format!("{}({reason})", end.state()),
                None => end.state().to_string(),
            },
            _ => unreachable!(),
        });
    }
    told.join("|")
}
