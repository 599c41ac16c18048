//! Agents as they are served: over real sockets, to clients that behave, to slow ones, and to hostile ones.
//!
//! Every wait is for something that has to happen, and fails after the deadline of `waiting`; none is for time to pass.
#![allow(clippy::string_slice, reason = "their texts are known")]
mod answered;
mod auth;
mod calls;
mod cors;
mod events;
mod frames;
mod handshake;
mod hostile;
mod idle;
mod late_answers;
mod limits;
mod memory;
mod overlap;
mod paths;
mod sessions;
mod shutdown;
mod slow;
mod state;
mod support;
mod transport;
