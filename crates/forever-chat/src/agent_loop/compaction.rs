//! Compaction: shortens a conversation that is too long for the model, or nearly.
use forever_runtime::BoxError;
use forever_runtime::fiber::FiberContext;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::agent_loop::loop_fiber::{AgentLoop, turn_of};
use crate::agent_loop::model_call::conversation;
use crate::message::{Part, UiMessage};
use crate::user_code::{awaited, called_or, text_of};

/// A compacted conversation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Summary {
    /// The messages that replace it.
    pub(super) messages: Vec<UiMessage>,
    /// Number of parts of the answer that are included.
    pub(super) parts: usize,
}

/// Length of a conversation that a model has read.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Length {
    /// Tokens as counted by the provider.
    tokens: u64,
    /// Tokens as counted here.
    counted: u64,
}

impl AgentLoop {
    /// Length of a conversation after a provider has read it, if known.
    pub(super) fn length(&self, tokens: Option<u64>, messages: &[UiMessage]) -> Option<Length> {
        self.bound()?;
        Some(Length { tokens: tokens?, counted: self.counted(messages) })
    }

    /// Whether the conversation is nearly as long as the model can read. The length of everything
    /// since the last answer is added to the provider's count for that answer.
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

    /// A shorter conversation that replaces the current one.
    pub(super) async fn compacted(&self, ctx: &FiberContext, number: u32, summary: Option<&Summary>) -> Result<Summary, BoxError> {
        let Some(compact) = &self.compaction else { return Err("no `compact` function is set".into()) };
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

/// Approximate number of tokens: one per four bytes of text, tool inputs and tool outputs. Files
/// are not counted.
fn about(messages: &[UiMessage]) -> u64 {
    let of_part = |part: &Part| {
        let text = part.as_text().or_else(|| part.as_reasoning()).map_or(0, str::len);
        let tool = ["input", "output", "errorText"].into_iter().filter(|_| part.is_tool()).filter_map(|field| part.get(field));
        text + tool.map(|value| value.as_str().map_or_else(|| Value::to_string(value).len(), str::len)).sum::<usize>()
    };
    let bytes: usize = messages.iter().flat_map(|message| &message.parts).map(of_part).sum();
    bytes as u64 / 4
}
