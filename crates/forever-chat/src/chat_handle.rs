//! Commands to a chat: turns, messages, and interactions that wait for a person.
use std::sync::Arc;
use std::time::Duration;

use forever_runtime::__layers::{HandleOfLayer, race};
use forever_runtime::agent::AgentHandle;
use forever_runtime::store::{InteractionQuery, TurnFilter, TurnKind, TurnState};
use forever_runtime::{Error, ErrorKind, Result};

use crate::answer::read_messages;
use crate::chat_agent::ChatAgent;
use crate::feed::{ChatEvent, ChatEvents};
use crate::handle::{NewTurn, PAGE, TurnHandle, new_turn, rows};
use crate::interaction_kind::interaction;
use crate::interactions::PendingInteractions;
use crate::message::{Part, Role, UiMessage};
use crate::registry::registry;
use crate::status::TurnStatus;
use crate::tools::{Author, ToolAnswer, ToolAnswered, ToolCallRef, answer_detached};

/// Chats, as methods of the [`AgentHandle`] of a [`ChatAgent`]. The prelude has it.
///
/// ```
/// # use forever::BoxError;
/// # use forever::agent::Agent;
/// # use forever::chat::message::{Chunk, UiMessage};
/// # use forever::chat::{ChatAgent, Turn};
/// # use forever::prelude::*;
/// # struct Concierge;
/// # impl Agent for Concierge {
/// #     const CLASS: &'static str = "concierge";
/// #     type State = ();
/// # }
/// # impl ChatAgent for Concierge {
/// #     async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
/// #         turn.write(Chunk::text_start("t")).await?;
/// #         turn.write(Chunk::text_delta("t", "At seven.")).await?;
/// #         Ok(turn.write(Chunk::text_end("t")).await?)
/// #     }
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), BoxError> {
/// # let forever = Forever::builder().in_memory().chat_agent(|_| Concierge).open().await?;
/// # let chat = forever.agent::<Concierge>("table-7");
/// // The key makes it safe to send again.
/// let turn = chat.submit("request-1", [UiMessage::user("u1", "When is breakfast?")]).await?;
/// turn.wait().await?;
/// assert_eq!(chat.messages().await?[1].text(), "At seven.");
///
/// chat.clear().await?;
/// assert!(chat.messages().await?.is_empty());
/// # forever.close().await?;
/// # Ok(())
/// # }
/// ```
pub trait ChatHandle {
    /// Stores messages and requests an answer to them. A message whose id is stored replaces that
    /// one; others are appended.
    ///
    /// The message of a turn under way belongs to the turn: a message that is saved under its id is
    /// replaced when the turn ends.
    fn save_messages(&self, messages: impl IntoIterator<Item = UiMessage>) -> NewTurn;

    /// As [`save_messages`](Self::save_messages), with an idempotency key: a second call with the
    /// key returns the turn of the first, whatever its state.
    fn submit(&self, key: impl Into<String>, messages: impl IntoIterator<Item = UiMessage>) -> NewTurn;

    /// Continues the last answer: the new chunks are added to its message.
    ///
    /// Its body and its client's tools default to those of the turn that gave the answer. An error
    /// of kind [`NotFound`](ErrorKind::NotFound) if the last message is not the assistant's.
    fn continue_last_turn(&self) -> NewTurn;

    /// The messages, oldest first. The answer that is being written is not included; it is in the
    /// log of its turn.
    ///
    /// # Errors
    /// When a stored message cannot be read.
    fn messages(&self) -> impl Future<Output = Result<Vec<UiMessage>>> + Send;

    /// Replaces all messages.
    ///
    /// # Errors
    /// Of kind [`Busy`](ErrorKind::Busy) while a turn is queued or running; when a message cannot
    /// be saved, or the store fails.
    fn set_messages(&self, messages: impl IntoIterator<Item = UiMessage>) -> impl Future<Output = Result<()>> + Send;

    /// Deletes all messages. A running turn ends as aborted, queued ones as skipped.
    ///
    /// # Errors
    /// When the store fails.
    fn clear(&self) -> impl Future<Output = Result<()>> + Send;

    /// Subscribes to the events of the chat from now on.
    ///
    /// # Errors
    /// When no class is registered for chat, or the runtime is gone.
    fn chat_events(&self) -> Result<ChatEvents>;

    /// Cancels a turn, and keeps the answer so far. A turn that has ended stays as it is. Returns
    /// whether there is a turn with this id.
    ///
    /// # Errors
    /// When the store fails.
    fn cancel(&self, turn: &str, reason: &str) -> impl Future<Output = Result<bool>> + Send;

    /// Finds a turn by its id.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn turn(&self, id: &str) -> impl Future<Output = Result<Option<TurnHandle>>> + Send;

    /// Finds a turn by its idempotency key.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn turn_by_key(&self, key: &str) -> impl Future<Output = Result<Option<TurnHandle>>> + Send;

    /// Lists the turns in these states, or all if there are none, in the order of acceptance.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn turns(&self, states: &[TurnState]) -> impl Future<Output = Result<Vec<TurnStatus>>> + Send;

    /// Whether the last message waits for a person or their client: for the result of a client's
    /// tool, or for an approval. [`pending_interactions`](Self::pending_interactions) lists them.
    ///
    /// # Errors
    /// When a stored message cannot be read.
    fn has_pending_interaction(&self) -> impl Future<Output = Result<bool>> + Send;

    /// Waits until no turn is queued or running, and no interaction is pending; returns whether
    /// that was so within `timeout`.
    ///
    /// # Errors
    /// When the store cannot be read, or the runtime is closed.
    fn wait_until_stable(&self, timeout: Duration) -> impl Future<Output = Result<bool>> + Send;

    /// Answers a tool call. The answer is stored when this returns. With `auto_continue` the turn
    /// continues by itself once all calls of its message are settled: with the last of them,
    /// whichever requests it.
    ///
    /// The call runs with its logged input. An answer that names the input it is about
    /// ([`ToolCallRef::seen`]) counts only for that input.
    ///
    /// An answer to a call of a turn that was interrupted waits until that turn is recovered.
    ///
    /// # Errors
    /// Of kind [`NotFound`](ErrorKind::NotFound) when no message, and no running turn, has such a
    /// call; of kind [`Conflict`](ErrorKind::Conflict) when its input is not the one that was seen;
    /// of kind [`Busy`](ErrorKind::Busy) when the turn that has made it is parked; of kind
    /// [`Value`](ErrorKind::Value) when its output is nested deeper than 100 levels; when the store
    /// fails.
    fn answer_tool(
        &self,
        call: impl Into<ToolCallRef>,
        answer: ToolAnswer,
        auto_continue: bool,
    ) -> impl Future<Output = Result<ToolAnswered>> + Send;

    /// The pending interactions of this chat, by page, the latest message first.
    ///
    /// As [`ChatForever::pending_interactions`](crate::ChatForever::pending_interactions). Includes earlier
    /// messages, which [`has_pending_interaction`](Self::has_pending_interaction) does not check.
    fn pending_interactions(&self) -> PendingInteractions;
}

impl<A: ChatAgent> ChatHandle for AgentHandle<A> {
    fn save_messages(&self, messages: impl IntoIterator<Item = UiMessage>) -> NewTurn {
        new_turn(self, TurnKind::Reply, messages.into_iter().collect())
    }

    fn submit(&self, key: impl Into<String>, messages: impl IntoIterator<Item = UiMessage>) -> NewTurn {
        self.save_messages(messages).key(key)
    }

    fn continue_last_turn(&self) -> NewTurn {
        new_turn(self, TurnKind::Continue, Vec::new())
    }

    async fn messages(&self) -> Result<Vec<UiMessage>> {
        read_messages(&self.engine()?.store().chat_messages(self.id().clone(), i64::MAX).await?)
    }

    fn set_messages(&self, messages: impl IntoIterator<Item = UiMessage>) -> impl Future<Output = Result<()>> + Send {
        let messages: Vec<_> = messages.into_iter().collect();
        async move {
            let engine = self.engine()?;
            let messages = rows(&messages)?;
            let (of_work, chats, chat) = (engine.clone(), registry(&engine)?, self.id().clone());
            let work = async move {
                if of_work.store().replace_messages(chat.clone(), messages, of_work.now_ms()).await? {
                    chats.feeds.tell(&chat, || ChatEvent::Replaced);
                    return Ok(());
                }
                Err(Error::new(ErrorKind::Busy, format!("the messages of agent `{chat}` cannot be replaced while a turn is under way")))
            };
            engine.detached(work).await
        }
    }

    async fn clear(&self) -> Result<()> {
        let engine = self.engine()?;
        let (of_work, chats, chat) = (engine.clone(), registry(&engine)?, self.id().clone());
        let work = async move {
            // The lock keeps an answer to a tool call from restoring a deleted message.
            let asking = chats.answering(&chat);
            let _alone = asking.lock().await;
            for ended in of_work.store().clear_chat(chat.clone(), of_work.now_ms()).await? {
                chats.cleared(&ended);
            }
            chats.feeds.tell(&chat, || ChatEvent::Cleared);
            Ok(())
        };
        engine.detached(work).await
    }

    fn chat_events(&self) -> Result<ChatEvents> {
        let engine = self.engine()?;
        Ok(registry(&engine)?.feeds.listen(self.engine_link(), self.id()))
    }

    async fn cancel(&self, turn: &str, reason: &str) -> Result<bool> {
        let Some(handle) = self.turn(turn).await? else { return Ok(false) };
        handle.cancel(reason).await.map(|()| true)
    }

    async fn turn(&self, id: &str) -> Result<Option<TurnHandle>> {
        let row = self.engine()?.store().turn(self.id().clone(), id.to_owned()).await?;
        Ok(row.map(|row| TurnHandle::new(self.engine_link(), row, false)))
    }

    async fn turn_by_key(&self, key: &str) -> Result<Option<TurnHandle>> {
        let row = self.engine()?.store().turn_by_key(self.id().clone(), key.to_owned()).await?;
        Ok(row.map(|row| TurnHandle::new(self.engine_link(), row, false)))
    }

    async fn turns(&self, states: &[TurnState]) -> Result<Vec<TurnStatus>> {
        let (engine, mut found) = (self.engine()?, Vec::new());
        let which = TurnFilter { states: states.to_vec(), ..TurnFilter::default() };
        let mut after = 0;
        loop {
            let page = engine.store().turns(self.id().clone(), which.clone(), after, PAGE).await?;
            let last = page.last().map(|row| row.seq);
            let whole = page.len() == PAGE as usize;
            found.extend(page.into_iter().map(TurnStatus::of));
            match last {
                Some(last) if whole => after = last,
                _ => return Ok(found),
            }
        }
    }

    async fn has_pending_interaction(&self) -> Result<bool> {
        let engine = self.engine()?;
        let messages = self.messages().await?;
        let asks = |part: &Part| interaction(&engine, part).is_some();
        Ok(messages.last().is_some_and(|last| last.role == Role::Assistant && last.parts.iter().any(asks)))
    }

    async fn wait_until_stable(&self, timeout: Duration) -> Result<bool> {
        let mut over = self.engine()?.clock().sleep(timeout);
        loop {
            // Checked once, however short the time is.
            let open = self.turns(&[TurnState::Queued, TurnState::Running]).await?;
            let Some(last) = open.last() else { return Ok(!self.has_pending_interaction().await?) };
            if let Some(turn) = self.turn(last.id()).await? {
                match race(turn.wait(), &mut over).await {
                    Some(end) => drop(end?),
                    None => return Ok(false),
                }
            }
        }
    }

    fn answer_tool(
        &self,
        call: impl Into<ToolCallRef>,
        answer: ToolAnswer,
        auto_continue: bool,
    ) -> impl Future<Output = Result<ToolAnswered>> + Send {
        answer_detached(self, call.into(), answer, auto_continue, Author::Program, Arc::default())
    }

    fn pending_interactions(&self) -> PendingInteractions {
        let id = self.id();
        PendingInteractions::new(self.engine_link(), InteractionQuery { class: Some(id.class.clone()), agent: Some(id.name.clone()) })
    }
}
