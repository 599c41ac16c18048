//! Waits of fibers: for a time, a message or other fibers.
use rusqlite::{Connection, params};

use super::{claims, places, rows, topics};
use crate::{Claim, Runnable, Seq, Wait, WaitResult};

pub(super) fn wait(conn: &Connection, claim: Claim, wait: &Wait, now_ms: i64) -> rusqlite::Result<WaitResult> {
    claims::check(conn, claim)?;
    let seq = claim.fiber;
    if wait.due_ms.is_some_and(|due| due <= now_ms) {
        return Ok(WaitResult::Ready);
    }
    for topic in &wait.topics {
        if topics::are_there(conn, seq, topic)? {
            return Ok(WaitResult::Ready);
        }
    }
    if wait.any_fiber && some_have_ended(conn, &wait.fibers)? {
        return Ok(WaitResult::Ready);
    }
    let mut open = 0;
    for id in &wait.fibers {
        open += conn
            .prepare_cached(
                "INSERT INTO joins (child, fiber) SELECT seq, ?2 FROM fibers WHERE id = ?1 AND finished_ms IS NULL ON CONFLICT DO NOTHING",
            )?
            .execute(params![id, seq])?;
    }
    if !wait.fibers.is_empty() && open == 0 {
        return Ok(WaitResult::Ready);
    }
    let (one, several) = match &wait.topics[..] {
        [topic] => (Some(topic), &[][..]),
        topics => (None, topics),
    };
    conn.prepare_cached("INSERT OR REPLACE INTO waits (fiber, due_ms, topic, any_join, place) VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![seq, wait.due_ms, one, wait.any_fiber, places::of(conn, seq)?])?;
    for topic in several {
        conn.prepare_cached("INSERT INTO wait_topics (fiber, topic) VALUES (?1, ?2) ON CONFLICT DO NOTHING")?
            .execute(params![seq, topic])?;
    }
    let waits = conn
        .prepare_cached(
            "UPDATE fibers SET state = 'waiting', reason = NULL, changed_ms = ?2
             WHERE seq = ?1 AND finished_ms IS NULL AND cancel IS NULL",
        )?
        .execute(params![seq, now_ms])?;
    if waits == 0 {
        // A fiber that was cancelled meanwhile does not wait. Its joins are deleted with its end.
        conn.prepare_cached("DELETE FROM waits WHERE fiber = ?1")?.execute([seq])?;
        return Ok(WaitResult::Ready);
    }
    claims::release_one(conn, seq)?;
    Ok(WaitResult::Waiting)
}

/// Whether one of several fibers has ended, or is unknown.
fn some_have_ended(conn: &Connection, ids: &[String]) -> rusqlite::Result<bool> {
    for id in ids {
        let runs: bool = conn
            .prepare_cached("SELECT EXISTS (SELECT 1 FROM fibers WHERE id = ?1 AND finished_ms IS NULL)")?
            .query_row([id], |r| r.get(0))?;
        if !runs {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(super) fn take_due(conn: &Connection, now_ms: i64, limit: u32) -> rusqlite::Result<Vec<Runnable>> {
    let due: Vec<Seq> = conn
        .prepare_cached("SELECT fiber FROM waits WHERE due_ms <= ?1 ORDER BY due_ms LIMIT ?2")?
        .query_map(params![now_ms, limit], |r| r.get(0))?
        .collect::<Result<_, _>>()?;
    due.into_iter().filter_map(|seq| rows::wake(conn, seq, now_ms).transpose()).collect()
}
