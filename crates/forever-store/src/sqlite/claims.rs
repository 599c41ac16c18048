//! Claims: which worker runs a fiber, and at which epoch.
//!
//! A fiber is claimed while it is `running`: `snapshots.worker` names the worker and
//! `snapshots.epoch` the claim. Every write of an activation checks its epoch first, in its own
//! transaction.
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, params};

use super::conn::Conn;
use super::{recent_ops, rows};
use crate::error::{Error, ErrorKind};
use crate::{Claim, ClaimResult, CommitNotices, End, FiberState, LoadedFiber, Seq, StoredClaim, WorkerId};

/// The error of an operation whose claim is no longer in force.
pub(super) fn lost(claim: Claim) -> rusqlite::Error {
    let why = format!("the claim of fiber {} at epoch {} is no longer in force", claim.fiber, claim.epoch);
    rusqlite::Error::ToSqlConversionFailure(Box::new(Error::new(ErrorKind::ClaimLost, why)))
}

/// Fails unless a claim is in force.
pub(super) fn check(conn: &Connection, claim: Claim) -> rusqlite::Result<()> {
    if claim_of(conn, claim.fiber)?.is_some_and(|stored| stored.epoch == claim.epoch) { Ok(()) } else { Err(lost(claim)) }
}

/// Fails unless a claim is in force and its fiber is running. Tasks of the program may outlive an
/// activation, and must not write after it has stopped.
pub(super) fn check_running(conn: &Connection, claim: Claim) -> rusqlite::Result<()> {
    let runs = conn
        .prepare_cached(
            "SELECT 1 FROM snapshots s JOIN fibers f ON f.seq = s.fiber WHERE s.fiber = ?1 AND s.epoch = ?2 AND f.state = 'running'",
        )?
        .query_row(params![claim.fiber, claim.epoch], |_| Ok(()))
        .optional()?;
    runs.ok_or_else(|| lost(claim))
}

/// The epoch and the worker of a fiber; `None` once it has completed. Epoch 0 for a fiber whose row
/// in `snapshots` is gone: it can only be parked.
pub(super) fn claim_of(conn: &Connection, fiber: Seq) -> rusqlite::Result<Option<StoredClaim>> {
    const OF_SNAPSHOT: &str = "SELECT epoch, worker FROM snapshots WHERE fiber = ?1";
    const WITHOUT: &str = "SELECT 0, NULL FROM fibers WHERE seq = ?1 AND finished_ms IS NULL";
    for sql in [OF_SNAPSHOT, WITHOUT] {
        let found =
            conn.prepare_cached(sql)?.query_row([fiber], |row| Ok(StoredClaim { epoch: row.get(0)?, worker: row.get(1)? })).optional()?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Releases the claim of a fiber that stops running; without a claim nothing is changed.
///
/// The epoch is raised, so that a claim that rests on what was read while the fiber ran is refused.
pub(super) fn release_one(conn: &Connection, fiber: Seq) -> rusqlite::Result<()> {
    let sql = "UPDATE snapshots SET epoch = min(epoch, 9223372036854775806) + 1, worker = NULL WHERE fiber = ?1 AND worker IS NOT NULL";
    conn.prepare_cached(sql)?.execute([fiber]).map(drop)
}

/// Ends every claim of a fiber, also one that an activation is about to request.
pub(super) fn void(conn: &Connection, fiber: Seq) -> rusqlite::Result<()> {
    conn.prepare_cached("UPDATE snapshots SET epoch = min(epoch, 9223372036854775806) + 1 WHERE fiber = ?1")?.execute([fiber]).map(drop)
}

pub(super) fn claim(conn: &Conn, seen: Claim, worker: WorkerId, now_ms: i64, notices: &mut CommitNotices) -> rusqlite::Result<ClaimResult> {
    let row = conn
        .prepare_cached(
            "SELECT f.state, f.cancel IS NOT NULL, s.worker, s.ops IS NOT NULL FROM fibers f JOIN snapshots s ON s.fiber = f.seq
             WHERE f.seq = ?1 AND s.epoch = ?2 AND f.finished_ms IS NULL",
        )?
        .query_row(params![seen.fiber, seen.epoch], |r| Ok((rows::state(r)?, r.get(1)?, r.get::<_, Option<WorkerId>>(2)?, r.get(3)?)))
        .optional()?;
    let Some((state, cancelled, owner, has_ops)) = row else {
        let has_lost_its_snapshot: bool = conn
            .prepare_cached(
                "SELECT EXISTS (SELECT 1 FROM fibers WHERE seq = ?1 AND finished_ms IS NULL)
                        AND NOT EXISTS (SELECT 1 FROM snapshots WHERE fiber = ?1)",
            )?
            .query_row([seen.fiber], |r| r.get(0))?;
        // The load says what is wrong.
        return if has_lost_its_snapshot { rows::load(conn, seen.fiber).map(|_| ClaimResult::Refused) } else { Ok(ClaimResult::Refused) };
    };
    let free = match state {
        FiberState::Pending | FiberState::Interrupted | FiberState::Parked => true,
        // A worker that failed to store an interruption of its own fiber claims it again.
        FiberState::Running => owner == Some(worker),
        _ => false,
    };
    if !free {
        return Ok(ClaimResult::Refused);
    }
    if cancelled {
        void(conn, seen.fiber)?;
        let ended = rows::finish(conn, seen.fiber, &End::Cancelled(String::new()), &[], now_ms, notices)?;
        return Ok(ended.map_or(ClaimResult::Refused, ClaimResult::Ended));
    }
    if has_ops {
        // Effects that an earlier activation left. If the text is damaged, the load reports it.
        recent_ops::fold_readable(conn, seen.fiber)?;
    }
    let loaded = rows::load(conn, seen.fiber)?;
    let claim = Claim { epoch: seen.epoch.saturating_add(1), ..seen };
    conn.prepare_cached("UPDATE snapshots SET epoch = ?2, worker = ?3 WHERE fiber = ?1")?.execute(params![
        claim.fiber,
        claim.epoch,
        worker
    ])?;
    conn.prepare_cached("UPDATE fibers SET state = 'running', reason = NULL, changed_ms = ?2 WHERE seq = ?1")?
        .execute(params![claim.fiber, now_ms])?;
    Ok(ClaimResult::Granted(claim, Box::new(LoadedFiber { epoch: claim.epoch, ..loaded })))
}

pub(super) fn join(conn: &Connection, now_ms: i64) -> rusqlite::Result<WorkerId> {
    // A number is never given twice, and SQLite says of the greatest one that the disk is full.
    let last: i64 = conn.query_row("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'workers'", (), |r| r.get(0))?;
    let last = last.max(conn.query_row("SELECT coalesce(max(id), 0) FROM workers", (), |r| r.get(0))?);
    if last == i64::MAX {
        let why = format!("`workers` has the id {last}, which leaves none for this worker");
        return Err(rusqlite::Error::FromSqlConversionFailure(0, Type::Integer, why.into()));
    }
    conn.execute("INSERT INTO workers (joined_ms) VALUES (?1)", [now_ms])?;
    let worker = conn.last_insert_rowid();
    take_over(conn, worker, now_ms)?;
    Ok(worker)
}

/// A row without a snapshot cannot be claimed. It is marked `interrupted` all the same, and parked
/// when it is loaded.
pub(super) fn take_over(conn: &Connection, by: WorkerId, now_ms: i64) -> rusqlite::Result<()> {
    // A number at its maximum, written by hand, must not make the statement fail for all the
    // others.
    conn.execute(
        "UPDATE snapshots SET deaths = min(deaths, 4294967294) + 1, epoch = min(epoch, 9223372036854775806) + 1, worker = NULL
         WHERE fiber IN (SELECT seq FROM fibers WHERE state <> 'completed' AND state = 'running') AND worker IS NOT ?1",
        [by],
    )?;
    release(conn, by, false, "the process died", now_ms)?;
    conn.execute("DELETE FROM workers WHERE id <> ?1", [by]).map(drop)
}

/// Interrupts the fibers that a worker has claimed, and ends its claims, so that later writes of
/// their activations are refused.
pub(super) fn close(conn: &Connection, worker: WorkerId, now_ms: i64) -> rusqlite::Result<()> {
    let claimed: Vec<Seq> = conn
        .prepare(
            "SELECT f.seq FROM fibers f JOIN snapshots s ON s.fiber = f.seq
             WHERE f.state <> 'completed' AND f.state = 'running' AND s.worker = ?1",
        )?
        .query_map([worker], |r| r.get(0))?
        .collect::<Result<_, _>>()?;
    release(conn, worker, true, "the runtime was closed", now_ms)?;
    claimed.into_iter().try_for_each(|fiber| release_one(conn, fiber))
}

/// Marks running fibers as interrupted: those that `worker` has claimed, or those of all others.
fn release(conn: &Connection, worker: WorkerId, own: bool, reason: &str, now_ms: i64) -> rusqlite::Result<()> {
    conn.execute(
        "UPDATE fibers SET state = 'interrupted', reason = ?3, changed_ms = ?4
         WHERE state <> 'completed' AND state = 'running'
         AND (EXISTS (SELECT 1 FROM snapshots s WHERE s.fiber = fibers.seq AND s.worker = ?1)) = ?2",
        params![worker, own, reason, now_ms],
    )
    .map(drop)
}
