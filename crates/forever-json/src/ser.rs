//! Serializer from values to text, which writes into one buffer.
//!
//! The buffer is the only state. The text of a value shows whether an option has to be escaped; the
//! keys, one by one, show whether a map can be an object ([`super::compound`]).
use serde::{Serialize, Serializer};

use super::compound::{Fields, Items, Kind, Map};
use super::error::Error;
use super::escape::{self, MAX_DEPTH, MAX_WRAPS, NUMBER, RAW, RESERVED};
use super::logs::{self, LOG, Logs};

/// The text of `value`.
pub(super) fn write<T: Serialize + ?Sized>(value: &T) -> Result<String, Error> {
    write_within(value, 0)
}

/// The text of a value that is nested `depth` levels deep in another.
pub(super) fn write_within<T: Serialize + ?Sized>(value: &T, depth: usize) -> Result<String, Error> {
    Writer::new(depth).whole(value)
}

/// The text of `value`, with only the length of its lists; their new items go into `logs`.
pub(super) fn write_with<T: Serialize + ?Sized>(value: &T, logs: &mut Logs) -> Result<String, Error> {
    let mut writer = Writer::new(0);
    writer.logs = Some(std::mem::take(logs));
    let text = writer.whole(value);
    *logs = writer.logs.unwrap_or_default();
    logs.is_range_in_doubt = writer.is_range_in_doubt;
    text
}

/// The text so far. Its last byte tells whether a comma is due, so this needs no state.
pub(super) struct Writer {
    pub(super) out: Vec<u8>,
    /// Number of open arrays and objects.
    pub(super) depth: usize,
    /// Number of open options and newtypes.
    wraps: usize,
    /// The first error of a part. A `Serialize` impl that continues after it leaves half a text.
    failed: Option<Error>,
    /// The known lists, where lists are stored apart.
    logs: Option<Logs>,
    /// Whether an inclusive range was written that may or may not have given its last item.
    pub(super) is_range_in_doubt: bool,
}

/// The only `f32` whose shortest text becomes its neighbour when it is read as an `f64` and then
/// rounded, as serde does where it buffers; all others were checked.
const ROUNDS_TWICE: u32 = 0x15ae_43fd;

const SOME: &[u8] = b"{\"$some\":";

impl Writer {
    fn new(depth: usize) -> Self {
        Writer { out: Vec::with_capacity(128), depth, wraps: 0, failed: None, logs: None, is_range_in_doubt: false }
    }

    fn whole<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<String, Error> {
        value.serialize(&mut *self)?;
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        String::from_utf8(std::mem::take(&mut self.out)).map_err(Error::new)
    }

    /// A list that is stored apart.
    fn log<T: Serialize + ?Sized>(&mut self, mut logs: Logs, value: &T) -> Result<(), Error> {
        let start = self.out.len();
        let placeholder = logs::ask(&mut logs, self.depth, || value.serialize(&mut *self));
        self.logs = Some(logs);
        if let Some(placeholder) = placeholder? {
            self.out.truncate(start);
            self.open(&placeholder)?;
            self.close("");
        }
        Ok(())
    }

    pub(super) fn put(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    /// A string or number, as `serde_json` writes it.
    pub(super) fn plain<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        serde_json::to_writer(&mut self.out, value).map_err(Error::new)
    }

    /// Begins an array or object.
    pub(super) fn open(&mut self, text: &str) -> Result<(), Error> {
        self.deeper(1)?;
        self.put(text);
        Ok(())
    }

    /// Ends the array or object that [`Writer::open`] began.
    pub(super) fn close(&mut self, text: &str) {
        self.put(text);
        self.depth -= 1;
    }

    pub(super) fn deeper(&mut self, levels: usize) -> Result<(), Error> {
        if self.depth + levels > MAX_DEPTH {
            return Err(escape::too_deep());
        }
        self.depth += levels;
        Ok(())
    }

    /// A comma, unless the container has just been opened.
    pub(super) fn comma(&mut self) {
        if !matches!(self.out.last(), Some(b'[' | b'{')) {
            self.out.push(b',');
        }
    }

    /// A field or variant name and its colon.
    pub(super) fn name(&mut self, name: &str) -> Result<(), Error> {
        if name.starts_with('$') {
            if name.starts_with(RESERVED) {
                return Err(reserved(name));
            }
            self.plain(&format!("${name}"))?;
        } else {
            self.plain(name)?;
        }
        self.out.push(b':');
        Ok(())
    }

    /// Records the first error of a part, so that the whole fails.
    pub(super) fn keep(&mut self, result: Result<(), Error>) -> Result<(), Error> {
        if let Err(error) = &result {
            self.failed.get_or_insert_with(|| error.clone());
        }
        result
    }

    /// An escaped form with a text as its value.
    fn escaped(&mut self, open: &str, text: &str) -> Result<(), Error> {
        self.open(open)?;
        self.plain(text)?;
        self.close("}");
        Ok(())
    }

    fn wrapped<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        if self.wraps == MAX_WRAPS {
            return Err(escape::too_wrapped());
        }
        self.wraps += 1;
        value.serialize(&mut *self)?;
        self.wraps -= 1;
        Ok(())
    }

    /// Foreign JSON text: unchanged, unless the reader could take it for something else.
    pub(super) fn raw(&mut self, text: &str) -> Result<(), Error> {
        let escapes = text.contains("\"$") || text.contains("\\u0024");
        if escapes || self.depth + nesting(text) > MAX_DEPTH {
            return self.escaped("{\"$raw\":", text);
        }
        self.put(text);
        Ok(())
    }

    /// A number of any precision: plain if reading it as 64 bits returns the same text.
    pub(super) fn number(&mut self, text: &str) -> Result<(), Error> {
        let same = |again: Result<String, serde_json::Error>| again.is_ok_and(|again| again == text);
        let integer =
            text.parse::<u64>().is_ok_and(|n| same(Ok(n.to_string()))) || text.parse::<i64>().is_ok_and(|n| same(Ok(n.to_string())));
        let float =
            || text.contains(['.', 'e', 'E']) && text.parse::<f64>().is_ok_and(|n| n.is_finite() && same(serde_json::to_string(&n)));
        if integer || float() {
            self.put(text);
            return Ok(());
        }
        self.escaped("{\"$number\":", text)
    }
}

/// Nesting of the arrays and objects of a JSON text.
fn nesting(text: &str) -> usize {
    let (mut now, mut most) = (0_usize, 0);
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => {
                now += 1;
                most = most.max(now);
            }
            b']' | b'}' => now = now.saturating_sub(1),
            b'"' => {
                while let Some(byte) = bytes.next() {
                    match byte {
                        b'\\' => _ = bytes.next(),
                        b'"' => break,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    most
}

/// The error of a name that `serde_json` would take for one of its own tokens.
pub(super) fn reserved(name: &str) -> Error {
    Error::new(format_args!("the key `{name}` is reserved by serde_json, which could not read it back"))
}

macro_rules! plain {
    ($($method:ident $type:ty,)*) => {$(
        fn $method(self, value: $type) -> Result<(), Error> {
            self.plain(&value)
        }
    )*};
}

impl<'a> Serializer for &'a mut Writer {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Items<'a>;
    type SerializeTuple = Items<'a>;
    type SerializeTupleStruct = Items<'a>;
    type SerializeTupleVariant = Items<'a>;
    type SerializeMap = Map<'a>;
    type SerializeStruct = Fields<'a>;
    type SerializeStructVariant = Fields<'a>;

    plain! {
        serialize_bool bool,
        serialize_i8 i8,
        serialize_i16 i16,
        serialize_i32 i32,
        serialize_i64 i64,
        serialize_u8 u8,
        serialize_u16 u16,
        serialize_u32 u32,
        serialize_u64 u64,
        serialize_char char,
        serialize_str &str,
    }

    fn serialize_i128(self, value: i128) -> Result<(), Error> {
        if i64::try_from(value).is_ok() || u64::try_from(value).is_ok() {
            return self.plain(&value);
        }
        self.escaped("{\"$i128\":", &value.to_string())
    }

    fn serialize_u128(self, value: u128) -> Result<(), Error> {
        if u64::try_from(value).is_ok() {
            return self.plain(&value);
        }
        self.escaped("{\"$u128\":", &value.to_string())
    }

    fn serialize_f32(self, value: f32) -> Result<(), Error> {
        if value.abs().to_bits() == ROUNDS_TWICE {
            return self.plain(&f64::from(value));
        }
        if value.is_finite() {
            return self.plain(&value);
        }
        self.escaped("{\"$f32\":", &escape::f32_text(value))
    }

    fn serialize_f64(self, value: f64) -> Result<(), Error> {
        if value.is_finite() {
            return self.plain(&value);
        }
        self.escaped("{\"$f64\":", &escape::f64_text(value))
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), Error> {
        self.open("{\"$bytes\":\"")?;
        escape::push_base64(&mut self.out, value)?;
        self.close("\"}");
        Ok(())
    }

    fn serialize_none(self) -> Result<(), Error> {
        self.serialize_unit()
    }

    /// Escaped only if the text would otherwise be that of a `None`, of this option or of one
    /// inside it.
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Error> {
        let start = self.out.len();
        self.wrapped(value)?;
        let text = &self.out[start..];
        if text == b"null" || text.starts_with(SOME) {
            // Such a text is `null` in nothing but escapes, so its length says how deep it is, and
            // moving it is cheap.
            let inside = (text.len() - "null".len()) / (SOME.len() + 1);
            if self.depth + inside + 1 > MAX_DEPTH {
                return Err(escape::too_deep());
            }
            self.out.splice(start..start, SOME.iter().copied());
            self.out.push(b'}');
        }
        Ok(())
    }

    fn serialize_unit(self) -> Result<(), Error> {
        self.put("null");
        Ok(())
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Result<(), Error> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _name: &'static str, _index: u32, variant: &'static str) -> Result<(), Error> {
        self.plain(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, name: &'static str, value: &T) -> Result<(), Error> {
        match self.logs.take_if(|_| name == LOG) {
            Some(logs) => self.log(logs, value),
            None => self.wrapped(value),
        }
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        self.open("{")?;
        self.name(variant)?;
        value.serialize(&mut *self).map_err(|error| error.in_field(variant))?;
        self.close("}");
        Ok(())
    }

    fn serialize_seq(self, _len: Option<usize>) -> Result<Items<'a>, Error> {
        self.open("[")?;
        Ok(Items { writer: self, index: 0, variant: None })
    }

    fn serialize_tuple(self, len: usize) -> Result<Items<'a>, Error> {
        self.serialize_seq(Some(len))
    }

    fn serialize_tuple_struct(self, _name: &'static str, len: usize) -> Result<Items<'a>, Error> {
        self.serialize_seq(Some(len))
    }

    fn serialize_tuple_variant(self, _name: &'static str, _index: u32, variant: &'static str, _len: usize) -> Result<Items<'a>, Error> {
        self.open("{")?;
        self.name(variant)?;
        self.open("[")?;
        Ok(Items { writer: self, index: 0, variant: Some(variant) })
    }

    fn serialize_map(self, _len: Option<usize>) -> Result<Map<'a>, Error> {
        self.open("{")?;
        Ok(Map { writer: self, listed: false, key: None })
    }

    fn serialize_struct(self, name: &'static str, _len: usize) -> Result<Fields<'a>, Error> {
        let kind = match name {
            RAW => Kind::Raw,
            NUMBER => Kind::Number,
            "RangeInclusive" => {
                self.open("{")?;
                Kind::Range(self.out.len())
            }
            _ => {
                self.open("{")?;
                Kind::Object
            }
        };
        Ok(Fields { writer: self, kind })
    }

    fn serialize_struct_variant(self, _name: &'static str, _index: u32, variant: &'static str, _len: usize) -> Result<Fields<'a>, Error> {
        self.open("{")?;
        self.name(variant)?;
        self.open("{")?;
        Ok(Fields { writer: self, kind: Kind::Variant(variant) })
    }

    /// True, as the text is for people; and as serde's buffering (untagged, internally tagged,
    /// flatten) always says so.
    fn is_human_readable(&self) -> bool {
        true
    }
}
