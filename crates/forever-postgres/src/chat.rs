//! Chats: messages, the logs of turns, and the list of pending interactions.
//!
//! Whatever depends on the order of a chat's turns or on the content of its messages locks the row
//! of the chat, before it locks the claim.
use forever_store::{
    AgentId, Claim, InteractionCursor, InteractionQuery, InteractionRow, MessageRole, MessageRow, MessageUpdate, StreamBatch, TurnSeq,
    TurnWrite, UpdateRefused,
};

use crate::notify::CHANGED;
use crate::sql::{Arg, Done, Row, Tx, args, damaged, refused};
use crate::{claims, fibers};

/// Locks a chat, raises its version, and returns its key.
pub(crate) async fn find_chat(tx: &Tx, chat: &AgentId) -> Done<Option<i64>> {
    tx.announce(CHANGED);
    let sql = "UPDATE @chats SET version = version + 1 WHERE class = $1 AND agent = $2 RETURNING seq";
    let row = tx.row(sql, args![&chat.class, &chat.name]).await?;
    row.map(|row| row.int("seq")).transpose()
}

/// Locks a chat and returns its key; creates the chat if it does not exist.
pub(crate) async fn chat_of(tx: &Tx, chat: &AgentId) -> Done<i64> {
    if let Some(seq) = find_chat(tx, chat).await? {
        return Ok(seq);
    }
    tx.run("INSERT INTO @chats (class, agent) VALUES ($1, $2) ON CONFLICT DO NOTHING", args![&chat.class, &chat.name]).await?;
    find_chat(tx, chat).await?.ok_or_else(|| damaged("a chat was deleted"))
}

/// Locks the chat of a turn, and raises its version.
pub(crate) async fn lock_of(tx: &Tx, turn: TurnSeq) -> Done<()> {
    tx.announce(CHANGED);
    tx.run("UPDATE @chats SET version = version + 1 WHERE seq = (SELECT chat FROM @turns WHERE seq = $1)", args![turn]).await.map(drop)
}

/// Fails unless the claim of a turn's fiber is in force, and returns whether the turn is running.
/// Neither changes until the end of the transaction.
pub(crate) async fn fence(tx: &Tx, claim: Claim, turn: TurnSeq) -> Done<bool> {
    claims::check_running(tx, claim).await?;
    let Some(row) = tx.row("SELECT fiber, state FROM @turns WHERE seq = $1 FOR NO KEY UPDATE", args![turn]).await? else {
        return Ok(false);
    };
    if row.int_opt("fiber")? == Some(claim.fiber) { Ok(row.text("state")? == "running") } else { Err(claims::lost(claim)) }
}

/// A message from a row with the columns of `@chat_messages` and `pending_ms`.
pub(crate) fn message_row(row: &Row) -> Done<MessageRow> {
    let role = row.word("role").unwrap_or(MessageRole::Assistant);
    Ok(MessageRow { id: row.text("id")?, role, data: row.text("data")?, pending: row.int_opt("pending_ms")?.is_some() })
}

pub(crate) async fn messages(tx: &Tx, chat: &AgentId, up_to: i64) -> Done<Vec<MessageRow>> {
    let sql = "SELECT m.id, m.role, m.data, m.pending_ms FROM @chats c JOIN @chat_messages m ON m.chat = c.seq
               WHERE c.class = $1 AND c.agent = $2 AND m.place <= $3 ORDER BY m.place";
    tx.rows(sql, args![&chat.class, &chat.name, up_to]).await?.iter().map(message_row).collect()
}

pub(crate) async fn insert_message(tx: &Tx, chat: i64, place: i64, message: &MessageRow, now_ms: i64) -> Done<()> {
    tx.run(
        "INSERT INTO @chat_messages AS m (chat, place, id, role, data, changed_ms, pending_ms)
         VALUES ($1, $2, $3, $4, $5, $6, CASE WHEN $7 THEN $6 END)
         ON CONFLICT (chat, id) DO UPDATE SET role = $4, data = $5, changed_ms = $6,
                pending_ms = CASE WHEN $7 THEN coalesce(m.pending_ms, $6) END",
        args![chat, place, &message.id, message.role.as_str(), &message.data, now_ms, message.pending],
    )
    .await
    .map(drop)
}

pub(crate) async fn replace(tx: &Tx, chat: i64, message: &MessageRow, now_ms: i64) -> Done<bool> {
    tx.run(
        "UPDATE @chat_messages SET role = $3, data = $4, changed_ms = $5, pending_ms = CASE WHEN $6 THEN coalesce(pending_ms, $5) END
         WHERE chat = $1 AND id = $2",
        args![chat, &message.id, message.role.as_str(), &message.data, now_ms, message.pending],
    )
    .await
    .map(|replaced| replaced == 1)
}

/// Updates a message, unless it has changed meanwhile, or a turn has read it and will write it.
pub(crate) async fn update(tx: &Tx, chat: i64, update: &MessageUpdate, now_ms: i64) -> Done<Result<(), UpdateRefused>> {
    let id = &update.message.id;
    let look = tx
        .one(
            "SELECT EXISTS (SELECT 1 FROM @turns t JOIN @fibers f ON f.seq = t.fiber
                            WHERE t.chat = $1 AND t.settled_ms IS NULL AND t.state = 'running' AND t.message = $2
                            AND f.state = 'running') AS in_use,
                    EXISTS (SELECT 1 FROM @chat_messages WHERE chat = $1 AND id = $2 AND data = $3) AS unchanged",
            args![chat, id, &update.from],
        )
        .await?;
    if look.flag("in_use")? {
        return Ok(Err(UpdateRefused::InUse));
    }
    if !look.flag("unchanged")? {
        return Ok(Err(UpdateRefused::Changed));
    }
    replace(tx, chat, &update.message, now_ms).await?;
    Ok(Ok(()))
}

pub(crate) async fn update_message(
    tx: &Tx,
    chat: &AgentId,
    change: &MessageUpdate,
    wanted: bool,
    now_ms: i64,
) -> Done<Result<(), UpdateRefused>> {
    let Some(chat) = find_chat(tx, chat).await? else { return Ok(Err(UpdateRefused::Changed)) };
    let written = update(tx, chat, change, now_ms).await?;
    if written.is_ok() {
        hold(tx, chat, &change.message.id, wanted).await?;
    }
    Ok(written)
}

/// Stores whether a message is to be continued; a later message that is to be continued stays
/// stored.
async fn hold(tx: &Tx, chat: i64, id: &str, wanted: bool) -> Done<()> {
    tx.run(
        "UPDATE @chats c SET held = CASE WHEN $3 THEN $2 END WHERE c.seq = $1 AND CASE WHEN $3 THEN NOT EXISTS (
             SELECT 1 FROM @chat_messages there JOIN @chat_messages new ON new.chat = there.chat AND new.id = $2
             WHERE there.chat = $1 AND there.id = c.held AND there.place > new.place)
         ELSE c.held = $2 END",
        args![chat, id, wanted],
    )
    .await
    .map(drop)
}

pub(crate) async fn want_continuation(tx: &Tx, chat: &AgentId, message: &str) -> Done<()> {
    match find_chat(tx, chat).await? {
        Some(chat) => hold(tx, chat, message, true).await,
        None => Ok(()),
    }
}

pub(crate) async fn continuation_target(tx: &Tx, chat: &AgentId) -> Done<Option<String>> {
    let row = tx.row("SELECT held FROM @chats WHERE class = $1 AND agent = $2", args![&chat.class, &chat.name]).await?;
    row.map_or(Ok(None), |row| row.text_opt("held"))
}

/// Replaces all messages of a chat. Those that wait for a person keep the time since which they
/// wait.
pub(crate) async fn replace_all(tx: &Tx, chat: i64, messages: &[MessageRow], now_ms: i64) -> Done<()> {
    let pending = tx.rows("SELECT id, pending_ms FROM @chat_messages WHERE chat = $1 AND pending_ms IS NOT NULL", args![chat]).await?;
    tx.run("DELETE FROM @chat_messages WHERE chat = $1", args![chat]).await?;
    for (message, place) in messages.iter().zip(1..) {
        insert_message(tx, chat, place, message, now_ms).await?;
    }
    for row in pending {
        tx.run(
            "UPDATE @chat_messages SET pending_ms = $3 WHERE chat = $1 AND id = $2 AND pending_ms IS NOT NULL",
            args![chat, &row.text("id")?, row.int("pending_ms")?],
        )
        .await?;
    }
    Ok(())
}

/// The first place behind all messages and behind those that turns under way will write.
pub(crate) async fn next_place(tx: &Tx, chat: i64) -> Done<i64> {
    let sql = "SELECT 1 + greatest(coalesce((SELECT max(place) FROM @chat_messages WHERE chat = $1), 0),
                                   coalesce((SELECT max(place) FROM @turns WHERE chat = $1 AND settled_ms IS NULL), 0)) AS place";
    tx.one(sql, args![chat]).await?.int("place")
}

/// The last message of a chat, or the last one of a role, with its place.
pub(crate) async fn last_message(tx: &Tx, chat: i64, role: Option<&str>) -> Done<Option<(String, i64)>> {
    let sql = "SELECT id, place FROM @chat_messages WHERE chat = $1 AND role = coalesce($2, role) ORDER BY place DESC LIMIT 1";
    tx.row(sql, args![chat, role]).await?.map(|row| Ok((row.text("id")?, row.int("place")?))).transpose()
}

pub(crate) async fn pending_interactions(
    tx: &Tx,
    query: &InteractionQuery,
    after: Option<InteractionCursor>,
    limit: u32,
) -> Done<Vec<InteractionRow>> {
    let after = after.unwrap_or(InteractionCursor { pending_ms: i64::MAX, seq: i64::MAX });
    let mut values: Vec<Arg<'_>> = vec![after.pending_ms.into(), after.seq.into(), limit.into()];
    let mut of = vec![String::new()];
    for (column, value) in [("class", &query.class), ("agent", &query.agent)] {
        if let Some(value) = value {
            values.push(value.into());
            of.push(format!("c.{column} = ${}", values.len()));
        }
    }
    let of = of.join(" AND ");
    let sql = format!(
        "SELECT m.seq, m.pending_ms, m.id, m.role, m.data, c.class, c.agent,
                EXISTS (SELECT 1 FROM @chat_messages l WHERE l.chat = m.chat AND l.place > m.place) AS superseded
         FROM @chat_messages m JOIN @chats c ON c.seq = m.chat
         WHERE m.pending_ms IS NOT NULL AND (m.pending_ms, m.seq) < ($1, $2){of}
               AND NOT EXISTS (SELECT 1 FROM @turns t
                               WHERE t.chat = m.chat AND t.settled_ms IS NULL AND t.state = 'running' AND t.message = m.id)
         ORDER BY m.pending_ms DESC, m.seq DESC LIMIT $3"
    );
    let listed = |row: &Row| {
        Ok(InteractionRow {
            at: InteractionCursor { pending_ms: row.int("pending_ms")?, seq: row.int("seq")? },
            chat: AgentId { class: row.text("class")?, name: row.text("agent")? },
            message: message_row(row)?,
            superseded: row.flag("superseded")?,
        })
    };
    tx.rows(&sql, &values).await?.iter().map(listed).collect()
}

pub(crate) async fn append_chunks(tx: &Tx, claim: Claim, turn: TurnSeq, new: &StreamBatch) -> Done<TurnWrite> {
    if !fence(tx, claim, turn).await? {
        return Ok(TurnWrite::NotRunning);
    }
    let stored = tx
        .run(
            "INSERT INTO @stream_items (turn, name, first, count, data, stored_ms) SELECT $1, 'log', $2, $3, $4, $5
             WHERE $2 = coalesce((SELECT first + count FROM @stream_items WHERE turn = $1 ORDER BY first DESC LIMIT 1), 0)",
            args![turn, new.first, new.count, &new.data, new.stored_ms],
        )
        .await?;
    if stored == 0 {
        return refused(format!("chunk {} does not follow those that are stored", new.first));
    }
    // A stored chunk is progress, as a checkpoint is.
    fibers::forget_deaths(tx, claim.fiber).await?;
    Ok(TurnWrite::Done)
}

pub(crate) async fn chunks(tx: &Tx, turn: TurnSeq, from: u64, limit: u32) -> Done<Vec<StreamBatch>> {
    // The row that contains chunk `from` may begin with an earlier one.
    let rows = tx
        .rows(
            "SELECT first, count, data, stored_ms FROM @stream_items
             WHERE turn = $1 AND first >= coalesce((SELECT max(first) FROM @stream_items WHERE turn = $1 AND first <= $2), 0)
             ORDER BY first LIMIT $3",
            args![turn, from, limit],
        )
        .await?;
    let mut log: Vec<StreamBatch> = Vec::with_capacity(rows.len());
    for row in rows {
        let batch = StreamBatch {
            first: row.number("first")?,
            count: row.number("count")?,
            data: row.text("data")?,
            stored_ms: row.int("stored_ms")?,
        };
        let there = batch.data.lines().count() as u64;
        let follows = log.last().map_or(batch.first <= from, |last| last.first + last.count == batch.first);
        if !follows || there != batch.count {
            return Err(damaged(format!(
                "the row of its log with {there} chunks says that it has {} from {} on",
                batch.count, batch.first
            )));
        }
        log.push(batch);
    }
    Ok(log)
}
