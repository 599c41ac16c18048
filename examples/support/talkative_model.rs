//! A model that follows a script: it streams word by word, calls tools, and continues where it was
//! cut off.
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use forever::chat::message::{Part, ToolState};
use forever::chat::model::{FinishReason, ModelRequest};
use forever_testkit::models::{Event, ScriptedModel, ends, whole_call, words};
use serde_json::json;

/// Its last sentence when the table is booked, and when that is unknown.
pub(crate) const BOOKED: &str = "Your table on the terrace is booked.";
pub(crate) const UNKNOWN: &str = "I could not find out whether your table is booked: please ask at the door.";

/// The model. It records each call in a file.
pub(crate) fn talkative(asked: PathBuf) -> ScriptedModel {
    let pace = Duration::from_millis(if cfg!(test) { 0 } else { 15 });
    let answers = move |_: usize, request: &ModelRequest| {
        // Only the audit needs the number of calls.
        let _ = OpenOptions::new().append(true).create(true).open(&asked).and_then(|mut file| file.write_all(b"asked\n"));
        answer(request)
    };
    ScriptedModel::new(answers).paced(pace)
}

fn answer(request: &ModelRequest) -> Vec<Event> {
    let parts = || request.messages.iter().flat_map(|message| &message.parts);
    let call = |tool: &str| parts().find(|part| part.tool_name() == Some(tool)).and_then(Part::tool_state);
    let (text, then) = match (call("weather"), call("book")) {
        (None, _) => ("Let me look what the evening will be like.", whole_call("call-1", "weather", json!({ "city": "Rome" }))),
        (Some(_), None) => ("It will be clear, so you can. I will book.", whole_call("call-2", "book", json!({ "table": "terrace" }))),
        (Some(_), Some(ToolState::OutputAvailable)) => (BOOKED, Vec::new()),
        (Some(_), Some(_)) => (UNKNOWN, Vec::new()),
    };
    let reason = if then.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls };
    [words(text), then, ends(reason)].concat()
}
