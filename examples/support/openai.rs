//! A model behind an OpenAI-compatible chat-completions endpoint: one streamed request is one turn.
use std::io::Write;

use anyhow::Context;
use async_openai::Client;
use async_openai::config::OpenAIConfig;
use async_openai::types::chat::{
    ChatCompletionMessageToolCall, ChatCompletionMessageToolCallChunk, ChatCompletionRequestAssistantMessage, ChatCompletionRequestMessage,
    ChatCompletionTools, CreateChatCompletionRequestArgs,
};
use futures_util::StreamExt;

/// A message of the transcript: the client's own type, which can be saved as it is.
pub(crate) type Message = ChatCompletionRequestMessage;
/// The model's answer in one turn: text, tool calls or both.
pub(crate) type Reply = ChatCompletionRequestAssistantMessage;
/// One tool call in a reply.
pub(crate) type ToolCall = ChatCompletionMessageToolCall;

/// Address of the model.
pub(crate) struct Endpoint {
    pub(crate) base_url: String,
    pub(crate) api_key: String,
    pub(crate) model: String,
    /// Whether it is on this machine, so that no proxy is used.
    pub(crate) local: bool,
}

impl Endpoint {
    /// The endpoint from `OPENAI_BASE_URL`, `OPENAI_API_KEY` and `OPENAI_MODEL`, if the environment
    /// has one.
    pub(crate) fn from_env() -> anyhow::Result<Option<Self>> {
        let var = |name: &'static str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let names = ["OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENAI_MODEL"];
        match names.map(var) {
            [None, None, None] => Ok(None),
            [Some(base_url), Some(api_key), Some(model)] => {
                let local = base_url.starts_with("http://127.0.0.1:");
                Ok(Some(Endpoint { base_url, api_key, model, local }))
            }
            values => {
                let (name, _) = names.iter().zip(&values).find(|(_, value)| value.is_none()).expect("one is missing");
                anyhow::bail!("`{name}` is not set: set all of {} for a real model, or none for the scripted one", names.join(", "))
            }
        }
    }
}

/// A client for one model.
pub(crate) struct Model {
    client: Client<OpenAIConfig>,
    name: String,
    tools: Vec<ChatCompletionTools>,
}

impl Model {
    /// A client that offers `tools` in each turn.
    pub(crate) fn new(endpoint: &Endpoint, tools: Vec<ChatCompletionTools>) -> anyhow::Result<Self> {
        // Fails if a provider is installed already, which will do.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder();
        let http = if endpoint.local { http.no_proxy() } else { http };
        let config = OpenAIConfig::new().with_api_base(&endpoint.base_url).with_api_key(&endpoint.api_key);
        let client = Client::with_config(config).with_http_client(http.build()?);
        Ok(Model { client, name: endpoint.model.clone(), tools })
    }

    /// Requests the next turn after `messages`, and prints its text as it arrives.
    pub(crate) async fn turn(&self, messages: &[Message]) -> anyhow::Result<Reply> {
        let mut request = CreateChatCompletionRequestArgs::default();
        let request = request.model(&self.name).messages(messages).tools(self.tools.clone()).build()?;
        let mut stream = self.client.chat().create_stream(request).await?;
        let (mut text, mut calls) = (String::new(), Vec::new());
        print!("  model: ");
        while let Some(chunk) = stream.next().await {
            let Some(choice) = chunk?.choices.into_iter().next() else { continue };
            if let Some(piece) = choice.delta.content {
                print!("{piece}");
                std::io::stdout().flush()?;
                text.push_str(&piece);
            }
            for piece in choice.delta.tool_calls.into_iter().flatten() {
                add(&mut calls, piece)?;
            }
        }
        println!();
        anyhow::ensure!(!text.is_empty() || !calls.is_empty(), "the model's answer is empty");
        Ok(Reply {
            content: (!text.is_empty()).then(|| text.into()),
            tool_calls: (!calls.is_empty()).then(|| calls.into_iter().map(Into::into).collect()),
            ..Reply::default()
        })
    }
}

/// Adds a piece of a streamed tool call to the calls so far. The first piece has id and name, and
/// all have text of the arguments.
fn add(calls: &mut Vec<ToolCall>, piece: ChatCompletionMessageToolCallChunk) -> anyhow::Result<()> {
    let index = piece.index as usize;
    anyhow::ensure!(index <= calls.len(), "tool call {index} follows {} others", calls.len());
    if index == calls.len() {
        calls.push(ToolCall { id: piece.id.context("a tool call has no id")?, ..ToolCall::default() });
    }
    if let Some(function) = piece.function {
        calls[index].function.name.push_str(&function.name.unwrap_or_default());
        calls[index].function.arguments.push_str(&function.arguments.unwrap_or_default());
    }
    Ok(())
}
