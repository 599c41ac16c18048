//! Integration tests, one binary.
mod drift;
mod examples;
mod given_up;
#[cfg(unix)]
mod killed;
mod language;
mod ownership;
mod ui;
mod waiting;
