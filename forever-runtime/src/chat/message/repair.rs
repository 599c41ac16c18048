//! What is put right in a conversation before a model is asked.
//!
//! Comes in: the messages as they are kept. Goes out: the messages as a model can take them. Providers refuse a conversation in which a call
//! has no result, so each call that was interrupted is given one; the input of every call is an object; and an answer in which there is
//! nothing to read is left out. What persons and programs have said is not touched. Doing it twice is doing it once.
use serde_json::{Map, Value};

use crate::chat::message::chunk::Chunk;
use crate::chat::message::part::{Part, ToolState};
use crate::chat::message::tool::give_result;
use crate::chat::message::ui_message::{Role, UiMessage};

/// What a model, and the client, are told of a call that was interrupted.
pub const INTERRUPTED: &str = "The tool call was interrupted, and its result is not known.";

/// What is done about a call that has no result.
#[derive(Debug, Clone, PartialEq)]
pub enum Repair {
    /// It has failed: it was interrupted, as [`INTERRUPTED`] says.
    Interrupted,
    /// It has failed, for this reason.
    Failed(String),
    /// Its result is known after all.
    Output(Value),
    /// It is still waited for, and left alone: a client runs it, or a person is asked.
    Wait,
}

/// Messages that a model can take, and what was done for that.
#[derive(Debug, Clone, PartialEq)]
pub struct Repaired {
    /// The messages.
    pub messages: Vec<UiMessage>,
    /// The calls that were given a result, in order.
    pub calls: Vec<RepairedCall>,
}

/// A call that was given a result.
#[derive(Debug, Clone, PartialEq)]
pub struct RepairedCall {
    /// The id of its message.
    pub message: String,
    /// Its own id.
    pub call: String,
    /// What a client is told that has the message open.
    pub chunk: Chunk,
}

/// Puts messages right. `how` is asked about every call of an assistant's message that has no result: whose input is not whole, that waits to
/// be run, that a person is asked about or has answered for, or whose result is preliminary.
///
/// Input that is no object becomes the object whose JSON text it is, or `{}`; it is kept as `rawInput` if nothing else is. A call whose input
/// could not be read, and that has only `rawInput`, has its input from there.
pub fn repair(messages: Vec<UiMessage>, mut how: impl FnMut(&Part) -> Repair) -> Repaired {
    let mut calls = Vec::new();
    let mut repaired = Vec::with_capacity(messages.len());
    for mut message in messages {
        if message.role == Role::Assistant {
            for part in &mut message.parts {
                if part.is_tool() {
                    calls.extend(repair_call(part, &mut how).map(|chunk| RepairedCall {
                        message: message.id.clone(),
                        call: chunk.str("toolCallId").unwrap_or_default().to_owned(),
                        chunk,
                    }));
                } else if matches!(part.kind(), "text" | "reasoning") && part.str("state") == Some("streaming") {
                    part.set("state", "done");
                }
            }
            if !message.parts.iter().any(can_be_read) {
                continue;
            }
        }
        repaired.push(message);
    }
    Repaired { messages: repaired, calls }
}

/// Gives a call its result and its input what it has to be; the chunk is what tells of the result.
fn repair_call(part: &mut Part, how: &mut impl FnMut(&Part) -> Repair) -> Option<Chunk> {
    let mut told = None;
    if is_unsettled(part) {
        let call = part.tool_call_id().unwrap_or_default();
        let chunk = match how(part) {
            Repair::Interrupted => Chunk::tool_output_error(call, INTERRUPTED),
            Repair::Failed(why) => Chunk::tool_output_error(call, why),
            Repair::Output(output) => Chunk::tool_output_available(call, output),
            Repair::Wait => return None,
        };
        give_result(part, &chunk);
        told = Some(chunk);
    }
    repair_input(part);
    told
}

/// Whether a call has no result that will stay.
fn is_unsettled(part: &Part) -> bool {
    match part.tool_state() {
        Some(ToolState::OutputAvailable) => part.get("preliminary") == Some(&Value::Bool(true)),
        Some(state) => !state.is_settled(),
        // A state that is not known here may be a result.
        None => false,
    }
}

fn repair_input(part: &mut Part) {
    if part.get("input").is_some_and(Value::is_object) {
        return;
    }
    let given = part.remove("input").filter(|input| !input.is_null());
    let read = given.as_ref().or(part.get("rawInput")).and_then(|raw| match raw {
        Value::Object(_) => Some(raw.clone()),
        Value::String(text) => serde_json::from_str(text).ok().filter(Value::is_object),
        _ => None,
    });
    part.set("input", read.unwrap_or_else(|| Value::Object(Map::new())));
    if let Some(given) = given
        && part.get("rawInput").is_none()
    {
        part.set("rawInput", given);
    }
}

/// Whether there is something in a part for a model to read.
fn can_be_read(part: &Part) -> bool {
    match part.kind() {
        "text" | "reasoning" => part.str("text").is_some_and(|text| !text.trim().is_empty()),
        "file" => true,
        _ => part.is_tool(),
    }
}
