//! Answers of a model: Anthropic's, OpenAI's, or any that speaks chat completions, chosen by the
//! environment.
use std::env;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use forever::BoxError;
use forever::agent::Agent;
use forever::chat::model::{Anthropic, OpenAiCompatible};
use forever::chat::{AgentLoop, ChatAgent, RecoveryPolicy, Tool, Turn, UnknownCall};
use forever::ops::Op;
use serde_json::{Value, json};

use crate::survival;

/// Chat agent that answers with the loop of model and tools.
pub(crate) struct Modelled;

impl Agent for Modelled {
    const CLASS: &'static str = "ChatAgent";
    type State = Value;
}

impl ChatAgent for Modelled {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        survival::visible(turn, turn.run_agent_loop()).await
    }

    fn recovery() -> RecoveryPolicy {
        // The default would give up: this program is made to be killed.
        RecoveryPolicy::default().max_deaths(1000)
    }

    fn client_error_text(&self, error: &BoxError) -> String {
        // The person in the chat is the one who runs the example.
        error.to_string()
    }
}

/// The model that the environment names, with its name and two tools; `None` if it names none.
pub(crate) fn from_env() -> anyhow::Result<Option<(String, AgentLoop)>> {
    let name = env::var("ANTHROPIC_MODEL").or_else(|_| env::var("OPENAI_MODEL")).unwrap_or_default();
    let answers = if let Ok(model) = env::var("ANTHROPIC_MODEL") {
        let key = env::var("ANTHROPIC_API_KEY").context("ANTHROPIC_API_KEY is not set")?;
        let model = Anthropic::new(model).api_key(&key);
        AgentLoop::new(match env::var("ANTHROPIC_BASE_URL") {
            Ok(url) => model.base_url(url),
            Err(_) => model,
        })
    } else if let Ok(model) = env::var("OPENAI_MODEL") {
        let mut model = OpenAiCompatible::new(model);
        // A server on the same machine needs no key.
        if let Ok(key) = env::var("OPENAI_API_KEY") {
            model = model.api_key(&key);
        }
        if let Ok(url) = env::var("OPENAI_BASE_URL") {
            model = model.base_url(url);
        }
        AgentLoop::new(model)
    } else {
        return Ok(None);
    };
    let answers = answers.system("You are brief. Before anything is paid, call `pay`: the person is asked by it.").tool(time()).tool(pay());
    Ok(Some((name, answers)))
}

/// Only reads, so it may be called again.
#[expect(clippy::disallowed_methods, reason = "people ask for the time that it is, and not for the one that fibers have")]
fn time() -> Tool {
    Tool::new("time", |_: Value, _| async {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_err(BoxError::from)?;
        Ok(json!({ "secondsSince1970": since.as_secs() }))
    })
    .description("What time it is.")
    .parameters(json!({ "type": "object", "properties": {} }))
    .on_unknown(UnknownCall::Retry)
}

/// Must not be called twice, and needs the person's approval.
fn pay() -> Tool {
    Tool::new("pay", |input: Value, op: Op| async move { Ok(json!({ "paid": input["cents"], "receipt": op.id() })) })
        .description("Pays a person.")
        .parameters(json!({
            "type": "object",
            "properties": { "to": { "type": "string" }, "cents": { "type": "integer" } },
            "required": ["to", "cents"],
        }))
        .needs_approval(|_| true)
}
