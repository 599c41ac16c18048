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
///
/// The module [`model`](crate::model) has a model of its own as an example. A wrapper delegates:
///
/// ```
/// use forever::chat::model::{ChatModel, ModelRequest, ModelStream};
///
/// /// Counts the requests to a model.
/// struct Counted<M>(M);
///
/// impl<M: ChatModel> ChatModel for Counted<M> {
///     fn answer(&self, request: ModelRequest) -> ModelStream {
///         println!("a request with {} messages", request.messages.len());
///         self.0.answer(request)
///     }
/// }
/// ```
pub trait ChatModel: Send + Sync + 'static {
    /// Requests an answer. The last item of the stream is either [`ModelEvent::Finished`] or an
    /// error; neither comes earlier.
    fn answer(&self, request: ModelRequest) -> ModelStream;
}

/// Request to a model.
///
/// ```
/// use forever::chat::message::UiMessage;
/// use forever::chat::model::{ChatModel, ModelEvent, ModelRequest};
/// use futures_util::StreamExt;
///
/// /// Asks a model directly, outside of a chat.
/// async fn title(model: &impl ChatModel, talk: UiMessage) -> Result<String, forever::BoxError> {
///     let system = Some("You answer with a title of three words.".to_owned());
///     let request = ModelRequest { system, messages: vec![talk], ..ModelRequest::default() };
///     let (mut answer, mut title) = (model.answer(request), String::new());
///     while let Some(event) = answer.next().await {
///         if let ModelEvent::Chunk(chunk) = event? {
///             title += chunk.get("delta").and_then(|delta| delta.as_str()).unwrap_or_default();
///         }
///     }
///     Ok(title)
/// }
/// ```
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
///
/// ```
/// use forever::chat::model::ToolSpec;
/// use serde_json::json;
///
/// let tool = ToolSpec {
///     name: "pick_a_seat".to_owned(),
///     description: "Lets the person choose a seat on the page.".to_owned(),
///     parameters: json!({ "type": "object", "properties": { "row": { "type": "integer" } } }),
/// };
/// # let _ = tool;
/// ```
///
/// A tool that a client runs is given to [`NewTurn::client_tools`](crate::NewTurn::client_tools).
/// One that runs in this process is a [`Tool`](crate::Tool).
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
///
/// ```
/// use forever::chat::message::Part;
/// use forever::chat::model::ModelRequest;
///
/// /// A model without memory is given what it has said, to be continued.
/// fn beginning(request: &ModelRequest) -> Option<String> {
///     let interrupted = request.interrupted.as_ref()?;
///     Some(interrupted.parts.iter().filter_map(Part::as_text).collect())
/// }
/// ```
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
///
/// ```
/// use forever::chat::model::ModelEvent;
///
/// fn describe(event: &ModelEvent) -> String {
///     match event {
///         ModelEvent::Response(id) => format!("the provider stores it as {id}"),
///         ModelEvent::Chunk(chunk) => chunk.to_text(),
///         ModelEvent::Waiting(limit) => format!("silent for up to {limit:?}"),
///         ModelEvent::Finished(end) => format!("{:?} output tokens", end.output_tokens),
///         _ => String::new(),
///     }
/// }
/// ```
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
///
/// ```
/// use forever::chat::model::{FinishReason, Finished, ModelEvent};
///
/// let mut end = Finished::because(FinishReason::Stop);
/// end.output_tokens = Some(12);
/// // The last item of a model's stream.
/// let event = ModelEvent::Finished(end);
/// # let _ = event;
/// ```
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
///
/// ```
/// use forever::chat::model::FinishReason;
///
/// /// The reason as a provider has it.
/// fn reason(text: &str) -> FinishReason {
///     match text {
///         "stop" => FinishReason::Stop,
///         "length" => FinishReason::Length,
///         "tool_calls" => FinishReason::ToolCalls,
///         "content_filter" => FinishReason::ContentFilter,
///         _ => FinishReason::Other,
///     }
/// }
/// ```
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
///
/// ```
/// use forever::chat::model::{ModelError, ModelErrorKind};
///
/// fn advice(error: &ModelError) -> &'static str {
///     match error.kind() {
///         kind if kind.is_transient() => "it is tried again",
///         ModelErrorKind::ContextOverflow => "the conversation has to be compacted",
///         ModelErrorKind::Denied => "look at the key",
///         _ => "look at the request",
///     }
/// }
/// ```
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
///
/// ```
/// use forever::chat::model::{ModelError, ModelErrorKind};
/// use std::time::Duration;
///
/// // What a model of the program's own gives for status 429 with `Retry-After: 20`.
/// let error = ModelError::new(ModelErrorKind::RateLimited, "too many requests");
/// let error = error.retry_after(Duration::from_secs(20));
/// assert!(error.kind().is_transient());
/// ```
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
