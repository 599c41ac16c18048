//! Whether a stored snapshot fits the code that finds it, by the layouts of both.
use super::layout::Layout;
use super::machine::Machine;
use super::snapshot::Snapshot;
use crate::store::StoredLayout;

/// The row of the table of layouts for a machine.
pub(super) fn layout_of(machine: &'static Machine) -> StoredLayout {
    let layout = Layout::of(machine);
    let text = serde_json::to_string(&layout).expect("a layout is text and numbers");
    StoredLayout { hash: layout.hash(), fiber: machine.name.to_owned(), layout: text }
}

/// Why a snapshot written under the layout `old` cannot go on under `machine`.
pub(super) fn check(machine: &'static Machine, old: &StoredLayout, snapshot: &Snapshot) -> Result<(), String> {
    let old: Layout = serde_json::from_str(&old.layout).map_err(|e| format!("the layout of the snapshot cannot be read: {e}"))?;
    Layout::of(machine).check(Some(&old), snapshot).map_err(|drift| drift.to_string())
}
