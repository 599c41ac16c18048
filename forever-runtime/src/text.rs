//! Places between the characters of a text.

/// The last place between two characters that is not behind byte `at`.
// As in the standard library since Rust 1.91.
pub(crate) fn floor_char_boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}
