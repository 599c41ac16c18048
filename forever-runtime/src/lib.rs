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
pub use fiber::log::Log;
pub use fiber::owner::{EndedFiber, RecoveredFiber, Recovery};
pub use fiber::retention::Retention;
pub use fiber::spawn::Spawn;
pub use fiber::{Backoff, Drift, Fiber, FiberContext, KeepsOrder, Layout, Op, Problem, Res, Retry, Snapshot, layout};
pub use forever::{Builder, Close, Forever};
pub use store::FiberState;
pub use store::sqlite::Durability;

/// What the code written by `#[fiber]` names. Not for people; it changes without notice.
#[doc(hidden)]
pub mod __private {
    pub use crate::fiber::frame::{Frame, Locals, Save, Unreadable};
    pub use crate::fiber::iter::Source;
    pub use crate::fiber::keeps_order::{in_order, in_order_value};
    pub use crate::fiber::machine::{Cut, CutKind, END, Local, Machine};
    pub use crate::fiber::saved::{Saved, carried, none_like};
    pub use crate::fiber::side::{Each, Side, item, places};
    pub use crate::fiber::step::{Attempt, Attempts};
    pub use crate::fiber::waits::Deadline;
    pub use crate::fiber::{Fiber, FiberContext, IsResult, Needs};
    pub use std::marker::PhantomData;

    /// What the cut-point macros are to editors, which see the body as it was written.
    pub mod ide {
        pub use crate::__forever_ide_call as call;
        pub use crate::__forever_ide_step as step;
    }
}

#[doc(hidden)]
#[macro_export]
macro_rules! __forever_ide_step {
    ($name:literal, $($rest:tt)+) => { $crate::__forever_ide_step!($($rest)+) };
    ($option:ident = $value:expr, $($rest:tt)+) => {{ let _ = $value; $crate::__forever_ide_step!($($rest)+) }};
    (|$op:pat_param| $body:expr) => {{ let $op: &$crate::Op = ::core::unimplemented!(); $body }};
    ($body:expr) => { $body };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __forever_ide_call {
    ($call:expr) => {
        $crate::__forever_ide_call($call).await
    };
}

/// The type of a `call!` for editors.
#[doc(hidden)]
pub async fn __forever_ide_call<F: Fiber>(_: F) -> std::result::Result<F::Output, F::Error> {
    unimplemented!("only editors see this")
}
