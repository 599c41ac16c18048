//! Integration tests, one binary.
mod examples;
mod language;
mod ui;
