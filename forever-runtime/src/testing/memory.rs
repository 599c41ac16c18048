//! Entries that a runtime holds in memory for single agents, chats and turns.
use std::sync::Arc;

use crate::api::forever::Forever;
use crate::chat::Chats;

/// Number of entries that a runtime holds for single agents, chats and turns; 0 when all were
/// released.
pub fn entries_in_memory(forever: &Forever) -> usize {
    let chats = forever.exec.resources.get::<Arc<Chats>>().map_or(0, |chats| chats.entries());
    chats + forever.agents.entries()
}
