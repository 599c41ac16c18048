//! Converts the events of a message to chunks.
use serde_json::{Value, json};

use crate::model::answer::{Answer, Kind};
use crate::model::chat_model::{FinishReason, Finished, ModelError};
use crate::model::classify::classify;
use crate::model::read;
use crate::model::read::Protocol;
use crate::model::sse::Event;

#[derive(Debug, Default)]
pub(super) struct Messages {
    /// The provider's id of the answer, so that pieces of two answers never share an id.
    id: String,
    /// The block that is being written.
    block: Block,
    ended: Option<FinishReason>,
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
}

#[derive(Debug, Default, PartialEq)]
enum Block {
    Text,
    Thinking {
        signature: String,
    },
    Call {
        /// Its input, if the block began with one.
        input: Option<String>,
    },
    /// An unknown kind, or one without content for a client.
    #[default]
    Other,
}

impl Messages {
    fn begin(&mut self, event: &Value, answer: &mut Answer) {
        let (name, block) = (self.name(event), &event["content_block"]);
        self.block = match block["type"].as_str() {
            Some("text") => {
                answer.more(Kind::Text, &name, str(block, "text"), None);
                Block::Text
            }
            Some("thinking") => {
                answer.more(Kind::Reasoning, &name, str(block, "thinking"), None);
                Block::Thinking { signature: str(block, "signature").to_owned() }
            }
            Some("redacted_thinking") => {
                // No text, but the provider needs it back.
                answer.begin(Kind::Reasoning, &name, Some(json!({ "anthropic": { "redactedData": str(block, "data") } })));
                Block::Other
            }
            Some("tool_use") => {
                answer.call(&name, str(block, "id"), str(block, "name"));
                let input = block["input"].as_object().filter(|input| !input.is_empty());
                Block::Call { input: input.map(|_| block["input"].to_string()) }
            }
            _ => Block::Other,
        };
    }

    fn more(&mut self, event: &Value, answer: &mut Answer) {
        let (name, delta) = (self.name(event), &event["delta"]);
        match (delta["type"].as_str(), &mut self.block) {
            (Some("text_delta"), Block::Text) => answer.more(Kind::Text, &name, str(delta, "text"), None),
            (Some("thinking_delta"), Block::Thinking { .. }) => answer.more(Kind::Reasoning, &name, str(delta, "thinking"), None),
            (Some("signature_delta"), Block::Thinking { signature }) => signature.push_str(str(delta, "signature")),
            (Some("input_json_delta"), Block::Call { input }) => {
                let json = str(delta, "partial_json");
                if !json.is_empty() {
                    *input = None;
                }
                answer.call_more(&name, json);
            }
            (Some("citations_delta"), _) => {
                let citation = &delta["citation"];
                if let Some(url) = citation["url"].as_str() {
                    answer.source(url, citation["title"].as_str());
                }
            }
            _ => {}
        }
    }

    fn end_of_block(&mut self, event: &Value, answer: &mut Answer) {
        let name = self.name(event);
        match std::mem::take(&mut self.block) {
            Block::Thinking { signature } if !signature.is_empty() => {
                // Hidden thinking has a signature all the same.
                answer.begin(Kind::Reasoning, &name, None);
                answer.close(Some(json!({ "anthropic": { "signature": signature } })));
            }
            Block::Call { input } => answer.call_done(&name, input.as_deref()),
            _ => answer.close(None),
        }
    }

    fn name(&self, event: &Value) -> String {
        format!("{}-{}", self.id, event["index"])
    }

    fn usage(&mut self, usage: &Value) {
        let read = ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"].map(|field| usage[field].as_u64());
        if read[0].is_some() {
            self.input_tokens = Some(read.into_iter().flatten().sum());
        }
        self.output_tokens = usage["output_tokens"].as_u64().or(self.output_tokens);
    }

    fn finish(&self, reason: FinishReason, answer: &mut Answer) {
        let (input_tokens, output_tokens) = (self.input_tokens, self.output_tokens);
        answer.finish(Finished { input_tokens, output_tokens, ..Finished::because(reason) });
    }
}

impl Protocol for Messages {
    fn event(&mut self, event: &Event, answer: &mut Answer) -> Result<(), ModelError> {
        if event.name == "ping" {
            return Ok(());
        }
        let json = read::json(event)?;
        match json["type"].as_str().unwrap_or(&event.name) {
            "message_start" => {
                str(&json["message"], "id").clone_into(&mut self.id);
                self.usage(&json["message"]["usage"]);
            }
            "content_block_start" => self.begin(&json, answer),
            "content_block_delta" => self.more(&json, answer),
            "content_block_stop" => self.end_of_block(&json, answer),
            "message_delta" => {
                self.usage(&json["usage"]);
                self.ended = json["delta"]["stop_reason"].as_str().map(reason_of).or(self.ended);
            }
            "message_stop" => self.finish(self.ended.unwrap_or_default(), answer),
            "error" => return Err(classify(200, &event.data)),
            _ => {}
        }
        Ok(())
    }

    /// The answer is complete once its stop reason has arrived.
    fn end(&mut self, answer: &mut Answer) {
        if let Some(reason) = self.ended {
            self.finish(reason, answer);
        }
    }
}

fn str<'a>(json: &'a Value, field: &str) -> &'a str {
    json[field].as_str().unwrap_or_default()
}

fn reason_of(reason: &str) -> FinishReason {
    match reason {
        "end_turn" | "stop_sequence" => FinishReason::Stop,
        "max_tokens" | "model_context_window_exceeded" => FinishReason::Length,
        "tool_use" => FinishReason::ToolCalls,
        "refusal" => FinishReason::ContentFilter,
        _ => FinishReason::Other,
    }
}
