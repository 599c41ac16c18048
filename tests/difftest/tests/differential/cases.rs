//! The generated cases, with what their text expects to find in scope.
#[cfg(not(difftest_plain))]
use forever::{Res, call, fiber, step};
use forever_difftest::*;

use super::run::*;

mod children;

include!(concat!(env!("OUT_DIR"), "/cases.rs"));
