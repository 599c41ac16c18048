//! Durable, resumable agent workflows.
#![forbid(unsafe_code)]

pub use forever_macros::{call, fiber, step};
pub use forever_runtime::*;

#[doc(hidden)]
pub use forever_runtime::__private;

/// The names that an agent's file needs.
pub mod prelude {
    pub use crate::{FiberContext, Res, call, fiber, step};
}
