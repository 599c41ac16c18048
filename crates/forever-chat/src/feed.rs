//! Events of a chat for clients: accepted turns, the turn being answered, changed messages.
//!
//! A feed only notifies and records nothing. Everything in it can be read from the store, where a
//! listener that missed events reads again.
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forever_runtime::__layers::fanout::Taken;
use forever_runtime::__layers::{EngineLink, fanout, race};
use forever_runtime::Result;
use forever_runtime::store::{AgentId, TurnSeq};

use crate::message::UiMessage;
use crate::status::TurnStatus;

/// Maximum number of events that are kept for a slow listener.
const KEPT: usize = 256;

/// Event in a chat. What it reports is stored already.
///
/// ```
/// use forever::chat::{ChatEvent, ChatEvents};
///
/// /// Shows what else happens in a chat, beside the chunks of its answers.
/// async fn show(mut events: ChatEvents) -> forever::Result<()> {
///     while let Some(event) = events.recv().await? {
///         match event {
///             ChatEvent::Accepted(turn) => println!("{} is queued", turn.id()),
///             ChatEvent::Began(turn) => println!("{} is answered", turn.id()),
///             ChatEvent::Recovering { turn, .. } => println!("{turn} was interrupted"),
///             ChatEvent::Replaced | ChatEvent::Cleared => println!("read the messages again"),
///             _ => {}
///         }
///     }
///     Ok(())
/// }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ChatEvent {
    /// A turn was accepted, with its messages.
    Accepted(TurnStatus),
    /// A turn is being answered: for the first time, or again after an interruption.
    Began(TurnStatus),
    /// The recovery of an interrupted turn has begun or ended.
    Recovering {
        /// The turn's id.
        turn: String,
        /// Whether the recovery is under way.
        recovering: bool,
    },
    /// A person or their client has answered a tool call of this message.
    Updated(Arc<UiMessage>),
    /// All messages were replaced.
    Replaced,
    /// All messages were deleted.
    Cleared,
    /// Number of events that this listener missed because it was too slow.
    Lagged(u64),
}

/// Listeners by chat. A chat has an entry for as long as it has a listener.
#[derive(Debug, Default, Clone)]
pub(super) struct Feeds(Arc<Mutex<HashMap<AgentId, Feed>>>);

#[derive(Debug)]
struct Feed {
    sender: fanout::Sender<Arc<ChatEvent>>,
    told: AlreadySent,
}

/// Most turns that are remembered in an [`AlreadySent`].
const REMEMBERED: usize = 256;

/// Events that this process has sent, so that they are not sent again when they are read back.
#[derive(Debug, Default, Clone)]
pub(super) struct AlreadySent {
    pub(super) accepted: BTreeSet<TurnSeq>,
    pub(super) began: BTreeSet<TurnSeq>,
    /// Ids of messages that were updated since the last look at the database.
    pub(super) updated: BTreeSet<String>,
    /// Whether all messages were replaced or taken away since then.
    pub(super) replaced: bool,
}

impl AlreadySent {
    fn note(&mut self, event: &ChatEvent) {
        let turns = match event {
            ChatEvent::Accepted(turn) => (&mut self.accepted, turn.seq()),
            ChatEvent::Began(turn) => (&mut self.began, turn.seq()),
            ChatEvent::Updated(message) => {
                self.updated.insert(message.id.clone());
                return;
            }
            ChatEvent::Replaced | ChatEvent::Cleared => {
                self.replaced = true;
                return;
            }
            ChatEvent::Recovering { .. } | ChatEvent::Lagged(_) => return,
        };
        turns.0.insert(turns.1);
        if turns.0.len() > REMEMBERED {
            turns.0.pop_first();
        }
    }
}

impl Feeds {
    /// Notifies the listeners of a chat.
    pub(super) fn tell(&self, chat: &AgentId, event: impl FnOnce() -> ChatEvent) {
        let sender = match self.feeds().get(chat) {
            Some(feed) => feed.sender.clone(),
            None => return,
        };
        let event = event();
        if let Some(feed) = self.feeds().get_mut(chat) {
            feed.told.note(&event);
        }
        sender.send(Arc::new(event));
    }

    /// The chats that have listeners.
    pub(super) fn chats(&self) -> Vec<AgentId> {
        self.feeds().keys().cloned().collect()
    }

    /// Events that listeners of a chat were sent; of messages, since the last call.
    pub(super) fn take_told(&self, chat: &AgentId) -> Option<AlreadySent> {
        let mut feeds = self.feeds();
        let told = &mut feeds.get_mut(chat)?.told;
        let taken = told.clone();
        told.updated.clear();
        told.replaced = false;
        Some(taken)
    }

    pub(super) fn listen(&self, link: EngineLink, chat: &AgentId) -> ChatEvents {
        let mut feeds = self.feeds();
        let new = || Feed { sender: fanout::Sender::new(KEPT), told: AlreadySent::default() };
        let feed = feeds.entry(chat.clone()).or_insert_with(new);
        ChatEvents { link, heard: Some(feed.sender.subscribe()), feeds: self.clone(), chat: chat.clone() }
    }

    fn feeds(&self) -> MutexGuard<'_, HashMap<AgentId, Feed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of chats with an entry.
    pub(super) fn len(&self) -> usize {
        self.feeds().len()
    }
}

/// Stream of the events of a chat; made by
/// [`ChatHandle::chat_events`](crate::ChatHandle::chat_events).
///
/// ```
/// # use forever::chat::ChatEvent;
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
/// let mut events = chat.chat_events()?;
/// let turn = chat.save_messages([UiMessage::user("u1", "When is breakfast?")]).await?;
/// let Some(ChatEvent::Accepted(accepted)) = events.recv().await? else { panic!() };
/// assert_eq!(accepted.id(), turn.id());
/// # forever.close().await?;
/// # Ok(())
/// # }
/// ```
pub struct ChatEvents {
    link: EngineLink,
    /// `None` while it is dropped.
    heard: Option<fanout::Receiver<Arc<ChatEvent>>>,
    feeds: Feeds,
    chat: AgentId,
}

impl Drop for ChatEvents {
    fn drop(&mut self) {
        let mut feeds = self.feeds.feeds();
        self.heard = None;
        if feeds.get(&self.chat).is_some_and(|feed| feed.sender.receiver_count() == 0) {
            feeds.remove(&self.chat);
        }
    }
}

impl ChatEvents {
    /// The next event; `None` when the runtime closes. Dropping the call loses no event.
    ///
    /// # Errors
    /// When the runtime is gone.
    pub async fn recv(&mut self) -> Result<Option<ChatEvent>> {
        let engine = self.link.get()?;
        let Some(heard) = &mut self.heard else { return Ok(None) };
        Ok(match race(heard.recv(), engine.closing()).await {
            Some(Taken::Value(event)) => Some(Arc::unwrap_or_clone(event)),
            Some(Taken::Lost(missed)) => Some(ChatEvent::Lagged(missed)),
            None => None,
        })
    }
}

impl fmt::Debug for ChatEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatEvents").finish_non_exhaustive()
    }
}
