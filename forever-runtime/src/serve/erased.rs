//! An agent whose class is known only by its name in a URL.
use crate::agent::{Agent, AgentHandle, Agents, BoxError};
use crate::chat::{ChatAgent, Turn};
use crate::runtime::link::Link;
use crate::store::AgentId;

/// Type of such an agent; it has no values.
pub(super) enum Erased {}

impl Agent for Erased {
    // Never used for a lookup: the handle has the class beside it.
    const CLASS: &'static str = "";
    type State = serde_json::Value;
}

impl ChatAgent for Erased {
    async fn on_chat_message(&self, _: &Turn) -> Result<(), BoxError> {
        match *self {}
    }
}

pub(super) fn agent(link: Link<Agents>, class: &str, name: &str) -> AgentHandle<Erased> {
    AgentHandle::new(link, AgentId { class: class.to_owned(), name: name.to_owned() })
}
