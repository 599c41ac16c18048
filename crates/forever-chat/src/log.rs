//! The log of a turn: its stored entries, and its followers.
//!
//! A log consists of chunks and, last, the end. Nothing is shown before it is stored. A follower
//! reads the stored chunks, from the first or a later one, and then waits for more; the newest
//! chunks come from memory. So all followers see the same entries in the same order, whenever they
//! join.
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use forever_runtime::__layers::secret::told;
use forever_runtime::__layers::{Engine, EngineLink, race};
use forever_runtime::store::{StreamBatch, TurnRow, TurnSeq, TurnState};
use forever_runtime::{Error, Result};
use tokio::sync::watch;

use crate::message::Chunk;

/// Number of the newest chunks that are kept in memory for followers; those further behind read the
/// database.
const TAIL: usize = 1024;

/// Number of rows that a follower reads at a time.
const PAGE: u32 = 64;

/// Text shown to clients for a turn that was interrupted and not recovered.
pub(crate) const INTERRUPTED_TEXT: &str = "The answer was interrupted.";

/// How a turn ended: the last entry of its log.
///
/// ```
/// use forever::chat::{TurnEnd, TurnState};
///
/// fn describe(end: &TurnEnd) -> String {
///     match end.state() {
///         TurnState::Completed => "answered".to_owned(),
///         TurnState::Aborted => "stopped".to_owned(),
///         // `error` is for the log of the program, and `client_text` for people.
///         _ => end.client_text().unwrap_or("not answered").to_owned(),
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnEnd {
    state: TurnState,
    reason: Option<Arc<str>>,
    error: Option<Arc<str>>,
}

impl TurnEnd {
    pub(crate) fn from_row(row: &TurnRow) -> Option<Self> {
        row.state.is_settled().then(|| TurnEnd::new(row.state, row.reason.as_deref(), row.error.as_deref()))
    }

    pub(crate) fn new(state: TurnState, reason: Option<&str>, error: Option<&str>) -> Self {
        TurnEnd { state, reason: reason.map(Into::into), error: error.map(Into::into) }
    }

    /// `Completed`, `Error`, `Aborted`, `Skipped` or `Interrupted`.
    pub fn state(&self) -> TurnState {
        self.state
    }

    /// Whether it was answered completely.
    pub fn is_completed(&self) -> bool {
        self.state == TurnState::Completed
    }

    /// Why it ended as it did, in the words for clients: what
    /// [`client_error_text`](crate::ChatAgent::client_error_text) made of the error, or the reason of
    /// the cancellation.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// The error that ended it, with its causes: for the program and its logs. It may hold what
    /// clients must not see.
    ///
    /// It is stored with the turn. `None` where no error ended it.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref().map(told)
    }

    /// The reason as shown to clients: an interruption is reported as such, without its cause.
    pub fn client_text(&self) -> Option<&str> {
        if self.state == TurnState::Interrupted { Some(INTERRUPTED_TEXT) } else { self.reason() }
    }
}

/// One entry of a log.
///
/// See [`Follow`] for an example.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Entry {
    /// A chunk, with its number in the log, from 0.
    Chunk(u64, StoredChunk),
    /// The end; nothing follows.
    End(TurnEnd),
}

/// A chunk as it is stored.
///
/// ```
/// use forever::chat::StoredChunk;
///
/// /// The event of a stream of server-sent events, which needs no look at the chunk.
/// fn event(chunk: &StoredChunk) -> String {
///     format!("data: {}\n\n", chunk.json())
/// }
///
/// fn text(chunk: &StoredChunk) -> forever::Result<Option<String>> {
///     let chunk = chunk.read()?;
///     Ok(chunk.get("delta").and_then(|delta| delta.as_str()).map(str::to_owned))
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredChunk(Arc<str>);

impl StoredChunk {
    /// Its JSON, in one line.
    pub fn json(&self) -> &str {
        &self.0
    }

    /// The chunk.
    ///
    /// # Errors
    /// When the stored row is damaged.
    pub fn read(&self) -> Result<Chunk> {
        Chunk::parse(&self.0)
    }
}

/// The log of one turn, as far as this process uses it.
pub(crate) struct Log {
    inner: Mutex<Inner>,
    /// Notified when the log grows.
    grown: watch::Sender<()>,
    /// The registry that has its entry, and the entry's number.
    entry: (Logs, TurnSeq),
}

impl Drop for Log {
    fn drop(&mut self) {
        let (logs, turn) = &self.entry;
        let mut logs = logs.logs();
        // Unless a new one has taken its place.
        if logs.get(turn).is_some_and(|log| log.strong_count() == 0) {
            logs.remove(turn);
        }
    }
}

#[derive(Default)]
struct Inner {
    /// Number of stored chunks.
    stored: u64,
    /// The last stored chunks.
    tail: VecDeque<Arc<str>>,
    end: Option<TurnEnd>,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.inner();
        f.debug_struct("Log").field("stored", &inner.stored).field("end", &inner.end).finish_non_exhaustive()
    }
}

/// Result of a follower's read.
enum Found {
    Chunk(Arc<str>),
    /// It is stored, but not in memory.
    Stored,
    End(TurnEnd),
    Nothing,
}

impl Log {
    fn new(logs: &Logs, turn: TurnSeq) -> Self {
        Log { inner: Mutex::default(), grown: watch::Sender::new(()), entry: (logs.clone(), turn) }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of stored chunks.
    pub(crate) fn stored(&self) -> u64 {
        self.inner().stored
    }

    /// Publishes chunks that are stored.
    pub(crate) fn publish(&self, first: u64, chunks: impl IntoIterator<Item = Arc<str>>) {
        let mut inner = self.inner();
        for (number, chunk) in (first..).zip(chunks) {
            // A follower may have read it from the database before.
            if number == inner.stored {
                inner.stored += 1;
                inner.tail.push_back(chunk);
            }
        }
        let over = inner.tail.len().saturating_sub(TAIL);
        inner.tail.drain(..over);
        drop(inner);
        self.grown.send_replace(());
    }

    /// Records the number of stored chunks.
    pub(crate) fn learn(&self, stored: u64) {
        let mut inner = self.inner();
        if stored > inner.stored {
            inner.stored = stored;
            inner.tail.clear();
        }
        drop(inner);
        self.grown.send_replace(());
    }

    /// The stored chunks were deleted.
    pub(crate) fn forget(&self) {
        self.inner().tail.clear();
    }

    /// Records the end of the turn, which is stored.
    pub(crate) fn end(&self, end: TurnEnd) {
        self.inner().end.get_or_insert(end);
        self.grown.send_replace(());
    }

    /// The end of the turn, if it has ended.
    pub(crate) fn ended(&self) -> Option<TurnEnd> {
        self.inner().end.clone()
    }

    /// Resolves when the turn has ended.
    pub(crate) async fn over(&self) -> TurnEnd {
        let mut grown = self.grown.subscribe();
        loop {
            if let Some(end) = self.ended() {
                return end;
            }
            // The sender is in `self`, so the wait cannot fail.
            let _ = grown.changed().await;
        }
    }

    fn find(&self, number: u64) -> Found {
        let inner = self.inner();
        if number < inner.stored {
            let first = inner.stored - inner.tail.len() as u64;
            let place = number.checked_sub(first).and_then(|place| usize::try_from(place).ok());
            return place.and_then(|place| inner.tail.get(place)).map_or(Found::Stored, |chunk| Found::Chunk(Arc::clone(chunk)));
        }
        inner.end.clone().map_or(Found::Nothing, Found::End)
    }
}

/// The logs that tasks of this process write or follow.
#[derive(Debug, Default, Clone)]
pub(crate) struct Logs(Arc<Mutex<HashMap<TurnSeq, Weak<Log>>>>);

impl Logs {
    /// The log of a turn.
    pub(crate) fn of(&self, turn: TurnSeq) -> Arc<Log> {
        let mut logs = self.logs();
        if let Some(there) = logs.get(&turn).and_then(Weak::upgrade) {
            return there;
        }
        let log = Arc::new(Log::new(self, turn));
        logs.insert(turn, Arc::downgrade(&log));
        log
    }

    /// The log of a turn, if a task uses it.
    pub(crate) fn get(&self, turn: TurnSeq) -> Option<Arc<Log>> {
        self.logs().get(&turn).and_then(Weak::upgrade)
    }

    /// Turns whose logs are written or followed here and that have not ended, as far as is known.
    pub(super) fn open(&self) -> Vec<TurnSeq> {
        let logs: Vec<_> = self.logs().iter().filter_map(|(turn, log)| Some((*turn, log.upgrade()?))).collect();
        logs.into_iter().filter(|(_, log)| log.ended().is_none()).map(|(turn, _)| turn).collect()
    }

    fn logs(&self) -> MutexGuard<'_, HashMap<TurnSeq, Weak<Log>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of turns with an entry.
    pub(super) fn len(&self) -> usize {
        self.logs().len()
    }
}

/// Follower of the log of a turn, from a chunk to its end.
///
/// Everything it returns is stored. It may be slow: chunks that are no longer in memory are read
/// from the database.
///
/// ```
/// # use forever::chat::Entry;
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
/// let turn = chat.save_messages([UiMessage::user("u1", "When is breakfast?")]).await?;
/// // A client that has seen chunks 0 to 4 follows from 5.
/// let mut log = turn.follow(0).await?;
/// while let Some(entry) = log.next().await? {
///     match entry {
///         Entry::Chunk(number, chunk) => println!("{number}: {}", chunk.json()),
///         Entry::End(end) => assert!(end.is_completed()),
///         _ => {}
///     }
/// }
/// # forever.close().await?;
/// # Ok(())
/// # }
/// ```
pub struct Follow {
    link: EngineLink,
    turn: TurnSeq,
    log: Arc<Log>,
    next: u64,
    /// Chunks read from the database.
    read: VecDeque<Arc<str>>,
    over: bool,
}

impl Follow {
    pub(crate) fn new(link: EngineLink, turn: TurnSeq, log: Arc<Log>, from: u64) -> Self {
        Follow { link, turn, log, next: from, read: VecDeque::new(), over: false }
    }

    /// The next entry; `None` after the end.
    ///
    /// Dropping the call loses no entry.
    ///
    /// # Errors
    /// When the database cannot be read, or the runtime is closed.
    pub async fn next(&mut self) -> Result<Option<Entry>> {
        loop {
            if let Some(entry) = self.try_next().await? {
                return Ok(Some(entry));
            }
            if self.over {
                return Ok(None);
            }
            let engine = self.link.get()?;
            let mut grown = self.log.grown.subscribe();
            if let Found::Nothing = self.log.find(self.next)
                && race(grown.changed(), engine.closing()).await.is_none()
            {
                return Err(Error::closed());
            }
        }
    }

    /// The next entry, if there is one by now.
    ///
    /// # Errors
    /// When the database cannot be read, or the runtime is closed.
    pub async fn try_next(&mut self) -> Result<Option<Entry>> {
        while !self.over {
            if let Some(chunk) = self.read.pop_front() {
                return Ok(Some(self.step(chunk)));
            }
            match self.log.find(self.next) {
                Found::Chunk(chunk) => return Ok(Some(self.step(chunk))),
                Found::Stored => self.load().await?,
                Found::End(end) => {
                    self.over = true;
                    return Ok(Some(Entry::End(end)));
                }
                Found::Nothing => return Ok(None),
            }
        }
        Ok(None)
    }

    fn step(&mut self, chunk: Arc<str>) -> Entry {
        let number = self.next;
        self.next += 1;
        Entry::Chunk(number, StoredChunk(chunk))
    }

    async fn load(&mut self) -> Result<()> {
        let engine = self.link.get()?;
        let rows = engine.store().chunks(self.turn, self.next, PAGE).await?;
        let chunks = rows.iter().flat_map(lines);
        self.read = chunks.filter(|(number, _)| *number >= self.next).map(|(_, chunk)| chunk.into()).collect();
        if self.read.is_empty() {
            // They were compacted into the message meanwhile.
            self.next = self.log.stored().max(self.next);
        }
        Ok(())
    }
}

/// The chunks of a row, with their numbers.
pub(crate) fn lines(row: &StreamBatch) -> impl Iterator<Item = (u64, &str)> {
    (row.first..).zip(row.data.lines())
}

impl fmt::Debug for Follow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follow").field("turn", &self.turn).field("next", &self.next).finish_non_exhaustive()
    }
}

/// The log of a turn with its row. The end of the turn is not missed, even if it comes just now.
pub(crate) async fn known(engine: &Engine, logs: &Logs, row: TurnSeq) -> Result<(Arc<Log>, Option<TurnRow>)> {
    // The log is created before the row is read, so code that ends the turn later finds it.
    let log = logs.of(row);
    let row = engine.store().turn_by_seq(row).await?;
    if let Some(row) = &row {
        let last = engine.store().chunks(row.seq, u64::MAX >> 1, 1).await?;
        log.learn(last.last().map_or(0, |chunks| chunks.first + chunks.count));
        if let Some(end) = TurnEnd::from_row(row) {
            log.end(end);
        }
    }
    Ok((log, row))
}
