//! Messages and chunks: the JSON of the AI SDK, `UIMessage` and `UIMessageChunk`, read and written
//! without loss.
//!
//! | JSON | type | what it is |
//! |---|---|---|
//! | `{"id":"u1","role":"user","parts":[..]}` | [`UiMessage`] | one message of a conversation |
//! | `{"type":"text","text":"Hi"}` | [`Part`] | one piece of a message: text, a tool call, a file |
//! | `{"type":"text-delta","id":"t","delta":"Hi"}` | [`Chunk`] | one event of an answer's stream |
//!
//! Chunks are written, parts are read: a [`Turn`](crate::Turn) and a
//! [`ChatModel`](crate::model::ChatModel) give chunks, and a [`MessageBuilder`] makes parts of them,
//! the same ones as the npm package `ai`.
//!
//! ```
//! use forever::chat::message::{Chunk, MessageBuilder, Part, UiMessage};
//! use serde_json::json;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut answer = MessageBuilder::default();
//! for chunk in [
//!     Chunk::text_start("t"),
//!     Chunk::text_delta("t", "At "),
//!     Chunk::text_delta("t", "seven."),
//!     Chunk::text_end("t"),
//!     Chunk::tool_input_available("call-1", "book", json!({ "seats": 2 })),
//! ] {
//!     answer.apply(&chunk)?;
//! }
//! let message = answer.into_message();
//! assert_eq!(message.text(), "At seven.");
//! let call = message.parts.iter().find(|part| part.is_tool()).unwrap();
//! assert_eq!(call.tool_name(), Some("book"));
//!
//! // Unknown fields and kinds pass through unchanged.
//! let json = json!({ "type": "hologram", "depth": 3 });
//! let part = Part::from_json(json.clone()).unwrap();
//! assert_eq!(serde_json::to_value(&part)?, json);
//! let asked: UiMessage = serde_json::from_value(json!({ "id": "u1", "role": "user", "parts": [part] }))?;
//! assert_eq!(asked.parts[0].kind(), "hologram");
//! # Ok(())
//! # }
//! ```
//!
//! A program that calls a model itself needs two more: [`Continuation`] fits the chunks of a new
//! attempt to those of one that was cut off, and [`repair()`] gives each interrupted tool call a
//! result, without which providers refuse a conversation. A turn does both by itself.
//!
//! Versions 5, 6 and 7 of the AI SDK have this JSON. Source of the formats:
//! <https://ai-sdk.dev/docs/ai-sdk-ui/stream-protocol> and
//! <https://ai-sdk.dev/docs/reference/ai-sdk-core/ui-message>.
mod build;
mod check;
mod chunk;
mod continuation;
mod part;
mod partial_json;
mod repair;
#[cfg(test)]
mod tests;
mod tool;
mod ui_message;

pub use build::{MessageBuilder, OpenPart, Prose};
pub use chunk::{Chunk, MAX_CHUNK};
pub use continuation::Continuation;
pub use part::{Part, ToolState};
pub use repair::{INTERRUPTED, Repair, Repaired, RepairedCall, repair};
pub(crate) use ui_message::{MAX_NESTING, nests_deeper};
pub use ui_message::{Role, UiMessage};
