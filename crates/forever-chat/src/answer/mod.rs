//! The fiber of a turn: begins it when its time has come, hands it to its agent, continues after
//! interruptions, and settles it.
//!
//! The state of a turn is in its row and its log; its fiber saves what its hook runs. So each
//! activation of the fiber starts an attempt from the beginning and loads the state from the store,
//! and the runs of the hook resume where they were.
mod attempt;
mod frame;
mod prepare;
mod settle;
mod transcript;
mod turn_fiber;

pub(super) use settle::settle_left;
pub(super) use transcript::{has_logged_call, message_row, read_message, read_messages};
pub(crate) use turn_fiber::{Answer, NAME};
