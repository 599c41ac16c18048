//! What has come of an answer: from the provider's pieces to chunks that fit together.
//!
//! **Invariant:** a piece begins before it goes on, and ends before another begins or the answer ends. A tool call that has begun gets its input, or
//! an error in its place, before the answer ends. Nothing comes behind the end.
use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::chat::message::Chunk;
use crate::chat::model::chat_model::{FinishReason, Finished, ModelEvent};

/// Text, or reasoning.
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
    /// There are calls that can be made, of which nothing is given here.
    called: bool,
    finished: bool,
}

#[derive(Debug)]
struct Call {
    /// What the provider calls it while it writes it.
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
    /// The next event that has not been given yet.
    pub(super) fn next(&mut self) -> Option<ModelEvent> {
        self.ready.pop_front()
    }

    pub(super) fn is_finished(&self) -> bool {
        self.finished
    }

    /// The provider keeps the answer under this id.
    pub(super) fn response(&mut self, id: &str) {
        self.ready.push_back(ModelEvent::Response(id.to_owned()));
    }

    /// A piece of text or reasoning goes on, or begins. What the provider wants to be told again about it is in `metadata`, which counts at its
    /// beginning.
    pub(super) fn more(&mut self, kind: Kind, id: &str, delta: &str, metadata: Option<Value>) {
        if delta.is_empty() {
            return;
        }
        self.begin(kind, id, metadata);
        self.chunk(if kind == Kind::Text { Chunk::text_delta(id, delta) } else { Chunk::reasoning_delta(id, delta) });
    }

    /// A piece of text or reasoning begins, unless it is the one that is open.
    pub(super) fn begin(&mut self, kind: Kind, id: &str, metadata: Option<Value>) {
        if self.open.as_ref().is_some_and(|(open, name)| *open == kind && name == id) {
            return;
        }
        self.close(None);
        self.open = Some((kind, id.to_owned()));
        self.chunk(about(if kind == Kind::Text { Chunk::text_start(id) } else { Chunk::reasoning_start(id) }, metadata));
    }

    /// A piece of a kind begins, unless one of that kind is open.
    pub(super) fn begin_any(&mut self, kind: Kind, id: &str, metadata: Option<Value>) {
        if self.open.as_ref().is_none_or(|(open, _)| *open != kind) {
            self.begin(kind, id, metadata);
        }
    }

    /// The open piece of text or reasoning ends.
    pub(super) fn close(&mut self, metadata: Option<Value>) {
        if let Some((kind, id)) = self.open.take() {
            self.chunk(about(if kind == Kind::Text { Chunk::text_end(id) } else { Chunk::reasoning_end(id) }, metadata));
        }
    }

    /// A tool call begins, which the provider calls `key` while it writes it.
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

    /// The answer has calls that were given at another time.
    pub(super) fn has_called(&mut self) {
        self.called = true;
    }

    /// More of the input of a call, as text.
    pub(super) fn call_more(&mut self, key: &str, delta: &str) {
        let Some(call) = self.calls.iter_mut().find(|call| call.key == key && call.state == Written::Partly) else { return };
        if !delta.is_empty() {
            call.input.push_str(delta);
            let chunk = Chunk::tool_input_delta(&call.id, delta);
            self.chunk(chunk);
        }
    }

    /// The input of a call is there: all of it, if the provider repeats it, or what has come.
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

    /// A page that the answer is based on.
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

    /// The answer is whole. What the provider gives as its reason is not always so: with calls that can be made it is that.
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

    /// The answer ends, and nobody has said that the input of this call is there.
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
    /// The chunk for an input that will never be understood.
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

/// A chunk for which there is no function.
fn chunk(json: Value) -> Chunk {
    Chunk::from_json(json).expect("it is an object with a type")
}
