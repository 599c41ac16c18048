//! Messages to fibers: sending, reading the next, and what a person does with those that wait.
use forever_store::{CommandResult, FiberRef, FiberState, NewMessage, PendingMessage, SendResult, Seq, message_digest};

use crate::notify::CHANGED;
use crate::sql::{Done, Tx, args};
use crate::{fibers, topics, waits};

pub(crate) async fn list(tx: &Tx, id: &str, after: i64, limit: u32) -> Done<Vec<PendingMessage>> {
    let sql = "SELECT m.seq, m.topic, m.data, m.sent_ms FROM @fibers f JOIN @messages m ON m.fiber = f.seq
               WHERE f.id = $1 AND m.seq > $2 ORDER BY m.seq LIMIT $3";
    tx.rows(sql, args![id, after, i64::from(limit)]).await?.iter().map(topics::pending).collect()
}

pub(crate) async fn send(tx: &Tx, new: &NewMessage) -> Done<CommandResult<SendResult>> {
    let Some(to) = tx.row("SELECT seq, state FROM @fibers WHERE id = $1 FOR NO KEY UPDATE", args![&new.to]).await? else {
        return Ok(CommandResult::NotFound);
    };
    let (seq, state) = (to.int("seq")?, to.word::<FiberState>("state")?);
    let with_id = new.id.as_ref().map(|id| (id, message_digest(&new.topic, &new.data)));
    if let Some((id, digest)) = &with_id {
        let sql = "SELECT digest FROM @message_ids WHERE fiber = $1 AND id = $2";
        if let Some(sent) = tx.row(sql, args![seq, *id]).await? {
            let is_same = sent.text_opt("digest")?.as_ref() == Some(digest);
            return Ok(CommandResult::Done(if is_same { SendResult::Sent } else { SendResult::Conflict }));
        }
    }
    if state.is_final() {
        return Ok(CommandResult::InvalidState(state));
    }
    if topics::is_closed(tx, seq, &new.topic).await? {
        return Ok(CommandResult::Done(SendResult::Closed));
    }
    if let Some((id, digest)) = &with_id {
        tx.run("INSERT INTO @message_ids (fiber, id, digest) VALUES ($1, $2, $3)", args![seq, *id, digest]).await?;
    }
    let waits = tx
        .one(
            "WITH sent AS (INSERT INTO @messages (fiber, topic, data, sent_ms) VALUES ($1, $2, $3, $4))
             SELECT EXISTS (SELECT 1 FROM @wait_topics WHERE fiber = $1 AND topic = $2) AS waits",
            args![seq, &new.topic, &new.data, new.now_ms],
        )
        .await?;
    tx.announce(CHANGED);
    if waits.flag("waits")? {
        let woken = waits::wake(tx, &[seq], new.now_ms).await?;
        tx.ready().extend(woken);
    }
    Ok(CommandResult::Done(SendResult::Sent))
}

pub(crate) async fn insert(tx: &Tx, seq: Seq, topic: &str, data: &str, sent_ms: i64) -> Done<()> {
    tx.run("INSERT INTO @messages (fiber, topic, data, sent_ms) VALUES ($1, $2, $3, $4)", args![seq, topic, data, sent_ms]).await.map(drop)
}

pub(crate) async fn discard(tx: &Tx, id: &str, message: i64) -> Done<CommandResult<bool>> {
    let Some(row) = fibers::find_locked(tx, &FiberRef::Id(id.to_owned())).await? else { return Ok(CommandResult::NotFound) };
    if row.state == FiberState::Running {
        return Ok(CommandResult::InvalidState(row.state));
    }
    let deleted = tx.run("DELETE FROM @messages WHERE seq = $1 AND fiber = $2", args![message, row.seq]).await?;
    Ok(CommandResult::Done(deleted > 0))
}
