//! Validation of the fields of a chunk, by the same rules as in the `ai` package.
//!
//! A chunk that breaks them would end the stream in every client that validates, so it is refused
//! before it is stored.
use forever_runtime::{Error, ErrorKind, Result};
use serde_json::Value;

use crate::message::chunk::Chunk;
use crate::message::ui_message::{MAX_NESTING, nests_deeper};

/// Type that a field must have.
#[derive(Clone, Copy)]
enum Rule {
    Text,
    Flag,
    Object,
    /// An object of objects: one per provider.
    Metadata,
    OneOf(&'static [&'static str]),
    Anything,
}

use Rule::{Anything, Flag, Metadata, Object, OneOf, Text};

impl Rule {
    fn allows(self, value: &Value) -> bool {
        match self {
            Text => value.is_string(),
            Flag => value.is_boolean(),
            Object => value.is_object(),
            Metadata => value.as_object().is_some_and(|providers| providers.values().all(Value::is_object)),
            OneOf(words) => value.as_str().is_some_and(|word| words.contains(&word)),
            Anything => true,
        }
    }

    fn named(self) -> String {
        match self {
            Text => "text".to_owned(),
            Flag => "true or false".to_owned(),
            Object => "an object".to_owned(),
            Metadata => "an object of objects".to_owned(),
            OneOf(words) => format!("one of `{}`", words.join("`, `")),
            Anything => "there".to_owned(),
        }
    }
}

struct Fields {
    must: &'static [(&'static str, Rule)],
    may: &'static [(&'static str, Rule)],
}

const PROVIDER: (&str, Rule) = ("providerMetadata", Metadata);
const EXECUTED: (&str, Rule) = ("providerExecuted", Flag);
const TOOL_METADATA: (&str, Rule) = ("toolMetadata", Object);
const DYNAMIC: (&str, Rule) = ("dynamic", Flag);
const TITLE: (&str, Rule) = ("title", Text);
const CALL: (&str, Rule) = ("toolCallId", Text);
const NAME: (&str, Rule) = ("toolName", Text);
const ERROR: (&str, Rule) = ("errorText", Text);
const ID: (&str, Rule) = ("id", Text);
const REASONS: &[&str] = &["stop", "length", "content-filter", "tool-calls", "error", "other"];

/// The fields of a kind of chunk; `None` for an unknown kind.
fn fields(kind: &str) -> Option<Fields> {
    let (must, may): (&'static [_], &'static [_]) = match kind {
        "text-start" | "text-end" | "reasoning-start" | "reasoning-end" => (&[ID], &[PROVIDER]),
        "text-delta" | "reasoning-delta" => (&[ID, ("delta", Text)], &[PROVIDER]),
        "error" => (&[ERROR], &[]),
        "tool-input-start" => {
            (&[CALL, NAME], &[("inputEncoding", OneOf(&["json", "text"])), EXECUTED, PROVIDER, TOOL_METADATA, DYNAMIC, TITLE])
        }
        "tool-input-delta" => (&[CALL, ("inputTextDelta", Text)], &[]),
        "tool-input-available" => (&[CALL, NAME, ("input", Anything)], &[EXECUTED, PROVIDER, TOOL_METADATA, DYNAMIC, TITLE]),
        "tool-input-error" => (&[CALL, NAME, ("input", Anything), ERROR], &[EXECUTED, PROVIDER, TOOL_METADATA, DYNAMIC, TITLE]),
        "tool-approval-request" => (&[CALL, ("approvalId", Text)], &[("signature", Text)]),
        "tool-output-available" => (&[CALL, ("output", Anything)], &[EXECUTED, PROVIDER, TOOL_METADATA, DYNAMIC, ("preliminary", Flag)]),
        "tool-output-error" => (&[CALL, ERROR], &[EXECUTED, PROVIDER, TOOL_METADATA, DYNAMIC]),
        "tool-output-denied" => (&[CALL], &[]),
        "source-url" => (&[("sourceId", Text), ("url", Text)], &[TITLE, PROVIDER]),
        "source-document" => (&[("sourceId", Text), ("mediaType", Text), TITLE], &[("filename", Text), PROVIDER]),
        "file" => (&[("url", Text), ("mediaType", Text)], &[PROVIDER]),
        "start" => (&[], &[("messageId", Text)]),
        "finish" => (&[], &[("finishReason", OneOf(REASONS))]),
        "abort" => (&[], &[("reason", Text)]),
        "message-metadata" => (&[("messageMetadata", Anything)], &[]),
        kind if kind.starts_with("data-") => (&[("data", Anything)], &[ID, ("transient", Flag)]),
        _ => return None,
    };
    Some(Fields { must, may })
}

/// Checks that a client would accept a chunk. Unknown kinds are accepted, whatever they contain. No
/// chunk is accepted whose values are nested too deeply to be read again.
///
/// # Errors
/// Of kind [`Value`](ErrorKind::Value), naming the first field that is missing or of the wrong
/// type.
pub(super) fn check(chunk: &Chunk) -> Result<()> {
    if chunk.0.values().any(|value| nests_deeper(value, MAX_NESTING)) {
        let why = format!("chunk `{}`: it is nested deeper than {MAX_NESTING} levels", chunk.kind());
        return Err(Error::new(ErrorKind::Value, why));
    }
    let Some(fields) = fields(chunk.kind()) else { return Ok(()) };
    let refused = |why: String| Err(Error::new(ErrorKind::Value, format!("chunk `{}`: {why}", chunk.kind())));
    for &(field, rule) in fields.must {
        match chunk.get(field) {
            None => return refused(format!("`{field}` is missing")),
            Some(value) if !rule.allows(value) => return refused(format!("`{field}` is not {}", rule.named())),
            Some(_) => {}
        }
    }
    for &(field, rule) in fields.may {
        if chunk.get(field).is_some_and(|value| !rule.allows(value)) {
            return refused(format!("`{field}` is not {}", rule.named()));
        }
    }
    Ok(())
}
