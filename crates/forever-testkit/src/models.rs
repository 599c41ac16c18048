//! A model for chat agents that follows a script, and continues where it was cut off.
use std::sync::Arc;
use std::time::Duration;

use forever_chat::message::{Chunk, Part, ToolState};
use forever_chat::model::{ChatModel, FinishReason, Finished, ModelError, ModelEvent, ModelRequest, ModelStream};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

use crate::notes::Notes;

/// One event of a model's answer.
pub type Event = Result<ModelEvent, ModelError>;

type Answers = dyn Fn(usize, &ModelRequest) -> Vec<Event> + Send + Sync;

/// A model that gives what its script has after so many results of tools.
#[derive(Clone)]
pub struct ScriptedModel {
    answers: Arc<Answers>,
    notes: Notes,
    pace: Duration,
}

impl ScriptedModel {
    /// A model that answers a request with these events; the number is that of the results of tools
    /// in its messages.
    pub fn new(answers: impl Fn(usize, &ModelRequest) -> Vec<Event> + Send + Sync + 'static) -> Self {
        ScriptedModel { answers: Arc::new(answers), notes: Notes::default(), pace: Duration::ZERO }
    }

    /// Notes each request: `asked after 2 results, anew`, or `.., to go on` after an interruption.
    #[must_use]
    pub fn noting(mut self, notes: &Notes) -> Self {
        self.notes = notes.clone();
        self
    }

    /// Waits so long before each event.
    #[must_use]
    pub fn paced(mut self, pace: Duration) -> Self {
        self.pace = pace;
        self
    }
}

impl std::fmt::Debug for ScriptedModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScriptedModel").field("notes", &self.notes).finish_non_exhaustive()
    }
}

impl ChatModel for ScriptedModel {
    fn answer(&self, request: ModelRequest) -> ModelStream {
        let parts = || request.messages.iter().flat_map(|message| &message.parts);
        let results = parts().filter(|part| part.tool_state().is_some_and(ToolState::is_settled)).count();
        assert!(!parts().any(|part| part.is_tool() && part.tool_state() == Some(ToolState::InputStreaming)), "half a call in {request:?}");
        let left = || request.interrupted.iter().flat_map(|left| &left.parts);
        let said: String = left().filter_map(Part::as_text).collect();
        self.notes.note(format!("asked after {results} results, {}", if said.is_empty() { "anew" } else { "to go on" }));
        let events = (self.answers)(results, &request);
        let all: String = events.iter().filter_map(delta).collect();
        let is_open = left().any(|part| part.get("state") == Some(&json!("streaming")));
        let events = rest(events, &said, !said.is_empty() && said == all && !is_open);
        let pace = self.pace;
        if pace.is_zero() {
            return Box::pin(stream::iter(events));
        }
        let paced = stream::iter(events).then(move |event| async move {
            tokio::time::sleep(pace).await;
            event
        });
        Box::pin(paced)
    }
}

/// What is left of an answer after `said`; `is_whole` if that is all of its text.
fn rest(events: Vec<Event>, said: &str, is_whole: bool) -> Vec<Event> {
    let mut skip = said;
    let is_left = |event: &Event| match event {
        Ok(ModelEvent::Chunk(chunk)) if is_whole && matches!(chunk.kind(), "text-start" | "text-end") => false,
        event => match delta(event).and_then(|delta| skip.strip_prefix(delta.as_str())) {
            Some(shorter) => {
                skip = shorter;
                false
            }
            None => true,
        },
    };
    events.into_iter().filter(is_left).collect()
}

fn delta(event: &Event) -> Option<String> {
    match event {
        Ok(ModelEvent::Chunk(chunk)) => chunk.get("delta").and_then(Value::as_str).map(str::to_owned),
        _ => None,
    }
}

/// A text of these pieces.
#[must_use]
pub fn text(pieces: &[&str]) -> Vec<Event> {
    let deltas = pieces.iter().map(|piece| Chunk::text_delta("t", *piece));
    chunks([Chunk::text_start("t")].into_iter().chain(deltas).chain([Chunk::text_end("t")]))
}

/// A text, word by word.
#[must_use]
pub fn words(text: &str) -> Vec<Event> {
    self::text(&text.split_inclusive(' ').collect::<Vec<_>>())
}

/// A call of a tool, which begins before its input is there.
#[must_use]
pub fn call(id: &str, tool: &str, input: Value) -> Vec<Event> {
    chunks([Chunk::tool_input_start(id, tool), Chunk::tool_input_available(id, tool, input)])
}

/// A call of a tool as one chunk.
#[must_use]
pub fn whole_call(id: &str, tool: &str, input: Value) -> Vec<Event> {
    chunks([Chunk::tool_input_available(id, tool, input)])
}

/// The end of an answer.
#[must_use]
pub fn ends(reason: FinishReason) -> Vec<Event> {
    vec![Ok(ModelEvent::Finished(Finished::because(reason)))]
}

fn chunks(chunks: impl IntoIterator<Item = Chunk>) -> Vec<Event> {
    chunks.into_iter().map(|chunk| Ok(ModelEvent::Chunk(chunk))).collect()
}
