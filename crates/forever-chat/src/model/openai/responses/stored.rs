//! The rest of a stored answer that was not shown yet.
//!
//! Shown pieces carry the ids of their items, and calls have ids of their own, so that pieces of
//! earlier attempts differ from those of the stored answer. Text without an id, which a program has
//! changed or another version has written, counts as the start of the stored answer.
use std::collections::HashMap;

use serde_json::Value;

use crate::message::{Part, ToolState};
use crate::model::answer::{Answer, Kind};
use crate::model::chat_model::{FinishReason, Finished, ModelEvent};
use crate::model::conversation::metadata;
use crate::model::openai::responses::stream::{annotation, encrypted, finished, of};

/// State of a stored answer.
pub(super) enum Stored {
    /// It is complete.
    Complete(Finished),
    /// It is being written.
    Written,
    /// It will never be complete.
    Lost,
}

impl Stored {
    pub(super) fn of(response: &Value) -> Self {
        match response["status"].as_str() {
            Some("completed") => Stored::Complete(finished(response)),
            // A limit cut the answer off; the original stream would have ended the same way.
            Some("incomplete") if response["incomplete_details"]["reason"].is_string() => match finished(response) {
                Finished { reason: FinishReason::Other, .. } => Stored::Lost,
                finished => Stored::Complete(finished),
            },
            Some("queued" | "in_progress") => Stored::Written,
            _ => Stored::Lost,
        }
    }
}

/// The events of a stored answer that are still to be returned.
pub(super) fn rest(response: &Value, finished: Finished, shown: &[Part]) -> Vec<ModelEvent> {
    let mut answer = Answer::default();
    let mut shown = Shown::of(shown);
    for item in response["output"].as_array().into_iter().flatten() {
        let id = item["id"].as_str().unwrap_or_default();
        match item["type"].as_str() {
            Some("message") => message(item, id, &mut shown, &mut answer),
            Some("reasoning") => reasoning(item, id, &mut shown, &mut answer),
            Some("function_call") => call(item, id, &shown, &mut answer),
            _ => {}
        }
    }
    answer.finish(finished);
    std::iter::from_fn(|| answer.next()).collect()
}

fn message(item: &Value, id: &str, shown: &mut Shown<'_>, answer: &mut Answer) {
    for (index, content) in list(item, "content").enumerate() {
        let text = content["text"].as_str().or_else(|| content["refusal"].as_str()).unwrap_or_default();
        answer.more(Kind::Text, &format!("{id}-{index}"), shown.text.pass(id, text), Some(of(id)));
        for of_it in list(content, "annotations") {
            if of_it["url"].as_str().is_some_and(|url| !shown.sources.contains(&url)) {
                annotation(of_it, answer);
            }
        }
    }
    answer.close(None);
}

fn reasoning(item: &Value, id: &str, shown: &mut Shown<'_>, answer: &mut Answer) {
    let named = |field: &'static str, name: &'static str| {
        list(item, field).enumerate().filter_map(move |(index, piece)| Some((format!("{id}-{name}{index}"), piece["text"].as_str()?)))
    };
    let mut last = format!("{id}-0");
    for (name, text) in named("summary", "").chain(named("content", "text-")) {
        answer.more(Kind::Reasoning, &name, shown.reasoning.pass(id, text), Some(of(id)));
        last = name;
    }
    match encrypted(item) {
        Some(metadata) if !shown.encrypted.contains(&id) => {
            answer.begin_any(Kind::Reasoning, &last, Some(of(id)));
            answer.close(Some(metadata));
        }
        _ => answer.close(None),
    }
}

fn call(item: &Value, id: &str, shown: &Shown<'_>, answer: &mut Answer) {
    let call = item["call_id"].as_str().unwrap_or_default();
    if shown.calls.contains(&call) {
        answer.has_called();
    } else {
        answer.call(id, call, item["name"].as_str().unwrap_or_default());
        answer.call_done(id, item["arguments"].as_str());
    }
}

fn list<'a>(json: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    json[field].as_array().into_iter().flatten()
}

/// The shown part of an answer.
struct Shown<'a> {
    text: Texts<'a>,
    reasoning: Texts<'a>,
    calls: Vec<&'a str>,
    sources: Vec<&'a str>,
    /// Items of reasoning whose end was shown.
    encrypted: Vec<&'a str>,
}

impl<'a> Shown<'a> {
    fn of(parts: &'a [Part]) -> Self {
        let item = |part: &'a Part| metadata(part, "openai", "itemId");
        let ended = parts.iter().filter(|part| metadata(part, "openai", "reasoningEncryptedContent").is_some());
        Shown {
            text: Texts::of(parts.iter().filter_map(|part| Some((item(part), part.as_text()?)))),
            reasoning: Texts::of(parts.iter().filter_map(|part| Some((item(part), part.as_reasoning()?)))),
            calls: parts
                .iter()
                .filter(|part| part.tool_state() != Some(ToolState::InputStreaming))
                .filter_map(Part::tool_call_id)
                .collect(),
            sources: parts.iter().filter(|part| part.kind() == "source-url").filter_map(|part| part.get("url")?.as_str()).collect(),
            encrypted: ended.filter_map(item).collect(),
        }
    }
}

/// Shown text, by item.
struct Texts<'a> {
    of_items: HashMap<&'a str, String>,
    /// Text without a known item.
    of_none: String,
}

impl<'a> Texts<'a> {
    fn of(texts: impl Iterator<Item = (Option<&'a str>, &'a str)>) -> Self {
        let (mut of_items, mut of_none) = (HashMap::<_, String>::new(), String::new());
        for (item, text) in texts {
            item.map_or(&mut of_none, |item| of_items.entry(item).or_default()).push_str(text);
        }
        Texts { of_items, of_none }
    }

    /// Skips the shown part of a text, and returns the rest.
    fn pass<'t>(&mut self, item: &str, text: &'t str) -> &'t str {
        let shown = self.of_items.get_mut(item).unwrap_or(&mut self.of_none);
        let same: usize = shown.chars().zip(text.chars()).take_while(|(shown, stored)| shown == stored).map(|(c, _)| c.len_utf8()).sum();
        // Text that was shown but is not stored is not needed later.
        if same == text.len() {
            shown.drain(..same);
        } else {
            shown.clear();
        }
        // Whole characters of it are the same.
        text.get(same..).unwrap_or_default()
    }
}
