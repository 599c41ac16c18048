//! Durable, resumable agent workflows.
#![forbid(unsafe_code)]

pub use forever_macros::{call, fiber, step};
pub use forever_runtime::*;

#[doc(hidden)]
pub use forever_runtime::__private;
