//! What a slot caches of its agent's rows.
use std::sync::Arc;

/// Whether an agent's heartbeat is stored.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heartbeat {
    #[default]
    Still,
    /// It was being stored, or found at open.
    Perhaps,
    Beats,
}

/// What is known in memory of the stored state.
#[derive(Debug, Default)]
pub(super) enum CachedState {
    #[default]
    Nothing,
    /// The text, if it was ever set.
    Stored(Option<Arc<str>>),
}
