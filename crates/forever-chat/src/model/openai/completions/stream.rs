//! Converts `chat.completion.chunk` to chunks of a message.
//!
//! Servers differ: some leave out the index of a call, some its id, some repeat its name, some send
//! its arguments as an object, and some end without `[DONE]`. An answer is complete when its finish
//! reason is known.
use std::collections::HashSet;

use serde_json::Value;

use crate::model::answer::{Answer, Kind};
use crate::model::chat_model::{FinishReason, Finished, ModelError, ModelRequest};
use crate::model::classify::classify;
use crate::model::read::{Protocol, json};
use crate::model::sse::Event;

#[derive(Debug, Default)]
pub(super) struct Completions {
    /// The provider's id of the answer, so that pieces of two answers never share an id.
    id: String,
    ended: Option<FinishReason>,
    usage: (Option<u64>, Option<u64>),
    calls: Vec<Call>,
    /// Ids of calls that are in use.
    taken: HashSet<String>,
}

/// A call that is being written.
#[derive(Debug)]
struct Call {
    index: Option<u64>,
    /// Its id from the provider, which may be empty.
    id: String,
    key: String,
}

impl Completions {
    /// For the answer to a request.
    pub(super) fn after(request: &ModelRequest) -> Self {
        let parts = request.messages.iter().flat_map(|message| &message.parts);
        Completions { taken: parts.filter_map(|part| part.tool_call_id()).map(str::to_owned).collect(), ..Completions::default() }
    }

    fn delta(&mut self, delta: &Value, answer: &mut Answer) {
        let reasoning = ["reasoning_content", "reasoning"].iter().find_map(|field| delta[*field].as_str());
        self.more(Kind::Reasoning, reasoning.unwrap_or_default(), answer);
        match &delta["content"] {
            Value::String(text) => self.more(Kind::Text, text, answer),
            // Mistral's: a list of pieces of either kind.
            Value::Array(pieces) => {
                for piece in pieces {
                    self.more(Kind::Text, piece["text"].as_str().unwrap_or_default(), answer);
                    let thoughts = piece["thinking"].as_array().into_iter().flatten().filter_map(|thought| thought["text"].as_str());
                    self.more(Kind::Reasoning, &thoughts.collect::<String>(), answer);
                }
            }
            _ => {}
        }
        self.more(Kind::Text, delta["refusal"].as_str().unwrap_or_default(), answer);
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            self.call(call, answer);
        }
        for source in delta["annotations"].as_array().into_iter().flatten().filter_map(|source| source.get("url_citation")) {
            if let Some(url) = source["url"].as_str() {
                answer.source(url, source["title"].as_str());
            }
        }
    }

    fn more(&self, kind: Kind, text: &str, answer: &mut Answer) {
        let name = if kind == Kind::Text { "text" } else { "reasoning" };
        let id = if self.id.is_empty() { name.to_owned() } else { format!("{}-{name}", self.id) };
        answer.more(kind, &id, text, None);
    }

    fn call(&mut self, piece: &Value, answer: &mut Answer) {
        let (index, id) = (piece["index"].as_u64(), piece["id"].as_str().unwrap_or_default());
        let tool = piece["function"]["name"].as_str().unwrap_or_default();
        let known = match index {
            // Some servers give every call the index 0: another id is another call.
            Some(_) => self.calls.iter().rev().find(|call| call.index == index && (id.is_empty() || call.id.is_empty() || call.id == id)),
            None if id.is_empty() && tool.is_empty() => self.calls.last(),
            None => self.calls.iter().find(|call| !id.is_empty() && call.id == id),
        };
        let key = match known {
            Some(call) => call.key.clone(),
            // Without a name there is no tool to call.
            None if tool.is_empty() => return,
            None => {
                let key = self.calls.len().to_string();
                let taken = self.id_for(id);
                answer.call(&key, &taken, tool);
                self.calls.push(Call { index, id: id.to_owned(), key: key.clone() });
                key
            }
        };
        match &piece["function"]["arguments"] {
            Value::String(text) => answer.call_more(&key, text),
            Value::Null => {}
            whole => answer.call_more(&key, &whole.to_string()),
        }
    }

    /// The id of a call in the message: the provider's, unless it has none or another call of the
    /// conversation uses it.
    fn id_for(&mut self, id: &str) -> String {
        let mut name = id.to_owned();
        let mut count = self.taken.len();
        while name.is_empty() || self.taken.contains(&name) {
            count += 1;
            name = format!("call_{count}");
        }
        self.taken.insert(name.clone());
        name
    }

    fn finish(&self, reason: FinishReason, answer: &mut Answer) {
        let (input_tokens, output_tokens) = self.usage;
        answer.finish(Finished { input_tokens, output_tokens, ..Finished::because(reason) });
    }
}

impl Protocol for Completions {
    fn event(&mut self, event: &Event, answer: &mut Answer) -> Result<(), ModelError> {
        if event.data.trim() == "[DONE]" {
            let reason = self.ended.unwrap_or(FinishReason::Stop);
            self.finish(reason, answer);
            return Ok(());
        }
        let chunk = json(event)?;
        if event.name == "error" || chunk.get("error").is_some_and(|error| !error.is_null()) || chunk["object"] == "error" {
            return Err(classify(200, &event.data));
        }
        if let Some(id) = chunk["id"].as_str().filter(|_| self.id.is_empty()) {
            id.clone_into(&mut self.id);
        }
        let usage = &chunk["usage"];
        self.usage.0 = usage["prompt_tokens"].as_u64().or(self.usage.0);
        self.usage.1 = usage["completion_tokens"].as_u64().or(self.usage.1);
        let choices = chunk["choices"].as_array().into_iter().flatten();
        for choice in choices.filter(|choice| choice["index"].as_u64().unwrap_or(0) == 0) {
            self.delta(&choice["delta"], answer);
            match choice["finish_reason"].as_str() {
                None | Some("") => {}
                Some("error") => return Err(classify(200, &event.data)),
                Some(reason) => self.ended = Some(reason_of(reason)),
            }
        }
        Ok(())
    }

    /// The answer is complete once its finish reason has arrived; only the token counts may be
    /// missing.
    fn end(&mut self, answer: &mut Answer) {
        if let Some(reason) = self.ended {
            self.finish(reason, answer);
        }
    }
}

fn reason_of(reason: &str) -> FinishReason {
    match reason {
        "stop" | "eos" | "end_turn" => FinishReason::Stop,
        "length" | "max_tokens" | "model_length" => FinishReason::Length,
        "tool_calls" | "function_call" => FinishReason::ToolCalls,
        "content_filter" => FinishReason::ContentFilter,
        _ => FinishReason::Other,
    }
}
