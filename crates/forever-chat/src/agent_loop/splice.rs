//! Fits the model's answer into the log of the turn: after a part that was cut off, and with unique
//! ids for calls.
use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::message::{Chunk, Continuation, Part, ToolState};
use crate::turn::Step;

/// The id under which the provider stores an answer, and the parts of the step before it. An answer
/// that was requested anew continues the text of the previous one; only what follows is its own.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) response: String,
    pub(super) parts: usize,
    /// Length of the last part.
    length: usize,
    /// Metadata of the last part.
    metadata: Option<Value>,
}

impl Kept {
    /// `parts` are those of the step.
    pub(super) fn behind(parts: &[Part], response: String) -> Self {
        let last = parts.last();
        let length = last.and_then(Part::as_text).map_or(0, str::len);
        Kept { response, parts: parts.len(), length, metadata: last.and_then(|part| part.get("providerMetadata")).cloned() }
    }

    /// The parts of the step, where a text that belongs to two answers is split.
    pub(super) fn cut(&self, parts: Vec<Part>) -> Vec<Part> {
        let Some(at) = self.parts.checked_sub(1) else { return parts };
        let mut all = Vec::with_capacity(parts.len() + 1);
        for (place, part) in parts.into_iter().enumerate() {
            let cut = part.as_text().filter(|_| place == at).and_then(|text| text.split_at_checked(self.length));
            if let Some((before, behind)) = cut.filter(|(before, behind)| !before.is_empty() && !behind.is_empty()) {
                let mut first = Part::text(before);
                if let Some(metadata) = &self.metadata {
                    first.set("providerMetadata", metadata.clone());
                }
                let mut second = part.clone();
                second.set("text", behind);
                all.extend([first, second]);
            } else {
                all.push(part);
            }
        }
        all
    }
}

/// Fits new chunks to the existing ones.
pub(super) struct Splice {
    /// Set if an answer was cut off.
    continuation: Option<Continuation>,
    ids: Ids,
}

impl Splice {
    /// `same_answer` is the index of the first part of the answer that was cut off, if the new
    /// chunks are its rest.
    pub(super) fn new(continuation: Option<Continuation>, same_answer: Option<usize>, step: &Step) -> Self {
        // Reasoning that was cut off is useless to a model that is called anew: it reasons again,
        // and signs the new reasoning.
        let continuation = continuation.map(Continuation::reasoning_apart).map(|it| match same_answer {
            Some(from) => it.same_answer(from),
            None => it,
        });
        Splice { continuation, ids: Ids::beside(step) }
    }

    pub(super) fn next(&mut self, chunk: Chunk) -> Vec<Chunk> {
        let chunk = self.ids.own(chunk);
        match &mut self.continuation {
            Some(continuation) => continuation.next(chunk),
            None => vec![chunk],
        }
    }
}

/// Ids of calls. Some servers number them anew in every answer, or use one for all, but a message
/// needs unique ids.
#[derive(Default)]
struct Ids {
    taken: HashSet<String>,
    /// Ids in the message of the calls of this answer.
    names: HashMap<String, Name>,
}

struct Name {
    own: String,
    /// Whether its input is complete.
    given: bool,
}

impl Ids {
    fn beside(step: &Step) -> Self {
        // A call whose input was cut off is written again if the model makes it again.
        let whole = step.parts.iter().filter(|part| part.tool_state() != Some(ToolState::InputStreaming));
        let taken = step.before.iter().chain(whole).filter_map(Part::tool_call_id).map(str::to_owned);
        Ids { taken: taken.collect(), names: HashMap::new() }
    }

    /// The chunk with its call's id in the message.
    fn own(&mut self, mut chunk: Chunk) -> Chunk {
        let Some(id) = chunk.get("toolCallId").and_then(Value::as_str).map(str::to_owned) else { return chunk };
        let (begins, gives) = match chunk.kind() {
            "tool-input-start" => (true, false),
            "tool-input-available" | "tool-input-error" => (false, true),
            _ => (false, false),
        };
        let known = self.names.get(&id).is_some_and(|name| !(begins && name.given));
        if !known && (begins || gives) {
            let own = self.free(&id);
            self.names.insert(id.clone(), Name { own, given: false });
        }
        if let Some(name) = self.names.get_mut(&id) {
            name.given |= gives;
            if name.own != id {
                chunk.set("toolCallId", name.own.as_str());
            }
        }
        chunk
    }

    fn free(&mut self, id: &str) -> String {
        let mut name = id.to_owned();
        let mut count = 1;
        while !self.taken.insert(name.clone()) {
            count += 1;
            name = format!("{id}-{count}");
        }
        name
    }
}
