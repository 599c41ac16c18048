//! Writes arrays, maps and structs.
use std::ops::Range;

use serde::Serialize;
use serde::ser::{
    SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple, SerializeTupleStruct, SerializeTupleVariant,
};

use super::error::Error;
use super::escape::{NUMBER, RAW, RESERVED};
use super::ser::{Writer, reserved};

/// A sequence, a tuple, or the content of a tuple variant.
pub(super) struct Items<'a> {
    pub(super) writer: &'a mut Writer,
    pub(super) index: usize,
    pub(super) variant: Option<&'static str>,
}

impl Items<'_> {
    fn item<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.writer.comma();
        let written = value.serialize(&mut *self.writer).map_err(|error| {
            let error = error.in_item(self.index);
            match self.variant {
                Some(variant) => error.in_field(variant),
                None => error,
            }
        });
        self.index += 1;
        self.writer.keep(written)
    }

    fn finish(self) {
        self.writer.close("]");
        if self.variant.is_some() {
            self.writer.close("}");
        }
    }
}

macro_rules! items {
    ($($of:ident $method:ident,)*) => {$(
        impl $of for Items<'_> {
            type Ok = ();
            type Error = Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
                self.item(value)
            }

            fn end(self) -> Result<(), Error> {
                self.finish();
                Ok(())
            }
        }
    )*};
}

items! {
    SerializeSeq serialize_element,
    SerializeTuple serialize_element,
    SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field,
}

/// A map: an object as long as the keys are strings. From the first other key on, the entries are a
/// list of pairs in the object's last entry.
pub(super) struct Map<'a> {
    pub(super) writer: &'a mut Writer,
    pub(super) listed: bool,
    /// Place of the key whose value comes next.
    pub(super) key: Option<Range<usize>>,
}

/// Nesting of the list and of the pair in it.
const LIST_LEVELS: usize = 2;

impl Map<'_> {
    fn put_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        const LIST: &[u8] = b"\"$map\":[[";
        if self.key.is_some() {
            return Err(Error::new("a map's key is followed by another key"));
        }
        let writer = &mut *self.writer;
        writer.comma();
        if self.listed {
            writer.put("[");
        }
        let mut start = writer.out.len();
        // Only a string can stay at this level, and it needs no depth, so everything that needs
        // depth is counted as inside the list.
        let depth = writer.depth;
        writer.depth += if self.listed { 0 } else { LIST_LEVELS };
        key.serialize(&mut *writer).map_err(|error| error.of_key())?;
        writer.depth = depth;

        if self.listed {
            writer.put(",");
        } else if writer.out.get(start) == Some(&b'"') {
            if writer.out[start + 1] == b'$' {
                if writer.out[start + 1..].starts_with(RESERVED.as_bytes()) {
                    return Err(reserved(String::from_utf8_lossy(&writer.out[start..]).trim_matches('"')));
                }
                writer.out.insert(start + 1, b'$');
            }
            writer.put(":");
        } else {
            writer.deeper(LIST_LEVELS)?;
            self.listed = true;
            // The only text that is moved: a map's first key that is not a string.
            writer.out.splice(start..start, LIST.iter().copied());
            start += LIST.len();
            writer.put(",");
        }
        self.key = Some(start..writer.out.len() - 1);
        Ok(())
    }

    fn put_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        let Some(key) = self.key.take() else {
            return Err(Error::new("a map's value comes without a key"));
        };
        let writer = &mut *self.writer;
        if let Err(error) = value.serialize(&mut *writer) {
            return Err(error.in_key(String::from_utf8_lossy(&writer.out[key])));
        }
        if self.listed {
            writer.put("]");
        }
        Ok(())
    }
}

impl SerializeMap for Map<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        let written = self.put_key(key);
        self.writer.keep(written)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        let written = self.put_value(value);
        self.writer.keep(written)
    }

    fn end(self) -> Result<(), Error> {
        if self.key.is_some() {
            return Err(Error::new("a map ends with a key that has no value"));
        }
        if self.listed {
            self.writer.put("]");
            self.writer.depth -= LIST_LEVELS;
        }
        self.writer.close("}");
        Ok(())
    }
}

/// A struct, or the content of a struct variant.
pub(super) struct Fields<'a> {
    pub(super) writer: &'a mut Writer,
    pub(super) kind: Kind,
}

pub(super) enum Kind {
    Object,
    Variant(&'static str),
    /// `std::ops::RangeInclusive`, whose fields begin at this place of the text.
    Range(usize),
    /// `serde_json::value::RawValue`, whose only field holds the text.
    Raw,
    /// `serde_json::Number` with the feature `arbitrary_precision`, likewise.
    Number,
}

impl Fields<'_> {
    fn put<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Error> {
        let writer = &mut *self.writer;
        match self.kind {
            Kind::Object | Kind::Range(_) => {
                writer.comma();
                writer.name(name)?;
                value.serialize(writer).map_err(|error| error.in_field(name))
            }
            Kind::Variant(variant) => {
                writer.comma();
                writer.name(name)?;
                value.serialize(writer).map_err(|error| error.in_field(name).in_field(variant))
            }
            Kind::Raw if name == RAW => {
                let text = writer.taken(value)?;
                writer.raw(&text)
            }
            Kind::Number if name == NUMBER => {
                let text = writer.taken(value)?;
                writer.number(&text)
            }
            Kind::Raw | Kind::Number => Err(Error::new("a raw JSON value cannot have a tag or fields of its own")),
        }
    }

    fn finish(self) {
        if let Kind::Range(from) = self.kind {
            self.writer.is_range_in_doubt |= is_at_its_end(&self.writer.out[from..]);
        }
        if matches!(self.kind, Kind::Object | Kind::Range(_) | Kind::Variant(_)) {
            self.writer.close("}");
        }
        if matches!(self.kind, Kind::Variant(_)) {
            self.writer.close("}");
        }
    }
}

/// Whether the start of an inclusive range is its end, by the text of its fields.
fn is_at_its_end(fields: &[u8]) -> bool {
    const START: &[u8] = b"\"start\":";
    const END: &[u8] = b",\"end\":";
    let Some(both) = fields.strip_prefix(START) else { return false };
    let (start, rest) = both.split_at(both.len().saturating_sub(END.len()) / 2);
    rest.strip_prefix(END) == Some(start)
}

impl Writer {
    /// A string that is not written as one.
    fn taken<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<String, Error> {
        let start = self.out.len();
        value.serialize(&mut *self)?;
        let text = serde_json::from_slice(&self.out[start..]).map_err(Error::new)?;
        self.out.truncate(start);
        Ok(text)
    }
}

macro_rules! fields {
    ($($of:ident,)*) => {$(
        impl $of for Fields<'_> {
            type Ok = ();
            type Error = Error;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Error> {
                let written = self.put(name, value);
                self.writer.keep(written)
            }

            fn end(self) -> Result<(), Error> {
                self.finish();
                Ok(())
            }
        }
    )*};
}

fields! { SerializeStruct, SerializeStructVariant, }
