//! Copies of fibers, and changes of what a stopped fiber has stored.
use forever_store::{AcceptResult, CommandResult, FiberCopy, FiberEdit, FiberRef, FiberState, LayoutRow, NewFiber, SnapshotDelta};

use crate::notify::CHANGED;
use crate::sql::{Done, Tx, args};
use crate::{claims, fibers, layouts, messages, ops, snapshot_rows, streams, topics};

pub(crate) async fn import(tx: &Tx, copy: &FiberCopy) -> Done<AcceptResult> {
    let accepted = fibers::accept(tx, &NewFiber { worker: None, ..copy.fiber.clone() }).await?;
    let AcceptResult::Created(claim) = accepted else { return Ok(accepted) };
    let (seq, now_ms) = (claim.fiber, copy.fiber.now_ms);
    tx.run(
        "UPDATE @fibers SET state = $2, reason = $3, result = $4, restarts = $5, finished_ms = $6 WHERE seq = $1",
        args![seq, copy.state.as_str(), &copy.reason, &copy.result, i64::from(copy.restarts), copy.state.is_final().then_some(now_ms),],
    )
    .await?;
    tx.run("UPDATE @snapshots SET number = $2 WHERE fiber = $1", args![seq, copy.number]).await?;
    if let Some(snapshot) = &copy.snapshot {
        layouts::save(tx, snapshot.layout.iter().chain(&snapshot.callees)).await?;
        let callees = LayoutRow::hashes(&snapshot.callees);
        tx.run(
            "UPDATE @snapshots SET at = $2, data = $3, layout = $4, callees = $5, saved_ms = $6 WHERE fiber = $1",
            args![seq, &snapshot.at, &snapshot.data, snapshot.layout.as_ref().map(|layout| &layout.hash), &callees, now_ms],
        )
        .await?;
    }
    for op in &copy.ops {
        ops::store(tx, seq, op, now_ms).await?;
    }
    for branch in &copy.branches {
        fibers::insert_branch(tx, seq, copy.number, branch).await?;
    }
    // A record of an operation that has ended deletes its log, so streams come after them.
    streams::append(tx, seq, &copy.streams, now_ms).await?;
    for message in &copy.messages {
        messages::insert(tx, seq, &message.topic, &message.data, message.sent_ms).await?;
    }
    for (topic, number) in &copy.closed {
        topics::close(tx, seq, topic, *number).await?;
    }
    if copy.state == FiberState::Completed {
        tx.run("DELETE FROM @snapshots WHERE fiber = $1", args![seq]).await?;
    }
    if copy.state == FiberState::Pending {
        let ready = fibers::runnable(tx, &[seq]).await?;
        tx.ready().extend(ready);
    }
    tx.announce(CHANGED);
    Ok(accepted)
}

pub(crate) async fn edit(tx: &Tx, edit: &FiberEdit) -> Done<CommandResult<bool>> {
    let seq = edit.seen.fiber;
    let Some(row) = fibers::find_locked(tx, &FiberRef::Seq(seq)).await? else { return Ok(CommandResult::NotFound) };
    if matches!(row.state, FiberState::Running | FiberState::Completed | FiberState::Cancelled) {
        return Ok(CommandResult::InvalidState(row.state));
    }
    if claims::claim_of(tx, seq).await?.is_none_or(|stored| stored.epoch != edit.seen.epoch) {
        return Ok(CommandResult::Done(false));
    }
    if let Some(args) = &edit.args {
        tx.run("UPDATE @fibers SET args = $2 WHERE seq = $1", args![seq, args]).await?;
    }
    if let Some(snapshot) = &edit.snapshot {
        tx.run("UPDATE @snapshots SET data = $2 WHERE fiber = $1", args![seq, snapshot]).await?;
        let delta = SnapshotDelta { removed_parts: edit.removed_parts.clone(), ..SnapshotDelta::default() };
        snapshot_rows::change(tx, seq, &delta).await?;
    }
    streams::append(tx, seq, std::slice::from_ref(&edit.record), edit.now_ms).await?;
    // An activation that has loaded the fiber as it was must not start with that.
    claims::void(tx, &[seq]).await?;
    tx.announce(CHANGED);
    Ok(CommandResult::Done(true))
}
