//! The chunks that build a stored message in a page that does not have it.
use forever_chat::message::{Chunk, Part, ToolState, UiMessage};
use serde_json::{Value, json};

/// The chunks from `start` on, without an end.
///
/// A tool call with complete input is sent as pieces of input, not as the start of a call: the page
/// would run its own tools (`onToolCall`) again.
pub(super) fn chunks(message: &UiMessage) -> Vec<Chunk> {
    let mut start = Chunk::start();
    start.set("messageId", message.id.as_str());
    if let Some(metadata) = &message.metadata {
        start.set("messageMetadata", metadata.clone());
    }
    let mut chunks = vec![start];
    for (at, part) in message.parts.iter().enumerate() {
        chunks.extend(part_chunks(at, part));
    }
    chunks
}

/// Whether a message has tool calls, and none of them waits for a client.
pub(super) fn has_answered_calls(message: &UiMessage) -> bool {
    let is_open = |state| matches!(state, ToolState::InputStreaming | ToolState::InputAvailable | ToolState::ApprovalRequested);
    let mut calls = message.parts.iter().filter(|part| part.is_tool()).peekable();
    calls.peek().is_some() && !calls.any(|call| call.tool_state().is_none_or(is_open))
}

fn part_chunks(at: usize, part: &Part) -> Vec<Chunk> {
    let id = format!("part-{at}");
    match part.kind() {
        kind @ ("text" | "reasoning") => {
            let delta = part.get("text").cloned().unwrap_or_default();
            let mut end = json!({ "type": format!("{kind}-end"), "id": id });
            copy(part, "providerMetadata", &mut end, "providerMetadata");
            let delta = json!({ "type": format!("{kind}-delta"), "id": id, "delta": delta });
            from_json([json!({ "type": format!("{kind}-start"), "id": id }), delta, end])
        }
        "step-start" => vec![Chunk::start_step()],
        "file" | "source-url" | "source-document" => from_json([json!(part)]),
        kind if kind.starts_with("data-") => from_json([json!(part)]),
        _ if part.is_tool() => tool_chunks(part),
        _ => Vec::new(),
    }
}

fn tool_chunks(part: &Part) -> Vec<Chunk> {
    let (Some(call), Some(name)) = (part.tool_call_id(), part.tool_name()) else { return Vec::new() };
    let mut start = json!({ "type": "tool-input-start", "toolCallId": call, "toolName": name });
    if part.kind() == "dynamic-tool" {
        start["dynamic"] = Value::Bool(true);
    }
    for field in ["title", "providerExecuted", "toolMetadata"] {
        copy(part, field, &mut start, field);
    }
    copy(part, "callProviderMetadata", &mut start, "providerMetadata");
    let mut chunks = vec![start];
    if let Some(input) = part.get("input") {
        chunks.push(json!({ "type": "tool-input-delta", "toolCallId": call, "inputTextDelta": input.to_string() }));
    }
    let approval = part.get("approval").and_then(|approval| approval.get("id")).cloned().unwrap_or_default();
    match part.tool_state() {
        Some(ToolState::OutputAvailable) => {
            let mut output = json!({ "type": "tool-output-available", "toolCallId": call, "output": part.get("output") });
            copy(part, "resultProviderMetadata", &mut output, "providerMetadata");
            chunks.push(output);
        }
        Some(ToolState::OutputError) => {
            let text = part.get("errorText").and_then(Value::as_str).unwrap_or_default();
            chunks.push(json!({ "type": "tool-output-error", "toolCallId": call, "errorText": text }));
        }
        Some(ToolState::OutputDenied) => chunks.push(json!({ "type": "tool-output-denied", "toolCallId": call })),
        // No chunk reports an approval; a refusal shows as the end of the call.
        Some(ToolState::ApprovalResponded) => {
            let approved = part.get("approval").and_then(|approval| approval.get("approved")).and_then(Value::as_bool);
            if approved == Some(false) {
                chunks.push(json!({ "type": "tool-output-denied", "toolCallId": call }));
            }
        }
        Some(ToolState::ApprovalRequested) => {
            chunks.push(json!({ "type": "tool-approval-request", "toolCallId": call, "approvalId": approval }));
        }
        Some(ToolState::InputAvailable) => {
            let input = part.get("input").cloned().unwrap_or_default();
            chunks.push(json!({ "type": "tool-input-available", "toolCallId": call, "toolName": name, "input": input }));
            if part.kind() == "dynamic-tool"
                && let Some(available) = chunks.last_mut()
            {
                available["dynamic"] = Value::Bool(true);
            }
        }
        _ => {}
    }
    from_json(chunks)
}

fn copy(from: &Part, field: &str, to: &mut Value, as_field: &str) {
    if let Some(value) = from.get(field).filter(|value| !value.is_null()) {
        to[as_field] = value.clone();
    }
}

fn from_json(chunks: impl IntoIterator<Item = Value>) -> Vec<Chunk> {
    chunks.into_iter().filter_map(|chunk| Chunk::from_json(chunk).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use forever_chat::message::{MessageBuilder, Role};

    #[test]
    fn chunks_of_a_message_make_the_same_message() {
        let parts = [
            json!({ "type": "step-start" }),
            json!({ "type": "reasoning", "id": "part-1", "text": "hm", "state": "done", "providerMetadata": { "a": { "sig": "x" } } }),
            json!({ "type": "text", "text": "Hello", "state": "done" }),
            json!({ "type": "tool-look", "toolCallId": "c1", "state": "output-available", "input": { "at": [1, "\u{e9}"] }, "output": { "b": 2 } }),
            json!({ "type": "dynamic-tool", "toolName": "ask", "toolCallId": "c2", "state": "output-error", "input": 5, "errorText": "no" }),
            json!({ "type": "tool-pay", "toolCallId": "c3", "state": "approval-requested", "input": { "cents": 4 }, "approval": { "id": "a3" } }),
            json!({ "type": "tool-here", "toolCallId": "c4", "state": "input-available", "input": { "now": true } }),
            json!({ "type": "source-url", "sourceId": "s", "url": "https://example.com/" }),
            json!({ "type": "file", "mediaType": "image/png", "url": "data:," }),
            json!({ "type": "data-weather", "id": "w", "data": [1] }),
        ];
        let mut message = UiMessage::new("m1", Role::Assistant);
        message.metadata = Some(json!({ "seen": 1 }));
        message.parts = parts.iter().cloned().filter_map(Part::from_json).collect();
        let mut builder = MessageBuilder::default();
        for chunk in chunks(&message) {
            builder.apply(&chunk).unwrap_or_else(|why| panic!("{}: {why}", chunk.to_text()));
        }
        let made = builder.into_message();
        assert_eq!((made.id.as_str(), &made.metadata), ("m1", &message.metadata));
        assert_eq!(made.parts.len(), parts.len());
        for (made, part) in made.parts.iter().zip(&message.parts) {
            for field in ["type", "text", "state", "toolCallId", "toolName", "input", "output", "errorText", "approval", "url", "data"] {
                assert_eq!(made.get(field).filter(|v| !v.is_null()), part.get(field), "{field} of {}", json!(part));
            }
        }
    }

    #[test]
    fn a_call_that_is_settled_is_not_begun_again() {
        let settled = [
            json!({ "type": "tool-pay", "toolCallId": "c", "state": "output-available", "input": {}, "output": 1 }),
            json!({ "type": "tool-pay", "toolCallId": "c", "state": "approval-responded", "input": {}, "approval": { "id": "a", "approved": true } }),
            json!({ "type": "tool-pay", "toolCallId": "c", "state": "approval-responded", "input": {}, "approval": { "id": "a", "approved": false } }),
        ];
        for part in settled.into_iter().filter_map(Part::from_json) {
            let kinds: Vec<_> = part_chunks(0, &part).iter().map(|chunk| chunk.kind().to_owned()).collect();
            assert!(!kinds.iter().any(|kind| kind == "tool-input-available" || kind == "tool-approval-request"), "{kinds:?}");
        }
    }
}
