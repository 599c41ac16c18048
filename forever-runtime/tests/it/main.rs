//! The runtime, driven through its public face with fibers written by hand.
#![allow(missing_docs, missing_debug_implementations, unreachable_pub, reason = "tests")]
#![allow(clippy::manual_async_fn, reason = "written the way the macro writes it")]

mod agents;
mod backup;
mod child;
mod closing;
mod closures;
mod crashing;
mod disk;
mod drift;
mod ending;
mod fibers;
mod files;
mod hooks;
mod managed;
mod opening;
mod recovery;
mod spawning;
mod support;
mod suspects;
mod telling;
