//! What a snapshot has beside its main text: parts and the items of logs, so that a checkpoint
//! writes only what has changed.
use std::collections::BTreeMap;
use std::sync::Arc;

pub use forever_json::logs::LogItem;

/// Rows of a snapshot beside its main text.
///
/// A local whose text is long is a *part*: a row of its own, which the main text refers to by name.
/// The items of an append-only log are rows as well, which the main text refers to by the number of
/// the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotRows {
    /// Texts of the parts, by name.
    pub parts: BTreeMap<String, Arc<str>>,
    /// Texts of the items of each log, by the log's number, in order. A log ends before the first
    /// item that is missing.
    pub logs: BTreeMap<u64, Vec<Arc<str>>>,
}

/// Changes of the rows of a snapshot, stored with the checkpoint that they belong to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotDelta {
    /// Parts that are new or have another text, by name.
    pub parts: Vec<(String, Arc<str>)>,
    /// Names of parts to delete. A name that is not stored is no error.
    pub removed_parts: Vec<String>,
    /// Items to append. One whose place is taken replaces what is there.
    pub items: Vec<LogItem>,
    /// Numbers of logs to delete with all their items. A number that is not stored is no error.
    pub removed_logs: Vec<u64>,
}

impl SnapshotDelta {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.removed_parts.is_empty() && self.items.is_empty() && self.removed_logs.is_empty()
    }

    /// Total length of the texts to write, in bytes.
    // For the event of a checkpoint.
    #[doc(hidden)]
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(|(_, text)| text.len()).chain(self.items.iter().map(|item| item.text.len())).sum()
    }
}

impl SnapshotRows {
    /// Applies the changes of a checkpoint.
    #[cfg(any(test, feature = "testing", feature = "conformance"))]
    // For tests, which have no database that does it.
    #[doc(hidden)]
    pub fn apply(&mut self, delta: &SnapshotDelta) {
        self.parts.retain(|name, _| !delta.removed_parts.contains(name));
        self.parts.extend(delta.parts.iter().cloned());
        self.logs.retain(|number, _| !delta.removed_logs.contains(number));
        for item in &delta.items {
            let items = self.logs.entry(item.log).or_default();
            items.truncate(usize::try_from(item.n).unwrap_or(usize::MAX));
            items.push(item.text.as_str().into());
        }
    }
}
