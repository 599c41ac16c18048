//! Integration tests, one binary.
#![allow(clippy::string_slice, reason = "their texts are known")]
mod after_commands;
mod closing;
mod copies;
mod drift;
mod examples;
mod given_up;
mod history;
mod inbox;
#[cfg(unix)]
mod killed;
mod language;
mod metrics;
mod own_store;
mod ownership;
mod panicking;
mod retrying;
mod saw_closing;
mod secrets;
mod select;
mod streams;
mod support;
mod waiting;
