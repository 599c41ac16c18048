//! Models: the trait, and the events of an answer.
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use futures_core::Stream;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::message::{Chunk, Part, UiMessage};

/// The answer of a model, as a stream.
pub type ModelStream = Pin<Box<dyn Stream<Item = Result<ModelEvent, ModelError>> + Send>>;

/// A model that answers requests.
pub trait ChatModel: Send + Sync + 'static {
    /// Requests an answer. The last item of the stream is either [`ModelEvent::Finished`] or an
    /// error; neither comes earlier.
    fn answer(&self, request: ModelRequest) -> ModelStream;
}

/// Request to a model.
#[derive(Debug, Clone, Default)]
pub struct ModelRequest {
    /// System prompt.
    pub system: Option<String>,
    /// The conversation, oldest first.
    ///
    /// The answer follows the last message, which may be the start of the answer itself: an
    /// assistant message whose tool calls all have results.
    pub messages: Vec<UiMessage>,
    /// The tools that it may call.
    pub tools: Vec<ToolSpec>,
    /// An answer to this request that was cut off.
    pub interrupted: Option<Interrupted>,
}

/// A tool that a model may call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Name of the tool.
    pub name: String,
    /// What it does, for the model.
    #[serde(default)]
    pub description: String,
    /// JSON schema of its input.
    #[serde(default)]
    pub parameters: Value,
}

/// An answer that was cut off.
#[derive(Debug, Clone, Default)]
pub struct Interrupted {
    /// Id under which the provider may have stored it: the last [`ModelEvent::Response`].
    pub response: Option<String>,
    /// The answer so far: text and reasoning, and tool calls with complete input. The new chunks
    /// follow it. Adjacent text parts are one text: an earlier answer that was cut off was
    /// continued there.
    ///
    /// If it has calls, `response` is set as well. Then only the rest of that answer is wanted, if
    /// there is one. Chunks before a new [`ModelEvent::Response`] count as that rest.
    pub parts: Vec<Part>,
}

/// One event of an answer.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ModelEvent {
    /// The provider stores the answer under this id, and can be asked for it. Comes before the
    /// chunks of that answer.
    Response(String),
    /// A piece of the answer: text, reasoning, tool calls, sources, files; not the start or end of
    /// a message or step.
    Chunk(Chunk),
    /// No event may come for this long, without being stalled: the provider is asked for an answer
    /// that it has stored. Valid until the next event.
    Waiting(Duration),
    /// The answer is complete.
    Finished(Finished),
}

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Finished {
    /// Why the model stopped.
    pub reason: FinishReason,
    /// Number of input tokens, if the provider reports it.
    pub input_tokens: Option<u64>,
    /// Number of output tokens, if the provider reports it.
    pub output_tokens: Option<u64>,
}

impl Finished {
    /// An answer that ended for this reason.
    pub fn because(reason: FinishReason) -> Self {
        Finished { reason, ..Finished::default() }
    }
}

/// Why a model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FinishReason {
    /// It was done.
    #[default]
    Stop,
    /// It reached its maximum length.
    Length,
    /// It waits for tool calls.
    ToolCalls,
    /// Its content was filtered.
    ContentFilter,
    /// Something else.
    Other,
}

/// Kind of an error of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ModelErrorKind {
    /// The same request may succeed later: the connection was lost, or the provider is overloaded
    /// or down.
    Transient,
    /// The same request may succeed later, at a lower rate.
    RateLimited,
    /// The conversation is longer than the model can read.
    ContextOverflow,
    /// The provider has not accepted the credentials, or does not allow the request.
    Denied,
    /// The request is invalid; a retry would fail too.
    Invalid,
    /// The cause is unknown; it is not retried.
    Other,
}

impl ModelErrorKind {
    /// Whether the same request may succeed later.
    pub fn is_transient(self) -> bool {
        matches!(self, ModelErrorKind::Transient | ModelErrorKind::RateLimited)
    }
}

/// Error of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelError {
    kind: ModelErrorKind,
    message: String,
    retry_after: Option<Duration>,
}

impl ModelError {
    /// An error of a kind.
    pub fn new(kind: ModelErrorKind, message: impl Into<String>) -> Self {
        ModelError { kind, message: message.into(), retry_after: None }
    }

    /// Sets how long the provider asks to wait.
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Kind of the error.
    pub fn kind(&self) -> ModelErrorKind {
        self.kind
    }

    /// How long the provider asks to wait, if it says.
    pub fn wait(&self) -> Option<Duration> {
        self.retry_after
    }
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ModelError {}

/// Schema of a tool's input; providers require one even for tools without input.
#[cfg(feature = "__http")]
pub(super) fn tool_parameters(tool: &ToolSpec) -> Value {
    if tool.parameters.is_object() { tool.parameters.clone() } else { serde_json::json!({ "type": "object", "properties": {} }) }
}
