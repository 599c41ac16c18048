//! The statements behind the store's operations, and the rows they give.
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::beside;
use super::{Accepted, End, FiberRow, NewFiber, NewSnapshot, Seq, Stored, StoredLayout, Unfinished};
use crate::fiber::parts::Beside;
use crate::store::FiberState;

pub(super) fn accept(conn: &Connection, new: &NewFiber) -> rusqlite::Result<Accepted> {
    let inserted = conn
        .prepare_cached(
            "INSERT INTO fibers (id, name, key, state, args, metadata, created_ms, changed_ms)
             VALUES (?1, ?2, ?3, 'running', ?4, ?5, ?6, ?6) ON CONFLICT DO NOTHING",
        )?
        .execute(params![new.id, new.name, new.key, new.args, new.metadata, new.now_ms])?;
    if inserted == 1 {
        let seq = conn.last_insert_rowid();
        conn.prepare_cached("INSERT INTO snapshots (fiber) VALUES (?1)")?.execute([seq])?;
        return Ok(Accepted::New(seq));
    }
    let by_id = find(conn, "id", &new.id)?;
    let there = match (by_id, &new.key) {
        (Some(row), _) => Some(row),
        (None, Some(key)) => find(conn, "key", key)?,
        (None, None) => None,
    };
    there.map(|row| Accepted::Existing(Box::new(row))).ok_or(rusqlite::Error::QueryReturnedNoRows)
}

/// A fiber by the value of a unique column.
pub(super) fn find(conn: &Connection, column: &'static str, value: &str) -> rusqlite::Result<Option<FiberRow>> {
    let sql = format!(
        "SELECT f.id, f.name, f.key, f.state, f.reason, f.args, f.metadata, f.result, f.created_ms, f.finished_ms,
                s.number, s.at, s.deaths
         FROM fibers f LEFT JOIN snapshots s ON s.fiber = f.seq WHERE f.{column} = ?1"
    );
    conn.prepare_cached(&sql)?.query_row([value], fiber_row).optional()
}

fn fiber_row(row: &Row<'_>) -> rusqlite::Result<FiberRow> {
    let state: String = row.get("state")?;
    Ok(FiberRow {
        id: row.get("id")?,
        name: row.get("name")?,
        key: row.get("key")?,
        state: state.parse().map_err(|why: String| rusqlite::Error::FromSqlConversionFailure(0, Type::Text, why.into()))?,
        reason: row.get("reason")?,
        args: row.get("args")?,
        metadata: row.get("metadata")?,
        result: row.get("result")?,
        checkpoints: count(row)?,
        at: row.get("at")?,
        deaths: row.get::<_, Option<u32>>("deaths")?.unwrap_or(0),
        created_ms: row.get("created_ms")?,
        finished_ms: row.get("finished_ms")?,
    })
}

/// Checkpoints made; a fiber that has completed has no snapshot row any more.
fn count(row: &Row<'_>) -> rusqlite::Result<u64> {
    let number: Option<i64> = row.get("number")?;
    Ok(number.and_then(|n| u64::try_from(n).ok()).unwrap_or(0))
}

pub(super) fn unfinished(conn: &Connection, after: Seq, limit: u32) -> rusqlite::Result<Vec<Unfinished>> {
    conn.prepare_cached(
        "SELECT f.seq, f.id, f.name, coalesce(s.deaths, 0) AS deaths
         FROM fibers f INDEXED BY fibers_open LEFT JOIN snapshots s ON s.fiber = f.seq
         WHERE f.state <> 'completed' AND f.state IN ('pending', 'running', 'interrupted', 'parked') AND f.seq > ?1
         ORDER BY f.seq LIMIT ?2",
    )?
    .query_map(params![after, limit], |row| {
        // A row that somebody has damaged must not keep the others from being found.
        let text = |column| row.get_ref(column).map(|v| String::from_utf8_lossy(v.as_bytes().unwrap_or_default()).into_owned());
        Ok(Unfinished { seq: row.get("seq")?, id: text("id")?, name: text("name")?, deaths: row.get("deaths").unwrap_or(0) })
    })?
    .collect()
}

/// All of it from one moment, whoever writes meanwhile.
pub(super) fn load(conn: &Connection, seq: Seq) -> rusqlite::Result<Stored> {
    conn.prepare_cached("SAVEPOINT load")?.execute(())?;
    let loaded = stored(conn, seq).and_then(|stored| match stored.snapshot {
        Some(_) => Ok(Stored { beside: beside::load(conn, seq)?, ..stored }),
        None => Ok(stored),
    });
    let released = conn.prepare_cached("RELEASE load").and_then(|mut release| release.execute(()));
    loaded.and_then(|stored| released.map(|_| stored))
}

fn stored(conn: &Connection, seq: Seq) -> rusqlite::Result<Stored> {
    conn.prepare_cached(
        "SELECT f.args, s.data, s.number, l.hash, l.fiber, l.layout
         FROM fibers f LEFT JOIN snapshots s ON s.fiber = f.seq LEFT JOIN layouts l ON l.hash = s.layout WHERE f.seq = ?1",
    )?
    .query_row([seq], |row| {
        let layout = match row.get("hash")? {
            Some(hash) => Some(StoredLayout { hash, fiber: row.get("fiber")?, layout: row.get("layout")? }),
            None => None,
        };
        Ok(Stored { args: row.get("args")?, snapshot: row.get("data")?, beside: Beside::default(), number: count(row)?, layout })
    })
}

pub(super) fn checkpoint(conn: &Connection, seq: Seq, new: &NewSnapshot) -> rusqlite::Result<()> {
    if let Some(layout) = &new.layout {
        conn.prepare_cached("INSERT INTO layouts (hash, fiber, layout) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING")?.execute(params![
            layout.hash,
            layout.fiber,
            layout.layout
        ])?;
        conn.prepare_cached("UPDATE snapshots SET layout = ?2 WHERE fiber = ?1")?.execute(params![seq, layout.hash])?;
    }
    // The number follows the stored one, or somebody else has moved the fiber on.
    let replaced = conn
        .prepare_cached(
            "UPDATE snapshots SET number = ?2, deaths = 0, saved_ms = ?3, at = ?4, data = ?5 WHERE fiber = ?1 AND number = ?2 - 1",
        )?
        .execute(params![seq, i64::try_from(new.number).unwrap_or(i64::MAX), new.now_ms, new.at, new.data])?;
    if replaced == 0 {
        return Err(rusqlite::Error::ToSqlConversionFailure(format!("checkpoint {} does not follow the stored one", new.number).into()));
    }
    if let Some(op) = &new.finished_op {
        conn.prepare_cached("DELETE FROM ops WHERE fiber = ?1 AND id = ?2")?.execute(params![seq, op])?;
    }
    beside::change(conn, seq, &new.changes)
}

pub(super) fn end(conn: &Connection, seq: Seq, end: &End, now_ms: i64) -> rusqlite::Result<()> {
    let (state, reason, result) = match end {
        End::Completed(result) => (FiberState::Completed, None, Some(result)),
        End::Failed(why) => (FiberState::Failed, Some(why), None),
    };
    conn.prepare_cached("UPDATE fibers SET state = ?2, reason = ?3, result = ?4, changed_ms = ?5, finished_ms = ?5 WHERE seq = ?1")?
        .execute(params![seq, state.as_str(), reason, result, now_ms])?;
    conn.prepare_cached("DELETE FROM ops WHERE fiber = ?1")?.execute([seq])?;
    if state == FiberState::Completed {
        conn.prepare_cached("DELETE FROM snapshots WHERE fiber = ?1")?.execute([seq])?;
    }
    Ok(())
}
