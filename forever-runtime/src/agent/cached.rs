//! Cache of an agent's rows in its slot.
use std::sync::Arc;

/// Whether an agent's heartbeat is stored.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heartbeat {
    #[default]
    Still,
    /// It was being stored, or was found at open.
    Perhaps,
    Beats,
}

/// The stored state, as far as it is known in memory.
#[derive(Debug, Default)]
pub(super) enum CachedState {
    #[default]
    Nothing,
    /// The text, or `None` if it was never set.
    Stored(Option<Arc<str>>),
}
