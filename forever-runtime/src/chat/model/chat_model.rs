//! Models: what answers, and what an answer is made of.
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use futures_core::Stream;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::chat::message::{Chunk, Part, UiMessage};

/// The answer of a model, as it comes.
pub type ModelStream = Pin<Box<dyn Stream<Item = Result<ModelEvent, ModelError>> + Send>>;

/// Something that answers.
pub trait ChatModel: Send + Sync + 'static {
    /// Asks for an answer. The stream gives [`ModelEvent::Finished`] exactly once, last, or an error, last.
    fn answer(&self, request: ModelRequest) -> ModelStream;
}

/// What a model is asked.
#[derive(Debug, Clone, Default)]
pub struct ModelRequest {
    /// What it is told beforehand.
    pub system: Option<String>,
    /// The conversation, oldest first. The answer follows the last of them, which may be the beginning of the answer itself: an assistant
    /// message whose tool calls all have results.
    pub messages: Vec<UiMessage>,
    /// What it may call.
    pub tools: Vec<ToolSpec>,
    /// An answer to this request that was cut off.
    pub interrupted: Option<Interrupted>,
}

/// A tool that a model may call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// What it is called.
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
    /// Under which id the provider may have stored it: the last [`ModelEvent::Response`].
    pub response: Option<String>,
    /// What had come of it: text and reasoning, and tool calls whose input had come whole. What follows is added to it. Text that is in two parts, one
    /// behind the other, is one text: an answer that was cut off before went on in it.
    ///
    /// With calls there has to be a `response` as well: then the rest of that answer is wanted if there is one, and no other. What comes before a new
    /// [`ModelEvent::Response`] is taken for that rest.
    pub parts: Vec<Part>,
}

/// One event of an answer.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ModelEvent {
    /// The provider keeps the answer under this id, and can be asked for it. Comes before what it is the id of.
    Response(String),
    /// A piece of the answer: text, reasoning, tool calls, sources, files; not the beginning or end of a message or step.
    Chunk(Chunk),
    /// Nothing may come for so long, which is no stall: the provider is asked for an answer that it keeps. Holds until the next event.
    Waiting(Duration),
    /// The answer is whole.
    Finished(Finished),
}

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Finished {
    /// Why the model stopped.
    pub reason: FinishReason,
    /// Tokens that were read, if the provider says.
    pub input_tokens: Option<u64>,
    /// Tokens that were written, if the provider says.
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
    /// It had said everything.
    #[default]
    Stop,
    /// It was not allowed to say more.
    Length,
    /// It wants tools to be called.
    ToolCalls,
    /// What it would have said was held back.
    ContentFilter,
    /// Something else.
    Other,
}

/// What kind of thing went wrong with a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ModelErrorKind {
    /// The same request may succeed later: the connection was lost, the provider is overloaded or down.
    Transient,
    /// So may it, when fewer requests are made.
    RateLimited,
    /// The conversation is longer than the model can read.
    ContextOverflow,
    /// The provider does not know who asks, or does not let them.
    Denied,
    /// The request is wrong, and will be wrong again.
    Invalid,
    /// Nobody knows; it is not tried again.
    Other,
}

impl ModelErrorKind {
    /// Whether the same request may succeed later.
    pub fn is_transient(self) -> bool {
        matches!(self, ModelErrorKind::Transient | ModelErrorKind::RateLimited)
    }
}

/// Why a model has not answered.
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

    /// The provider has said how long to wait.
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// What kind of thing went wrong.
    pub fn kind(&self) -> ModelErrorKind {
        self.kind
    }

    /// How long the provider says to wait.
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

/// The schema of a tool's input; the providers want one even where there is none.
#[cfg(feature = "__http")]
pub(super) fn tool_parameters(tool: &ToolSpec) -> Value {
    if tool.parameters.is_object() { tool.parameters.clone() } else { serde_json::json!({ "type": "object", "properties": {} }) }
}
