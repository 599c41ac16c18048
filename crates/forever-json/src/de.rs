//! Deserializer from text to values, which decodes the escapes wherever they occur.
//!
//! Values never borrow from the text, so serde's lifetime `'de` is free. Only a constant text, as
//! which a `&'static str` is restored, is lent to the value: see [`read_constants`].
//!
//! `deserialize_any` decodes every escape, so values that serde buffers before it knows their type
//! (untagged and internally tagged enums, flattened fields) are buffered without loss. The other
//! methods are those where the requested type changes the meaning of a text.
use std::borrow::Cow;
use std::iter;
use std::sync::Arc;

use serde::Deserializer;
use serde::de::value::{CowStrDeserializer, MapDeserializer, SeqDeserializer};
use serde::de::{Deserialize, DeserializeSeed, EnumAccess, Error as _, SeqAccess, Unexpected, VariantAccess, Visitor};

use super::constants;
use super::error::Error;
use super::escape::{self, NUMBER, RAW};
use super::keys::{Entries, Key, unescaped};
use super::logs::{self, LOG, StoredLogs};
use super::read::{Reader, cause};

/// Reads the one value of `text`, and where in it values begin that the type ignores. If it refers
/// to lists, their items are in `logs`.
pub(super) fn read<T: Deserialize<'static>>(text: &str, logs: Option<&StoredLogs>) -> Result<(T, Passed), Error> {
    whole(text, logs, false)
}

/// As [`read`], for a type that may contain a `&'static str`, which only a constant text can be.
///
/// Only a failed first attempt shows that there is one: its visitor accepts no other text. The
/// second attempt makes constants of all texts that are requested as `str`, each once in the life
/// of the process ([`constants`]).
pub(super) fn read_constants<T: Deserialize<'static>>(text: &str, logs: Option<&StoredLogs>) -> Result<(T, Passed), Error> {
    let mark = logs.map(StoredLogs::mark);
    let owned = whole(text, logs, false);
    owned.or_else(|error| {
        if let (Some(logs), Some(mark)) = (logs, mark) {
            logs.forget_since(mark);
        }
        whole(text, logs, true).map_err(|_| error)
    })
}

/// What reading has shown of a text, beside the value.
pub(super) struct Passed {
    /// Where values begin that the type has ignored.
    pub(super) ignored: Vec<usize>,
    /// Whether an object was read whose keys the type does not name.
    pub(super) has_any_object: bool,
}

fn whole<T: Deserialize<'static>>(text: &str, logs: Option<&StoredLogs>, lends: bool) -> Result<(T, Passed), Error> {
    let mut reader = Reader::new(text);
    reader.logs = logs;
    reader.lends = lends;
    let value = T::deserialize(&mut reader)?;
    reader.end()?;
    Ok((value, Passed { ignored: reader.ignored, has_any_object: reader.has_any_object }))
}

impl<'t> Reader<'t> {
    fn array<'de, V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Error> {
        self.open(b'[')?;
        let value = visitor.visit_seq(Items { reader: self, index: 0 })?;
        self.close(b']')?;
        Ok(value)
    }

    fn object<'de, V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Error> {
        self.open(b'{')?;
        let value = visitor.visit_map(Entries::new(self))?;
        self.close(b'}')?;
        Ok(value)
    }

    fn escaped<'de, V: Visitor<'de>>(&mut self, name: &str, visitor: V) -> Result<V::Value, Error> {
        let text = match name {
            "map" => return self.object(visitor),
            "some" => return self.some(visitor),
            "log" => return self.stored_log()?.visit(visitor),
            "f64" | "f32" | "i128" | "u128" | "bytes" | "raw" | "number" => self.escaped_text()?,
            _ => return Err(self.syntax(format_args!("unknown escape `${name}`"))),
        };
        let malformed = || Error::new(format_args!("malformed `${name}`: {text:?}"));
        match name {
            "f64" => visitor.visit_f64(escape::f64_value(&text).ok_or_else(malformed)?),
            "f32" => visitor.visit_f32(escape::f32_value(&text).ok_or_else(malformed)?),
            "i128" => visitor.visit_i128(text.parse().map_err(|_| malformed())?),
            "u128" => visitor.visit_u128(text.parse().map_err(|_| malformed())?),
            "bytes" => visitor.visit_byte_buf(escape::base64_value(&text).ok_or_else(malformed)?),
            "number" => {
                check_precise(&text)?;
                visitor.visit_map(MapDeserializer::new(iter::once((NUMBER, text))))
            }
            // Plain JSON that was a `RawValue`, read as another type.
            _ => serde_json::Deserializer::from_reader(text.as_bytes()).deserialize_any(visitor).map_err(|error| Error::new(cause(&error))),
        }
    }

    fn some<'de, V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Error> {
        self.open_escape()?;
        let value = visitor.visit_some(&mut *self)?;
        self.close(b'}')?;
        Ok(value)
    }

    /// A list of which the text has only the length.
    fn stored_log(&mut self) -> Result<StoredLog<'t>, Error> {
        let (number, len) = self.log()?;
        let Some(logs) = self.logs else {
            return Err(Error::new("a log cannot be read outside of its snapshot"));
        };
        Ok(StoredLog { logs, number, items: logs.items(number, len)?, lends: self.lends })
    }

    /// The content of a `RawValue`: the text at the cursor, unchanged.
    fn raw(&mut self) -> Result<Cow<'t, str>, Error> {
        if self.escape() != Some("raw") {
            let text = self.skip()?;
            if text.contains(logs::PLACEHOLDER) {
                return Err(Error::new("a log cannot be read as raw JSON: its items are elsewhere"));
            }
            return Ok(Cow::Borrowed(text));
        }
        let text = self.escaped_text()?;
        let mut inner = Reader::new(&text);
        let whole = inner.skip()?.len() == text.len();
        if whole { Ok(text) } else { Err(Error::new(format_args!("malformed `$raw`: {text:?}"))) }
    }
}

/// Whether `serde_json` accepts a number that is too precise for 64 bits; otherwise it would
/// silently become an object.
fn check_precise(text: &str) -> Result<(), Error> {
    let kept = |number: serde_json::Number| number.to_string() == text;
    if serde_json::from_str(text).is_ok_and(kept) {
        return Ok(());
    }
    let why = "malformed, or the feature `arbitrary_precision` of serde_json is off";
    Err(Error::new(format_args!("`$number` {text:?} cannot be read: {why}")))
}

/// A number token, read without a more specific type.
fn visit_number<'de, V: Visitor<'de>>(token: &str, visitor: V) -> Result<V::Value, Error> {
    if token.contains(['.', 'e', 'E']) || token == "-0" {
        return visitor.visit_f64(finite(token)?);
    }
    if let Ok(value) = token.parse() {
        return visitor.visit_u64(value);
    }
    if let Ok(value) = token.parse() {
        return visitor.visit_i64(value);
    }
    Err(Error::new(format_args!("the number {token} does not fit in 64 bits")))
}

fn finite(token: &str) -> Result<f64, Error> {
    match token.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value),
        _ => Err(Error::new(format_args!("the number {token} is too large for a float"))),
    }
}

/// The float that a number is read as. Floats are written with a point or an exponent, so one
/// without was an integer, and must not be rounded.
fn exact<T>(token: &str, value: T, wide: f64) -> Result<T, Error> {
    #[expect(clippy::cast_possible_truncation, reason = "a float beyond has no text of an integer that was written")]
    let is_exact = token.contains(['.', 'e', 'E']) || token == "-0" || token.parse::<i128>().is_ok_and(|whole| wide as i128 == whole);
    if is_exact { Ok(value) } else { Err(Error::new(format_args!("the integer {token} would be rounded to {wide} as a float"))) }
}

impl<'de> Deserializer<'de> for &mut Reader<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if let Some(token) = self.number()? {
            return visit_number(token, visitor);
        }
        match self.peek() {
            Some(b'n') => {
                self.word("null")?;
                visitor.visit_unit()
            }
            Some(b't') => {
                self.word("true")?;
                visitor.visit_bool(true)
            }
            Some(b'f') => {
                self.word("false")?;
                visitor.visit_bool(false)
            }
            Some(b'"') => match self.string()? {
                Cow::Borrowed(text) => visitor.visit_str(text),
                Cow::Owned(text) => visitor.visit_string(text),
            },
            Some(b'[') => self.array(visitor),
            Some(b'{') => {
                if let Some(name) = self.escape() {
                    return self.escaped(name, visitor);
                }
                self.has_any_object = true;
                self.object(visitor)
            }
            _ => Err(self.syntax("expected a value")),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.lends && self.peek() == Some(b'"') {
            return visitor.visit_borrowed_str(constants::text(&self.string()?));
        }
        self.deserialize_any(visitor)
    }

    /// A `&[u8]` is written as a sequence and read as bytes.
    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.lends && (self.peek() == Some(b'[') || self.escape() == Some("bytes")) {
            return visitor.visit_borrowed_bytes(constants::bytes(&Vec::<u8>::deserialize(self)?));
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_i128<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.number()? {
            Some(token) => match token.parse() {
                Ok(value) => visitor.visit_i128(value),
                Err(_) => visit_number(token, visitor),
            },
            None => self.deserialize_any(visitor),
        }
    }

    fn deserialize_u128<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.number()? {
            Some(token) => match token.parse() {
                Ok(value) => visitor.visit_u128(value),
                Err(_) => visit_number(token, visitor),
            },
            None => self.deserialize_any(visitor),
        }
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.number()? {
            // Not through an `f64`, which would round twice.
            Some(token) => match token.parse::<f32>() {
                Ok(value) if value.is_finite() => visitor.visit_f32(exact(token, value, f64::from(value))?),
                _ => Err(Error::new(format_args!("the number {token} is too large for a float"))),
            },
            None => self.deserialize_any(visitor),
        }
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.number()? {
            Some(token) => {
                let value = finite(token)?;
                visitor.visit_f64(exact(token, value, value)?)
            }
            None => self.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.peek() == Some(b'n') {
            self.word("null")?;
            return visitor.visit_none();
        }
        self.wrapped(|reader| if reader.escape() == Some("some") { reader.some(visitor) } else { visitor.visit_some(reader) })
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Error> {
        if name == RAW {
            let text = self.raw()?;
            return visitor.visit_map(MapDeserializer::new(iter::once((RAW, text))));
        }
        if name == LOG && self.escape() == Some("log") {
            let log = self.stored_log()?;
            return visitor.visit_newtype_struct(log);
        }
        self.wrapped(|reader| visitor.visit_newtype_struct(reader))
    }

    /// Bytes are accepted where a sequence is requested: some types write one and read the other.
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.escape() != Some("bytes") {
            return self.deserialize_any(visitor);
        }
        let text = self.escaped_text()?;
        let bytes = escape::base64_value(&text).ok_or_else(|| Error::new(format_args!("malformed `$bytes`: {text:?}")))?;
        let mut items = SeqDeserializer::new(bytes.into_iter());
        let value = visitor.visit_seq(&mut items)?;
        items.end()?;
        Ok(value)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(self, _name: &'static str, _len: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    /// Fields are identified by name: a list that used to be a tuple is not read as fields by
    /// place.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if self.peek() == Some(b'[') {
            return Err(self.syntax(format_args!("a list, expected the fields of `{name}` by name")));
        }
        if self.peek() == Some(b'{') && self.escape().is_none() {
            return self.object(visitor);
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if self.peek() == Some(b'"') {
            return visitor.visit_enum(CowStrDeserializer::new(self.string()?));
        }
        if let Some(name) = self.escape() {
            return Err(self.syntax(format_args!("the escape `${name}` is not a variant")));
        }
        if self.peek() != Some(b'{') {
            // For any other token, the visitor has the best message.
            return self.deserialize_any(visitor);
        }
        self.open(b'{')?;
        let mark = self.mark();
        let name = unescaped(self.string()?)?;
        let token = self.since(mark);
        self.expect(b':')?;
        let value = visitor.visit_enum(Variant { reader: self, name, token })?;
        self.close(b'}')?;
        Ok(value)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let at = self.mark();
        self.ignored.push(at);
        self.skip()?;
        visitor.visit_unit()
    }

    fn is_human_readable(&self) -> bool {
        true
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 char string byte_buf unit unit_struct map identifier
    }
}

/// The items of an array.
struct Items<'a, 't> {
    reader: &'a mut Reader<'t>,
    index: usize,
}

impl<'de> SeqAccess<'de> for Items<'_, '_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        if !self.reader.more(self.index == 0, b']')? {
            return Ok(None);
        }
        let item = seed.deserialize(&mut *self.reader).map_err(|error| error.in_item(self.index))?;
        self.index += 1;
        Ok(Some(item))
    }
}

/// A variant with content: `{"name": ..}`.
struct Variant<'a, 't> {
    reader: &'a mut Reader<'t>,
    name: Cow<'t, str>,
    token: &'t str,
}

impl<'a, 't, 'de> EnumAccess<'de> for Variant<'a, 't> {
    type Error = Error;
    type Variant = Payload<'a, 't>;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Payload<'a, 't>), Error> {
        let variant = seed.deserialize(Key::new(self.name, self.token, false))?;
        Ok((variant, Payload { reader: self.reader, token: self.token }))
    }
}

struct Payload<'a, 't> {
    reader: &'a mut Reader<'t>,
    token: &'t str,
}

impl<'de> VariantAccess<'de> for Payload<'_, '_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        match self.reader.peek() {
            Some(b'n') => self.reader.word("null"),
            _ => Err(Error::invalid_type(Unexpected::Other("a variant with a value"), &"unit variant").in_key(self.token)),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self.reader).map_err(|error| error.in_key(self.token))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, Error> {
        self.reader.deserialize_seq(visitor).map_err(|error| error.in_key(self.token))
    }

    fn struct_variant<V: Visitor<'de>>(self, _fields: &'static [&'static str], visitor: V) -> Result<V::Value, Error> {
        self.reader.deserialize_any(visitor).map_err(|error| error.in_key(self.token))
    }
}

/// A list whose items are stored as separate texts.
struct StoredLog<'t> {
    logs: &'t StoredLogs,
    number: u64,
    items: &'t [Arc<str>],
    lends: bool,
}

impl StoredLog<'_> {
    /// Passes the items on like those of any sequence.
    fn visit<'de, V: Visitor<'de>>(&self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(StoredItems { items: self.items.iter(), index: 0, lends: self.lends })
    }
}

impl<'de> Deserializer<'de> for StoredLog<'_> {
    type Error = Error;

    /// Passes the items to their list, which continues with them.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let value = self.visit(visitor)?;
        self.logs.leave(self.number, self.items.len());
        Ok(value)
    }

    fn is_human_readable(&self) -> bool {
        true
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct
        seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

struct StoredItems<'t> {
    items: std::slice::Iter<'t, Arc<str>>,
    index: usize,
    lends: bool,
}

impl<'de> SeqAccess<'de> for StoredItems<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some(text) = self.items.next() else { return Ok(None) };
        let mut reader = Reader::new(text);
        reader.lends = self.lends;
        let item = seed.deserialize(&mut reader).and_then(|item| reader.end().map(|()| item));
        let item = item.map_err(|error| error.in_item(self.index))?;
        self.index += 1;
        Ok(Some(item))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}
