//! Messages and chunks: the JSON of the AI SDK (`UIMessage`, `UIMessageChunk`, versions 5 and 6),
//! read and written without loss.
//!
//! A chunk is one event of a stream, a part one piece of a message. `build` makes parts from
//! chunks, `continue_with` fits the chunks of a new attempt to those of one that was cut off, and
//! `repair` makes messages acceptable to a model. Chunks and parts are JSON objects with a `type`.
//! They keep every unknown field, so that newer formats pass through unchanged. Source of the
//! formats: <https://ai-sdk.dev/docs/ai-sdk-ui/stream-protocol> and
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
