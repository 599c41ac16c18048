//! A message of a conversation, in the AI SDK's JSON.
use forever_runtime::store::MessageRole;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::message::part::Part;

/// Role of a message's author.
///
/// ```
/// use forever::chat::message::{Role, UiMessage};
///
/// fn author(message: &UiMessage) -> &'static str {
///     match message.role {
///         Role::User => "you",
///         Role::Assistant => "the concierge",
///         Role::System => "the house",
///     }
/// }
/// # assert_eq!(author(&UiMessage::user("u1", "hello")), "you");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// System prompt.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
}

/// Maximum nesting of arrays and objects in a field of a chunk, of a part or of a message.
///
/// `serde_json` reads 127 levels. With this limit a value can still be read inside a part of a
/// message in a frame.
pub(crate) const MAX_NESTING: usize = 100;

/// Whether a value is nested deeper than `levels`.
pub(crate) fn nests_deeper(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => levels == 0 || items.iter().any(|item| nests_deeper(item, levels - 1)),
        Value::Object(fields) => levels == 0 || fields.values().any(|field| nests_deeper(field, levels - 1)),
        _ => false,
    }
}

impl Role {
    /// The stored value.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
        }
    }
}

impl From<Role> for MessageRole {
    fn from(role: Role) -> Self {
        match role {
            Role::System => MessageRole::System,
            Role::User => MessageRole::User,
            Role::Assistant => MessageRole::Assistant,
        }
    }
}

/// A message of a chat, as the AI SDK's `UIMessage`.
///
/// ```
/// use forever::chat::message::{Role, UiMessage};
/// use serde_json::json;
///
/// # fn main() -> serde_json::Result<()> {
/// let question = UiMessage::user("u1", "When is breakfast?");
/// assert_eq!(question.text(), "When is breakfast?");
///
/// // The JSON of `useChat`.
/// let text = json!({ "type": "text", "text": "At seven." });
/// let json = json!({ "id": "a1", "role": "assistant", "parts": [text] });
/// let answer: UiMessage = serde_json::from_value(json)?;
/// assert_eq!((answer.role, &*answer.text()), (Role::Assistant, "At seven."));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UiMessage {
    /// Unique in its chat.
    pub id: String,
    /// Role of its author.
    pub role: Role,
    /// Metadata of the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
    /// Its parts, in order.
    #[serde(default)]
    pub parts: Vec<Part>,
    /// Unknown fields.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl UiMessage {
    /// A message without parts.
    pub fn new(id: impl Into<String>, role: Role) -> Self {
        UiMessage { id: id.into(), role, metadata: None, parts: Vec::new(), other: Map::new() }
    }

    /// A person's message.
    pub fn user(id: impl Into<String>, text: impl Into<String>) -> Self {
        UiMessage { parts: vec![Part::text(text)], ..UiMessage::new(id, Role::User) }
    }

    /// Whether it is the assistant's, and one of its tool calls waits for a person or their client.
    pub(crate) fn is_pending(&self) -> bool {
        self.role == Role::Assistant && self.parts.iter().any(|part| part.interaction().is_some())
    }

    /// Whether a field of it or of its parts is nested deeper than [`MAX_NESTING`].
    pub(crate) fn nests_too_deep(&self) -> bool {
        let parts = self.parts.iter().flat_map(|part| part.0.values());
        self.metadata.iter().chain(self.other.values()).chain(parts).any(|value| nests_deeper(value, MAX_NESTING))
    }

    /// The text of all its text parts.
    pub fn text(&self) -> String {
        self.parts.iter().filter_map(Part::as_text).collect()
    }
}
