//! Continues the unfinished answer of an earlier attempt.
//!
//! Input: the chunks of the new attempt, which knows nothing of the earlier one. Output: chunks
//! that follow those of the earlier attempt in the same log. Invariants: a client that has seen the
//! log so far can append the output. It never sees a second start of the message, one id for two
//! open parts, or a call with a result being made again. Text that was cut off continues in its
//! part, if the new attempt begins with text.
use std::collections::{BTreeMap, BTreeSet};

use crate::message::build::{MessageBuilder, OpenPart, Prose};
use crate::message::chunk::Chunk;
use crate::message::part::{Part, ToolState};

/// Fits the chunks of a new attempt to those of an unfinished one.
///
/// ```
/// # use forever::chat::message::{Chunk, Continuation, MessageBuilder};
/// # fn main() -> Result<(), forever_runtime::Error> {
/// let mut answer = MessageBuilder::default();
/// for chunk in [Chunk::start(), Chunk::start_step(), Chunk::text_start("t"), Chunk::text_delta("t", "Hello, ")] {
///     answer.apply(&chunk)?;
/// }
/// // The process dies here. The model's output when it is asked to continue:
/// let again = [Chunk::start(), Chunk::start_step(), Chunk::text_start("u"), Chunk::text_delta("u", "world"), Chunk::text_end("u")];
/// let mut continuation = Continuation::of(&answer);
/// for chunk in again.into_iter().flat_map(|chunk| continuation.next(chunk)) {
///     answer.apply(&chunk)?;
/// }
/// assert_eq!(answer.message().parts.len(), 2, "the beginning of a step, and one text");
/// assert_eq!(answer.message().text(), "Hello, world");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Continuation {
    /// State left by the earlier attempt, until the first content of this one decides what to do
    /// with it.
    left: Option<Left>,
    started: bool,
    reasoning_apart: bool,
    /// The chunks are the rest of the answer whose parts begin at this index.
    same_answer: Option<usize>,
    calls: BTreeMap<String, Call>,
    /// Parts that are open in the log.
    open: BTreeSet<(Prose, String)>,
    /// Ids in the log of the parts that the attempt has open.
    names: BTreeMap<(Prose, String), String>,
}

/// State left by an unfinished attempt.
#[derive(Debug, Clone)]
struct Left {
    open: Vec<OpenPart>,
    /// Index of the part that can be continued: no other output of the model follows it.
    last: Option<usize>,
    /// Whether the message ends with the start of a step.
    in_new_step: bool,
    /// The start of a step of the new attempt, held back until it is known whether the last step
    /// continues instead.
    held: Option<Chunk>,
}

/// Progress of a call before the attempt.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Call {
    /// Its input was being written in the current step.
    Writing,
    /// Its input was complete.
    Given,
    /// A person had approved or refused it.
    Answered,
    /// It had its result.
    Settled,
}

impl Continuation {
    /// Continues the message of a builder that was given all chunks of the log.
    pub fn of(answer: &MessageBuilder) -> Self {
        let parts = answer.parts();
        let left = answer.open();
        let beside = |part: &Part| part.kind().starts_with("data-") || part.kind().starts_with("source-");
        let last = parts.iter().rposition(|part| !beside(part));
        let step = parts.iter().rposition(|part| part.kind() == "step-start").map_or(0, |at| at + 1);
        let calls = parts.iter().enumerate().filter_map(|(at, part)| {
            let preliminary = part.get("preliminary").and_then(serde_json::Value::as_bool) == Some(true);
            let call = match part.tool_state()? {
                ToolState::InputStreaming if at >= step => Call::Writing,
                // A client would make a new part for it now.
                ToolState::InputStreaming => return None,
                ToolState::ApprovalResponded => Call::Answered,
                ToolState::InputAvailable | ToolState::ApprovalRequested => Call::Given,
                ToolState::OutputAvailable if preliminary => Call::Given,
                ToolState::OutputAvailable | ToolState::OutputError | ToolState::OutputDenied => Call::Settled,
            };
            Some((part.tool_call_id()?.to_owned(), call))
        });
        let open = left.iter().map(|part| (part.prose, part.id.clone())).collect();
        let left = Left {
            last: left.iter().position(|part| Some(part.at) == last),
            open: left,
            in_new_step: parts.last().is_some_and(|part| part.kind() == "step-start"),
            held: None,
        };
        Continuation {
            left: Some(left),
            started: answer.is_started(),
            reasoning_apart: false,
            same_answer: None,
            calls: calls.collect(),
            open,
            names: BTreeMap::new(),
        }
    }

    /// Puts reasoning after an interruption into a new part: for providers that sign a piece of
    /// reasoning and accept it only whole.
    pub fn reasoning_apart(mut self) -> Self {
        self.reasoning_apart = true;
        self
    }

    /// Declares that the chunks are the rest of the very answer that was cut off, whose first new
    /// part is at `from`. Text and reasoning continue in a part with their id from there on, and
    /// begin a new part otherwise.
    pub(crate) fn same_answer(mut self, from: usize) -> Self {
        self.same_answer = Some(from);
        self
    }

    /// The chunks to append to the log for the next chunk of the attempt.
    pub fn next(&mut self, chunk: Chunk) -> Vec<Chunk> {
        let mut out = Vec::new();
        match chunk.kind() {
            "start" if self.started => out.extend(chunk.get("messageMetadata").cloned().map(Chunk::metadata)),
            "start" => {
                self.started = true;
                out.push(chunk);
            }
            "start-step" => match &mut self.left {
                Some(left) => left.held = Some(chunk),
                None => out.push(chunk),
            },
            "text-start" => self.begin(Prose::Text, chunk, &mut out),
            "reasoning-start" => self.begin(Prose::Reasoning, chunk, &mut out),
            "text-delta" | "text-end" => self.go_on(Prose::Text, chunk, &mut out),
            "reasoning-delta" | "reasoning-end" => self.go_on(Prose::Reasoning, chunk, &mut out),
            kind if kind.starts_with("tool-") => {
                let call = chunk.str("toolCallId").and_then(|call| self.calls.get(call)).copied();
                if call.is_none_or(|call| !call.is_past(kind)) {
                    let written = call == Some(Call::Writing) && kind.starts_with("tool-input-");
                    self.decide(None, written, &mut out);
                    out.push(chunk);
                }
            }
            "file" | "finish" => {
                self.decide(None, false, &mut out);
                out.push(chunk);
            }
            "finish-step" => {
                self.decide(None, false, &mut out);
                self.open.clear();
                self.names.clear();
                out.push(chunk);
            }
            _ => out.push(chunk),
        }
        out
    }

    fn begin(&mut self, prose: Prose, mut chunk: Chunk, out: &mut Vec<Chunk>) {
        let Some(id) = chunk.str("id").map(str::to_owned) else { return out.push(chunk) };
        let Some(at) = self.to_go_on_with(prose, &id) else {
            self.decide(None, false, out);
            let name = self.free_name(prose, &id);
            chunk.set("id", name.as_str());
            out.push(chunk);
            self.open.insert((prose, name.clone()));
            self.names.insert((prose, id), name);
            return;
        };
        let name = self.decide(Some(at), true, out).unwrap_or_default();
        if let Some(metadata) = chunk.remove("providerMetadata") {
            let mut nothing = match prose {
                Prose::Text => Chunk::text_delta(&name, ""),
                Prose::Reasoning => Chunk::reasoning_delta(&name, ""),
            };
            nothing.set("providerMetadata", metadata);
            out.push(nothing);
        }
        self.names.insert((prose, id), name);
    }

    fn go_on(&mut self, prose: Prose, mut chunk: Chunk, out: &mut Vec<Chunk>) {
        let Some(id) = chunk.str("id").map(str::to_owned) else { return out.push(chunk) };
        let part = (prose, id);
        if let Some(name) = self.names.get(&part) {
            chunk.set("id", name.as_str());
        } else if self.left.as_ref().is_some_and(|left| left.open.iter().any(|open| open.prose == prose && open.id == part.1)) {
            // The attempt continues the stream itself where it was cut off: it knows the open
            // parts, and will end them.
            self.left = None;
        }
        if chunk.kind().ends_with("-end") {
            let name = self.names.remove(&part).unwrap_or(part.1);
            self.open.remove(&(prose, name));
        }
        out.push(chunk);
    }

    /// Index of the left part that continues when text or reasoning begins.
    fn to_go_on_with(&self, prose: Prose, id: &str) -> Option<usize> {
        let left = self.left.as_ref()?;
        let goes_on = |open: &OpenPart| match (self.same_answer, prose) {
            (Some(from), _) if open.at >= from => open.id == id,
            (_, Prose::Reasoning) => !self.reasoning_apart,
            (_, Prose::Text) => true,
        };
        left.last.filter(|&last| left.open[last].prose == prose && goes_on(&left.open[last]))
    }

    /// Handles the first content of the attempt: ends the open parts except the one that is
    /// continued, whose id is returned.
    fn decide(&mut self, on: Option<usize>, same_step: bool, out: &mut Vec<Chunk>) -> Option<String> {
        let left = self.left.take()?;
        let mut name = None;
        for (at, part) in left.open.into_iter().enumerate() {
            if Some(at) == on {
                name = Some(part.id);
            } else {
                out.push(part.end());
                self.open.remove(&(part.prose, part.id));
            }
        }
        if !same_step && !left.in_new_step {
            out.extend(left.held);
        }
        name
    }

    /// Id in the log for a part that the attempt begins: the attempt's own, unless a part with that
    /// id is open.
    fn free_name(&self, prose: Prose, id: &str) -> String {
        let part = (prose, id.to_owned());
        if self.names.get(&part).is_some_and(|name| name == id) || !self.open.contains(&part) {
            return part.1;
        }
        let mut n = 2_u64;
        loop {
            let name = (prose, format!("{id}-{n}"));
            if !self.open.contains(&name) {
                return name.1;
            }
            n += 1;
        }
    }
}

impl Call {
    /// Whether a chunk repeats progress that is in the log already.
    fn is_past(self, kind: &str) -> bool {
        let input = matches!(kind, "tool-input-start" | "tool-input-delta" | "tool-input-available");
        match self {
            Call::Writing => false,
            Call::Given => input,
            Call::Answered => input || kind == "tool-approval-request",
            Call::Settled => true,
        }
    }
}
