//! Repairs a conversation before a model is called.
//!
//! Input: the stored messages. Output: messages that a model accepts. Providers refuse a
//! conversation in which a call has no result, so each interrupted call gets one; the input of
//! every call becomes an object; and an answer without readable content is left out. Messages of
//! people and programs are not changed. A second repair changes nothing.
use serde_json::{Map, Value};

use crate::message::chunk::Chunk;
use crate::message::part::{Part, ToolState};
use crate::message::tool::give_result;
use crate::message::ui_message::{Role, UiMessage};

/// Result of an interrupted call, for the model and the client.
pub const INTERRUPTED: &str = "The tool call was interrupted, and its result is not known.";

/// Result for a call that has none.
///
/// ```
/// # use forever::BoxError;
/// # use forever::agent::Agent;
/// use forever::chat::message::{Part, Repair};
/// use forever::chat::{ChatAgent, Turn};
///
/// # struct Concierge;
/// # impl Agent for Concierge {
/// #     const CLASS: &'static str = "concierge";
/// #     type State = ();
/// # }
/// # impl ChatAgent for Concierge {
/// #     async fn on_chat_message(&self, _: &Turn) -> Result<(), BoxError> { Ok(()) }
/// // In `impl ChatAgent for Concierge`:
/// fn repair_interrupted_tool(&self, call: &Part) -> Repair {
///     match call.tool_name() {
///         // It runs on the person's page, which may still answer.
///         Some("pick_a_seat") => Repair::Wait,
///         Some("book") => Repair::Failed("ask the person whether the booking was made".into()),
///         _ => Repair::Interrupted,
///     }
/// }
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Repair {
    /// The call has failed: it was interrupted, as [`INTERRUPTED`] says.
    Interrupted,
    /// The call has failed, for this reason.
    Failed(String),
    /// The result is known after all.
    Output(Value),
    /// The call stays open: a client runs it, or a person is asked.
    Wait,
}

/// Messages that a model accepts, and the repairs made.
///
/// ```
/// use forever::chat::message::{Chunk, MessageBuilder, Repair, repair};
/// use serde_json::json;
///
/// # fn main() -> forever::Result<()> {
/// let mut answer = MessageBuilder::default();
/// answer.apply(&Chunk::tool_input_available("call-1", "book", json!({ "seats": 2 })))?;
///
/// let repaired = repair(vec![answer.into_message()], |_| Repair::Interrupted);
/// let call = repaired.messages[0].parts.iter().find(|part| part.is_tool()).unwrap();
/// assert!(call.tool_state().unwrap().is_settled());
/// // For a client that shows the message.
/// assert_eq!(repaired.calls[0].chunk.kind(), "tool-output-error");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Repaired {
    /// The messages.
    pub messages: Vec<UiMessage>,
    /// The calls that got a result, in order.
    pub calls: Vec<RepairedCall>,
}

/// A call that got a result.
///
/// See [`Repaired`] for an example.
#[derive(Debug, Clone, PartialEq)]
pub struct RepairedCall {
    /// Id of its message.
    pub message: String,
    /// Id of the call.
    pub call: String,
    /// The chunk for a client that shows the message.
    pub chunk: Chunk,
}

/// Repairs messages. `how` is called for every call of an assistant's message without a result: its
/// input is incomplete, it waits to run, it waits for approval or was approved or refused, or its
/// result is preliminary.
///
/// Input that is no object becomes the object whose JSON text it is, or `{}`; the original is kept
/// as `rawInput` unless that is set. A call whose input could not be read, and that has only
/// `rawInput`, gets its input from there.
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

/// Gives a call a result and an object as input; returns the chunk with the result.
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

/// Whether a call has no final result.
fn is_unsettled(part: &Part) -> bool {
    match part.tool_state() {
        Some(ToolState::OutputAvailable) => part.get("preliminary") == Some(&Value::Bool(true)),
        Some(state) => !state.is_settled(),
        // An unknown state may be a result.
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

/// Whether a part has content that a model can read.
fn can_be_read(part: &Part) -> bool {
    match part.kind() {
        "text" | "reasoning" => part.str("text").is_some_and(|text| !text.trim().is_empty()),
        "file" => true,
        _ => part.is_tool(),
    }
}
