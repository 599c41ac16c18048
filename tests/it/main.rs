//! Integration tests, one binary.
mod language;
