//! What a runtime holds in memory for single agents, chats and turns.
use std::sync::Arc;

use crate::agent::Agents;
use crate::chat::Chats;
use crate::forever::Forever;

/// Number of entries that a runtime holds for single agents, chats and turns: 0 when all were left.
pub fn entries_in_memory(forever: &Forever) -> usize {
    let core = forever.core();
    let chats = core.resources.get::<Arc<Chats>>().map_or(0, |chats| chats.entries());
    let agents = Agents::of(core).map_or(0, |agents| agents.entries());
    chats + agents
}
