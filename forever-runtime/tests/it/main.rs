//! The runtime, driven through its public face with fibers written by hand.
#![allow(missing_docs, missing_debug_implementations, unreachable_pub, reason = "tests")]

mod child;
mod closing;
mod crashing;
mod disk;
mod drift;
mod ending;
mod fibers;
mod opening;
mod recovery;
mod spawning;
mod support;
