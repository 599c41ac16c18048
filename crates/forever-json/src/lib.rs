//! Lossless JSON over serde.
//!
//! Input: any value that serde can write. Output: one line of JSON. Reading the line returns an
//! equal value, to the last bit, or an error with a path. An ordinary value has the same text as by
//! `serde_json`. Where plain JSON would lose information there is an escape: an object whose key
//! begins with one `$`.
//!
//! | value | text |
//! |---|---|
//! | `None`, `()`, unit struct | `null` |
//! | `Some(v)` | the text of `v`; `{"$some":v}` if that is `null` or itself a `$some` |
//! | finite float | a number that has a `.` or an exponent |
//! | NaN, infinities | `{"$f64":"NaN"}`, `inf`, `-inf`, `NaN:` and 16 hex digits for other NaNs; `$f32` likewise with 8 |
//! | integer up to 64 bits | a number |
//! | 128-bit integer beyond | `{"$i128":".."}`, `{"$u128":".."}`, decimal |
//! | bytes | `{"$bytes":".."}`, base64, padded |
//! | char, string, unit variant | a string |
//! | newtype struct | the text of what is in it |
//! | sequence, tuple, tuple struct | an array |
//! | struct | an object |
//! | other variants | `{"Variant":v}`, `{"Variant":[..]}`, `{"Variant":{..}}` |
//! | map | an object; its last entry is `"$map":[[k,v],..]` from the first key on whose text is not a string |
//! | `RawValue` | its text as it stands; `{"$raw":".."}` if that has a key or string that begins with `$`, or is too deep |
//! | `Number`, `arbitrary_precision` | a number; `{"$number":".."}` if reading it as 64 bits would change its text |
//! | `Log`, in a snapshot | `{"$log":N,"len":L}`, its items beside it ([`logs`]); a sequence anywhere else |
//!
//! A key (field, variant or map key in an object) that begins with `$` gets one more, so no value
//! can look like an escape. Strings that are not keys are never changed.
//!
//! Invariants:
//! - Order and duplicates of map entries survive, since no intermediate tree is built in either
//!   direction.
//! - No text is read that is nested deeper than 100 levels, and none is written; see
//!   `escape::MAX_DEPTH`.
//! - Every escape is also decoded where the reader has no type, as untagged and internally tagged
//!   enums and flattened fields require. Values that serde itself cannot keep there (128-bit
//!   integers, `RawValue`) are errors on reading.
//! - Both sides declare themselves human-readable: the text is for people, and serde's buffering
//!   assumes it.
//!
//! Limits: two variants of an untagged enum that write the same text, such as a unit variant and
//! one with a `None`, are read as the first of them. An impl that reads another value than it wrote
//! shows when the value is written again.
mod compound;
mod constants;
mod de;
mod error;
mod escape;
mod keys;
pub mod logs;
mod read;
mod same;
mod ser;
#[cfg(test)]
mod tests;
mod unread;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub use error::Error;
pub use read::Reader;
pub use unread::Unread;

/// Writes `value`.
///
/// Fails if an impl of the value fails, or if it is too deep, or has a key that `serde_json`
/// reserves for itself.
pub fn to_string<T: Serialize + ?Sized>(value: &T) -> Result<String, Error> {
    ser::write(value)
}

/// Writes `value`; of the lists in it, only the items that `logs` does not have yet, and those into
/// `logs`.
pub fn to_string_with<T: Serialize + ?Sized>(value: &T, logs: &mut logs::Logs) -> Result<String, Error> {
    ser::write_with(value, logs)
}

/// Reads what [`to_string`] wrote.
pub fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    de::read(text, None).map(|(value, _)| value)
}

/// Reads the text of [`to_string`] or, with `logs`, of [`to_string_with`], including values that
/// contain a `&'static str`.
pub fn from_str_with<T: Deserialize<'static>>(text: &str, logs: Option<&logs::StoredLogs>) -> Result<T, Error> {
    de::read_constants(text, logs).map(|(value, _)| value)
}

/// As [`from_str_with`], with what the text has that the type does not read.
pub fn from_str_with_unread<T>(text: &str, logs: Option<&logs::StoredLogs>) -> Result<(T, Option<Unread>), Error>
where
    T: Serialize + Deserialize<'static>,
{
    let (value, passed) = de::read_constants(text, logs)?;
    if passed.ignored.is_empty() && !passed.has_any_object {
        return Ok((value, None));
    }
    let unread = Unread::of(text, &passed.ignored, &to_string(&value)?)?;
    Ok((value, unread))
}

/// Writes `value` with the entries of its structs and maps sorted by key: equal values have equal
/// texts, whatever the order of a map's entries. A reordered list is a different value, and so is a
/// set without a fixed order, such as a `HashSet`.
pub fn to_canonical<T: Serialize + ?Sized>(value: &T) -> Result<String, Error> {
    same::canonical(&to_string(value)?)
}

/// Whether two texts written by [`to_string`] hold the same value, whatever the order of maps and
/// sets.
///
/// The text does not distinguish sets from lists, so lists count as sets too: a reordered list is
/// the same.
pub fn same(a: &str, b: &str) -> bool {
    same::same(a, b)
}

/// A text written by [`to_string`] with its items and entries sorted: one text for all texts that
/// are the [`same`].
///
/// Fails if the text is not one value, or is nested too deeply.
pub fn unordered(text: &str) -> Result<String, Error> {
    same::unordered(text)
}
