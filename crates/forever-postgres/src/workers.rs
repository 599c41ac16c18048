//! Workers: their leases, and what is done when one is gone.
//!
//! A worker is alive while its row in `@workers` is there and its lease, by the clock of the
//! database, has not run out. A worker with a direct connection holds an advisory lock on it as
//! well, which the server frees when the process dies: then others need not wait for the lease.
//! That a lock is missing says something only on the server that it was taken on; behind a restart
//! or a failover the lease decides alone.
//!
//! A worker that is taken for dead and is not loses its claims, because their epochs are raised,
//! and nothing else: it puts its row back.
use std::sync::Arc;
use std::time::Duration;

use forever_store::{Seq, WorkerId};

use crate::call::{Kind, Shared};
use crate::pool::{Access, Connection, backoff};
use crate::sql::{Arg, Done, Tx, args};
use crate::{agents, fibers, turns};

/// What tells one start of a server, on one timeline, from another.
const SERVER: &str = "(SELECT pg_postmaster_start_time()::text || ' ' || left(pg_walfile_name(pg_current_wal_lsn()), 8))";

/// Whether the worker `w` is alive. A key of 64 bits stands in `pg_locks` in two halves.
pub(crate) const ALIVE: &str = "(w.seen + w.lease_ms * INTERVAL '1 millisecond' > clock_timestamp()
    AND (w.lock IS NULL
         OR w.server IS DISTINCT FROM (SELECT pg_postmaster_start_time()::text || ' ' || left(pg_walfile_name(pg_current_wal_lsn()), 8))
         OR EXISTS (SELECT 1 FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
                    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
                    AND ((l.classid::bigint << 32) | l.objid::bigint) = w.lock)))";

/// How many claims are taken over in one statement.
const PAGE: i64 = 1000;

/// What the fibers of a worker that is gone become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Become {
    /// Interrupted: the caller looks for them.
    Interrupted,
    /// Ready for any worker, as far as no hook has to decide about them. A ready one that has a
    /// reason was interrupted: no other has one.
    Ready,
}

impl Become {
    /// The new state, in SQL. Those of agents, but for turns, wait for the hook of their agent, and
    /// closures for a person.
    fn state(self) -> &'static str {
        match self {
            Become::Interrupted => "'interrupted'",
            Become::Ready => "CASE WHEN closure OR agent IS NOT NULL AND name NOT LIKE 'forever.%' THEN 'interrupted' ELSE 'pending' END",
        }
    }
}

pub(crate) async fn join(tx: &Tx, lease: Duration, now_ms: i64) -> Done<WorkerId> {
    let lease_ms = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
    let worker = tx
        .one("INSERT INTO @workers (joined_ms, seen, lease_ms) VALUES ($1, clock_timestamp(), $2) RETURNING id", args![now_ms, lease_ms])
        .await?
        .int("id")?;
    take_over(tx, worker, now_ms, Become::Interrupted).await?;
    Ok(worker)
}

/// Takes over the claims of all workers that are gone.
pub(crate) async fn take_over(tx: &Tx, by: WorkerId, now_ms: i64, becomes: Become) -> Done<u64> {
    // One whose lease is renewed at this moment is looked at again, and stays.
    tx.run(&format!("DELETE FROM @workers w WHERE w.id <> $1 AND NOT {ALIVE}"), args![by]).await?;
    let left = "s.worker IS DISTINCT FROM $1 AND NOT EXISTS (SELECT 1 FROM @workers w WHERE w.id = s.worker)";
    release(tx, left, by, true, "the process died", now_ms, becomes).await
}

/// Ends the claims of a worker that closes.
pub(crate) async fn close(tx: &Tx, worker: WorkerId, now_ms: i64) -> Done<()> {
    agents::close(tx, worker).await?;
    turns::close(tx, worker).await?;
    tx.run("DELETE FROM @workers WHERE id = $1", args![worker]).await?;
    let others = tx.one(&format!("SELECT EXISTS (SELECT 1 FROM @workers w WHERE {ALIVE}) AS there"), args![]).await?.flag("there")?;
    // Others take them over at once; without any, the next open does.
    let becomes = if others { Become::Ready } else { Become::Interrupted };
    release(tx, "s.worker = $1", worker, false, "the runtime was closed", now_ms, becomes).await?;
    Ok(())
}

/// Ends claims; gives how many.
async fn release(tx: &Tx, which: &str, worker: WorkerId, count_death: bool, reason: &str, now_ms: i64, becomes: Become) -> Done<u64> {
    let page = format!(
        "SELECT f.seq FROM @fibers f JOIN @snapshots s ON s.fiber = f.seq
         WHERE f.state = 'running' AND f.state <> 'completed' AND {which} ORDER BY f.seq LIMIT $2 FOR NO KEY UPDATE OF f, s"
    );
    let state = becomes.state();
    let stop = format!(
        "UPDATE @fibers SET changed_ms = $3, state = {state}, reason = $2
         WHERE seq = ANY ($1) AND state = 'running' RETURNING seq, state"
    );
    let mut released = 0;
    loop {
        let rows = tx.rows(&page, args![worker, PAGE]).await?;
        let seqs: Vec<Seq> = rows.iter().map(|row| row.int("seq")).collect::<Done<_>>()?;
        if seqs.is_empty() {
            return Ok(released);
        }
        tx.run(
            "UPDATE @snapshots SET deaths = least(deaths, 4294967294) + $2, epoch = least(epoch, 9223372036854775806) + 1, worker = NULL
             WHERE fiber = ANY ($1)",
            args![&seqs, i64::from(count_death)],
        )
        .await?;
        let stopped = tx.rows(&stop, args![&seqs, reason, now_ms]).await?;
        released += stopped.len() as u64;
        let mut ready = Vec::new();
        for row in stopped {
            if row.text("state")? == "pending" {
                ready.push(row.int("seq")?);
            }
        }
        // Of its own, a worker that closes has nothing more to start.
        if count_death {
            let ready = fibers::runnable(tx, &ready).await?;
            tx.ready().extend(ready);
        }
        if rows.len() < usize::try_from(PAGE).unwrap_or(usize::MAX) {
            return Ok(released);
        }
    }
}

/// Renews the lease of a worker. One that was taken for dead puts its row back: its claims are
/// lost, and it goes on.
async fn beat(tx: &Tx, (worker, lease): &(WorkerId, Duration)) -> Done<()> {
    if tx.run("UPDATE @workers SET seen = clock_timestamp() WHERE id = $1", args![*worker]).await? > 0 {
        return Ok(());
    }
    tracing::warn!(worker, "this worker was taken for dead, and its claims were taken over");
    tx.run(
        "INSERT INTO @workers (id, joined_ms, seen, lease_ms)
         VALUES ($1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint, clock_timestamp(), $2) ON CONFLICT DO NOTHING",
        args![*worker, i64::try_from(lease.as_millis()).unwrap_or(i64::MAX)],
    )
    .await
    .map(drop)
}

/// Whether there is anything to take over.
async fn is_any_gone(tx: &Tx, by: WorkerId) -> Done<bool> {
    let sql = format!(
        "SELECT EXISTS (SELECT 1 FROM @workers w WHERE w.id <> $1 AND NOT {ALIVE})
                OR EXISTS (SELECT 1 FROM @fibers f JOIN @snapshots s ON s.fiber = f.seq
                           WHERE f.state = 'running' AND f.state <> 'completed' AND s.worker IS DISTINCT FROM $1
                                 AND NOT EXISTS (SELECT 1 FROM @workers w WHERE w.id = s.worker)) AS gone"
    );
    tx.one(&sql, args![by]).await?.flag("gone")
}

/// What the tasks of a worker go by.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    pub(crate) shared: Arc<Shared>,
    pub(crate) worker: WorkerId,
    pub(crate) lease: Duration,
    /// How often it looks for workers that are gone.
    pub(crate) look: Duration,
    /// Where it holds the lock that shows that it lives.
    pub(crate) direct: Option<Access>,
}

impl Watch {
    /// Renews the lease, for as long as the store is open.
    pub(crate) async fn renew(self) {
        while !self.shared.is_closed() {
            tokio::time::sleep(self.lease / 4).await;
            let args = (self.worker, self.lease);
            if let Err(error) = self.shared.carry_out("renew a lease", Kind::Write, &args, |tx, args| Box::pin(beat(tx, args))).await
                && !error.is_closed()
            {
                tracing::warn!(%error, "a lease could not be renewed");
            }
        }
    }

    /// Takes over from workers that are gone, for as long as the store is open.
    pub(crate) async fn take_over(self, strikes: Arc<std::sync::atomic::AtomicU32>) {
        while !self.shared.is_closed() {
            tokio::time::sleep(self.look).await;
            let looked =
                self.shared.carry_out("look for workers that are gone", Kind::Read, &self.worker, |tx, by| Box::pin(is_any_gone(tx, *by)));
            let taken = match looked.await {
                Ok(false) => continue,
                Ok(true) => {
                    let args = (self.worker, strikes.load(std::sync::atomic::Ordering::Relaxed));
                    let work = self.shared.carry_out("take over from workers that are gone", Kind::Write, &args, |tx, args| {
                        Box::pin(take_over_all(tx, args.0, args.1))
                    });
                    work.await
                }
                Err(error) => Err(error),
            };
            match taken {
                Ok(fibers) => tracing::info!(fibers, "took over from workers that are gone"),
                Err(error) if error.is_closed() => return,
                Err(error) => tracing::warn!(%error, "workers that are gone could not be looked for"),
            }
        }
    }

    /// Holds the lock that shows that the worker lives, for as long as the store is open.
    pub(crate) async fn show_life(self) {
        let Some(direct) = &self.direct else { return };
        let mut failed = 0;
        while !self.shared.is_closed() {
            match self.hold(direct).await {
                Ok((connection, key)) => {
                    failed = 0;
                    connection.lost().await;
                    // Others must not go by the lock until there is one again.
                    let args = (self.worker, key);
                    let forgotten = self.shared.carry_out("give up a lock", Kind::Write, &args, |tx, (worker, key)| {
                        Box::pin(async move {
                            tx.run("UPDATE @workers SET lock = NULL WHERE id = $1 AND lock = $2", args![*worker, *key]).await
                        })
                    });
                    if let Err(error) = forgotten.await {
                        tracing::debug!(%error, "a lock was lost");
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "the direct connection failed");
                    tokio::time::sleep(backoff(failed)).await;
                    failed = failed.saturating_add(1);
                }
            }
        }
    }

    async fn hold(&self, direct: &Access) -> std::result::Result<(Connection, i64), tokio_postgres::Error> {
        let connection = direct.connect().await?;
        // Positive, as its halves are in `pg_locks`.
        let key = i64::from_le_bytes(uuid::Uuid::new_v4().as_bytes()[..8].try_into().unwrap_or_default()) & i64::MAX;
        connection.query("SELECT pg_advisory_lock($1)::text AS locked", &[Arg::from(key)]).await?;
        let sql = format!("UPDATE @workers SET lock = $2, server = {SERVER} WHERE id = $1");
        connection.execute(&sql, &[Arg::from(self.worker), Arg::from(key)]).await?;
        Ok((connection, key))
    }
}

async fn take_over_all(tx: &Tx, by: WorkerId, strikes: u32) -> Done<u64> {
    let now_ms = tx.one("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms", args![]).await?.int("now_ms")?;
    let fibers = take_over(tx, by, now_ms, Become::Ready).await?;
    if strikes > 0 {
        // No worker has this number: only those of workers that are gone.
        agents::recover(tx, strikes, 0).await?;
    }
    Ok(fibers)
}
