//! Integration tests, one binary.
mod drift;
mod examples;
mod language;
mod ui;
