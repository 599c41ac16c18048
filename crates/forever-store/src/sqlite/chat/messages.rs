//! The messages of a chat, by place.
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::sqlite::numbers;
use crate::{AgentId, MessageRole, MessageRow, MessageUpdate, UpdateRefused};

pub(super) fn find_chat(conn: &Connection, chat: &AgentId) -> rusqlite::Result<Option<i64>> {
    conn.prepare_cached("SELECT seq FROM chats WHERE class = ?1 AND agent = ?2")?
        .query_row(params![chat.class, chat.name], |r| r.get(0))
        .optional()
}

pub(super) fn chat_of(conn: &Connection, chat: &AgentId) -> rusqlite::Result<i64> {
    if let Some(seq) = find_chat(conn, chat)? {
        return Ok(seq);
    }
    conn.prepare_cached(concat!("INSERT INTO chats (seq, class, agent) VALUES (", numbers::next!("chats"), ", ?1, ?2)"))?
        .execute(params![chat.class, chat.name])?;
    Ok(conn.last_insert_rowid())
}

/// Reads a message from a row with its columns and `pending_ms`.
pub(super) fn message_row(row: &Row<'_>) -> rusqlite::Result<MessageRow> {
    let role = row.get_ref("role")?.as_str()?.parse().unwrap_or(MessageRole::Assistant);
    let pending = row.get_ref("pending_ms")? != ValueRef::Null;
    Ok(MessageRow { id: row.get("id")?, role, data: row.get("data")?, pending })
}

pub(super) fn insert_message(conn: &Connection, chat: i64, place: i64, message: &MessageRow, now_ms: i64) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT INTO chat_messages (chat, place, id, role, data, changed_ms, pending_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, iif(?7, ?6, NULL))
         ON CONFLICT (chat, id) DO UPDATE SET role = ?4, data = ?5, changed_ms = ?6, pending_ms = iif(?7, coalesce(pending_ms, ?6), NULL)",
    )?
    .execute(params![chat, place, message.id, message.role.as_str(), message.data, now_ms, message.pending])
    .map(drop)
}

pub(super) fn replace(conn: &Connection, chat: i64, message: &MessageRow, now_ms: i64) -> rusqlite::Result<bool> {
    conn.prepare_cached(
        "UPDATE chat_messages SET role = ?3, data = ?4, changed_ms = ?5, pending_ms = iif(?6, coalesce(pending_ms, ?5), NULL)
         WHERE chat = ?1 AND id = ?2",
    )?
    .execute(params![chat, message.id, message.role.as_str(), message.data, now_ms, message.pending])
    .map(|replaced| replaced == 1)
}

/// Updates a message, unless it has changed, or a running turn has read it and will write it.
pub(super) fn update(conn: &Connection, chat: i64, update: &MessageUpdate, now_ms: i64) -> rusqlite::Result<Result<(), UpdateRefused>> {
    let id = &update.message.id;
    let in_use: bool = conn
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM turns t JOIN fibers f ON f.seq = t.fiber
                            WHERE t.chat = ?1 AND t.settled_ms IS NULL AND t.state = 'running' AND t.message = ?2
                            AND f.state = 'running')",
        )?
        .query_row(params![chat, id], |r| r.get(0))?;
    if in_use {
        return Ok(Err(UpdateRefused::InUse));
    }
    let unchanged: bool = conn
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM chat_messages WHERE chat = ?1 AND id = ?2 AND data = ?3)")?
        .query_row(params![chat, id, update.from], |r| r.get(0))?;
    if !unchanged {
        return Ok(Err(UpdateRefused::Changed));
    }
    replace(conn, chat, &update.message, now_ms)?;
    Ok(Ok(()))
}

/// Stores whether a message is to be continued, and does not touch the mark of a later one.
pub(super) fn hold(conn: &Connection, chat: i64, id: &str, wanted: bool) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "UPDATE chats SET held = iif(?3, ?2, NULL) WHERE seq = ?1 AND CASE WHEN ?3 THEN NOT EXISTS (
             SELECT 1 FROM chat_messages there JOIN chat_messages new ON new.chat = there.chat AND new.id = ?2
             WHERE there.chat = ?1 AND there.id = chats.held AND there.place > new.place)
         ELSE held = ?2 END",
    )?
    .execute(params![chat, id, wanted])
    .map(drop)
}

/// Replaces all messages of a chat. Messages with a pending interaction keep the time since when
/// they wait.
pub(super) fn replace_all(conn: &Connection, chat: i64, messages: &[MessageRow], now_ms: i64) -> rusqlite::Result<()> {
    let pending: Vec<(String, i64)> = conn
        .prepare_cached("SELECT id, pending_ms FROM chat_messages WHERE chat = ?1 AND pending_ms IS NOT NULL")?
        .query_map([chat], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    conn.prepare_cached("DELETE FROM chat_messages WHERE chat = ?1")?.execute([chat])?;
    for (message, place) in messages.iter().zip(1..) {
        insert_message(conn, chat, place, message, now_ms)?;
    }
    for (id, since_ms) in pending {
        conn.prepare_cached("UPDATE chat_messages SET pending_ms = ?3 WHERE chat = ?1 AND id = ?2 AND pending_ms IS NOT NULL")?
            .execute(params![chat, id, since_ms])?;
    }
    Ok(())
}

/// The first place after all messages, including those that turns will write.
pub(super) fn next_place(conn: &Connection, chat: i64) -> rusqlite::Result<i64> {
    conn.prepare_cached(
        "SELECT 1 + max(coalesce((SELECT max(place) FROM chat_messages WHERE chat = ?1), 0),
                        coalesce((SELECT max(place) FROM turns WHERE chat = ?1 AND settled_ms IS NULL), 0))",
    )?
    .query_row([chat], |r| r.get(0))
}

/// The last message of a chat, or the last one of a role, with its place.
pub(super) fn last_message(conn: &Connection, chat: i64, role: Option<&str>) -> rusqlite::Result<Option<(String, i64)>> {
    conn.prepare_cached("SELECT id, place FROM chat_messages WHERE chat = ?1 AND role = coalesce(?2, role) ORDER BY place DESC LIMIT 1")?
        .query_row(params![chat, role], |r| Ok((r.get(0)?, r.get(1)?)))
        .optional()
}
