//! Integration tests, one binary.
mod drift;
mod examples;
#[cfg(unix)]
mod killed;
mod language;
mod ui;
mod waiting;
