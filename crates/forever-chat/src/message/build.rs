//! Builds the parts of one message from chunks.
//!
//! Input: the message so far, and chunks in order. Output: after every chunk, the message that the
//! `ai` package (version 6, `processUIMessageStream`) builds from them. `tests/recorded` holds what
//! that package built from several hundred streams. A chunk that a client would refuse is refused
//! here, and changes nothing.
use std::collections::BTreeMap;

use forever_runtime::{Error, ErrorKind, Result};
use serde_json::{Map, Value, json};

use crate::message::check::check;
use crate::message::chunk::Chunk;
use crate::message::part::Part;
use crate::message::tool::Calls;
use crate::message::ui_message::{Role, UiMessage};

/// Kind of a part that is streamed in pieces: text, or reasoning.
///
/// See [`OpenPart`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Prose {
    /// Text of the answer.
    Text,
    /// Reasoning of the model before the answer.
    Reasoning,
}

impl Prose {
    const ALL: [Prose; 2] = [Prose::Text, Prose::Reasoning];

    /// The `type` of its part, and the prefix of the types of its chunks.
    pub fn as_str(self) -> &'static str {
        match self {
            Prose::Text => "text",
            Prose::Reasoning => "reasoning",
        }
    }
}

/// A part of text or reasoning that has begun and has not ended.
///
/// ```
/// use forever::chat::message::{Chunk, MessageBuilder, Prose};
///
/// # fn main() -> forever::Result<()> {
/// let mut answer = MessageBuilder::default();
/// answer.apply(&Chunk::text_start("t"))?;
/// answer.apply(&Chunk::text_delta("t", "At sev"))?;
/// // The stream was cut off in here.
/// let open = answer.open();
/// assert_eq!((open[0].prose, &*open[0].id), (Prose::Text, "t"));
/// answer.apply(&open[0].end())?;
/// assert!(answer.open().is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenPart {
    /// Kind of the part.
    pub prose: Prose,
    /// Id of the part in its chunks.
    pub id: String,
    /// Index of the part in the message.
    pub at: usize,
}

impl OpenPart {
    /// The chunk that ends the part.
    pub fn end(&self) -> Chunk {
        match self.prose {
            Prose::Text => Chunk::text_end(&self.id),
            Prose::Reasoning => Chunk::reasoning_end(&self.id),
        }
    }
}

/// Builds one message from chunks.
///
/// ```
/// # use forever::chat::message::{Chunk, MessageBuilder, Role, UiMessage};
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
    /// Indexes of the open parts, by id: text, then reasoning.
    open: [BTreeMap<String, usize>; 2],
    calls: Calls,
    started: bool,
    finish_reason: Option<String>,
}

impl Default for MessageBuilder {
    /// For a message without id and parts: `start` sets its id.
    fn default() -> Self {
        MessageBuilder::new(UiMessage::new("", Role::Assistant))
    }
}

impl MessageBuilder {
    /// Continues from a message: an empty one, or a partial answer.
    ///
    /// Nothing can be appended to its text and reasoning, even where they have no end: the chunks
    /// that began them, with their ids, are not known here, and not known to a client that is shown
    /// the message. A caller that has those chunks applies them to an empty message. Input of tools
    /// that has no end is continued.
    pub fn new(message: UiMessage) -> Self {
        let calls = Calls::of(&message.parts);
        MessageBuilder { message, open: Default::default(), calls, started: false, finish_reason: None }
    }

    /// Adds one chunk.
    ///
    /// Unknown kinds change nothing. Neither do `error` and `abort`: the end of a stream is not
    /// part of its message.
    ///
    /// # Errors
    /// Of kind [`Value`](ErrorKind::Value), for every chunk that a client would refuse: a field
    /// that is missing or of another type, a delta for a part that has not begun or has ended, the
    /// result of a call that was never made. Also for metadata that is no object where there is
    /// metadata already, which a client would split into letters. The message is then unchanged.
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
                // Later chunks go to other parts.
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

    /// Adds all chunks or, if one is refused, none.
    pub(crate) fn apply_all(&mut self, chunks: &[Chunk]) -> Result<()> {
        if let [chunk] = chunks {
            return self.apply(chunk);
        }
        let before = self.clone();
        chunks.iter().try_for_each(|chunk| self.apply(chunk)).inspect_err(|_| *self = before)
    }

    /// The message so far. The input of tools that is still being written is parsed by this call,
    /// not with every chunk.
    pub fn message(&mut self) -> &UiMessage {
        self.calls.settle(&mut self.message.parts);
        &self.message
    }

    /// Returns the message.
    pub fn into_message(mut self) -> UiMessage {
        self.calls.settle(&mut self.message.parts);
        self.message
    }

    /// The parts so far. The input of tools that is still being written may lag behind.
    pub(super) fn parts(&self) -> &[Part] {
        &self.message.parts
    }

    /// Whether a `start` was applied.
    pub fn is_started(&self) -> bool {
        self.started
    }

    /// Why the model stopped: the `finishReason` of the last `finish` that had one.
    pub fn finish_reason(&self) -> Option<&str> {
        self.finish_reason.as_deref()
    }

    /// The text and reasoning parts that are open, in order.
    pub fn open(&self) -> Vec<OpenPart> {
        let open = Prose::ALL.into_iter().zip(&self.open);
        let mut open: Vec<_> =
            open.flat_map(|(prose, open)| open.iter().map(move |(id, &at)| OpenPart { prose, id: id.clone(), at })).collect();
        open.sort_by_key(|part| part.at);
        open
    }

    /// Closes all open parts, and returns the chunks that close them in every client.
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

/// Merges objects; any other value replaces the old one. Keys that would change the prototype of a
/// JavaScript object are skipped.
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
