//! Reads maps: entries of objects and of the lists inside them, and keys that are strings.
use std::borrow::Cow;
use std::iter;

use serde::Deserializer;
use serde::de::value::{CowStrDeserializer, MapDeserializer};
use serde::de::{DeserializeSeed, MapAccess, Visitor};

use super::constants;
use super::error::Error;
use super::escape::{self, MAX_WRAPS, RAW};
use super::read::Reader;

/// The entries of an object: first the named ones, then those of a `$map` list.
pub(super) struct Entries<'a, 't> {
    reader: &'a mut Reader<'t>,
    listed: bool,
    first: bool,
    /// Text of the key whose value comes next.
    key: &'t str,
}

impl<'a, 't> Entries<'a, 't> {
    pub(super) fn new(reader: &'a mut Reader<'t>) -> Self {
        Entries { reader, listed: false, first: true, key: "" }
    }

    /// The next pair of the list; the list is closed after the last one.
    fn listed_key<'de, K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let reader = &mut *self.reader;
        if !reader.more(self.first, b']')? {
            reader.close(b']')?;
            return Ok(None);
        }
        self.first = false;
        reader.open(b'[')?;
        let mark = reader.mark();
        let key = seed.deserialize(&mut *reader).map_err(|error| error.of_key())?;
        self.key = reader.since(mark);
        reader.expect(b',')?;
        Ok(Some(key))
    }
}

/// The name in an object's key.
pub(super) fn unescaped(key: Cow<'_, str>) -> Result<Cow<'_, str>, Error> {
    let name = match &key {
        Cow::Borrowed(key) => key.strip_prefix('$').map(Cow::Borrowed),
        Cow::Owned(key) => key.strip_prefix('$').map(|name| Cow::Owned(name.to_owned())),
    };
    match name {
        None => Ok(key),
        Some(name) if name.starts_with('$') => Ok(name),
        Some(_) => Err(Error::new(format_args!("misplaced escape `{key}`"))),
    }
}

impl<'de> MapAccess<'de> for Entries<'_, '_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        if self.listed {
            return self.listed_key(seed);
        }
        let reader = &mut *self.reader;
        if !reader.more(self.first, b'}')? {
            return Ok(None);
        }
        let mark = reader.mark();
        let key = reader.string()?;
        let token = reader.since(mark);
        reader.expect(b':')?;
        if key == "$map" {
            reader.open(b'[')?;
            self.listed = true;
            self.first = true;
            return self.listed_key(seed);
        }
        self.first = false;
        self.key = token;
        seed.deserialize(Key::new(unescaped(key)?, token, reader.lends)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let value = seed.deserialize(&mut *self.reader).map_err(|error| error.in_key(self.key))?;
        if self.listed {
            self.reader.close(b']')?;
        }
        Ok(value)
    }
}

/// A key that is a string in the text.
pub(super) struct Key<'t> {
    name: Cow<'t, str>,
    /// The key as in the text.
    token: &'t str,
    /// Options and newtypes around it.
    wraps: usize,
    /// See [`Reader::lends`].
    lends: bool,
}

impl<'t> Key<'t> {
    pub(super) fn new(name: Cow<'t, str>, token: &'t str, lends: bool) -> Self {
        Key { name, token, wraps: 0, lends }
    }

    fn wrapped(mut self) -> Result<Self, Error> {
        if self.wraps == MAX_WRAPS {
            return Err(escape::too_wrapped());
        }
        self.wraps += 1;
        Ok(self)
    }
}

/// Numbers and bools are read from strings as well, since `serde_json` writes them so.
macro_rules! spelled_out {
    ($($method:ident $visit:ident,)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            match self.name.parse() {
                Ok(value) => visitor.$visit(value),
                Err(_) => self.deserialize_any(visitor),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for Key<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.name {
            Cow::Borrowed(name) => visitor.visit_str(name),
            Cow::Owned(name) => visitor.visit_string(name),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.lends {
            return visitor.visit_borrowed_str(constants::text(&self.name));
        }
        self.deserialize_any(visitor)
    }

    spelled_out! {
        deserialize_bool visit_bool,
        deserialize_i8 visit_i8,
        deserialize_i16 visit_i16,
        deserialize_i32 visit_i32,
        deserialize_i64 visit_i64,
        deserialize_i128 visit_i128,
        deserialize_u8 visit_u8,
        deserialize_u16 visit_u16,
        deserialize_u32 visit_u32,
        deserialize_u64 visit_u64,
        deserialize_u128 visit_u128,
        deserialize_f32 visit_f32,
        deserialize_f64 visit_f64,
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self.wrapped()?)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Error> {
        if name == RAW {
            return visitor.visit_map(MapDeserializer::new(iter::once((RAW, self.token))));
        }
        visitor.visit_newtype_struct(self.wrapped()?)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_enum(CowStrDeserializer::new(self.name))
    }

    fn is_human_readable(&self) -> bool {
        true
    }

    serde::forward_to_deserialize_any! {
        char string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}
