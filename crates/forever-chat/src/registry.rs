//! The chats of one runtime: their classes, the logs in use, and the turns under way.
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use forever_runtime::__layers::{ContextOfLayer, Engine, EngineAgents};
use forever_runtime::fiber::FiberContext;
use forever_runtime::store::{AgentId, TurnRow, TurnSeq};
use forever_runtime::{Error, ErrorKind, Result};
use tokio::sync::watch;

use crate::feed::{ChatEvent, Feeds};
use crate::hooks::{ChatClass, ChatClasses};
use crate::log::{Logs, TurnEnd};
use crate::status::TurnStatus;
use crate::turn::Turn;
use crate::writer::Batching;

/// Settings of the builder.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) batching: Batching,
    /// How long the chunks of settled turns are kept.
    pub(crate) replay: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { batching: Batching::default(), replay: Duration::from_secs(10 * 60) }
    }
}

/// The chats of one runtime: a layer of it.
#[derive(Debug, Default)]
pub(crate) struct ChatRegistry {
    /// The agents of the chats, once the runtime is open.
    agents: OnceLock<EngineAgents>,
    pub(crate) classes: ChatClasses,
    pub(crate) settings: Settings,
    pub(crate) logs: Logs,
    pub(super) feeds: Feeds,
    under_way: Mutex<HashMap<TurnSeq, RunningTurn>>,
    answering: Mutex<HashMap<AgentId, Arc<tokio::sync::Mutex<()>>>>,
    /// Notified when a turn begins to be answered, is released, or ends.
    changed: watch::Sender<()>,
}

/// The chats of a runtime.
pub(crate) fn registry(engine: &Engine) -> Result<Arc<ChatRegistry>> {
    engine
        .layer::<ChatRegistry>()
        .filter(|chats| !chats.classes.is_empty())
        .ok_or_else(|| Error::new(ErrorKind::NotRegistered, "no agent class is registered for chat: add one with `.chat_agent(..)`"))
}

/// The chats of the runtime of a function that they have registered.
pub(crate) fn registry_of(ctx: &FiberContext) -> Result<Arc<ChatRegistry>> {
    ctx.host::<Arc<ChatRegistry>>().cloned().ok_or_else(|| Error::new(ErrorKind::Setup, "a turn needs a runtime"))
}

/// A turn under way, as other code reaches it.
#[derive(Debug)]
struct RunningTurn {
    cancelled: watch::Sender<Option<Arc<str>>>,
    turn: Option<(AgentId, Turn)>,
}

impl ChatRegistry {
    /// Gives them the agents of the runtime, which has just opened.
    pub(super) fn open(&self, agents: EngineAgents) {
        // A layer is opened once.
        let _ = self.agents.set(agents);
    }

    /// The agents of the chats.
    pub(super) fn agents(&self) -> Result<&EngineAgents> {
        self.agents.get().ok_or_else(Error::closed)
    }

    /// The runtime of the chats.
    pub(super) fn engine(&self) -> Result<Engine> {
        self.agents()?.engine()
    }

    /// The class of a chat.
    pub(super) fn class(&self, class: &str) -> Result<&Arc<dyn ChatClass>> {
        self.classes.get(class).ok_or_else(|| {
            let why = format!("agent class `{class}` is not registered for chat: add it with `.chat_agent(..)`");
            Error::new(ErrorKind::NotRegistered, why)
        })
    }

    fn under_way(&self) -> MutexGuard<'_, HashMap<TurnSeq, RunningTurn>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks a turn as under way until the guard is dropped.
    pub(super) fn enter(self: &Arc<Self>, turn: TurnSeq) -> UnderWay {
        let cancelled = watch::Sender::new(None);
        let asked = cancelled.subscribe();
        self.under_way().insert(turn, RunningTurn { cancelled, turn: None });
        UnderWay { chats: Arc::clone(self), turn, asked }
    }

    /// Whether a turn is answered in this process.
    pub(super) fn is_under_way(&self, turn: TurnSeq) -> bool {
        self.under_way().contains_key(&turn)
    }

    /// The turns that are answered in this process.
    pub(super) fn turns_under_way(&self) -> Vec<TurnSeq> {
        self.under_way().keys().copied().collect()
    }

    /// Asks a turn that is under way to end.
    pub(super) fn cancel(&self, turn: TurnSeq, reason: &str) {
        if let Some(told) = self.under_way().get(&turn) {
            told.cancelled.send_if_modified(|there| {
                let first = there.is_none();
                if first {
                    *there = Some(reason.into());
                }
                first
            });
        }
    }

    /// Notified when a turn begins to be answered, is released, or ends.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The turn of a chat that is being answered.
    pub(super) fn turn_of(&self, chat: &AgentId) -> Option<Turn> {
        let under_way = self.under_way();
        let turns = under_way.values().filter_map(|told| told.turn.as_ref());
        turns.filter(|(of, _)| of == chat).map(|(_, turn)| turn.clone()).next()
    }

    /// The turn of a chat that is being recovered after an interruption.
    pub(crate) fn recovering(&self, chat: &AgentId) -> Option<String> {
        self.turn_of(chat).filter(|turn| turn.recovery().is_some()).map(|turn| turn.id().to_owned())
    }

    /// Lock held while an answer to a tool call is read and written.
    pub(super) fn answering(self: &Arc<Self>, chat: &AgentId) -> Answering {
        let mut answering = self.answering.lock().unwrap_or_else(PoisonError::into_inner);
        let lock = Arc::clone(answering.entry(chat.clone()).or_default());
        Answering { chats: Arc::clone(self), chat: chat.clone(), lock: Some(lock) }
    }

    /// Number of entries for chats and turns.
    pub(crate) fn entries(&self) -> usize {
        let answering = self.answering.lock().unwrap_or_else(PoisonError::into_inner).len();
        self.feeds.len() + self.logs.len() + self.under_way().len() + answering
    }

    /// A turn has ended, and its end is stored.
    pub(super) fn ended(&self, row: &TurnRow) {
        if let Some(end) = TurnEnd::from_row(row) {
            self.settled(row.seq, end);
        }
    }

    /// As [`ended`](Self::ended), for a turn by its number.
    pub(super) fn settled(&self, turn: TurnSeq, end: TurnEnd) {
        if let Some(log) = self.logs.get(turn) {
            log.end(end);
        }
        self.changed.send_replace(());
    }

    /// A turn has ended because its chat was cleared.
    pub(super) fn cleared(&self, row: &TurnRow) {
        if let Some(log) = self.logs.get(row.seq) {
            log.forget();
        }
        self.ended(row);
        self.cancel(row.seq, "the chat was cleared");
    }
}

/// The lock of the answers to the tool calls of a chat. It exists while a task holds it or waits
/// for it.
pub(super) struct Answering {
    chats: Arc<ChatRegistry>,
    chat: AgentId,
    lock: Option<Arc<tokio::sync::Mutex<()>>>,
}

impl Answering {
    pub(super) async fn lock(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        match &self.lock {
            Some(lock) => Some(lock.lock().await),
            None => None,
        }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let mut answering = self.chats.answering.lock().unwrap_or_else(PoisonError::into_inner);
        self.lock = None;
        if answering.get(&self.chat).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            answering.remove(&self.chat);
        }
    }
}

/// Guard of a turn that is under way.
pub(super) struct UnderWay {
    chats: Arc<ChatRegistry>,
    turn: TurnSeq,
    pub(super) asked: watch::Receiver<Option<Arc<str>>>,
}

impl UnderWay {
    /// Makes the turn reachable for writers outside its attempt.
    pub(super) fn answers(&self, chat: &AgentId, turn: &Turn) {
        if let Some(told) = self.chats.under_way().get_mut(&self.turn) {
            told.turn = Some((chat.clone(), turn.clone()));
        }
        self.chats.feeds.tell(chat, || ChatEvent::Began(TurnStatus::of(turn.inner().row.clone())));
        self.chats.changed.send_replace(());
    }

    /// Resolves with the reason when the turn is cancelled.
    pub(super) async fn cancelled(&self) -> Arc<str> {
        let mut asked = self.asked.clone();
        loop {
            if let Some(reason) = asked.borrow_and_update().clone() {
                return reason;
            }
            if asked.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.chats.under_way().remove(&self.turn);
        self.chats.changed.send_replace(());
    }
}

impl fmt::Debug for UnderWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnderWay").field("turn", &self.turn).finish_non_exhaustive()
    }
}
