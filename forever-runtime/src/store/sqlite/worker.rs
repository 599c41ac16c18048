//! The threads that talk to SQLite: one that writes, and for files one that reads.
//!
//! The writer takes everything that is queued, runs it in one transaction, commits once, and only then answers each caller.
//! So callers that come together share one sync of the disk, and one that comes alone waits for nobody. A job that fails
//! takes back its own changes only.
use std::cell::Cell;
use std::fmt;
use std::sync::{Arc, PoisonError};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode};
use tracing::warn;

use super::log::Log;
use super::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use super::sync::thread::JoinHandle;
use super::sync::{ANSWER_SPINS, Mutex, QUEUE, SPINS, hint, mpsc, oneshot, thread};
use crate::error::{Error, ErrorKind, Result};
use crate::fiber::frame::BoxFuture;

/// How often it looks before it lets another thread have its processor, which may be the one it looks out for.
const YIELD: u32 = 20;

/// What a job changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Nothing.
    Read,
    /// Nothing, and it is run by itself: no transaction may be open around it.
    Alone,
    /// One statement, which SQLite takes back by itself when it fails.
    One,
    /// Several statements, taken back together when one fails.
    Many,
}

impl Scope {
    fn writes(self) -> bool {
        matches!(self, Scope::One | Scope::Many)
    }
}

/// One who sees every commit, and may end everything around it: a test.
pub(crate) trait Witness: fmt::Debug + Send + Sync {
    /// These writes are to be carried out, in this order; says how many of them may be. The thread ends after those if they are not all.
    fn begins(&self, writes: &[&'static str]) -> usize;

    /// They are stored, and nobody has heard of it.
    fn stored(&self, log: Pages);

    /// Somebody asks for something, to read or to write.
    fn asked(&self);

    /// The answer is there; ready if it may be heard.
    fn hears(&self) -> BoxFuture<'_, ()>;

    /// Whoever asked has heard, or waits no longer.
    fn left(&self);
}

/// How long the write-ahead log is, in pages; 0 where there is none.
pub(crate) type Pages = u32;

type Answer<T> = oneshot::Sender<Result<T>>;

/// Something to do on a connection, possibly twice: a transaction that is lost is run again.
trait Job: Send {
    /// Completes "failed to ..".
    fn what(&self) -> &'static str;
    fn scope(&self) -> Scope;
    /// Runs it and keeps what came out.
    fn run(&mut self, conn: &Connection) -> rusqlite::Result<()>;
    /// Tells the caller: what came out, or why not.
    fn answer(self: Box<Self>, ran: Result<(), Failure>);
}

/// Why a job failed; a lost commit is the reason of many.
type Cause = Arc<rusqlite::Error>;

/// What became of a job that has no result.
#[derive(Debug, Clone)]
enum Failure {
    /// Nothing of it is stored, and nothing will be.
    Failed(Cause),
    /// Its commit failed. What it wrote is in the log in part or as a whole, and whoever reads the log next may find it there; whoever has
    /// it open does not, and writes over it with the next commit.
    Unknown(Cause),
    /// A file of the database is gone.
    Lost { why: Arc<str>, committed: bool },
}

impl Failure {
    fn error(self, what: &str) -> Error {
        match self {
            Failure::Failed(why) => Error::new(kind_of(&why), format!("failed to {what}")).because(why),
            Failure::Unknown(why) => {
                let text = format!("failed to {what}: the commit failed, and may be found stored at the next open");
                Error::new(ErrorKind::OutcomeUnknown, text).because(why)
            }
            Failure::Lost { why, committed } => {
                let kind = if committed { ErrorKind::OutcomeUnknown } else { ErrorKind::DatabaseLost };
                Error::new(kind, format!("failed to {what}: {why}"))
            }
        }
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(why: rusqlite::Error) -> Self {
        Failure::Failed(Arc::new(why))
    }
}

struct Call<T, F, A, U> {
    what: &'static str,
    scope: Scope,
    work: F,
    out: Option<T>,
    /// Runs behind the commit, before the caller is answered, also if the caller is gone.
    then: A,
    answer: Answer<U>,
}

impl<T, F, A, U> Job for Call<T, F, A, U>
where
    T: Send,
    F: FnMut(&Connection) -> rusqlite::Result<T> + Send,
    A: FnOnce(T) -> U + Send,
    U: Send,
{
    fn what(&self) -> &'static str {
        self.what
    }

    fn scope(&self) -> Scope {
        self.scope
    }

    fn run(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        self.out = Some((self.work)(conn)?);
        Ok(())
    }

    fn answer(self: Box<Self>, ran: Result<(), Failure>) {
        let answer = match (ran, self.out) {
            (Ok(()), Some(out)) => Ok((self.then)(out)),
            (Err(failure), _) => Err(failure.error(self.what)),
            (Ok(()), None) => Err(Error::new(ErrorKind::Store, format!("failed to {}: it was not run", self.what))),
        };
        // A caller that is gone needs no answer.
        let _ = self.answer.send(answer);
    }
}

/// A row that holds something else than it should is not the store's failure: to try again is no help.
fn kind_of(why: &rusqlite::Error) -> ErrorKind {
    match why {
        // A job that was refused says why with an error of ours.
        rusqlite::Error::ToSqlConversionFailure(why) => why.downcast_ref().map_or(ErrorKind::Store, Error::kind),
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::Utf8Error(..) => ErrorKind::Value,
        _ => ErrorKind::Store,
    }
}

/// A thread with a connection, and the queue to it.
pub(crate) struct Worker {
    queue: mpsc::Sender<Box<dyn Job>>,
    /// Whether answers come so soon that a caller looks out for its own.
    soon: bool,
    /// How many callers wait.
    callers: AtomicUsize,
    witness: Option<Arc<dyn Witness>>,
    stop: Arc<AtomicBool>,
    /// A place in the queue for what wakes the thread to stop: all others may be given to callers that do not go on.
    last: Mutex<Option<mpsc::OwnedPermit<Box<dyn Job>>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Closed when the thread has let go of everything.
    gone: Mutex<Option<oneshot::Receiver<()>>>,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("waiting", &(self.queue.max_capacity() - self.queue.capacity())).finish_non_exhaustive()
    }
}

impl Worker {
    /// Starts a thread around what `open` returns: a connection, and what is to be let go of after it.
    pub(crate) fn start<K: Kept + 'static>(
        name: &str,
        witness: Option<Arc<dyn Witness>>,
        open: impl FnOnce() -> Result<Held<K>> + Send + 'static,
    ) -> Result<(Self, Opened)> {
        let (queue, jobs) = mpsc::channel(QUEUE + 1);
        let last = Mutex::new(queue.clone().try_reserve_owned().ok());
        let (told, opened) = oneshot::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let (going, gone) = oneshot::channel::<()>();
        let of_caller = witness.clone();
        let work = move || {
            match open() {
                Err(why) => drop(told.send(Err(why))),
                Ok(Held { conn, log, kept }) => {
                    if told.send(Ok(())).is_ok() {
                        let fence = log.is_some().then(|| Fence::new(&kept));
                        let commits = log.as_ref().map(Log::commits);
                        serve(&Served { conn: &conn, kept: &kept, fence, commits, witness: witness.as_deref() }, log, jobs, &seen);
                    }
                    drop(conn);
                    drop(kept);
                }
            }
            drop(going);
        };
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(work)
            .map_err(|e| Error::new(ErrorKind::Store, format!("failed to start the thread `{name}`")).because(e))?;
        let (thread, gone) = (Mutex::new(Some(thread)), Mutex::new(Some(gone)));
        Ok((Worker { queue, soon: false, callers: AtomicUsize::new(0), witness: of_caller, stop, last, thread, gone }, opened))
    }

    /// Says that no job waits for the disk.
    pub(crate) fn answers_soon(mut self, soon: bool) -> Self {
        self.soon = soon;
        self
    }

    /// Runs `work` on the thread; `what` completes "failed to ..".
    pub(crate) async fn call<T, F>(&self, what: &'static str, scope: Scope, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        self.call_then(what, scope, work, |out| out).await
    }

    /// The same, with something to do behind the commit and before the caller is answered, also if the caller is gone by then.
    pub(crate) async fn call_then<T, F, A, U>(&self, what: &'static str, scope: Scope, work: F, then: A) -> Result<U>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> rusqlite::Result<T> + Send + 'static,
        A: FnOnce(T) -> U + Send + 'static,
        U: Send + 'static,
    {
        let Some(witness) = &self.witness else { return self.ask(what, scope, work, then).await };
        let asks = Asks::new(witness.as_ref());
        let answer = self.ask(what, scope, work, then).await;
        asks.0.hears().await;
        answer
    }

    async fn ask<T, F, A, U>(&self, what: &'static str, scope: Scope, work: F, then: A) -> Result<U>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> rusqlite::Result<T> + Send + 'static,
        A: FnOnce(T) -> U + Send + 'static,
        U: Send + 'static,
    {
        let (answer, mut answered) = oneshot::channel();
        let job = Box::new(Call { what, scope, work, out: None, then, answer });
        let caller = Caller::new(self);
        self.queue.send(job).await.map_err(|_| Error::closed())?;
        for n in 0..if caller.looks { ANSWER_SPINS } else { 0 } {
            match answered.try_recv() {
                Ok(answer) => return answer,
                Err(oneshot::error::TryRecvError::Closed) => return Err(Error::closed()),
                Err(oneshot::error::TryRecvError::Empty) => look_again(n),
            }
        }
        answered.await.unwrap_or_else(|_| Err(Error::closed()))
    }

    /// Ends the thread after what it is doing now; jobs still waiting are dropped. Returns when the connection is closed.
    pub(crate) fn stop(&self) {
        self.tell_to_stop();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic of the thread has been printed by then and leaves nothing to do.
            let _ = thread.join();
        }
    }

    /// The same without keeping the caller's thread while the connection closes.
    pub(crate) async fn stopped(&self) {
        self.tell_to_stop();
        let gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(gone) = gone {
            let _ = gone.await;
        }
        self.stop();
    }

    fn tell_to_stop(&self) {
        self.stop.store(true, Ordering::Release);
        if let Some(place) = self.last.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let (answer, _) = oneshot::channel();
            let nothing = |_: &Connection| Ok(());
            place.send(Box::new(Call { what: "stop", scope: Scope::Read, work: nothing, out: None, then: |()| (), answer }));
        }
    }
}

/// One who waits for an answer.
struct Caller<'a> {
    worker: &'a Worker,
    /// Whether it looks out for the answer: when it is the only one, since the thread that it runs on could serve the others.
    looks: bool,
}

impl<'a> Caller<'a> {
    fn new(worker: &'a Worker) -> Self {
        let others = worker.callers.fetch_add(1, Ordering::Relaxed);
        Caller { worker, looks: worker.soon && others == 0 }
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        self.worker.callers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One whom a witness sees.
struct Asks<'a>(&'a dyn Witness);

impl<'a> Asks<'a> {
    fn new(witness: &'a dyn Witness) -> Self {
        witness.asked();
        Asks(witness)
    }
}

impl Drop for Asks<'_> {
    fn drop(&mut self) {
        self.0.left();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What a thread holds while it runs.
pub(crate) struct Held<K> {
    pub(crate) conn: Connection,
    /// The write-ahead log, for the thread that writes it.
    pub(crate) log: Option<Log>,
    /// Let go of after the connection.
    pub(crate) kept: K,
}

/// What is held beside a connection.
pub(crate) trait Kept {
    /// Whether the lock beside the database is still its holder's.
    fn is_ours(&self) -> bool {
        true
    }

    /// Whether the files that SQLite has open are still those of the database.
    fn look(&self) -> Files {
        Files::Same
    }

    /// Takes the lock again whose file is gone; says whether nobody else has it.
    fn take_again(&self) -> bool {
        true
    }

    /// Why nothing may be asked of the database any more.
    fn lost(&self) -> Option<Arc<str>> {
        None
    }

    /// From now on nothing may be asked of it.
    fn lose(&self, why: String) -> Arc<str> {
        why.into()
    }
}

impl Kept for () {}

impl<K: Kept + ?Sized> Kept for Arc<K> {
    fn is_ours(&self) -> bool {
        (**self).is_ours()
    }

    fn look(&self) -> Files {
        (**self).look()
    }

    fn take_again(&self) -> bool {
        (**self).take_again()
    }

    fn lost(&self) -> Option<Arc<str>> {
        (**self).lost()
    }

    fn lose(&self, why: String) -> Arc<str> {
        (**self).lose(why)
    }
}

/// What was found where the files of a database were.
#[derive(Debug)]
pub(crate) enum Files {
    Same,
    /// The lock file is not the one that was locked.
    NoLock,
    /// There is no log: what is in it can still be copied into the database.
    NoLog(String),
    /// Another file, or no database.
    Gone(String),
}

/// Whether the thread has opened its connection.
pub(crate) type Opened = oneshot::Receiver<Result<()>>;

/// What jobs are run on, what keeps them from it, and who sees it.
struct Served<'a> {
    conn: &'a Connection,
    kept: &'a dyn Kept,
    fence: Option<Fence<'a>>,
    /// Set by each commit that begins.
    commits: Option<Arc<AtomicBool>>,
    witness: Option<&'a dyn Witness>,
}

/// Keeps an owner from writing into what is not its database any more, and from telling that something is stored which is not there
/// for whoever opens the database next.
struct Fence<'a> {
    lock: &'a dyn Kept,
    /// SQLite's number that changes when another connection has committed: <https://sqlite.org/pragma.html#pragma_data_version>.
    seen: Cell<Option<i64>>,
}

const TAKEN: &str = "its lock file was removed or replaced, and another process has written to it";

impl<'a> Fence<'a> {
    fn new(lock: &'a dyn Kept) -> Self {
        Fence { lock, seen: Cell::new(None) }
    }

    /// Fails if the database is another's by now. Inside a transaction that writes, nobody can make it so before its end.
    fn holds(&self, conn: &Connection) -> Result<(), Failure> {
        let version = data_version(conn)?;
        if self.seen.get() == Some(version) {
            return Ok(());
        }
        if !self.lock.is_ours() {
            return Err(self.lose(conn, TAKEN.into(), false));
        }
        // A person's tool has written, or this is the first look.
        self.seen.set(Some(version));
        Ok(())
    }

    /// Fails if what was committed just now is not in the files that are found where the database is.
    fn still_holds(&self, conn: &Connection) -> Result<(), Failure> {
        let why = match self.lock.look() {
            Files::Same => return Ok(()),
            Files::NoLock => {
                // Taken by nobody, and nobody has had it in between.
                if self.lock.take_again() && Some(data_version(conn)?) == self.seen.get() {
                    return Ok(());
                }
                TAKEN.to_owned()
            }
            Files::NoLog(why) => {
                // The log is read where it was, whatever its name.
                let copied = conn.prepare_cached("PRAGMA wal_checkpoint(FULL) /* forever */").and_then(|mut s| s.query_row((), |_| Ok(())));
                if let Err(error) = copied {
                    warn!(%error, "a write-ahead log that was removed could not be copied into its database");
                }
                why
            }
            Files::Gone(why) => why,
        };
        Err(self.lose(conn, why, true))
    }

    fn lose(&self, conn: &Connection, why: String, committed: bool) -> Failure {
        // SQLite would remove the log of whoever has the database now.
        let _ = conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        Failure::Lost { why: self.lock.lose(why), committed }
    }
}

fn data_version(conn: &Connection) -> rusqlite::Result<i64> {
    conn.prepare_cached("PRAGMA data_version /* forever */")?.query_row((), |r| r.get(0))
}

impl Served<'_> {
    /// Fails if there is nothing to read or write any more.
    fn is_there(&self) -> Result<(), Failure> {
        self.kept.lost().map_or(Ok(()), |why| Err(Failure::Lost { why, committed: false }))
    }

    /// Fails if what is written now would be written into another's database.
    fn may_write(&self) -> Result<(), Failure> {
        self.fence.as_ref().map_or(Ok(()), |fence| fence.holds(self.conn))
    }

    /// Fails if what was committed is lost.
    fn has_stored(&self) -> Result<(), Failure> {
        self.fence.as_ref().map_or(Ok(()), |fence| fence.still_holds(self.conn))
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
    fn ends_before(&self, batch: &mut Vec<Box<dyn Job>>) -> bool {
        let Some(witness) = self.witness else { return false };
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
    fn stored(&self, writes: usize, log: Option<&Log>) {
        if let Some(witness) = self.witness.filter(|_| writes > 0) {
            witness.stored(log.map(Log::pages).unwrap_or_default());
        }
    }
}

fn serve(on: &Served<'_>, mut log: Option<Log>, mut jobs: mpsc::Receiver<Box<dyn Job>>, stop: &AtomicBool) {
    let mut batch = Vec::new();
    while let Some(first) = next(&mut jobs, log.is_some()) {
        batch.push(first);
        while batch.len() < QUEUE {
            let Ok(next) = jobs.try_recv() else { break };
            batch.push(next);
        }
        // Not before: what wakes the thread to stop may be among them, and nothing else may come.
        if stop.load(Ordering::Acquire) {
            return;
        }
        let ends = on.ends_before(&mut batch);
        run_batch(on, &mut batch, log.as_ref());
        if ends {
            return;
        }
        // The callers have their answers: nobody waits for this.
        if let Some(log) = log.as_mut().filter(|_| on.is_there().is_ok()) {
            log.tidy(on.conn);
        }
    }
}

/// The next job. A fiber whose checkpoint was just stored often comes to the next one at once, sooner than a sleeping thread
/// wakes: so a writer looks for it for a few microseconds before it sleeps.
fn next(jobs: &mut mpsc::Receiver<Box<dyn Job>>, writes: bool) -> Option<Box<dyn Job>> {
    for n in 0..if writes { SPINS } else { 0 } {
        match jobs.try_recv() {
            Ok(job) => return Some(job),
            Err(mpsc::error::TryRecvError::Disconnected) => return None,
            Err(mpsc::error::TryRecvError::Empty) => look_again(n),
        }
    }
    jobs.blocking_recv()
}

/// Before the `n`th look of one that looks out for another thread.
fn look_again(n: u32) {
    if n % YIELD == YIELD - 1 {
        thread::yield_now();
    } else {
        hint::spin_loop();
    }
}

/// Runs the jobs and answers them. Reads need no transaction; the writes share one.
fn run_batch(on: &Served<'_>, batch: &mut Vec<Box<dyn Job>>, log: Option<&Log>) {
    if let Err(lost) = on.is_there() {
        for job in batch.drain(..) {
            job.answer(Err(lost.clone()));
        }
        return;
    }
    for mut job in batch.extract_if(.., |job| job.scope() == Scope::Alone) {
        let ran = job.run(on.conn).map_err(Failure::from);
        job.answer(ran);
    }
    let writes = batch.iter().filter(|j| j.scope().writes()).count();
    let single = batch.len() == 1 && batch[0].scope() == Scope::One;
    if writes == 0 || single {
        for mut job in batch.drain(..) {
            let ran = at_rest(on.conn)
                .map_err(Failure::from)
                .and_then(|()| if writes > 0 { by_itself(on, job.as_mut()) } else { job.run(on.conn).map_err(Failure::from) });
            // If it fails, it is tried again before the next job.
            let _ = at_rest(on.conn);
            on.stored(writes, log);
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
            on.stored(writes, log);
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
        // One job cost the others their transaction: nothing of it is stored, so each tries again by itself.
        Err(Lost::Job | Lost::Transaction) => {
            for mut job in batch.drain(..) {
                let ran = alone(on, job.as_mut());
                on.stored(usize::from(job.scope().writes()), log);
                job.answer(ran);
            }
        }
    }
}

/// Ends a transaction that a job has left open: one whose own end has failed. Until then every read would see the snapshot in which it began,
/// and no write would be committed.
fn at_rest(conn: &Connection) -> rusqlite::Result<()> {
    if conn.is_autocommit() { Ok(()) } else { execute(conn, ROLLBACK) }
}

/// Why a transaction of several jobs came to nothing.
enum Lost {
    Commit(Failure),
    /// A job of several statements failed, and what it had changed cannot be told from what the others have.
    Job,
    Transaction,
}

/// Runs a statement, which is its own transaction.
fn by_itself(on: &Served<'_>, job: &mut dyn Job) -> Result<(), Failure> {
    on.may_write()?;
    on.begins_nothing();
    job.run(on.conn).map_err(|why| on.failure(why))?;
    on.has_stored()
}

/// Runs the jobs in one transaction; with `savepoints`, one that fails takes back its own changes only.
fn together(on: &Served<'_>, batch: &mut [Box<dyn Job>], savepoints: bool) -> Result<Vec<rusqlite::Result<()>>, Lost> {
    let conn = on.conn;
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
        // A constraint that is looked at when all is done: one of the program's tables, and one job's fault.
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

fn alone(on: &Served<'_>, job: &mut dyn Job) -> Result<(), Failure> {
    let conn = on.conn;
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

// Prepared statements are kept by their text, and code of the program may prepare statements too: it must not be given these.
const BEGIN: &str = "BEGIN IMMEDIATE /* forever */";
const COMMIT: &str = "COMMIT /* forever */";
const ROLLBACK: &str = "ROLLBACK /* forever */";
const SAVEPOINT_JOB: &str = "SAVEPOINT job /* forever */";
const ROLLBACK_TO_JOB: &str = "ROLLBACK TO job /* forever */";
const RELEASE_JOB: &str = "RELEASE job /* forever */";

pub(super) fn execute(conn: &Connection, sql: &str) -> rusqlite::Result<()> {
    conn.prepare_cached(sql)?.execute(()).map(drop)
}
