//! The table of layouts. Each layout is stored once and never deleted.
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::LayoutRow;

/// The columns that [`of`] reads, of a `layouts l`.
pub(super) const COLUMNS: &str = "l.hash AS layout_hash, l.fiber AS layout_fiber, l.layout AS layout_text";

/// The layout in a row that has [`COLUMNS`]; `None` where the join found none.
pub(super) fn of(row: &Row<'_>) -> rusqlite::Result<Option<LayoutRow>> {
    let Some(hash) = row.get("layout_hash")? else { return Ok(None) };
    Ok(Some(LayoutRow { hash, fiber: row.get("layout_fiber")?, layout: row.get("layout_text")? }))
}

/// Stores layouts that are not stored.
pub(super) fn save<'a>(conn: &Connection, layouts: impl IntoIterator<Item = &'a LayoutRow>) -> rusqlite::Result<()> {
    for LayoutRow { hash, fiber, layout } in layouts {
        conn.prepare_cached("INSERT INTO layouts (hash, fiber, layout) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING")?
            .execute(params![hash, fiber, layout])?;
    }
    Ok(())
}

/// The layouts with these hashes, which are separated by spaces.
pub(super) fn with_hashes(conn: &Connection, hashes: &str) -> rusqlite::Result<Vec<LayoutRow>> {
    let mut statement = conn.prepare_cached(&format!("SELECT {COLUMNS} FROM layouts l WHERE l.hash = ?1"))?;
    hashes.split_whitespace().filter_map(|hash| statement.query_row([hash], of).optional().map(Option::flatten).transpose()).collect()
}
