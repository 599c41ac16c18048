//! What a server asks of a chat in the name of its clients, beyond what programs ask.
use std::sync::Arc;

use forever_runtime::__layers::{HandleOfLayer, engine_link};
use forever_runtime::agent::AgentHandle;
use forever_runtime::store::{TurnFilter, TurnSeq, TurnState};
use forever_runtime::{Error, ErrorKind, Forever, Result};
use tokio::sync::Notify;

use crate::chat_agent::ChatAgent;
use crate::chat_handle::ChatHandle;
use crate::handle::{NewTurn, PAGE};
use crate::message::UiMessage;
use crate::registry::registry;
use crate::status::TurnStatus;
use crate::tools::{Author, ToolAnswer, ToolAnswered, ToolCallRef, answer_detached};

/// Names of the classes that are registered for chat.
pub fn classes(forever: &Forever) -> Vec<&'static str> {
    let chats = engine_link(forever).get().and_then(|engine| registry(&engine));
    chats.map(|chats| chats.classes.names().collect()).unwrap_or_default()
}

/// Joins the turn that replies to this user message, if there is one.
pub fn unless_asked(new: NewTurn, message: impl Into<String>) -> NewTurn {
    new.unless_asked(message.into())
}

/// Requests of clients to a chat.
pub trait ClientRequests {
    /// Replaces all messages by those that `choose` returns for the stored ones.
    ///
    /// No answer to a tool call is stored in between, so none is lost.
    ///
    /// # Errors
    /// As [`set_messages`](ChatHandle::set_messages).
    fn replace_messages(&self, choose: impl FnOnce(Vec<UiMessage>) -> Vec<UiMessage> + Send) -> impl Future<Output = Result<()>> + Send;

    /// The latest turn in these states, or in any, for which `is_it` returns `true`.
    ///
    /// Reads no further back than that turn, however many there are.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn latest_turn(
        &self,
        states: &[TurnState],
        is_it: impl Fn(&TurnStatus) -> bool + Send + Sync,
    ) -> impl Future<Output = Result<Option<TurnStatus>>> + Send;

    /// The latest turns in these states, or in any, latest first: those before a number, or all if
    /// it is 0.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn latest_turns(&self, states: &[TurnState], before: TurnSeq, limit: u32) -> impl Future<Output = Result<Vec<TurnStatus>>> + Send;

    /// As [`answer_tool`](ChatHandle::answer_tool), for an answer sent by a client. Results of
    /// tools that run here are refused with an error of kind [`Value`](ErrorKind::Value). `waits`
    /// is notified when the answer cannot be stored before another event.
    ///
    /// # Errors
    /// As [`answer_tool`](ChatHandle::answer_tool).
    fn answer_tool_as_client(
        &self,
        call: ToolCallRef,
        answer: ToolAnswer,
        auto_continue: bool,
        waits: Arc<Notify>,
    ) -> impl Future<Output = Result<ToolAnswered>> + Send;

    /// Id of the turn that is being recovered after an interruption.
    ///
    /// # Errors
    /// When no class is registered for chat, or the runtime is gone.
    fn recovering(&self) -> Result<Option<String>>;

    /// The stored form of a state that a client has sent.
    ///
    /// # Errors
    /// Of kind [`Value`](ErrorKind::Value) when it is no state of the class.
    fn stored_state(&self, json: &str) -> Result<String>;

    /// As [`set_state`](AgentHandle::set_state), for a state in its stored form.
    ///
    /// # Errors
    /// When the store fails; then the state is unchanged.
    fn set_stored_state(&self, text: String) -> impl Future<Output = Result<()>> + Send;
}

impl<A: ChatAgent> ClientRequests for AgentHandle<A> {
    async fn replace_messages(&self, choose: impl FnOnce(Vec<UiMessage>) -> Vec<UiMessage> + Send) -> Result<()> {
        let open = [TurnState::Queued, TurnState::Running];
        let busy = || Error::new(ErrorKind::Busy, format!("a turn of agent `{}` is under way", self.id()));
        if !self.turns(&open).await?.is_empty() {
            return Err(busy());
        }
        let asking = registry(&self.engine()?)?.answering(self.id());
        let _alone = asking.lock().await;
        if !self.turns(&open).await?.is_empty() {
            return Err(busy());
        }
        let chosen = choose(self.messages().await?);
        self.set_messages(chosen).await
    }

    async fn latest_turn(&self, states: &[TurnState], is_it: impl Fn(&TurnStatus) -> bool + Send + Sync) -> Result<Option<TurnStatus>> {
        let mut before = 0;
        loop {
            let page = self.latest_turns(states, before, PAGE).await?;
            let last = page.last().map(TurnStatus::seq);
            let whole = page.len() == PAGE as usize;
            if let Some(found) = page.into_iter().find(&is_it) {
                return Ok(Some(found));
            }
            match last {
                Some(last) if whole => before = last,
                _ => return Ok(None),
            }
        }
    }

    async fn latest_turns(&self, states: &[TurnState], before: TurnSeq, limit: u32) -> Result<Vec<TurnStatus>> {
        let filter = TurnFilter { states: states.to_vec(), latest_first: true };
        let rows = self.engine()?.store().turns(self.id().clone(), filter, before, limit).await?;
        Ok(rows.into_iter().map(TurnStatus::of).collect())
    }

    async fn answer_tool_as_client(
        &self,
        call: ToolCallRef,
        answer: ToolAnswer,
        auto_continue: bool,
        waits: Arc<Notify>,
    ) -> Result<ToolAnswered> {
        answer_detached(self, call, answer, auto_continue, Author::Client, waits).await
    }

    fn recovering(&self) -> Result<Option<String>> {
        Ok(registry(&self.engine()?)?.recovering(self.id()))
    }

    fn stored_state(&self, json: &str) -> Result<String> {
        registry(&self.engine()?)?.class(&self.id().class)?.state(json)
    }

    async fn set_stored_state(&self, text: String) -> Result<()> {
        self.set_state_text(text).await
    }
}
