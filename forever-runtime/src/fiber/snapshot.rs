//! The stored form of a fiber that stands at a cut point.
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Where a fiber stands and what it keeps: one row's `snapshot`, read from JSON.
///
/// `migrate` functions are given the old one and return the new one.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// The fiber function, in the snapshot of a `call!`; the fiber's own name is in its row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fiber: Option<String>,
    /// The function's `version`, in the snapshot of a `call!`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub version: u32,
    /// Names that stand for several steps or locals of the function, in the snapshot of a `call!`: how many each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub of: BTreeMap<String, u32>,
    /// The cut point it stands at.
    pub at: String,
    /// The kept locals by name, each in the format of docs/format.md.
    pub locals: BTreeMap<String, Box<RawValue>>,
    /// The fiber called inline at this point, if it has not returned.
    pub call: Option<Box<Snapshot>>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes a reference
fn is_zero(n: &u32) -> bool {
    *n == 0
}
