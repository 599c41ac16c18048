//! The runtime, driven through its public face with fibers written by hand.
#![allow(missing_docs, missing_debug_implementations, unreachable_pub, reason = "tests")]

mod fibers;
mod recovery;
mod support;
