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

// Macros of the program's own, named as macros of std that make text.
macro_rules! concat {
    ($a:expr, $b:expr) => {
        plus($a, $b)
    };
}
macro_rules! env {
    ($n:expr) => {
        plus($n, 1)
    };
}
macro_rules! file {
    ($n:expr) => {
        $n ^ 1
    };
}

::core::include!(::core::concat!(::core::env!("OUT_DIR"), "/cases.rs"));
