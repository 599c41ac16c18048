//! Builds the parts of tool calls from their chunks.
//!
//! The part of a chunk is chosen as in the `ai` package: input goes to the part of the call in the
//! current step, which is made if there is none; results go to that part too, or else to the last
//! part of the call in any step.
use std::collections::BTreeMap;

use forever_runtime::{Error, ErrorKind, Result};
use serde_json::{Map, Value};

use crate::message::chunk::Chunk;
use crate::message::part::{Part, ToolState};
use crate::message::partial_json;

/// The calls whose input is being written, by id.
#[derive(Debug, Clone, Default)]
pub(super) struct Calls {
    writing: BTreeMap<String, Writing>,
    /// Indexes of the parts whose `input` and `rawInput` lag behind, with their calls.
    stale: BTreeMap<usize, String>,
}

/// A call whose input is being written.
#[derive(Debug, Clone)]
struct Writing {
    tool: String,
    dynamic: bool,
    /// The input so far.
    text: String,
    /// `text`, if the input is not JSON.
    encoding: Option<Value>,
    title: Option<Value>,
    metadata: Option<Value>,
}

impl Writing {
    fn input(&self) -> Option<Value> {
        if self.encoding.as_ref().is_some_and(|encoding| encoding == "text") {
            return Some(self.text.as_str().into());
        }
        partial_json::read(&self.text)
    }
}

/// Fields that a chunk sets in the part of its call.
#[derive(Default)]
struct News<'a> {
    call: &'a str,
    tool: &'a str,
    dynamic: bool,
    input: Option<Value>,
    output: Option<Value>,
    raw_input: Option<Value>,
    error: Option<Value>,
    encoding: Option<Value>,
    preliminary: Option<Value>,
    title: Option<Value>,
    metadata: Option<Value>,
    executed: Option<Value>,
    provider_metadata: Option<Value>,
}

impl<'a> News<'a> {
    fn of(chunk: &'a Chunk) -> Self {
        let field = |name| chunk.get(name).cloned();
        News {
            call: chunk.str("toolCallId").unwrap_or_default(),
            tool: chunk.str("toolName").unwrap_or_default(),
            dynamic: chunk.get("dynamic") == Some(&Value::Bool(true)),
            metadata: field("toolMetadata"),
            executed: field("providerExecuted"),
            provider_metadata: field("providerMetadata"),
            ..News::default()
        }
    }
}

impl Calls {
    /// The calls of the last step of a message whose input has no end.
    pub(super) fn of(parts: &[Part]) -> Self {
        let unfinished = parts[running_step(parts)..].iter().filter(|part| part.tool_state() == Some(ToolState::InputStreaming));
        let writing = unfinished.filter_map(|part| {
            let writing = Writing {
                tool: part.tool_name()?.to_owned(),
                dynamic: is_dynamic(part),
                text: part.str("rawInput").unwrap_or_default().to_owned(),
                encoding: part.get("inputEncoding").cloned(),
                title: part.get("title").cloned(),
                metadata: part.get("toolMetadata").cloned(),
            };
            Some((part.tool_call_id()?.to_owned(), writing))
        });
        Calls { writing: writing.collect(), stale: BTreeMap::new() }
    }

    /// Applies a chunk whose fields have been checked.
    pub(super) fn apply(&mut self, parts: &mut Vec<Part>, chunk: &Chunk) -> Result<()> {
        if chunk.kind() == "tool-input-delta" {
            return self.input_delta(parts, chunk);
        }
        self.settle(parts);
        match chunk.kind() {
            "tool-input-start" => self.input_start(parts, chunk),
            "tool-input-available" => {
                let news = News { input: chunk.get("input").cloned(), title: chunk.get("title").cloned(), ..News::of(chunk) };
                update_input(parts, ToolState::InputAvailable, news);
            }
            "tool-input-error" => input_error(parts, chunk),
            "tool-output-available" | "tool-output-error" => {
                let at = find(parts, chunk)?;
                give_result(&mut parts[at], chunk);
            }
            "tool-output-denied" => {
                let at = find(parts, chunk)?;
                parts[at].set("state", ToolState::OutputDenied.as_str());
            }
            "tool-approval-request" => {
                let at = find(parts, chunk)?;
                parts[at].set("state", ToolState::ApprovalRequested.as_str());
                parts[at].set("approval", approval(chunk));
            }
            _ => {}
        }
        Ok(())
    }

    /// Updates the input of all parts to the text so far.
    pub(super) fn settle(&mut self, parts: &mut [Part]) {
        for (at, call) in std::mem::take(&mut self.stale) {
            if let Some(writing) = self.writing.get(&call) {
                parts[at].put("input", writing.input());
                parts[at].set("rawInput", writing.text.as_str());
            }
        }
    }

    fn input_start(&mut self, parts: &mut Vec<Part>, chunk: &Chunk) {
        let news = News { encoding: chunk.get("inputEncoding").cloned(), title: chunk.get("title").cloned(), ..News::of(chunk) };
        let writing = Writing {
            tool: news.tool.to_owned(),
            dynamic: news.dynamic,
            text: String::new(),
            encoding: news.encoding.clone(),
            title: news.title.clone(),
            metadata: news.metadata.clone(),
        };
        self.writing.insert(news.call.to_owned(), writing);
        update_input(parts, ToolState::InputStreaming, news);
    }

    fn input_delta(&mut self, parts: &mut Vec<Part>, chunk: &Chunk) -> Result<()> {
        let call = chunk.str("toolCallId").unwrap_or_default();
        let Some(writing) = self.writing.get_mut(call) else {
            let why = format!("chunk `{}`: the input of call `{call}` has not begun", chunk.kind());
            return Err(Error::new(ErrorKind::Value, why));
        };
        writing.text.push_str(chunk.str("inputTextDelta").unwrap_or_default());
        let before = find_input(parts, call, writing.dynamic);
        if before.is_some_and(|at| self.stale.contains_key(&at)) {
            return Ok(());
        }
        let mut news = News {
            call,
            tool: &writing.tool,
            dynamic: writing.dynamic,
            encoding: writing.encoding.clone(),
            title: writing.title.clone(),
            metadata: writing.metadata.clone(),
            ..News::default()
        };
        if let Some(at) = before {
            self.stale.insert(at, call.to_owned());
        } else {
            news.input = writing.input();
            news.raw_input = Some(writing.text.as_str().into());
        }
        update_input(parts, ToolState::InputStreaming, news);
        Ok(())
    }
}

/// Index at which the current step begins.
fn running_step(parts: &[Part]) -> usize {
    parts.iter().rposition(|part| part.kind() == "step-start").map_or(0, |at| at + 1)
}

fn is_dynamic(part: &Part) -> bool {
    part.kind() == "dynamic-tool"
}

/// Index of the part for the input of a call.
fn find_input(parts: &[Part], call: &str, dynamic: bool) -> Option<usize> {
    let step = running_step(parts);
    let found = parts[step..].iter().position(|part| part.tool_call_id() == Some(call) && is_dynamic(part) == dynamic)?;
    Some(step + found)
}

/// Index of the part for the result of a call.
fn find(parts: &[Part], chunk: &Chunk) -> Result<usize> {
    let call = chunk.str("toolCallId").unwrap_or_default();
    let of_call = |part: &Part| part.tool_call_id() == Some(call);
    let step = running_step(parts);
    let here = parts[step..].iter().position(of_call).map(|at| step + at);
    here.or_else(|| parts.iter().rposition(of_call))
        .ok_or_else(|| Error::new(ErrorKind::Value, format!("chunk `{}`: there is no call `{call}`", chunk.kind())))
}

fn input_error(parts: &mut Vec<Part>, chunk: &Chunk) {
    let mut news = News { error: chunk.get("errorText").cloned(), ..News::of(chunk) };
    let before = parts[running_step(parts)..].iter().find(|part| part.tool_call_id() == Some(news.call));
    news.dynamic = before.map_or(news.dynamic, is_dynamic);
    let input = chunk.get("input").cloned();
    if news.dynamic {
        news.input = input;
    } else {
        news.raw_input = input;
    }
    update_input(parts, ToolState::OutputError, news);
}

/// Sets the result or error of a call from a chunk.
pub(super) fn give_result(part: &mut Part, chunk: &Chunk) {
    let field = |name| chunk.get(name).cloned();
    if chunk.kind() == "tool-output-available" {
        let news = News { output: field("output"), preliminary: field("preliminary"), ..News::of(chunk) };
        return update(part, ToolState::OutputAvailable, news);
    }
    // The client drops the text of a dynamic call here.
    let raw_input = if is_dynamic(part) { None } else { part.get("rawInput").cloned() };
    update(part, ToolState::OutputError, News { error: field("errorText"), raw_input, ..News::of(chunk) });
}

/// The approval that a person is asked for.
fn approval(chunk: &Chunk) -> Value {
    let mut approval = Map::new();
    approval.insert("id".to_owned(), chunk.get("approvalId").cloned().unwrap_or_default());
    for (field, from) in [("descriptor", "approvalDescriptor"), ("inputSchemaInput", "inputSchemaInput"), ("signature", "signature")] {
        match chunk.get(from) {
            Some(Value::Null) if field == "descriptor" => {}
            Some(value) => drop(approval.insert(field.to_owned(), value.clone())),
            None => {}
        }
    }
    approval.into()
}

/// Updates the part for the input of a call, or creates it.
fn update_input(parts: &mut Vec<Part>, state: ToolState, mut news: News<'_>) {
    let at = find_input(parts, news.call, news.dynamic).unwrap_or_else(|| {
        let mut part = Part(Map::new());
        part.set("toolCallId", news.call);
        parts.push(part);
        if news.dynamic {
            // The client keeps the text of a dynamic call from the second piece on.
            news.raw_input = None;
        }
        parts.len() - 1
    });
    let part = &mut parts[at];
    if news.dynamic {
        part.set("type", "dynamic-tool");
        part.set("toolName", news.tool);
    } else {
        part.set("type", format!("tool-{}", news.tool));
    }
    part.put("input", news.input.take());
    update(part, state, news);
}

/// Sets the fields that all chunks of calls set.
fn update(part: &mut Part, state: ToolState, news: News<'_>) {
    part.set("state", state.as_str());
    part.put("output", news.output);
    part.put("errorText", news.error);
    part.put("rawInput", news.raw_input);
    part.put("inputEncoding", news.encoding);
    part.put("preliminary", news.preliminary);
    let result = matches!(state, ToolState::OutputAvailable | ToolState::OutputError);
    let provider = if result { "resultProviderMetadata" } else { "callProviderMetadata" };
    for (field, value) in
        [("title", news.title), ("toolMetadata", news.metadata), ("providerExecuted", news.executed), (provider, news.provider_metadata)]
    {
        if let Some(value) = value {
            part.set(field, value);
        }
    }
}
