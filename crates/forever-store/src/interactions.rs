//! Pending interactions: which tool calls of a message wait for a person or their client.
//!
//! Comes in: the JSON of a part of a message. This is the one place that decides: the chat asks it
//! when a message is written and when a list is read.
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Kind of a pending interaction: what the tool call waits for.
///
/// ```
/// # mod forever { pub mod chat { pub use forever_store::InteractionKind; } }
/// use forever::chat::InteractionKind;
///
/// fn prompt(kind: InteractionKind, tool: &str) -> String {
///     match kind {
///         InteractionKind::Approval => format!("May `{tool}` run?"),
///         InteractionKind::ClientTool => format!("Your page has to answer `{tool}`."),
///         _ => format!("`{tool}` waits."),
///     }
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum InteractionKind {
    /// A person's approval, or refusal, of a call that the program runs.
    Approval,
    /// The result of a tool that runs at the client.
    ClientTool,
}

impl InteractionKind {
    /// The word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            InteractionKind::Approval => "approval",
            InteractionKind::ClientTool => "client-tool",
        }
    }

    /// What a part of an assistant's message waits for; `None` if it is not a tool call that waits.
    #[doc(hidden)]
    pub fn of(part: &Map<String, Value>) -> Option<Self> {
        let text = |field: &str| part.get(field).and_then(Value::as_str);
        let kind = text("type")?;
        if kind != "dynamic-tool" && !kind.starts_with("tool-") {
            return None;
        }
        // An answer names its call.
        text("toolCallId")?;
        match text("state")? {
            "approval-requested" => Some(InteractionKind::Approval),
            "input-available" => Some(InteractionKind::ClientTool),
            _ => None,
        }
    }
}

impl std::fmt::Display for InteractionKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}
