//! Chats: messages, turns with their logs, and incidents.
mod incidents;
mod interactions;
mod messages;
mod turns;

use rusqlite::{Connection, OptionalExtension, params};

use super::job::Scope;
use super::store::Sqlite;
use super::{claims, rows, streams};
use crate::error::Result;
use crate::future::BoxFuture;
use crate::{
    AcceptTurnResult, Admission, AgentId, ChatStore, FiberState, IncidentRow, InteractionCursor, InteractionQuery, InteractionRow,
    MessageRow, MessageUpdate, NewTurnRow, StreamBatch, TurnFilter, TurnRequest, TurnRow, TurnSeq, TurnSettlement, TurnSettler, TurnWrite,
    UpdateRefused,
};
use crate::{Claim, CommitNotices, Seq, Suspension};
use messages::{chat_of, find_chat, hold, message_row, replace_all, update};
use turns::{accept, begin, by, by_seq, clear, fold, request, settle, under_way};

/// Fails unless the claim of a turn's fiber is in force; returns whether the turn is running.
fn fence(conn: &Connection, claim: Claim, turn: TurnSeq) -> rusqlite::Result<bool> {
    claims::check_running(conn, claim)?;
    let found: Option<(Option<Seq>, bool)> = conn
        .prepare_cached("SELECT fiber, state = 'running' FROM turns WHERE seq = ?1")?
        .query_row([turn], |r| Ok((r.get(0)?, r.get(1)?)))
        .optional()?;
    match found {
        Some((Some(fiber), running)) if fiber == claim.fiber => Ok(running),
        Some(_) => Err(claims::lost(claim)),
        None => Ok(false),
    }
}

/// Whether a turn has a fiber that has not ended.
fn has_fiber(conn: &Connection, turn: TurnSeq) -> rusqlite::Result<bool> {
    conn.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM turns t JOIN fibers f ON f.seq = t.fiber WHERE t.seq = ?1 AND f.finished_ms IS NULL)",
    )?
    .query_row([turn], |r| r.get(0))
}

/// Takes back the death that was counted when a turn was begun.
fn release(conn: &Connection, turn: TurnSeq) -> rusqlite::Result<()> {
    conn.prepare_cached("UPDATE turns SET deaths = max(deaths - 1, 0) WHERE seq = ?1")?.execute([turn]).map(drop)
}

/// Whether a turn was cancelled.
fn is_cancelled(conn: &Connection, turn: TurnSeq) -> rusqlite::Result<bool> {
    conn.prepare_cached("SELECT cancel IS NOT NULL FROM turns WHERE seq = ?1")?.query_row([turn], |row| row.get(0))
}

/// Makes the fiber of a turn ready if it is parked, so that it sees the turn end.
fn wake_parked(conn: &Connection, turn: TurnSeq, now_ms: i64, notices: &mut CommitNotices) -> rusqlite::Result<()> {
    let parked: Option<Seq> = conn
        .prepare_cached("SELECT f.seq FROM turns t JOIN fibers f ON f.seq = t.fiber WHERE t.seq = ?1 AND f.state = 'parked'")?
        .query_row([turn], |row| row.get(0))
        .optional()?;
    if let Some(fiber) = parked {
        notices.ready.extend(rows::make_ready(conn, fiber, now_ms)?);
    }
    Ok(())
}

impl ChatStore for Sqlite {
    fn accept_turn(&self, new: NewTurnRow) -> BoxFuture<'_, Result<AcceptTurnResult>> {
        Box::pin(self.write("store a turn", Scope::Many, move |c| accept(c, &new)))
    }

    fn begin_turn(&self, claim: Claim, turn: TurnSeq, now_ms: i64) -> BoxFuture<'_, Result<Admission>> {
        Box::pin(self.write("store that a turn begins", Scope::Many, move |c| {
            fence(c, claim, turn)?;
            begin(c, turn, now_ms)
        }))
    }

    fn release_turn(&self, claim: Claim, turn: TurnSeq) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write("store that a turn is left", Scope::Many, move |c| {
            fence(c, claim, turn)?;
            release(c, turn)
        }))
    }

    fn park_turn(&self, claim: Claim, turn: TurnSeq, why: String, now_ms: i64) -> BoxFuture<'_, Result<bool>> {
        let how = Suspension::Parked(why);
        Box::pin(self.write_ready("store that a turn is parked", move |c, notices| {
            let is_running = fence(c, claim, turn)?;
            release(c, turn)?;
            if !is_running || is_cancelled(c, turn)? {
                return Ok(false);
            }
            if !rows::is_cancelled(c, claim.fiber)? {
                rows::suspend(c, claim, &how, now_ms, notices)?;
            }
            Ok(true)
        }))
    }

    fn store_incident(&self, claim: Claim, turn: TurnSeq, incident: IncidentRow, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write("store an interruption of a turn", Scope::Many, move |c| {
            fence(c, claim, turn)?;
            incidents::put(c, turn, &incident, now_ms)
        }))
    }

    fn append_chunks(&self, claim: Claim, turn: TurnSeq, chunks: StreamBatch) -> BoxFuture<'_, Result<TurnWrite>> {
        Box::pin(self.write("store chunks of a turn", Scope::Many, move |c| {
            if !fence(c, claim, turn)? {
                return Ok(TurnWrite::NotRunning);
            }
            streams::append_of_turn(c, turn, &chunks)?;
            // It has come further.
            rows::forget_deaths(c, claim.fiber)?;
            Ok(TurnWrite::Done)
        }))
    }

    fn stash_turn(&self, claim: Claim, turn: TurnSeq, stash: String) -> BoxFuture<'_, Result<TurnWrite>> {
        Box::pin(self.write("store the stash of a turn", Scope::Many, move |c| {
            if !fence(c, claim, turn)? {
                return Ok(TurnWrite::NotRunning);
            }
            let stored = c.prepare_cached("UPDATE turn_requests SET stash = ?2 WHERE turn = ?1")?.execute(params![turn, stash])?;
            Ok(done(stored))
        }))
    }

    fn settle_turn(&self, by: TurnSettler, turn: TurnSeq, how: TurnSettlement) -> BoxFuture<'_, Result<TurnWrite>> {
        Box::pin(self.write("store how a turn ended", Scope::Many, move |c| match by {
            TurnSettler::Activation(claim) => {
                fence(c, claim, turn)?;
                settle(c, turn, &how)
            }
            TurnSettler::Other if has_fiber(c, turn)? => Ok(TurnWrite::HasFiber),
            TurnSettler::Other => settle(c, turn, &how),
        }))
    }

    fn cancel_turn(&self, turn: TurnSeq, reason: String, now_ms: i64) -> BoxFuture<'_, Result<Option<TurnRow>>> {
        Box::pin(self.write_ready("cancel a turn", move |c, notices| {
            c.prepare_cached("UPDATE turns SET cancel = coalesce(cancel, ?2) WHERE seq = ?1 AND settled_ms IS NULL")?
                .execute(params![turn, reason])?;
            c.prepare_cached(
                "UPDATE turns SET state = 'aborted', reason = ?2, settled_ms = ?3 WHERE seq = ?1 AND state = 'queued' AND settled_ms IS NULL",
            )?
            .execute(params![turn, reason, now_ms])?;
            wake_parked(c, turn, now_ms, notices)?;
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

    fn turns(&self, chat: AgentId, which: TurnFilter, after: TurnSeq, limit: u32) -> BoxFuture<'_, Result<Vec<TurnRow>>> {
        Box::pin(self.read("list turns", move |c| turns::list(c, &chat, &which, after, limit)))
    }

    fn all_turns(&self, before: Option<TurnSeq>, limit: u32) -> BoxFuture<'_, Result<Vec<TurnRow>>> {
        Box::pin(self.read("list the turns of all chats", move |c| turns::all(c, before, limit)))
    }

    fn failed_turns(&self, before: Option<TurnSeq>, limit: u32) -> BoxFuture<'_, Result<Vec<TurnRow>>> {
        Box::pin(self.read("list failed turns", move |c| turns::failed(c, before, limit)))
    }

    fn turn_fiber(&self, turn: TurnSeq) -> BoxFuture<'_, Result<Option<FiberState>>> {
        Box::pin(self.read("find the fiber of a turn", move |c| {
            let state: Option<String> = c
                .prepare_cached("SELECT f.state FROM turns t JOIN fibers f ON f.seq = t.fiber WHERE t.seq = ?1")?
                .query_row([turn], |row| row.get(0))
                .optional()?;
            Ok(state.and_then(|state| state.parse().ok()))
        }))
    }

    fn turn_request(&self, turn: TurnSeq) -> BoxFuture<'_, Result<TurnRequest>> {
        Box::pin(self.read("load what a turn was asked with", move |c| request(c, turn)))
    }

    fn chunks(&self, turn: TurnSeq, from: u64, limit: u32) -> BoxFuture<'_, Result<Vec<StreamBatch>>> {
        // The connection that writes knows which rows of the tail belong to a log.
        Box::pin(self.write("load chunks of a turn", Scope::Read, move |c| streams::read_of_turn(c, turn, from, limit)))
    }

    fn chat_messages(&self, chat: AgentId, up_to: i64) -> BoxFuture<'_, Result<Vec<MessageRow>>> {
        Box::pin(self.read("load the messages of a chat", move |c| {
            c.prepare_cached(
                "SELECT m.id, m.role, m.data, m.pending_ms FROM chats c JOIN chat_messages m ON m.chat = c.seq
                 WHERE c.class = ?1 AND c.agent = ?2 AND m.place <= ?3 ORDER BY m.place",
            )?
            .query_map(params![chat.class, chat.name, up_to], message_row)?
            .collect()
        }))
    }

    fn pending_interactions(
        &self,
        query: InteractionQuery,
        after: Option<InteractionCursor>,
        limit: u32,
    ) -> BoxFuture<'_, Result<Vec<InteractionRow>>> {
        Box::pin(self.read("list pending interactions", move |c| interactions::list(c, &query, after, limit)))
    }

    fn continuation_target(&self, chat: AgentId) -> BoxFuture<'_, Result<Option<String>>> {
        Box::pin(self.read("find what is to be continued", move |c| {
            c.prepare_cached("SELECT held FROM chats WHERE class = ?1 AND agent = ?2")?
                .query_row(params![chat.class, chat.name], |r| r.get(0))
                .optional()
                .map(Option::flatten)
        }))
    }

    fn want_continuation(&self, chat: AgentId, message: String) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write("store what is to be continued", Scope::Many, move |c| {
            find_chat(c, &chat)?.map_or(Ok(()), |chat| hold(c, chat, &message, true))
        }))
    }

    fn update_message(
        &self,
        chat: AgentId,
        change: MessageUpdate,
        wanted: bool,
        now_ms: i64,
    ) -> BoxFuture<'_, Result<Result<(), UpdateRefused>>> {
        Box::pin(self.write("store a message of a chat", Scope::Many, move |c| {
            let Some(chat) = find_chat(c, &chat)? else { return Ok(Err(UpdateRefused::Changed)) };
            let written = update(c, chat, &change, now_ms)?;
            if written.is_ok() {
                hold(c, chat, &change.message.id, wanted)?;
            }
            Ok(written)
        }))
    }

    fn replace_messages(&self, chat: AgentId, messages: Vec<MessageRow>, now_ms: i64) -> BoxFuture<'_, Result<bool>> {
        Box::pin(self.write("store the messages of a chat", Scope::Many, move |c| {
            let chat = chat_of(c, &chat)?;
            if under_way(c, chat)? {
                return Ok(false);
            }
            replace_all(c, chat, &messages, now_ms)?;
            Ok(true)
        }))
    }

    fn clear_chat(&self, chat: AgentId, now_ms: i64) -> BoxFuture<'_, Result<Vec<TurnRow>>> {
        Box::pin(self.write_ready("clear a chat", move |c, notices| {
            let ended = clear(c, &chat, now_ms)?;
            for turn in &ended {
                wake_parked(c, turn.seq, now_ms, notices)?;
            }
            Ok(ended)
        }))
    }

    fn orphaned_turns(&self) -> BoxFuture<'_, Result<Vec<TurnSeq>>> {
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

    fn compact_turns(&self, before_ms: i64, limit: u32) -> BoxFuture<'_, Result<u64>> {
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
        Box::pin(self.write("delete turns", Scope::Many, move |c| turns::delete(c, before_ms, limit)))
    }

    fn has_far_turns(&self, now_ms: i64, slack_ms: i64) -> BoxFuture<'_, Result<bool>> {
        Box::pin(self.read("find turns that are far ahead", move |c| turns::any_far(c, now_ms, slack_ms)))
    }

    fn correct_turns(&self, now_ms: i64, slack_ms: i64) -> BoxFuture<'_, Result<u64>> {
        Box::pin(self.write("correct turns that are far ahead", Scope::Many, move |c| turns::correct(c, now_ms, slack_ms)))
    }
}

/// Takes back the deaths of turns that are running: at a clean close the process has not died.
pub(super) fn close(conn: &Connection) -> rusqlite::Result<()> {
    conn.execute(
        "UPDATE turns INDEXED BY turns_open SET deaths = max(deaths - 1, 0)
         WHERE settled_ms IS NULL AND state = 'running' AND EXISTS (SELECT 1 FROM fibers WHERE seq = turns.fiber AND state <> 'parked')",
        (),
    )
    .map(drop)
}

fn done(changed: usize) -> TurnWrite {
    if changed == 0 { TurnWrite::NotRunning } else { TurnWrite::Done }
}
