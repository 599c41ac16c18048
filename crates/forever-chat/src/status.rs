//! Status of a turn.
use std::time::SystemTime;

use forever_runtime::__layers::from_ms;
use forever_runtime::store::{TurnKind, TurnRow, TurnSeq, TurnState};

use crate::log::TurnEnd;

/// Status of a turn.
///
/// ```
/// use forever::agent::AgentHandle;
/// use forever::chat::{ChatAgent, TurnState};
/// use forever::prelude::*;
///
/// /// How long the turns of a chat have waited that have not begun.
/// async fn waits<A: ChatAgent>(chat: &AgentHandle<A>) -> forever::Result<()> {
///     for turn in chat.turns(&[TurnState::Queued]).await? {
///         println!("{} has waited for {:?}", turn.id(), turn.created().elapsed());
///     }
///     Ok(())
/// }
/// ```
#[derive(Debug, Clone)]
pub struct TurnStatus(TurnRow);

impl TurnStatus {
    pub(crate) fn of(row: TurnRow) -> Self {
        TurnStatus(row)
    }

    pub(crate) fn seq(&self) -> TurnSeq {
        self.0.seq
    }

    /// Id of the turn.
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// Idempotency key with which it was submitted.
    pub fn key(&self) -> Option<&str> {
        self.0.key.as_deref()
    }

    /// Whether it adds to an earlier answer.
    pub fn is_continuation(&self) -> bool {
        self.0.kind == TurnKind::Continue
    }

    /// State of the turn.
    pub fn state(&self) -> TurnState {
        self.0.state
    }

    /// Why it ended as it did.
    pub fn reason(&self) -> Option<&str> {
        self.0.reason.as_deref()
    }

    /// How it ended, once it has.
    pub fn end(&self) -> Option<TurnEnd> {
        TurnEnd::from_row(&self.0)
    }

    /// When it was accepted, UTC.
    pub fn created(&self) -> SystemTime {
        from_ms(self.0.created_ms)
    }

    /// When it was begun for the first time, UTC.
    pub fn started(&self) -> Option<SystemTime> {
        self.0.started_ms.map(from_ms)
    }

    /// When it ended, UTC.
    pub fn settled(&self) -> Option<SystemTime> {
        self.0.settled_ms.map(from_ms)
    }

    /// Ids of the messages that it answers. With [`Merge`](super::Queueing::Merge), they include
    /// those of the skipped turns that it replaces.
    pub fn origins(&self) -> &[String] {
        &self.0.origins
    }

    /// Id of the message that it writes.
    pub fn message_id(&self) -> &str {
        &self.0.message
    }
}
