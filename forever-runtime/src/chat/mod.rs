//! Layer 3: chat. Turns of an agent that survive their process, each with one append-only log.
//!
//! `message` is the JSON that clients speak, `model` whatever answers.
pub mod message;
pub mod model;
