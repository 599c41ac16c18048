//! Ended at every write: [`forever::testing::crash_everywhere`] over every kind of fiber, over the fibers of the examples, and over programs that
//! do not come through.
#![allow(clippy::duplicate_mod, reason = "the examples share their support files, and each has them as modules of its own")]
mod agents;
mod closing;
mod cluster;
mod examples;
mod fails;
mod kinds;
mod streams;
mod waits;
