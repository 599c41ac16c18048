//! From chunks to the parts of one message.
//!
//! Comes in: the message so far, and chunks in their order. Goes out: the message that the `ai` package (version 6, `processUIMessageStream`)
//! makes of them, after every chunk. `tests/recorded` holds what that package made of several hundred streams.
//! A chunk that a client would refuse is refused here, and changes nothing.
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::chat::message::check::check;
use crate::chat::message::chunk::Chunk;
use crate::chat::message::part::Part;
use crate::chat::message::tool::Calls;
use crate::chat::message::ui_message::{Role, UiMessage};
use crate::error::{Error, ErrorKind, Result};

/// What a part that comes in pieces is: text, or reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Prose {
    /// What the model says.
    Text,
    /// What it thinks before.
    Reasoning,
}

impl Prose {
    const ALL: [Prose; 2] = [Prose::Text, Prose::Reasoning];

    /// The `type` of its part, and what the types of its chunks begin with.
    pub fn as_str(self) -> &'static str {
        match self {
            Prose::Text => "text",
            Prose::Reasoning => "reasoning",
        }
    }
}

/// A piece of text or reasoning that has begun and has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenPart {
    /// Which of the two.
    pub prose: Prose,
    /// What its chunks name it by.
    pub id: String,
    /// Which of the message's parts it is.
    pub at: usize,
}

impl OpenPart {
    /// The chunk that ends it.
    pub fn end(&self) -> Chunk {
        match self.prose {
            Prose::Text => Chunk::text_end(&self.id),
            Prose::Reasoning => Chunk::reasoning_end(&self.id),
        }
    }
}

/// Makes one message of chunks.
///
/// ```
/// # use forever_runtime::chat::message::{Chunk, MessageBuilder, Role, UiMessage};
/// # fn main() -> Result<(), forever_runtime::Error> {
/// let mut builder = MessageBuilder::new(UiMessage::new("m1", Role::Assistant));
/// for chunk in [Chunk::text_start("t"), Chunk::text_delta("t", "Hel"), Chunk::text_delta("t", "lo")] {
///     builder.apply(&chunk)?;
/// }
/// assert_eq!(builder.message().text(), "Hello");
/// assert_eq!(builder.close(), [Chunk::text_end("t")]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct MessageBuilder {
    message: UiMessage,
    /// Where the open parts are, by id: text, then reasoning.
    open: [BTreeMap<String, usize>; 2],
    calls: Calls,
    started: bool,
    finish_reason: Option<String>,
}

impl Default for MessageBuilder {
    /// For a message without id and parts: `start` gives it its id.
    fn default() -> Self {
        MessageBuilder::new(UiMessage::new("", Role::Assistant))
    }
}

impl MessageBuilder {
    /// Goes on from a message: an empty one, or a partial answer.
    ///
    /// Its text and reasoning cannot be added to, even where they have no end: the chunks that began them, which say by what ids they are
    /// named, are not known here, nor are they to a client that is shown the message. Who has them applies them to an empty message.
    /// Input of tools that has no end is gone on with.
    pub fn new(message: UiMessage) -> Self {
        let calls = Calls::of(&message.parts);
        MessageBuilder { message, open: Default::default(), calls, started: false, finish_reason: None }
    }

    /// Adds one chunk.
    ///
    /// Kinds that are not known here change nothing, nor do `error` and `abort`: that a stream ends is not told by its message.
    ///
    /// # Errors
    /// Of kind [`Value`](ErrorKind::Value), for what a client would refuse: a field that is missing or of another type, more of a part that
    /// has not begun or has ended, the result of a call that nobody made. So is metadata that is no object where there is metadata already,
    /// which a client would take apart letter by letter. The message is then as it was.
    pub fn apply(&mut self, chunk: &Chunk) -> Result<()> {
        check(chunk)?;
        match chunk.kind() {
            "text-start" => self.begin(Prose::Text, chunk),
            "text-delta" => self.add(Prose::Text, chunk)?,
            "text-end" => self.end(Prose::Text, chunk)?,
            "reasoning-start" => self.begin(Prose::Reasoning, chunk),
            "reasoning-delta" => self.add(Prose::Reasoning, chunk)?,
            "reasoning-end" => self.end(Prose::Reasoning, chunk)?,
            "file" => self.push(chunk, &["mediaType", "url", "providerMetadata"]),
            "source-url" => self.push(chunk, &["sourceId", "url", "title", "providerMetadata"]),
            "source-document" => self.push(chunk, &["sourceId", "mediaType", "title", "filename", "providerMetadata"]),
            "start-step" => {
                // What is written from here on goes to other parts.
                self.calls.settle(&mut self.message.parts);
                self.message.parts.push(Part::of(json!({ "type": "step-start" })));
            }
            "finish-step" => self.open = Default::default(),
            "start" => {
                self.merge_metadata(chunk)?;
                if let Some(id) = chunk.str("messageId") {
                    id.clone_into(&mut self.message.id);
                }
                self.started = true;
            }
            "finish" => {
                self.merge_metadata(chunk)?;
                if let Some(reason) = chunk.str("finishReason") {
                    self.finish_reason = Some(reason.to_owned());
                }
            }
            "message-metadata" => self.merge_metadata(chunk)?,
            kind if kind.starts_with("tool-") => self.calls.apply(&mut self.message.parts, chunk)?,
            kind if kind.starts_with("data-") => self.data(chunk),
            _ => {}
        }
        Ok(())
    }

    /// Adds chunks, all of them or, if one is refused, none.
    pub(in crate::chat) fn apply_all(&mut self, chunks: &[Chunk]) -> Result<()> {
        if let [chunk] = chunks {
            return self.apply(chunk);
        }
        let before = self.clone();
        chunks.iter().try_for_each(|chunk| self.apply(chunk)).inspect_err(|_| *self = before)
    }

    /// The message so far. The input of tools that is still being written is read when it is asked for, not at every chunk.
    pub fn message(&mut self) -> &UiMessage {
        self.calls.settle(&mut self.message.parts);
        &self.message
    }

    /// The message.
    pub fn into_message(mut self) -> UiMessage {
        self.calls.settle(&mut self.message.parts);
        self.message
    }

    /// The parts so far, but for the input of tools that is still being written, which may lag behind.
    pub(super) fn parts(&self) -> &[Part] {
        &self.message.parts
    }

    /// Whether a `start` has come.
    pub fn is_started(&self) -> bool {
        self.started
    }

    /// Why the model stopped: the `finishReason` of the last `finish` that had one.
    pub fn finish_reason(&self) -> Option<&str> {
        self.finish_reason.as_deref()
    }

    /// The text and reasoning that can be added to, in the order of their parts.
    pub fn open(&self) -> Vec<OpenPart> {
        let open = Prose::ALL.into_iter().zip(&self.open);
        let mut open: Vec<_> =
            open.flat_map(|(prose, open)| open.iter().map(move |(id, &at)| OpenPart { prose, id: id.clone(), at })).collect();
        open.sort_by_key(|part| part.at);
        open
    }

    /// Ends all that is open, and gives the chunks that end it in every client.
    pub fn close(&mut self) -> Vec<Chunk> {
        let open = self.open();
        self.open = Default::default();
        for part in &open {
            self.message.parts[part.at].set("state", "done");
        }
        open.iter().map(OpenPart::end).collect()
    }

    fn begin(&mut self, prose: Prose, chunk: &Chunk) {
        let id = chunk.str("id").unwrap_or_default();
        let mut part = Part::of(json!({ "type": prose.as_str(), "text": "", "state": "streaming" }));
        if prose == Prose::Reasoning {
            part.set("id", id);
        }
        set_provider_metadata(&mut part, chunk);
        self.open[prose as usize].insert(id.to_owned(), self.message.parts.len());
        self.message.parts.push(part);
    }

    fn add(&mut self, prose: Prose, chunk: &Chunk) -> Result<()> {
        let at = self.find(prose, chunk)?;
        let part = &mut self.message.parts[at];
        part.push_str("text", chunk.str("delta").unwrap_or_default());
        set_provider_metadata(part, chunk);
        Ok(())
    }

    fn end(&mut self, prose: Prose, chunk: &Chunk) -> Result<()> {
        let at = self.find(prose, chunk)?;
        let part = &mut self.message.parts[at];
        part.set("state", "done");
        set_provider_metadata(part, chunk);
        self.open[prose as usize].remove(chunk.str("id").unwrap_or_default());
        Ok(())
    }

    fn find(&self, prose: Prose, chunk: &Chunk) -> Result<usize> {
        let id = chunk.str("id").unwrap_or_default();
        self.open[prose as usize].get(id).copied().ok_or_else(|| {
            let kind = prose.as_str();
            Error::new(ErrorKind::Value, format!("chunk `{}`: {kind} `{id}` has not begun, or has ended", chunk.kind()))
        })
    }

    fn push(&mut self, chunk: &Chunk, fields: &[&str]) {
        let kept = std::iter::once(&"type").chain(fields);
        let part: Map<_, _> = kept.filter_map(|&field| Some((field.to_owned(), chunk.get(field)?.clone()))).collect();
        self.message.parts.push(Part(part));
    }

    fn data(&mut self, chunk: &Chunk) {
        if chunk.get("transient") == Some(&Value::Bool(true)) {
            return;
        }
        let id = chunk.get("id");
        let before = self.message.parts.iter_mut().find(|part| id.is_some() && part.kind() == chunk.kind() && part.get("id") == id);
        match before {
            Some(part) => part.put("data", chunk.get("data").cloned()),
            None => self.message.parts.push(Part(chunk.0.clone())),
        }
    }

    fn merge_metadata(&mut self, chunk: &Chunk) -> Result<()> {
        let Some(new) = chunk.get("messageMetadata").filter(|new| !new.is_null()) else { return Ok(()) };
        match (self.message.metadata.as_mut().filter(|old| !old.is_null()), new) {
            (None, new) => self.message.metadata = Some(new.clone()),
            (Some(Value::Object(old)), Value::Object(new)) => merge(old, new),
            _ => {
                let why = format!("chunk `{}`: metadata that is no object cannot be added to, nor added", chunk.kind());
                return Err(Error::new(ErrorKind::Value, why));
            }
        }
        Ok(())
    }
}

/// Objects are merged, whatever else there is takes the place of what was there. Keys that would change what an object of a JavaScript
/// program is are passed over.
fn merge(old: &mut Map<String, Value>, new: &Map<String, Value>) {
    for (key, new) in new {
        match (old.get_mut(key), new) {
            _ if matches!(key.as_str(), "__proto__" | "constructor" | "prototype") => {}
            (Some(Value::Object(old)), Value::Object(new)) => merge(old, new),
            (_, new) => drop(old.insert(key.clone(), new.clone())),
        }
    }
}

fn set_provider_metadata(part: &mut Part, chunk: &Chunk) {
    if let Some(metadata) = chunk.get("providerMetadata") {
        part.set("providerMetadata", metadata.clone());
    }
}
