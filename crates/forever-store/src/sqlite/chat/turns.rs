//! Turns: accept, begin, settle, delete.
use rusqlite::types::{Type, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::incidents::{self, incident};
use super::messages::{chat_of, find_chat, insert_message, last_message, next_place, replace, update};
use crate::sqlite::{agents, numbers, rows, streams};
use crate::{
    AcceptTurnResult, Admission, AgentId, MessageRole, MessageRow, NewTurnRow, QueuePolicy, TurnFilter, TurnKind, TurnRequest, TurnRow,
    TurnSeq, TurnSettlement, TurnStart, TurnState, TurnWrite,
};

const TURN: &str = "SELECT t.*, c.class, c.agent FROM chats c JOIN turns t ON t.chat = c.seq";

fn turn_row(row: &Row<'_>) -> rusqlite::Result<TurnRow> {
    let bad =
        |column: &str| rusqlite::Error::FromSqlConversionFailure(0, Type::Text, format!("`{column}` of a turn makes no sense").into());
    let state = row.get_ref("state")?.as_str()?.parse::<TurnState>().map_err(|_| bad("state"))?;
    let origins: String = row.get("origins")?;
    Ok(TurnRow {
        seq: row.get("seq")?,
        chat: AgentId { class: row.get("class")?, name: row.get("agent")? },
        id: row.get("id")?,
        key: row.get("key")?,
        kind: if row.get_ref("kind")?.as_str()? == "continue" { TurnKind::Continue } else { TurnKind::Reply },
        state,
        reason: row.get("reason")?,
        error: row.get("error")?,
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

/// A row as a list shows it. A damaged value hides neither the other rows nor the rest of its own.
/// `None` if not even its state can be read.
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
        kind: if text("kind").as_deref() == Some("continue") { TurnKind::Continue } else { TurnKind::Reply },
        state: text("state")?.parse().ok()?,
        reason: text("reason"),
        error: text("error"),
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

pub(super) fn by_seq(conn: &Connection, turn: TurnSeq) -> rusqlite::Result<Option<TurnRow>> {
    conn.prepare_cached(&format!("{TURN} WHERE t.seq = ?1"))?.query_row([turn], turn_row).optional()
}

/// Finds a turn of a chat by a unique value.
pub(super) fn by(conn: &Connection, chat: &AgentId, column: &str, value: &str) -> rusqlite::Result<Option<TurnRow>> {
    conn.prepare_cached(&format!("{TURN} WHERE c.class = ?1 AND c.agent = ?2 AND t.{column} = ?3"))?
        .query_row(params![chat.class, chat.name, value], turn_row)
        .optional()
}

/// Whether a chat has its maximum number of queued turns. Reads no more of them than that.
fn is_full(conn: &Connection, chat: i64, max_queued: u32) -> rusqlite::Result<bool> {
    conn.prepare_cached(
        "SELECT count(*) >= ?2 FROM (SELECT 1 FROM turns WHERE chat = ?1 AND settled_ms IS NULL AND state = 'queued' LIMIT ?2)",
    )?
    .query_row(params![chat, max_queued], |r| r.get(0))
}

/// Turns of a chat behind `after`, or before it.
pub(super) fn list(conn: &Connection, chat: &AgentId, which: &TurnFilter, after: TurnSeq, limit: u32) -> rusqlite::Result<Vec<TurnRow>> {
    // The words are ours, so they may stand in the text.
    let words: Vec<_> = which.states.iter().map(|s| format!("'{s}'")).collect();
    let mut terms = String::new();
    if !words.is_empty() {
        terms = format!("AND t.state IN ({})", words.join(", "));
    }
    if !which.states.is_empty() && !which.states.iter().any(|s| s.is_settled()) {
        terms.push_str(" AND t.settled_ms IS NULL");
    }
    let (behind, order) = if which.latest_first { ("t.seq < ?3", "t.seq DESC") } else { ("t.seq > ?3", "t.seq") };
    let after = if which.latest_first && after == 0 { TurnSeq::MAX } else { after };
    let sql = format!("{TURN} WHERE c.class = ?1 AND c.agent = ?2 AND {behind} {terms} ORDER BY {order} LIMIT ?4");
    let mut select = conn.prepare_cached(&sql)?;
    listed_page(after, limit, |after, limit| select.query_map(params![chat.class, chat.name, after, limit], listed_or_not)?.collect())
}

/// Turns of all chats before one, the newest first.
pub(super) fn all(conn: &Connection, before: Option<TurnSeq>, limit: u32) -> rusqlite::Result<Vec<TurnRow>> {
    newest(conn, "", before, limit)
}

/// Those of them that failed.
pub(super) fn failed(conn: &Connection, before: Option<TurnSeq>, limit: u32) -> rusqlite::Result<Vec<TurnRow>> {
    newest(conn, "AND t.state IN ('error', 'interrupted')", before, limit)
}

fn newest(conn: &Connection, which: &str, before: Option<TurnSeq>, limit: u32) -> rusqlite::Result<Vec<TurnRow>> {
    let mut select = conn.prepare_cached(&format!(
        "SELECT t.*, c.class, c.agent FROM turns t CROSS JOIN chats c ON c.seq = t.chat
         WHERE t.seq < ?1 {which} ORDER BY t.seq DESC LIMIT ?2"
    ))?;
    let before = before.unwrap_or(TurnSeq::MAX);
    listed_page(before, limit, |before, limit| select.query_map(params![before, limit], listed_or_not)?.collect())
}

/// Number of a row, and the row if it can be listed.
type Listed = (TurnSeq, Option<TurnRow>);

fn listed_or_not(row: &Row<'_>) -> rusqlite::Result<Listed> {
    Ok((row.get("seq")?, listed(row)))
}

/// A page of turns. Rows that are left out are replaced by later ones, so that a short page is the
/// last one.
fn listed_page(
    mut after: TurnSeq,
    limit: u32,
    mut select: impl FnMut(TurnSeq, u32) -> rusqlite::Result<Vec<Listed>>,
) -> rusqlite::Result<Vec<TurnRow>> {
    let mut found = Vec::new();
    loop {
        let left = limit - u32::try_from(found.len()).unwrap_or(limit);
        let page = select(after, left)?;
        let last = page.last().map(|(seq, _)| *seq);
        let read = page.len();
        found.extend(page.into_iter().filter_map(|(_, row)| row));
        match last {
            Some(last) if read == left as usize && found.len() < limit as usize => after = last,
            _ => return Ok(found),
        }
    }
}

pub(super) fn under_way(conn: &Connection, chat: i64) -> rusqlite::Result<bool> {
    conn.prepare_cached("SELECT EXISTS (SELECT 1 FROM turns WHERE chat = ?1 AND settled_ms IS NULL)")?.query_row([chat], |r| r.get(0))
}

/// Stores a turn. A refusal is known only after its messages are written; these are then rolled
/// back.
pub(super) fn accept(conn: &Connection, new: &NewTurnRow) -> rusqlite::Result<AcceptTurnResult> {
    if new.kind == TurnKind::Reply && new.update.is_none() {
        return accept_here(conn, new);
    }
    conn.prepare_cached("SAVEPOINT accept")?.execute(())?;
    // If this fails, the job rolls back everything.
    let accepted = accept_here(conn, new)?;
    if matches!(accepted, AcceptTurnResult::NothingToContinue | AcceptTurnResult::Refused(_)) {
        conn.prepare_cached("ROLLBACK TO accept")?.execute(())?;
    }
    conn.prepare_cached("RELEASE accept")?.execute(())?;
    Ok(accepted)
}

fn accept_here(conn: &Connection, new: &NewTurnRow) -> rusqlite::Result<AcceptTurnResult> {
    let there = match (by(conn, &new.chat, "id", &new.id)?, &new.key) {
        (None, Some(key)) => by(conn, &new.chat, "key", key)?,
        (there, _) => there,
    };
    if let Some(there) = there {
        return Ok(AcceptTurnResult::Existing(Box::new(there)));
    }
    let chat = chat_of(conn, &new.chat)?;
    if let Some(message) = &new.unless_asked
        && let Some(turn) = reply_to(conn, chat, message)?
    {
        return Ok(AcceptTurnResult::Existing(Box::new(turn)));
    }
    if new.queueing == QueuePolicy::Drop && under_way(conn, chat)? {
        return Ok(AcceptTurnResult::Dropped);
    }
    if new.kind == TurnKind::Reply && is_full(conn, chat, new.max_queued)? {
        return Ok(AcceptTurnResult::Full);
    }
    if let Some(last) = &new.cut_behind {
        conn.prepare_cached(
            "DELETE FROM chat_messages WHERE chat = ?1 AND place > (SELECT place FROM chat_messages WHERE chat = ?1 AND id = ?2)",
        )?
        .execute(params![chat, last])?;
    }
    if let Some(change) = &new.update
        && let Err(why) = update(conn, chat, change, new.now_ms)?
    {
        return Ok(AcceptTurnResult::Refused(why));
    }
    let mut origins = Vec::new();
    for message in &new.messages {
        if !replace(conn, chat, message, new.now_ms)? {
            insert_message(conn, chat, next_place(conn, chat)?, message, new.now_ms)?;
            if message.role == MessageRole::User {
                origins.push(message.id.clone());
            }
        }
    }
    if new.queueing == QueuePolicy::Merge {
        origins = [merged(conn, chat)?, origins].concat();
    }
    if origins.is_empty() {
        origins.extend(last_message(conn, chat, Some("user"))?.map(|(id, _)| id));
    }
    let (mut body, mut tools) = (new.body.clone(), new.tools.clone());
    let (message, place) = match new.kind {
        TurnKind::Reply => (new.message.clone(), next_place(conn, chat)?),
        TurnKind::Continue => {
            let Some((message, place)) = to_continue(conn, chat)? else { return Ok(AcceptTurnResult::NothingToContinue) };
            let (of_body, of_tools) = asked_with(conn, chat, &message)?;
            (body, tools) = (body.or(of_body), tools.or(of_tools));
            (message, place)
        }
    };
    // The new turn replaces any continuation that was wanted.
    conn.prepare_cached("UPDATE chats SET held = NULL WHERE seq = ?1 AND held IS NOT NULL")?.execute([chat])?;
    let (policy, due_ms) = match new.queueing {
        QueuePolicy::Queue | QueuePolicy::Drop => ("queue", None),
        QueuePolicy::Latest => ("latest", None),
        QueuePolicy::Merge => ("merge", None),
        QueuePolicy::Debounce(ms) => ("debounce", Some(new.now_ms.saturating_add(ms))),
    };
    let fiber = rows::insert(conn, &new.fiber)?
        .ok_or_else(|| rusqlite::Error::ToSqlConversionFailure(format!("there is a fiber with id `{}` already", new.fiber.id).into()))?
        .fiber;
    let ready = rows::runnable(conn, fiber)?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
    conn.prepare_cached(concat!(
        "INSERT INTO turns (seq, chat, id, key, kind, policy, state, fiber, message, place, origins, due_ms, created_ms)
         VALUES (",
        numbers::next!("turns"),
        ", ?1, ?2, ?3, ?4, ?5, 'queued', ?6, ?7, ?8, ?9, ?10, ?11)",
    ))?
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
        body,
        tools,
        new.metadata
    ])?;
    let row = by_seq(conn, turn)?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
    Ok(AcceptTurnResult::Created(Box::new(row), ready))
}

/// The latest turn that replies to a user message. Few new turns do: usually their message is new.
fn reply_to(conn: &Connection, chat: i64, message: &str) -> rusqlite::Result<Option<TurnRow>> {
    let stored: bool = conn
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM chat_messages WHERE chat = ?1 AND id = ?2)")?
        .query_row(params![chat, message], |row| row.get(0))?;
    if !stored {
        return Ok(None);
    }
    let mut turns = conn.prepare_cached("SELECT seq, origins FROM turns WHERE chat = ?1 AND kind = 'answer' ORDER BY seq DESC")?;
    let mut rows = turns.query([chat])?;
    while let Some(row) = rows.next()? {
        // A turn that cannot be read has no origins.
        let origins: Vec<String> =
            row.get_ref("origins")?.as_str().ok().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        if origins.iter().any(|id| id == message) {
            return by_seq(conn, row.get("seq")?);
        }
    }
    Ok(None)
}

/// Messages that the queued turn was to answer, which the new turn answers in its place.
fn merged(conn: &Connection, chat: i64) -> rusqlite::Result<Vec<String>> {
    let origins: Option<String> = conn
        .prepare_cached(
            "SELECT origins FROM turns WHERE chat = ?1 AND settled_ms IS NULL AND state = 'queued' AND policy = 'merge' ORDER BY seq DESC LIMIT 1",
        )?
        .query_row([chat], |r| r.get(0))
        .optional()?;
    // A turn that cannot be read has no origins.
    Ok(origins.and_then(|origins| serde_json::from_str(&origins).ok()).unwrap_or_default())
}

/// The message that a continuation adds to: that of the last turn under way, else the last message
/// if it is the assistant's.
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

/// Body and client tools of the last turn that wrote a message.
fn asked_with(conn: &Connection, chat: i64, message: &str) -> rusqlite::Result<(Option<String>, Option<String>)> {
    let asked = conn
        .prepare_cached(
            "SELECT r.body, r.tools FROM turns t JOIN turn_requests r ON r.turn = t.seq
             WHERE t.chat = ?1 AND t.message = ?2 ORDER BY t.seq DESC LIMIT 1",
        )?
        // Damaged values are not used.
        .query_row(params![chat, message], |r| Ok((r.get(0).unwrap_or(None), r.get(1).unwrap_or(None))))
        .optional()?;
    Ok(asked.unwrap_or_default())
}

pub(super) fn begin(conn: &Connection, turn: TurnSeq, now_ms: i64) -> rusqlite::Result<Admission> {
    let row = by_seq(conn, turn)?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
    if row.state.is_settled() {
        return Ok(Admission::Settled(Box::new(row)));
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
            return Ok(Admission::Settled(Box::new(row)));
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
        Some((_, Some(fiber))) => return Ok(Admission::Behind(fiber)),
        Some((left, None)) => {
            let left = by_seq(conn, left)?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
            return Ok(Admission::Orphaned(Box::new(left)));
        }
        None => {}
    }
    if let Some(due_ms) = due_ms
        && !again
        && due_ms > now_ms
    {
        return Ok(Admission::NotBefore(due_ms));
    }
    conn.prepare_cached(
        "UPDATE turns SET state = 'running', started_ms = coalesce(started_ms, ?2), deaths = min(deaths, 4294967294) + 1 WHERE seq = ?1",
    )?
    .execute(params![turn, now_ms])?;
    let row = by_seq(conn, turn)?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
    Ok(Admission::Begun(Box::new(TurnStart {
        row,
        request: request(conn, turn)?,
        chunks: streams::read_of_turn(conn, turn, 0, u32::MAX)?,
        incident: incident(conn, turn)?,
        again,
    })))
}

/// Deletes turns that were settled before a time. The last number given is kept, so that no turn
/// ever gets the number of another.
pub(super) fn delete(conn: &Connection, before_ms: i64, limit: u32) -> rusqlite::Result<u64> {
    let last: Option<TurnSeq> = conn.prepare_cached("SELECT max(seq) FROM turns")?.query_row((), |r| r.get(0))?;
    let deleted = conn
        .prepare_cached("DELETE FROM turns WHERE seq IN (SELECT seq FROM turns WHERE settled_ms < ?1 ORDER BY settled_ms LIMIT ?2)")?
        .execute(params![before_ms, limit])?;
    if deleted > 0 {
        // SQLite maintains this table for `AUTOINCREMENT` columns only; `turns` has none.
        let kept = conn.prepare_cached("UPDATE sqlite_sequence SET seq = max(seq, ?1) WHERE name = 'turns'")?.execute([last])?;
        if kept == 0 {
            conn.prepare_cached("INSERT INTO sqlite_sequence (name, seq) VALUES ('turns', ?1)")?.execute([last])?;
        }
        conn.prepare_cached("UPDATE last_numbers SET turns = max(turns, ?1)")?.execute([last])?;
    }
    Ok(deleted as u64)
}

/// Debounced turns whose time was computed while the clock was ahead: `?1` is now, `?2` the
/// tolerance.
const FAR: &str = "settled_ms IS NULL AND state = 'queued' AND due_ms IS NOT NULL AND created_ms > ?1 + ?2";

pub(super) fn any_far(conn: &Connection, now_ms: i64, slack_ms: i64) -> rusqlite::Result<bool> {
    conn.prepare_cached(&format!("SELECT EXISTS (SELECT 1 FROM turns INDEXED BY turns_open WHERE {FAR})"))?
        .query_row([now_ms, slack_ms], |r| r.get(0))
}

/// Makes them wait for their full delay, from now on.
pub(super) fn correct(conn: &Connection, now_ms: i64, slack_ms: i64) -> rusqlite::Result<u64> {
    conn.prepare_cached(&format!(
        "UPDATE waits SET due_ms = ?1 + max(t.due_ms - t.created_ms, 0)
         FROM (SELECT fiber, due_ms, created_ms FROM turns INDEXED BY turns_open WHERE {FAR}) t
         WHERE waits.fiber = t.fiber AND waits.due_ms IS NOT NULL"
    ))?
    .execute([now_ms, slack_ms])?;
    let corrected = conn
        .prepare_cached(&format!(
            "UPDATE turns INDEXED BY turns_open SET due_ms = ?1 + max(due_ms - created_ms, 0), created_ms = ?1 WHERE {FAR}"
        ))?
        .execute([now_ms, slack_ms])?;
    Ok(corrected as u64)
}

pub(super) fn request(conn: &Connection, turn: TurnSeq) -> rusqlite::Result<TurnRequest> {
    let found = conn
        .prepare_cached("SELECT body, tools, metadata, stash FROM turn_requests WHERE turn = ?1")?
        .query_row([turn], |r| Ok(TurnRequest { body: r.get(0)?, tools: r.get(1)?, metadata: r.get(2)?, stash: r.get(3)? }))
        .optional()?;
    Ok(found.unwrap_or_default())
}

pub(super) fn settle(conn: &Connection, turn: TurnSeq, how: &TurnSettlement) -> rusqlite::Result<TurnWrite> {
    let Some(row) = by_seq(conn, turn)? else { return Ok(TurnWrite::NotRunning) };
    if row.state.is_settled() {
        // A damaged turn has no end time: others would wait behind it forever.
        conn.prepare_cached("UPDATE turns SET settled_ms = ?2 WHERE seq = ?1 AND settled_ms IS NULL")?
            .execute(params![turn, how.now_ms])?;
        return Ok(TurnWrite::NotRunning);
    }
    if let Some(data) = &how.message {
        let chat = chat_of(conn, &row.chat)?;
        let message = MessageRow { id: row.message.clone(), role: MessageRole::Assistant, data: data.clone(), pending: how.pending };
        insert_message(conn, chat, row.place, &message, how.now_ms)?;
    }
    if let Some(state) = how.incident {
        conn.prepare_cached("UPDATE incidents SET state = ?2, changed_ms = ?3 WHERE turn = ?1")?.execute(params![
            turn,
            incidents::word(state),
            how.now_ms
        ])?;
    }
    conn.prepare_cached(
        "UPDATE turns SET state = ?2, reason = ?3, error = ?4, settled_ms = ?5, deaths = max(deaths - 1, 0) WHERE seq = ?1",
    )?
    .execute(params![turn, how.state.as_str(), how.reason, how.error, how.now_ms])?;
    streams::close_of_turn(conn, turn)?;
    Ok(TurnWrite::Done)
}

/// Deletes the log of a turn: what it said is in its message.
pub(super) fn fold(conn: &Connection, turn: TurnSeq) -> rusqlite::Result<()> {
    streams::delete_of_turn(conn, turn)?;
    conn.prepare_cached("UPDATE turns SET folded = 1 WHERE seq = ?1")?.execute([turn]).map(drop)
}

pub(super) fn clear(conn: &Connection, chat: &AgentId, now_ms: i64) -> rusqlite::Result<Vec<TurnRow>> {
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
