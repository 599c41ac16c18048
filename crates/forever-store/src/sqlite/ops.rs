//! The ledger of operations: its statements.
use std::sync::Arc;

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::claims;
use super::layouts;
use super::recent_ops::{self, Beginning};
use super::rows::{self, forget_deaths};
use super::streams;
use crate::{
    Claim, CommandResult, CommitNotices, FiberRef, FiberState, LayoutRow, OpKind, OpOutcome, OpRecord, OpRetry, OpRow, OpState,
    ResolveOpResult, ResolvedOp, Seq, StreamAppend, op_stream,
};

const COLUMNS: &str =
    "o.id, o.kind, o.function, o.step, o.key, o.number, o.state, o.outcome, o.resolved, o.failed, o.stash, o.error, o.next_ms";

fn record(row: &Row<'_>) -> rusqlite::Result<OpRecord> {
    let unknown = |what: String| rusqlite::Error::FromSqlConversionFailure(0, Type::Text, what.into());
    let kind = row.get_ref("kind")?.as_str()?;
    let kind =
        OpKind::ALL.into_iter().find(|k| k.as_str() == kind).ok_or_else(|| unknown(format!("`{kind}` is not a kind of operation")))?;
    Ok(OpRecord {
        id: row.get("id")?,
        kind,
        function: row.get("function")?,
        step: row.get("step")?,
        key: row.get("key")?,
        number: u64::try_from(row.get::<_, i64>("number")?).ok(),
        state: row.get_ref("state")?.as_str()?.parse::<OpState>().map_err(unknown)?,
        outcome: row.get("outcome")?,
        resolved: row.get("resolved")?,
        failed: row.get("failed")?,
        retry: Option::zip(row.get("error")?, row.get("next_ms")?).map(|(error, next_ms)| OpRetry { error, next_ms }),
        stash: row.get("stash")?,
        layout: None,
    })
}

/// Value of `number` for manual operations.
const BY_HAND: i64 = -1;

/// The stored value of an operation's number.
pub(super) fn at(number: Option<u64>) -> i64 {
    number.map_or(BY_HAND, |number| i64::try_from(number).unwrap_or(i64::MAX))
}

/// Begins an operation in the snapshot row, or stores it.
pub(super) fn save_claimed(
    conn: &Connection,
    claim: Claim,
    op: &OpRecord,
    in_row: Option<&Beginning>,
    now_ms: i64,
) -> rusqlite::Result<()> {
    if let Some(new) = in_row
        && recent_ops::begin(conn, claim, new)?
    {
        return Ok(());
    }
    claims::check_running(conn, claim)?;
    if let Some(new) = in_row {
        // The snapshot row may have had no room for it.
        recent_ops::fold(conn, claim.fiber)?;
        if recent_ops::begin(conn, claim, new)? {
            return Ok(());
        }
    }
    save(conn, claim.fiber, op, now_ms)?;
    if op.stash.is_some() { forget_deaths(conn, claim.fiber) } else { Ok(()) }
}

/// A manual operation.
pub(super) fn load(conn: &Connection, seq: Seq, id: &str) -> rusqlite::Result<Option<OpRecord>> {
    conn.prepare_cached(&format!("SELECT {COLUMNS} FROM ops o WHERE o.fiber = ?1 AND o.number = ?2 AND o.id = ?3"))?
        .query_row(params![seq, BY_HAND, id], record)
        .optional()
}

pub(super) fn append_log(conn: &Connection, claim: Claim, op: &OpRecord, items: &[String], now_ms: i64) -> rusqlite::Result<()> {
    claims::check_running(conn, claim)?;
    save(conn, claim.fiber, op, now_ms)?;
    if !items.is_empty() {
        let name = op_stream(op.number, &op.id).into();
        let append = StreamAppend { name, first: None, count: items.len() as u64, data: items.join("\n"), keep: None };
        streams::put_of_fiber(conn, claim.fiber, &append, now_ms)?;
    }
    forget_deaths(conn, claim.fiber)
}

/// The effects and manual operations of a fiber.
pub(super) fn list(conn: &Connection, seq: Seq) -> rusqlite::Result<Vec<OpRow>> {
    conn.prepare_cached(&format!(
        "SELECT {COLUMNS}, o.started_ms, o.changed_ms FROM op_ledger o WHERE o.fiber = ?1 AND o.kind IN ('effect', 'op')
         ORDER BY o.started_ms, o.number, o.id"
    ))?
    .query_map([seq], |r| Ok(OpRow { record: record(r)?, started_ms: r.get("started_ms")?, changed_ms: r.get("changed_ms")? }))?
    .collect()
}

/// The effect or manual operation with an id, and its fiber.
pub(super) fn find(conn: &Connection, id: &str) -> rusqlite::Result<Option<(Seq, OpRecord)>> {
    let text = recent_ops::with_id(id)?;
    let found = |fibers: &str| {
        let mut fibers = conn.prepare_cached(fibers)?;
        let mut fibers = fibers.query([id, text.as_str()])?;
        while let Some(fiber) = fibers.next()? {
            let fiber = fiber.get(0)?;
            if let Some(op) = in_ledger(conn, fiber, id)? {
                return Ok(Some((fiber, op)));
            }
        }
        Ok(None)
    };
    // Most lookups are for fibers that have not completed, of which there are few.
    let open = "SELECT f.seq FROM fibers f WHERE f.state <> 'completed'
                      AND (EXISTS (SELECT 1 FROM ops o WHERE o.fiber = f.seq AND o.id = ?1)
                           OR EXISTS (SELECT 1 FROM snapshots s WHERE s.fiber = f.seq AND instr(s.ops, ?2) > 0)
                           OR EXISTS (SELECT 1 FROM settled_ops o WHERE o.fiber = f.seq AND instr(o.ops, ?2) > 0))";
    match found(open)? {
        Some(there) => Ok(Some(there)),
        None => found("SELECT fiber FROM ops o WHERE o.id = ?1 UNION ALL SELECT fiber FROM settled_ops o WHERE instr(o.ops, ?2) > 0"),
    }
}

/// Operations that a fiber began since checkpoint `number`, whose snapshot has this layout.
pub(super) fn since(conn: &Connection, seq: Seq, number: u64, layout: Option<&LayoutRow>) -> rusqlite::Result<Vec<OpRecord>> {
    let mut since = recent_ops::since(conn, seq, number, layout)?;
    let sql = format!(
        "SELECT {COLUMNS}, {} FROM ops o LEFT JOIN layouts l ON l.hash = o.layout WHERE o.fiber = ?1 AND o.number = ?2",
        layouts::COLUMNS
    );
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query(params![seq, at(Some(number))])?;
    while let Some(row) = rows.next()? {
        since.push(OpRecord { layout: layouts::of(row)?.map(Arc::new), ..record(row)? });
    }
    Ok(since)
}

/// Stores an operation. One that has completed does not begin again, unless a person has said so of
/// it, whose value may not be readable.
pub(super) fn save(conn: &Connection, seq: Seq, op: &OpRecord, now_ms: i64) -> rusqlite::Result<()> {
    if op.kind == OpKind::Effect {
        recent_ops::unfold(conn, seq, op)?;
    }
    layouts::save(conn, op.layout.as_deref())?;
    let stored = conn.prepare_cached(
        "INSERT INTO ops (fiber, number, id, kind, function, step, key, state, outcome, resolved, failed, stash, started_ms, changed_ms,
                          layout, error, next_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?13, ?14, ?15, ?16)
         ON CONFLICT DO UPDATE SET state = ?8, outcome = ?9, resolved = ?10, failed = ?11, stash = ?12, changed_ms = ?13,
                                    error = ?15, next_ms = ?16
         WHERE ?8 <> 'started' OR ops.state <> 'completed' OR ops.resolved",
    )?
    .execute(params![
        seq,
        at(op.number),
        op.id,
        op.kind.as_str(),
        op.function,
        op.step,
        op.key,
        op.state.as_str(),
        op.outcome,
        op.resolved,
        op.failed,
        op.stash,
        now_ms,
        op.layout.as_ref().map(|layout| &layout.hash),
        op.retry.as_ref().map(|retry| &retry.error),
        op.retry.as_ref().map(|retry| retry.next_ms)
    ])?;
    if stored == 0 {
        let why = format!("operation `{}` has completed, and does not begin again", op.id);
        return Err(rusqlite::Error::ToSqlConversionFailure(why.into()));
    }
    if op.state == OpState::Started { Ok(()) } else { forget_log(conn, seq, op.number, &op.id) }
}

fn forget_log(conn: &Connection, seq: Seq, number: Option<u64>, id: &str) -> rusqlite::Result<()> {
    streams::delete_of_fiber(conn, seq, &op_stream(number, id))
}

/// Stores the outcomes of operations that are in `ops`.
pub(super) fn settle(conn: &Connection, seq: Seq, settled: &[OpOutcome], now_ms: i64) -> rusqlite::Result<()> {
    for op in settled {
        conn.prepare_cached(
            "UPDATE ops SET state = ?4, outcome = ?5, failed = 0, error = NULL, next_ms = NULL, stash = NULL, changed_ms = ?6
             WHERE fiber = ?1 AND number = ?2 AND id = ?3",
        )?
        .execute(params![seq, at(op.number), op.id, op.state.as_str(), op.outcome, now_ms])?;
        forget_log(conn, seq, op.number, &op.id)?;
    }
    Ok(())
}

/// Id of an operation of the fiber that is in doubt, if there is one.
pub(super) fn in_doubt(conn: &Connection, seq: Seq) -> rusqlite::Result<Option<String>> {
    conn.prepare_cached("SELECT id FROM ops WHERE fiber = ?1 AND kind IN ('effect', 'op') AND state = 'started' LIMIT 1")?
        .query_row([seq], |r| r.get(0))
        .optional()
}

/// Deletes what is stored only from checkpoint `number` to the next one.
pub(super) fn forget_temporary(conn: &Connection, seq: Seq, number: u64) -> rusqlite::Result<()> {
    let ids: Vec<String> = conn
        .prepare_cached("DELETE FROM ops WHERE fiber = ?1 AND number = ?2 AND kind IN ('step', 'transaction') RETURNING id")?
        .query_map(params![seq, at(Some(number))], |r| r.get(0))?
        .collect::<Result<_, _>>()?;
    ids.iter().try_for_each(|id| forget_log(conn, seq, Some(number), id))
}

/// Gives the steps of a fiber that a person resumes all their attempts again.
pub(super) fn forget_attempts(conn: &Connection, seq: Seq) -> rusqlite::Result<()> {
    recent_ops::fold(conn, seq)?;
    conn.prepare_cached("UPDATE ops SET failed = 0, error = NULL, next_ms = NULL WHERE fiber = ?1 AND kind = 'step' AND state = 'started'")?
        .execute([seq])
        .map(drop)
}

/// An effect or a manual operation of a fiber.
fn in_ledger(conn: &Connection, seq: Seq, id: &str) -> rusqlite::Result<Option<OpRecord>> {
    conn.prepare_cached(&format!("SELECT {COLUMNS} FROM op_ledger o WHERE o.fiber = ?1 AND o.id = ?2 AND o.kind IN ('effect', 'op')"))?
        .query_row(params![seq, id], record)
        .optional()
}

pub(super) fn resolve(
    conn: &Connection,
    seq: Seq,
    how: &ResolvedOp,
    now_ms: i64,
    notices: &mut CommitNotices,
) -> rusqlite::Result<CommandResult<ResolveOpResult>> {
    let Some(fiber) = rows::find(conn, &FiberRef::Seq(seq))? else { return Ok(CommandResult::NotFound) };
    if matches!(fiber.state, FiberState::Pending | FiberState::Running) {
        return Ok(CommandResult::InvalidState(fiber.state));
    }
    recent_ops::fold(conn, seq)?;
    let Some(op) = in_ledger(conn, seq, &how.id)? else { return Ok(CommandResult::NotFound) };
    if op.state != OpState::Started {
        return Ok(CommandResult::Done(ResolveOpResult::Known(op.state)));
    }
    // An operation that is to run again keeps its stash.
    let stash = op.stash.filter(|_| how.state == OpState::NotExecuted);
    conn.prepare_cached(
        "UPDATE ops SET state = ?4, outcome = ?5, resolved = 1, stash = ?6, changed_ms = ?7 WHERE fiber = ?1 AND number = ?2 AND id = ?3",
    )?
    .execute(params![seq, at(op.number), op.id, how.state.as_str(), how.outcome, stash, now_ms])?;
    if how.state != OpState::NotExecuted {
        forget_log(conn, seq, op.number, &op.id)?;
    }
    if fiber.state == FiberState::Parked {
        notices.ready.extend(rows::make_ready(conn, seq, now_ms)?);
    } else {
        // An activation that has loaded the operation as it was must not start with it.
        claims::void(conn, seq)?;
    }
    Ok(CommandResult::Done(ResolveOpResult::Done))
}
