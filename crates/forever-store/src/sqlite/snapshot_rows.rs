//! The row of a snapshot, and what stands beside it: the rows of its parts, and the items of its
//! logs.
use std::collections::BTreeMap;

use rusqlite::{Connection, params};

use super::streams;
use crate::Seq;
use crate::{SnapshotDelta, SnapshotRows};

/// Maximum length in bytes of all texts of a snapshot row with effects or items of the history.
/// With the numbers beside them the row stays on one page of 2 KiB, of which SQLite gives 2 013
/// bytes to a row.
pub(super) const ROW_BYTES: usize = 1980;

pub(super) fn load(conn: &Connection, seq: Seq) -> rusqlite::Result<SnapshotRows> {
    let mut parts = BTreeMap::new();
    let mut statement = conn.prepare_cached("SELECT name, data FROM parts WHERE fiber = ?1")?;
    let mut rows = statement.query([seq])?;
    while let Some(row) = rows.next()? {
        parts.insert(row.get("name")?, row.get("data")?);
    }
    let mut loaded = SnapshotRows { parts, ..SnapshotRows::default() };
    streams::read_logs(conn, seq, &mut loaded)?;
    Ok(loaded)
}

pub(super) fn change(conn: &Connection, seq: Seq, changes: &SnapshotDelta) -> rusqlite::Result<()> {
    for name in &changes.removed_parts {
        conn.prepare_cached("DELETE FROM parts WHERE fiber = ?1 AND name = ?2")?.execute(params![seq, name])?;
    }
    for (name, text) in &changes.parts {
        conn.prepare_cached(
            "INSERT INTO parts (fiber, name, data) VALUES (?1, ?2, ?3) ON CONFLICT (fiber, name) DO UPDATE SET data = excluded.data",
        )?
        .execute(params![seq, name, text])?;
    }
    Ok(())
}
