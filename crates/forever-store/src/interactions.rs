//! Pending interactions: which tool calls of a message wait for a person or their client.
//!
//! Comes in: the JSON of a message, or of one of its parts. This is the one place that decides: the
//! chat asks it when a message is written and when a list is read, and a store when it opens a
//! database that was written before messages were marked.
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Kind of a pending interaction: what the tool call waits for.
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
    // For chats, which judge single parts; a store judges messages.
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

/// Whether a message holds a pending interaction: the value of [`MessageRow::pending`].
///
/// For stores with messages from before it was stored. `data` is [`MessageRow::data`]; text that is
/// not a message holds none.
///
/// [`MessageRow::pending`]: super::MessageRow::pending
/// [`MessageRow::data`]: super::MessageRow::data
pub fn has_pending_interaction(data: &str) -> bool {
    #[derive(Deserialize)]
    struct Message {
        role: String,
        #[serde(default)]
        parts: Vec<Value>,
    }
    let Ok(message) = serde_json::from_str::<Message>(data) else { return false };
    message.role == "assistant" && message.parts.iter().filter_map(Value::as_object).any(|part| InteractionKind::of(part).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_message_holds_none() {
        let deep = "[".repeat(100_000);
        let part = r#"{"type":"tool-look","toolCallId":"c","state":"input-available"}"#;
        for text in ["", "null", "[]", "{}", "\"assistant\"", r#"{"role":7,"parts":[]}"#, &deep] {
            assert!(!has_pending_interaction(text), "{text:.20}");
        }
        assert!(!has_pending_interaction(&format!(r#"{{"role":"assistant","parts":{part}}}"#)));
        assert!(has_pending_interaction(&format!(r#"{{"role":"assistant","parts":[7,{part}]}}"#)));
    }
}
