//! Converts the events of a response to chunks. Pieces carry the ids of their items, so that a
//! stored answer can be compared with the shown part.
use serde_json::{Value, json};

use crate::model::answer::{Answer, Kind};
use crate::model::chat_model::{FinishReason, Finished, ModelError};
use crate::model::classify::classify;
use crate::model::read;
use crate::model::read::Protocol;
use crate::model::sse::Event;

#[derive(Debug, Default)]
pub(super) struct Responses {
    /// Whether the id of the response was returned.
    known: bool,
}

impl Responses {
    fn response(&mut self, response: &Value, answer: &mut Answer) {
        if let Some(id) = response["id"].as_str().filter(|_| !self.known) {
            self.known = true;
            answer.response(id);
        }
    }
}

impl Protocol for Responses {
    fn event(&mut self, event: &Event, answer: &mut Answer) -> Result<(), ModelError> {
        // Some servers end as chat completions do.
        if event.data.trim() == "[DONE]" {
            return Ok(());
        }
        let json = read::json(event)?;
        self.response(&json["response"], answer);
        let (item, delta) = (str(&json, "item_id"), str(&json, "delta"));
        match json["type"].as_str().unwrap_or(&event.name) {
            "response.output_item.added" => begin(&json["item"], answer),
            "response.output_text.delta" | "response.refusal.delta" => {
                answer.more(Kind::Text, &format!("{item}-{}", json["content_index"]), delta, Some(of(item)));
            }
            "response.output_text.annotation.added" => annotation(&json["annotation"], answer),
            "response.reasoning_summary_text.delta" => {
                answer.more(Kind::Reasoning, &format!("{item}-{}", json["summary_index"]), delta, Some(of(item)));
            }
            "response.reasoning_text.delta" => {
                answer.more(Kind::Reasoning, &format!("{item}-text-{}", json["content_index"]), delta, Some(of(item)));
            }
            "response.function_call_arguments.delta" => answer.call_more(item, delta),
            "response.function_call_arguments.done" => answer.call_done(item, json["arguments"].as_str()),
            "response.output_item.done" => end(&json["item"], answer),
            "response.completed" | "response.incomplete" => answer.finish(finished(&json["response"])),
            "response.failed" | "response.cancelled" => {
                let why = &json["response"]["error"];
                return Err(classify(200, &if why.is_null() { String::new() } else { why.to_string() }));
            }
            "error" => return Err(classify(200, &event.data)),
            _ => {}
        }
        Ok(())
    }
}

fn begin(item: &Value, answer: &mut Answer) {
    if item["type"] == "function_call" {
        answer.call(str(item, "id"), str(item, "call_id"), str(item, "name"));
    }
}

/// Completes an item.
fn end(item: &Value, answer: &mut Answer) {
    let id = str(item, "id");
    match item["type"].as_str() {
        Some("message") => answer.close(None),
        Some("reasoning") => match encrypted(item) {
            Some(metadata) => {
                // It may be the only content of the item.
                answer.begin_any(Kind::Reasoning, &format!("{id}-0"), Some(of(id)));
                answer.close(Some(metadata));
            }
            None => answer.close(None),
        },
        Some("function_call") => {
            begin(item, answer);
            answer.call_done(id, item["arguments"].as_str());
        }
        _ => {}
    }
}

/// Metadata of a piece of the item `id`.
pub(super) fn of(id: &str) -> Value {
    json!({ "openai": { "itemId": id } })
}

/// Metadata of reasoning, if it came with content that can be sent back.
pub(super) fn encrypted(item: &Value) -> Option<Value> {
    let content = item["encrypted_content"].as_str().filter(|content| !content.is_empty())?;
    Some(json!({ "openai": { "itemId": str(item, "id"), "reasoningEncryptedContent": content } }))
}

pub(super) fn annotation(annotation: &Value, answer: &mut Answer) {
    if let (Some("url_citation"), Some(url)) = (annotation["type"].as_str(), annotation["url"].as_str()) {
        answer.source(url, annotation["title"].as_str());
    }
}

/// How a completed response has ended.
pub(super) fn finished(response: &Value) -> Finished {
    let reason = match response["status"].as_str() {
        Some("incomplete") => match response["incomplete_details"]["reason"].as_str() {
            Some("max_output_tokens") => FinishReason::Length,
            Some("content_filter") => FinishReason::ContentFilter,
            _ => FinishReason::Other,
        },
        _ => FinishReason::Stop,
    };
    let count = |field: &str| response["usage"][field].as_u64();
    Finished { input_tokens: count("input_tokens"), output_tokens: count("output_tokens"), ..Finished::because(reason) }
}

fn str<'a>(json: &'a Value, field: &str) -> &'a str {
    json[field].as_str().unwrap_or_default()
}
