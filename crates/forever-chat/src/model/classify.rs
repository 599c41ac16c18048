//! Classifies the error responses of providers.
use serde_json::Value;

use crate::model::chat_model::{ModelError, ModelErrorKind};

/// Maximum length of a provider's text in an error, in characters.
const MAX_TEXT: usize = 400;

/// Phrases by which providers and servers report that a conversation is longer than the model can
/// read.
const OVERFLOW: &[&str] = &[
    "context_length_exceeded",
    "model_context_window_exceeded",
    "exceed_context_size",
    "prompt is too long",
    "input is too long",
    "prompt too long",
    "maximum context length",
    "maximum prompt length",
    "exceed context limit",
    "exceeds the context window",
    "exceeds the model's context",
    "exceeds the available context size",
    "context window exceeded",
    "context length exceeded",
    "input token count",
    "reduce the length of the messages",
    "too large for model with",
    "`inputs` tokens + `max_new_tokens`",
    "input tokens exceed",
];

const DENIED: &[&str] = &[
    "insufficient_quota",
    "billing_error",
    "billing_hard_limit_reached",
    "billing_not_active",
    "account_deactivated",
    "invalid_api_key",
    "authentication_error",
    "permission_error",
    "permission_denied",
    "unauthenticated",
    "credit balance is too low",
    "insufficient balance",
    "exceeded your current quota",
];

const RATE_LIMITED: &[&str] = &["rate_limit", "too_many_requests", "resource_exhausted", "throttling"];

const TRANSIENT: &[&str] = &[
    "overloaded",
    "server_error",
    "internal_error",
    "internalservererror",
    "api_error",
    "timeout",
    "unavailable",
    "slow_down",
    "bad_gateway",
    "connection_error",
];

const INVALID: &[&str] =
    &["invalid", "not_found", "unsupported", "content_filter", "content_policy", "policy_violation", "badrequest", "bad_request"];

/// Error of a provider's response, from its status and its body. The body may be JSON of any
/// provider known here, or any text. For an error in the stream of an accepted request, pass the
/// status 200 and the data of its event.
///
/// The message is the provider's own, if there is one: shortened, and without anything that looks
/// like a key.
///
/// ```
/// use forever::chat::model::{ModelErrorKind, classify};
///
/// let body = r#"{"error":{"message":"This model's maximum context length is 8192 tokens.","code":"context_length_exceeded"}}"#;
/// assert_eq!(classify(400, body).kind(), ModelErrorKind::ContextOverflow);
/// assert_eq!(classify(502, "<html>Bad Gateway</html>").kind(), ModelErrorKind::Transient);
/// ```
pub fn classify(status: u16, body: &str) -> ModelError {
    let json = serde_json::from_str(body).unwrap_or(Value::Null);
    let said = Said::of(&json);
    // Some servers accept every request, and put the status into the body.
    let status = if (200..300).contains(&status) { said.status } else { Some(status) };
    let message = said.message.as_deref().unwrap_or(body).trim();
    let mut text = match status {
        Some(status) => format!("the provider answered {status}"),
        None => "the provider's answer broke off".to_owned(),
    };
    // The page of a proxy adds nothing to the status.
    if !message.is_empty() && !message.starts_with('<') {
        text = format!("{text}: {}", shortened(&without_keys(message)));
    }
    ModelError::new(kind(status, &said.words, &message.to_lowercase()), text)
}

fn kind(status: Option<u16>, words: &str, message: &str) -> ModelErrorKind {
    let says = |list: &[&str]| list.iter().any(|word| words.contains(word) || message.contains(word));
    let named = |list: &[&str]| list.iter().any(|word| words.contains(word));
    // After a limit of tokens per minute, or a request to pay, a shorter conversation does not
    // help.
    if says(DENIED) {
        return ModelErrorKind::Denied;
    }
    if status == Some(429) || named(RATE_LIMITED) {
        return ModelErrorKind::RateLimited;
    }
    if status == Some(413) || says(OVERFLOW) {
        return ModelErrorKind::ContextOverflow;
    }
    match status {
        Some(401..=403 | 407) => ModelErrorKind::Denied,
        // The first four mean that a server or proxy gave up; the same request may succeed.
        Some(408 | 409 | 421 | 425) => ModelErrorKind::Transient,
        Some(400..=499 | 501 | 505) => ModelErrorKind::Invalid,
        Some(500..) => ModelErrorKind::Transient,
        Some(_) => ModelErrorKind::Other,
        None if !named(TRANSIENT) && named(INVALID) => ModelErrorKind::Invalid,
        // The request was accepted and its answer broke off, which need not happen again.
        None => ModelErrorKind::Transient,
    }
}

/// Content of a body.
struct Said {
    /// Its code, type and similar fields, in lower case.
    words: String,
    message: Option<String>,
    status: Option<u16>,
}

impl Said {
    fn of(json: &Value) -> Self {
        // Google wraps its errors in a list.
        let json = json.as_array().and_then(|list| list.first()).unwrap_or(json);
        let error = json.get("error").filter(|error| !error.is_null()).unwrap_or(json);
        let field = |name: &str| error.get(name).or_else(|| json.get(name));
        let text = |name: &str| field(name).and_then(Value::as_str);
        let words: Vec<&str> = ["code", "type", "status"].into_iter().filter_map(text).collect();
        let status = ["code", "status", "status_code"].into_iter().filter_map(field).find_map(|value| {
            let number = value.as_u64().or_else(|| value.as_str()?.parse().ok())?;
            u16::try_from(number).ok().filter(|status| (400..600).contains(status))
        });
        let message = ["message", "detail", "details"].into_iter().find_map(text).or_else(|| error.as_str());
        Said { words: words.join(" ").to_lowercase(), message: message.map(str::to_owned), status }
    }
}

pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT).and_then(|(end, _)| text.get(..end)) {
        Some(start) => format!("{start}…"),
        None => text.to_owned(),
    }
}

/// The text with each word that looks like a key replaced. Some servers repeat the key that they
/// refuse.
fn without_keys(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut after_bearer = false;
    for word in text.split_inclusive(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '*'))) {
        let bare = word.trim_end_matches(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '*')));
        let prefixed =
            ["sk-", "sk_", "pk-", "rk-", "gsk_", "xai-", "key-", "AIza", "hf_", "r8_", "nvapi-"].iter().any(|p| bare.starts_with(p));
        if (prefixed && bare.len() >= 12) || (after_bearer && bare.len() >= 8) {
            clean.push_str("[key]");
            clean.push_str(word.strip_prefix(bare).unwrap_or_default());
        } else {
            clean.push_str(word);
        }
        after_bearer = bare.eq_ignore_ascii_case("bearer");
    }
    clean
}

#[cfg(test)]
mod tests;
