//! Integration tests, one binary.
mod examples;
mod language;
mod spans;
mod ui;
