//! Waits of fibers: for a time, a message or other fibers.
use rusqlite::{Connection, OptionalExtension, Row, params};
use sha2::{Digest, Sha256};

use super::{claims, messages, rows};
use crate::{Claim, Runnable, Seq, Wait, WaitResult};

pub(super) fn wait(conn: &Connection, claim: Claim, wait: &Wait, now_ms: i64) -> rusqlite::Result<WaitResult> {
    claims::check(conn, claim)?;
    let seq = claim.fiber;
    if wait.due_ms.is_some_and(|due| due <= now_ms) {
        return Ok(WaitResult::Ready);
    }
    for topic in &wait.topics {
        if messages::next(conn, seq, topic)?.is_some() {
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
        .execute(params![seq, wait.due_ms, one, wait.any_fiber, place(conn, seq)?])?;
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

/// Digest of the place at which a fiber waits; `None` for a closure, which no code resumes.
fn place(conn: &Connection, seq: Seq) -> rusqlite::Result<Option<[u8; PLACE]>> {
    let sql = "SELECT f.name, s.at, s.layout, s.callees FROM fibers f LEFT JOIN snapshots s ON s.fiber = f.seq
               WHERE f.seq = ?1 AND f.kind = 'function'";
    let place = |row: &Row<'_>| {
        // A damaged text is one as well.
        let text = |column| row.get_ref(column).map(|value| value.as_bytes().ok());
        Ok(digest_of_place([text(0)?, text(1)?, text(2)?, text(3)?]))
    };
    conn.prepare_cached(sql)?.query_row([seq], place).optional()
}

/// Bytes of the digest of a place.
const PLACE: usize = 16;

/// Digest of a function, a cut point, a layout and the layouts of called functions. Fibers that
/// wait are counted by it: the texts themselves would be long in an index.
pub(super) fn digest_of_place(parts: [Option<&[u8]>; 4]) -> [u8; PLACE] {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(part.map_or(u64::MAX, |text| text.len() as u64).to_be_bytes());
        digest.update(part.unwrap_or_default());
    }
    let digest: [u8; 32] = digest.finalize().into();
    std::array::from_fn(|n| digest[n])
}

/// Sets the place of each fiber that waits, after the column was added.
pub(super) fn set_places(conn: &Connection) -> rusqlite::Result<()> {
    let fibers: Vec<Seq> = conn.prepare("SELECT fiber FROM waits")?.query_map((), |row| row.get(0))?.collect::<Result<_, _>>()?;
    for fiber in fibers {
        conn.prepare_cached("UPDATE waits SET place = ?2 WHERE fiber = ?1")?.execute(params![fiber, place(conn, fiber)?])?;
    }
    Ok(())
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
