//! Chats: messages, turns with their logs, and incidents. Data types and [`ChatStore`].
//!
//! The store knows ids and order of messages and chunks. Their texts are opaque.
use std::fmt;
use std::str::FromStr;

use super::{AgentId, Claim, FiberState, NewFiber, Runnable};
use crate::StreamBatch;
use crate::error::Result;
use crate::future::BoxFuture;

/// Sequence number of a turn: counts up in the order of acceptance, never given twice.
pub type TurnSeq = i64;

/// Author of a message.
///
/// See [`ChatStore`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MessageRole {
    /// A person.
    User,
    /// The model.
    Assistant,
    /// The program.
    System,
}

impl MessageRole {
    /// The stored word.
    pub fn as_str(self) -> &'static str {
        match self {
            MessageRole::User => "user",
            MessageRole::Assistant => "assistant",
            MessageRole::System => "system",
        }
    }
}

impl FromStr for MessageRole {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let all = [MessageRole::User, MessageRole::Assistant, MessageRole::System];
        all.into_iter().find(|role| role.as_str() == word).ok_or_else(|| format!("`{word}` is not a role of a message"))
    }
}

/// Stored message.
///
/// See [`ChatStore`] for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageRow {
    /// Id, unique in its chat.
    pub id: String,
    /// Author.
    pub role: MessageRole,
    /// The message, JSON.
    pub data: String,
    /// Whether it holds a [pending interaction](crate::InteractionKind).
    pub pending: bool,
}

/// Kind of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnKind {
    /// Makes a new message.
    Reply,
    /// Adds to the last message.
    Continue,
}

/// Policy for a turn that arrives while another one of its chat has not ended.
///
/// ```
/// # mod forever { pub use forever_store as store; pub use forever_store::Result; }
/// use forever::store::QueuePolicy;
///
/// /// When a turn may begin that is accepted behind another one; `None` if it is refused.
/// fn not_before_ms(policy: QueuePolicy, now_ms: i64) -> Option<i64> {
///     match policy {
///         QueuePolicy::Drop => None,
///         QueuePolicy::Debounce(quiet_ms) => Some(now_ms + quiet_ms),
///         QueuePolicy::Queue | QueuePolicy::Latest | QueuePolicy::Merge => Some(now_ms),
///     }
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueuePolicy {
    /// It waits.
    Queue,
    /// It waits, and is skipped if a later one of this policy arrives meanwhile.
    Latest,
    /// As `Latest`. The later one takes over its [`origins`](TurnRow::origins).
    Merge,
    /// It is not accepted.
    Drop,
    /// It begins this many milliseconds after its acceptance.
    ///
    /// It is skipped if a later one of this policy arrives meanwhile.
    Debounce(i64),
}

/// State of a turn.
///
/// ```
/// # mod forever { pub mod chat { pub use forever_store::TurnState; } }
/// use forever::chat::TurnState;
///
/// /// Whether a page shows that an answer is being written.
/// fn shows_dots(state: TurnState) -> bool {
///     match state {
///         TurnState::Queued | TurnState::Running => true,
///         state => !state.is_settled(),
///     }
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TurnState {
    /// Accepted, and not begun.
    Queued,
    /// Being answered.
    Running,
    /// Answered.
    Completed,
    /// Ended in an error.
    Error,
    /// Cancelled.
    Aborted,
    /// Not answered: another turn has taken its place, or the chat was cleared.
    Skipped,
    /// Interrupted, and not recovered.
    Interrupted,
}

impl TurnState {
    const ALL: [TurnState; 7] = [
        TurnState::Queued,
        TurnState::Running,
        TurnState::Completed,
        TurnState::Error,
        TurnState::Aborted,
        TurnState::Skipped,
        TurnState::Interrupted,
    ];

    /// The stored word.
    pub fn as_str(self) -> &'static str {
        match self {
            TurnState::Queued => "queued",
            TurnState::Running => "running",
            TurnState::Completed => "completed",
            TurnState::Error => "error",
            TurnState::Aborted => "aborted",
            TurnState::Skipped => "skipped",
            TurnState::Interrupted => "interrupted",
        }
    }

    /// Whether it has ended.
    pub fn is_settled(self) -> bool {
        !matches!(self, TurnState::Queued | TurnState::Running)
    }
}

impl fmt::Display for TurnState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for TurnState {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        TurnState::ALL.into_iter().find(|s| s.as_str() == word).ok_or_else(|| format!("`{word}` is not a state of a turn"))
    }
}

/// Turn to be accepted.
#[derive(Debug, Clone)]
pub struct NewTurnRow {
    /// Its chat.
    pub chat: AgentId,
    /// Id, unique in its chat.
    pub id: String,
    /// Idempotency key, unique in its chat.
    pub key: Option<String>,
    /// Kind.
    pub kind: TurnKind,
    /// Policy if another turn has not ended.
    pub queueing: QueuePolicy,
    /// Maximum of queued turns of the chat, with this one. Applies to a
    /// [`Reply`](TurnKind::Reply): the number of continuations is bounded by that of tool calls.
    pub max_queued: u32,
    /// Id of a user message. If a turn of the chat replies to it already, the latest such turn is
    /// the [existing](AcceptTurnResult::Existing) one. For a client that may send a question twice.
    pub unless_asked: Option<String>,
    /// Messages to store with it. One whose id is stored replaces that one, any other is appended.
    pub messages: Vec<MessageRow>,
    /// Id of a message. All messages behind it are deleted first.
    pub cut_behind: Option<String>,
    /// Conditional update of a message, before the messages are stored. If it is
    /// refused, so is the turn.
    pub update: Option<MessageUpdate>,
    /// Id of the message that a [`Reply`](TurnKind::Reply) makes.
    pub message: String,
    /// Body of the request, JSON.
    pub body: Option<String>,
    /// Tools of the client, JSON.
    pub tools: Option<String>,
    /// Metadata of the program, JSON.
    pub metadata: Option<String>,
    /// Fiber that answers it.
    pub fiber: NewFiber,
    /// Time of its acceptance.
    pub now_ms: i64,
}

/// Conditional update of a stored message, such as an answer to one of its tool calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageUpdate {
    /// The message as it is to be. Its id is that of the stored one.
    pub message: MessageRow,
    /// [`MessageRow::data`] of the stored message from which the update was made.
    pub from: String,
}

/// Reason why a [`MessageUpdate`] was refused. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateRefused {
    /// The stored message is another one by now, or is deleted.
    Changed,
    /// An activation of a running turn writes the message, and stores it when the turn ends.
    InUse,
}

/// Result of [`ChatStore::accept_turn`].
///
/// ```
/// # mod forever { pub use forever_store as store; pub use forever_store::ErrorKind; }
/// use forever::ErrorKind;
/// use forever::store::AcceptTurnResult;
///
/// /// The kind of the error for a turn that is not accepted.
/// fn refusal(result: &AcceptTurnResult) -> Option<ErrorKind> {
///     match result {
///         AcceptTurnResult::Created(..) | AcceptTurnResult::Existing(_) => None,
///         AcceptTurnResult::Dropped | AcceptTurnResult::Full => Some(ErrorKind::Busy),
///         AcceptTurnResult::NothingToContinue => Some(ErrorKind::InvalidState),
///         AcceptTurnResult::Refused(_) => Some(ErrorKind::Conflict),
///     }
/// }
/// ```
#[derive(Debug)]
pub enum AcceptTurnResult {
    /// The turn is stored. Its fiber is `pending`, and is dispatched by the caller.
    Created(Box<TurnRow>, Runnable),
    /// A turn with the same id or key exists. Nothing was changed.
    Existing(Box<TurnRow>),
    /// Another turn has not ended, and the policy is [`Drop`](QueuePolicy::Drop).
    Dropped,
    /// As many turns are queued as [may be](NewTurnRow::max_queued). Nothing was changed.
    Full,
    /// The last message is not the assistant's, so that there is nothing to continue. Nothing was
    /// changed.
    NothingToContinue,
    /// The [update](NewTurnRow::update) was refused. Nothing was changed.
    Refused(UpdateRefused),
}

/// Stored turn, without its log.
#[derive(Debug, Clone)]
pub struct TurnRow {
    /// Sequence number.
    pub seq: TurnSeq,
    /// Its chat.
    pub chat: AgentId,
    /// Id.
    pub id: String,
    /// Idempotency key.
    pub key: Option<String>,
    /// Kind.
    pub kind: TurnKind,
    /// State.
    pub state: TurnState,
    /// Why it ended as it did, unless it completed.
    pub reason: Option<String>,
    /// The error that ended it, with its causes: for the program, and not for clients.
    pub error: Option<String>,
    /// Reason of its cancel.
    pub cancel: Option<String>,
    /// Id of its message.
    pub message: String,
    /// Place of its message in the order of the chat, reserved at the acceptance.
    pub place: i64,
    /// Ids of the messages that it answers.
    pub origins: Vec<String>,
    /// Deaths of the process in its attempts, with the attempt under way counted in advance.
    pub deaths: u32,
    /// Time of its acceptance.
    pub created_ms: i64,
    /// Time at which it began.
    pub started_ms: Option<i64>,
    /// Time of its end.
    pub settled_ms: Option<i64>,
}

/// Request of a turn, and the stash of its fiber.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TurnRequest {
    /// Body of the request, JSON.
    pub body: Option<String>,
    /// Tools of the client, JSON.
    pub tools: Option<String>,
    /// Metadata of the program, JSON.
    pub metadata: Option<String>,
    /// Last stash, JSON.
    pub stash: Option<String>,
}

/// State of an incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IncidentState {
    /// Recovery is under way.
    Attempting,
    /// The turn ended well after it.
    Recovered,
    /// The budget for attempts was used up.
    Exhausted,
}

/// Stored incident: an interruption of a turn, and the attempts to recover from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IncidentRow {
    /// Whether chunks had been shown before it.
    pub continues: bool,
    /// State.
    pub state: IncidentState,
    /// Attempts since the last progress.
    pub attempts: u32,
    /// Time at which the last counted attempt began.
    pub attempt_ms: i64,
    /// Length of the log in chunks when the last attempt began.
    pub chunks: u64,
    /// Length of the log in chunks when the incident began.
    pub began_at: u64,
    /// Time of the turn's last progress.
    pub progress_ms: i64,
    /// Reason of the interruption.
    pub reason: Option<String>,
    /// Time at which the incident began.
    pub created_ms: i64,
}

/// Stored data of a turn that an attempt begins with.
#[derive(Debug)]
pub struct TurnStart {
    /// The turn.
    pub row: TurnRow,
    /// Its request.
    pub request: TurnRequest,
    /// Its log.
    pub chunks: Vec<StreamBatch>,
    /// Its last incident.
    pub incident: Option<IncidentRow>,
    /// Whether it was begun before.
    pub again: bool,
}

/// Result of [`ChatStore::begin_turn`].
#[derive(Debug)]
pub enum Admission {
    /// The turn is `running`, and a death is counted in advance.
    Begun(Box<TurnStart>),
    /// An earlier turn has not ended. This is the id of its fiber.
    Behind(String),
    /// An earlier turn has not ended although its fiber has: it is to be settled first.
    Orphaned(Box<TurnRow>),
    /// The turn may not begin before this time, in milliseconds.
    NotBefore(i64),
    /// The turn has ended, also if another one has just taken its place.
    Settled(Box<TurnRow>),
}

/// End of a turn.
#[derive(Debug, Clone)]
pub struct TurnSettlement {
    /// Final state.
    pub state: TurnState,
    /// Why, unless it completed.
    pub reason: Option<String>,
    /// The error that ended it, with its causes.
    pub error: Option<String>,
    /// Its message, JSON, stored at its [place](TurnRow::place). `None` if there is none.
    pub message: Option<String>,
    /// Whether its message holds a [pending interaction](crate::InteractionKind).
    pub pending: bool,
    /// New state of its incident.
    pub incident: Option<IncidentState>,
    /// Time of the end.
    pub now_ms: i64,
}

/// Result of a write to a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnWrite {
    /// The write is stored.
    Done,
    /// The turn has not begun, has ended, or is deleted. Nothing was changed.
    NotRunning,
    /// The fiber of the turn has not ended, and only that fiber may settle it. Nothing was changed.
    HasFiber,
}

/// Query for messages with a pending interaction; its conditions are combined by AND.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InteractionQuery {
    /// Class of the agent.
    pub class: Option<String>,
    /// Name of the agent. Only together with its class.
    pub agent: Option<String>,
}

/// Place in the list of messages with a pending interaction.
///
/// Ordered as [`InteractionRow`]s are: the greatest is listed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct InteractionCursor {
    /// Time since when the message has had a pending interaction.
    pub pending_ms: i64,
    /// Number of the message. A message keeps it for as long as it is stored.
    pub seq: i64,
}

/// Message with a pending interaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InteractionRow {
    /// Its place in the list.
    pub at: InteractionCursor,
    /// Its chat.
    pub chat: AgentId,
    /// The message.
    pub message: MessageRow,
    /// Whether there is a message behind it in its chat.
    pub superseded: bool,
}

/// Filter for turns.
///
/// ```
/// # mod forever { pub use forever_store as store; pub use forever_store::Result; }
/// use forever::store::{AgentId, ChatStore, Sqlite, TurnFilter, TurnState};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// # let store = Sqlite::in_memory().await?;
/// let chat = AgentId { class: "concierge".to_owned(), name: "table-7".to_owned() };
/// let running = TurnFilter { states: vec![TurnState::Running], ..TurnFilter::default() };
/// assert!(store.turns(chat, running, 0, 10).await?.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct TurnFilter {
    /// States, any of them; empty for all.
    pub states: Vec<TurnState>,
    /// Whether the latest come first.
    pub latest_first: bool,
}

/// Author of a [`TurnSettlement`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnSettler {
    /// The activation of the turn's fiber.
    Activation(Claim),
    /// Another fiber, or the runtime when it opens.
    ///
    /// Only for a turn whose fiber has ended or is gone.
    Other,
}

/// Storage of chats.
///
/// The writes of the activation of a turn's fiber are conditional on its claim, as in a
/// [`FiberStore`](super::FiberStore). The claim of another fiber is refused with
/// [`ErrorKind::ClaimLost`](crate::ErrorKind::ClaimLost) as well.
///
/// ```
/// # mod forever { pub use forever_store as store; pub use forever_store::Result; }
/// use forever::store::{AgentId, ChatStore, MessageRole, MessageRow, Sqlite};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// # let store = Sqlite::in_memory().await?;
/// let chat = AgentId { class: "concierge".to_owned(), name: "table-7".to_owned() };
/// let message = MessageRow {
///     id: "u1".to_owned(),
///     role: MessageRole::User,
///     data: r#"{"id":"u1","role":"user","parts":[]}"#.to_owned(),
///     pending: false,
/// };
/// // `false` while a turn has not ended.
/// assert!(store.replace_messages(chat.clone(), vec![message.clone()], 1_000).await?);
/// assert_eq!(store.chat_messages(chat, i64::MAX).await?, [message]);
/// # Ok(())
/// # }
/// ```
pub trait ChatStore {
    /// Stores a turn with its messages, its place and its fiber, in one transaction.
    ///
    /// The order is: an existing turn with its id or key, the [policy](QueuePolicy), the cut, the
    /// [update](NewTurnRow::update), the messages. A wish for a continuation ends with it. A
    /// [`Continue`](TurnKind::Continue) adds to the message of the last turn under way, or else to
    /// the last message; a body and tools that it lacks are those of the last turn of that message.
    /// The origins are the new messages of the user, or else the last one.
    fn accept_turn(&self, new: NewTurnRow) -> BoxFuture<'_, Result<AcceptTurnResult>>;

    /// Begins a turn if it may begin, and counts a death in advance.
    ///
    /// Turns of one chat begin in the order of acceptance, one at a time. One that was begun before
    /// is neither skipped nor delayed.
    fn begin_turn(&self, claim: Claim, turn: TurnSeq, now_ms: i64) -> BoxFuture<'_, Result<Admission>>;

    /// Takes back the death that was counted when a turn was begun: its attempt is over.
    fn release_turn(&self, claim: Claim, turn: TurnSeq) -> BoxFuture<'_, Result<()>>;

    /// Releases a turn as [`release_turn`](Self::release_turn) does, and parks its fiber.
    ///
    /// One transaction, so that a turn is never parked behind its cancellation: `false`, and the
    /// fiber stays claimed, if the turn was cancelled or has ended. A fiber that was itself
    /// cancelled is left to [`suspend`](super::FiberStore::suspend), which ends it.
    fn park_turn(&self, claim: Claim, turn: TurnSeq, why: String, now_ms: i64) -> BoxFuture<'_, Result<bool>>;

    /// Stores the incident of a turn, in place of the last one.
    fn store_incident(&self, claim: Claim, turn: TurnSeq, incident: IncidentRow, now_ms: i64) -> BoxFuture<'_, Result<()>>;

    /// Appends chunks to the log of a running turn.
    ///
    /// Fails unless [`first`](StreamBatch::first) is the length of the stored log. It is progress of
    /// the fiber, which sets its deaths to 0.
    fn append_chunks(&self, claim: Claim, turn: TurnSeq, chunks: StreamBatch) -> BoxFuture<'_, Result<TurnWrite>>;

    /// Replaces the stash of a running turn.
    fn stash_turn(&self, claim: Claim, turn: TurnSeq, stash: String) -> BoxFuture<'_, Result<TurnWrite>>;

    /// Ends a turn, with its message and its incident, in one transaction.
    ///
    /// A turn that has ended stays as it is.
    fn settle_turn(&self, by: TurnSettler, turn: TurnSeq, settlement: TurnSettlement) -> BoxFuture<'_, Result<TurnWrite>>;

    /// Cancels a turn; gives the row as it is then, `None` if there is no such turn.
    ///
    /// A queued one is `aborted` at once. A running one is marked, and the first reason stays. Its
    /// fiber is made ready if it is parked.
    fn cancel_turn(&self, turn: TurnSeq, reason: String, now_ms: i64) -> BoxFuture<'_, Result<Option<TurnRow>>>;

    /// Finds a turn of a chat by id.
    fn turn(&self, chat: AgentId, id: String) -> BoxFuture<'_, Result<Option<TurnRow>>>;

    /// Finds a turn of a chat by key.
    fn turn_by_key(&self, chat: AgentId, key: String) -> BoxFuture<'_, Result<Option<TurnRow>>>;

    /// Finds a turn by sequence number.
    fn turn_by_seq(&self, turn: TurnSeq) -> BoxFuture<'_, Result<Option<TurnRow>>>;

    /// Lists the turns of a chat behind `after`, by number. Fewer than `limit` mean that there are
    /// no more.
    ///
    /// With [`latest_first`](TurnFilter::latest_first) it lists those before `after`, from the
    /// greatest number down; 0 is behind all.
    fn turns(&self, chat: AgentId, filter: TurnFilter, after: TurnSeq, limit: u32) -> BoxFuture<'_, Result<Vec<TurnRow>>>;

    /// Lists the turns of all chats before one, from the greatest number down. Fewer than `limit`
    /// mean that there are no more.
    fn all_turns(&self, before: Option<TurnSeq>, limit: u32) -> BoxFuture<'_, Result<Vec<TurnRow>>>;

    /// Lists the turns of all chats that ended in an error or were interrupted, as
    /// [`all_turns`](Self::all_turns) does.
    fn failed_turns(&self, before: Option<TurnSeq>, limit: u32) -> BoxFuture<'_, Result<Vec<TurnRow>>>;

    /// Gives the state of the fiber of a turn; `None` if there is no such fiber.
    fn turn_fiber(&self, turn: TurnSeq) -> BoxFuture<'_, Result<Option<FiberState>>>;

    /// Gives the request of a turn; an empty one if there is none.
    fn turn_request(&self, turn: TurnSeq) -> BoxFuture<'_, Result<TurnRequest>>;

    /// Gives the stored log of a turn, at most `limit` batches.
    ///
    /// Begins with the batch that has chunk `from` in it.
    fn chunks(&self, turn: TurnSeq, from: u64, limit: u32) -> BoxFuture<'_, Result<Vec<StreamBatch>>>;

    /// Gives the messages of a chat up to and with a place, in order.
    fn chat_messages(&self, chat: AgentId, up_to: i64) -> BoxFuture<'_, Result<Vec<MessageRow>>>;

    /// Lists the messages with a pending interaction behind `after`, the latest first.
    ///
    /// The time of a message is that of the write with which it got its first pending interaction;
    /// it stays for as long as each write of that id in its chat has one. A message that a running
    /// turn writes is left out: what that turn asks and is answered is in its log. Fewer than
    /// `limit` mean that there are no more.
    fn pending_interactions(
        &self,
        query: InteractionQuery,
        after: Option<InteractionCursor>,
        limit: u32,
    ) -> BoxFuture<'_, Result<Vec<InteractionRow>>>;

    /// Gives the id of the message that is to be continued once all its tool calls have results.
    fn continuation_target(&self, chat: AgentId) -> BoxFuture<'_, Result<Option<String>>>;

    /// Stores that a message is to be continued once all its tool calls have results.
    ///
    /// It may be one that a running turn writes. A later message that is to be continued stays so.
    fn want_continuation(&self, chat: AgentId, message: String) -> BoxFuture<'_, Result<()>>;

    /// Updates a message, and stores whether it is to be continued once its calls have results.
    ///
    /// The update is refused unless the message is the one that it was made from, and no turn that
    /// is `running` writes it whose fiber is `running`: such a turn has read the message. A message
    /// to be continued stays so when another one is updated, unless that one is wanted and stands
    /// behind it.
    fn update_message(
        &self,
        chat: AgentId,
        update: MessageUpdate,
        wanted: bool,
        now_ms: i64,
    ) -> BoxFuture<'_, Result<Result<(), UpdateRefused>>>;

    /// Replaces all messages of a chat. Refused, with `false`, while a turn has not ended.
    fn replace_messages(&self, chat: AgentId, messages: Vec<MessageRow>, now_ms: i64) -> BoxFuture<'_, Result<bool>>;

    /// Deletes all messages and logs of a chat, and ends its turns.
    ///
    /// Gives the turns that had not ended.
    ///
    /// Running turns are `aborted`, queued ones `skipped`. Their fibers that are parked are made
    /// ready.
    fn clear_chat(&self, chat: AgentId, now_ms: i64) -> BoxFuture<'_, Result<Vec<TurnRow>>>;

    /// Lists the turns that have not ended although their fibers have.
    ///
    /// Also where the rest of their rows cannot be read.
    fn orphaned_turns(&self) -> BoxFuture<'_, Result<Vec<TurnSeq>>>;

    /// Deletes the logs of turns that ended before a time, of at most `limit`; gives of how many.
    fn compact_turns(&self, before_ms: i64, limit: u32) -> BoxFuture<'_, Result<u64>>;

    /// Deletes turns that ended before a time, at most `limit`; gives how many. Messages stay.
    fn delete_turns(&self, before_ms: i64, limit: u32) -> BoxFuture<'_, Result<u64>>;

    /// Whether a debounced turn was accepted implausibly late, while the clock was ahead.
    ///
    /// That is more than `slack_ms` from now.
    fn has_far_turns(&self, now_ms: i64, slack_ms: i64) -> BoxFuture<'_, Result<bool>>;

    /// Delays such turns, and the waits of their fibers, from now on instead; gives how many.
    fn correct_turns(&self, now_ms: i64, slack_ms: i64) -> BoxFuture<'_, Result<u64>>;
}
