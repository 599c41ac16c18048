//! Chats: messages, turns with their logs, and incidents.
use std::ops::RangeInclusive;

use rusqlite::types::{Type, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::rows;
use super::worker::Scope;
use super::{Sqlite, agents};
use crate::error::Result;
use crate::fiber::frame::BoxFuture;
use crate::fiber::owner::AgentId;
use crate::store::chat::{
    AcceptedTurn, ChatStore, Chunks, IncidentRow, IncidentState, MayBegin, MessageRow, NewTurn, OfTurn, Queueing, Settle, TurnBegun,
    TurnKind, TurnRequest, TurnRow, TurnSeq, TurnState, WhichTurns,
};

impl ChatStore for Sqlite {
    fn accept_turn(&self, new: NewTurn) -> BoxFuture<'_, Result<AcceptedTurn>> {
        Box::pin(self.write("store a turn", Scope::Many, move |c| accept(c, &new)))
    }

    fn begin_turn(&self, turn: TurnSeq, now_ms: i64) -> BoxFuture<'_, Result<MayBegin>> {
        Box::pin(self.write("store that a turn begins", Scope::Many, move |c| begin(c, turn, now_ms)))
    }

    fn leave_turn(&self, turn: TurnSeq) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write("store that a turn is left", Scope::One, move |c| {
            c.prepare_cached("UPDATE turns SET deaths = max(deaths - 1, 0) WHERE seq = ?1")?.execute([turn]).map(drop)
        }))
    }

    fn store_incident(&self, turn: TurnSeq, incident: IncidentRow, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write("store an interruption of a turn", Scope::One, move |c| put_incident(c, turn, &incident, now_ms)))
    }

    fn append_chunks(&self, turn: TurnSeq, chunks: Chunks) -> BoxFuture<'_, Result<OfTurn>> {
        Box::pin(self.write("store chunks of a turn", Scope::Many, move |c| {
            let Some((fiber, true)) = c
                .prepare_cached("SELECT fiber, state = 'running' FROM turns WHERE seq = ?1")?
                .query_row([turn], |r| Ok((r.get::<_, Option<i64>>(0)?, r.get(1)?)))
                .optional()?
            else {
                return Ok(OfTurn::Over);
            };
            append(c, turn, &chunks)?;
            // It has come further.
            fiber.map_or(Ok(()), |fiber| rows::forget_deaths(c, fiber))?;
            Ok(OfTurn::Done)
        }))
    }

    fn stash_turn(&self, turn: TurnSeq, stash: String) -> BoxFuture<'_, Result<OfTurn>> {
        Box::pin(self.write("store the stash of a turn", Scope::One, move |c| {
            let stored = c
                .prepare_cached(
                    "UPDATE turn_requests SET stash = ?2 WHERE turn = (SELECT seq FROM turns WHERE seq = ?1 AND state = 'running')",
                )?
                .execute(params![turn, stash])?;
            Ok(done(stored))
        }))
    }

    fn settle_turn(&self, turn: TurnSeq, how: Settle) -> BoxFuture<'_, Result<OfTurn>> {
        Box::pin(self.write("store how a turn ended", Scope::Many, move |c| settle(c, turn, &how)))
    }

    fn cancel_turn(&self, turn: TurnSeq, reason: String, now_ms: i64) -> BoxFuture<'_, Result<Option<TurnRow>>> {
        Box::pin(self.write("cancel a turn", Scope::Many, move |c| {
            c.prepare_cached("UPDATE turns SET cancel = coalesce(cancel, ?2) WHERE seq = ?1 AND settled_ms IS NULL")?
                .execute(params![turn, reason])?;
            c.prepare_cached(
                "UPDATE turns SET state = 'aborted', reason = ?2, settled_ms = ?3 WHERE seq = ?1 AND state = 'queued' AND settled_ms IS NULL",
            )?
            .execute(params![turn, reason, now_ms])?;
            by_seq(c, turn)
        }))
    }

    fn turn(&self, chat: AgentId, id: String) -> BoxFuture<'_, Result<Option<TurnRow>>> {
        Box::pin(self.read("find a turn", move |c| by(c, &chat, "id", &id)))
    }

    fn turn_by_key(&self, chat: AgentId, key: String) -> BoxFuture<'_, Result<Option<TurnRow>>> {
        Box::pin(self.read("find a turn", move |c| by(c, &chat, "key", &key)))
    }

    fn turn_by_seq(&self, turn: TurnSeq) -> BoxFuture<'_, Result<Option<TurnRow>>> {
        Box::pin(self.read("find a turn", move |c| by_seq(c, turn)))
    }

    fn turns(&self, chat: AgentId, which: WhichTurns, after: TurnSeq, limit: u32) -> BoxFuture<'_, Result<Vec<TurnRow>>> {
        Box::pin(self.read("list turns", move |c| {
            // Words of ours, so they can stand in the text.
            let words: Vec<_> = which.states.iter().map(|s| format!("'{s}'")).collect();
            let mut terms = String::new();
            if !words.is_empty() {
                terms = format!("AND t.state IN ({})", words.join(", "));
            }
            if !which.states.is_empty() && !which.states.iter().any(|s| s.is_settled()) {
                terms.push_str(" AND t.settled_ms IS NULL");
            }
            let sql = format!("{TURN} WHERE c.class = ?1 AND c.agent = ?2 AND t.seq > ?3 {terms} ORDER BY t.seq LIMIT ?4");
            let mut select = c.prepare_cached(&sql)?;
            let (mut found, mut after) = (Vec::new(), after);
            // Where a row was left out, others take its place: a short page is the last one.
            loop {
                let left = limit - u32::try_from(found.len()).unwrap_or(limit);
                let page: Vec<(TurnSeq, Option<TurnRow>)> = select
                    .query_map(params![chat.class, chat.name, after, left], |row| Ok((row.get("seq")?, listed(row))))?
                    .collect::<Result<_, _>>()?;
                let last = page.last().map(|(seq, _)| *seq);
                let read = page.len();
                found.extend(page.into_iter().filter_map(|(_, row)| row));
                match last {
                    Some(last) if read == left as usize && found.len() < limit as usize => after = last,
                    _ => return Ok(found),
                }
            }
        }))
    }

    fn turn_request(&self, turn: TurnSeq) -> BoxFuture<'_, Result<TurnRequest>> {
        Box::pin(self.read("load what a turn was asked with", move |c| request(c, turn)))
    }

    fn chunks(&self, turn: TurnSeq, from: u64, limit: u32) -> BoxFuture<'_, Result<Vec<Chunks>>> {
        Box::pin(self.read("load chunks of a turn", move |c| chunks(c, turn, from, limit)))
    }

    fn chat_messages(&self, chat: AgentId, up_to: i64) -> BoxFuture<'_, Result<Vec<MessageRow>>> {
        Box::pin(self.read("load the messages of a chat", move |c| {
            c.prepare_cached(
                "SELECT m.id, m.role, m.data FROM chats c JOIN chat_messages m ON m.chat = c.seq
                 WHERE c.class = ?1 AND c.agent = ?2 AND m.place <= ?3 ORDER BY m.place",
            )?
            .query_map(params![chat.class, chat.name, up_to], message_row)?
            .collect()
        }))
    }

    fn held(&self, chat: AgentId) -> BoxFuture<'_, Result<Option<String>>> {
        Box::pin(self.read("find what is to be continued", move |c| {
            c.prepare_cached("SELECT held FROM chats WHERE class = ?1 AND agent = ?2")?
                .query_row(params![chat.class, chat.name], |r| r.get(0))
                .optional()
                .map(Option::flatten)
        }))
    }

    fn hold(&self, chat: AgentId, message: MessageRow, wanted: bool, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write("store a message of a chat", Scope::Many, move |c| {
            let chat = chat_of(c, &chat)?;
            replace(c, chat, &message, now_ms)?;
            let held = wanted.then_some(&message.id);
            c.prepare_cached("UPDATE chats SET held = ?2 WHERE seq = ?1")?.execute(params![chat, held]).map(drop)
        }))
    }

    fn replace_messages(&self, chat: AgentId, messages: Vec<MessageRow>, now_ms: i64) -> BoxFuture<'_, Result<bool>> {
        Box::pin(self.write("store the messages of a chat", Scope::Many, move |c| {
            let chat = chat_of(c, &chat)?;
            if under_way(c, chat)? {
                return Ok(false);
            }
            c.prepare_cached("DELETE FROM chat_messages WHERE chat = ?1")?.execute([chat])?;
            for (message, place) in messages.iter().zip(1..) {
                insert_message(c, chat, place, message, now_ms)?;
            }
            Ok(true)
        }))
    }

    fn clear_chat(&self, chat: AgentId, now_ms: i64) -> BoxFuture<'_, Result<Vec<TurnRow>>> {
        Box::pin(self.write("clear a chat", Scope::Many, move |c| clear(c, &chat, now_ms)))
    }

    fn left_turns(&self) -> BoxFuture<'_, Result<Vec<TurnSeq>>> {
        Box::pin(self.read("find turns that were left", |c| {
            c.prepare_cached(
                "SELECT t.seq FROM turns t INDEXED BY turns_open JOIN chats c ON c.seq = t.chat
                 LEFT JOIN fibers f ON f.seq = t.fiber
                 WHERE t.settled_ms IS NULL AND (f.seq IS NULL OR f.finished_ms IS NOT NULL)",
            )?
            .query_map((), |r| r.get(0))?
            .collect()
        }))
    }

    fn fold_turns(&self, before_ms: i64, limit: u32) -> BoxFuture<'_, Result<u64>> {
        Box::pin(self.write("fold turns", Scope::Many, move |c| {
            let over: Vec<TurnSeq> = c
                .prepare_cached("SELECT seq FROM turns WHERE settled_ms < ?1 AND folded = 0 ORDER BY settled_ms LIMIT ?2")?
                .query_map(params![before_ms, limit], |r| r.get(0))?
                .collect::<Result<_, _>>()?;
            for turn in &over {
                fold(c, *turn)?;
            }
            Ok(over.len() as u64)
        }))
    }

    fn delete_turns(&self, before_ms: i64, limit: u32) -> BoxFuture<'_, Result<u64>> {
        Box::pin(self.write("delete turns", Scope::One, move |c| {
            c.prepare_cached("DELETE FROM turns WHERE seq IN (SELECT seq FROM turns WHERE settled_ms < ?1 ORDER BY settled_ms LIMIT ?2)")?
                .execute(params![before_ms, limit])
                .map(|deleted| deleted as u64)
        }))
    }
}

/// What a clean close says of turns that are under way: their process has not died.
pub(super) fn close(conn: &Connection) -> rusqlite::Result<()> {
    conn.execute(
        "UPDATE turns INDEXED BY turns_open SET deaths = max(deaths - 1, 0)
         WHERE settled_ms IS NULL AND state = 'running' AND EXISTS (SELECT 1 FROM fibers WHERE seq = turns.fiber AND state <> 'parked')",
        (),
    )
    .map(drop)
}

fn done(changed: usize) -> OfTurn {
    if changed == 0 { OfTurn::Over } else { OfTurn::Done }
}

const TURN: &str = "SELECT t.*, c.class, c.agent FROM chats c JOIN turns t ON t.chat = c.seq";

fn turn_row(row: &Row<'_>) -> rusqlite::Result<TurnRow> {
    let bad =
        |column: &str| rusqlite::Error::FromSqlConversionFailure(0, Type::Text, format!("`{column}` of a turn makes no sense").into());
    let state = TurnState::of_word(row.get_ref("state")?.as_str()?).ok_or_else(|| bad("state"))?;
    let origins: String = row.get("origins")?;
    Ok(TurnRow {
        seq: row.get("seq")?,
        chat: AgentId { class: row.get("class")?, name: row.get("agent")? },
        id: row.get("id")?,
        key: row.get("key")?,
        kind: if row.get_ref("kind")?.as_str()? == "continue" { TurnKind::Continue } else { TurnKind::Answer },
        state,
        reason: row.get("reason")?,
        cancel: row.get("cancel")?,
        message: row.get("message")?,
        place: row.get("place")?,
        origins: serde_json::from_str(&origins).map_err(|_| bad("origins"))?,
        deaths: row.get("deaths")?,
        created_ms: row.get("created_ms")?,
        started_ms: row.get("started_ms")?,
        settled_ms: row.get("settled_ms")?,
    })
}

/// A row as a list has it: what somebody has damaged keeps nobody from seeing the others, nor what is left of it. `None` if not even its
/// state can be read.
fn listed(row: &Row<'_>) -> Option<TurnRow> {
    let text = |column| match row.get_ref(column) {
        Ok(ValueRef::Text(bytes)) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    };
    let number = |column| row.get(column).unwrap_or(None);
    Some(TurnRow {
        seq: row.get("seq").ok()?,
        chat: AgentId { class: text("class").unwrap_or_default(), name: text("agent").unwrap_or_default() },
        id: text("id").unwrap_or_default(),
        key: text("key"),
        kind: if text("kind").as_deref() == Some("continue") { TurnKind::Continue } else { TurnKind::Answer },
        state: TurnState::of_word(&text("state")?)?,
        reason: text("reason"),
        cancel: text("cancel"),
        message: text("message").unwrap_or_default(),
        place: number("place").unwrap_or(0),
        origins: text("origins").and_then(|origins| serde_json::from_str(&origins).ok()).unwrap_or_default(),
        deaths: row.get("deaths").unwrap_or(0),
        created_ms: number("created_ms").unwrap_or(0),
        started_ms: number("started_ms"),
        settled_ms: number("settled_ms"),
    })
}

fn by_seq(conn: &Connection, turn: TurnSeq) -> rusqlite::Result<Option<TurnRow>> {
    conn.prepare_cached(&format!("{TURN} WHERE t.seq = ?1"))?.query_row([turn], turn_row).optional()
}

/// A turn of a chat by something of which there is one.
fn by(conn: &Connection, chat: &AgentId, column: &str, value: &str) -> rusqlite::Result<Option<TurnRow>> {
    conn.prepare_cached(&format!("{TURN} WHERE c.class = ?1 AND c.agent = ?2 AND t.{column} = ?3"))?
        .query_row(params![chat.class, chat.name, value], turn_row)
        .optional()
}

fn find_chat(conn: &Connection, chat: &AgentId) -> rusqlite::Result<Option<i64>> {
    conn.prepare_cached("SELECT seq FROM chats WHERE class = ?1 AND agent = ?2")?
        .query_row(params![chat.class, chat.name], |r| r.get(0))
        .optional()
}

fn chat_of(conn: &Connection, chat: &AgentId) -> rusqlite::Result<i64> {
    if let Some(seq) = find_chat(conn, chat)? {
        return Ok(seq);
    }
    conn.prepare_cached("INSERT INTO chats (class, agent) VALUES (?1, ?2)")?.execute(params![chat.class, chat.name])?;
    Ok(conn.last_insert_rowid())
}

fn under_way(conn: &Connection, chat: i64) -> rusqlite::Result<bool> {
    conn.prepare_cached("SELECT EXISTS (SELECT 1 FROM turns WHERE chat = ?1 AND settled_ms IS NULL)")?.query_row([chat], |r| r.get(0))
}

fn message_row(row: &Row<'_>) -> rusqlite::Result<MessageRow> {
    let role = match row.get_ref("role")?.as_str()? {
        "user" => "user",
        "system" => "system",
        _ => "assistant",
    };
    Ok(MessageRow { id: row.get("id")?, role, data: row.get("data")? })
}

fn insert_message(conn: &Connection, chat: i64, place: i64, message: &MessageRow, now_ms: i64) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT INTO chat_messages (chat, place, id, role, data, changed_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (chat, id) DO UPDATE SET role = ?4, data = ?5, changed_ms = ?6",
    )?
    .execute(params![chat, place, message.id, message.role, message.data, now_ms])
    .map(drop)
}

fn replace(conn: &Connection, chat: i64, message: &MessageRow, now_ms: i64) -> rusqlite::Result<bool> {
    conn.prepare_cached("UPDATE chat_messages SET role = ?3, data = ?4, changed_ms = ?5 WHERE chat = ?1 AND id = ?2")?
        .execute(params![chat, message.id, message.role, message.data, now_ms])
        .map(|replaced| replaced == 1)
}

/// The first place behind everything that is there or will be.
fn next_place(conn: &Connection, chat: i64) -> rusqlite::Result<i64> {
    conn.prepare_cached(
        "SELECT 1 + max(coalesce((SELECT max(place) FROM chat_messages WHERE chat = ?1), 0),
                        coalesce((SELECT max(place) FROM turns WHERE chat = ?1 AND settled_ms IS NULL), 0))",
    )?
    .query_row([chat], |r| r.get(0))
}

fn accept(conn: &Connection, new: &NewTurn) -> rusqlite::Result<AcceptedTurn> {
    let there = match (by(conn, &new.chat, "id", &new.id)?, &new.key) {
        (None, Some(key)) => by(conn, &new.chat, "key", key)?,
        (there, _) => there,
    };
    if let Some(there) = there {
        return Ok(AcceptedTurn::Existing(Box::new(there)));
    }
    let chat = chat_of(conn, &new.chat)?;
    if new.queueing == Queueing::Drop && under_way(conn, chat)? {
        return Ok(AcceptedTurn::Dropped);
    }
    if let Some(last) = &new.cut_behind {
        conn.prepare_cached(
            "DELETE FROM chat_messages WHERE chat = ?1 AND place > (SELECT place FROM chat_messages WHERE chat = ?1 AND id = ?2)",
        )?
        .execute(params![chat, last])?;
    }
    let mut origins = Vec::new();
    for message in &new.messages {
        if !replace(conn, chat, message, new.now_ms)? {
            insert_message(conn, chat, next_place(conn, chat)?, message, new.now_ms)?;
            if message.role == "user" {
                origins.push(message.id.clone());
            }
        }
    }
    if new.queueing == Queueing::Merge {
        origins = [merged(conn, chat)?, origins].concat();
    }
    if origins.is_empty() {
        origins.extend(last_message(conn, chat, Some("user"))?.map(|(id, _)| id));
    }
    let (message, place) = match new.kind {
        TurnKind::Answer => (new.message.clone(), next_place(conn, chat)?),
        TurnKind::Continue => match to_continue(conn, chat)? {
            Some(there) => there,
            None => return Ok(AcceptedTurn::NothingToContinue),
        },
    };
    // Whatever was to be continued is, or is not wanted any more.
    conn.prepare_cached("UPDATE chats SET held = NULL WHERE seq = ?1 AND held IS NOT NULL")?.execute([chat])?;
    let (policy, due_ms) = match new.queueing {
        Queueing::Queue | Queueing::Drop => ("queue", None),
        Queueing::Latest => ("latest", None),
        Queueing::Merge => ("merge", None),
        Queueing::Debounce(ms) => ("debounce", Some(new.now_ms.saturating_add(ms))),
    };
    let fiber = rows::insert(conn, &new.fiber)?
        .ok_or_else(|| rusqlite::Error::ToSqlConversionFailure(format!("there is a fiber with id `{}` already", new.fiber.id).into()))?;
    let pending = rows::pending(conn, fiber, new.now_ms)?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
    conn.prepare_cached(
        "INSERT INTO turns (chat, id, key, kind, policy, state, fiber, message, place, origins, due_ms, created_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, 'queued', ?6, ?7, ?8, ?9, ?10, ?11)",
    )?
    .execute(params![
        chat,
        new.id,
        new.key,
        if new.kind == TurnKind::Continue { "continue" } else { "answer" },
        policy,
        fiber,
        message,
        place,
        agents::array(&origins),
        due_ms,
        new.now_ms
    ])?;
    let turn = conn.last_insert_rowid();
    conn.prepare_cached("INSERT INTO turn_requests (turn, body, tools, metadata) VALUES (?1, ?2, ?3, ?4)")?.execute(params![
        turn,
        new.body,
        new.tools,
        new.metadata
    ])?;
    let row = by_seq(conn, turn)?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
    Ok(AcceptedTurn::New(Box::new(row), pending))
}

/// What the turn that waits was to answer, and will be answered by one that comes now in its place.
fn merged(conn: &Connection, chat: i64) -> rusqlite::Result<Vec<String>> {
    let origins: Option<String> = conn
        .prepare_cached(
            "SELECT origins FROM turns WHERE chat = ?1 AND settled_ms IS NULL AND state = 'queued' AND policy = 'merge' ORDER BY seq DESC LIMIT 1",
        )?
        .query_row([chat], |r| r.get(0))
        .optional()?;
    // Of one that cannot be read, nothing is known.
    Ok(origins.and_then(|origins| serde_json::from_str(&origins).ok()).unwrap_or_default())
}

/// The last message of a chat, or the last one of a role, with its place.
fn last_message(conn: &Connection, chat: i64, role: Option<&str>) -> rusqlite::Result<Option<(String, i64)>> {
    conn.prepare_cached("SELECT id, place FROM chat_messages WHERE chat = ?1 AND role = coalesce(?2, role) ORDER BY place DESC LIMIT 1")?
        .query_row(params![chat, role], |r| Ok((r.get(0)?, r.get(1)?)))
        .optional()
}

/// What a turn that continues adds to: the message of the last turn under way, else the last one if it is the assistant's.
fn to_continue(conn: &Connection, chat: i64) -> rusqlite::Result<Option<(String, i64)>> {
    let under_way = conn
        .prepare_cached("SELECT message, place FROM turns WHERE chat = ?1 AND settled_ms IS NULL ORDER BY seq DESC LIMIT 1")?
        .query_row([chat], |r| Ok((r.get(0)?, r.get(1)?)))
        .optional()?;
    if under_way.is_some() {
        return Ok(under_way);
    }
    let last = last_message(conn, chat, None)?;
    Ok(last.filter(|last| matches!(last_message(conn, chat, Some("assistant")), Ok(Some(there)) if there == *last)))
}

fn begin(conn: &Connection, turn: TurnSeq, now_ms: i64) -> rusqlite::Result<MayBegin> {
    let row = by_seq(conn, turn)?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
    if row.state.is_settled() {
        return Ok(MayBegin::Over(Box::new(row)));
    }
    let (chat, policy, due_ms): (i64, String, Option<i64>) = conn
        .prepare_cached("SELECT chat, policy, due_ms FROM turns WHERE seq = ?1")?
        .query_row([turn], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?)))?;
    let again = row.state == TurnState::Running;
    if !again && policy != "queue" {
        let newer: bool = conn
            .prepare_cached("SELECT EXISTS (SELECT 1 FROM turns WHERE chat = ?1 AND seq > ?2 AND settled_ms IS NULL AND policy = ?3)")?
            .query_row(params![chat, turn, policy], |r| r.get(0))?;
        if newer {
            let why = "another one has taken its place";
            conn.prepare_cached("UPDATE turns SET state = 'skipped', reason = ?2, settled_ms = ?3 WHERE seq = ?1")?
                .execute(params![turn, why, now_ms])?;
            let row = TurnRow { state: TurnState::Skipped, reason: Some(why.to_owned()), settled_ms: Some(now_ms), ..row };
            return Ok(MayBegin::Over(Box::new(row)));
        }
    }
    let before: Option<(TurnSeq, Option<String>)> = conn
        .prepare_cached(
            "SELECT t.seq, f.id FROM turns t LEFT JOIN fibers f ON f.seq = t.fiber AND f.finished_ms IS NULL
             WHERE t.chat = ?1 AND t.seq < ?2 AND t.settled_ms IS NULL ORDER BY t.seq DESC LIMIT 1",
        )?
        .query_row(params![chat, turn], |r| Ok((r.get(0)?, r.get(1)?)))
        .optional()?;
    match before {
        Some((_, Some(fiber))) => return Ok(MayBegin::Behind(fiber)),
        Some((left, None)) => {
            let left = by_seq(conn, left)?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
            return Ok(MayBegin::Left(Box::new(left)));
        }
        None => {}
    }
    if let Some(due_ms) = due_ms
        && !again
        && due_ms > now_ms
    {
        return Ok(MayBegin::Due(due_ms));
    }
    conn.prepare_cached(
        "UPDATE turns SET state = 'running', started_ms = coalesce(started_ms, ?2), deaths = min(deaths, 4294967294) + 1 WHERE seq = ?1",
    )?
    .execute(params![turn, now_ms])?;
    let row = by_seq(conn, turn)?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
    Ok(MayBegin::Now(Box::new(TurnBegun {
        row,
        request: request(conn, turn)?,
        chunks: chunks(conn, turn, 0, u32::MAX)?,
        incident: incident(conn, turn)?,
        again,
    })))
}

fn request(conn: &Connection, turn: TurnSeq) -> rusqlite::Result<TurnRequest> {
    let found = conn
        .prepare_cached("SELECT body, tools, metadata, stash FROM turn_requests WHERE turn = ?1")?
        .query_row([turn], |r| Ok(TurnRequest { body: r.get(0)?, tools: r.get(1)?, metadata: r.get(2)?, stash: r.get(3)? }))
        .optional()?;
    Ok(found.unwrap_or_default())
}

fn chunks(conn: &Connection, turn: TurnSeq, from: u64, limit: u32) -> rusqlite::Result<Vec<Chunks>> {
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
fn follows(next: &RangeInclusive<u64>, first: i64, count: i64, data: String, stored_ms: i64) -> rusqlite::Result<Chunks> {
    let there = data.lines().count() as u64;
    match (u64::try_from(first), u64::try_from(count)) {
        (Ok(first), Ok(count)) if next.contains(&first) && count == there && first.checked_add(count).is_some() => {
            Ok(Chunks { first, count, data, stored_ms })
        }
        _ => {
            let why = format!("the row of its log with {there} chunks says that it has {count} from {first} on, which is not in {next:?}");
            Err(rusqlite::Error::FromSqlConversionFailure(0, Type::Integer, why.into()))
        }
    }
}

fn append(conn: &Connection, turn: TurnSeq, new: &Chunks) -> rusqlite::Result<()> {
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

fn settle(conn: &Connection, turn: TurnSeq, how: &Settle) -> rusqlite::Result<OfTurn> {
    let Some(row) = by_seq(conn, turn)? else { return Ok(OfTurn::Over) };
    if row.state.is_settled() {
        // One that somebody has damaged has no time: others would wait behind it for ever.
        conn.prepare_cached("UPDATE turns SET settled_ms = ?2 WHERE seq = ?1 AND settled_ms IS NULL")?
            .execute(params![turn, how.now_ms])?;
        return Ok(OfTurn::Over);
    }
    if let Some(data) = &how.message {
        let chat = chat_of(conn, &row.chat)?;
        let message = MessageRow { id: row.message.clone(), role: "assistant", data: data.clone() };
        insert_message(conn, chat, row.place, &message, how.now_ms)?;
    }
    if let Some(state) = how.incident {
        conn.prepare_cached("UPDATE incidents SET state = ?2, changed_ms = ?3 WHERE turn = ?1")?.execute(params![
            turn,
            incident_word(state),
            how.now_ms
        ])?;
    }
    conn.prepare_cached("UPDATE turns SET state = ?2, reason = ?3, settled_ms = ?4, deaths = max(deaths - 1, 0) WHERE seq = ?1")?
        .execute(params![turn, how.state.as_str(), how.reason, how.now_ms])?;
    Ok(OfTurn::Done)
}

fn fold(conn: &Connection, turn: TurnSeq) -> rusqlite::Result<()> {
    conn.prepare_cached("DELETE FROM turn_chunks WHERE turn = ?1")?.execute([turn])?;
    conn.prepare_cached("UPDATE turns SET folded = 1 WHERE seq = ?1")?.execute([turn]).map(drop)
}

fn clear(conn: &Connection, chat: &AgentId, now_ms: i64) -> rusqlite::Result<Vec<TurnRow>> {
    let Some(seq) = find_chat(conn, chat)? else { return Ok(Vec::new()) };
    conn.prepare_cached("DELETE FROM chat_messages WHERE chat = ?1")?.execute([seq])?;
    let turns: Vec<TurnRow> =
        conn.prepare_cached(&format!("{TURN} WHERE c.seq = ?1"))?.query_map([seq], turn_row)?.collect::<Result<_, _>>()?;
    let mut ended = Vec::new();
    for turn in turns {
        if turn.state.is_settled() {
            fold(conn, turn.seq)?;
            continue;
        }
        let state = if turn.state == TurnState::Running { TurnState::Aborted } else { TurnState::Skipped };
        let why = "the chat was cleared";
        conn.prepare_cached("UPDATE turns SET state = ?2, reason = ?3, settled_ms = ?4 WHERE seq = ?1")?.execute(params![
            turn.seq,
            state.as_str(),
            why,
            now_ms
        ])?;
        fold(conn, turn.seq)?;
        ended.push(TurnRow { state, reason: Some(why.to_owned()), settled_ms: Some(now_ms), ..turn });
    }
    Ok(ended)
}

fn incident_word(state: IncidentState) -> &'static str {
    match state {
        IncidentState::Attempting => "attempting",
        IncidentState::Recovered => "recovered",
        IncidentState::Exhausted => "exhausted",
    }
}

fn put_incident(conn: &Connection, turn: TurnSeq, incident: &IncidentRow, now_ms: i64) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT OR REPLACE INTO incidents
             (turn, kind, state, attempts, attempt_ms, chunks, began_at, progress_ms, reason, created_ms, changed_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    )?
    .execute(params![
        turn,
        if incident.continues { "continue" } else { "retry" },
        incident_word(incident.state),
        incident.attempts,
        incident.attempt_ms,
        incident.chunks.cast_signed(),
        incident.began_at.cast_signed(),
        incident.progress_ms,
        incident.reason,
        incident.created_ms,
        now_ms
    ])
    .map(drop)
}

fn incident(conn: &Connection, turn: TurnSeq) -> rusqlite::Result<Option<IncidentRow>> {
    conn.prepare_cached("SELECT * FROM incidents WHERE turn = ?1")?
        .query_row([turn], |r| {
            Ok(IncidentRow {
                continues: r.get_ref("kind")?.as_str()? == "continue",
                state: match r.get_ref("state")?.as_str()? {
                    "recovered" => IncidentState::Recovered,
                    "exhausted" => IncidentState::Exhausted,
                    _ => IncidentState::Attempting,
                },
                attempts: r.get("attempts")?,
                attempt_ms: r.get("attempt_ms")?,
                chunks: r.get::<_, i64>("chunks")?.cast_unsigned(),
                began_at: r.get::<_, i64>("began_at")?.cast_unsigned(),
                progress_ms: r.get("progress_ms")?,
                reason: r.get("reason")?,
                created_ms: r.get("created_ms")?,
            })
        })
        .optional()
}
