//! What follows an agent: its state when it is set, and what it broadcasts.
use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::registry::{Agents, Hold, Woken};
use crate::error::{Error, ErrorKind, Result};
use crate::exact;
use crate::fanout::{self, Taken};
use crate::runtime::link::Link;
use crate::runtime::race::race;

/// How many messages are kept for a connection that is slow to take them.
pub(super) const KEPT: usize = 256;

/// A value that was sent to connections, as JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message(pub(super) Arc<str>);

impl Message {
    /// The text, in the format of stored values: for ordinary values what `serde_json` writes.
    pub fn json(&self) -> &str {
        &self.0
    }

    /// Reads the value.
    ///
    /// # Errors
    /// When it cannot be read as a `V`.
    pub fn read<V: DeserializeOwned>(&self) -> Result<V> {
        exact::from_str(&self.0).map_err(|why| {
            let wanted = std::any::type_name::<V>();
            Error::new(ErrorKind::Value, format!("a message of an agent cannot be read as `{wanted}`: {why}"))
        })
    }
}

/// What a [`Connection`] receives.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pushed {
    /// The agent's state: as it was found when the connection was made, if it was ever set, and then each time it is set.
    State(Message),
    /// What the agent has broadcast.
    Broadcast(Message),
    /// So many messages are lost because the connection was too slow; what comes next is newer than they were.
    Missed(u64),
}

impl From<Taken<Pushed>> for Pushed {
    fn from(taken: Taken<Pushed>) -> Self {
        match taken {
            Taken::Value(pushed) => pushed,
            Taken::Lost(lost) => Pushed::Missed(lost),
        }
    }
}

/// Follows an agent, and keeps it awake.
///
/// State and broadcasts come in the order in which they were set and sent. For a connection that does not take them 256 messages are
/// kept; then the oldest are lost, which [`Pushed::Missed`] tells. Nobody ever waits for it.
pub struct Connection {
    /// Keeps the runtime open, if the handle did.
    _link: Link<Agents>,
    woken: Woken,
    first: Option<Pushed>,
    pushes: fanout::Receiver<Pushed>,
}

impl Connection {
    pub(super) async fn open(link: Link<Agents>, woken: Woken) -> Result<Self> {
        let hold = &woken.hold;
        let runtime = hold.runtime().ok_or_else(Error::closed)?;
        let slot = &hold.slot;
        // Nothing is stored or pushed between the state that comes first and those that follow.
        let mut state = slot.state.lock().await;
        let first = super::state::known(&runtime, slot, &mut state).await?;
        let pushes = slot.pushes.get_or_init(|| fanout::Sender::new(KEPT)).subscribe();
        drop(state);
        Ok(Connection { _link: link, woken, first: first.map(|text| Pushed::State(Message(text))), pushes })
    }

    /// The next message. `None` when the runtime is closed, after what was sent before.
    ///
    /// A call that is given up loses nothing.
    pub async fn recv(&mut self) -> Option<Pushed> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        if let Some(runtime) = self.hold().runtime()
            && let Some(taken) = race(self.pushes.recv(), runtime.closing()).await
        {
            return Some(taken.into());
        }
        self.try_recv()
    }

    /// The next message if it is there by now.
    pub fn try_recv(&mut self) -> Option<Pushed> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        self.pushes.try_recv().map(Pushed::from)
    }

    fn hold(&self) -> &Hold {
        &self.woken.hold
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("agent", &self.hold().slot.id).finish_non_exhaustive()
    }
}
