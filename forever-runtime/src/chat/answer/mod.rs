//! The fiber of a turn: begins it when its time has come, gives it to its agent, goes on after interruptions, and settles it.
//!
//! Where a turn stands is in its row and its log, and its fiber keeps what its hook runs. So an attempt begins at its start each time the fiber
//! is entered, asks the store what there is, and what the hook runs goes on where it was.
mod answered;
mod attempt;
mod frame;
mod prepare;
mod settled;
mod turn_fiber;

pub(super) use answered::{has_logged_call, message_row, read_message, read_messages};
pub(super) use settled::{cancel_fiber, settle_left};
pub(crate) use turn_fiber::{Answer, NAME};
