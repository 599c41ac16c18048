//! Runs the jobs that a worker has taken from its queue: the writes among them in one transaction,
//! of which one that fails takes back its own changes only.
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode};

use super::file_guard::{Fence, Kept};
use super::job::{Failure, Job, Scope};
use super::log::Log;
use super::pace::BUSY_TIMEOUT;
use super::sync::atomic::{AtomicBool, Ordering};
use super::worker::Witness;
use crate::error::Result;

/// A connection with what jobs need to run on it: held by one thread at a time.
pub(super) struct Served {
    /// The write-ahead log, of a connection that writes. Its copier is gone before the connection
    /// is closed.
    log: Option<Log>,
    conn: Connection,
    fence: Option<Fence>,
    /// Set by each commit that begins.
    commits: Option<Arc<AtomicBool>>,
    witness: Option<Arc<dyn Witness>>,
    /// Let go of after the connection.
    kept: Box<dyn Kept + Send>,
}

impl Served {
    pub(super) fn new(conn: Connection, log: Option<Log>, witness: Option<Arc<dyn Witness>>, kept: Box<dyn Kept + Send>) -> Self {
        let fence = log.is_some().then(Fence::default);
        let commits = log.as_ref().map(Log::commits);
        Served { log, conn, fence, commits, witness, kept }
    }

    /// Whether the next commit returns without a sync, and leaves no copy of the log to be made
    /// behind it.
    pub(super) fn commits_without_sync(&self) -> bool {
        self.log.as_ref().is_some_and(Log::commits_without_sync)
    }

    /// Counts the last commit. The log is copied later, by the thread that may wait for it.
    fn count_commit(&mut self) {
        if let Some(log) = &mut self.log {
            log.count();
        }
    }

    /// Copies the log if it has become long.
    pub(super) fn tidy(&mut self) {
        if self.is_there().is_ok()
            && let Some(log) = &mut self.log
        {
            log.tidy(&self.conn);
        }
    }

    /// Fails if there is nothing to read or write any more.
    pub(super) fn is_there(&self) -> Result<(), Failure> {
        self.kept.lost().map_or(Ok(()), |why| Err(Failure::Lost { why, committed: false }))
    }

    /// Fails if what is written now would be written into another's database.
    fn may_write(&self) -> Result<(), Failure> {
        self.fence.as_ref().map_or(Ok(()), |fence| fence.holds(&*self.kept, &self.conn))
    }

    /// Fails if what was committed is lost.
    fn has_stored(&self) -> Result<(), Failure> {
        self.fence.as_ref().map_or(Ok(()), |fence| fence.still_holds(&*self.kept, &self.conn, || self.settle_log()))
    }

    fn settle_log(&self) {
        if let Some(log) = &self.log {
            log.settle();
        }
    }

    /// No commit has begun.
    fn begins_nothing(&self) {
        if let Some(commits) = &self.commits {
            commits.store(false, Ordering::Relaxed);
        }
    }

    /// Why a transaction failed that began after [`begins_nothing`](Served::begins_nothing).
    fn failure(&self, why: rusqlite::Error) -> Failure {
        // What a job says of itself, it says behind its statement.
        let of_sqlite = matches!(why, rusqlite::Error::SqliteFailure(..));
        let began = of_sqlite && self.commits.as_ref().is_some_and(|commits| commits.load(Ordering::Relaxed));
        if began { Failure::Unknown(Arc::new(why)) } else { Failure::from(why) }
    }

    /// Leaves out the jobs that the witness does not let through; says whether there are any.
    pub(super) fn ends_before(&self, batch: &mut Vec<Box<dyn Job>>) -> bool {
        let Some(witness) = &self.witness else { return false };
        let writes: Vec<_> = batch.iter().filter(|job| job.scope().writes()).map(|job| job.what()).collect();
        let through = if writes.is_empty() { 0 } else { witness.begins(&writes) };
        let ends = through < writes.len();
        let mut before = 0;
        batch.retain(|job| {
            before += usize::from(job.scope().writes());
            !ends || before <= through
        });
        ends
    }

    /// So many writes are stored, and nobody has been answered.
    fn stored(&self, writes: usize) {
        if let Some(witness) = self.witness.as_ref().filter(|_| writes > 0) {
            witness.stored(self.log.as_ref().map(Log::pages).unwrap_or_default());
        }
    }
}

/// Runs the jobs and answers them. Reads need no transaction; the writes share one.
pub(super) fn run_batch(on: &Served, batch: &mut Vec<Box<dyn Job>>) {
    if let Err(lost) = on.is_there() {
        for job in batch.drain(..) {
            job.answer(Err(lost.clone()));
        }
        return;
    }
    for mut job in batch.extract_if(.., |job| job.scope() == Scope::Alone) {
        let ran = job.run(&on.conn).map_err(Failure::from);
        job.answer(ran);
    }
    let writes = batch.iter().filter(|j| j.scope().writes()).count();
    let single = batch.len() == 1 && batch[0].scope() == Scope::One;
    if writes == 0 || single {
        for mut job in batch.drain(..) {
            let ran = at_rest(&on.conn)
                .map_err(Failure::from)
                .and_then(|()| if writes > 0 { by_itself(on, job.as_mut()) } else { job.run(&on.conn).map_err(Failure::from) });
            // If it fails, it is tried again before the next job.
            let _ = at_rest(&on.conn);
            on.stored(writes);
            job.answer(ran);
        }
        return;
    }
    // Failures are rare, so the jobs are not kept apart until one of them has failed.
    let ran = together(on, batch, false).or_else(|lost| match lost {
        Lost::Job => together(on, batch, true),
        lost => Err(lost),
    });
    match ran {
        Ok(outcomes) => {
            on.stored(writes);
            let stored = on.has_stored();
            for (job, outcome) in batch.drain(..).zip(outcomes) {
                job.answer(outcome.map_err(Failure::from).and_then(|()| stored.clone()));
            }
        }
        Err(Lost::Commit(why)) => {
            for job in batch.drain(..) {
                job.answer(Err(why.clone()));
            }
        }
        // One job cost the others their transaction: nothing of it is stored, so each tries again
        // by itself.
        Err(Lost::Job | Lost::Transaction) => {
            for mut job in batch.drain(..) {
                let ran = alone(on, job.as_mut());
                on.stored(usize::from(job.scope().writes()));
                job.answer(ran);
            }
        }
    }
}

/// Runs a job of the thread's own, which waits for no other process. `None` if another one writes
/// now: then nothing has been done.
pub(super) fn run_inline(on: &mut Served, job: &mut dyn Job) -> Option<Result<(), Failure>> {
    let waits = on.conn.busy_timeout(Duration::ZERO);
    let ran = waits.map_err(Failure::from).and_then(|()| run_alone(on, job));
    let _ = on.conn.busy_timeout(BUSY_TIMEOUT);
    on.count_commit();
    match ran {
        Err(Failure::Failed(why)) if is_busy(&why) => None,
        ran => Some(ran),
    }
}

fn run_alone(on: &Served, job: &mut dyn Job) -> Result<(), Failure> {
    on.is_there()?;
    at_rest(&on.conn)?;
    // The look behind the previous commit is at most 200 us old. A look before the statement would
    // leave a gap as well, and the epoch of the claim refuses a write into a database that has a
    // new owner.
    let ran = if job.scope() == Scope::One { one_statement(on, job) } else { alone(on, job) };
    // If it fails, it is tried again before the next job.
    let _ = at_rest(&on.conn);
    ran
}

fn is_busy(why: &rusqlite::Error) -> bool {
    matches!(why.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Ends a transaction that a job has left open: one whose own end has failed. Until then every read
/// would see the snapshot in which it began, and no write would be committed.
fn at_rest(conn: &Connection) -> rusqlite::Result<()> {
    if conn.is_autocommit() { Ok(()) } else { execute(conn, ROLLBACK) }
}

/// Why a transaction of several jobs came to nothing.
enum Lost {
    Commit(Failure),
    /// A job of several statements failed, and what it had changed cannot be told from what the
    /// others have.
    Job,
    Transaction,
}

/// Runs a statement, which is its own transaction.
fn by_itself(on: &Served, job: &mut dyn Job) -> Result<(), Failure> {
    on.may_write()?;
    one_statement(on, job)
}

fn one_statement(on: &Served, job: &mut dyn Job) -> Result<(), Failure> {
    on.begins_nothing();
    job.run(&on.conn).map_err(|why| on.failure(why))?;
    on.has_stored()
}

/// Runs the jobs in one transaction; with `savepoints`, one that fails takes back its own changes
/// only.
fn together(on: &Served, batch: &mut [Box<dyn Job>], savepoints: bool) -> Result<Vec<rusqlite::Result<()>>, Lost> {
    let conn = &on.conn;
    let failed = |e| Lost::Commit(Failure::from(e));
    on.begins_nothing();
    at_rest(conn).map_err(failed)?;
    execute(conn, BEGIN).map_err(failed)?;
    if let Err(why) = on.may_write() {
        let _ = execute(conn, ROLLBACK);
        return Err(Lost::Commit(why));
    }
    let several = batch.len() > 1;
    let mut outcomes = Vec::with_capacity(batch.len());
    for job in batch.iter_mut() {
        let many = several && job.scope() == Scope::Many;
        let ran = if many && savepoints { in_savepoint(conn, job.as_mut()) } else { job.run(conn) };
        if conn.is_autocommit() {
            return Err(Lost::Transaction);
        }
        if many && !savepoints && ran.is_err() {
            execute(conn, ROLLBACK).map_err(failed)?;
            return Err(Lost::Job);
        }
        if ran.is_err() && !several {
            // Alone in its transaction, it takes everything back with it.
            let _ = execute(conn, ROLLBACK);
        }
        outcomes.push(ran);
    }
    if !conn.is_autocommit()
        && let Err(why) = execute(conn, COMMIT)
    {
        if !conn.is_autocommit() {
            let _ = execute(conn, ROLLBACK);
        }
        // A constraint that is looked at when all is done: one of the program's tables, and one
        // job's fault.
        let one_is_at_fault = several && why.sqlite_error_code() == Some(ErrorCode::ConstraintViolation);
        return Err(if one_is_at_fault { Lost::Transaction } else { Lost::Commit(on.failure(why)) });
    }
    Ok(outcomes)
}

fn in_savepoint(conn: &Connection, job: &mut dyn Job) -> rusqlite::Result<()> {
    execute(conn, SAVEPOINT_JOB)?;
    let ran = job.run(conn);
    if conn.is_autocommit() {
        return ran;
    }
    let back = if ran.is_err() { execute(conn, ROLLBACK_TO_JOB) } else { Ok(()) };
    if back.and_then(|()| execute(conn, RELEASE_JOB)).is_err() {
        // It cannot be told apart from the others any more, so all of them begin anew.
        let _ = execute(conn, ROLLBACK);
    }
    ran
}

fn alone(on: &Served, job: &mut dyn Job) -> Result<(), Failure> {
    let conn = &on.conn;
    if !job.scope().writes() {
        return Ok(job.run(conn)?);
    }
    on.begins_nothing();
    at_rest(conn)?;
    execute(conn, BEGIN)?;
    let in_it = on.may_write().and_then(|()| Ok(job.run(conn)?));
    let ran = in_it.and_then(|()| execute(conn, COMMIT).map_err(|why| on.failure(why)));
    if ran.is_err() && !conn.is_autocommit() {
        let _ = execute(conn, ROLLBACK);
    }
    ran.and_then(|()| on.has_stored())
}

// Prepared statements are kept by their text, and code of the program may prepare statements too:
// it must not be given these.
const BEGIN: &str = "BEGIN IMMEDIATE /* forever */";
const COMMIT: &str = "COMMIT /* forever */";
const ROLLBACK: &str = "ROLLBACK /* forever */";
const SAVEPOINT_JOB: &str = "SAVEPOINT job /* forever */";
const ROLLBACK_TO_JOB: &str = "ROLLBACK TO job /* forever */";
const RELEASE_JOB: &str = "RELEASE job /* forever */";

pub(super) fn execute(conn: &Connection, sql: &str) -> rusqlite::Result<()> {
    conn.prepare_cached(sql)?.execute(()).map(drop)
}
