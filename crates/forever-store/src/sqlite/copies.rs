//! Copies of fibers, and changes of what a stopped fiber has stored.
use rusqlite::params;

use super::conn::Conn;
use super::{claims, histories, layouts, messages, ops, recent_items, rows, snapshot_rows, streams, topics};
use crate::{
    AcceptResult, CommandResult, CommitNotices, FiberCopy, FiberEdit, FiberRef, FiberState, HISTORY, LayoutRow, NewFiber, SnapshotDelta,
};

pub(super) fn import(conn: &Conn, copy: &FiberCopy, notices: &mut CommitNotices) -> rusqlite::Result<AcceptResult> {
    let accepted = rows::accept(conn, &NewFiber { worker: None, ..copy.fiber.clone() })?;
    let AcceptResult::Created(claim) = accepted else { return Ok(accepted) };
    let (seq, now_ms) = (claim.fiber, copy.fiber.now_ms);
    conn.prepare_cached("UPDATE fibers SET state = ?2, reason = ?3, result = ?4, restarts = ?5, finished_ms = ?6 WHERE seq = ?1")?
        .execute(params![seq, copy.state.as_str(), copy.reason, copy.result, copy.restarts, copy.state.is_final().then_some(now_ms)])?;
    conn.prepare_cached("UPDATE snapshots SET number = ?2 WHERE fiber = ?1")?.execute(params![seq, copy.number.cast_signed()])?;
    if let Some(snapshot) = &copy.snapshot {
        layouts::save(conn, snapshot.layout.iter().chain(&snapshot.callees))?;
        conn.prepare_cached("UPDATE snapshots SET at = ?2, data = ?3, layout = ?4, callees = ?5, saved_ms = ?6 WHERE fiber = ?1")?
            .execute(params![
                seq,
                snapshot.at,
                snapshot.data,
                snapshot.layout.as_ref().map(|layout| &layout.hash),
                LayoutRow::hashes(&snapshot.callees),
                now_ms
            ])?;
    }
    copy.ops.iter().try_for_each(|op| ops::save(conn, seq, op, now_ms))?;
    copy.branches.iter().try_for_each(|branch| rows::insert_branch(conn, seq, copy.number, branch))?;
    // A record of an operation that has ended deletes its log, so streams come after them.
    for items in &copy.streams {
        match items.first {
            Some(_) if items.name != HISTORY => streams::put_of_fiber(conn, seq, items, now_ms)?,
            _ => histories::append_whole(conn, seq, items, now_ms)?,
        }
    }
    copy.messages.iter().try_for_each(|message| messages::insert(conn, seq, &message.topic, &message.data, message.sent_ms))?;
    copy.closed.iter().try_for_each(|(topic, number)| topics::close(conn, seq, topic, *number))?;
    if copy.state.is_final() {
        streams::close_of_fiber(conn, seq)?;
    }
    if copy.state == FiberState::Completed {
        conn.prepare_cached("DELETE FROM snapshots WHERE fiber = ?1")?.execute([seq])?;
    }
    if copy.state == FiberState::Pending {
        notices.ready.extend(rows::runnable(conn, seq)?);
    }
    Ok(accepted)
}

pub(super) fn edit(conn: &Conn, edit: &FiberEdit) -> rusqlite::Result<CommandResult<bool>> {
    let seq = edit.seen.fiber;
    let Some(row) = rows::find(conn, &FiberRef::Seq(seq))? else { return Ok(CommandResult::NotFound) };
    if matches!(row.state, FiberState::Running | FiberState::Completed | FiberState::Cancelled) {
        return Ok(CommandResult::InvalidState(row.state));
    }
    if claims::claim_of(conn, seq)?.is_none_or(|stored| stored.epoch != edit.seen.epoch) {
        return Ok(CommandResult::Done(false));
    }
    if let Some(args) = &edit.args {
        conn.prepare_cached("UPDATE fibers SET args = ?2 WHERE seq = ?1")?.execute(params![seq, args])?;
    }
    if let Some(snapshot) = &edit.snapshot {
        conn.prepare_cached("UPDATE snapshots SET data = ?2 WHERE fiber = ?1")?.execute(params![seq, snapshot])?;
        let delta = SnapshotDelta { removed_parts: edit.removed_parts.clone(), ..SnapshotDelta::default() };
        snapshot_rows::change(conn, seq, &delta)?;
    }
    if edit.record.name == HISTORY {
        // The newest items stand in the row of the snapshot.
        recent_items::fold(conn, seq, None, edit.now_ms)?;
    }
    histories::append_whole(conn, seq, &edit.record, edit.now_ms)?;
    // An activation that has loaded the fiber as it was must not start with that.
    claims::void(conn, seq)?;
    Ok(CommandResult::Done(true))
}
