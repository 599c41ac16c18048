//! A model that follows a script: it streams word by word, calls tools, and continues where it was
//! cut off.
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use forever::chat::message::{Chunk, Part, ToolState};
use forever::chat::model::{ChatModel, FinishReason, Finished, ModelError, ModelEvent, ModelRequest, ModelStream};
use futures_util::{StreamExt, stream};
use serde_json::json;

/// Its last sentence when the table is booked, and when that is unknown.
pub(crate) const BOOKED: &str = "Your table on the terrace is booked.";
pub(crate) const UNKNOWN: &str = "I could not find out whether your table is booked: please ask at the door.";

/// The model. It records each call in a file.
pub(crate) struct Talkative {
    asked: PathBuf,
}

impl Talkative {
    pub(crate) fn new(asked: PathBuf) -> Self {
        Talkative { asked }
    }
}

impl ChatModel for Talkative {
    fn answer(&self, request: ModelRequest) -> ModelStream {
        // Only the audit needs the number of calls.
        let _ = OpenOptions::new().append(true).create(true).open(&self.asked).and_then(|mut file| file.write_all(b"asked\n"));
        let parts = || request.messages.iter().flat_map(|message| &message.parts);
        let call = |tool: &str| parts().find(|part| part.tool_name() == Some(tool)).and_then(Part::tool_state);
        let (text, then) = match (call("weather"), call("book")) {
            (None, _) => ("Let me look what the evening will be like.", Some(("call-1", "weather", json!({ "city": "Rome" })))),
            (Some(_), None) => ("It will be clear, so you can. I will book.", Some(("call-2", "book", json!({ "table": "terrace" })))),
            (Some(_), Some(ToolState::OutputAvailable)) => (BOOKED, None),
            (Some(_), Some(_)) => (UNKNOWN, None),
        };
        let left = || request.interrupted.iter().flat_map(|left| &left.parts);
        let said: String = left().filter_map(Part::as_text).collect();
        let open = left().any(|part| part.get("state") == Some(&json!("streaming")));
        let mut chunks = Vec::new();
        if said != text || open {
            chunks.push(Chunk::text_start("text"));
            let rest = text.strip_prefix(said.as_str()).unwrap_or(text);
            chunks.extend(rest.split_inclusive(' ').map(|word| Chunk::text_delta("text", word)));
            chunks.push(Chunk::text_end("text"));
        }
        let reason = if then.is_some() { FinishReason::ToolCalls } else { FinishReason::Stop };
        chunks.extend(then.map(|(id, tool, input)| Chunk::tool_input_available(id, tool, input)));
        let events = chunks.into_iter().map(ModelEvent::Chunk).chain([ModelEvent::Finished(Finished::because(reason))]);
        let events = stream::iter(events.map(Ok::<_, ModelError>)).then(|event| async {
            tokio::time::sleep(Duration::from_millis(if cfg!(test) { 0 } else { 15 })).await;
            event
        });
        Box::pin(events)
    }
}
