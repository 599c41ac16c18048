//! What happens in a chat, told to those who show it: what was asked, what is being answered, which messages have changed.
//!
//! It is a bell and no record: everything that it says can be asked of the store, and whoever has missed something asks again.
use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::handle::TurnStatus;
use super::message::UiMessage;
use crate::error::Result;
use crate::fiber::core::{Link, race};
use crate::store::AgentId;

/// How much is kept for one who is slow to listen.
const KEPT: usize = 256;

/// Something that has happened in a chat. What is told of is stored.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ChatEvent {
    /// A turn was accepted, with its messages.
    Accepted(TurnStatus),
    /// A turn is being answered: for the first time, or again after an interruption.
    Began(TurnStatus),
    /// An interrupted turn is about to be gone on with, or has ended after all.
    Recovering {
        /// The turn's id.
        turn: String,
        /// Whether it is so now.
        recovering: bool,
    },
    /// A person or their client has answered a call of this message.
    Updated(UiMessage),
    /// The messages were replaced.
    Replaced,
    /// The messages were taken away.
    Cleared,
    /// So many events were missed: whoever listened was too slow.
    Missed(u64),
}

/// Who listens, by chat.
#[derive(Debug, Default)]
pub(super) struct Feeds(Mutex<HashMap<AgentId, broadcast::Sender<ChatEvent>>>);

impl Feeds {
    /// Tells those who listen.
    pub(super) fn tell(&self, chat: &AgentId, event: impl FnOnce() -> ChatEvent) {
        let mut feeds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(feed) = feeds.get(chat) else { return };
        if feed.send(event()).is_err() {
            // The last of them has gone.
            feeds.remove(chat);
        }
    }

    pub(super) fn listen(&self, link: Link, chat: &AgentId) -> ChatEvents {
        let mut feeds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let feed = feeds.entry(chat.clone()).or_insert_with(|| broadcast::Sender::new(KEPT));
        ChatEvents { link, heard: feed.subscribe() }
    }
}

/// Listens to what happens in a chat; made by [`AgentHandle::chat_events`](crate::AgentHandle::chat_events).
pub struct ChatEvents {
    link: Link,
    heard: broadcast::Receiver<ChatEvent>,
}

impl ChatEvents {
    /// The next event. `None` when the runtime closes. A call that is given up loses nothing.
    ///
    /// # Errors
    /// When the runtime is gone.
    pub async fn recv(&mut self) -> Result<Option<ChatEvent>> {
        let core = self.link.core()?;
        Ok(match race(self.heard.recv(), core.closing()).await {
            Some(Ok(event)) => Some(event),
            Some(Err(RecvError::Lagged(missed))) => Some(ChatEvent::Missed(missed)),
            Some(Err(RecvError::Closed)) | None => None,
        })
    }
}

impl fmt::Debug for ChatEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatEvents").finish_non_exhaustive()
    }
}
