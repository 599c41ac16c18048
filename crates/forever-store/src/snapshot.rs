//! What a snapshot has beside its main text: parts and the items of logs, so that a checkpoint
//! writes only what has changed.
use std::collections::BTreeMap;
use std::sync::Arc;

#[cfg(any(test, feature = "testing", feature = "conformance"))]
use crate::{StreamsDelta, streams};

/// Rows of a snapshot beside its main text.
///
/// A local whose text is long is a *part*: a row of its own, which the main text refers to by name.
/// The items of an append-only log are a stream ([`log_stream`](crate::log_stream)), which the main
/// text refers to by the number of the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotRows {
    /// Texts of the parts, by name.
    pub parts: BTreeMap<String, Arc<str>>,
    /// Texts of the items of each log, by the log's number, in order. A log ends before the first
    /// item that is missing.
    pub logs: BTreeMap<u64, Vec<Arc<str>>>,
}

/// Changes of the parts of a snapshot, stored with the checkpoint that they belong to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotDelta {
    /// Parts that are new or have another text, by name.
    pub parts: Vec<(String, Arc<str>)>,
    /// Names of parts to delete. A name that is not stored is no error.
    pub removed_parts: Vec<String>,
}

impl SnapshotDelta {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        let SnapshotDelta { parts, removed_parts } = self;
        parts.is_empty() && removed_parts.is_empty()
    }

    /// Total length of the texts to write, in bytes.
    // For the event of a checkpoint.
    #[doc(hidden)]
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(|(_, text)| text.len()).sum()
    }
}

impl SnapshotRows {
    /// Adds the items of a row of the stream of a log. For stores, which read the rows of each log
    /// in the order of their first items.
    ///
    /// Items after a missing one do not belong to the log. A row that begins before the end of the
    /// log is ignored: only a person can have written it.
    pub fn add_to_log(&mut self, log: u64, first: i64, count: i64, data: &str) {
        let items = self.logs.entry(log).or_default();
        let follows = usize::try_from(first) == Ok(items.len()) && usize::try_from(count) == Ok(data.lines().count());
        if follows {
            items.extend(data.lines().map(Arc::from));
        }
    }

    /// Applies the changes of a checkpoint.
    #[cfg(any(test, feature = "testing", feature = "conformance"))]
    // For tests, which have no database that does it.
    #[doc(hidden)]
    pub fn apply(&mut self, delta: &SnapshotDelta, of_streams: &StreamsDelta) {
        self.parts.retain(|name, _| !delta.removed_parts.contains(name));
        self.parts.extend(delta.parts.iter().cloned());
        self.logs.retain(|number, _| !of_streams.removed.contains(&streams::log_stream(*number)));
        for append in &of_streams.appended {
            let Some(log) = streams::log_number(&append.name) else { continue };
            let items = self.logs.entry(log).or_default();
            if let Some(first) = append.first {
                items.truncate(usize::try_from(first).unwrap_or(usize::MAX));
            }
            items.extend(append.data.lines().map(Arc::from));
        }
    }
}
