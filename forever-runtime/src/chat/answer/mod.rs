//! The fiber of a turn: begins it when its time has come, gives it to its agent, goes on after interruptions, and settles it.
//!
//! The fiber keeps nothing by itself: where a turn stands is in its row and its log. So it runs from its start each time it is entered, and asks
//! the store what there is.
mod answered;
mod attempt;
mod prepare;
mod settled;
mod turn_fiber;

pub(super) use answered::{has_logged_call, message_row, read_message, read_messages};
pub(super) use settled::{cancel_fiber, settle_left};
pub(crate) use turn_fiber::{Answer, NAME};
