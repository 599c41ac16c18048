//! Whether a snapshot fits the code: a stand-in until `layout` describes a machine in full.
use super::machine::Machine;
use super::snapshot::Snapshot;
use crate::store::StoredLayout;

/// The row of the table of layouts for a machine.
pub(super) fn layout_of(machine: &'static Machine) -> StoredLayout {
    let cuts: Vec<_> = machine
        .cuts
        .iter()
        .map(|cut| serde_json::json!({"name": cut.name, "locals": cut.locals.iter().map(|l| l.name).collect::<Vec<_>>()}))
        .collect();
    let layout = serde_json::json!({"version": machine.version, "cuts": cuts}).to_string();
    // FNV-1a: the same in every process, which is all that a stand-in needs.
    let hash = layout.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    StoredLayout { hash: format!("{hash:016x}"), fiber: machine.name.to_owned(), layout }
}

/// Why a snapshot written under the layout `old` cannot go on under `machine`.
pub(super) fn check(_machine: &'static Machine, _old: &StoredLayout, _snapshot: &Snapshot) -> Result<(), String> {
    Ok(())
}
