//! Items of a history as they are stored, one JSON object per checkpoint.
//!
//! `{"n":7,"at":"charge","ms":1790000000,"took":12,"set":{"total":17},"gone":["draft"]}` has what
//! changed since the item before. An item with `snapshot` and `parts` has everything; the first
//! of an activation, and one of every [`MOST_CHANGES`], are such. A local of a function at depth 1
//! of the call stack is named `1:total`, as parts are.
//!
//! An item with `origin` is no checkpoint: it has what a person has made of the fiber, and the
//! fiber as it stands with that.
use std::collections::BTreeMap;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::frame::snapshot::{Snapshot, json_string, push_json_string};
use crate::store::{Epoch, LoadedFiber};

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
    /// Hash of the layout of the outermost function, in a whole item.
    pub(super) layout: Option<String>,
    /// What the item is, if it is no checkpoint.
    pub(super) origin: Option<Origin>,
}

/// What a person has made of a fiber.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Origin {
    /// Values were changed.
    Edit {
        /// Who has changed them.
        by: Option<String>,
        changes: Changes,
    },
    /// The fiber is a fork.
    Fork {
        /// Id of the fiber that it was forked from.
        of: String,
        /// Number of the checkpoint that it has begun behind.
        checkpoint: u64,
    },
    /// The fiber is imported.
    Import {
        /// Id that it had.
        of: String,
        exported_ms: i64,
    },
}

/// Changed values by name; `None` for those that are secret.
pub(crate) type Changes = BTreeMap<String, Option<Change>>;

/// A changed value.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Change {
    pub(crate) before: Option<Box<RawValue>>,
    pub(crate) after: Box<RawValue>,
}

impl Origin {
    /// Whether another copy was made of the same.
    pub(crate) fn is_same(&self, other: &Origin) -> bool {
        match (self, other) {
            (Origin::Fork { of, checkpoint }, Origin::Fork { of: other, checkpoint: at }) => of == other && checkpoint == at,
            (Origin::Import { of, exported_ms }, Origin::Import { of: other, exported_ms: at }) => of == other && exported_ms == at,
            _ => false,
        }
    }
}

/// The item for something else than a checkpoint, with the fiber as it stands with that.
pub(crate) fn item_of(loaded: &LoadedFiber, at: &str, now_ms: i64, origin: &Origin) -> String {
    let mut item = format!("{{\"n\":{},\"ms\":{now_ms},\"took\":0,\"at\":{}", loaded.number, json_string(at));
    if let Ok(origin) = serde_json::to_string(origin) {
        item.push_str(",\"origin\":");
        item.push_str(&origin);
    }
    if let Some(text) = &loaded.snapshot {
        push_whole(&mut item, loaded.layout.as_ref().map(|layout| layout.hash.as_str()), text, &loaded.rows.parts);
    }
    item.push('}');
    item
}

/// Appends everything that a whole item has.
pub(super) fn push_whole(item: &mut String, layout: Option<&str>, text: &str, parts: &BTreeMap<String, Arc<str>>) {
    if let Some(layout) = layout {
        item.push_str(",\"layout\":");
        push_json_string(item, layout);
    }
    item.push_str(",\"snapshot\":");
    item.push_str(text);
    push_parts(item, parts.iter());
}

pub(super) fn push_parts<'a>(item: &mut String, parts: impl Iterator<Item = (&'a String, &'a Arc<str>)>) {
    let mut some = false;
    for (name, text) in parts {
        item.push_str(if std::mem::replace(&mut some, true) { "," } else { ",\"parts\":{" });
        push_json_string(item, name);
        item.push(':');
        item.push_str(text);
    }
    if some {
        item.push('}');
    }
}
