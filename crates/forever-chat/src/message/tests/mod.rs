//! Tests of messages, most of them against what the npm package `ai` does: `recorded` was written by `scripts/record-ui-messages`.
#![allow(clippy::needless_pass_by_value, reason = "JSON is written where it is passed")]
#![allow(clippy::string_slice, reason = "texts are cut at the ends of characters")]
mod building;
mod continuing;
mod cutting;
mod pending;
mod recorded;
mod repairing;
mod streams;

use crate::message::build::MessageBuilder;
use crate::message::chunk::Chunk;
use crate::message::part::Part;
use crate::message::ui_message::UiMessage;

/// A builder that was given chunks.
fn built(chunks: &[Chunk]) -> MessageBuilder {
    let mut builder = MessageBuilder::default();
    for chunk in chunks {
        builder.apply(chunk).unwrap_or_else(|why| panic!("{}: {why}", chunk.to_text()));
    }
    builder
}

fn message(json: serde_json::Value) -> UiMessage {
    serde_json::from_value(json).unwrap()
}

fn parts(json: serde_json::Value) -> Vec<Part> {
    serde_json::from_value(json).unwrap()
}

fn chunks(json: serde_json::Value) -> Vec<Chunk> {
    serde_json::from_value(json).unwrap()
}
