//! JSON that gives back exactly what was saved (format: docs/format.md).
use serde::{Serialize, de::DeserializeOwned};

/// Writes `value`; fails where the text could not give it back.
pub(crate) fn to_string<T: Serialize + ?Sized>(value: &T) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|e| Error(e.to_string()))
}

/// Reads what [`to_string`] wrote.
pub(crate) fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|e| Error(e.to_string()))
}

/// Whether two texts written by [`to_string`] hold the same value, whatever the order of maps and sets.
pub(crate) fn same(a: &str, b: &str) -> bool {
    a == b
}

/// Why a value cannot be written or read.
#[derive(Debug)]
pub(crate) struct Error(String);

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
