//! The runtime of `forever`; use it through the `forever` crate.
//!
//! Layers, each knowing only the ones below it: `fiber` (context, frames, steps, recovery) over `store`.
//! `exact` is the JSON that gives back exactly what was saved.

mod error;
mod exact;
mod fiber;
#[cfg(feature = "testing")]
pub mod testing;

pub use error::{Error, ErrorKind, Result};
pub use fiber::{Backoff, Drift, Fiber, FiberContext, KeepsOrder, Layout, Op, Problem, Res, Retry, Snapshot, layout};

/// What the code written by `#[fiber]` names. Not for people; it changes without notice.
#[doc(hidden)]
pub mod __private {
    pub use crate::fiber::frame::{Frame, Locals, Save, Unreadable};
    pub use crate::fiber::iter::Source;
    pub use crate::fiber::keeps_order::in_order;
    pub use crate::fiber::machine::{Cut, CutKind, END, Local, Machine};
    pub use crate::fiber::saved::Saved;
    pub use crate::fiber::step::{Attempt, Attempts};
    pub use crate::fiber::{IsResult, Needs};
    pub use std::boxed::Box;
}
