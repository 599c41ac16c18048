//! JSON that gives back exactly what was saved, and digests of it.
pub(crate) use forever_json::{Error, Reader, from_str, from_str_with, logs, same, to_canonical, to_string, to_string_with};
use sha2::{Digest, Sha256};

/// The first 16 bytes of the SHA-256 of a text written by [`to_string`], in hexadecimal digits: equal for texts that are the [`same`].
pub(crate) fn digest(text: &str) -> String {
    let hash = Sha256::digest(forever_json::unordered(text).as_deref().unwrap_or(text));
    hex(&hash[..16])
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}
