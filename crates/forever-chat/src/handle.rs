//! Commands to a chat agent: turns, messages, and interactions that wait for a person.
use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use forever_runtime::__layers::{Engine, EngineLink, HandleOfLayer, check_name, race, unreadable};
use forever_runtime::agent::AgentHandle;
use forever_runtime::store::{
    AcceptTurnResult, AgentId, MessageRow, MessageUpdate, NewFiber, NewTurnRow, QueuePolicy, TurnKind, TurnRow, UpdateRefused,
};
use forever_runtime::{Error, ErrorKind, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::answer::{NAME, message_row};
use crate::chat_agent::ChatAgent;
use crate::feed::ChatEvent;
use crate::log;
use crate::log::{Entry, Follow, Log, TurnEnd};
use crate::message::{MAX_NESTING, UiMessage};
use crate::model::ToolSpec;
use crate::registry::registry;
use crate::status::TurnStatus;

/// Number of turns that are listed at a time.
pub(super) const PAGE: u32 = 256;

/// Policy for a turn that is requested while another one has not ended.
///
/// ```
/// use forever::agent::AgentHandle;
/// use forever::chat::message::UiMessage;
/// use forever::chat::{ChatAgent, Queueing};
/// use forever::prelude::*;
/// use std::time::Duration;
///
/// /// Answers once a person has stopped typing, and then all that was written.
/// async fn said<A: ChatAgent>(chat: &AgentHandle<A>, message: UiMessage) -> forever::Result<()> {
///     let pause = Queueing::Debounce(Duration::from_secs(2));
///     chat.save_messages([message]).queueing(pause).await?;
///     Ok(())
/// }
/// ```
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

/// A turn of an agent, to be requested.
pub(crate) fn new_turn<A: ChatAgent>(agent: &AgentHandle<A>, kind: TurnKind, messages: Vec<UiMessage>) -> NewTurn {
    NewTurn {
        link: agent.engine_link(),
        chat: agent.id().clone(),
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

/// A turn to be requested; `.await` stores it. From then on it will be answered, even if the
/// process dies.
///
/// ```
/// # use serde_json::json;
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
/// let question = [UiMessage::user("u1", "When is breakfast?")];
/// let turn = chat
///     .save_messages(question)
///     .key("request-1")
///     .metadata(&json!({ "room": 7 }))
///     .await?;
/// assert!(turn.accepted());
/// # forever.close().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a turn is asked for when this is awaited"]
pub struct NewTurn {
    link: EngineLink,
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
        let engine = self.link.get()?;
        if engine.is_closing() {
            return Err(Error::closed());
        }
        let chats = registry(&engine)?;
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
        let id = self.id.clone().unwrap_or_else(|| engine.clock().id());
        let args = serde_json::json!({ "class": self.chat.class, "agent": self.chat.name, "turn": id });
        let now_ms = engine.now_ms();
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
            message: engine.clock().id(),
            body: self.body.clone().map_err(|why| saved("body", why))?,
            tools: tools.map_err(|why| saved("client tools", why.to_string()))?,
            metadata: self.metadata.clone().map_err(|why| saved("metadata", why))?,
            fiber: NewFiber {
                id: engine.clock().id(),
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
        match accept(&engine, new).await? {
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
async fn accept(engine: &Engine, new: NewTurnRow) -> Result<AcceptTurnResult> {
    let (of_work, chats) = (engine.clone(), registry(engine)?);
    let work = async move {
        let accepted = of_work.store().accept_turn(new).await?;
        if let AcceptTurnResult::Created(row, fiber) = &accepted {
            // First the notification, then the start.
            chats.feeds.tell(&row.chat, || ChatEvent::Accepted(TurnStatus::of((**row).clone())));
            of_work.dispatch(fiber);
        }
        Ok(accepted)
    };
    engine.detached(work).await
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
/// let turn = chat.submit("request-1", [UiMessage::user("u1", "When is breakfast?")]).await?;
/// let end = turn.wait().await?;
/// assert!(end.is_completed());
///
/// // The same turn, such as for a client that comes back.
/// let again = chat.turn_by_key("request-1").await?.expect("it is stored");
/// assert_eq!(again.id(), turn.id());
/// # forever.close().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct TurnHandle {
    link: EngineLink,
    row: Arc<TurnRow>,
    accepted: bool,
}

impl TurnHandle {
    pub(crate) fn new(link: EngineLink, row: TurnRow, accepted: bool) -> Self {
        TurnHandle { link, row: Arc::new(row), accepted }
    }

    /// The same turn, with another link to its runtime.
    pub(super) fn linked(self, link: &EngineLink) -> Self {
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
        let engine = self.link.get()?;
        let (log, row) = log::known(&engine, &registry(&engine)?.logs, self.row.seq).await?;
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
        let engine = self.link.get()?;
        race(log.over(), engine.closing()).await.or_else(|| log.ended()).ok_or_else(Error::closed)
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
        let engine = self.link.get()?;
        let (of_work, chats) = (engine.clone(), registry(&engine)?);
        let (turn, reason) = (self.row.seq, reason.to_owned());
        let work = async move {
            if let Some(row) = of_work.store().cancel_turn(turn, reason.clone(), of_work.now_ms()).await? {
                chats.ended(&row);
                chats.cancel(row.seq, &reason);
            }
            Ok(())
        };
        engine.detached(work).await
    }

    /// The value given to [`NewTurn::metadata`].
    ///
    /// # Errors
    /// When it cannot be read as a `V`, or the store cannot be read.
    pub async fn metadata<V: DeserializeOwned>(&self) -> Result<Option<V>> {
        let engine = self.link.get()?;
        self.mine(engine.store().turn_by_seq(self.row.seq).await?)?;
        let Some(text) = engine.store().turn_request(self.row.seq).await?.metadata else { return Ok(None) };
        serde_json::from_str(&text)
            .map(Some)
            .map_err(|why| Error::new(ErrorKind::Value, format!("the metadata of turn `{}` {}", self.row.id, unreadable::<V>(why))))
    }

    /// Status of the turn.
    ///
    /// # Errors
    /// When the turn was deleted, or the store cannot be read.
    pub async fn status(&self) -> Result<TurnStatus> {
        let row = self.link.get()?.store().turn_by_seq(self.row.seq).await?;
        self.mine(row).map(TurnStatus::of)
    }
}

/// Messages given by the caller, as rows.
pub(crate) fn rows(messages: &[UiMessage]) -> Result<Vec<MessageRow>> {
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
