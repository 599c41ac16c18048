//! What a person or their client answers: results of tools that run there, and whether a tool may be run.
use std::sync::Arc;

use serde_json::{Value, json};

use super::answer::{message_row, read_messages};
use super::feed::ChatEvent;
use super::handle::{NewTurn, TurnHandle, chats};
use super::message::{Chunk, Part, ToolState, UiMessage};
use super::{ChatAgent, Turn};
use crate::agent::AgentHandle;
use crate::error::{Error, ErrorKind, Result};
use crate::fiber::core::Link;
use crate::fiber::detached::detached;

/// How a tool call was answered by a person or their client.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ToolAnswer {
    /// It has given this.
    Output(Value),
    /// It has failed, with this text.
    Error(String),
    /// It may be run.
    Approved,
    /// It may not be run.
    Refused,
}

impl ToolAnswer {
    /// Whether a call in this state waits for such an answer.
    fn answers(&self, state: Option<ToolState>) -> bool {
        match self {
            ToolAnswer::Output(_) | ToolAnswer::Error(_) => state == Some(ToolState::InputAvailable),
            ToolAnswer::Approved | ToolAnswer::Refused => state == Some(ToolState::ApprovalRequested),
        }
    }

    fn apply(&self, part: &mut Part) {
        match self {
            ToolAnswer::Output(output) => {
                part.set("state", ToolState::OutputAvailable.as_str());
                part.set("output", output.clone());
                part.set("preliminary", false);
            }
            ToolAnswer::Error(text) => {
                part.set("state", ToolState::OutputError.as_str());
                part.set("errorText", text.as_str());
            }
            ToolAnswer::Approved | ToolAnswer::Refused => {
                let id = part.get("approval").and_then(|approval| approval.get("id")).cloned();
                part.set("state", ToolState::ApprovalResponded.as_str());
                part.set("approval", json!({ "id": id, "approved": *self == ToolAnswer::Approved }));
            }
        }
    }

    /// The same for a turn that is under way.
    fn chunk(&self, call: &str) -> Option<Chunk> {
        match self {
            ToolAnswer::Output(output) => Some(Chunk::tool_output_available(call, output.clone())),
            ToolAnswer::Error(text) => Some(Chunk::tool_output_error(call, text)),
            ToolAnswer::Approved | ToolAnswer::Refused => None,
        }
    }
}

/// What came of an answer.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ToolAnswered {
    /// Whether it counts: the call waited for it. The first answer wins, and later ones change nothing.
    pub applied: bool,
    /// The turn that goes on with it, if that was wanted and nothing else of the message is open.
    pub continued: Option<TurnHandle>,
}

impl<A: ChatAgent> AgentHandle<A> {
    /// Answers a tool call. It is stored when this returns. With `auto_continue` the turn goes on by itself when all calls of its message are
    /// settled: with the last of them, whichever asks for it.
    ///
    /// # Errors
    /// Of kind [`NotFound`](ErrorKind::NotFound) when no message has such a call; when the store fails.
    pub async fn answer_tool(&self, call: &str, answer: ToolAnswer, auto_continue: bool) -> Result<ToolAnswered> {
        let core = self.core()?;
        // An answer and the turn that follows it do not depend on the caller; nor does the work keep the runtime open.
        let agent = AgentHandle::<A>::new(Link::from(&core), self.id().clone());
        let call = call.to_owned();
        let answered = detached(&core, async move { agent.answer(&call, answer, auto_continue).await }).await?;
        let continued = answered.continued.map(|turn| turn.linked(self.link()));
        Ok(ToolAnswered { continued, ..answered })
    }

    async fn answer(&self, call: &str, answer: ToolAnswer, auto_continue: bool) -> Result<ToolAnswered> {
        let core = self.core()?;
        let chats = chats(&core)?;
        // One at a time: each reads a message and writes it.
        let asking = chats.answering(self.id());
        let _alone = asking.lock().await;
        if let Some(turn) = chats.turn_of(self.id())
            && has_call(&turn.message().await, call)
        {
            if let Some(chunk) = answer.chunk(call) {
                match self.answer_under_way(&turn, call, &answer, chunk, auto_continue).await {
                    Err(error) if error.kind() == ErrorKind::Conflict => {}
                    answered => return answered,
                }
            }
            // There is no chunk that says so, or the turn is just ending: it is said when the question stands in the conversation.
            self.turn(turn.id()).await?.ok_or_else(Error::closed)?.wait().await?;
        }
        let messages = read_messages(core.store.chat_messages(self.id().clone(), i64::MAX).await?)?;
        let mut message = messages.into_iter().rev().find(|message| has_call(message, call)).ok_or_else(|| {
            let why = format!("agent `{}` has no message with a tool call `{call}`", self.id());
            Error::new(ErrorKind::NotFound, why)
        })?;
        let part = message.parts.iter_mut().find(|part| part.tool_call_id() == Some(call));
        let Some(part) = part.filter(|part| answer.answers(part.tool_state())) else {
            return Ok(ToolAnswered { applied: false, continued: None });
        };
        answer.apply(part);
        let held = core.store.continuation_target(self.id().clone()).await?.as_deref() == Some(message.id.as_str());
        let wanted = auto_continue || held;
        if wanted && !is_open(&message) {
            // Both at once: an answer whose turn does not follow would never be looked at.
            let continued = self.continue_with(&message).await?;
            chats.feeds.tell(self.id(), || ChatEvent::Updated(message));
            return Ok(ToolAnswered { applied: true, continued: Some(continued) });
        }
        core.store.replace_message(self.id().clone(), message_row(&message)?, wanted, core.now_ms()).await?;
        chats.feeds.tell(self.id(), || ChatEvent::Updated(message));
        Ok(ToolAnswered { applied: true, continued: None })
    }

    /// The message is still being written: the answer goes into the log.
    async fn answer_under_way(
        &self,
        turn: &Turn,
        call: &str,
        answer: &ToolAnswer,
        chunk: Chunk,
        auto_continue: bool,
    ) -> Result<ToolAnswered> {
        let waits = |message: &UiMessage| message.parts.iter().any(|p| p.tool_call_id() == Some(call) && answer.answers(p.tool_state()));
        if !waits(&turn.message().await) {
            return Ok(ToolAnswered { applied: false, continued: None });
        }
        turn.answered(chunk).await?;
        let continued = if auto_continue && !is_open(&turn.message().await) { Some(self.continue_last_turn().await?) } else { None };
        Ok(ToolAnswered { applied: true, continued })
    }

    async fn continue_with(&self, message: &UiMessage) -> Result<TurnHandle> {
        let more: NewTurn = self.continue_last_turn();
        more.with(vec![message.clone()]).await
    }
}

fn has_call(message: &UiMessage, call: &str) -> bool {
    message.parts.iter().any(|part| part.tool_call_id() == Some(call))
}

/// Whether a call of the last step of a message waits for somebody.
fn is_open(message: &UiMessage) -> bool {
    let open = |part: &Part| matches!(part.tool_state(), Some(ToolState::InputAvailable | ToolState::ApprovalRequested));
    message.parts.iter().any(open)
}

/// Held while an answer of a chat is read and written.
pub(super) type Answering = Arc<tokio::sync::Mutex<()>>;
