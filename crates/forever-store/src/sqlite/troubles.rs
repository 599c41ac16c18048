//! What is wrong, for people: short rows of many fibers.
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, params};

use crate::{FiberState, LONGEST_QUEUE, QueueRow, REASON, RetryRow, StopRow};

/// Whether an operation `o` belongs to a step under way, by the snapshot `s`, that is retried.
pub(super) const IS_RETRIED: &str = "o.number = s.number AND o.error IS NOT NULL AND o.state IN ('started', 'not_executed')";

/// A text that may be damaged.
fn text(row: &Row<'_>, column: &str) -> Option<String> {
    match row.get_ref(column) {
        Ok(ValueRef::Text(bytes)) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    }
}

fn number(row: &Row<'_>, column: &str) -> i64 {
    row.get(column).unwrap_or(0)
}

pub(super) fn stops(conn: &Connection, name: &str, state: FiberState, limit: u32) -> rusqlite::Result<Vec<StopRow>> {
    // The word is ours. The index of a function's fibers has none that run.
    let index = if state == FiberState::Running { "f.state <> 'completed'" } else { "f.state <> 'running'" };
    conn.prepare_cached(&format!(
        "SELECT f.seq, substr(f.reason, 1, {REASON}) AS reason, f.changed_ms FROM fibers f
         WHERE f.name = ?1 AND f.state = '{state}' AND {index} ORDER BY f.seq DESC LIMIT ?2"
    ))?
    .query_map(params![name, limit], |row| {
        Ok(StopRow { seq: row.get("seq")?, reason: text(row, "reason"), changed_ms: number(row, "changed_ms") })
    })?
    .collect()
}

pub(super) fn retries(conn: &Connection, looked_at: u32) -> rusqlite::Result<Vec<RetryRow>> {
    conn.prepare_cached(&format!(
        "SELECT o.fiber, f.name, o.step, substr(o.error, 1, {REASON}) AS error, o.started_ms, o.changed_ms
         FROM (SELECT * FROM ops WHERE error IS NOT NULL ORDER BY next_ms DESC LIMIT ?1) o
         CROSS JOIN fibers f ON f.seq = o.fiber CROSS JOIN snapshots s ON s.fiber = o.fiber
         WHERE {IS_RETRIED} AND f.state IN ('running', 'waiting', 'pending')"
    ))?
    .query_map([looked_at], |row| {
        Ok(RetryRow {
            seq: row.get("fiber")?,
            name: text(row, "name").unwrap_or_default(),
            step: text(row, "step").unwrap_or_default(),
            error: text(row, "error").unwrap_or_default(),
            started_ms: number(row, "started_ms"),
            changed_ms: number(row, "changed_ms"),
        })
    })?
    .collect()
}

pub(super) fn queues(conn: &Connection, looked_at: u32, least: u32, limit: u32) -> rusqlite::Result<Vec<QueueRow>> {
    conn.prepare_cached(&format!(
        "SELECT q.fiber, count(*) AS messages, min(m.sent_ms) AS first_ms, max(m.sent_ms) AS last_ms
         FROM (SELECT n.fiber, count(*) AS newest FROM (SELECT fiber FROM messages ORDER BY seq DESC LIMIT ?1) n
               CROSS JOIN fibers f ON f.seq = n.fiber WHERE f.state NOT IN ('completed', 'cancelled')
               GROUP BY n.fiber HAVING count(*) >= ?2 ORDER BY newest DESC, n.fiber LIMIT ?3) q
         CROSS JOIN messages m ON m.seq IN (SELECT seq FROM messages WHERE fiber = q.fiber ORDER BY topic, seq LIMIT {LONGEST_QUEUE})
         GROUP BY q.fiber ORDER BY messages DESC, q.fiber"
    ))?
    .query_map([looked_at, least, limit], |row| {
        Ok(QueueRow {
            seq: row.get("fiber")?,
            messages: number(row, "messages").unsigned_abs(),
            first_ms: number(row, "first_ms"),
            last_ms: number(row, "last_ms"),
        })
    })?
    .collect()
}
