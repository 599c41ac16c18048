//! The stored form of a fiber at a cut point.
use std::collections::BTreeMap;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::exact;
use crate::exact::Reader;

/// Maximum number of nested `call!`s.
///
/// Each checkpoint writes the text of every function on the saved call stack, so its cost grows
/// with the calls. The stack of the thread does not, because the driver polls only the innermost
/// function. The limit holds for entering a call and for reading a snapshot, so everything written
/// can be read, and a damaged row can exhaust neither stack nor memory.
pub(crate) const MAX_CALLS: u32 = 200;

/// Why a call is refused, or a snapshot is not read.
pub(crate) fn too_many_calls() -> String {
    format!("calls nest deeper than {MAX_CALLS}")
}

/// Snapshot of a fiber, read from JSON: its cut point and its saved locals.
///
/// `migrate` functions get the old one and return the new one.
///
/// It is read from JSON text, by `serde_json::from_str`, with up to 200 nested calls: as many as a
/// fiber may enter.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::fiber::Snapshot;
///
/// /// For `#[fiber(migrate = in_cents)]`: `price` was a number of euros, and is one of cents.
/// fn in_cents(mut old: Snapshot) -> Result<Snapshot, serde_json::Error> {
///     if let Some(price) = old.locals.get_mut("price") {
///         let euros: u64 = serde_json::from_str(price.get())?;
///         *price = serde_json::value::to_raw_value(&(100 * euros))?;
///     }
///     Ok(old)
/// }
/// # let old = serde_json::from_str(r#"{"at":"quote","locals":{"price":7},"call":null}"#).unwrap();
/// # assert_eq!(in_cents(old).unwrap().locals["price"].get(), "700");
/// ```
#[derive(Debug, Clone, Default, Serialize)]
pub struct Snapshot {
    /// The fiber function, in the snapshot of a `call!`. The name of the fiber itself is in its
    /// row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fiber: Option<String>,
    /// Hash of the function's layout, in the snapshot of a `call!`. The hash of the outermost one
    /// is in its row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layout: Option<String>,
    /// Name of the cut point.
    pub at: String,
    /// The kept locals by name, each in the format of docs/guide/src/reference/format.md.
    pub locals: BTreeMap<String, Box<RawValue>>,
    /// Snapshot of the fiber called inline at this point, if it has not returned.
    pub call: Option<Box<Snapshot>>,
}

impl<'de> Deserialize<'de> for Snapshot {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        read(text.get()).map_err(D::Error::custom)
    }
}

/// Reads a snapshot in one pass and without recursion, however many calls it has.
fn read(text: &str) -> Result<Snapshot, exact::Error> {
    let mut reader = Reader::new(text);
    let mut callers = Vec::new();
    let mut level = Level::default();
    let mut first = true;
    reader.expect(b'{')?;
    loop {
        if !reader.more(first, b'}')? {
            reader.expect(b'}')?;
            let snapshot = level.whole()?;
            let Some(caller) = callers.pop() else { return reader.end().map(|()| snapshot) };
            level = caller;
            level.call = Some(Some(Box::new(snapshot)));
        } else if level.field(&mut reader)? {
            if callers.len() == MAX_CALLS as usize {
                return Err(exact::Error::new(too_many_calls()));
            }
            reader.expect(b'{')?;
            callers.push(std::mem::take(&mut level));
            first = true;
            continue;
        }
        first = false;
    }
}

/// The fields read so far of one function's part.
#[derive(Default)]
struct Level {
    fiber: Option<String>,
    layout: Option<String>,
    at: Option<String>,
    locals: Option<BTreeMap<String, Box<RawValue>>>,
    #[allow(clippy::option_option, reason = "missing, null and there are three things")]
    call: Option<Option<Box<Snapshot>>>,
}

impl Level {
    /// Reads the field at the cursor. For a call it reads the name only, and returns `true`.
    fn field(&mut self, reader: &mut Reader<'_>) -> Result<bool, exact::Error> {
        let name = reader.string()?;
        reader.expect(b':')?;
        match &*name {
            "fiber" => set(&mut self.fiber, &name, reader)?,
            "layout" => set(&mut self.layout, &name, reader)?,
            "at" => set(&mut self.at, &name, reader)?,
            "locals" => set(&mut self.locals, &name, reader)?,
            "call" if self.call.is_some() => return Err(twice(&name)),
            "call" if reader.peek() == Some(b'{') => return Ok(true),
            "call" => {
                reader.word("null")?;
                self.call = Some(None);
            }
            _ => return Err(exact::Error::new(format_args!("unknown field `{name}`"))),
        }
        Ok(false)
    }

    fn whole(self) -> Result<Snapshot, exact::Error> {
        let missing = |name| move || exact::Error::new(format_args!("missing field `{name}`"));
        Ok(Snapshot {
            fiber: self.fiber,
            layout: self.layout,
            at: self.at.ok_or_else(missing("at"))?,
            locals: self.locals.ok_or_else(missing("locals"))?,
            call: self.call.unwrap_or_default(),
        })
    }
}

/// Reads the value of a field, which must not be set yet.
fn set<T: DeserializeOwned>(field: &mut Option<T>, name: &str, reader: &mut Reader<'_>) -> Result<(), exact::Error> {
    if field.is_some() {
        return Err(twice(name));
    }
    let value = serde_json::from_str(reader.skip()?).map_err(|why| exact::Error::new(format_args!("`{name}`: {why}")))?;
    *field = Some(value);
    Ok(())
}

fn twice(name: &str) -> exact::Error {
    exact::Error::new(format_args!("duplicate field `{name}`"))
}

impl Snapshot {
    /// Applies `change` to the snapshot of each function on the saved call stack, from the
    /// outermost in.
    pub(crate) fn each<E>(&mut self, mut change: impl FnMut(&mut Snapshot) -> Result<(), E>) -> Result<(), E> {
        let mut next = Some(self);
        while let Some(snapshot) = next {
            change(snapshot)?;
            next = snapshot.call.as_deref_mut();
        }
        Ok(())
    }
}

/// A text as a quoted JSON string.
pub(crate) fn json_string(text: &str) -> String {
    let mut json = String::with_capacity(text.len() + 2);
    push_json_string(&mut json, text);
    json
}

/// Appends a text as a quoted JSON string. Most texts are names without escapes.
pub(crate) fn push_json_string(json: &mut String, text: &str) {
    if text.bytes().any(|byte| matches!(byte, b'"' | b'\\' | ..b' ')) {
        json.push_str(&serde_json::Value::from(text).to_string());
    } else {
        json.push('"');
        json.push_str(text);
        json.push('"');
    }
}

/// JSON without white space between its values.
pub(crate) fn without_spaces(json: &str) -> String {
    let (mut in_text, mut escaped) = (false, false);
    let keep = |c: &char| {
        let kept = in_text || !c.is_ascii_whitespace();
        in_text = match c {
            '"' => escaped || !in_text,
            _ => in_text,
        };
        escaped = in_text && *c == '\\' && !escaped;
        kept
    };
    json.chars().filter(keep).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_written_as_serde_json_writes_it() {
        let ascii = (0..=127_u8).map(|byte| format!("a{}b", char::from(byte)));
        let others = ["", "é", "\u{7ff}", "\u{ffff}", "😀", "\u{2028}", "a\"b\\c\nd"].map(str::to_owned);
        for text in ascii.chain(others) {
            assert_eq!(json_string(&text), serde_json::to_string(&text).unwrap());
        }
    }
}
