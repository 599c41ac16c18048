//! What of a message waits for a person or their client.
use forever_runtime::store::InteractionKind;
use serde_json::{Value, json};

use crate::message::part::{Part, ToolState};
use crate::message::ui_message::UiMessage;

const STATES: [ToolState; 7] = [
    ToolState::InputStreaming,
    ToolState::InputAvailable,
    ToolState::ApprovalRequested,
    ToolState::ApprovalResponded,
    ToolState::OutputAvailable,
    ToolState::OutputError,
    ToolState::OutputDenied,
];

#[test]
fn a_part_and_its_message_are_judged_alike() {
    for role in ["assistant", "user", "system"] {
        for kind in ["tool-look", "dynamic-tool", "text", "tool", "data-tool-look"] {
            for call in [json!("c"), json!(""), json!(7), Value::Null] {
                for state in STATES.map(ToolState::as_str).into_iter().chain(["", "later"]) {
                    let part = json!({ "type": kind, "toolCallId": call, "state": state, "input": {} });
                    let text = json!({ "id": "m", "role": role, "parts": [{ "type": "text", "text": "" }, part] }).to_string();
                    let message: UiMessage = serde_json::from_str(&text).unwrap();
                    let wanted = match (kind, state) {
                        _ if !call.is_string() => None,
                        ("tool-look" | "dynamic-tool", "approval-requested") => Some(InteractionKind::Approval),
                        ("tool-look" | "dynamic-tool", "input-available") => Some(InteractionKind::ClientTool),
                        _ => None,
                    };
                    assert_eq!(Part::from_json(part).unwrap().interaction(), wanted, "{text}");
                    assert_eq!(message.is_pending(), role == "assistant" && wanted.is_some(), "{text}");
                }
            }
        }
    }
}
