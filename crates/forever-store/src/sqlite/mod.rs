//! The store on SQLite: one file, or a database in memory that works the same.
//!
//! [`Sqlite`], [`Durability`] and [`Tx`](user::Tx) are the public API. All other public items are
//! hidden, because only the runtime and the test kit use them: transactions, migrations, ownership
//! of the file, and the witness of commits.
mod agents;
mod answers;
mod backup;
mod batch;
mod chat;
mod claims;
pub mod copied;
mod copier;
mod file_guard;
mod job;
mod layouts;
#[cfg(test)]
mod loading;
mod lock;
mod log;
#[cfg(target_os = "linux")]
mod mounts;
mod open;
mod ops;
mod pace;
mod past;
#[cfg(test)]
mod plans;
#[cfg(test)]
mod reads;
mod recent_items;
mod recent_ops;
mod rows;
mod schema;
mod snapshot_rows;
mod streams;
mod sync;
#[cfg(test)]
mod tests;
pub mod user;
mod worker;

use std::any::Any;
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use rusqlite::{Connection, params};
use tokio::runtime::{Handle, RuntimeFlavor};

use job::Scope;
pub use open::Durability;
use recent_items::{Destination, Lengths};
use worker::{Held, Opened, Worker};
pub use worker::{Pages, Witness};

use super::{
    AcceptResult, AdminStore, AgentId, AgentRow, BranchResult, Claim, ClaimResult, CommandResult, DeleteResult, Deletion, End, FiberCount,
    FiberQuery, FiberRef, FiberRow, FiberStore, FiberTombstone, LoadedFiber, NewFiber, NewMessage, NewSnapshot, OpOutcome, OpsDelta,
    PendingMessage, ReadySender, Restart, RestartResult, Runnable, ScheduleRow, Seq, StoredClaim, StreamBatch, StreamStore, Suspension,
    UnfinishedGroup, Wait, WaitResult, WorkerId,
};
use crate::error::{Error, Result};
use crate::future::BoxFuture;

/// Interval between attempts to open an owned database: it is free the moment its owner dies.
const LOCK_POLL: Duration = Duration::from_millis(5);

/// Store in an SQLite file, or in memory.
///
/// `Builder::sqlite` opens one by itself, and gives its runtime what only SQLite can do:
/// `FiberContext::transaction`, `Builder::migration` and `Forever::backup`. This type is for stores
/// that wrap it, which are given to `Builder::store`.
///
/// One thread writes, with one commit for all operations that are queued together. A file has a
/// second thread that reads. The file is owned, by a lock of the operating system, until the store
/// is [closed](FiberStore::close), [abandoned](FiberStore::abandon) or dropped. So a store has one
/// worker at a time: [`join`](FiberStore::join) and [`take_over`](FiberStore::take_over) count
/// every other one as gone.
#[derive(Debug)]
pub struct Sqlite {
    /// Stopped first, so that the writer's connection is the last and tidies up the log.
    reader: Option<Worker>,
    writer: Worker,
    /// Notified of the fibers that a commit has made ready.
    ready: OnceLock<ReadySender>,
    /// Held by both threads, and by tasks that run.
    lock: Weak<lock::Lock>,
    is_in_memory: bool,
    ownership: Ownership,
    /// Lengths of the histories in snapshot rows.
    lengths: Lengths,
}

/// Ownership of a database, as the tasks of the runtime that has it open see it.
#[derive(Debug, Clone)]
pub struct Ownership(Weak<dyn Any + Send + Sync>);

impl Ownership {
    /// Ownership of a database that is freed when `lock` is dropped.
    fn of<T: Any + Send + Sync>(lock: &Arc<T>) -> Self {
        let lock: Arc<dyn Any + Send + Sync> = Arc::<T>::clone(lock);
        Ownership(Arc::downgrade(&lock))
    }

    /// Keeps the database owned until the result is dropped; `None` if another process may own it
    /// by now.
    pub fn hold(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.0.upgrade()
    }
}

/// The version of the schema that this code reads and writes, for a tool that must not raise that
/// of a file.
#[doc(hidden)]
pub fn schema_version() -> i32 {
    schema::version()
}

/// Witness of every commit, if there is one.
pub type SeenBy = Option<Arc<dyn Witness>>;

impl Sqlite {
    /// Opens the file at `path`, and makes it if it does not exist.
    ///
    /// Where another process owns the file, waits up to `wait` for it; zero fails at once.
    ///
    /// ```
    /// # mod forever { pub use forever_store as store; pub use forever_store::Result; }
    /// use std::time::Duration;
    ///
    /// use forever::store::{Durability, Sqlite};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> forever::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("fibers.db");
    /// let store = Sqlite::open(path, Durability::Power, Duration::ZERO).await?;
    /// # drop(store);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Of kind [`Busy`](crate::ErrorKind::Busy) when another process owns the file; of kind
    /// [`Format`](crate::ErrorKind::Format) when it is not a database of this library, or of a
    /// newer version; of kind [`Store`](crate::ErrorKind::Store) when it cannot be used.
    pub async fn open(path: impl AsRef<Path>, durability: Durability, wait: Duration) -> Result<Self> {
        Sqlite::open_seen(path.as_ref(), durability, wait, None).await
    }

    /// Opens a database in memory, which lives as long as the store.
    ///
    /// # Errors
    /// Of kind [`Store`](crate::ErrorKind::Store) when SQLite fails.
    pub async fn in_memory() -> Result<Self> {
        Sqlite::in_memory_seen(None, None).await
    }

    /// Opens the file at `path`, with a witness of its commits.
    #[doc(hidden)]
    pub async fn open_seen(path: &Path, durability: Durability, wait: Duration, seen_by: SeenBy) -> Result<Self> {
        let lock = Arc::new(take_lock(path, wait).await?);
        let (of_writer, of_reader) = (Arc::clone(&lock), Arc::clone(&lock));
        let (ownership, of_store) = (Ownership::of(&lock), Arc::downgrade(&lock));
        let (witness, seen) = (seen_by.clone(), seen_by.is_some());
        // While a commit syncs, callers gather, and to answer them would delay the next sync.
        // Without syncs it makes no difference.
        let answers_on = if durability == Durability::Power { threads_of_runtime() } else { None };
        let writer = Worker::start("forever-writer", seen_by, move || {
            let mut conn = open::writer(lock.path(), durability, seen)?;
            // A witness needs the log copied at the same commits each time.
            let beside = if seen { None } else { Some(open::copier(lock.path(), durability)?) };
            let log = Some(log::Log::watch(&mut conn, durability, beside)?);
            lock.watch()?;
            Ok(Held { log, conn, kept: of_writer, answers_on })
        })?;
        let writer = opened(writer).await?;
        let writer = if durability == Durability::Process { writer.with_inline_jobs() } else { writer };
        let open = move || Ok(Held { conn: open::reader(of_reader.path())?, log: None, kept: of_reader, answers_on: None });
        let reader = Some(opened(Worker::start("forever-reader", witness, open)?).await?);
        Ok(Sqlite { reader, writer, ready: OnceLock::new(), lock: of_store, is_in_memory: false, ownership, lengths: Lengths::default() })
    }

    /// Opens a database in memory. One with a name lives as long as any connection to it.
    #[doc(hidden)]
    pub async fn in_memory_seen(name: Option<String>, seen_by: SeenBy) -> Result<Self> {
        let kept = Arc::new(());
        let ownership = Ownership::of(&kept);
        let open = move || Ok(Held { conn: open::in_memory(name.as_deref())?, log: None, kept, answers_on: None });
        let writer = Worker::start("forever-writer", seen_by, open)?;
        let writer = opened(writer).await?;
        Ok(Sqlite {
            reader: None,
            writer,
            ready: OnceLock::new(),
            lock: Weak::new(),
            is_in_memory: true,
            ownership,
            lengths: Lengths::default(),
        })
    }

    fn read<T, F>(&self, what: &'static str, work: F) -> impl Future<Output = Result<T>> + Send + use<'_, T, F>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        self.reader.as_ref().unwrap_or(&self.writer).call(what, Scope::Read, work)
    }

    fn write<T, F>(&self, what: &'static str, scope: Scope, work: F) -> impl Future<Output = Result<T>> + Send + use<'_, T, F>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        self.writer.call(what, scope, work)
    }

    /// A write that an activation waits for, of rows of its own.
    fn write_short<T, F>(&self, what: &'static str, scope: Scope, work: F) -> impl Future<Output = Result<T>> + Send + use<'_, T, F>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        self.writer.call_short(what, scope, work)
    }

    /// A write that may make fibers ready. The notification is sent on the writer's thread, after
    /// the commit and before the answer, so it is sent even if the caller is gone.
    fn write_ready<T, F>(&self, what: &'static str, mut work: F) -> impl Future<Output = Result<T>> + Send + use<'_, T, F>
    where
        T: Send + 'static,
        F: FnMut(&Connection, &mut Vec<Runnable>) -> rusqlite::Result<T> + Send + 'static,
    {
        let told = self.ready.get().cloned();
        let tell = move |(out, ready): (T, Vec<Runnable>)| {
            if let Some(told) = told {
                for fiber in ready {
                    told.send(fiber);
                }
            }
            out
        };
        let work = move |c: &Connection| {
            let mut ready = Vec::new();
            work(c, &mut ready).map(|out| (out, ready))
        };
        self.writer.call_then(what, Scope::Many, work, tell)
    }

    /// The ownership of the database, to be held by tasks while they run.
    #[doc(hidden)]
    pub fn ownership(&self) -> Ownership {
        self.ownership.clone()
    }

    /// Sets how many pages the database may have, to test a full disk.
    #[doc(hidden)]
    pub async fn limit_pages(&self, pages: u32) -> Result<()> {
        self.write("limit the size of the database", Scope::Read, move |c| c.pragma_update(None, "max_page_count", pages)).await
    }

    /// Marks the lock: from now on only what is left of the closed runtime holds it.
    fn closes(&self) {
        if let Some(lock) = self.lock.upgrade() {
            lock.close();
        }
    }

    fn stop(&self) {
        self.closes();
        if let Some(reader) = &self.reader {
            reader.stop();
        }
        self.writer.stop();
    }
}

/// The runtime of the caller, if it has threads that run by themselves. One without makes progress
/// only while it is polled, and a caller of another runtime would wait for that.
fn threads_of_runtime() -> Option<Handle> {
    Handle::try_current().ok().filter(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread)
}

async fn opened((worker, opened): (Worker, Opened)) -> Result<Worker> {
    opened.await.unwrap_or_else(|_| Err(Error::closed()))?;
    Ok(worker)
}

async fn take_lock(path: &Path, wait: Duration) -> Result<lock::Lock> {
    let take = || {
        let file = lock::DatabaseFile::open(path)?;
        open::check(&file)?;
        lock::Lock::take(file)
    };
    let first = take();
    if wait.is_zero() || !first.as_ref().is_err_and(Error::is_busy) {
        return first;
    }
    let again = async {
        loop {
            tokio::time::sleep(LOCK_POLL).await;
            match take() {
                Err(e) if e.is_busy() => {}
                other => return other,
            }
        }
    };
    match tokio::time::timeout(wait, again).await {
        Ok(taken) => taken,
        Err(_) => take(),
    }
}

impl FiberStore for Sqlite {
    fn on_ready(&self, ready: ReadySender) {
        // A store serves one runtime.
        let _ = self.ready.set(ready);
    }

    fn join(&self, now_ms: i64) -> BoxFuture<'_, Result<WorkerId>> {
        Box::pin(self.write("register a worker", Scope::Many, move |c| claims::join(c, now_ms)))
    }

    fn take_over(&self, by: WorkerId, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write("take over what was left running", Scope::Many, move |c| claims::take_over(c, by, now_ms)))
    }

    fn accept(&self, fiber: NewFiber) -> BoxFuture<'_, Result<AcceptResult>> {
        Box::pin(self.write("store a fiber", Scope::Many, move |c| rows::accept(c, &fiber)))
    }

    fn unfinished(&self, after: Seq, limit: u32) -> BoxFuture<'_, Result<Vec<Runnable>>> {
        Box::pin(self.read("list unfinished fibers", move |c| rows::unfinished(c, after, limit)))
    }

    fn ready(&self, after: Seq, limit: u32) -> BoxFuture<'_, Result<Vec<Runnable>>> {
        Box::pin(self.read("list fibers that are ready", move |c| rows::ready(c, after, limit)))
    }

    fn load(&self, seq: Seq) -> BoxFuture<'_, Result<LoadedFiber>> {
        Box::pin(self.read("load a fiber", move |c| rows::load(c, seq)))
    }

    fn claim_of(&self, seq: Seq) -> BoxFuture<'_, Result<Option<StoredClaim>>> {
        Box::pin(self.read("find the claim of a fiber", move |c| claims::claim_of(c, seq)))
    }

    fn claim(&self, seen: Claim, worker: WorkerId, now_ms: i64) -> BoxFuture<'_, Result<ClaimResult>> {
        Box::pin(self.write_ready("claim a fiber", move |c, ready| claims::claim(c, seen, worker, now_ms, ready)))
    }

    fn checkpoint(&self, claim: Claim, new: NewSnapshot) -> BoxFuture<'_, Result<Vec<Claim>>> {
        let item = rows::history_of(&new);
        let destination = |item| self.lengths.destination(claim.fiber, &new, item, self.writer.callers());
        let item_to = item.map_or(Destination::Row, destination);
        let alone = new.appended.len() == usize::from(item.is_some())
            && item_to == Destination::Row
            && new.delta.is_empty()
            && new.layouts.is_none()
            && new.ops == OpsDelta::default()
            && new.received.is_none()
            && !new.joined
            && new.children.is_empty();
        let scope = if alone { Scope::One } else { Scope::Many };
        Box::pin(self.write_short("store a checkpoint", scope, move |c| rows::checkpoint(c, claim, &new, item_to)))
    }

    fn stash(&self, claim: Claim, data: String, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write_short("store a stash", Scope::One, move |c| {
            let stored = c
                .prepare_cached(
                    "UPDATE snapshots SET number = number + 1, deaths = 0, saved_ms = ?2, data = ?3
                     WHERE fiber = ?1 AND epoch = ?4 AND (SELECT state FROM fibers WHERE seq = ?1) = 'running'",
                )?
                .execute(params![claim.fiber, now_ms, data, claim.epoch])?;
            if stored == 0 { Err(claims::lost(claim)) } else { Ok(()) }
        }))
    }

    fn save_branch(&self, claim: Claim, number: u64, result: BranchResult) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write_short("store a branch result", Scope::Many, move |c| rows::save_branch(c, claim, number, &result)))
    }

    fn wait(&self, claim: Claim, wait: Wait, now_ms: i64) -> BoxFuture<'_, Result<WaitResult>> {
        Box::pin(self.write("store what a fiber waits for", Scope::Many, move |c| rows::wait(c, claim, &wait, now_ms)))
    }

    fn unfinished_groups(&self) -> BoxFuture<'_, Result<Vec<UnfinishedGroup>>> {
        Box::pin(self.read("group unfinished fibers", rows::unfinished_groups))
    }

    fn unfinished_of(&self, group: UnfinishedGroup, after: Seq, limit: u32) -> BoxFuture<'_, Result<Vec<Seq>>> {
        Box::pin(self.read("list unfinished fibers", move |c| rows::unfinished_of(c, &group, after, limit)))
    }

    fn wake(&self, fibers: Vec<Seq>, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write_ready("wake fibers", move |c, ready| rows::wake_all(c, &fibers, now_ms, ready)))
    }

    fn take_due(&self, now_ms: i64, limit: u32) -> BoxFuture<'_, Result<Vec<Runnable>>> {
        Box::pin(self.write("wake fibers that are due", Scope::Many, move |c| rows::take_due(c, now_ms, limit)))
    }

    fn next_due(&self) -> BoxFuture<'_, Result<Option<i64>>> {
        Box::pin(self.read("find what is due next", |c| {
            c.prepare_cached("SELECT min(due_ms) FROM waits WHERE due_ms IS NOT NULL")?.query_row((), |r| r.get(0))
        }))
    }

    fn send(&self, message: NewMessage) -> BoxFuture<'_, Result<CommandResult<()>>> {
        Box::pin(self.write_ready("store a message", move |c, ready| rows::send(c, &message, ready)))
    }

    fn message(&self, seq: Seq, topic: String) -> BoxFuture<'_, Result<Option<PendingMessage>>> {
        Box::pin(self.read("load a message", move |c| rows::message(c, seq, &topic)))
    }

    fn end(&self, claim: Claim, how: End, settled: Vec<OpOutcome>, now_ms: i64) -> BoxFuture<'_, Result<End>> {
        self.lengths.forget(claim.fiber);
        Box::pin(self.write_ready("store how a fiber ended", move |c, ready| rows::end(c, claim, &how, &settled, now_ms, ready)))
    }

    fn suspend(&self, claim: Claim, how: Suspension, now_ms: i64) -> BoxFuture<'_, Result<Option<End>>> {
        Box::pin(self.write_ready("store why a fiber stopped", move |c, ready| rows::suspend(c, claim, &how, now_ms, ready)))
    }

    fn restart_claimed(&self, claim: Claim, now_ms: i64) -> BoxFuture<'_, Result<RestartResult>> {
        Box::pin(self.write_ready("restart a fiber", move |c, ready| rows::restart_claimed(c, claim, now_ms, ready)))
    }

    fn close(&self, worker: WorkerId, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let stored = self
                .writer
                .call_last("store a clean close", move |c| {
                    agents::close(c)?;
                    chat::close(c)?;
                    claims::close(c, worker, now_ms)
                })
                .await;
            self.closes();
            if let Some(reader) = &self.reader {
                reader.stopped().await;
            }
            self.writer.stopped().await;
            stored
        })
    }

    fn abandon(&self) {
        self.stop();
    }
}

impl StreamStore for Sqlite {
    fn stream(&self, fiber: Seq, name: String, from: u64, limit: u32) -> BoxFuture<'_, Result<Vec<StreamBatch>>> {
        // On the writer's connection, which knows the rows that are not copied yet.
        Box::pin(self.write("read a stream", Scope::Read, move |c| recent_items::read(c, fiber, &name, from, limit)))
    }
}

impl AdminStore for Sqlite {
    fn resolve(&self, id: String, how: End, now_ms: i64) -> BoxFuture<'_, Result<CommandResult<(FiberRow, End)>>> {
        Box::pin(self.write_ready("store how a fiber ended", move |c, ready| rows::resolve(c, &id, &how, now_ms, ready)))
    }

    fn cancel(&self, id: String, reason: String, now_ms: i64) -> BoxFuture<'_, Result<CommandResult<Vec<Runnable>>>> {
        Box::pin(self.write_ready("cancel a fiber", move |c, ready| rows::cancel(c, &id, &reason, now_ms, ready)))
    }

    fn restart(&self, id: String, how: Restart, now_ms: i64) -> BoxFuture<'_, Result<CommandResult<RestartResult>>> {
        Box::pin(self.write_ready("let a fiber run again", move |c, ready| rows::restart(c, &id, how, now_ms, ready)))
    }

    fn find(&self, which: FiberRef) -> BoxFuture<'_, Result<Option<FiberRow>>> {
        Box::pin(self.read("find a fiber", move |c| rows::find(c, &which)))
    }

    fn list(&self, which: FiberQuery, after: Seq, limit: u32) -> BoxFuture<'_, Result<Vec<FiberRow>>> {
        Box::pin(self.read("list fibers", move |c| rows::list(c, &which, after, limit)))
    }

    fn counts(&self) -> BoxFuture<'_, Result<Vec<FiberCount>>> {
        Box::pin(self.read("count fibers", rows::counts))
    }

    fn agents(&self, after: Option<AgentId>, limit: u32) -> BoxFuture<'_, Result<Vec<AgentRow>>> {
        Box::pin(self.read("list agents", move |c| agents::list(c, after.as_ref(), limit)))
    }

    fn all_schedules(&self, after: Option<String>, limit: u32) -> BoxFuture<'_, Result<Vec<ScheduleRow>>> {
        Box::pin(self.read("list schedules", move |c| agents::all_schedules(c, after.as_deref(), limit)))
    }

    fn delete(&self, deletion: Deletion) -> BoxFuture<'_, Result<DeleteResult>> {
        Box::pin(self.write("delete fibers", Scope::Many, move |c| past::delete(c, &deletion)))
    }

    fn tombstone(&self, which: FiberRef) -> BoxFuture<'_, Result<Option<FiberTombstone>>> {
        Box::pin(self.read("find what is remembered of a fiber", move |c| past::find(c, &which)))
    }

    fn delete_tombstones(&self, deletion: Deletion, deleted_before_ms: Option<i64>) -> BoxFuture<'_, Result<u64>> {
        Box::pin(self.write("forget the keys of fibers", Scope::One, move |c| past::forget(c, &deletion, deleted_before_ms)))
    }
}
