//! Converts a conversation to `input`.
use serde_json::{Value, json};

use crate::message::Part;
use crate::model::chat_model::tool_parameters;
use crate::model::chat_model::{ModelError, ModelRequest, ToolSpec};
use crate::model::conversation::{Continue, File, Piece, Said, input_text, metadata, said};

pub(super) fn body(model: &str, system: Option<&str>, request: &ModelRequest, go_on: &str) -> Result<Value, ModelError> {
    let mut items = Vec::new();
    for said in said(request, Continue::Ask(go_on)) {
        match said {
            Said::System(text) => items.push(json!({ "role": "system", "content": text })),
            Said::User(parts) => {
                let content: Vec<Value> = parts.iter().map(|part| user(part)).collect::<Result<_, _>>()?;
                items.push(json!({ "role": "user", "content": content }));
            }
            Said::Model(parts) => model_items(&parts, &mut items),
            Said::Tools(outcomes) => items.extend(
                outcomes
                    .into_iter()
                    .map(|outcome| json!({ "type": "function_call_output", "call_id": outcome.call, "output": outcome.text })),
            ),
            Said::GoOn(words) => items.push(json!({ "role": "user", "content": [{ "type": "input_text", "text": words }] })),
        }
    }
    let mut body = json!({ "model": model, "input": items, "stream": true, "store": true });
    if let Some(text) = system {
        body["instructions"] = text.into();
    }
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    Ok(body)
}

/// Not strict: a strict tool needs a schema in a form that ordinary tools do not have.
fn tool(tool: &ToolSpec) -> Value {
    json!({
        "type": "function", "name": tool.name, "description": tool.description, "parameters": tool_parameters(tool), "strict": false,
    })
}

fn user(part: &Part) -> Result<Value, ModelError> {
    if let Some(text) = part.as_text() {
        return Ok(json!({ "type": "input_text", "text": text }));
    }
    let file = File::of(part);
    if file.is_image() {
        Ok(json!({ "type": "input_image", "image_url": file.url, "detail": "auto" }))
    } else if file.base64().is_some() {
        Ok(json!({ "type": "input_file", "filename": file.name.unwrap_or("file"), "file_data": file.url }))
    } else if file.is_remote() {
        Ok(json!({ "type": "input_file", "file_url": file.url }))
    } else {
        Err(file.refused())
    }
}

/// Items are sent without their ids: with them the provider would require each one's neighbours,
/// some of which may never have arrived.
fn model_items(pieces: &[Piece<'_>], items: &mut Vec<Value>) {
    let mut pieces = pieces.iter().peekable();
    while let Some(piece) = pieces.next() {
        match piece {
            Piece::Text(text) => items.push(json!({ "role": "assistant", "content": [{ "type": "output_text", "text": text }] })),
            Piece::Call(part) => items.push(json!({
                "type": "function_call", "call_id": part.tool_call_id(), "name": part.tool_name(), "arguments": input_text(part),
            })),
            Piece::Reasoning(part) => {
                let id = metadata(part, "openai", "itemId");
                let mut of_item = vec![*part];
                while let Some(Piece::Reasoning(more)) = pieces.peek()
                    && metadata(more, "openai", "itemId") == id
                {
                    of_item.push(more);
                    pieces.next();
                }
                items.extend(reasoning(id, &of_item));
            }
        }
    }
}

/// Reasoning is accepted in its encrypted form only, which its last part carries.
fn reasoning(id: Option<&str>, parts: &[&Part]) -> Option<Value> {
    let encrypted = parts.iter().rev().find_map(|part| metadata(part, "openai", "reasoningEncryptedContent"))?;
    let summary: Vec<Value> = parts
        .iter()
        .filter_map(|part| part.as_reasoning())
        .filter(|text| !text.is_empty())
        .map(|text| json!({ "type": "summary_text", "text": text }))
        .collect();
    Some(json!({ "type": "reasoning", "id": id?, "summary": summary, "encrypted_content": encrypted }))
}
