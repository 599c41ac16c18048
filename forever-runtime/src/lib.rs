//! The runtime of `forever`; use it through the `forever` crate.
//!
//! Layers, each knowing only the ones below it: `forever` (opening, asking) over `fiber` (context, frames, steps, recovery)
//! over `store`. `exact` is the JSON that gives back exactly what was saved.

mod clock;
mod error;
mod exact;
mod fiber;
mod forever;
mod store;
#[cfg(feature = "testing")]
pub mod testing;

pub use clock::{Clock, SystemClock};
pub use error::{Error, ErrorKind, Result};
pub use fiber::handle::{FiberError, FiberErrorKind, FiberHandle, FiberStatus};
pub use fiber::spawn::Spawn;
pub use fiber::{Fiber, FiberContext, Res, Snapshot};
pub use forever::{Builder, Close, Forever};
pub use store::FiberState;
pub use store::sqlite::Durability;

/// What the code written by `#[fiber]` names. Not for people; it changes without notice.
#[doc(hidden)]
pub mod __private {
    pub use crate::fiber::frame::{Frame, Locals, Save, Unreadable};
    pub use crate::fiber::iter::{RestOf, Source, in_order};
    pub use crate::fiber::machine::{Cut, CutKind, END, Local, Machine};
    pub use crate::fiber::saved::Saved;
    pub use crate::fiber::{IsResult, Needs};
    pub use std::boxed::Box;
}
