//! The logs of turns.
use std::ops::RangeInclusive;

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, params};

use crate::store::{ChunkBatch, TurnSeq};

pub(super) fn chunks(conn: &Connection, turn: TurnSeq, from: u64, limit: u32) -> rusqlite::Result<Vec<ChunkBatch>> {
    // The row that has chunk `from` in it may begin before it.
    conn.prepare_cached(
        "SELECT first, count, data, stored_ms FROM turn_chunks
         WHERE turn = ?1 AND first >= coalesce((SELECT max(first) FROM turn_chunks WHERE turn = ?1 AND first <= ?2), 0)
         ORDER BY first LIMIT ?3",
    )?
    .query_map(params![turn, from.cast_signed(), limit], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?)))?
    .scan(0..=from, |next, row| {
        Some(row.and_then(|(first, count, data, stored_ms)| {
            let row = follows(next, first, count, data, stored_ms)?;
            *next = row.first + row.count..=row.first + row.count;
            Ok(row)
        }))
    })
    .collect()
}

/// A row of a log that begins where it may; whoever went by another one would number chunks as they were never shown.
fn follows(next: &RangeInclusive<u64>, first: i64, count: i64, data: String, stored_ms: i64) -> rusqlite::Result<ChunkBatch> {
    let there = data.lines().count() as u64;
    match (u64::try_from(first), u64::try_from(count)) {
        (Ok(first), Ok(count)) if next.contains(&first) && count == there && first.checked_add(count).is_some() => {
            Ok(ChunkBatch { first, count, data, stored_ms })
        }
        _ => {
            let why = format!("the row of its log with {there} chunks says that it has {count} from {first} on, which is not in {next:?}");
            Err(rusqlite::Error::FromSqlConversionFailure(0, Type::Integer, why.into()))
        }
    }
}

pub(super) fn append(conn: &Connection, turn: TurnSeq, new: &ChunkBatch) -> rusqlite::Result<()> {
    let there: i64 = conn
        .prepare_cached("SELECT first + count FROM turn_chunks WHERE turn = ?1 ORDER BY first DESC LIMIT 1")?
        .query_row([turn], |r| r.get(0))
        .optional()?
        .unwrap_or(0);
    if there != new.first.cast_signed() {
        let why = format!("chunk {} does not follow the {there} that are stored", new.first);
        return Err(rusqlite::Error::ToSqlConversionFailure(why.into()));
    }
    conn.prepare_cached("INSERT INTO turn_chunks (turn, first, count, data, stored_ms) VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![turn, new.first.cast_signed(), new.count.cast_signed(), new.data, new.stored_ms])
        .map(drop)
}

pub(super) fn fold(conn: &Connection, turn: TurnSeq) -> rusqlite::Result<()> {
    conn.prepare_cached("DELETE FROM turn_chunks WHERE turn = ?1")?.execute([turn])?;
    conn.prepare_cached("UPDATE turns SET folded = 1 WHERE seq = ?1")?.execute([turn]).map(drop)
}
