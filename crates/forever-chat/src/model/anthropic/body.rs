//! Converts a conversation to `messages`.
//!
//! Requirements of the API: a user message comes first, roles alternate, results of tools stand at
//! the start of the message after their calls, text is not empty, thinking comes before calls, an
//! input is an object, and ids of calls consist of letters, digits, `_` and `-`.
use serde_json::{Value, json};

use crate::message::Part;
use crate::model::chat_model::tool_parameters;
use crate::model::chat_model::{ModelError, ModelRequest, ToolSpec};
use crate::model::conversation::{Continue, File, Outcome, Piece, Said, input, metadata, said};

pub(super) fn body(model: &str, max_tokens: u32, system: Option<&str>, request: &ModelRequest, go_on: &str) -> Result<Value, ModelError> {
    let mut told: Vec<String> = system.map(str::to_owned).into_iter().collect();
    let mut messages = Messages::default();
    for said in said(request, Continue::Ask(go_on)) {
        match said {
            Said::System(text) => told.push(text),
            Said::User(parts) => messages.add("user", user(&parts)?),
            Said::Model(pieces) => {
                let (said, went_on) = pieces.split_at(went_on(&pieces));
                if !went_on.is_empty() {
                    messages.add("assistant", assistant(said));
                    messages.add("user", vec![text(go_on)]);
                }
                messages.add("assistant", assistant(if went_on.is_empty() { said } else { went_on }));
            }
            Said::Tools(outcomes) => messages.add("user", outcomes.iter().map(result).collect()),
            Said::GoOn(words) => messages.add("user", vec![text(words)]),
        }
    }
    let mut body = json!({ "model": model, "max_tokens": max_tokens, "messages": messages.list(), "stream": true });
    if !told.is_empty() {
        body["system"] = told.join("\n\n").into();
    }
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    Ok(body)
}

/// Messages with alternating roles.
#[derive(Default)]
struct Messages(Vec<(&'static str, Vec<Value>)>);

impl Messages {
    fn add(&mut self, role: &'static str, blocks: Vec<Value>) {
        if self.0.is_empty() && role == "assistant" {
            self.0.push(("user", vec![text("Begin.")]));
        }
        match self.0.last_mut() {
            Some((last, there)) if *last == role => there.extend(blocks),
            _ => self.0.push((role, blocks)),
        }
    }

    fn list(self) -> Vec<Value> {
        self.0.into_iter().map(|(role, content)| json!({ "role": role, "content": content })).collect()
    }
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn tool(tool: &ToolSpec) -> Value {
    json!({ "name": tool.name, "description": tool.description, "input_schema": tool_parameters(tool) })
}

fn user(parts: &[&Part]) -> Result<Vec<Value>, ModelError> {
    parts.iter().map(|part| part.as_text().map_or_else(|| file(&File::of(part)), |words| Ok(text(words)))).collect()
}

fn file(file: &File<'_>) -> Result<Value, ModelError> {
    let source = match file.base64() {
        Some(data) => json!({ "type": "base64", "media_type": file.media_type, "data": data }),
        None if file.is_remote() => json!({ "type": "url", "url": file.url }),
        None => return Err(file.refused()),
    };
    match file.media_type {
        _ if file.is_image() => Ok(json!({ "type": "image", "source": source })),
        "application/pdf" => match file.name {
            Some(name) => Ok(json!({ "type": "document", "source": source, "title": name })),
            None => Ok(json!({ "type": "document", "source": source })),
        },
        _ => Err(file.refused()),
    }
}

/// Index at which the model continued after it was cut off, if it was thinking before it did: a
/// message that calls tools has to begin with its thinking.
fn went_on(pieces: &[Piece<'_>]) -> usize {
    let is_thought = |piece: &Piece<'_>| matches!(piece, Piece::Reasoning(part) if thinking(part).is_some());
    let begins = pieces.iter().position(|piece| is_thought(piece) || matches!(piece, Piece::Text(_) | Piece::Call(_)));
    let only_text = |at: &usize| !pieces[..*at].iter().any(|piece| matches!(piece, Piece::Call(_)));
    pieces.iter().position(is_thought).filter(|at| Some(*at) != begins).filter(only_text).unwrap_or(pieces.len())
}

fn assistant(pieces: &[Piece<'_>]) -> Vec<Value> {
    let block = |piece: &Piece<'_>| match piece {
        Piece::Text(words) => Some(text(words)),
        Piece::Reasoning(part) => thinking(part),
        Piece::Call(part) => Some(call(part)),
    };
    pieces.iter().filter_map(block).collect()
}

fn call(part: &Part) -> Value {
    let input = match input(part) {
        Value::Null => json!({}),
        input @ Value::Object(_) => input.clone(),
        // Input that was not JSON cannot be sent as it was.
        other => json!({ "input": other }),
    };
    json!({ "type": "tool_use", "id": id(part.tool_call_id().unwrap_or_default()), "name": part.tool_name(), "input": input })
}

/// Thinking is accepted with its signature only, so that of other models and that which was cut off
/// is skipped.
fn thinking(part: &Part) -> Option<Value> {
    if let Some(data) = metadata(part, "anthropic", "redactedData") {
        return Some(json!({ "type": "redacted_thinking", "data": data }));
    }
    let signature = metadata(part, "anthropic", "signature")?;
    Some(json!({ "type": "thinking", "thinking": part.as_reasoning(), "signature": signature }))
}

fn result(outcome: &Outcome) -> Value {
    let mut block = json!({ "type": "tool_result", "tool_use_id": id(&outcome.call), "content": outcome.text });
    if outcome.failed {
        block["is_error"] = true.into();
    }
    block
}

/// Id of a call; that of another provider may have other characters.
fn id(id: &str) -> String {
    id.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect()
}
