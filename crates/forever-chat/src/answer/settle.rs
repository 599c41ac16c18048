//! The end of a turn, stored with its message.
use std::sync::Arc;

use forever_runtime::__layers::{Engine, Fence};
use forever_runtime::Result;
use forever_runtime::store::{IncidentState, TurnRow, TurnSettlement, TurnSettler, TurnState, TurnWrite};
use serde_json::{Value, json};
use tracing::debug;

use crate::answer::transcript::{Transcript, message_row};
use crate::feed::ChatEvent;
use crate::log::{INTERRUPTED_TEXT, TurnEnd};
use crate::message::UiMessage;
use crate::recovery::{ExhaustedReason, RecoveryPolicy};
use crate::registry::ChatRegistry;
use crate::user_code::USUAL_TEXT;

/// Settles a turn.
#[derive(Clone, Copy)]
pub(super) struct Settled<'a> {
    pub(super) engine: &'a Engine,
    pub(super) chats: &'a Arc<ChatRegistry>,
    /// Claim of its fiber; `None` where that has ended.
    pub(super) by: Option<&'a Arc<Fence>>,
    pub(super) row: &'a TurnRow,
    /// Whether it was interrupted before.
    pub(super) incident: bool,
    /// The error that ends it, with its causes.
    pub(super) error: Option<&'a str>,
}

impl Settled<'_> {
    /// Stores the end of the turn with its message; returns the stored state.
    pub(super) async fn with(self, state: TurnState, reason: Option<&str>, message: UiMessage) -> Result<TurnState> {
        self.store(state, reason, message, IncidentState::Recovered).await
    }

    pub(super) async fn given_up(self, policy: &RecoveryPolicy, why: ExhaustedReason, message: UiMessage) -> Result<TurnState> {
        debug!(turn.id = %self.row.id, reason = %why, "a turn ends with its terminal message");
        self.store(TurnState::Error, Some(&policy.terminal_message), message, IncidentState::Exhausted).await
    }

    async fn store(self, state: TurnState, reason: Option<&str>, mut message: UiMessage, incident: IncidentState) -> Result<TurnState> {
        let Settled { engine, chats, by, row, incident: interrupted, error } = self;
        let empty = message.parts.is_empty();
        close_parts(&mut message);
        if state != TurnState::Completed {
            let reason = if state == TurnState::Interrupted { Some(INTERRUPTED_TEXT) } else { reason };
            mark(&mut message, state, reason);
        }
        // An error is visible in the conversation even if nothing was written before it.
        let kept = !empty || state == TurnState::Error;
        let message = if kept { Some(message_row(&message)?) } else { None };
        let how = TurnSettlement {
            state,
            reason: reason.map(str::to_owned),
            error: error.map(str::to_owned),
            pending: message.as_ref().is_some_and(|message| message.pending),
            message: message.map(|message| message.data),
            incident: interrupted.then_some(incident),
            now_ms: engine.now_ms(),
        };
        // Followers of the turn are notified of its end although its fiber may be dropped now.
        let (of_work, chats, by, row) = (engine.clone(), Arc::clone(chats), by.cloned(), row.clone());
        let work = async move {
            let engine = &of_work;
            let (reason, error) = (how.reason.clone(), how.error.clone());
            let settled_by = by.as_ref().map_or(TurnSettler::Other, |fence| TurnSettler::Activation(fence.claim()));
            let settled = engine.store().settle_turn(settled_by, row.seq, how).await;
            let settled = match by {
                Some(fence) => fence.checked(settled),
                None => settled,
            };
            match settled? {
                TurnWrite::Done => {
                    chats.settled(row.seq, TurnEnd::new(state, reason.as_deref(), error.as_deref()));
                    if interrupted {
                        chats.feeds.tell(&row.chat, || ChatEvent::Recovering { turn: row.id.clone(), recovering: false });
                    }
                    Ok(state)
                }
                TurnWrite::NotRunning | TurnWrite::HasFiber => {
                    let row = engine.store().turn_by_seq(row.seq).await?;
                    if let Some(row) = &row {
                        chats.ended(row);
                    }
                    Ok(row.map_or(TurnState::Aborted, |row| row.state))
                }
            }
        };
        engine.detached(work).await
    }
}

/// Closes the parts of a message.
fn close_parts(message: &mut UiMessage) {
    for part in &mut message.parts {
        if matches!(part.kind(), "text" | "reasoning") && part.get("state").is_some() {
            part.set("state", "done");
        }
    }
}

/// Records in the message how its turn ended, for clients that see nothing else of it.
fn mark(message: &mut UiMessage, state: TurnState, reason: Option<&str>) {
    let metadata = message.metadata.get_or_insert_with(|| json!({}));
    if let Value::Object(fields) = metadata {
        fields.insert("forever".to_owned(), json!({ "outcome": state.as_str(), "reason": reason }));
    }
}

/// Settles a turn whose fiber has ended without settling it.
pub(crate) async fn settle_left(engine: &Engine, chats: &Arc<ChatRegistry>, row: &TurnRow) -> Result<()> {
    let (state, why) = match &row.cancel {
        Some(reason) => (TurnState::Aborted, reason.as_str()),
        None => (TurnState::Interrupted, "its fiber has ended"),
    };
    // No fiber runs, so answers are stored in the message: the lock keeps them out between its
    // reading and its writing.
    let asking = chats.answering(&row.chat);
    let _alone = asking.lock().await;
    settle_as(engine, chats, None, row, state, why).await.map(drop)
}

/// Settles a turn whose fiber has panicked.
pub(super) async fn settle_panicked(engine: &Engine, chats: &Arc<ChatRegistry>, fence: &Arc<Fence>, row: &TurnRow) -> Result<TurnState> {
    settle_as(engine, chats, Some(fence), row, TurnState::Error, USUAL_TEXT).await
}

/// Settles a turn with the part of its answer that is in the store.
async fn settle_as(
    engine: &Engine,
    chats: &Arc<ChatRegistry>,
    by: Option<&Arc<Fence>>,
    row: &TurnRow,
    state: TurnState,
    why: &str,
) -> Result<TurnState> {
    let chunks = engine.store().chunks(row.seq, 0, u32::MAX).await?;
    let answered = Transcript::load(engine, row, &chunks).await?;
    let settled = Settled { engine, chats, by, row, incident: false, error: None };
    settled.with(state, Some(why), answered.builder.into_message()).await
}
