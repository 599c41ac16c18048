//! Entries that a runtime holds in memory for single agents, chats and turns.
use crate::api::forever::Forever;

/// Number of entries that a runtime holds for single agents, chats and turns; 0 when all were
/// released.
pub fn entries_in_memory(forever: &Forever) -> usize {
    forever.exec.registry.layers.entries() + forever.agents.entries()
}
