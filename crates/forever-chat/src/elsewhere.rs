//! What other workers do in the chats that this process shows: turns that they accept, answer and
//! settle, and messages that they change.
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forever_runtime::__layers::{ClusterWatcher, Engine, WeakEngine, chain};
use forever_runtime::Result;
use forever_runtime::store::{AgentId, BoxFuture, Changes, MessageRow, TurnFilter, TurnProgress, TurnSeq, TurnState, Watch};
use tracing::warn;

use crate::answer::read_message;
use crate::feed::{AlreadySent, ChatEvent};
use crate::log::TurnEnd;
use crate::registry::ChatRegistry;
use crate::status::TurnStatus;

/// Most turns that are looked at after a change.
const PAGE: u32 = 64;

/// A turn that was settled so long before the first look at its chat, in milliseconds, may have
/// been missed by a listener that has just come.
const JUST_NOW_MS: i64 = 2_000;

/// Takes in what other workers do in chats.
pub(crate) struct ChatWatcher {
    engine: WeakEngine,
    chats: Arc<ChatRegistry>,
    seen: Mutex<HashMap<AgentId, SeenChat>>,
}

/// A chat as it was at the last look.
struct SeenChat {
    version: i64,
    /// The last turn.
    last: TurnSeq,
    /// States of the turns that had not ended.
    open: BTreeMap<TurnSeq, TurnState>,
    /// Hashes of the messages, by id.
    messages: HashMap<String, u64>,
}

impl ChatWatcher {
    pub(crate) fn new(engine: &Engine, chats: &Arc<ChatRegistry>) -> Self {
        ChatWatcher { engine: engine.weak(), chats: Arc::clone(chats), seen: Mutex::default() }
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<AgentId, SeenChat>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_in_turn(&self, progress: &TurnProgress) {
        let TurnProgress { turn, chunks, state, reason, error, cancel } = progress;
        let end = state.is_settled().then(|| TurnEnd::new(*state, reason.as_deref(), error.as_deref()));
        if self.chats.is_under_way(*turn) {
            // This process writes its log itself, and settles it.
            if let Some(why) = cancel {
                self.chats.cancel(*turn, why);
            }
        } else if let Some(log) = self.chats.logs.get(*turn) {
            if *chunks > log.stored() {
                log.learn(*chunks);
            }
            if let Some(end) = end {
                self.chats.settled(*turn, end);
            }
        }
    }

    async fn take_in_chat(&self, engine: &Engine, chat: &AgentId, version: i64) -> Result<()> {
        let before = self.seen().remove(chat);
        if before.as_ref().is_some_and(|before| before.version == version) {
            self.seen().extend(before.map(|before| (chat.clone(), before)));
            return Ok(());
        }
        let Some(told) = self.chats.feeds.take_told(chat) else { return Ok(()) };
        let store = engine.store();
        let open = TurnFilter { states: vec![TurnState::Queued, TurnState::Running], ..TurnFilter::default() };
        let open = store.turns(chat.clone(), open, 0, PAGE).await?;
        let latest = TurnFilter { latest_first: true, ..TurnFilter::default() };
        let mut latest = store.turns(chat.clone(), latest, 0, PAGE).await?;
        latest.reverse();
        let messages = store.chat_messages(chat.clone(), i64::MAX).await?;

        let last = before.as_ref().map(|before| before.last);
        let is_new = |seq: TurnSeq| last.is_some_and(|last| seq > last) && !told.accepted.contains(&seq);
        // The first look reports the open turns: a listener knows which it has seen.
        let first = |seq: TurnSeq| last.is_none() && !told.accepted.contains(&seq) && open.iter().any(|turn| turn.seq == seq);
        for turn in latest.iter().filter(|turn| is_new(turn.seq) || first(turn.seq)) {
            self.chats.feeds.tell(chat, || ChatEvent::Accepted(TurnStatus::of(turn.clone())));
        }
        let was = |seq: TurnSeq| before.as_ref().and_then(|before| before.open.get(&seq).copied());
        for turn in open.iter().filter(|turn| turn.state == TurnState::Running) {
            if was(turn.seq) != Some(TurnState::Running) && !told.began.contains(&turn.seq) {
                self.chats.feeds.tell(chat, || ChatEvent::Began(TurnStatus::of(turn.clone())));
            }
        }
        let hashes: HashMap<String, u64> = messages.iter().map(|row| (row.id.clone(), hash(row))).collect();
        let now = SeenChat {
            version,
            last: latest.last().map_or(0, |turn| turn.seq),
            open: open.iter().map(|turn| (turn.seq, turn.state)).collect(),
            messages: hashes,
        };
        if let Some(before) = &before {
            self.tell_of_messages(chat, before, &now, &messages, &told);
        } else {
            let missed = |ms: i64| ms >= engine.now_ms() - JUST_NOW_MS;
            if latest.iter().any(|turn| turn.settled_ms.is_some_and(missed) && !told.accepted.contains(&turn.seq)) {
                self.chats.feeds.tell(chat, || ChatEvent::Replaced);
            }
        }
        // The events of just now are not those of this process.
        self.chats.feeds.take_told(chat);
        self.seen().insert(chat.clone(), now);
        Ok(())
    }

    fn tell_of_messages(&self, chat: &AgentId, before: &SeenChat, now: &SeenChat, rows: &[MessageRow], told: &AlreadySent) {
        if told.replaced {
            return;
        }
        let feeds = &self.chats.feeds;
        if now.messages.is_empty() && !before.messages.is_empty() {
            return feeds.tell(chat, || ChatEvent::Cleared);
        }
        let is_lost = before.messages.keys().any(|id| !now.messages.contains_key(id));
        let is_added = now.messages.keys().any(|id| !before.messages.contains_key(id));
        // Turns bring their questions and leave their answers.
        let by_turns = before.last != now.last || before.open != now.open;
        if is_lost || is_added && !by_turns {
            return feeds.tell(chat, || ChatEvent::Replaced);
        }
        for row in rows {
            let is_changed = before.messages.get(&row.id).is_some_and(|hash| now.messages.get(&row.id) != Some(hash));
            if is_changed
                && !told.updated.contains(&row.id)
                && let Ok(message) = read_message(row)
            {
                feeds.tell(chat, || ChatEvent::Updated(Arc::new(message)));
            }
        }
    }
}

fn hash(row: &MessageRow) -> u64 {
    let mut hasher = DefaultHasher::new();
    row.data.hash(&mut hasher);
    hasher.finish()
}

impl ClusterWatcher for ChatWatcher {
    fn watch(&self, watch: &mut Watch) {
        watch.turns = self.chats.logs.open();
        watch.turns.extend(self.chats.turns_under_way());
        watch.turns.sort_unstable();
        watch.turns.dedup();
        watch.chats = self.chats.feeds.chats();
        self.seen().retain(|chat, _| watch.chats.contains(chat));
    }

    fn changed<'a>(&'a self, changes: &'a Changes) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let Some(engine) = self.engine.upgrade() else { return };
            for progress in &changes.turns {
                self.take_in_turn(progress);
            }
            for (chat, version) in &changes.chats {
                if let Err(error) = self.take_in_chat(&engine, chat, *version).await
                    && !error.is_closed()
                {
                    warn!(%chat, error = %chain(&error), "changes of a chat in another worker could not be read");
                }
            }
        })
    }
}
