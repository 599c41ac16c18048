//! What is written comes back as it was, or is an error; and the text does not drift.
#![expect(clippy::option_option, clippy::zero_sized_map_values, reason = "what this is to be tried with")]

mod constants;
mod depth;
mod hostile;
mod model;
mod order;
mod texts;
mod types;
mod unread;

use std::fmt::Debug;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{from_str, same, to_string, unordered};

/// A float that equals only itself, bit for bit.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Bits64(f64);

impl PartialEq for Bits64 {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Bits32(f32);

impl PartialEq for Bits32 {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

/// Bytes that are written as such.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Bytes(Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Bytes;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Bytes, E> {
                Ok(Bytes(bytes.to_vec()))
            }
        }
        deserializer.deserialize_byte_buf(Visitor)
    }
}

/// Writes and reads back; the value and then its text have to be the same.
#[track_caller]
fn comes_back<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) -> String {
    let text = to_string(value).unwrap();
    let again: T = from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(&again, value, "{text}");
    assert_eq!(to_string(&again).unwrap(), text);
    text
}
