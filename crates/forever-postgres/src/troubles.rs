//! What is wrong, for people: short rows of many fibers.
use forever_store::{FiberState, LONGEST_QUEUE, QueueRow, REASON, RetryRow, StopRow};

use crate::sql::{Done, Row, Tx, args};

/// Whether an operation `o` belongs to a step under way, by the snapshot `s`, that is retried.
pub(crate) const IS_RETRIED: &str = "o.number = s.number AND o.error IS NOT NULL AND o.state IN ('started', 'not_executed')";

pub(crate) async fn stops(tx: &Tx, name: &str, state: FiberState, limit: u32) -> Done<Vec<StopRow>> {
    let stop = |row: &Row| Ok(StopRow { seq: row.int("seq")?, reason: row.text_opt("reason")?, changed_ms: row.int("changed_ms")? });
    tx.rows(&of_stops(state), args![name, limit]).await?.iter().map(stop).collect()
}

/// The fibers of the function $1, at most $2. The state is a constant of this crate.
pub(crate) fn of_stops(state: FiberState) -> String {
    format!(
        "SELECT f.seq, left(f.reason, {REASON}) AS reason, f.changed_ms FROM @fibers f
         WHERE f.name = $1 AND f.state = '{state}' ORDER BY f.seq DESC LIMIT $2"
    )
}

pub(crate) async fn retries(tx: &Tx, looked_at: u32) -> Done<Vec<RetryRow>> {
    let retry = |row: &Row| {
        Ok(RetryRow {
            seq: row.int("fiber")?,
            name: row.text("name")?,
            step: row.text("step")?,
            error: row.text("error")?,
            started_ms: row.int("started_ms")?,
            changed_ms: row.int("changed_ms")?,
        })
    };
    tx.rows(&of_retries(), args![looked_at]).await?.iter().map(retry).collect()
}

pub(crate) fn of_retries() -> String {
    format!(
        "SELECT o.fiber, f.name, o.step, left(o.error, {REASON}) AS error, o.started_ms, o.changed_ms
         FROM (SELECT * FROM @ops WHERE error IS NOT NULL ORDER BY next_ms DESC LIMIT $1) o
         JOIN @fibers f ON f.seq = o.fiber JOIN @snapshots s ON s.fiber = o.fiber
         WHERE {IS_RETRIED} AND f.state IN ('running', 'waiting', 'pending')"
    )
}

pub(crate) async fn queues(tx: &Tx, looked_at: u32, least: u32, limit: u32) -> Done<Vec<QueueRow>> {
    let queue = |row: &Row| {
        let (seq, messages) = (row.int("fiber")?, row.number("messages")?);
        Ok(QueueRow { seq, messages, first_ms: row.int("first_ms")?, last_ms: row.int("last_ms")? })
    };
    tx.rows(&of_queues(), args![looked_at, least, limit]).await?.iter().map(queue).collect()
}

pub(crate) fn of_queues() -> String {
    format!(
        "SELECT q.fiber, m.messages, m.first_ms, m.last_ms
         FROM (SELECT n.fiber, count(*) AS newest FROM (SELECT fiber FROM @messages ORDER BY seq DESC LIMIT $1) n
               JOIN @fibers f ON f.seq = n.fiber WHERE f.state NOT IN ('completed', 'cancelled')
               GROUP BY n.fiber HAVING count(*) >= $2 ORDER BY newest DESC, n.fiber LIMIT $3) q
         CROSS JOIN LATERAL (SELECT count(*) AS messages, min(sent_ms) AS first_ms, max(sent_ms) AS last_ms FROM
               (SELECT sent_ms FROM @messages WHERE fiber = q.fiber ORDER BY topic, seq LIMIT {LONGEST_QUEUE}) m) m
         ORDER BY m.messages DESC, q.fiber"
    )
}
