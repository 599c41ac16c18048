//! A conversation that is too long for the model, or nearly: when it is made shorter, and what stands for it then.
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::agent::BoxError;
use crate::chat::agent_loop::asking::conversation;
use crate::chat::agent_loop::loop_fiber::AgentLoop;
use crate::chat::agent_loop::loop_fiber::turn_of;
use crate::chat::message::{Part, UiMessage};
use crate::chat::user_code::{awaited, called_or, text_of};
use crate::frame::context::FiberContext;

/// A conversation that was made shorter.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Summary {
    /// What stands for it.
    pub(super) messages: Vec<UiMessage>,
    /// How many parts of the answer are in it.
    pub(super) parts: usize,
}

/// How long a conversation was that a model has read.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Length {
    /// As the provider has counted it.
    tokens: u64,
    /// As it was counted here.
    counted: u64,
}

impl AgentLoop {
    /// What is known of the length of a conversation when a provider has read it.
    pub(super) fn length(&self, tokens: Option<u64>, messages: &[UiMessage]) -> Option<Length> {
        self.bound()?;
        Some(Length { tokens: tokens?, counted: self.counted(messages) })
    }

    /// Whether the conversation is nearly as long as the model can read. What has come since the last answer is added to what the provider has
    /// counted for that one.
    pub(super) async fn is_nearly_full(
        &self,
        ctx: &FiberContext,
        number: u32,
        summary: Option<&Summary>,
        before: Option<&Length>,
    ) -> Result<bool, BoxError> {
        let Some(limit) = self.bound() else { return Ok(false) };
        let turn = turn_of(ctx)?;
        let now = self.counted(&conversation(turn, &turn.step(number).await, summary));
        let tokens = before.map_or(now, |before| before.tokens.saturating_add(now.saturating_sub(before.counted)));
        Ok(tokens.saturating_mul(10) >= limit.saturating_mul(9))
    }

    /// A shorter conversation in place of what there is.
    pub(super) async fn compacted(&self, ctx: &FiberContext, number: u32, summary: Option<&Summary>) -> Result<Summary, BoxError> {
        let Some(compact) = &self.compaction else { return Err("there is nothing that makes a conversation shorter".into()) };
        let turn = turn_of(ctx)?;
        let step = turn.step(number).await;
        let messages = awaited(|| compact(conversation(turn, &step, summary))).await.map_err(|why| text_of(&why))?;
        Ok(Summary { messages, parts: step.before.len() })
    }

    fn bound(&self) -> Option<u64> {
        self.max_input_tokens.filter(|_| self.compaction.is_some())
    }

    fn counted(&self, messages: &[UiMessage]) -> u64 {
        let count = self.count.as_ref();
        count.map_or_else(|| about(messages), |count| called_or("count_tokens", || count(messages), || about(messages)))
    }
}

/// About how many tokens messages have: one for every four bytes of text, and of what tools were given and have given. Files are not counted.
fn about(messages: &[UiMessage]) -> u64 {
    let of_part = |part: &Part| {
        let text = part.as_text().or_else(|| part.as_reasoning()).map_or(0, str::len);
        let tool = ["input", "output", "errorText"].into_iter().filter(|_| part.is_tool()).filter_map(|field| part.get(field));
        text + tool.map(|value| value.as_str().map_or_else(|| Value::to_string(value).len(), str::len)).sum::<usize>()
    };
    let bytes: usize = messages.iter().flat_map(|message| &message.parts).map(of_part).sum();
    bytes as u64 / 4
}
