//! Builds an answer: turns the provider's pieces into consistent chunks.
//!
//! **Invariant:** a piece begins before it is extended, and ends before another begins or the
//! answer ends. A tool call that has begun gets its input, or an error in its place, before the
//! answer ends. Nothing follows the end.
use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::message::Chunk;
use crate::model::chat_model::{FinishReason, Finished, ModelEvent};

/// Kind of a piece: text, or reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Reasoning,
}

/// An answer so far.
#[derive(Debug, Default)]
pub(super) struct Answer {
    ready: VecDeque<ModelEvent>,
    open: Option<(Kind, String)>,
    calls: Vec<Call>,
    sources: Vec<String>,
    /// Whether the answer has calls, also some that are not part of this stream.
    called: bool,
    finished: bool,
}

#[derive(Debug)]
struct Call {
    /// Key of the call in the provider's stream.
    key: String,
    id: String,
    tool: String,
    input: String,
    state: Written,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    Partly,
    Whole,
    Wrong,
}

impl Answer {
    /// The next event that was not returned yet.
    pub(super) fn next(&mut self) -> Option<ModelEvent> {
        self.ready.pop_front()
    }

    pub(super) fn is_finished(&self) -> bool {
        self.finished
    }

    /// Sets the id under which the provider stores the answer.
    pub(super) fn response(&mut self, id: &str) {
        self.ready.push_back(ModelEvent::Response(id.to_owned()));
    }

    /// Extends a piece of text or reasoning, or begins it. `metadata` is what the provider needs
    /// back with it, and is used when the piece begins.
    pub(super) fn more(&mut self, kind: Kind, id: &str, delta: &str, metadata: Option<Value>) {
        if delta.is_empty() {
            return;
        }
        self.begin(kind, id, metadata);
        self.chunk(if kind == Kind::Text { Chunk::text_delta(id, delta) } else { Chunk::reasoning_delta(id, delta) });
    }

    /// Begins a piece of text or reasoning, unless it is the open one.
    pub(super) fn begin(&mut self, kind: Kind, id: &str, metadata: Option<Value>) {
        if self.open.as_ref().is_some_and(|(open, name)| *open == kind && name == id) {
            return;
        }
        self.close(None);
        self.open = Some((kind, id.to_owned()));
        self.chunk(about(if kind == Kind::Text { Chunk::text_start(id) } else { Chunk::reasoning_start(id) }, metadata));
    }

    /// Begins a piece of a kind, unless one of that kind is open.
    pub(super) fn begin_any(&mut self, kind: Kind, id: &str, metadata: Option<Value>) {
        if self.open.as_ref().is_none_or(|(open, _)| *open != kind) {
            self.begin(kind, id, metadata);
        }
    }

    /// Ends the open piece of text or reasoning.
    pub(super) fn close(&mut self, metadata: Option<Value>) {
        if let Some((kind, id)) = self.open.take() {
            self.chunk(about(if kind == Kind::Text { Chunk::text_end(id) } else { Chunk::reasoning_end(id) }, metadata));
        }
    }

    /// Begins a tool call, which has the key `key` in the provider's stream.
    pub(super) fn call(&mut self, key: &str, id: &str, tool: &str) {
        if self.has_call(key) {
            return;
        }
        self.close(None);
        self.chunk(Chunk::tool_input_start(id, tool));
        let (key, id, tool) = (key.to_owned(), id.to_owned(), tool.to_owned());
        self.calls.push(Call { key, id, tool, input: String::new(), state: Written::Partly });
    }

    pub(super) fn has_call(&self, key: &str) -> bool {
        self.calls.iter().any(|call| call.key == key)
    }

    /// Records that the answer has calls that were returned earlier.
    pub(super) fn has_called(&mut self) {
        self.called = true;
    }

    /// Appends text to the input of a call.
    pub(super) fn call_more(&mut self, key: &str, delta: &str) {
        let Some(call) = self.calls.iter_mut().find(|call| call.key == key && call.state == Written::Partly) else { return };
        if !delta.is_empty() {
            call.input.push_str(delta);
            let chunk = Chunk::tool_input_delta(&call.id, delta);
            self.chunk(chunk);
        }
    }

    /// Completes the input of a call: with `all`, if the provider repeats it, or with the text so
    /// far.
    pub(super) fn call_done(&mut self, key: &str, all: Option<&str>) {
        let Some(call) = self.calls.iter_mut().find(|call| call.key == key && call.state == Written::Partly) else { return };
        let text = all.unwrap_or(&call.input).trim();
        let input = if text.is_empty() { Ok(json!({})) } else { serde_json::from_str(text) };
        let chunk = match input {
            Ok(input) => {
                call.state = Written::Whole;
                Chunk::tool_input_available(&call.id, &call.tool, input)
            }
            Err(why) => call.wrong(text.to_owned(), &format!("the input is no JSON: {why}")),
        };
        self.chunk(chunk);
    }

    /// Adds a source on which the answer is based.
    pub(super) fn source(&mut self, url: &str, title: Option<&str>) {
        if self.sources.iter().any(|known| known == url) {
            return;
        }
        self.sources.push(url.to_owned());
        let mut chunk = chunk(json!({ "type": "source-url", "sourceId": url, "url": url }));
        if let Some(title) = title {
            chunk.set("title", title);
        }
        self.chunk(chunk);
    }

    /// Completes the answer. The provider's reason is not always right: an answer with calls ends
    /// for that reason.
    pub(super) fn finish(&mut self, mut finished: Finished) {
        self.close(None);
        let cut = matches!(finished.reason, FinishReason::Length | FinishReason::ContentFilter);
        let open: Vec<String> = self.calls.iter().filter(|call| call.state == Written::Partly).map(|call| call.key.clone()).collect();
        for key in open {
            self.call_ends(&key, cut);
        }
        if !cut {
            let called = self.called || self.calls.iter().any(|call| call.state == Written::Whole);
            finished.reason = match finished.reason {
                _ if called => FinishReason::ToolCalls,
                FinishReason::ToolCalls if self.calls.is_empty() => FinishReason::Stop,
                reason => reason,
            };
        }
        self.ready.push_back(ModelEvent::Finished(finished));
        self.finished = true;
    }

    /// Ends a call whose input the provider has not completed before the answer ended.
    fn call_ends(&mut self, key: &str, cut: bool) {
        let Some(call) = self.calls.iter_mut().find(|call| call.key == key) else { return };
        if cut && serde_json::from_str::<Value>(&call.input).is_err() {
            let chunk = call.wrong(call.input.clone(), "the answer was cut off in the middle of the input");
            self.chunk(chunk);
        } else {
            self.call_done(key, None);
        }
    }

    fn chunk(&mut self, chunk: Chunk) {
        self.ready.push_back(ModelEvent::Chunk(chunk));
    }
}

impl Call {
    /// The chunk for an input that cannot be parsed.
    fn wrong(&mut self, input: String, why: &str) -> Chunk {
        self.state = Written::Wrong;
        let mut chunk = chunk(json!({ "type": "tool-input-error", "toolCallId": self.id, "toolName": self.tool, "errorText": why }));
        chunk.set("input", input);
        chunk
    }
}

fn about(mut chunk: Chunk, metadata: Option<Value>) -> Chunk {
    if let Some(metadata) = metadata {
        chunk.set("providerMetadata", metadata);
    }
    chunk
}

/// A chunk of a kind without a constructor.
fn chunk(json: Value) -> Chunk {
    Chunk::from_json(json).expect("it is an object with a type")
}
