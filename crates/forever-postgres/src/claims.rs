//! Claims: which worker runs a fiber, and at which epoch.
//!
//! `@snapshots.worker` is set exactly while a fiber is `running`, and `@snapshots.epoch` is the
//! epoch of its claim. A write that is conditional on a claim locks that row first, in a statement
//! of its own, so that what it reads next is current and stays so until the end of the transaction.
//! Where the row in `@fibers` is locked as well, it is locked first.
use forever_store::{Claim, ClaimResult, End, Error, ErrorKind, FiberState, LoadedFiber, Seq, StoredClaim, WorkerId};

use crate::fibers;
use crate::sql::{Done, Fail, Tx, args};

/// The error of an operation whose claim is no longer in force.
pub(crate) fn lost(claim: Claim) -> Fail {
    let why = format!("the claim of fiber {} at epoch {} is no longer in force", claim.fiber, claim.epoch);
    Fail::Refused(Error::new(ErrorKind::ClaimLost, why))
}

/// Fails unless a claim is in force; it stays in force until the end of the transaction.
pub(crate) async fn check(tx: &Tx, claim: Claim) -> Done<()> {
    let sql = "SELECT 1 AS there FROM @snapshots WHERE fiber = $1 AND epoch = $2 FOR NO KEY UPDATE";
    tx.row(sql, args![claim.fiber, claim.epoch]).await?.map(drop).ok_or_else(|| lost(claim))
}

/// Fails unless a claim is in force and its fiber is running. A task of the program that outlives
/// its activation must not write any more.
pub(crate) async fn check_running(tx: &Tx, claim: Claim) -> Done<()> {
    let sql = "SELECT 1 AS there FROM @snapshots WHERE fiber = $1 AND epoch = $2 AND worker IS NOT NULL FOR NO KEY UPDATE";
    tx.row(sql, args![claim.fiber, claim.epoch]).await?.map(drop).ok_or_else(|| lost(claim))
}

/// As [`check`], for an operation that changes the state of the fiber: locks its row in `@fibers`
/// too.
pub(crate) async fn hold(tx: &Tx, claim: Claim) -> Done<()> {
    let sql = "SELECT 1 AS there FROM @fibers f JOIN @snapshots s ON s.fiber = f.seq WHERE f.seq = $1 AND s.epoch = $2
               FOR NO KEY UPDATE OF f, s";
    tx.row(sql, args![claim.fiber, claim.epoch]).await?.map(drop).ok_or_else(|| lost(claim))
}

/// The epoch and the worker of a fiber; `None` once it has completed. A fiber whose row in
/// `@snapshots` is missing has epoch 0, and can only be parked.
pub(crate) async fn claim_of(tx: &Tx, fiber: Seq) -> Done<Option<StoredClaim>> {
    let sql = "SELECT coalesce(s.epoch, 0) AS epoch, s.worker FROM @fibers f LEFT JOIN @snapshots s ON s.fiber = f.seq
               WHERE f.seq = $1 AND (s.fiber IS NOT NULL OR f.finished_ms IS NULL)";
    tx.row(sql, args![fiber]).await?.map(|row| Ok(StoredClaim { epoch: row.int("epoch")?, worker: row.int_opt("worker")? })).transpose()
}

/// Releases the claims of fibers that stop running; without a claim nothing is changed.
///
/// The epoch is raised, so that a claim that rests on what was read while the fiber ran is refused.
pub(crate) async fn release(tx: &Tx, fibers: &[Seq]) -> Done<()> {
    let sql =
        "UPDATE @snapshots SET epoch = least(epoch, 9223372036854775806) + 1, worker = NULL WHERE fiber = ANY ($1) AND worker IS NOT NULL";
    tx.run(sql, args![fibers]).await.map(drop)
}

/// Voids the claims of fibers, by raising their epochs. That covers a claim that a worker is about
/// to take.
pub(crate) async fn void(tx: &Tx, fibers: &[Seq]) -> Done<()> {
    let sql = "UPDATE @snapshots SET epoch = least(epoch, 9223372036854775806) + 1 WHERE fiber = ANY ($1)";
    tx.run(sql, args![fibers]).await.map(drop)
}

pub(crate) async fn claim(tx: &Tx, seen: Claim, worker: WorkerId, now_ms: i64) -> Done<ClaimResult> {
    let sql = "SELECT f.state, f.cancel IS NOT NULL AS cancelled, s.worker,
                      (extract(epoch FROM s.leased_until - clock_timestamp()) * 1000)::bigint AS lease_left_ms FROM @fibers f JOIN @snapshots s ON s.fiber = f.seq
               WHERE f.seq = $1 AND s.epoch = $2 AND f.finished_ms IS NULL FOR NO KEY UPDATE OF f, s";
    let Some(row) = tx.row(sql, args![seen.fiber, seen.epoch]).await? else {
        let lost = "SELECT EXISTS (SELECT 1 FROM @fibers WHERE seq = $1 AND finished_ms IS NULL)
                           AND NOT EXISTS (SELECT 1 FROM @snapshots WHERE fiber = $1) AS its_snapshot";
        if tx.one(lost, args![seen.fiber]).await?.flag("its_snapshot")? {
            // It says what is wrong.
            fibers::load(tx, seen.fiber).await?;
        }
        return Ok(ClaimResult::Refused);
    };
    let free = match row.word::<FiberState>("state")? {
        FiberState::Pending | FiberState::Interrupted | FiberState::Parked => true,
        // The worker stopped its own fiber and could not store that; it may run the fiber again.
        FiberState::Running => row.int_opt("worker")? == Some(worker),
        _ => false,
    };
    if !free {
        return Ok(ClaimResult::Refused);
    }
    if row.flag("cancelled")? {
        void(tx, &[seen.fiber]).await?;
        let ended = fibers::finish(tx, seen.fiber, &End::Cancelled(String::new()), &[], now_ms).await?;
        return Ok(ended.map_or(ClaimResult::Refused, ClaimResult::Ended));
    }
    // Both rows are locked: what is read from here on stays as it is until the commit.
    let loaded = fibers::load(tx, seen.fiber).await?;
    let claim = Claim { epoch: seen.epoch.saturating_add(1), ..seen };
    tx.run("UPDATE @snapshots SET epoch = $2, worker = $3 WHERE fiber = $1", args![claim.fiber, claim.epoch, worker]).await?;
    tx.run(
        "UPDATE @fibers SET state = 'running', reason = NULL, hook_worker = NULL, changed_ms = $2 WHERE seq = $1",
        args![claim.fiber, now_ms],
    )
    .await?;
    let lease_left_ms = row.int_opt("lease_left_ms")?;
    Ok(ClaimResult::Granted(claim, Box::new(LoadedFiber { epoch: claim.epoch, lease_left_ms, ..loaded })))
}
