//! `Part`: one piece of a message.
use forever_runtime::store::InteractionKind;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};

/// One piece of a message: text, reasoning, a tool call, a file, a source, data of the program, or
/// the start of a step.
///
/// ```
/// use forever::chat::message::{Part, UiMessage};
///
/// /// The pictures that a person has sent.
/// fn pictures(message: &UiMessage) -> Vec<&str> {
///     let files = message.parts.iter().filter(|part| part.kind() == "file");
///     files.filter_map(|part| part.get("url")?.as_str()).collect()
/// }
///
/// let mut message = UiMessage::user("u1", "What is this?");
/// let file = serde_json::json!({ "type": "file", "mediaType": "image/png", "url": "/cat.png" });
/// message.parts.extend(Part::from_json(file));
/// assert_eq!(pictures(&message), ["/cat.png"]);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Part(pub(super) Map<String, Value>);

/// State of a tool call: the `state` of a tool part.
///
/// ```
/// use forever::chat::message::{Part, ToolState};
///
/// fn describe(part: &Part) -> Option<String> {
///     let tool = part.tool_name()?;
///     Some(match part.tool_state()? {
///         ToolState::ApprovalRequested => format!("may `{tool}` run?"),
///         ToolState::OutputAvailable => format!("`{tool}` gave {}", part.get("output")?),
///         state if state.is_settled() => format!("`{tool}` has failed"),
///         _ => format!("`{tool}` runs"),
///     })
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ToolState {
    /// The model is writing its input.
    InputStreaming,
    /// Its input is complete; it may be running.
    InputAvailable,
    /// A person is asked for approval.
    ApprovalRequested,
    /// The person has approved or refused it.
    ApprovalResponded,
    /// It has a result.
    OutputAvailable,
    /// It has failed.
    OutputError,
    /// The person has refused.
    OutputDenied,
}

impl ToolState {
    const ALL: [ToolState; 7] = [
        ToolState::InputStreaming,
        ToolState::InputAvailable,
        ToolState::ApprovalRequested,
        ToolState::ApprovalResponded,
        ToolState::OutputAvailable,
        ToolState::OutputError,
        ToolState::OutputDenied,
    ];

    /// The value in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            ToolState::InputStreaming => "input-streaming",
            ToolState::InputAvailable => "input-available",
            ToolState::ApprovalRequested => "approval-requested",
            ToolState::ApprovalResponded => "approval-responded",
            ToolState::OutputAvailable => "output-available",
            ToolState::OutputError => "output-error",
            ToolState::OutputDenied => "output-denied",
        }
    }

    /// Whether the call has ended: it has a result, an error or a refusal.
    pub fn is_settled(self) -> bool {
        matches!(self, ToolState::OutputAvailable | ToolState::OutputError | ToolState::OutputDenied)
    }
}

impl Part {
    /// A complete text part.
    pub fn text(text: impl Into<String>) -> Self {
        Part::of(json!({ "type": "text", "text": text.into() }))
    }

    /// A part of any kind, from its JSON; `None` if it is no object with a `type`.
    pub fn from_json(json: Value) -> Option<Self> {
        match json {
            Value::Object(fields) if fields.get("type").is_some_and(Value::is_string) => Some(Part(fields)),
            _ => None,
        }
    }

    pub(super) fn of(json: Value) -> Self {
        match json {
            Value::Object(fields) => Part(fields),
            _ => Part(Map::new()),
        }
    }

    /// The `type` of the part.
    pub fn kind(&self) -> &str {
        self.str("type").unwrap_or_default()
    }

    /// The text, if it is a text part.
    pub fn as_text(&self) -> Option<&str> {
        if self.kind() == "text" { self.str("text") } else { None }
    }

    /// The text, if it is a reasoning part.
    pub fn as_reasoning(&self) -> Option<&str> {
        if self.kind() == "reasoning" { self.str("text") } else { None }
    }

    /// Whether it is a tool call.
    pub fn is_tool(&self) -> bool {
        let kind = self.kind();
        kind == "dynamic-tool" || kind.starts_with("tool-")
    }

    /// Name of the tool, if it is a tool call.
    pub fn tool_name(&self) -> Option<&str> {
        match self.kind() {
            "dynamic-tool" => self.str("toolName"),
            kind => kind.strip_prefix("tool-"),
        }
    }

    /// Id of the call, if it is a tool call.
    pub fn tool_call_id(&self) -> Option<&str> {
        if self.is_tool() { self.str("toolCallId") } else { None }
    }

    /// State of the call; `None` for other parts, and for an unknown state.
    pub fn tool_state(&self) -> Option<ToolState> {
        let state = if self.is_tool() { self.str("state")? } else { return None };
        ToolState::ALL.into_iter().find(|s| s.as_str() == state)
    }

    /// The kind of interaction that a tool call of an assistant's message waits for, if any.
    pub fn interaction(&self) -> Option<InteractionKind> {
        InteractionKind::of(&self.0)
    }

    /// A field of the part.
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

    pub(super) fn str(&self, field: &str) -> Option<&str> {
        self.0.get(field)?.as_str()
    }

    /// Sets or removes a field.
    pub(super) fn put(&mut self, field: &str, value: Option<Value>) {
        match value {
            Some(value) => self.set(field, value),
            None => drop(self.remove(field)),
        }
    }

    /// Appends to a text field.
    pub(super) fn push_str(&mut self, field: &str, more: &str) {
        match self.0.get_mut(field) {
            Some(Value::String(text)) => text.push_str(more),
            _ => self.set(field, more),
        }
    }
}

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Value::deserialize(deserializer)?;
        Part::from_json(json).ok_or_else(|| serde::de::Error::custom("a part of a message is a JSON object with a `type`"))
    }
}
