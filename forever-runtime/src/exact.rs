//! JSON that gives back exactly what was saved, and digests.
pub(crate) use forever_json::{
    Error, Reader, Unread, from_str, from_str_with, from_str_with_unread, logs, same, to_canonical, to_string, to_string_with,
};
pub(crate) use forever_store::{arguments_digest as digest, hex};
