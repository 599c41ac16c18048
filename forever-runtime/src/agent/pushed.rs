//! Messages that connections to an agent receive.
use std::sync::Arc;

use serde::de::DeserializeOwned;

use crate::error::{Error, ErrorKind, Result};
use crate::exact;
use crate::fanout::Taken;

/// A value that was sent to connections, as JSON.
///
/// See [`Pushed`] for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message(pub(super) Arc<str>);

impl Message {
    /// The text, in the format of stored values: for ordinary values the same as by `serde_json`.
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

/// Message that a [`Connection`](super::Connection) receives.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::agent::{Connection, Pushed};
///
/// /// Forwards what an agent pushes to a browser, until the runtime closes.
/// async fn forward(mut connection: Connection, mut send: impl FnMut(&str, &str)) {
///     while let Some(pushed) = connection.recv().await {
///         match pushed {
///             Pushed::State(state) => send("state", state.json()),
///             Pushed::Broadcast(message) => send("message", message.json()),
///             Pushed::Lagged(lost) => send("lost", &lost.to_string()),
///             _ => {}
///         }
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pushed {
    /// The agent's state: first as it was when the connection was made, if it was ever set, then
    /// each time it is set.
    State(Message),
    /// A broadcast of the agent.
    Broadcast(Message),
    /// This many messages were lost because the connection was too slow; the following ones are
    /// newer.
    Lagged(u64),
}

impl From<Taken<Pushed>> for Pushed {
    fn from(taken: Taken<Pushed>) -> Self {
        match taken {
            Taken::Value(pushed) => pushed,
            Taken::Lost(lost) => Pushed::Lagged(lost),
        }
    }
}
