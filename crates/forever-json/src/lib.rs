//! JSON that gives back exactly what was saved.
//!
//! In comes any value that serde can write, out comes one line of JSON; in comes such a text, out
//! comes the value, equal to the last bit, or an error that says where. An ordinary value has the
//! text that `serde_json` gives it. Only where plain JSON would lose something there is an escape:
//! an object whose key begins with one `$`.
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
//! What always holds:
//! - Order and duplicates of map entries survive, as nothing goes through a tree on either way.
//! - No text is read that is nested deeper than 100 levels, and none is written; see
//!   `escape::MAX_DEPTH`.
//! - Every escape is also known where the reader has no type, which is what untagged and internally
//!   tagged enums and flattened fields ask for. What serde itself cannot keep there (128-bit
//!   integers, `RawValue`) is an error on reading.
//! - Both sides say that they are human-readable: the text is for people, and serde's buffering
//!   assumes it.
//!
//! What no text can tell: two variants of an untagged enum that write the same, such as a unit
//! variant and one with a `None`, are read as the first of them. An impl that reads something else
//! than it wrote shows when the value is written again.
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

use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub use error::Error;
pub use read::Reader;

/// Writes `value`.
///
/// Fails if an impl of the value fails, or if it is too deep, or has a key that `serde_json`
/// reserves for itself.
pub fn to_string<T: Serialize + ?Sized>(value: &T) -> Result<String, Error> {
    ser::write(value)
}

/// Writes `value`; of the lists in it only what `logs` does not know yet, and that into `logs`.
pub fn to_string_with<T: Serialize + ?Sized>(value: &T, logs: &mut logs::Logs) -> Result<String, Error> {
    ser::write_with(value, logs)
}

/// Reads what [`to_string`] wrote.
pub fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    de::read(text, None)
}

/// Reads what [`to_string`] wrote, or with `logs` what [`to_string_with`] wrote: also a value that
/// holds a `&'static str`.
pub fn from_str_with<T: Deserialize<'static>>(text: &str, logs: Option<&logs::StoredLogs>) -> Result<T, Error> {
    de::read_constants(text, logs)
}

/// Writes `value` with the entries of its structs and maps in the order of their keys: equal values
/// have equal texts, whatever the order in which a map gives its entries. A list in another order
/// is another value, and so is a set whose order is not its own, as that of a `HashSet`.
pub fn to_canonical<T: Serialize + ?Sized>(value: &T) -> Result<String, Error> {
    same::canonical(&to_string(value)?)
}

/// Whether two texts written by [`to_string`] hold the same value, whatever the order of maps and
/// sets.
///
/// The text does not tell a set from a list, so a list counts as a set too: it is the same as
/// itself in another order.
pub fn same(a: &str, b: &str) -> bool {
    same::same(a, b)
}

/// A text written by [`to_string`] with its items and entries sorted: one text for all texts that
/// are the [`same`].
///
/// Fails if the text is not of one value, or nests too deep.
pub fn unordered(text: &str) -> Result<String, Error> {
    same::unordered(text)
}
