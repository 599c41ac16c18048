//! The ledger of operations.
use std::sync::Arc;

use forever_store::{
    Claim, CommandResult, FiberRef, FiberState, OpOutcome, OpRecord, OpRetry, OpRow, OpState, OpsDelta, ResolveOpResult, ResolvedOp, Seq,
    StreamAppend, op_stream,
};

use crate::sql::{Done, Row, Tx, args, refused};
use crate::{claims, fibers, layouts, streams};

const COLUMNS: &str =
    "o.id, o.kind, o.function, o.step, o.key, o.number, o.state, o.outcome, o.resolved, o.failed, o.stash, o.error, o.next_ms";

/// Condition: operation `o` may begin. It may not once it has completed, unless a person has said
/// so of it, whose value may not be readable. A trigger says the same.
pub(crate) const MAY_BEGIN: &str = "(o.state <> 'completed' OR o.resolved)";

/// Column `number` of manual operations.
const BY_HAND: i64 = -1;

/// Column `number` of an operation: the checkpoint after which it began, or [`BY_HAND`].
pub(crate) fn at(number: Option<u64>) -> i64 {
    number.map_or(BY_HAND, |number| i64::try_from(number).unwrap_or(i64::MAX))
}

/// Name of the stream of an operation's log, by the columns of `g`: what [`op_stream`] returns.
pub(crate) const STREAM: &str = "(CASE g.number WHEN -1 THEN 'op/' || g.id ELSE 'op/' || g.number || '/' || g.id END)";

fn record(row: &Row) -> Done<OpRecord> {
    Ok(OpRecord {
        id: row.text("id")?,
        kind: row.word("kind")?,
        function: row.text("function")?,
        step: row.text("step")?,
        key: row.text_opt("key")?,
        number: u64::try_from(row.int("number")?).ok(),
        state: row.word("state")?,
        outcome: row.text_opt("outcome")?,
        resolved: row.flag("resolved")?,
        failed: row.count("failed")?,
        retry: Option::zip(row.text_opt("error")?, row.int_opt("next_ms")?).map(|(error, next_ms)| OpRetry { error, next_ms }),
        stash: row.text_opt("stash")?,
        layout: None,
    })
}

pub(crate) async fn save(tx: &Tx, claim: Claim, op: &OpRecord, now_ms: i64) -> Done<()> {
    claims::check_running(tx, claim).await?;
    store(tx, claim.fiber, op, now_ms).await?;
    if op.stash.is_some() { fibers::forget_deaths(tx, claim.fiber).await } else { Ok(()) }
}

/// Stores an operation. One that has completed does not begin again.
pub(crate) async fn store(tx: &Tx, seq: Seq, op: &OpRecord, now_ms: i64) -> Done<()> {
    layouts::save(tx, op.layout.as_deref()).await?;
    let sql = format!(
        "INSERT INTO @ops AS o (fiber, number, id, kind, function, step, key, state, outcome, resolved, failed, stash, started_ms,
                                changed_ms, layout, error, next_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $13, $14, $15, $16)
         ON CONFLICT (fiber, number, id) DO UPDATE SET state = $8, outcome = $9, resolved = $10, failed = $11, stash = $12, changed_ms = $13,
                error = $15, next_ms = $16
         WHERE $8 <> 'started' OR {MAY_BEGIN}"
    );
    let stored = tx
        .run(
            &sql,
            args![
                seq,
                at(op.number),
                &op.id,
                op.kind.as_str(),
                &op.function,
                &op.step,
                &op.key,
                op.state.as_str(),
                &op.outcome,
                op.resolved,
                op.failed,
                &op.stash,
                now_ms,
                op.layout.as_ref().map(|layout| &layout.hash),
                op.retry.as_ref().map(|retry| &retry.error),
                op.retry.as_ref().map(|retry| retry.next_ms),
            ],
        )
        .await?;
    if stored == 0 {
        return refused(format!("operation `{}` has completed, and does not begin again", op.id));
    }
    if op.state == OpState::Started { Ok(()) } else { forget_log(tx, seq, op.number, &op.id).await }
}

pub(crate) async fn append_log(tx: &Tx, claim: Claim, op: &OpRecord, items: &[String], now_ms: i64) -> Done<()> {
    claims::check_running(tx, claim).await?;
    store(tx, claim.fiber, op, now_ms).await?;
    if !items.is_empty() {
        let name = op_stream(op.number, &op.id).into();
        let append = StreamAppend { name, first: None, count: items.len() as u64, data: items.join("\n"), keep: None };
        streams::append(tx, claim.fiber, &[append], now_ms).await?;
    }
    fibers::forget_deaths(tx, claim.fiber).await
}

async fn forget_log(tx: &Tx, seq: Seq, number: Option<u64>, id: &str) -> Done<()> {
    streams::delete_one(tx, seq, &op_stream(number, id)).await
}

pub(crate) async fn load(tx: &Tx, seq: Seq, id: &str) -> Done<Option<OpRecord>> {
    let sql = format!("SELECT {COLUMNS} FROM @ops o WHERE o.fiber = $1 AND o.number = $2 AND o.id = $3");
    tx.row(&sql, args![seq, BY_HAND, id]).await?.as_ref().map(record).transpose()
}

pub(crate) async fn list(tx: &Tx, seq: Seq) -> Done<Vec<OpRow>> {
    let sql = format!(
        "SELECT {COLUMNS}, o.started_ms, o.changed_ms FROM @ops o WHERE o.fiber = $1 AND o.kind IN ('effect', 'op')
         ORDER BY o.started_ms, o.number, o.id COLLATE \"C\""
    );
    let row = |row: &Row| Ok(OpRow { record: record(row)?, started_ms: row.int("started_ms")?, changed_ms: row.int("changed_ms")? });
    tx.rows(&sql, args![seq]).await?.iter().map(row).collect()
}

pub(crate) async fn find(tx: &Tx, id: &str) -> Done<Option<(Seq, OpRecord)>> {
    // Two fibers may have an operation of the same id; the fiber that has not completed is meant.
    let sql = format!(
        "SELECT {COLUMNS}, o.fiber FROM @ops o JOIN @fibers f ON f.seq = o.fiber WHERE o.id = $1 AND o.kind IN ('effect', 'op')
         ORDER BY f.state = 'completed', o.fiber LIMIT 1"
    );
    tx.row(&sql, args![id]).await?.map(|row| Ok((row.int("fiber")?, record(&row)?))).transpose()
}

/// The operations that a fiber began after checkpoint `number`.
pub(crate) async fn since(tx: &Tx, seq: Seq, number: u64) -> Done<Vec<OpRecord>> {
    let sql = format!(
        "SELECT {COLUMNS}, {} FROM @ops o LEFT JOIN @layouts l ON l.hash = o.layout WHERE o.fiber = $1 AND o.number = $2
         ORDER BY o.id COLLATE \"C\"",
        layouts::COLUMNS
    );
    let row = |row: &Row| Ok(OpRecord { layout: layouts::of(row)?.map(Arc::new), ..record(row)? });
    tx.rows(&sql, args![seq, at(Some(number))]).await?.iter().map(row).collect()
}

/// Stores the outcomes of operations with the checkpoint after `number`, and deletes temporary
/// operations.
pub(crate) async fn pass(tx: &Tx, seq: Seq, number: u64, ops: &OpsDelta, now_ms: i64) -> Done<()> {
    settle(tx, seq, &ops.settled, now_ms).await?;
    if ops.temporary { forget_temporary(tx, seq, number).await } else { Ok(()) }
}

pub(crate) async fn settle(tx: &Tx, seq: Seq, settled: &[OpOutcome], now_ms: i64) -> Done<()> {
    for op in settled {
        tx.run(
            "UPDATE @ops SET state = $4, outcome = $5, failed = 0, error = NULL, next_ms = NULL, stash = NULL, changed_ms = $6
             WHERE fiber = $1 AND number = $2 AND id = $3",
            args![seq, at(op.number), &op.id, op.state.as_str(), &op.outcome, now_ms],
        )
        .await?;
        forget_log(tx, seq, op.number, &op.id).await?;
    }
    Ok(())
}

/// The id of an operation of a fiber that is in doubt.
pub(crate) async fn in_doubt(tx: &Tx, seq: Seq) -> Done<Option<String>> {
    let sql = "SELECT id FROM @ops WHERE fiber = $1 AND kind IN ('effect', 'op') AND state = 'started' LIMIT 1";
    tx.row(sql, args![seq]).await?.map(|row| row.text("id")).transpose()
}

/// Deletes the operations that are stored only from checkpoint `number` to the next one.
pub(crate) async fn forget_temporary(tx: &Tx, seq: Seq, number: u64) -> Done<()> {
    let sql = format!(
        "WITH g AS (DELETE FROM @ops WHERE fiber = $1 AND number = $2 AND kind IN ('step', 'transaction') RETURNING number, id)
         DELETE FROM @stream_items i USING g WHERE i.fiber = $1 AND i.name = {STREAM}"
    );
    tx.run(&sql, args![seq, at(Some(number))]).await.map(drop)
}

/// As [`forget_temporary`], after the last checkpoints of fibers.
pub(crate) async fn forget_latest_temporary(tx: &Tx, fibers: &[Seq]) -> Done<()> {
    let sql = format!(
        "WITH g AS (DELETE FROM @ops o WHERE o.fiber = ANY ($1) AND o.kind IN ('step', 'transaction')
                    AND o.number = coalesce((SELECT s.number FROM @snapshots s WHERE s.fiber = o.fiber), 0) RETURNING o.fiber, o.number, o.id)
         DELETE FROM @stream_items i USING g WHERE i.fiber = g.fiber AND i.name = {STREAM}"
    );
    tx.run(&sql, args![fibers]).await.map(drop)
}

/// Gives the steps of a fiber that a person resumes all their attempts again.
pub(crate) async fn forget_attempts(tx: &Tx, seq: Seq) -> Done<()> {
    let sql = "UPDATE @ops SET failed = 0, error = NULL, next_ms = NULL WHERE fiber = $1 AND kind = 'step' AND state = 'started'";
    tx.run(sql, args![seq]).await.map(drop)
}

/// Deletes all operations of fibers. Their logs are streams of these.
pub(crate) async fn delete(tx: &Tx, fibers: &[Seq]) -> Done<()> {
    tx.run("DELETE FROM @ops WHERE fiber = ANY ($1)", args![fibers]).await.map(drop)
}

pub(crate) async fn resolve(tx: &Tx, seq: Seq, how: &ResolvedOp, now_ms: i64) -> Done<CommandResult<ResolveOpResult>> {
    let Some(fiber) = fibers::find_locked(tx, &FiberRef::Seq(seq)).await? else { return Ok(CommandResult::NotFound) };
    if matches!(fiber.state, FiberState::Pending | FiberState::Running) {
        return Ok(CommandResult::InvalidState(fiber.state));
    }
    let sql = format!("SELECT {COLUMNS} FROM @ops o WHERE o.fiber = $1 AND o.id = $2 AND o.kind IN ('effect', 'op') FOR UPDATE");
    let Some(op) = tx.row(&sql, args![seq, &how.id]).await?.as_ref().map(record).transpose()? else {
        return Ok(CommandResult::NotFound);
    };
    if op.state != OpState::Started {
        return Ok(CommandResult::Done(ResolveOpResult::Known(op.state)));
    }
    // An operation that runs again resumes from its stash.
    let stash = op.stash.filter(|_| how.state == OpState::NotExecuted);
    tx.run(
        "UPDATE @ops SET state = $4, outcome = $5, resolved = TRUE, stash = $6, changed_ms = $7 WHERE fiber = $1 AND number = $2 AND id = $3",
        args![seq, at(op.number), &op.id, how.state.as_str(), &how.outcome, &stash, now_ms],
    )
    .await?;
    if how.state != OpState::NotExecuted {
        forget_log(tx, seq, op.number, &op.id).await?;
    }
    if fiber.state == FiberState::Parked {
        fibers::make_ready(tx, seq, now_ms).await?;
    } else {
        // An activation that has loaded the operation as it was must not run on with that.
        claims::void(tx, &[seq]).await?;
    }
    Ok(CommandResult::Done(ResolveOpResult::Done))
}
