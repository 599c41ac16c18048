//! Tracks the rows of a snapshot beside its main text, so that a checkpoint writes only what has
//! changed.
//!
//! A local whose text is long is a *part*: a row of its own, referred to in the main text by
//! `{"$part":"name"}`. The items of a [`Log`](crate::frame::log::Log) are a stream of the fiber,
//! referred to by `{"$log":N,"len":L}`. No value can look like either, because
//! [`crate::exact`] escapes the keys of values that begin with `$`.
//!
//! [`SnapshotTracker`] knows which of these rows are stored, and computes the [`SnapshotDelta`] and
//! [`StreamsDelta`] for a new main text, stored in the same transaction. [`SnapshotRows`] are the
//! stored rows when they are read.
use std::borrow::Cow;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::exact::logs::{LogItem, Logs, PLACEHOLDER, StoredLogs};
use crate::frame::snapshot::{Snapshot, json_string};
use crate::store::{SnapshotDelta, SnapshotRows, StreamAppend, StreamsDelta, log_stream};

/// Minimum length in bytes of a local's text that becomes a part: from here on a second row is
/// cheaper than writing the text again.
const PART: usize = 512;

/// References of a snapshot's main text to rows beside it, with the texts of the parts.
#[derive(Debug, Clone, Default)]
pub(crate) struct SnapshotRefs {
    pub(crate) parts: BTreeMap<String, Arc<str>>,
    pub(crate) logs: BTreeSet<u64>,
}

/// Tracks which snapshot rows are stored, to compute the next delta.
#[derive(Debug)]
pub(crate) struct SnapshotTracker {
    /// Minimum length of a part.
    part: usize,
    parts: BTreeMap<String, Arc<str>>,
    pub(crate) logs: Logs,
    /// Logs that are still to be restored.
    stored: Arc<StoredLogs>,
}

impl Default for SnapshotTracker {
    fn default() -> Self {
        SnapshotTracker { part: PART, parts: BTreeMap::new(), logs: Logs::default(), stored: Arc::default() }
    }
}

impl SnapshotTracker {
    /// Takes over the stored rows of the main text `snapshot`.
    pub(crate) fn resume(&mut self, snapshot: &str, beside: SnapshotRows) {
        self.parts = beside.parts;
        let named = numbers(snapshot).chain(self.parts.values().flat_map(|text| numbers(text)));
        self.logs = Logs::resumed(named, beside.logs.keys().copied());
        self.stored = Arc::new(StoredLogs::new(beside.logs));
    }

    /// Sets the minimum length of a part.
    #[cfg_attr(not(feature = "testing"), allow(dead_code, reason = "for the testing kit"))]
    pub(crate) fn part_from(&mut self, bytes: usize) {
        self.part = bytes;
    }

    /// The items of the logs to restore.
    pub(crate) fn stored(&self) -> Arc<StoredLogs> {
        Arc::clone(&self.stored)
    }

    /// Takes over the restored logs.
    pub(crate) fn adopt(&mut self) {
        self.logs.adopt(self.stored.take_read());
    }

    /// Makes a part of a local if its text is long; returns the reference to it.
    pub(crate) fn part(&self, depth: u32, name: &str, text: &str, named: &mut SnapshotRefs) -> Option<String> {
        if text.len() < self.part {
            return None;
        }
        let name = local_name(depth as usize, name).into_owned();
        let placeholder = placeholder(&name);
        // An unchanged text is shared, not copied.
        let text = self.parts.get(&name).filter(|there| ***there == *text).map_or_else(|| text.into(), Arc::clone);
        named.parts.insert(name, text);
        Some(placeholder)
    }

    /// Computes what changes with a main text that has these references.
    pub(crate) fn commit(&mut self, named: SnapshotRefs) -> (SnapshotDelta, StreamsDelta) {
        let before = std::mem::replace(&mut self.parts, named.parts);
        let same = |name: &String, text: &Arc<str>| before.get(name).is_some_and(|there| Arc::ptr_eq(there, text) || there == text);
        let parts =
            self.parts.iter().filter(|(name, text)| !same(name, text)).map(|(name, text)| (name.clone(), Arc::clone(text))).collect();
        let removed_parts = before.into_keys().filter(|name| !self.parts.contains_key(name)).collect();
        let (items, removed_logs) = self.logs.commit(&named.logs);
        // A fiber that makes a checkpoint has restored all its logs.
        self.stored = Arc::default();
        let streams = StreamsDelta { removed: removed_logs.into_iter().map(log_stream).collect(), appended: appended(items) };
        (SnapshotDelta { parts, removed_parts }, streams)
    }
}

/// The new items of each log, which come in order.
fn appended(items: Vec<LogItem>) -> Vec<StreamAppend> {
    let mut appended: BTreeMap<u64, StreamAppend> = BTreeMap::new();
    for LogItem { log, n, text } in items {
        match appended.entry(log) {
            Entry::Vacant(new) => {
                new.insert(StreamAppend { name: log_stream(log).into(), first: Some(n), count: 1, data: text, keep: None });
            }
            Entry::Occupied(mut more) => {
                let append = more.get_mut();
                append.count += 1;
                append.data.push('\n');
                append.data.push_str(&text);
            }
        }
    }
    appended.into_values().collect()
}

/// Name of a local with the depth of its function on the call stack: `notes`, or `1:notes` in a
/// called function. That of the row of a part, and that in a history.
pub(crate) fn local_name(depth: usize, name: &str) -> Cow<'_, str> {
    // Names at different depths never collide.
    if depth == 0 && !name.starts_with(|c: char| c.is_ascii_digit()) { name.into() } else { format!("{depth}:{name}").into() }
}

/// The reverse of [`local_name`].
pub(crate) fn depth_and_name(name: &str) -> (usize, &str) {
    let numbered = name.split_once(':').and_then(|(depth, name)| Some((depth.parse().ok()?, name)));
    numbered.unwrap_or((0, name))
}

/// Start of a reference to a part.
const PART_PLACEHOLDER: &str = "{\"$part\":";

fn placeholder(name: &str) -> String {
    format!("{PART_PLACEHOLDER}{}}}", json_string(name))
}

/// Whether a value is, or contains, a reference to a row beside the main text.
pub(crate) fn is_reference(text: &str) -> bool {
    text.contains(PART_PLACEHOLDER) || text.contains(PLACEHOLDER)
}

/// Name of the part that a value refers to.
pub(crate) fn part_of(text: &str) -> Option<String> {
    serde_json::from_str(text.strip_prefix(PART_PLACEHOLDER)?.strip_suffix('}')?).ok()
}

/// The logs to which a text refers.
fn numbers(text: &str) -> impl Iterator<Item = u64> {
    text.split(PLACEHOLDER).skip(1).filter_map(|rest| rest.split(',').next()?.trim().parse().ok())
}

/// A text with its references replaced by the rows; references to missing rows stay.
pub(crate) fn fill(beside: &SnapshotRows, text: &str) -> String {
    let mut whole = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("{\"$") {
        let (before, from) = rest.split_at(at);
        whole.push_str(before);
        rest = if let Some((filled, behind)) = filled(beside, from) {
            whole.push_str(&filled);
            behind
        } else {
            whole.push_str("{\"$");
            from.strip_prefix("{\"$").unwrap_or_default()
        };
    }
    whole + rest
}

/// The content of the reference at the start of a text, and the text behind the reference.
fn filled<'t>(beside: &SnapshotRows, text: &'t str) -> Option<(String, &'t str)> {
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
        Placeholder::Part { name } => fill(beside, beside.parts.get(&name)?),
        Placeholder::Log { number, len } => {
            let items = beside.logs.get(&number).map(Vec::as_slice).unwrap_or_default();
            format!("[{}]", items.get(..len)?.join(","))
        }
    };
    Some((filled, text.get(values.byte_offset()..)?))
}

impl Snapshot {
    /// Replaces references to parts by their texts; fails if one is missing.
    pub(crate) fn put_back(&mut self, beside: &SnapshotRows) -> Result<(), String> {
        self.each(|snapshot| {
            for (local, text) in &mut snapshot.locals {
                let Some(name) = text.get().strip_prefix(PART_PLACEHOLDER).and_then(|rest| rest.strip_suffix('}')) else { continue };
                let part = part_of(text.get()).and_then(|name| beside.parts.get(&name));
                let Some(part) = part else {
                    return Err(format!("local `{local}` at `{}` is not stored: there is no part {name}", snapshot.at));
                };
                *text = RawValue::from_string(part.to_string())
                    .map_err(|e| format!("local `{local}` at `{}` cannot be read: the part {name} is not JSON: {e}", snapshot.at))?;
            }
            Ok(())
        })
    }

    /// Replaces references to logs by their items, so that a local is whole wherever it is moved.
    pub(crate) fn put_back_logs(&mut self, beside: &SnapshotRows) -> Result<(), String> {
        self.each(|snapshot| {
            for (local, text) in &mut snapshot.locals {
                if text.get().contains(PLACEHOLDER) {
                    *text = RawValue::from_string(fill(beside, text.get()))
                        .map_err(|e| format!("local `{local}` at `{}` cannot be read: an item of a log is not JSON: {e}", snapshot.at))?;
                }
            }
            Ok(())
        })
    }
}
