//! Converts a conversation to `messages`.
use serde_json::{Value, json};

use crate::message::Part;
use crate::model::chat_model::tool_parameters;
use crate::model::chat_model::{ModelError, ModelRequest, ToolSpec};
use crate::model::conversation::{Continue, File, Piece, Said, input_text, said};

pub(super) fn body(model: &str, system: Option<&str>, request: &ModelRequest, continued: Continue<'_>) -> Result<Value, ModelError> {
    let mut messages = Vec::new();
    if let Some(text) = system {
        messages.push(json!({ "role": "system", "content": text }));
    }
    for said in said(request, continued) {
        match said {
            Said::System(text) => messages.push(json!({ "role": "system", "content": text })),
            Said::User(parts) => messages.push(json!({ "role": "user", "content": user(&parts)? })),
            Said::Model(parts) => messages.push(assistant(&parts)),
            Said::Tools(outcomes) => messages.extend(
                outcomes.into_iter().map(|outcome| json!({ "role": "tool", "tool_call_id": outcome.call, "content": outcome.text })),
            ),
            Said::GoOn(words) => messages.push(json!({ "role": "user", "content": words })),
        }
    }
    let mut body = json!({ "model": model, "messages": messages, "stream": true, "stream_options": { "include_usage": true } });
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    Ok(body)
}

fn tool(tool: &ToolSpec) -> Value {
    json!({ "type": "function", "function": { "name": tool.name, "description": tool.description, "parameters": tool_parameters(tool) } })
}

/// Text alone is sent as a string, the only form that some servers accept.
fn user(parts: &[&Part]) -> Result<Value, ModelError> {
    if parts.iter().all(|part| part.kind() == "text") {
        let texts: Vec<&str> = parts.iter().filter_map(|part| part.as_text()).collect();
        return Ok(texts.join("\n").into());
    }
    parts
        .iter()
        .map(|part| match part.as_text() {
            Some(text) => Ok(json!({ "type": "text", "text": text })),
            None => file(&File::of(part)),
        })
        .collect()
}

fn file(file: &File<'_>) -> Result<Value, ModelError> {
    if file.is_image() {
        return Ok(json!({ "type": "image_url", "image_url": { "url": file.url } }));
    }
    let Some(data) = file.base64() else { return Err(file.refused()) };
    Ok(match file.media_type {
        "audio/wav" => json!({ "type": "input_audio", "input_audio": { "data": data, "format": "wav" } }),
        "audio/mpeg" | "audio/mp3" => json!({ "type": "input_audio", "input_audio": { "data": data, "format": "mp3" } }),
        _ => json!({ "type": "file", "file": { "filename": file.name.unwrap_or("file"), "file_data": file.url } }),
    })
}

/// The protocol does not keep pieces apart: all text is one, calls are separate, and reasoning is
/// not accepted back.
fn assistant(pieces: &[Piece<'_>]) -> Value {
    let (mut text, mut calls) = (String::new(), Vec::new());
    for piece in pieces {
        match piece {
            Piece::Text(more) => text.push_str(more),
            Piece::Call(part) => calls.push(call(part)),
            Piece::Reasoning(_) => {}
        }
    }
    let mut message = json!({ "role": "assistant", "content": (!text.is_empty()).then_some(text) });
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    message
}

fn call(part: &Part) -> Value {
    let function = json!({ "name": part.tool_name(), "arguments": input_text(part) });
    json!({ "id": part.tool_call_id(), "type": "function", "function": function })
}
