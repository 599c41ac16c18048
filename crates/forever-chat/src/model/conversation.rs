//! The conversation in the form that providers expect: alternating speakers, with tool results
//! apart from their calls.
//!
//! A message of the AI SDK contains several calls of the model, each a *step* with its tools'
//! results inside. Here each step becomes the model's output, followed by the results of its tools.
//! Content that providers refuse is left out: empty text, calls with incomplete input, calls
//! without a result, an answer in the last place.
use serde_json::Value;

use crate::message::{Part, Role, ToolState};
use crate::model::chat_model::{ModelError, ModelErrorKind, ModelRequest};

/// One turn of a speaker.
#[derive(Debug)]
pub(super) enum Said<'a> {
    /// System message within the conversation.
    System(String),
    /// Message of a person: text and files, at least one of them.
    User(Vec<&'a Part>),
    /// Output of the model: text or tool calls, at least one of them, and reasoning.
    Model(Vec<Piece<'a>>),
    /// Results of the tools of those calls, in order.
    Tools(Vec<Outcome>),
    /// Request to the model to continue.
    GoOn(&'a str),
}

/// Piece of the model's output.
#[derive(Debug)]
pub(super) enum Piece<'a> {
    /// Not blank, and all text up to the next piece: a continued answer is in several parts, which
    /// may be split in the middle of a word.
    Text(String),
    Reasoning(&'a Part),
    Call(&'a Part),
}

/// Result of a tool.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) call: String,
    pub(super) text: String,
    pub(super) failed: bool,
}

/// How to continue an answer that was cut off, or is in the last place.
#[derive(Debug, Clone, Copy)]
pub(super) enum Continue<'a> {
    /// Ask the model to continue, in these words.
    Ask(&'a str),
    /// Ask nothing: the provider continues the last message.
    Prefill,
}

/// The conversation of a request, including the part of an answer that was cut off.
pub(super) fn said<'a>(request: &'a ModelRequest, continued: Continue<'a>) -> Vec<Said<'a>> {
    let mut all = Vec::new();
    for message in &request.messages {
        match message.role {
            Role::System => {
                let text = message.text();
                if !text.trim().is_empty() {
                    all.push(Said::System(text));
                }
            }
            Role::User => {
                let parts: Vec<&Part> = message.parts.iter().filter(|part| is_text(part) || part.kind() == "file").collect();
                if !parts.is_empty() {
                    all.push(Said::User(parts));
                }
            }
            Role::Assistant => message.parts.split(|part| part.kind() == "step-start").for_each(|step| add_step(&mut all, step)),
        }
    }
    if let Some(interrupted) = &request.interrupted {
        // Reasoning alone cannot be continued: the model reasons again.
        if interrupted.parts.iter().any(is_text) {
            add_step(&mut all, &interrupted.parts);
        }
    }
    let last = all.iter().rfind(|said| !matches!(said, Said::System(_)));
    if let (Some(Said::Model(_)), Continue::Ask(words)) = (last, continued) {
        all.push(Said::GoOn(words));
    }
    all
}

/// Whether an answer that was cut off has reached tool calls. Then they run first, and the answer
/// is not requested again. The model continues when it has their results; called earlier, it would
/// make the calls a second time.
pub(super) fn waits_for_tools(request: &ModelRequest) -> bool {
    request.interrupted.as_ref().is_some_and(|interrupted| interrupted.parts.iter().any(is_call))
}

fn add_step<'a>(all: &mut Vec<Said<'a>>, parts: &'a [Part]) {
    let mut pieces: Vec<Piece<'a>> = Vec::new();
    for part in parts {
        if let Some(text) = part.as_text() {
            match pieces.last_mut() {
                Some(Piece::Text(there)) => there.push_str(text),
                _ => pieces.push(Piece::Text(text.to_owned())),
            }
        } else if part.kind() == "reasoning" {
            pieces.push(Piece::Reasoning(part));
        } else if is_call(part) {
            pieces.push(Piece::Call(part));
        }
    }
    pieces.retain(|piece| !matches!(piece, Piece::Text(text) if text.trim().is_empty()));
    if pieces.iter().all(|piece| matches!(piece, Piece::Reasoning(_))) {
        return;
    }
    let outcomes: Vec<Outcome> =
        pieces.iter().filter_map(|piece| if let Piece::Call(part) = piece { Some(outcome(part)) } else { None }).collect();
    all.push(Said::Model(pieces));
    if !outcomes.is_empty() {
        all.push(Said::Tools(outcomes));
    }
}

fn is_text(part: &Part) -> bool {
    part.as_text().is_some_and(|text| !text.trim().is_empty())
}

/// Whether it is a call that the provider needs to see. It does not accept back the calls that it
/// has run itself, and it has never made a call whose input is incomplete.
fn is_call(part: &Part) -> bool {
    part.is_tool()
        && part.tool_state() != Some(ToolState::InputStreaming)
        && part.get("providerExecuted").and_then(Value::as_bool) != Some(true)
}

fn outcome(part: &Part) -> Outcome {
    let text = |field: &str| part.get(field).and_then(Value::as_str).map(str::to_owned);
    let (text, failed) = match part.tool_state() {
        Some(ToolState::OutputAvailable) => (as_text(part.get("output").unwrap_or(&Value::Null)), false),
        Some(ToolState::OutputError) => (text("errorText").unwrap_or_else(|| "The tool has failed.".to_owned()), true),
        Some(ToolState::OutputDenied) => {
            let reason = part.get("approval").and_then(|approval| approval.get("reason")).and_then(Value::as_str);
            (reason.map_or_else(|| "The person has refused.".to_owned(), |reason| format!("The person has refused: {reason}")), true)
        }
        // The caller of the model has not waited for the result.
        _ => ("There is no result.".to_owned(), true),
    };
    Outcome { call: part.tool_call_id().unwrap_or_default().to_owned(), text, failed }
}

/// A result of a tool as text: text unchanged, any other value as JSON.
fn as_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The input of a tool call; one that could not be parsed is in `rawInput`.
pub(super) fn input(call: &Part) -> &Value {
    call.get("input").filter(|input| !input.is_null()).or_else(|| call.get("rawInput")).unwrap_or(&Value::Null)
}

/// The input of a tool call as JSON text.
pub(super) fn input_text(call: &Part) -> String {
    match input(call) {
        Value::Null => "{}".to_owned(),
        // Input that was not JSON is sent back unchanged.
        Value::String(text) => text.clone(),
        input => input.to_string(),
    }
}

/// The value that the provider `name` needs back with a part.
pub(super) fn metadata<'a>(part: &'a Part, name: &str, field: &str) -> Option<&'a str> {
    part.get("providerMetadata")?.get(name)?.get(field)?.as_str()
}

/// A file: its type, its address, and its name.
pub(super) struct File<'a> {
    pub(super) media_type: &'a str,
    pub(super) url: &'a str,
    pub(super) name: Option<&'a str>,
}

impl<'a> File<'a> {
    pub(super) fn of(part: &'a Part) -> Self {
        let text = |field: &str| part.get(field).and_then(Value::as_str);
        File { media_type: text("mediaType").unwrap_or_default(), url: text("url").unwrap_or_default(), name: text("filename") }
    }

    pub(super) fn is_image(&self) -> bool {
        self.media_type.starts_with("image/")
    }

    /// Its bytes in base64, if its URL contains them.
    pub(super) fn base64(&self) -> Option<&'a str> {
        let (head, data) = self.url.strip_prefix("data:")?.split_once(',')?;
        head.ends_with(";base64").then_some(data)
    }

    /// Whether it is at an address that the provider can fetch.
    pub(super) fn is_remote(&self) -> bool {
        self.url.starts_with("https://") || self.url.starts_with("http://")
    }

    /// Error for a file that the provider does not accept.
    pub(super) fn refused(&self) -> ModelError {
        let name = self.name.map(|name| format!(" `{name}`")).unwrap_or_default();
        ModelError::new(ModelErrorKind::Invalid, format!("the file{name} of type `{}` cannot be sent to this model", self.media_type))
    }
}
