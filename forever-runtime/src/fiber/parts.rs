//! What a snapshot keeps beside its main text, so that a checkpoint writes only what has changed.
//!
//! A local whose text is long is a *part*: a row of its own, for which `{"$part":"name"}` stands in the main text. The items of
//! a [`Log`](super::log::Log) are rows of their own as well, for which `{"$log":N,"len":L}` stands. No value can look like either, because
//! [`crate::exact`] escapes the keys of values that begin with `$`.
//!
//! [`Kept`] knows what of this the store has, and turns what a new main text names into the changes that go with it, in one
//! transaction. [`Beside`] is what the store has, when it is read.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::frame::json_string;
use super::snapshot::Snapshot;
use crate::exact::logs::{Logs, NewItem, PLACEHOLDER, StoredLogs};

/// How long the text of a local is, in bytes, that is a part: long enough that a second row is cheaper than writing it again.
const PART: usize = 512;

/// What a store has beside the main text of a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Beside {
    /// The texts of parts by name.
    pub(crate) parts: BTreeMap<String, Arc<str>>,
    /// The texts of the items of each log, in order, up to the first that is missing.
    pub(crate) logs: BTreeMap<u64, Vec<Arc<str>>>,
}

/// How what is beside the main text changes with a checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Parts that are new or have another text.
    pub(crate) parts: Vec<(String, Arc<str>)>,
    pub(crate) gone_parts: Vec<String>,
    /// Items that are new.
    pub(crate) items: Vec<NewItem>,
    /// Logs that no snapshot will name again.
    pub(crate) gone_logs: Vec<u64>,
}

impl Changes {
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.gone_parts.is_empty() && self.items.is_empty() && self.gone_logs.is_empty()
    }

    /// How many bytes of values it has.
    pub(crate) fn bytes(&self) -> usize {
        self.parts.iter().map(|(_, text)| text.len()).chain(self.items.iter().map(|item| item.text.len())).sum()
    }
}

/// What the main text of a snapshot names, with the texts of its parts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Named {
    pub(crate) parts: BTreeMap<String, Arc<str>>,
    pub(crate) logs: BTreeSet<u64>,
}

/// What one run knows of what is stored beside its snapshot.
#[derive(Debug)]
pub(crate) struct Kept {
    /// How long a text has to be to be a part.
    part: usize,
    parts: BTreeMap<String, Arc<str>>,
    pub(crate) logs: Logs,
    /// What is still to be read.
    stored: Arc<StoredLogs>,
}

impl Default for Kept {
    fn default() -> Self {
        Kept { part: PART, parts: BTreeMap::new(), logs: Logs::default(), stored: Arc::default() }
    }
}

impl Kept {
    /// Takes over what is stored beside the main text `snapshot`.
    pub(crate) fn resume(&mut self, snapshot: &str, beside: Beside) {
        self.parts = beside.parts;
        let named = numbers(snapshot).chain(self.parts.values().flat_map(|text| numbers(text)));
        self.logs = Logs::resumed(named, beside.logs.keys().copied());
        self.stored = Arc::new(StoredLogs::new(beside.logs));
    }

    /// Makes parts of all texts of this length.
    #[cfg_attr(not(feature = "testing"), allow(dead_code, reason = "for the testing kit"))]
    pub(crate) fn part_from(&mut self, bytes: usize) {
        self.part = bytes;
    }

    /// The items of the logs that are to be restored.
    pub(crate) fn stored(&self) -> Arc<StoredLogs> {
        Arc::clone(&self.stored)
    }

    /// Goes on with the logs that have been restored.
    pub(crate) fn adopt(&mut self) {
        self.logs.adopt(self.stored.take_read());
    }

    /// Makes a part of a local if its text is long: gives what stands for it.
    pub(crate) fn part(&self, depth: u32, name: &str, text: &str, named: &mut Named) -> Option<String> {
        if text.len() < self.part {
            return None;
        }
        let name = part_name(depth, name);
        let placeholder = placeholder(&name);
        // One text for as long as it stays the same.
        let text = self.parts.get(&name).filter(|there| ***there == *text).map_or_else(|| text.into(), Arc::clone);
        named.parts.insert(name, text);
        Some(placeholder)
    }

    /// What changes in the store with a main text that names this.
    pub(crate) fn commit(&mut self, named: Named) -> Changes {
        let before = std::mem::replace(&mut self.parts, named.parts);
        let same = |name: &String, text: &Arc<str>| before.get(name).is_some_and(|there| Arc::ptr_eq(there, text) || there == text);
        let parts =
            self.parts.iter().filter(|(name, text)| !same(name, text)).map(|(name, text)| (name.clone(), Arc::clone(text))).collect();
        let gone_parts = before.into_keys().filter(|name| !self.parts.contains_key(name)).collect();
        let (items, gone_logs) = self.logs.commit(&named.logs);
        // A fiber that makes a checkpoint has restored all that there was.
        self.stored = Arc::default();
        Changes { parts, gone_parts, items, gone_logs }
    }
}

/// The name of the row of a local: `notes`, in the function called `1:notes`.
fn part_name(depth: u32, name: &str) -> String {
    // No name at one depth is that of another.
    if depth == 0 && !name.starts_with(|c: char| c.is_ascii_digit()) { name.to_owned() } else { format!("{depth}:{name}") }
}

/// The beginning of what stands for a part in a text.
const PART_PLACEHOLDER: &str = "{\"$part\":";

fn placeholder(name: &str) -> String {
    format!("{PART_PLACEHOLDER}{}}}", json_string(name))
}

/// The logs that a text names.
fn numbers(text: &str) -> impl Iterator<Item = u64> {
    text.split(PLACEHOLDER).skip(1).filter_map(|rest| rest.split(',').next()?.trim().parse().ok())
}

impl Beside {
    /// A text with everything put back that stands beside it; what is missing stays as it is.
    pub(crate) fn fill(&self, text: &str) -> String {
        let mut whole = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find("{\"$") {
            let (before, from) = rest.split_at(at);
            whole.push_str(before);
            let end = if let Some((filled, end)) = self.filled(from) {
                whole.push_str(&filled);
                end
            } else {
                whole.push_str("{\"$");
                "{\"$".len()
            };
            rest = &from[end..];
        }
        whole + rest
    }

    /// What stands beside the text for its beginning, and where that ends.
    fn filled(&self, text: &str) -> Option<(String, usize)> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Placeholder {
            Part {
                #[serde(rename = "$part")]
                name: String,
            },
            Log {
                #[serde(rename = "$log")]
                number: u64,
                len: usize,
            },
        }
        if !text.starts_with(PART_PLACEHOLDER) && !text.starts_with(PLACEHOLDER) {
            return None;
        }
        let mut values = serde_json::Deserializer::from_str(text).into_iter();
        let filled = match values.next()?.ok()? {
            Placeholder::Part { name } => self.fill(self.parts.get(&name)?),
            Placeholder::Log { number, len } => {
                let items = self.logs.get(&number).map(Vec::as_slice).unwrap_or_default();
                format!("[{}]", items.get(..len)?.join(","))
            }
        };
        Some((filled, values.byte_offset()))
    }

    /// What a store has after these changes.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn apply(&mut self, changes: &Changes) {
        self.parts.retain(|name, _| !changes.gone_parts.contains(name));
        self.parts.extend(changes.parts.iter().cloned());
        self.logs.retain(|number, _| !changes.gone_logs.contains(number));
        for item in &changes.items {
            let items = self.logs.entry(item.log).or_default();
            items.truncate(usize::try_from(item.n).unwrap_or(usize::MAX));
            items.push(item.text.as_str().into());
        }
    }
}

impl Snapshot {
    /// Puts the parts back where they are named; `Err` says which cannot be.
    pub(crate) fn put_back(&mut self, beside: &Beside) -> Result<(), String> {
        self.each(|snapshot| {
            for (local, text) in &mut snapshot.locals {
                let Some(name) = text.get().strip_prefix(PART_PLACEHOLDER).and_then(|rest| rest.strip_suffix('}')) else { continue };
                let part = serde_json::from_str::<String>(name).ok().and_then(|name| beside.parts.get(&name));
                let Some(part) = part else {
                    return Err(format!("local `{local}` at `{}` is not stored: there is no part {name}", snapshot.at));
                };
                *text = RawValue::from_string(part.to_string())
                    .map_err(|e| format!("local `{local}` at `{}` cannot be read: the part {name} is not JSON: {e}", snapshot.at))?;
            }
            Ok(())
        })
    }

    /// Puts the items of logs in the place of their numbers, so that a local is whole wherever it is moved.
    pub(crate) fn put_back_logs(&mut self, beside: &Beside) -> Result<(), String> {
        self.each(|snapshot| {
            for (local, text) in &mut snapshot.locals {
                if text.get().contains(PLACEHOLDER) {
                    *text = RawValue::from_string(beside.fill(text.get()))
                        .map_err(|e| format!("local `{local}` at `{}` cannot be read: an item of a log is not JSON: {e}", snapshot.at))?;
                }
            }
            Ok(())
        })
    }
}
