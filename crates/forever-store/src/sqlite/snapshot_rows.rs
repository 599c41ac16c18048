//! The rows of a snapshot beside its main text: those of its parts, and those of the items of its
//! logs.
use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::{Connection, params};

use crate::Seq;
use crate::{SnapshotDelta, SnapshotRows};

pub(super) fn load(conn: &Connection, seq: Seq) -> rusqlite::Result<SnapshotRows> {
    let mut parts = BTreeMap::new();
    let mut statement = conn.prepare_cached("SELECT name, data FROM parts WHERE fiber = ?1")?;
    let mut rows = statement.query([seq])?;
    while let Some(row) = rows.next()? {
        parts.insert(row.get("name")?, row.get("data")?);
    }

    let mut logs: BTreeMap<u64, Vec<Arc<str>>> = BTreeMap::new();
    let mut statement = conn.prepare_cached("SELECT log, n, data FROM log_items WHERE fiber = ?1 ORDER BY log, n")?;
    let mut rows = statement.query([seq])?;
    while let Some(row) = rows.next()? {
        // The library writes no negative numbers.
        let Ok(log) = u64::try_from(row.get::<_, i64>("log")?) else { continue };
        let items = logs.entry(log).or_default();
        // Items after a missing one do not belong to the log.
        if usize::try_from(row.get::<_, i64>("n")?) == Ok(items.len()) {
            items.push(row.get("data")?);
        }
    }
    Ok(SnapshotRows { parts, logs })
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
    for log in &changes.removed_logs {
        conn.prepare_cached("DELETE FROM log_items WHERE fiber = ?1 AND log = ?2")?.execute(params![seq, number(*log)])?;
    }
    for item in &changes.items {
        // An item can be there already only if a person has written it.
        conn.prepare_cached(
            "INSERT INTO log_items (fiber, log, n, data) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (fiber, log, n) DO UPDATE SET data = excluded.data",
        )?
        .execute(params![seq, number(item.log), number(item.n), item.text])?;
    }
    Ok(())
}

/// A number as SQLite has it; the library never exceeds the range.
fn number(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
