//! What is stored of chats: messages, turns with their logs, and incidents.
//!
//! Of messages and chunks the store knows ids and order; what is in them is text.
use super::{NewFiber, Runnable};
use crate::error::Result;
use crate::fiber::frame::BoxFuture;
use crate::fiber::owner::AgentId;

/// The store's own number of a turn: counts up in the order of acceptance.
pub(crate) type TurnSeq = i64;

/// A message as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MessageRow {
    pub(crate) id: String,
    pub(crate) role: &'static str,
    /// JSON.
    pub(crate) data: String,
}

/// Whether a turn makes a new message or adds to the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnKind {
    Answer,
    Continue,
}

/// What becomes of a turn that comes while another one is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Queueing {
    /// It waits.
    Queue,
    /// It waits, and is skipped if another one comes meanwhile.
    Latest,
    /// The same; what it was to answer is answered by the one that comes.
    Merge,
    /// It is not accepted.
    Drop,
    /// It waits for so many milliseconds, and is skipped if another one comes meanwhile.
    Debounce(i64),
}

/// Where a turn stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TurnState {
    /// Accepted; others are before it, or it is just about to begin.
    Queued,
    /// Being answered.
    Running,
    /// It has its answer.
    Completed,
    /// It ended in an error.
    Error,
    /// Somebody has ended it.
    Aborted,
    /// It was not answered: another turn has taken its place, or the chat was cleared.
    Skipped,
    /// It was interrupted, and it was decided not to go on.
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

    pub(crate) fn of_word(word: &str) -> Option<Self> {
        TurnState::ALL.into_iter().find(|s| s.as_str() == word)
    }
}

impl std::fmt::Display for TurnState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// A turn to be accepted.
#[derive(Debug, Clone)]
pub(crate) struct NewTurn {
    pub(crate) chat: AgentId,
    pub(crate) id: String,
    pub(crate) key: Option<String>,
    pub(crate) kind: TurnKind,
    pub(crate) queueing: Queueing,
    /// Stored with it: in place of those with the same ids, else at the end.
    pub(crate) messages: Vec<MessageRow>,
    /// Everything behind this message goes before anything else is stored.
    pub(crate) cut_behind: Option<String>,
    /// The id of the message that it makes; one that continues takes that of the last message, which must be the assistant's.
    pub(crate) message: String,
    /// JSON.
    pub(crate) body: Option<String>,
    /// JSON.
    pub(crate) tools: Option<String>,
    /// JSON.
    pub(crate) metadata: Option<String>,
    pub(crate) fiber: NewFiber,
    pub(crate) now_ms: i64,
}

/// What became of a [`NewTurn`].
#[derive(Debug)]
pub(crate) enum AcceptedTurn {
    /// It is stored; its fiber is ready, and to be dispatched by the caller.
    New(Box<TurnRow>, Runnable),
    /// A turn with the same id or key was there before.
    Existing(Box<TurnRow>),
    /// Another turn is under way, and this one was not to wait.
    Dropped,
    /// There is no message of the assistant that it could continue.
    NothingToContinue,
}

/// A turn as it is stored, without its log.
#[derive(Debug, Clone)]
pub(crate) struct TurnRow {
    pub(crate) seq: TurnSeq,
    pub(crate) chat: AgentId,
    pub(crate) id: String,
    pub(crate) key: Option<String>,
    pub(crate) kind: TurnKind,
    pub(crate) state: TurnState,
    /// Why it ended as it did, unless it completed.
    pub(crate) reason: Option<String>,
    /// Why it is to end.
    pub(crate) cancel: Option<String>,
    /// The id of its message.
    pub(crate) message: String,
    /// Where its message stands, or will stand, among those of the chat.
    pub(crate) place: i64,
    /// The ids of the messages that it answers.
    pub(crate) origins: Vec<String>,
    /// How many processes have died with it under way; one that runs now counts.
    pub(crate) deaths: u32,
    pub(crate) created_ms: i64,
    pub(crate) started_ms: Option<i64>,
    pub(crate) settled_ms: Option<i64>,
}

/// What a turn was asked with, and what it stashed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TurnRequest {
    pub(crate) body: Option<String>,
    pub(crate) tools: Option<String>,
    pub(crate) metadata: Option<String>,
    pub(crate) stash: Option<String>,
}

/// Some chunks of a log that were stored together, one a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chunks {
    /// The number of the first of them.
    pub(crate) first: u64,
    pub(crate) count: u64,
    pub(crate) data: String,
    pub(crate) stored_ms: i64,
}

/// How an incident stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IncidentState {
    Attempting,
    Recovered,
    Exhausted,
}

/// What was spent on going on with a turn that was interrupted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IncidentRow {
    /// Whether something was shown before.
    pub(crate) continues: bool,
    pub(crate) state: IncidentState,
    /// Attempts since the last progress.
    pub(crate) attempts: u32,
    /// When the last attempt began that counted.
    pub(crate) attempt_ms: i64,
    /// How many chunks the log had when the last attempt began.
    pub(crate) chunks: u64,
    /// How many it had when the incident began.
    pub(crate) began_at: u64,
    /// When the turn last came further.
    pub(crate) progress_ms: i64,
    pub(crate) reason: Option<String>,
    pub(crate) created_ms: i64,
}

/// A turn that is to be begun.
#[derive(Debug)]
pub(crate) struct TurnBegun {
    pub(crate) row: TurnRow,
    pub(crate) request: TurnRequest,
    pub(crate) chunks: Vec<Chunks>,
    /// What was spent on it before, if it was interrupted before.
    pub(crate) incident: Option<IncidentRow>,
    /// Whether it was begun before.
    pub(crate) again: bool,
}

/// Whether a turn may begin.
#[derive(Debug)]
pub(crate) enum MayBegin {
    /// A death of the process counts as one of the turn from now on.
    Now(Box<TurnBegun>),
    /// Another one is before it, in the fiber of this id.
    Behind(String),
    /// Another one is before it and was left behind by its fiber: it is to be settled first.
    Left(Box<TurnRow>),
    /// Not before this time.
    Due(i64),
    /// It has ended, perhaps just now, because another one has taken its place.
    Over(Box<TurnRow>),
}

/// How a turn ends.
#[derive(Debug, Clone)]
pub(crate) struct Settle {
    pub(crate) state: TurnState,
    pub(crate) reason: Option<String>,
    /// Its message, unless it has none.
    pub(crate) message: Option<String>,
    /// What becomes of its incident.
    pub(crate) incident: Option<IncidentState>,
    pub(crate) now_ms: i64,
}

/// What became of something that was asked of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OfTurn {
    Done,
    /// It has ended.
    Over,
}

/// Which turns: all that agree with everything that is said here.
#[derive(Debug, Clone, Default)]
pub(crate) struct WhichTurns {
    pub(crate) states: Vec<TurnState>,
}

/// The storage of chats.
pub(crate) trait ChatStore {
    /// Stores a turn with its messages and its fiber, which is pending, unless there is one with its id or key.
    fn accept_turn(&self, new: NewTurn) -> BoxFuture<'_, Result<AcceptedTurn>>;

    /// Begins a turn if it may, and counts a death for it in advance.
    fn begin_turn(&self, turn: TurnSeq, now_ms: i64) -> BoxFuture<'_, Result<MayBegin>>;

    /// Takes back the death that was counted when a turn was begun: it has not ended, and its process is well.
    fn leave_turn(&self, turn: TurnSeq) -> BoxFuture<'_, Result<()>>;

    /// Stores what is spent on going on with a turn.
    fn store_incident(&self, turn: TurnSeq, incident: IncidentRow, now_ms: i64) -> BoxFuture<'_, Result<()>>;

    /// Stores more of a log. Refused when the chunks do not follow those that are stored.
    fn append_chunks(&self, turn: TurnSeq, chunks: Chunks) -> BoxFuture<'_, Result<OfTurn>>;

    /// Replaces what a turn stashed.
    fn stash_turn(&self, turn: TurnSeq, stash: String) -> BoxFuture<'_, Result<OfTurn>>;

    /// Ends a turn: the rest of its log, its message and its state at once. One that has ended stays as it is.
    fn settle_turn(&self, turn: TurnSeq, settle: Settle) -> BoxFuture<'_, Result<OfTurn>>;

    /// Tells a turn to end; one that has not begun has ended when this is ready.
    fn cancel_turn(&self, turn: TurnSeq, reason: String, now_ms: i64) -> BoxFuture<'_, Result<Option<TurnRow>>>;

    /// A turn by its id in a chat.
    fn turn(&self, chat: AgentId, id: String) -> BoxFuture<'_, Result<Option<TurnRow>>>;

    /// A turn by its key in a chat.
    fn turn_by_key(&self, chat: AgentId, key: String) -> BoxFuture<'_, Result<Option<TurnRow>>>;

    /// A turn by its number.
    fn turn_by_seq(&self, turn: TurnSeq) -> BoxFuture<'_, Result<Option<TurnRow>>>;

    /// The turns of a chat that are after `after`, in the order of acceptance.
    fn turns(&self, chat: AgentId, which: WhichTurns, after: TurnSeq, limit: u32) -> BoxFuture<'_, Result<Vec<TurnRow>>>;

    /// What a turn was asked with.
    fn turn_request(&self, turn: TurnSeq) -> BoxFuture<'_, Result<TurnRequest>>;

    /// The stored part of a log from a chunk on, up to so many rows.
    fn chunks(&self, turn: TurnSeq, from: u64, limit: u32) -> BoxFuture<'_, Result<Vec<Chunks>>>;

    /// The messages of a chat up to a place, in order.
    fn chat_messages(&self, chat: AgentId, up_to: i64) -> BoxFuture<'_, Result<Vec<MessageRow>>>;

    /// The message of which a continuation is wanted as soon as all its tool calls are settled.
    fn held(&self, chat: AgentId) -> BoxFuture<'_, Result<Option<String>>>;

    /// Puts a message in the place of the one with its id, and says whether a continuation of it is wanted.
    fn hold(&self, chat: AgentId, message: MessageRow, wanted: bool, now_ms: i64) -> BoxFuture<'_, Result<()>>;

    /// Puts messages in the place of all there are. Refused, with `false`, while a turn is under way.
    fn replace_messages(&self, chat: AgentId, messages: Vec<MessageRow>, now_ms: i64) -> BoxFuture<'_, Result<bool>>;

    /// Takes all messages and past turns away and ends those under way; gives the ids of these.
    fn clear_chat(&self, chat: AgentId, now_ms: i64) -> BoxFuture<'_, Result<Vec<TurnRow>>>;

    /// Turns that have not ended although their fibers have; whatever else is in their rows.
    fn left_turns(&self) -> BoxFuture<'_, Result<Vec<TurnSeq>>>;

    /// Deletes the chunks of turns that were settled before this time, of at most so many; says of how many.
    fn fold_turns(&self, before_ms: i64, limit: u32) -> BoxFuture<'_, Result<u64>>;

    /// Deletes turns that were settled before this time, at most so many; says how many. Their numbers are not given again.
    fn delete_turns(&self, before_ms: i64, limit: u32) -> BoxFuture<'_, Result<u64>>;

    /// Whether a turn waits for quiet that was accepted more than `slack_ms` later than now, by a clock that was ahead.
    fn any_far_turn(&self, now_ms: i64, slack_ms: i64) -> BoxFuture<'_, Result<bool>>;

    /// Lets such turns wait for as long as they were to, from now on; says how many.
    fn correct_turns(&self, now_ms: i64, slack_ms: i64) -> BoxFuture<'_, Result<u64>>;
}
