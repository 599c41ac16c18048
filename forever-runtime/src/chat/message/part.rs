//! One piece of a message.
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};

use crate::store::InteractionKind;

/// One piece of a message: text, reasoning, a tool call, a file, a source, data of the program's own, the beginning of a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Part(pub(super) Map<String, Value>);

/// How far a tool call has come: the `state` of a tool part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ToolState {
    /// Its input is being written by the model.
    InputStreaming,
    /// Its input is there; nobody has run it, or somebody runs it.
    InputAvailable,
    /// A person is asked whether it may be run.
    ApprovalRequested,
    /// The person has answered.
    ApprovalResponded,
    /// It has given a result.
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

    /// The word in JSON.
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

    /// Whether the call is over: it has a result, an error or a refusal.
    pub fn is_settled(self) -> bool {
        matches!(self, ToolState::OutputAvailable | ToolState::OutputError | ToolState::OutputDenied)
    }
}

impl Part {
    /// A finished piece of text.
    pub fn text(text: impl Into<String>) -> Self {
        Part::of(json!({ "type": "text", "text": text.into() }))
    }

    /// Any part, from its JSON; `None` if it is no object with a `type`.
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

    /// Its `type`.
    pub fn kind(&self) -> &str {
        self.str("type").unwrap_or_default()
    }

    /// The text of a text part.
    pub fn as_text(&self) -> Option<&str> {
        if self.kind() == "text" { self.str("text") } else { None }
    }

    /// The text of a reasoning part.
    pub fn as_reasoning(&self) -> Option<&str> {
        if self.kind() == "reasoning" { self.str("text") } else { None }
    }

    /// Whether it is a tool call.
    pub fn is_tool(&self) -> bool {
        let kind = self.kind();
        kind == "dynamic-tool" || kind.starts_with("tool-")
    }

    /// The name of the tool, of a tool call.
    pub fn tool_name(&self) -> Option<&str> {
        match self.kind() {
            "dynamic-tool" => self.str("toolName"),
            kind => kind.strip_prefix("tool-"),
        }
    }

    /// The id of a tool call.
    pub fn tool_call_id(&self) -> Option<&str> {
        if self.is_tool() { self.str("toolCallId") } else { None }
    }

    /// How far a tool call has come; `None` for other parts, and for a state that is not known here.
    pub fn tool_state(&self) -> Option<ToolState> {
        let state = if self.is_tool() { self.str("state")? } else { return None };
        ToolState::ALL.into_iter().find(|s| s.as_str() == state)
    }

    /// What a tool call of an assistant's message waits for, if it is a person or their client.
    pub fn interaction(&self) -> Option<InteractionKind> {
        InteractionKind::of(&self.0)
    }

    /// A field.
    pub fn get(&self, field: &str) -> Option<&Value> {
        self.0.get(field)
    }

    /// Sets a field.
    pub fn set(&mut self, field: impl Into<String>, value: impl Into<Value>) {
        self.0.insert(field.into(), value.into());
    }

    /// Takes a field away.
    pub fn remove(&mut self, field: &str) -> Option<Value> {
        self.0.remove(field)
    }

    pub(super) fn str(&self, field: &str) -> Option<&str> {
        self.0.get(field)?.as_str()
    }

    /// Sets a field, or takes it away.
    pub(super) fn put(&mut self, field: &str, value: Option<Value>) {
        match value {
            Some(value) => self.set(field, value),
            None => drop(self.remove(field)),
        }
    }

    /// Adds to a field that is text.
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
