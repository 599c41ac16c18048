//! `Log`: a list of which a checkpoint writes only the new items.
use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::ops::Deref;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::exact::logs;
use crate::exact::logs::{Instance, LOG};
use crate::frame::keeps_order::KeepsOrder;

/// An append-only list: a checkpoint writes only the items that are new since the last one.
///
/// It reads like a slice. Items can be pushed, but neither changed nor removed, which fits a
/// transcript. Kept in a `Vec`, a conversation of a thousand messages is written whole at each
/// step. Kept in a `Log`, each message is written once, and a step costs the same at the thousandth
/// message as at the tenth.
///
/// ```
/// use forever_runtime::fiber::Log;
///
/// let mut notes = Log::new();
/// notes.push("checkpoints replace a row".to_owned());
/// notes.extend(["a row is a page or two".to_owned()]);
/// assert_eq!(notes.len(), 2);
/// assert!(notes.iter().any(|note| note.contains("page")));
/// assert_eq!(notes[1..].join(", "), "a row is a page or two");
/// ```
///
/// A log may be anywhere in a local, such as in a field of a struct. The items are stored with the
/// checkpoint, in one transaction, and a resumed fiber has exactly those that its snapshot refers
/// to. A clone is a new log, whose items are written again. Outside of a snapshot (in arguments,
/// results, `serde_json`) a log is an ordinary sequence. Code that replaces a `Vec` by a `Log`, or
/// the other way round, can read values that the old code has saved.
///
/// An item is never written again: changes inside it (behind a `Mutex`, say) are not saved.
pub struct Log<T> {
    items: Vec<T>,
    instance: Instance,
}

impl<T> Log<T> {
    /// An empty log.
    pub fn new() -> Self {
        Self::from(Vec::new())
    }

    /// Adds an item at the end.
    pub fn push(&mut self, item: T) {
        self.items.push(item);
    }

    /// The items as a slice.
    pub fn as_slice(&self) -> &[T] {
        &self.items
    }

    /// The items as a `Vec`.
    pub fn into_vec(self) -> Vec<T> {
        self.items
    }
}

impl<T> Default for Log<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Deref for Log<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.items
    }
}

impl<T> AsRef<[T]> for Log<T> {
    fn as_ref(&self) -> &[T] {
        &self.items
    }
}

impl<T> Borrow<[T]> for Log<T> {
    fn borrow(&self) -> &[T] {
        &self.items
    }
}

/// A new log with the same items.
impl<T: Clone> Clone for Log<T> {
    fn clone(&self) -> Self {
        Self::from(self.items.clone())
    }
}

impl<T: fmt::Debug> fmt::Debug for Log<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.items.fmt(f)
    }
}

impl<T: PartialEq> PartialEq for Log<T> {
    fn eq(&self, other: &Self) -> bool {
        self.items == other.items
    }
}

impl<T: Eq> Eq for Log<T> {}

impl<T: Hash> Hash for Log<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.items.hash(state);
    }
}

impl<T> From<Vec<T>> for Log<T> {
    fn from(items: Vec<T>) -> Self {
        Log { items, instance: Instance::new() }
    }
}

impl<T> From<Log<T>> for Vec<T> {
    fn from(log: Log<T>) -> Self {
        log.items
    }
}

impl<T> FromIterator<T> for Log<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Self::from(Vec::from_iter(items))
    }
}

impl<T> Extend<T> for Log<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        self.items.extend(items);
    }
}

impl<'a, T: Copy + 'a> Extend<&'a T> for Log<T> {
    fn extend<I: IntoIterator<Item = &'a T>>(&mut self, items: I) {
        self.items.extend(items);
    }
}

impl<T> IntoIterator for Log<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;
    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a Log<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.items.iter()
    }
}

impl<T> KeepsOrder for Log<T> {}

impl<T: Serialize> Serialize for Log<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_struct(LOG, &Items(self))
    }
}

/// Content of the newtype as which a log serializes.
struct Items<'a, T>(&'a Log<T>);

impl<T: Serialize> Serialize for Items<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if logs::handed_over(self.0.instance, &self.0.items) {
            return serializer.serialize_unit();
        }
        serializer.collect_seq(&self.0.items)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Log<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(LOG, Whole(PhantomData))
    }
}

struct Whole<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Whole<T> {
    type Value = Log<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Log<T>, D::Error> {
        let items = Vec::deserialize(deserializer)?;
        Ok(Log { items, instance: logs::just_read() })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Log<T>, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(items)).map(Log::from)
    }
}
