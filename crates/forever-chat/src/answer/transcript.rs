//! The state of an answer, read from the store.
use forever_runtime::__layers::{Engine, from_ms};
use forever_runtime::store::{MessageRow, StreamBatch, TurnRequest, TurnRow, TurnSeq};
use forever_runtime::{Error, ErrorKind, Result};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tracing::warn;

use crate::log::lines;
use crate::message::{Chunk, MessageBuilder, Part, Role, ToolState, UiMessage};
use crate::model::ToolSpec;
use crate::recovery::{ChatRecovery, RecoveryKind, RecoveryPolicy};

/// The request of a turn, parsed.
pub(super) struct Asked {
    pub(super) body: Option<Value>,
    pub(super) client_tools: Vec<ToolSpec>,
    pub(super) stash: Option<String>,
}

impl Asked {
    /// A turn that `continues` may have the request of an earlier one; damaged parts of it are left
    /// out.
    pub(super) fn read(request: TurnRequest, continues: bool) -> Result<Self> {
        let body = part("body", request.body, continues)?;
        let client_tools = part("client tools", request.tools, continues)?.unwrap_or_default();
        Ok(Asked { body, client_tools, stash: request.stash })
    }
}

fn part<T: DeserializeOwned>(what: &str, text: Option<String>, continues: bool) -> Result<Option<T>> {
    let Some(text) = text else { return Ok(None) };
    match serde_json::from_str(&text) {
        Ok(read) => Ok(Some(read)),
        Err(why) if continues => {
            warn!(%why, "the {what} of a turn cannot be read, and the one that continues it goes without");
            Ok(None)
        }
        Err(why) => Err(Error::new(ErrorKind::Value, format!("the {what} of a turn cannot be read")).with_source(why)),
    }
}

/// The state of an answer.
pub(super) struct Transcript {
    /// The conversation before it.
    pub(super) before: Vec<UiMessage>,
    pub(super) builder: MessageBuilder,
    /// Number of parts of the message before the turn.
    parts_before: usize,
    /// Number of stored chunks.
    pub(super) stored: u64,
    /// Whether the last of them ends the answer.
    pub(super) finished: bool,
    /// Number of steps of the message before the turn.
    pub(super) steps_before: usize,
    /// Number of complete steps of the turn.
    pub(super) steps: u32,
}

impl Transcript {
    pub(super) async fn load(engine: &Engine, row: &TurnRow, chunks: &[StreamBatch]) -> Result<Self> {
        let mut before = read_messages(&engine.store().chat_messages(row.chat.clone(), row.place).await?)?;
        let there = before.iter().position(|message| message.id == row.message);
        let message = there.map_or_else(|| UiMessage::new(row.message.as_str(), Role::Assistant), |place| before.remove(place));
        let parts_before = message.parts.len();
        let mut builder = MessageBuilder::new(message);
        let steps_before = builder.message().parts.iter().filter(|part| part.kind() == "step-start").count();
        let (mut stored, mut finished, mut steps) = (0, false, 0);
        for (_, chunk) in chunks.iter().flat_map(lines) {
            let chunk = Chunk::parse(chunk)?;
            builder.apply(&chunk)?;
            finished = chunk.kind() == "finish";
            steps += u32::from(chunk.kind() == "finish-step");
            stored += 1;
        }
        Ok(Transcript { before, builder, parts_before, stored, finished, steps_before, steps })
    }

    pub(super) fn partial(&mut self) -> &[Part] {
        let before = self.parts_before;
        self.builder.message().parts.get(before..).unwrap_or_default()
    }

    /// Whether the answer ends in tool calls that wait for a person or their client, and has
    /// nothing else open.
    pub(super) fn waits_for_a_person(&mut self, client_tools: &[ToolSpec]) -> bool {
        let open: Vec<_> = self.partial().iter().filter(|part| part.tool_state().is_some_and(|s| !s.is_settled())).collect();
        let asks = |part: &&Part| match part.tool_state() {
            Some(ToolState::ApprovalRequested) => true,
            Some(ToolState::InputAvailable) => is_client_tool(part, client_tools),
            _ => false,
        };
        !open.is_empty() && open.iter().all(asks)
    }

    /// Removes all parts of the turn but the results of tools.
    pub(super) fn forget_all_but_results(&mut self) {
        let mut place = 0;
        let before = self.parts_before;
        let mut message = self.builder.message().clone();
        message.parts.retain(|part| {
            place += 1;
            place <= before || part.tool_state().is_some_and(ToolState::is_settled)
        });
        self.builder = MessageBuilder::new(message);
    }

    pub(super) fn recovery(
        &mut self,
        row: &TurnRow,
        asked: &Asked,
        policy: &RecoveryPolicy,
        attempt: u32,
        deaths: u32,
        why: &str,
    ) -> ChatRecovery {
        ChatRecovery {
            turn: row.id.clone(),
            kind: if self.partial().is_empty() { RecoveryKind::Retry } else { RecoveryKind::Continue },
            attempt,
            max_attempts: policy.max_attempts,
            deaths,
            partial: self.partial().to_vec(),
            data: asked.stash.clone(),
            messages: self.before.clone(),
            body: asked.body.clone(),
            client_tools: asked.client_tools.clone(),
            created: from_ms(row.created_ms),
            reason: why.to_owned(),
        }
    }
}

/// Whether the stored log of a turn has a tool call of this id.
pub(crate) async fn has_logged_call(engine: &Engine, turn: TurnSeq, call: &str) -> Result<bool> {
    let chunks = engine.store().chunks(turn, 0, u32::MAX).await?;
    let of_call = |line: &str| Chunk::parse(line).is_ok_and(|chunk| chunk.get("toolCallId").and_then(Value::as_str) == Some(call));
    Ok(chunks.iter().flat_map(lines).any(|(_, line)| of_call(line)))
}

pub(crate) fn read_messages(rows: &[MessageRow]) -> Result<Vec<UiMessage>> {
    rows.iter().map(read_message).collect()
}

pub(crate) fn read_message(row: &MessageRow) -> Result<UiMessage> {
    serde_json::from_str(&row.data)
        .map_err(|why| Error::new(ErrorKind::Value, format!("message `{}` cannot be read", row.id)).with_source(why))
}

pub(crate) fn message_row(message: &UiMessage) -> Result<MessageRow> {
    let data = serde_json::to_string(message)
        .map_err(|why| Error::new(ErrorKind::Value, format!("message `{}` cannot be saved", message.id)).with_source(why))?;
    Ok(MessageRow { id: message.id.clone(), role: message.role.into(), data, pending: message.is_pending() })
}

/// Whether the client runs the tool of this call.
pub(super) fn is_client_tool(part: &Part, tools: &[ToolSpec]) -> bool {
    part.tool_name().is_some_and(|name| tools.iter().any(|tool| tool.name == name))
}
