//! The conversation as providers want it: one who says something after the other, and tools' results apart from their calls.
//!
//! A message of the AI SDK holds several calls of the model, each a *step* with its tools' results inside. Here each step becomes what the model said,
//! followed by what its tools gave. What providers refuse does not come out: empty text, calls whose input had not come whole, calls without a
//! result, an answer in the last place.
use serde_json::Value;

use crate::chat::message::{Part, Role, ToolState};
use crate::chat::model::chat_model::{ModelError, ModelErrorKind, ModelRequest};

/// What is said at once.
#[derive(Debug)]
pub(super) enum Said<'a> {
    /// What the model is told in between.
    System(String),
    /// What a person says: text and files, at least one of them.
    User(Vec<&'a Part>),
    /// What the model has said: text or tool calls, at least one of them, and reasoning.
    Model(Vec<Piece<'a>>),
    /// What the tools have given for those calls, in their order.
    Tools(Vec<Outcome>),
    /// What the model is asked so that it goes on.
    GoOn(&'a str),
}

/// A piece of what the model has said.
#[derive(Debug)]
pub(super) enum Piece<'a> {
    /// Not blank, and all of it up to the next piece: an answer that went on is in several parts, which may be cut in the middle of a word.
    Text(String),
    Reasoning(&'a Part),
    Call(&'a Part),
}

/// What a tool has given.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) call: String,
    pub(super) text: String,
    pub(super) failed: bool,
}

/// What is done about an answer that was cut off, or that stands in the last place.
#[derive(Debug, Clone, Copy)]
pub(super) enum Continue<'a> {
    /// The model is asked to go on, in these words.
    Ask(&'a str),
    /// Nothing: the provider continues the last message.
    Prefill,
}

/// The conversation of a request, with what had come of an answer that was cut off.
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
        // Reasoning alone is nothing to go on from: the model thinks again.
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

/// Whether an answer that was cut off has got as far as tool calls: then they come first, and it is not asked for again. The model goes on when it
/// has their results; asked earlier, it would make them a second time.
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

/// Whether it is a call that the provider has to be told of: those that it has run itself it does not want back, and one whose input had not come
/// whole it has never made.
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
        // Whoever asks the model has not waited for it.
        _ => ("There is no result.".to_owned(), true),
    };
    Outcome { call: part.tool_call_id().unwrap_or_default().to_owned(), text, failed }
}

/// A value as a tool gives it: text as it is, anything else as JSON.
fn as_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The input of a tool call: what was there when it could not be understood is `rawInput`.
pub(super) fn input(call: &Part) -> &Value {
    call.get("input").filter(|input| !input.is_null()).or_else(|| call.get("rawInput")).unwrap_or(&Value::Null)
}

/// The input of a tool call as JSON text.
pub(super) fn input_text(call: &Part) -> String {
    match input(call) {
        Value::Null => "{}".to_owned(),
        // What was no JSON goes back as it came.
        Value::String(text) => text.clone(),
        input => input.to_string(),
    }
}

/// What the provider `name` wants to be told again about a part.
pub(super) fn metadata<'a>(part: &'a Part, name: &str, field: &str) -> Option<&'a str> {
    part.get("providerMetadata")?.get(name)?.get(field)?.as_str()
}

/// A file: what it is, where it is, and what it is called.
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

    /// Its bytes in base64, if they are in its URL.
    pub(super) fn base64(&self) -> Option<&'a str> {
        let (head, data) = self.url.strip_prefix("data:")?.split_once(',')?;
        head.ends_with(";base64").then_some(data)
    }

    /// Whether it is somewhere else, at an address that the provider can ask.
    pub(super) fn is_remote(&self) -> bool {
        self.url.starts_with("https://") || self.url.starts_with("http://")
    }

    /// The provider does not take files such as this one.
    pub(super) fn refused(&self) -> ModelError {
        let name = self.name.map(|name| format!(" `{name}`")).unwrap_or_default();
        ModelError::new(ModelErrorKind::Invalid, format!("the file{name} of type `{}` cannot be sent to this model", self.media_type))
    }
}
