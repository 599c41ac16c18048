//! `Chunk`: one event of the stream that a message is built from.
use forever_runtime::{Error, ErrorKind, Result};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};

/// Maximum length of a stored chunk, in bytes of JSON: 4 MiB. Longer text, reasoning and tool input
/// is split; any other chunk is refused.
pub const MAX_CHUNK: usize = 4 << 20;

/// One event of a stream: the AI SDK's `UIMessageChunk`.
///
/// ```
/// use forever::chat::message::Chunk;
/// use serde_json::json;
///
/// # fn main() -> forever::Result<()> {
/// let chunk = Chunk::text_delta("t", "At seven.");
/// assert_eq!(chunk.kind(), "text-delta");
/// assert_eq!(chunk.get("delta"), Some(&json!("At seven.")));
///
/// // A chunk of the program's own, for its page.
/// let mut seats = Chunk::data("seats", None, json!({ "free": 4 }));
/// seats.set("transient", true);
/// assert_eq!(Chunk::parse(&seats.to_text())?.kind(), "data-seats");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Chunk(pub(super) Map<String, Value>);

impl Chunk {
    /// A chunk of any kind, from its JSON.
    ///
    /// # Errors
    /// Of kind [`Value`](ErrorKind::Value) if it is no object with a `type`.
    pub fn from_json(json: Value) -> Result<Self> {
        match json {
            Value::Object(fields) if fields.get("type").is_some_and(Value::is_string) => Ok(Chunk(fields)),
            _ => Err(Error::new(ErrorKind::Value, "a chunk of a message is a JSON object with a `type`")),
        }
    }

    /// A chunk of any kind, from its JSON text.
    ///
    /// # Errors
    /// Of kind [`Value`](ErrorKind::Value) if it is not JSON, or no object with a `type`.
    pub fn parse(text: &str) -> Result<Self> {
        let json =
            serde_json::from_str(text).map_err(|why| Error::new(ErrorKind::Value, "a chunk of a message is not JSON").with_source(why))?;
        Chunk::from_json(json)
    }

    fn of(json: Value) -> Self {
        match json {
            Value::Object(fields) => Chunk(fields),
            _ => Chunk(Map::new()),
        }
    }

    fn with(mut self, field: &str, value: Value) -> Self {
        self.0.insert(field.to_owned(), value);
        self
    }

    /// Begins a message; the runtime sets its id.
    pub fn start() -> Self {
        Chunk::of(json!({ "type": "start" }))
    }

    /// Ends a message, or a continuation of one.
    pub fn finish() -> Self {
        Chunk::of(json!({ "type": "finish" }))
    }

    /// Begins a step: one call of the model.
    pub fn start_step() -> Self {
        Chunk::of(json!({ "type": "start-step" }))
    }

    /// Ends a step.
    pub fn finish_step() -> Self {
        Chunk::of(json!({ "type": "finish-step" }))
    }

    /// Begins a text part, known by `id` until it ends.
    pub fn text_start(id: impl Into<String>) -> Self {
        Chunk::of(json!({ "type": "text-start", "id": id.into() }))
    }

    /// Appends to a text part.
    pub fn text_delta(id: impl Into<String>, delta: impl Into<String>) -> Self {
        Chunk::of(json!({ "type": "text-delta", "id": id.into(), "delta": delta.into() }))
    }

    /// Ends a text part.
    pub fn text_end(id: impl Into<String>) -> Self {
        Chunk::of(json!({ "type": "text-end", "id": id.into() }))
    }

    /// Begins a reasoning part.
    pub fn reasoning_start(id: impl Into<String>) -> Self {
        Chunk::of(json!({ "type": "reasoning-start", "id": id.into() }))
    }

    /// Appends to a reasoning part.
    pub fn reasoning_delta(id: impl Into<String>, delta: impl Into<String>) -> Self {
        Chunk::of(json!({ "type": "reasoning-delta", "id": id.into(), "delta": delta.into() }))
    }

    /// Ends a reasoning part.
    pub fn reasoning_end(id: impl Into<String>) -> Self {
        Chunk::of(json!({ "type": "reasoning-end", "id": id.into() }))
    }

    /// Begins the input of a tool call.
    pub fn tool_input_start(call: impl Into<String>, tool: impl Into<String>) -> Self {
        Chunk::of(json!({ "type": "tool-input-start", "toolCallId": call.into(), "toolName": tool.into() }))
    }

    /// Appends to the input of a tool call: a piece of JSON text.
    pub fn tool_input_delta(call: impl Into<String>, delta: impl Into<String>) -> Self {
        Chunk::of(json!({ "type": "tool-input-delta", "toolCallId": call.into(), "inputTextDelta": delta.into() }))
    }

    /// Sets the complete input of a tool call.
    pub fn tool_input_available(call: impl Into<String>, tool: impl Into<String>, input: Value) -> Self {
        Chunk::of(json!({ "type": "tool-input-available", "toolCallId": call.into(), "toolName": tool.into() })).with("input", input)
    }

    /// Asks a person to approve a tool call.
    pub fn tool_approval_request(call: impl Into<String>, approval: impl Into<String>) -> Self {
        Chunk::of(json!({ "type": "tool-approval-request", "toolCallId": call.into(), "approvalId": approval.into() }))
    }

    /// Sets the result of a tool call.
    pub fn tool_output_available(call: impl Into<String>, output: Value) -> Self {
        Chunk::of(json!({ "type": "tool-output-available", "toolCallId": call.into() })).with("output", output)
    }

    /// Sets the error of a tool call.
    pub fn tool_output_error(call: impl Into<String>, error: impl Into<String>) -> Self {
        Chunk::of(json!({ "type": "tool-output-error", "toolCallId": call.into(), "errorText": error.into() }))
    }

    /// Records that a person refused a tool call.
    pub fn tool_output_denied(call: impl Into<String>) -> Self {
        Chunk::of(json!({ "type": "tool-output-denied", "toolCallId": call.into() }))
    }

    /// Data of the program, as a part `data-{name}`; with an id, it replaces the last one with the
    /// same id.
    pub fn data(name: &str, id: Option<&str>, data: Value) -> Self {
        let chunk = Chunk::of(json!({ "type": format!("data-{name}") })).with("data", data);
        match id {
            Some(id) => chunk.with("id", id.into()),
            None => chunk,
        }
    }

    /// Data that is merged into the message's metadata.
    pub fn metadata(metadata: Value) -> Self {
        Chunk::of(json!({ "type": "message-metadata" })).with("messageMetadata", metadata)
    }

    /// Ends the stream with an error.
    pub fn error(text: impl Into<String>) -> Self {
        Chunk::of(json!({ "type": "error", "errorText": text.into() }))
    }

    /// The `type` of the chunk.
    pub fn kind(&self) -> &str {
        self.str("type").unwrap_or_default()
    }

    /// A field of the chunk.
    pub fn get(&self, field: &str) -> Option<&Value> {
        self.0.get(field)
    }

    /// Sets a field.
    pub fn set(&mut self, field: impl Into<String>, value: impl Into<Value>) {
        self.0.insert(field.into(), value.into());
    }

    /// Removes a field.
    pub fn remove(&mut self, field: &str) -> Option<Value> {
        self.0.remove(field)
    }

    /// The chunk as JSON text, in one line.
    pub fn to_text(&self) -> String {
        // A map of JSON values with text keys can always be written.
        serde_json::to_string(&self.0).unwrap_or_default()
    }

    pub(super) fn str(&self, field: &str) -> Option<&str> {
        self.0.get(field)?.as_str()
    }
}

impl<'de> Deserialize<'de> for Chunk {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Chunk::from_json(Value::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}
