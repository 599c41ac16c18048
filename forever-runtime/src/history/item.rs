//! Items of a history as they are stored, one JSON object per checkpoint.
//!
//! `{"n":7,"at":"charge","ms":1790000000,"took":12,"set":{"total":17},"gone":["draft"]}` has what
//! changed since the item before. An item with `snapshot` and `parts` has everything; the first
//! of an activation, and one of every [`MOST_CHANGES`], are such. A local of a function at depth 1
//! of the call stack is named `1:total`, as parts are.
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::frame::snapshot::Snapshot;
use crate::store::Epoch;

/// The most items without all values in a row.
pub(super) const MOST_CHANGES: u32 = 64;

/// An item, read.
#[derive(Debug, Deserialize)]
pub(super) struct Item {
    /// Number of the checkpoint.
    pub(super) n: u64,
    /// Name of the cut point that was passed, of the innermost function.
    pub(super) at: String,
    /// Time of the checkpoint.
    pub(super) ms: i64,
    /// Time since the checkpoint before or the beginning of the activation.
    pub(super) took: i64,
    /// Epoch, in the first item of an activation.
    pub(super) epoch: Option<Epoch>,
    /// Failed attempts of the step.
    #[serde(default)]
    pub(super) failed: u32,
    /// The last error of these.
    pub(super) error: Option<String>,
    /// Locals with new values.
    #[serde(default)]
    pub(super) set: BTreeMap<String, Box<RawValue>>,
    /// Locals that are no longer kept.
    #[serde(default)]
    pub(super) gone: Vec<String>,
    /// Parts with new texts; in a whole item all parts.
    #[serde(default)]
    pub(super) parts: BTreeMap<String, Box<RawValue>>,
    /// The main text of the snapshot, in a whole item.
    pub(super) snapshot: Option<Snapshot>,
}

/// Name of a local in `set` and `gone`.
pub(super) fn local_name(depth: usize, name: &str) -> String {
    if depth == 0 && !name.starts_with(|c: char| c.is_ascii_digit()) { name.to_owned() } else { format!("{depth}:{name}") }
}

/// The reverse of [`local_name`].
pub(super) fn depth_and_name(name: &str) -> (usize, &str) {
    let numbered = name.split_once(':').and_then(|(depth, name)| Some((depth.parse().ok()?, name)));
    numbered.unwrap_or((0, name))
}
