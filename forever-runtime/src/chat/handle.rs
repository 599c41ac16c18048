//! Commands to a chat agent: turns, messages, and interactions that wait for a person.
use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::agent::AgentHandle;
use crate::chat::answer::{NAME, cancel_fiber, message_row, read_messages};
use crate::chat::chat_agent::ChatAgent;
use crate::chat::chats::Chats;
use crate::chat::feed::{ChatEvent, ChatEvents};
use crate::chat::interaction_kind::interaction;
use crate::chat::log;
use crate::chat::log::{Entry, Follow, Log, TurnEnd};
use crate::chat::message::{MAX_NESTING, Part, Role, UiMessage};
use crate::chat::model::ToolSpec;
use crate::chat::status::TurnStatus;
use crate::error::{Error, ErrorKind, Result};
use crate::exec::agent_hooks::check_name;
use crate::exec::dispatch;
use crate::exec::executor::Executor;
use crate::frame::saved::unreadable;
use crate::runtime::detached::detached;
use crate::runtime::link::Link;
use crate::runtime::race::race;
use crate::store::{
    AcceptTurnResult, AgentId, MessageRow, MessageUpdate, NewFiber, NewTurnRow, QueuePolicy, TurnFilter, TurnKind, TurnRow, TurnState,
    UpdateRefused,
};

/// Number of turns that are listed at a time.
pub(super) const PAGE: u32 = 256;

/// Policy for a turn that is requested while another one has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Queueing {
    /// It is queued.
    #[default]
    Queue,
    /// It is queued, and skipped if another turn of this policy is requested before it has begun.
    /// The messages of both stay.
    Latest,
    /// As `Latest`; the last turn answers the messages of all.
    Merge,
    /// It is refused: [`NewTurn`] returns an error of kind [`Busy`](ErrorKind::Busy), and its
    /// messages are not stored.
    Drop,
    /// It waits for at least this long, and is skipped if another turn of this policy is requested
    /// meanwhile.
    Debounce(Duration),
}

impl From<Queueing> for QueuePolicy {
    fn from(queueing: Queueing) -> Self {
        match queueing {
            Queueing::Queue => QueuePolicy::Queue,
            Queueing::Latest => QueuePolicy::Latest,
            Queueing::Merge => QueuePolicy::Merge,
            Queueing::Drop => QueuePolicy::Drop,
            Queueing::Debounce(quiet) => QueuePolicy::Debounce(i64::try_from(quiet.as_millis()).unwrap_or(i64::MAX)),
        }
    }
}

impl<A: ChatAgent> AgentHandle<A> {
    /// Stores messages and requests an answer to them. A message whose id is stored replaces that
    /// one; others are appended.
    ///
    /// The message of a turn under way belongs to the turn: a message that is saved under its id is
    /// replaced when the turn ends.
    pub fn save_messages(&self, messages: impl IntoIterator<Item = UiMessage>) -> NewTurn {
        self.ask(TurnKind::Reply, messages.into_iter().collect())
    }

    /// As [`save_messages`](Self::save_messages), with an idempotency key: a second call with the
    /// key returns the turn of the first, whatever its state.
    pub fn submit(&self, key: impl Into<String>, messages: impl IntoIterator<Item = UiMessage>) -> NewTurn {
        self.save_messages(messages).key(key)
    }

    /// Continues the last answer: the new chunks are added to its message.
    ///
    /// Its body and its client's tools default to those of the turn that gave the answer. An error
    /// of kind [`NotFound`](ErrorKind::NotFound) if the last message is not the assistant's.
    pub fn continue_last_turn(&self) -> NewTurn {
        self.ask(TurnKind::Continue, Vec::new())
    }

    fn ask(&self, kind: TurnKind, messages: Vec<UiMessage>) -> NewTurn {
        NewTurn {
            link: self.link().exec(),
            chat: self.id().clone(),
            kind,
            messages,
            id: None,
            key: None,
            queueing: Queueing::default(),
            cut_behind: None,
            unless_asked: None,
            update: None,
            body: Ok(None),
            client_tools: Vec::new(),
            metadata: Ok(None),
        }
    }

    /// The messages, oldest first. The answer that is being written is not included; it is in the
    /// log of its turn.
    ///
    /// # Errors
    /// When a stored message cannot be read.
    pub async fn messages(&self) -> Result<Vec<UiMessage>> {
        read_messages(&self.exec()?.runtime.store.chat_messages(self.id().clone(), i64::MAX).await?)
    }

    /// Replaces all messages.
    ///
    /// # Errors
    /// Of kind [`Busy`](ErrorKind::Busy) while a turn is queued or running; when a message cannot
    /// be saved, or the store fails.
    pub async fn set_messages(&self, messages: impl IntoIterator<Item = UiMessage>) -> Result<()> {
        let exec = self.exec()?;
        let messages = rows(&messages.into_iter().collect::<Vec<_>>())?;
        let (of_work, chats, chat) = (Arc::clone(&exec), chats(&exec)?, self.id().clone());
        let work = async move {
            if of_work.runtime.store.replace_messages(chat.clone(), messages, of_work.runtime.now_ms()).await? {
                chats.feeds.tell(&chat, || ChatEvent::Replaced);
                return Ok(());
            }
            Err(Error::new(ErrorKind::Busy, format!("the messages of agent `{chat}` cannot be replaced while a turn is under way")))
        };
        detached(&exec.runtime, work).await
    }

    /// Deletes all messages. A running turn ends as aborted, queued ones as skipped.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn clear(&self) -> Result<()> {
        let exec = self.exec()?;
        let (of_work, chats, chat) = (Arc::clone(&exec), chats(&exec)?, self.id().clone());
        let work = async move {
            // The lock keeps an answer to a tool call from restoring a deleted message.
            let asking = chats.answering(&chat);
            let _alone = asking.lock().await;
            for ended in of_work.runtime.store.clear_chat(chat.clone(), of_work.runtime.now_ms()).await? {
                chats.cleared(&ended);
                cancel_fiber(&of_work, &ended, "the chat was cleared").await;
            }
            chats.feeds.tell(&chat, || ChatEvent::Cleared);
            Ok(())
        };
        detached(&exec.runtime, work).await
    }

    /// Subscribes to the events of the chat from now on.
    ///
    /// # Errors
    /// When no class is registered for chat, or the runtime is gone.
    pub fn chat_events(&self) -> Result<ChatEvents> {
        let exec = self.exec()?;
        Ok(chats(&exec)?.feeds.listen(self.link().exec(), self.id()))
    }

    /// Cancels a turn, and keeps the answer so far. A turn that has ended stays as it is. Returns
    /// whether there is a turn with this id.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn cancel(&self, turn: &str, reason: &str) -> Result<bool> {
        let Some(handle) = self.turn(turn).await? else { return Ok(false) };
        handle.cancel(reason).await.map(|()| true)
    }

    /// Finds a turn by its id.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn turn(&self, id: &str) -> Result<Option<TurnHandle>> {
        let row = self.exec()?.runtime.store.turn(self.id().clone(), id.to_owned()).await?;
        Ok(row.map(|row| TurnHandle::new(self.link().exec(), row, false)))
    }

    /// Finds a turn by its idempotency key.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn turn_by_key(&self, key: &str) -> Result<Option<TurnHandle>> {
        let row = self.exec()?.runtime.store.turn_by_key(self.id().clone(), key.to_owned()).await?;
        Ok(row.map(|row| TurnHandle::new(self.link().exec(), row, false)))
    }

    /// Lists the turns in these states, or all if there are none, in the order of acceptance.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn turns(&self, states: &[TurnState]) -> Result<Vec<TurnStatus>> {
        let (exec, mut found) = (self.exec()?, Vec::new());
        let which = TurnFilter { states: states.to_vec(), ..TurnFilter::default() };
        let mut after = 0;
        loop {
            let page = exec.runtime.store.turns(self.id().clone(), which.clone(), after, PAGE).await?;
            let last = page.last().map(|row| row.seq);
            let whole = page.len() == PAGE as usize;
            found.extend(page.into_iter().map(TurnStatus::of));
            match last {
                Some(last) if whole => after = last,
                _ => return Ok(found),
            }
        }
    }

    /// Whether the last message waits for a person or their client: for the result of a client's
    /// tool, or for an approval. [`pending_interactions`](Self::pending_interactions) lists them.
    ///
    /// # Errors
    /// When a stored message cannot be read.
    pub async fn has_pending_interaction(&self) -> Result<bool> {
        let exec = self.exec()?;
        let messages = self.messages().await?;
        let asks = |part: &Part| interaction(&exec, part).is_some();
        Ok(messages.last().is_some_and(|last| last.role == Role::Assistant && last.parts.iter().any(asks)))
    }

    /// Waits until no turn is queued or running, and no interaction is pending; returns whether
    /// that was so within `timeout`.
    ///
    /// # Errors
    /// When the store cannot be read, or the runtime is closed.
    pub async fn wait_until_stable(&self, timeout: Duration) -> Result<bool> {
        let mut over = self.exec()?.runtime.clock.sleep(timeout);
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
}

/// A turn to be requested; `.await` stores it. From then on it will be answered, even if the
/// process dies.
#[must_use = "a turn is asked for when this is awaited"]
pub struct NewTurn {
    link: Link<Executor>,
    chat: AgentId,
    kind: TurnKind,
    messages: Vec<UiMessage>,
    id: Option<String>,
    key: Option<String>,
    queueing: Queueing,
    cut_behind: Option<String>,
    unless_asked: Option<String>,
    update: Option<MessageUpdate>,
    body: Result<Option<String>, String>,
    client_tools: Vec<ToolSpec>,
    metadata: Result<Option<String>, String>,
}

impl NewTurn {
    /// Sets the id of the turn, in place of a generated one. If the chat has a turn with this id,
    /// that one is joined.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Sets the idempotency key of the turn, unique in its chat. If the chat has a turn with this
    /// key, that one is joined.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets the policy if another turn has not ended.
    pub fn queueing(mut self, queueing: Queueing) -> Self {
        self.queueing = queueing;
        self
    }

    /// Deletes all messages after this one first, so that its answer is given again.
    pub fn after(mut self, message: impl Into<String>) -> Self {
        self.cut_behind = Some(message.into());
        self
    }

    /// Joins the turn that replies to this user message, if there is one.
    pub(super) fn unless_asked(mut self, message: String) -> Self {
        self.unless_asked = Some(message);
        self
    }

    /// Sets the body of the request, beside the messages; see [`Turn::body`](super::Turn::body).
    pub fn body(mut self, body: &impl Serialize) -> Self {
        self.body = serde_json::to_string(body).map(Some).map_err(|why| why.to_string());
        self
    }

    /// Sets the tools that the client runs.
    pub fn client_tools(mut self, tools: impl IntoIterator<Item = ToolSpec>) -> Self {
        self.client_tools = tools.into_iter().collect();
        self
    }

    /// Stores metadata with the turn, for lists; the turn itself does not see it.
    pub fn metadata(mut self, metadata: &impl Serialize) -> Self {
        self.metadata = serde_json::to_string(metadata).map(Some).map_err(|why| why.to_string());
        self
    }

    /// Stores the turn together with an update of a message. If the update is refused, nothing is
    /// stored, and the reason is returned.
    pub(super) async fn store_with(mut self, update: MessageUpdate) -> Result<Result<TurnHandle, UpdateRefused>> {
        self.update = Some(update);
        self.store_all().await
    }

    async fn store(self) -> Result<TurnHandle> {
        self.store_all().await?.map_err(|_| Error::new(ErrorKind::Conflict, "the message was changed meanwhile"))
    }

    async fn store_all(self) -> Result<Result<TurnHandle, UpdateRefused>> {
        let exec = self.link.get()?;
        if exec.runtime.is_closing() {
            return Err(Error::closed());
        }
        let chats = chats(&exec)?;
        let max_queued = chats.class(&self.chat.class)?.max_queued_turns();
        let refused = |kind, why: String| Error::new(kind, format!("failed to ask agent `{}`: {why}", self.chat));
        if let Err(why) = check_name(&self.chat.name) {
            return Err(refused(ErrorKind::Value, format!("its name {why}")));
        }
        for (what, text) in [("id", &self.id), ("key", &self.key)] {
            if let Some(why) = text.as_ref().and_then(|text| check_name(text).err()) {
                return Err(refused(ErrorKind::Value, format!("the {what} of a turn {why}")));
            }
        }
        let saved = |what: &str, why: String| refused(ErrorKind::Value, format!("the {what} of a turn cannot be saved: {why}"));
        let tools = (!self.client_tools.is_empty()).then(|| serde_json::to_string(&self.client_tools)).transpose();
        let id = self.id.clone().unwrap_or_else(|| exec.runtime.clock.id());
        let args = serde_json::json!({ "class": self.chat.class, "agent": self.chat.name, "turn": id });
        let now_ms = exec.runtime.now_ms();
        let new = NewTurnRow {
            chat: self.chat.clone(),
            id,
            key: self.key.clone(),
            kind: self.kind,
            queueing: self.queueing.into(),
            max_queued,
            unless_asked: self.unless_asked.clone(),
            messages: rows(&self.messages)?,
            cut_behind: self.cut_behind.clone(),
            update: self.update.clone(),
            message: exec.runtime.clock.id(),
            body: self.body.clone().map_err(|why| saved("body", why))?,
            tools: tools.map_err(|why| saved("client tools", why.to_string()))?,
            metadata: self.metadata.clone().map_err(|why| saved("metadata", why))?,
            fiber: NewFiber {
                id: exec.runtime.clock.id(),
                name: NAME.to_owned(),
                key: None,
                id_given: false,
                closure: false,
                args: args.to_string(),
                metadata: None,
                agent: Some(self.chat.clone()),
                parent: None,
                worker: None,
                now_ms,
            },
            now_ms,
        };
        match accept(&exec, new).await? {
            AcceptTurnResult::Created(row, _) => Ok(Ok(TurnHandle::new(self.link, *row, true))),
            AcceptTurnResult::Existing(row) => Ok(Ok(TurnHandle::new(self.link, *row, false))),
            AcceptTurnResult::Dropped => {
                Err(refused(ErrorKind::Busy, "another turn is under way, and this one was not to wait".to_owned()))
            }
            AcceptTurnResult::Full => Err(refused(ErrorKind::Busy, format!("{max_queued} turns are queued, which is the maximum"))),
            AcceptTurnResult::Refused(why) => Ok(Err(why)),
            AcceptTurnResult::NothingToContinue => {
                Err(refused(ErrorKind::NotFound, "there is no answer to continue: the last message is not the assistant's".to_owned()))
            }
        }
    }
}

/// Stores a turn and starts its fiber.
async fn accept(exec: &Arc<Executor>, new: NewTurnRow) -> Result<AcceptTurnResult> {
    let (of_work, chats) = (Arc::clone(exec), chats(exec)?);
    let work = async move {
        let accepted = of_work.runtime.store.accept_turn(new).await?;
        if let AcceptTurnResult::Created(row, fiber) = &accepted {
            // First the notification, then the start.
            chats.feeds.tell(&row.chat, || ChatEvent::Accepted(TurnStatus::of((**row).clone())));
            dispatch::start(&of_work, fiber, None);
        }
        Ok(accepted)
    };
    detached(&exec.runtime, work).await
}

impl IntoFuture for NewTurn {
    type Output = Result<TurnHandle>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.store())
    }
}

impl fmt::Debug for NewTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewTurn").field("chat", &self.chat).field("id", &self.id).field("key", &self.key).finish_non_exhaustive()
    }
}

/// Handle of a turn.
#[derive(Debug, Clone)]
pub struct TurnHandle {
    link: Link<Executor>,
    row: Arc<TurnRow>,
    accepted: bool,
}

impl TurnHandle {
    fn new(link: Link<Executor>, row: TurnRow, accepted: bool) -> Self {
        TurnHandle { link, row: Arc::new(row), accepted }
    }

    /// The same turn, with another link to its runtime.
    pub(super) fn linked(self, link: &Link<Executor>) -> Self {
        TurnHandle { link: link.clone(), ..self }
    }

    /// Id of the turn.
    pub fn id(&self) -> &str {
        &self.row.id
    }

    /// Whether it was new when this handle was made; otherwise a turn with its id or key existed
    /// before.
    pub fn accepted(&self) -> bool {
        self.accepted
    }

    /// Id of the message that it writes.
    pub fn message_id(&self) -> &str {
        &self.row.message
    }

    async fn log(&self) -> Result<Arc<Log>> {
        let exec = self.link.get()?;
        let (log, row) = log::known(&exec, &chats(&exec)?.logs, self.row.seq).await?;
        self.mine(row).map(|_| log)
    }

    /// Its row, if the row under its number is still this turn.
    fn mine(&self, row: Option<TurnRow>) -> Result<TurnRow> {
        row.filter(|row| row.id == self.row.id && row.chat == self.row.chat).ok_or_else(|| self.gone())
    }

    fn gone(&self) -> Error {
        Error::new(ErrorKind::NotFound, format!("there is no turn `{}` any more", self.row.id))
    }

    /// Waits until the turn has ended.
    ///
    /// # Errors
    /// When the turn was deleted, the store cannot be read, or the runtime is closed.
    pub async fn wait(&self) -> Result<TurnEnd> {
        let log = self.log().await?;
        let exec = self.link.get()?;
        race(log.over(), exec.runtime.closing()).await.or_else(|| log.ended()).ok_or_else(Error::closed)
    }

    /// Follows its log from a chunk on; 0 for all of it.
    ///
    /// # Errors
    /// When the turn was deleted, or the store cannot be read.
    pub async fn follow(&self, from: u64) -> Result<Follow> {
        let log = self.log().await?;
        Ok(Follow::new(self.link.clone(), self.row.seq, log, from))
    }

    /// All entries of its log up to now; the last one is the end, if the turn has ended.
    ///
    /// # Errors
    /// As [`follow`](TurnHandle::follow).
    pub async fn entries(&self) -> Result<Vec<Entry>> {
        let mut follow = self.follow(0).await?;
        let mut entries = Vec::new();
        while let Some(entry) = follow.try_next().await? {
            entries.push(entry);
        }
        Ok(entries)
    }

    /// Cancels the turn, and keeps the answer so far. A turn that has ended stays as it is; a
    /// deleted one is no error.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn cancel(&self, reason: &str) -> Result<()> {
        let exec = self.link.get()?;
        let (of_work, chats) = (Arc::clone(&exec), chats(&exec)?);
        let (turn, reason) = (self.row.seq, reason.to_owned());
        let work = async move {
            if let Some(row) = of_work.runtime.store.cancel_turn(turn, reason.clone(), of_work.runtime.now_ms()).await? {
                chats.ended(&row);
                chats.cancel(row.seq, &reason);
            }
            Ok(())
        };
        detached(&exec.runtime, work).await
    }

    /// The value given to [`NewTurn::metadata`].
    ///
    /// # Errors
    /// When it cannot be read as a `V`, or the store cannot be read.
    pub async fn metadata<V: DeserializeOwned>(&self) -> Result<Option<V>> {
        let exec = self.link.get()?;
        self.mine(exec.runtime.store.turn_by_seq(self.row.seq).await?)?;
        let Some(text) = exec.runtime.store.turn_request(self.row.seq).await?.metadata else { return Ok(None) };
        serde_json::from_str(&text)
            .map(Some)
            .map_err(|why| Error::new(ErrorKind::Value, format!("the metadata of turn `{}` {}", self.row.id, unreadable::<V>(why))))
    }

    /// Status of the turn.
    ///
    /// # Errors
    /// When the turn was deleted, or the store cannot be read.
    pub async fn status(&self) -> Result<TurnStatus> {
        let row = self.link.get()?.runtime.store.turn_by_seq(self.row.seq).await?;
        self.mine(row).map(TurnStatus::of)
    }
}

/// Messages given by the caller, as rows.
fn rows(messages: &[UiMessage]) -> Result<Vec<MessageRow>> {
    let row = |message: &UiMessage| match check_name(&message.id) {
        Ok(()) if message.nests_too_deep() => {
            let why = format!("message `{}` is nested deeper than {MAX_NESTING} levels", message.id);
            Err(Error::new(ErrorKind::Value, why))
        }
        Ok(()) => message_row(message),
        Err(why) => Err(Error::new(ErrorKind::Value, format!("the id of a message {why}"))),
    };
    messages.iter().map(row).collect()
}

/// The chats of a runtime.
pub(crate) fn chats(exec: &Executor) -> Result<Arc<Chats>> {
    let chats = exec.resources.get::<Arc<Chats>>();
    chats
        .map(|chats| Arc::clone(&chats))
        .ok_or_else(|| Error::new(ErrorKind::NotRegistered, "no agent class is registered for chat: add one with `.chat_agent(..)`"))
}
