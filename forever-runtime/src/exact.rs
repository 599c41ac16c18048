//! JSON that gives back exactly what was saved, and digests.
pub(crate) use forever_json::{Error, Reader, from_str, from_str_with, logs, same, to_canonical, to_string, to_string_with};
pub(crate) use forever_store::{arguments_digest as digest, hex};
