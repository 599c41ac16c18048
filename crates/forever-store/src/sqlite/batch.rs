//! Runs the jobs that a worker has taken from its queue. The writes share one transaction, and a
//! job that fails takes back only its own changes.
use std::sync::Arc;
use std::time::Duration;

use rusqlite::ErrorCode;

use super::answers::{answer, answer_all};
use super::conn::Conn;
use super::file_guard::{Fence, Kept};
use super::job::{Failure, Job, Scope};
use super::log::Log;
use super::pace::BUSY_TIMEOUT;
use super::sync::Handle;
use super::sync::atomic::{AtomicBool, Ordering};
use crate::error::Result;
use crate::witness::Witness;

/// A connection with everything that jobs need; one thread holds it at a time.
pub(super) struct Served {
    /// The write-ahead log, of a connection that writes. Its copier ends before the connection is
    /// closed.
    log: Option<Log>,
    conn: Conn,
    fence: Option<Fence>,
    /// Set by each commit that starts to write.
    commits: Option<Arc<AtomicBool>>,
    witness: Option<Arc<dyn Witness>>,
    /// Released after the connection.
    kept: Box<dyn Kept + Send>,
    answers_on: Option<Handle>,
}

impl Served {
    pub(super) fn new(
        conn: Conn,
        log: Option<Log>,
        witness: Option<Arc<dyn Witness>>,
        kept: Box<dyn Kept + Send>,
        answers_on: Option<Handle>,
    ) -> Self {
        let fence = log.is_some().then(Fence::default);
        let commits = log.as_ref().map(Log::commits);
        Served { log, conn, fence, commits, witness, kept, answers_on }
    }

    /// Whether the next commit returns without a sync, and the log needs no copy after it.
    pub(super) fn commits_without_sync(&self) -> bool {
        self.log.as_ref().is_some_and(Log::commits_without_sync)
    }

    /// Counts the last commit. The log is copied later, on a thread that can afford to wait.
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

    /// Fails if the database is lost.
    pub(super) fn is_there(&self) -> Result<(), Failure> {
        self.kept.lost().map_or(Ok(()), |why| Err(Failure::Lost { why, committed: false }))
    }

    /// Fails if a write would go into a database that has another owner.
    fn may_write(&self) -> Result<(), Failure> {
        self.fence.as_ref().map_or(Ok(()), |fence| fence.holds(&*self.kept, &self.conn))
    }

    /// Fails if the last commit is not in the files of the database.
    fn has_stored(&self) -> Result<(), Failure> {
        let header = self.log.as_ref().and_then(Log::earlier_header);
        self.fence.as_ref().map_or(Ok(()), |fence| fence.still_holds(&*self.kept, &self.conn, header, || self.settle_log()))
    }

    fn settle_log(&self) {
        if let Some(log) = &self.log {
            log.settle();
        }
    }

    /// Forgets any commit that has started.
    fn begins_nothing(&self) {
        if let Some(commits) = &self.commits {
            commits.store(false, Ordering::Relaxed);
        }
    }

    /// Why a transaction failed that ran after [`begins_nothing`](Served::begins_nothing).
    fn failure(&self, why: rusqlite::Error) -> Failure {
        // An error of the job itself comes after its statement.
        let of_sqlite = matches!(why, rusqlite::Error::SqliteFailure(..));
        let began = of_sqlite && self.commits.as_ref().is_some_and(|commits| commits.load(Ordering::Relaxed));
        if began { Failure::Unknown(Arc::new(why)) } else { Failure::from(why) }
    }

    /// Removes the jobs that the witness does not let through; returns whether there are any.
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

    /// Reports to the witness that so many writes are stored, before any caller has its answer.
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
            answer(job, Err(lost.clone()));
        }
        return;
    }
    for mut job in batch.extract_if(.., |job| job.scope() == Scope::Alone) {
        let ran = job.run(&on.conn).map_err(Failure::from);
        answer(job, ran);
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
            answer(job, ran);
        }
        return;
    }
    // Failures are rare, so jobs get savepoints only after one of them has failed.
    let ran = together(on, batch, false).or_else(|lost| match lost {
        Lost::Job => together(on, batch, true),
        lost => Err(lost),
    });
    match ran {
        Ok(outcomes) => {
            on.stored(writes);
            let stored = on.has_stored();
            let of = |outcome: rusqlite::Result<()>| outcome.map_err(Failure::from).and_then(|()| stored.clone());
            answer_all(batch.drain(..).zip(outcomes.into_iter().map(of)), on.answers_on.as_ref());
        }
        Err(Lost::Commit(why)) => {
            for job in batch.drain(..) {
                answer(job, Err(why.clone()));
            }
        }
        // One job cost the others their transaction. Nothing of it is stored, so each runs again by
        // itself.
        Err(Lost::Job | Lost::Transaction) => {
            for mut job in batch.drain(..) {
                let ran = alone(on, job.as_mut());
                on.stored(usize::from(job.scope().writes()));
                answer(job, ran);
            }
        }
    }
}

/// Runs a job on the caller's thread, without waiting for another process. `None` if another
/// process writes now: then nothing was done.
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
    // The last check of the files is at most 200 us old. A check before the statement would leave a
    // gap too, and the epoch of the claim refuses a write into a database that has a new owner.
    let ran = if job.scope() == Scope::One { one_statement(on, job) } else { alone(on, job) };
    // If it fails, it is tried again before the next job.
    let _ = at_rest(&on.conn);
    ran
}

fn is_busy(why: &rusqlite::Error) -> bool {
    matches!(why.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Ends a transaction that a job has left open because its own end failed. Otherwise every later
/// read would see the snapshot in which it began, and no write would be committed.
fn at_rest(conn: &Conn) -> rusqlite::Result<()> {
    conn.roll_back()
}

/// Why a transaction of several jobs was lost.
enum Lost {
    Commit(Failure),
    /// A job of several statements failed, and its changes cannot be separated from the others'.
    Job,
    Transaction,
}

/// Runs a job of one statement, which is its own transaction.
fn by_itself(on: &Served, job: &mut dyn Job) -> Result<(), Failure> {
    on.may_write()?;
    one_statement(on, job)
}

fn one_statement(on: &Served, job: &mut dyn Job) -> Result<(), Failure> {
    on.begins_nothing();
    job.run(&on.conn).map_err(|why| on.failure(why))?;
    on.has_stored()
}

/// Runs the jobs in one transaction. With `savepoints`, a job that fails takes back only its own
/// changes.
fn together(on: &Served, batch: &mut [Box<dyn Job>], savepoints: bool) -> Result<Vec<rusqlite::Result<()>>, Lost> {
    let conn = &on.conn;
    let failed = |e| Lost::Commit(Failure::from(e));
    on.begins_nothing();
    at_rest(conn).map_err(failed)?;
    conn.begin().map_err(failed)?;
    if let Err(why) = on.may_write() {
        let _ = conn.roll_back();
        return Err(Lost::Commit(why));
    }
    let several = batch.len() > 1;
    let mut outcomes = Vec::with_capacity(batch.len());
    for job in batch.iter_mut() {
        let many = several && job.scope() == Scope::Many;
        let ran = if many && savepoints { conn.in_savepoint(|| job.run(conn)) } else { job.run(conn) };
        if conn.is_autocommit() {
            let _ = conn.roll_back();
            return Err(Lost::Transaction);
        }
        if many && !savepoints && ran.is_err() {
            conn.roll_back().map_err(failed)?;
            return Err(Lost::Job);
        }
        if ran.is_err() && !several {
            // Alone in its transaction, it takes everything back.
            let _ = conn.roll_back();
        }
        outcomes.push(ran);
    }
    if !conn.is_autocommit()
        && let Err(why) = conn.commit()
    {
        let _ = conn.roll_back();
        // A deferred constraint, checked at the commit: it belongs to a table of the program, and
        // one job violated it.
        let one_is_at_fault = several && why.sqlite_error_code() == Some(ErrorCode::ConstraintViolation);
        return Err(if one_is_at_fault { Lost::Transaction } else { Lost::Commit(on.failure(why)) });
    }
    Ok(outcomes)
}

fn alone(on: &Served, job: &mut dyn Job) -> Result<(), Failure> {
    let conn = &on.conn;
    if !job.scope().writes() {
        return Ok(job.run(conn)?);
    }
    on.begins_nothing();
    at_rest(conn)?;
    conn.begin()?;
    let in_it = on.may_write().and_then(|()| Ok(job.run(conn)?));
    let ran = in_it.and_then(|()| conn.commit().map_err(|why| on.failure(why)));
    if ran.is_err() {
        let _ = conn.roll_back();
    }
    ran.and_then(|()| on.has_stored())
}
