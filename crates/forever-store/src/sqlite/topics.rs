//! Topics of fibers: their pending messages, and those that are closed.
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::{PendingMessage, Seq, TopicPage, TopicRow, message_digest};

pub(super) fn page(conn: &Connection, seq: Seq, topic: &str, after: i64, limit: u32) -> rusqlite::Result<TopicPage> {
    let messages = conn
        .prepare_cached(
            "SELECT seq, topic, data, sent_ms FROM messages WHERE fiber = ?1 AND topic = ?2 AND seq > ?3 ORDER BY seq LIMIT ?4",
        )?
        .query_map(params![seq, topic, after, limit], pending)?
        .collect::<rusqlite::Result<_>>()?;
    Ok(TopicPage { messages, closed: is_closed(conn, seq, topic)? })
}

/// Whether a message of a topic is pending.
pub(super) fn are_there(conn: &Connection, seq: Seq, topic: &str) -> rusqlite::Result<bool> {
    conn.prepare_cached("SELECT EXISTS (SELECT 1 FROM messages WHERE fiber = ?1 AND topic = ?2)")?
        .query_row(params![seq, topic], |r| r.get(0))
}

/// The topics of a fiber that are closed or have messages.
pub(super) fn all(conn: &Connection, seq: Seq) -> rusqlite::Result<Vec<TopicRow>> {
    conn.prepare_cached(
        "SELECT topic, sum(unread), max(closed) FROM (
             SELECT topic, 1 AS unread, NULL AS closed FROM messages WHERE fiber = ?1
             UNION ALL SELECT topic, 0, number FROM closed_topics WHERE fiber = ?1)
         GROUP BY topic ORDER BY topic",
    )?
    .query_map([seq], |row| {
        let closed: Option<i64> = row.get(2)?;
        Ok(TopicRow { topic: row.get(0)?, unread: row.get::<_, i64>(1)?.cast_unsigned(), closed: closed.map(i64::cast_unsigned) })
    })?
    .collect()
}

/// As [`all`], of a fiber by its id.
pub(super) fn all_of(conn: &Connection, id: &str) -> rusqlite::Result<Vec<TopicRow>> {
    let seq = conn.prepare_cached("SELECT seq FROM fibers WHERE id = ?1")?.query_row([id], |r| r.get(0)).optional()?;
    seq.map_or_else(|| Ok(Vec::new()), |seq| all(conn, seq))
}

/// Whether the fiber has closed a topic.
pub(super) fn is_closed(conn: &Connection, seq: Seq, topic: &str) -> rusqlite::Result<bool> {
    conn.prepare_cached("SELECT EXISTS (SELECT 1 FROM closed_topics WHERE fiber = ?1 AND topic = ?2)")?
        .query_row(params![seq, topic], |r| r.get(0))
}

/// Closes a topic, with the checkpoint of this number.
pub(super) fn close(conn: &Connection, seq: Seq, topic: &str, number: u64) -> rusqlite::Result<()> {
    conn.prepare_cached("INSERT INTO closed_topics (fiber, topic, number) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING")?
        .execute(params![seq, topic, number.cast_signed()])
        .map(drop)
}

/// Forgets the ids of all messages but the unread ones. A run that begins anew has had none of
/// them, so a sender that repeats one is to reach it.
pub(super) fn forget_ids(conn: &Connection, seq: Seq) -> rusqlite::Result<()> {
    let mut unread = conn.prepare_cached("SELECT topic, data FROM messages WHERE fiber = ?1")?;
    let digest =
        |row: &Row<'_>| Ok(message_digest(row.get_ref(0)?.as_str().unwrap_or_default(), row.get_ref(1)?.as_str().unwrap_or_default()));
    let unread: Vec<String> = unread.query_map([seq], digest)?.collect::<rusqlite::Result<_>>()?;
    // Digests are hexadecimal digits.
    conn.prepare_cached("DELETE FROM message_ids WHERE fiber = ?1 AND digest NOT IN (SELECT value FROM json_each(?2))")?
        .execute(params![seq, format!("{unread:?}")])
        .map(drop)
}

pub(super) fn pending(row: &Row<'_>) -> rusqlite::Result<PendingMessage> {
    Ok(PendingMessage { seq: row.get(0)?, topic: row.get(1)?, data: row.get(2)?, sent_ms: row.get(3)? })
}
