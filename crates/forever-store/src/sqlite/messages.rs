//! Messages to fibers: sending, reading the next, and what a person does with those that wait.
use rusqlite::{Connection, OptionalExtension, params};

use super::{rows, topics};
use crate::{CommandResult, CommitNotices, FiberRef, FiberState, NewMessage, PendingMessage, SendResult, Seq, message_digest};

pub(super) fn list(conn: &Connection, id: &str, after: i64, limit: u32) -> rusqlite::Result<Vec<PendingMessage>> {
    conn.prepare_cached(
        "SELECT m.seq, m.topic, m.data, m.sent_ms FROM fibers f JOIN messages m ON m.fiber = f.seq
         WHERE f.id = ?1 AND m.seq > ?2 ORDER BY m.seq LIMIT ?3",
    )?
    .query_map(params![id, after, limit], topics::pending)?
    .collect()
}

pub(super) fn send(conn: &Connection, new: &NewMessage, notices: &mut CommitNotices) -> rusqlite::Result<CommandResult<SendResult>> {
    let Some(row) = rows::find(conn, &FiberRef::Id(new.to.clone()))? else { return Ok(CommandResult::NotFound) };
    let with_id = new.id.as_ref().map(|id| (id, message_digest(&new.topic, &new.data)));
    if let Some((id, digest)) = &with_id {
        let sent: Option<Option<String>> = conn
            .prepare_cached("SELECT digest FROM message_ids WHERE fiber = ?1 AND id = ?2")?
            .query_row(params![row.seq, id], |r| r.get(0))
            .optional()?;
        if let Some(sent) = sent {
            let is_same = sent.as_ref() == Some(digest);
            return Ok(CommandResult::Done(if is_same { SendResult::Sent } else { SendResult::Conflict }));
        }
    }
    if row.state.is_final() {
        return Ok(CommandResult::InvalidState(row.state));
    }
    if topics::is_closed(conn, row.seq, &new.topic)? {
        return Ok(CommandResult::Done(SendResult::Closed));
    }
    if let Some((id, digest)) = &with_id {
        conn.prepare_cached("INSERT INTO message_ids (fiber, id, digest) VALUES (?1, ?2, ?3)")?.execute(params![row.seq, id, digest])?;
    }
    insert(conn, row.seq, &new.topic, &new.data, new.now_ms)?;
    let waits: bool = conn
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM waits WHERE fiber = ?1 AND topic = ?2)
                    OR EXISTS (SELECT 1 FROM wait_topics WHERE fiber = ?1 AND topic = ?2)",
        )?
        .query_row(params![row.seq, new.topic], |r| r.get(0))?;
    if waits {
        notices.ready.extend(rows::wake(conn, row.seq, new.now_ms)?);
    }
    Ok(CommandResult::Done(SendResult::Sent))
}

pub(super) fn insert(conn: &Connection, seq: Seq, topic: &str, data: &str, sent_ms: i64) -> rusqlite::Result<()> {
    conn.prepare_cached("INSERT INTO messages (fiber, topic, data, sent_ms) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![seq, topic, data, sent_ms])
        .map(drop)
}

pub(super) fn discard(conn: &Connection, id: &str, message: i64) -> rusqlite::Result<CommandResult<bool>> {
    let Some(row) = rows::find(conn, &FiberRef::Id(id.to_owned()))? else { return Ok(CommandResult::NotFound) };
    if row.state == FiberState::Running {
        return Ok(CommandResult::InvalidState(row.state));
    }
    let deleted = conn.prepare_cached("DELETE FROM messages WHERE seq = ?1 AND fiber = ?2")?.execute(params![message, row.seq])?;
    Ok(CommandResult::Done(deleted > 0))
}
