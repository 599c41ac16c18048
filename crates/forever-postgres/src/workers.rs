//! Workers: leases, and takeover from those that are gone.
//!
//! A worker is alive while its row in `@workers` exists and its lease has not run out by the clock
//! of the database. A worker with a direct connection also holds an advisory lock on it, which the
//! server frees when the process dies, so that others do not have to wait for the lease. A missing
//! lock proves something only on the server on which it was taken: after a restart or a failover
//! only the lease counts.
//!
//! A worker that counts as dead and is alive loses its claims, because their epochs are raised, and
//! nothing else: it inserts its row again.
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forever_store::{Seq, WorkerId};
use tokio::time::Instant;

use crate::call::{Kind, Shared, Work};
use crate::lease::{self, OwnLease};
use crate::notify::CHANGED;
use crate::pool::{Access, Connection, backoff};
use crate::sql::{Arg, Done, Tx, args};
use crate::{agents, fibers, notify, published, requests, turns};

/// Identifies one start of a server on one timeline.
const SERVER: &str = "(SELECT pg_postmaster_start_time()::text || ' ' || left(pg_walfile_name(pg_current_wal_lsn()), 8))";

/// Whether the worker `w` is alive. `pg_locks` shows a 64-bit key in two halves.
///
/// While the server is down no lease can be renewed, so that time does not count.
pub(crate) const ALIVE: &str = "(greatest(w.seen, pg_postmaster_start_time()) + w.lease_ms * INTERVAL '1 millisecond' > clock_timestamp()
    AND (w.lock IS NULL
         OR w.server IS DISTINCT FROM (SELECT pg_postmaster_start_time()::text || ' ' || left(pg_walfile_name(pg_current_wal_lsn()), 8))
         OR EXISTS (SELECT 1 FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
                    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
                    AND ((l.classid::bigint << 32) | l.objid::bigint) = w.lock)))";

/// Most claims that one statement takes over.
const PAGE: i64 = 1000;

/// The state of fibers after their worker is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Become {
    /// Interrupted: the caller resumes them.
    Interrupted,
    /// Ready for any worker. Of ready fibers only those that were interrupted have a reason, by
    /// which a worker knows that the hook of an agent decides first.
    Ready,
}

impl Become {
    /// The new state, as SQL. Closures that no agent owns wait for a person.
    fn state(self) -> &'static str {
        match self {
            Become::Interrupted => "'interrupted'",
            Become::Ready => "CASE WHEN closure AND agent IS NULL THEN 'interrupted' ELSE 'pending' END",
        }
    }
}

/// Keeps other workers from joining or closing until the end of the transaction.
///
/// A worker that joins leaves alone what another one runs, and one that closes leaves its fibers to
/// those that it sees. Each sees the other only where one transaction follows the other. Within it
/// no row of a fiber is waited for, so that a locked row holds up neither.
async fn lock_membership(tx: &Tx) -> Done<()> {
    // A statement of its own, so that the next one sees what the holder before has committed. The
    // name of a schema may have quotes in it.
    let sql = "SELECT pg_advisory_xact_lock(hashtextextended($key$@workers$key$, 0))::text AS locked";
    tx.rows(sql, args![]).await.map(drop)
}

pub(crate) async fn join(tx: &Tx, lease: Duration, now_ms: i64) -> Done<WorkerId> {
    if !lease.is_zero() {
        lock_membership(tx).await?;
    }
    let lease_ms = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
    let worker = tx
        .one(
            "INSERT INTO @workers (joined_ms, seen, lease_ms, process, address)
             VALUES ($1, clock_timestamp(), $2, $3, host(inet_client_addr())) RETURNING id",
            args![now_ms, lease_ms, i64::from(std::process::id())],
        )
        .await?
        .int("id")?;
    let becomes = if lease.is_zero() { Become::Interrupted } else { Become::Ready };
    take_over(tx, worker, now_ms, becomes).await?;
    Ok(worker)
}

/// Takes over the claims of all workers that are gone.
pub(crate) async fn take_over(tx: &Tx, by: WorkerId, now_ms: i64, becomes: Become) -> Done<u64> {
    // The statement checks a worker whose lease is renewed concurrently again, and keeps it.
    let gone = format!(
        "DELETE FROM @workers w WHERE w.id <> $1 AND NOT {ALIVE}
         RETURNING w.id, (extract(epoch FROM w.seen) * 1000)::bigint + w.lease_ms AS until_ms, w.lease_ms > 0 AS has_lease"
    );
    let mut leases = (Vec::new(), Vec::new());
    for row in tx.rows(&gone, args![by]).await? {
        if row.flag("has_lease")? {
            leases.0.push(row.int("id")?);
            leases.1.push(row.int("until_ms")?);
        }
    }
    let left = "s.worker IS DISTINCT FROM $1 AND NOT EXISTS (SELECT 1 FROM @workers w WHERE w.id = s.worker)";
    release(tx, left, by, Some(&leases), "the process died", now_ms, becomes).await
}

/// Numbers of workers, and the ends of their leases by the clock of the database.
type Leases = (Vec<WorkerId>, Vec<i64>);

/// What a clean close has come to.
#[derive(Debug)]
pub(crate) struct Closed {
    /// Whether there are other workers, which run what was released.
    pub(crate) others: bool,
    /// Whether rows of the worker are left, because another transaction has locked them.
    pub(crate) is_locked: bool,
}

/// Ends the claims of a worker that closes, and its membership.
///
/// While one of its rows is locked the worker stays: its other fibers run elsewhere by then, and no
/// death of the fiber of that row is counted.
pub(crate) async fn close(tx: &Tx, worker: WorkerId, now_ms: i64) -> Done<Closed> {
    lock_membership(tx).await?;
    agents::close(tx, worker).await?;
    turns::close(tx, worker).await?;
    let others = format!("SELECT EXISTS (SELECT 1 FROM @workers w WHERE w.id <> $1 AND {ALIVE}) AS there");
    let others = tx.one(&others, args![worker]).await?.flag("there")?;
    // Other workers take over at once; without any, the next open does.
    let becomes = if others { Become::Ready } else { Become::Interrupted };
    release(tx, "s.worker = $1", worker, None, "the runtime was closed", now_ms, becomes).await?;
    let left = format!(
        "WITH locked AS (SELECT EXISTS (
             SELECT 1 FROM @fibers f JOIN @snapshots s ON s.fiber = f.seq WHERE f.state = 'running' AND f.state <> 'completed' AND s.worker = $1
             UNION ALL {} UNION ALL {}) AS is_locked),
         gone AS (DELETE FROM @workers WHERE id = $1 AND NOT (SELECT is_locked FROM locked))
         SELECT is_locked FROM locked",
        agents::LEFT_AT_CLOSE,
        turns::LEFT_AT_CLOSE
    );
    Ok(Closed { others, is_locked: tx.one(&left, args![worker]).await?.flag("is_locked")? })
}

/// Ends claims, and returns how many. With the leases of their workers, which are gone, deaths are
/// counted.
///
/// Those whose rows another transaction has locked are left for the next search, or for the next
/// attempt of a close, so that they do not hold up the others. The only worker has neither at its
/// open.
async fn release(tx: &Tx, which: &str, worker: WorkerId, deaths: Option<&Leases>, reason: &str, now_ms: i64, becomes: Become) -> Done<u64> {
    let count_death = deaths.is_some();
    let (of_workers, until_ms) = deaths.cloned().unwrap_or_default();
    let locked = if count_death && becomes == Become::Interrupted { "" } else { "SKIP LOCKED" };
    let page = format!(
        "SELECT f.seq FROM @fibers f JOIN @snapshots s ON s.fiber = f.seq
         WHERE f.state = 'running' AND f.state <> 'completed' AND {which} ORDER BY f.seq LIMIT $2 FOR NO KEY UPDATE OF f, s {locked}"
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
        // The lease of a worker whose row is deleted already is not known. One that began now would
        // end later.
        tx.run(
            "UPDATE @snapshots s SET deaths = least(deaths, 4294967294) + $2, epoch = least(epoch, 9223372036854775806) + 1, worker = NULL,
                    leased_until = CASE WHEN $2 > 0 THEN greatest(leased_until, coalesce(
                        (SELECT to_timestamp(l.until_ms / 1000.0) FROM unnest($3, $4) l (worker, until_ms) WHERE l.worker = s.worker),
                        (SELECT clock_timestamp() + w.lease_ms * INTERVAL '1 millisecond' FROM @workers w WHERE w.id = $5 AND w.lease_ms > 0)))
                        ELSE leased_until END
             WHERE fiber = ANY ($1)",
            args![&seqs, i64::from(count_death), &of_workers, &until_ms, worker],
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
        tx.announce(CHANGED);
        // A worker that closes starts nothing more.
        if count_death {
            let ready = fibers::runnable(tx, &ready).await?;
            tx.ready().extend(ready);
        }
        if rows.len() < usize::try_from(PAGE).unwrap_or(usize::MAX) {
            return Ok(released);
        }
    }
}

/// Renews the lease of a worker; returns whether it counted as dead. A worker that did inserts its
/// row again and continues without its claims.
async fn beat(tx: &Tx, (worker, lease, held): &(WorkerId, Duration, Option<Lock>)) -> Done<bool> {
    let (lock, server) = (held.as_ref().map(|held| held.key), held.as_ref().map(|held| held.server.as_str()));
    // With the lock that it holds: a lock that is lost must not count as a sign of death.
    let renewal = "UPDATE @workers SET seen = clock_timestamp(), lock = $2, server = $3 WHERE id = $1";
    if tx.run(renewal, args![*worker, lock, server]).await? > 0 {
        return Ok(false);
    }
    tracing::warn!(worker, "this worker was taken for dead, and its claims were taken over");
    tx.run(
        "INSERT INTO @workers (id, joined_ms, seen, lease_ms, process, address, lock, server)
         VALUES ($1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint, clock_timestamp(), $2, $3, host(inet_client_addr()), $4, $5)
         ON CONFLICT DO NOTHING",
        args![*worker, i64::try_from(lease.as_millis()).unwrap_or(i64::MAX), i64::from(std::process::id()), lock, server,],
    )
    .await
    .map(|_| true)
}

/// What a search for workers that are gone has found.
struct Search {
    /// Whether a worker is gone, or fibers of one are left to take over.
    gone: bool,
    /// Whether there is another worker.
    others: bool,
}

/// Looks for workers that are gone, and with `thorough` also for fibers and schedules of workers
/// without a row, for which it reads the claims of all that run.
async fn search(tx: &Tx, by: WorkerId, thorough: bool, strikes: u32) -> Done<Search> {
    let sql = format!(
        "SELECT EXISTS (SELECT 1 FROM @workers w WHERE w.id <> $1 AND NOT {ALIVE})
                OR $2 AND EXISTS (SELECT 1 FROM @fibers f JOIN @snapshots s ON s.fiber = f.seq
                           WHERE f.state = 'running' AND f.state <> 'completed' AND s.worker IS DISTINCT FROM $1
                                 AND NOT EXISTS (SELECT 1 FROM @workers w WHERE w.id = s.worker))
                OR $2 AND $3 > 0 AND EXISTS (SELECT 1 FROM @schedules s WHERE s.running_ms IS NOT NULL
                                 AND NOT EXISTS (SELECT 1 FROM @workers w WHERE w.id = s.worker)) AS gone,
                EXISTS (SELECT 1 FROM @workers w WHERE w.id <> $1) AS others"
    );
    let row = tx.one(&sql, args![by, thorough, strikes]).await?;
    Ok(Search { gone: row.flag("gone")?, others: row.flag("others")? })
}

/// A session lock that shows that a worker lives.
#[derive(Debug, Clone)]
pub(crate) struct Lock {
    key: i64,
    /// The server that it was taken on.
    server: String,
}

/// What the tasks of a worker need.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    pub(crate) shared: Arc<Shared>,
    /// The connections of calls, for a renewal that has none.
    pub(crate) of_calls: Arc<Shared>,
    pub(crate) worker: WorkerId,
    pub(crate) lease: Duration,
    /// Time between two searches for workers that are gone.
    pub(crate) look: Duration,
    /// How to open the connection whose lock shows that the worker lives.
    pub(crate) direct: Option<Access>,
    /// Name of the schema.
    pub(crate) schema: Arc<str>,
    /// The lock that the worker holds.
    pub(crate) held: Arc<Mutex<Option<Lock>>>,
    /// What this process knows of the lease.
    pub(crate) own: Arc<OwnLease>,
}

impl Watch {
    /// Renews the lease until the store is closed.
    pub(crate) async fn renew(self) {
        while !self.shared.is_closed() {
            tokio::time::sleep(self.lease / 4).await;
            if self.own.goes_on() {
                self.renew_once().await;
            }
        }
    }

    async fn renew_once(&self) {
        let asked = lease::now();
        let args = (self.worker, self.lease, self.held().clone());
        let renew: Work<_, bool> = |tx, args| Box::pin(beat(tx, args));
        let mut renewed = self.shared.carry_out("renew a lease", Kind::Write, &args, renew).await;
        if renewed.as_ref().is_err_and(|error| !error.is_closed()) {
            // The server may have no further connection for this worker.
            renewed = self.of_calls.carry_out("renew a lease", Kind::Write, &args, renew).await;
        }
        match renewed {
            Ok(was_lost) => {
                if was_lost {
                    self.shared.notices.fenced.store(true, Ordering::Relaxed);
                }
                self.own.renewed(asked, was_lost);
            }
            Err(error) if error.is_closed() => {}
            Err(error) => tracing::warn!(%error, "a lease could not be renewed"),
        }
    }

    fn held(&self) -> MutexGuard<'_, Option<Lock>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over from workers that are gone, until the store is closed.
    pub(crate) async fn take_over(self, strikes: Arc<std::sync::atomic::AtomicU32>) {
        let (mut next_thorough, mut again) = (Instant::now(), self.look);
        while !self.shared.is_closed() {
            tokio::time::sleep(self.look).await;
            // A worker that was taken for dead may claim fibers before it finds its row gone, and
            // may die before it does.
            let thorough = Instant::now() >= next_thorough;
            if thorough {
                next_thorough = Instant::now() + self.lease / 4;
            }
            if thorough {
                let cleaned = self.shared.carry_out("delete what no worker needs", Kind::Write, &(), |tx, ()| Box::pin(clean(tx)));
                if let Err(error) = cleaned.await {
                    tracing::debug!(%error, "old requests and published items could not be deleted");
                }
            }
            let strikes = strikes.load(Ordering::Relaxed);
            let args = (self.worker, thorough, strikes);
            // In a transaction the wait for a lock has a limit, also behind a pooler.
            let kind = if thorough { Kind::Snapshot } else { Kind::Read };
            let search: Work<(WorkerId, bool, u32), Search> = |tx, args| Box::pin(search(tx, args.0, args.1, args.2));
            let looked = self.shared.carry_out("look for workers that are gone", kind, &args, search).await;
            if let Ok(found) = &looked {
                self.shared.notices.has_others.store(found.others, Ordering::Relaxed);
            }
            let taken = match looked {
                Ok(Search { gone: false, .. }) => {
                    if thorough {
                        again = self.look;
                    }
                    continue;
                }
                Ok(Search { gone: true, .. }) => {
                    let args = (self.worker, strikes);
                    let work = self.shared.carry_out("take over from workers that are gone", Kind::Write, &args, |tx, args| {
                        Box::pin(take_over_all(tx, args.0, args.1))
                    });
                    work.await
                }
                Err(error) => Err(error),
            };
            match taken {
                Ok(fibers) => {
                    // Rows that were locked are left. The next search looks for them, and rarer
                    // ones do while they stay locked.
                    again = if fibers > 0 { self.look } else { (again * 2).min(self.lease / 4) };
                    next_thorough = Instant::now() + again;
                    tracing::info!(fibers, "took over from workers that are gone");
                }
                Err(error) if error.is_closed() => return,
                Err(error) => tracing::warn!(%error, "workers that are gone could not be looked for"),
            }
        }
    }

    /// Tells other workers of what this one has changed, until the store is closed.
    pub(crate) async fn announce(self) {
        while !self.shared.is_closed() {
            let kinds = self.shared.notices.outgoing().await;
            let args = (Arc::clone(&self.schema), self.worker, kinds);
            let sent = self.shared.carry_out("tell other workers of a change", Kind::Single, &args, |tx, args| {
                Box::pin(notify::send(tx, &args.0, args.1, args.2))
            });
            if let Err(error) = sent.await {
                // They find it at their next look.
                tracing::debug!(%error, "other workers were not told of a change");
            }
            tokio::time::sleep(notify::PAUSE).await;
        }
    }

    /// Holds the lock that shows that the worker lives, until the store is closed.
    pub(crate) async fn show_life(self) {
        let Some(direct) = &self.direct else { return };
        let mut failed = 0;
        while !self.shared.is_closed() {
            match self.hold(direct).await {
                Ok(connection) => {
                    failed = 0;
                    // What was changed before it listened.
                    self.shared.notices.receive(&format!("0 {CHANGED}"), self.worker);
                    connection.lost().await;
                    // Others may take over at once. With the renewal they go by the lease, until
                    // there is a new lock.
                    *self.held() = None;
                    self.own.doubt();
                    self.renew_once().await;
                }
                Err(error) => {
                    *self.held() = None;
                    tracing::debug!(%error, "the direct connection failed");
                    tokio::time::sleep(backoff(failed)).await;
                    failed = failed.saturating_add(1);
                }
            }
        }
    }

    async fn hold(&self, direct: &Access) -> std::result::Result<Connection, tokio_postgres::Error> {
        let (notices, worker) = (Arc::clone(&self.shared.notices), self.worker);
        let connection = direct.connect_and_listen(Some(Arc::new(move |payload| notices.receive(payload, worker)))).await?;
        // Positive, because `pg_locks` shows its two halves as unsigned numbers.
        let key = i64::from_le_bytes(uuid::Uuid::new_v4().as_bytes()[..8].try_into().unwrap_or_default()) & i64::MAX;
        connection.query("SELECT pg_advisory_lock($1)::text AS locked", &[Arg::from(key)]).await?;
        let server: String =
            connection.query(&format!("SELECT {SERVER} AS server"), &[]).await?.first().map_or_else(String::new, |row| row.get(0));
        *self.held() = Some(Lock { key, server: server.clone() });
        connection.execute("UPDATE @workers SET lock = $2, server = $3 WHERE id = $1", args![self.worker, key, &server]).await?;
        let channel = connection.query(&notify::channel(), args![&*self.schema]).await?;
        if let Some(channel) = channel.first().map(|row| row.get::<_, String>(0)) {
            connection.batch(&format!("LISTEN \"{channel}\"")).await?;
        }
        Ok(connection)
    }
}

/// Deletes requests to agents and published items that no worker needs any more.
async fn clean(tx: &Tx) -> Done<()> {
    requests::clean(tx).await?;
    published::clean(tx).await
}

async fn take_over_all(tx: &Tx, by: WorkerId, strikes: u32) -> Done<u64> {
    let now_ms = tx.one("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms", args![]).await?.int("now_ms")?;
    let fibers = take_over(tx, by, now_ms, Become::Ready).await?;
    if strikes > 0 {
        // No worker has id 0, so only the runs of workers that are gone are ended.
        agents::recover(tx, strikes, 0).await?;
    }
    Ok(fibers)
}
