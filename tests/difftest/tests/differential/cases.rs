//! The generated cases, with what their text expects to find in scope.
#[cfg(not(difftest_plain))]
use forever::fiber::Res;
use forever::{call, fiber, step};
use forever_difftest::*;

use super::run::*;

pub(crate) mod children;

/// A list of constants.
const TOPICS: [&str; 2] = ["law", "sales"];

/// Leaves the function.
macro_rules! fail {
    ($why:expr) => {
        return Err($why)
    };
}

include!(concat!(env!("OUT_DIR"), "/cases.rs"));
