//! What the crates above the runtime ask of it.
use crate::agent::AgentHandle;
use crate::api::forever::Forever;
use crate::chat::chats;
use crate::runtime::link::Link;
use crate::store::AgentId;

/// Handle of an agent by the names of its class and its own, which does not keep the runtime open.
pub fn weak_agent<A>(forever: &Forever, class: &str, name: &str) -> AgentHandle<A> {
    AgentHandle::new(Link::from(&forever.agents), AgentId { class: class.to_owned(), name: name.to_owned() })
}

/// Names of the classes that are registered for chat.
pub fn chat_classes(forever: &Forever) -> Vec<&'static str> {
    chats(&forever.exec).map(|chats| chats.classes.names().collect()).unwrap_or_default()
}
