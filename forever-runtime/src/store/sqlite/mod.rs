//! The store on SQLite: one file, or a database in memory that works the same.
mod agents;
mod backup;
mod beside;
mod chat;
mod claims;
#[cfg(test)]
mod loading;
mod lock;
mod log;
#[cfg(target_os = "linux")]
mod mounts;
mod open;
mod ops;
mod past;
#[cfg(test)]
mod plans;
#[cfg(test)]
mod reads;
mod rows;
mod schema;
mod sync;
pub(crate) mod user;
mod worker;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use rusqlite::{Connection, params};

pub use open::Durability;
#[cfg(feature = "testing")]
pub(crate) use worker::Pages;
pub(crate) use worker::Witness;
use worker::{Held, Opened, Scope, Worker};

use super::{
    Accepted, AdminStore, Cancelled, Claim, Claimed, CommandResult, Deleted, Deletion, End, Epoch, FiberRow, FiberStore, Find, Message,
    NewFiber, NewMessage, NewSnapshot, OpsBehind, Ownership, PastFiber, ReadySender, Restart, Restarted, Runnable, Seq, SettledOp, Stored,
    Suspend, Wait, Waits, Which, WorkerId,
};
use crate::error::{Error, Result};
use crate::fiber::frame::BoxFuture;

/// How often an owned database is tried again: it is free the moment its owner dies.
const LOCK_POLL: Duration = Duration::from_millis(5);

/// A store on SQLite.
#[derive(Debug)]
pub(crate) struct Sqlite {
    /// Stopped first, so that the writer's connection is the last and tidies up the log.
    reader: Option<Worker>,
    writer: Worker,
    /// Told of fibers that a commit has made ready.
    ready: OnceLock<ReadySender>,
    /// Held by the two, and by tasks that run.
    lock: Weak<lock::Lock>,
    is_in_memory: bool,
    ownership: Ownership,
}

/// Who sees every commit.
pub(crate) type SeenBy = Option<Arc<dyn Witness>>;

impl Sqlite {
    /// Opens the file at `path`, waiting for its owner for as long as `wait`.
    pub(crate) async fn open(path: &Path, durability: Durability, wait: Duration, seen_by: SeenBy) -> Result<Self> {
        let lock = Arc::new(take_lock(path, wait).await?);
        let (of_writer, of_reader) = (Arc::clone(&lock), Arc::clone(&lock));
        let (ownership, of_store) = (Ownership::of(&lock), Arc::downgrade(&lock));
        let (witness, dies) = (seen_by.clone(), seen_by.is_some());
        let writer = Worker::start("forever-writer", seen_by, move || {
            let mut conn = open::writer(lock.path(), durability, dies)?;
            let log = Some(log::Log::watch(&mut conn, durability)?);
            lock.watch()?;
            Ok(Held { log, conn, kept: of_writer })
        })?;
        let writer = opened(writer).await?;
        let open = move || Ok(Held { conn: open::reader(of_reader.path())?, log: None, kept: of_reader });
        let reader = Some(opened(Worker::start("forever-reader", witness, open)?).await?);
        Ok(Sqlite {
            reader,
            writer: writer.answers_soon(durability == Durability::Process),
            ready: OnceLock::new(),
            lock: of_store,
            is_in_memory: false,
            ownership,
        })
    }

    /// Opens a database that lives as long as the store, or, if it has a name, as long as anybody has it open.
    pub(crate) async fn in_memory(name: Option<String>, seen_by: SeenBy) -> Result<Self> {
        let kept = Arc::new(());
        let ownership = Ownership::of(&kept);
        let open = move || Ok(Held { conn: open::in_memory(name.as_deref())?, log: None, kept });
        let writer = Worker::start("forever-writer", seen_by, open)?;
        let writer = opened(writer).await?.answers_soon(true);
        Ok(Sqlite { reader: None, writer, ready: OnceLock::new(), lock: Weak::new(), is_in_memory: true, ownership })
    }

    async fn read<T, F>(&self, what: &'static str, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        self.reader.as_ref().unwrap_or(&self.writer).call(what, Scope::Read, work).await
    }

    async fn write<T, F>(&self, what: &'static str, scope: Scope, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        self.writer.call(what, scope, work).await
    }

    /// A write that may make fibers ready: they are told of on the writer's thread, behind the commit and before the caller is answered, so
    /// that a caller that is gone by then changes nothing.
    async fn write_ready<T, F>(&self, what: &'static str, mut work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&Connection, &mut Vec<Runnable>) -> rusqlite::Result<T> + Send + 'static,
    {
        let told = self.ready.get().cloned();
        let tell = move |(out, ready): (T, Vec<Runnable>)| {
            if let Some(told) = told {
                // A runtime that closes leaves them for the next one.
                for fiber in ready {
                    let _ = told.send(fiber);
                }
            }
            out
        };
        let work = move |c: &Connection| {
            let mut ready = Vec::new();
            work(c, &mut ready).map(|out| (out, ready))
        };
        self.writer.call_then(what, Scope::Many, work, tell).await
    }

    /// What holds the lock from now on is what is left of the runtime.
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

    fn accept(&self, fiber: NewFiber) -> BoxFuture<'_, Result<Accepted>> {
        Box::pin(self.write("store a fiber", Scope::Many, move |c| rows::accept(c, &fiber)))
    }

    fn unfinished(&self, after: Seq, limit: u32) -> BoxFuture<'_, Result<Vec<Runnable>>> {
        Box::pin(self.read("list unfinished fibers", move |c| rows::unfinished(c, after, limit)))
    }

    fn ready(&self, after: Seq, limit: u32) -> BoxFuture<'_, Result<Vec<Runnable>>> {
        Box::pin(self.read("list fibers that are ready", move |c| rows::ready(c, after, limit)))
    }

    fn load(&self, seq: Seq) -> BoxFuture<'_, Result<Stored>> {
        Box::pin(self.read("load a fiber", move |c| rows::load(c, seq)))
    }

    fn epoch(&self, seq: Seq) -> BoxFuture<'_, Result<Option<Epoch>>> {
        Box::pin(self.read("find the epoch of a fiber", move |c| claims::epoch(c, seq)))
    }

    fn claim(&self, seen: Claim, worker: WorkerId, now_ms: i64) -> BoxFuture<'_, Result<Claimed>> {
        Box::pin(self.write_ready("claim a fiber", move |c, ready| claims::claim(c, seen, worker, now_ms, ready)))
    }

    fn checkpoint(&self, claim: Claim, new: NewSnapshot) -> BoxFuture<'_, Result<Vec<Claim>>> {
        let alone = new.changes.is_empty()
            && new.layout.is_none()
            && new.ops == OpsBehind::default()
            && new.received.is_none()
            && !new.joined
            && new.children.is_empty();
        let scope = if alone { Scope::One } else { Scope::Many };
        Box::pin(self.write("store a checkpoint", scope, move |c| rows::checkpoint(c, claim, &new)))
    }

    fn stash(&self, claim: Claim, data: String, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write("store a stash", Scope::One, move |c| {
            let stored = c
                .prepare_cached(
                    "UPDATE snapshots SET number = number + 1, deaths = 0, saved_ms = ?2, data = ?3 WHERE fiber = ?1 AND epoch = ?4",
                )?
                .execute(params![claim.fiber, now_ms, data, claim.epoch])?;
            if stored == 0 { Err(claims::lost(claim)) } else { Ok(()) }
        }))
    }

    fn arrive(&self, claim: Claim, number: u64, n: u32, data: String) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write("store what a step has given", Scope::Many, move |c| {
            claims::check(c, claim)?;
            c.prepare_cached("INSERT INTO arrived (fiber, number, n, data) VALUES (?1, ?2, ?3, ?4)")?.execute(params![
                claim.fiber,
                number.cast_signed(),
                n,
                data
            ])?;
            rows::forget_deaths(c, claim.fiber)
        }))
    }

    fn arrived(&self, seq: Seq, number: u64) -> BoxFuture<'_, Result<Vec<(u32, String)>>> {
        Box::pin(self.read("load what steps have given", move |c| {
            c.prepare_cached("SELECT n, data FROM arrived WHERE fiber = ?1 AND number = ?2")?
                .query_map(params![seq, number.cast_signed()], |r| Ok((r.get(0)?, r.get(1)?)))?
                .collect()
        }))
    }

    fn wait(&self, claim: Claim, wait: Wait, now_ms: i64) -> BoxFuture<'_, Result<Waits>> {
        Box::pin(self.write("store what a fiber waits for", Scope::Many, move |c| rows::wait(c, claim, &wait, now_ms)))
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

    fn message(&self, seq: Seq, topic: &'static str) -> BoxFuture<'_, Result<Option<Message>>> {
        Box::pin(self.read("load a message", move |c| rows::message(c, seq, topic)))
    }

    fn end(&self, claim: Claim, how: End, settled: Vec<SettledOp>, now_ms: i64) -> BoxFuture<'_, Result<End>> {
        Box::pin(self.write_ready("store how a fiber ended", move |c, ready| rows::end(c, claim, &how, &settled, now_ms, ready)))
    }

    fn suspend(&self, claim: Claim, how: Suspend, now_ms: i64) -> BoxFuture<'_, Result<Option<End>>> {
        Box::pin(self.write_ready("store why a fiber stopped", move |c, ready| rows::suspend(c, claim, &how, now_ms, ready)))
    }

    fn restart_claimed(&self, claim: Claim, now_ms: i64) -> BoxFuture<'_, Result<Restarted>> {
        Box::pin(self.write_ready("restart a fiber", move |c, ready| rows::restart_claimed(c, claim, now_ms, ready)))
    }

    fn close(&self, worker: WorkerId, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let stored = self
                .write("store a clean close", Scope::Many, move |c| {
                    agents::close(c)?;
                    chat::close(c)?;
                    claims::release(c, worker, true, "the runtime was closed", now_ms)
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

impl AdminStore for Sqlite {
    fn resolve(&self, id: String, how: End, now_ms: i64) -> BoxFuture<'_, Result<CommandResult<(FiberRow, End)>>> {
        Box::pin(self.write_ready("store how a fiber ended", move |c, ready| rows::resolve(c, &id, &how, now_ms, ready)))
    }

    fn cancel(&self, id: String, reason: String, now_ms: i64) -> BoxFuture<'_, Result<CommandResult<Cancelled>>> {
        Box::pin(self.write_ready("cancel a fiber", move |c, ready| rows::cancel(c, &id, &reason, now_ms, ready)))
    }

    fn restart(&self, id: String, how: Restart, now_ms: i64) -> BoxFuture<'_, Result<CommandResult<Restarted>>> {
        Box::pin(self.write_ready("let a fiber run again", move |c, ready| rows::restart(c, &id, how, now_ms, ready)))
    }

    fn find(&self, which: Find) -> BoxFuture<'_, Result<Option<FiberRow>>> {
        Box::pin(self.read("find a fiber", move |c| rows::find(c, &which)))
    }

    fn list(&self, which: Which, after: Seq, limit: u32) -> BoxFuture<'_, Result<Vec<FiberRow>>> {
        Box::pin(self.read("list fibers", move |c| rows::list(c, &which, after, limit)))
    }

    fn delete(&self, deletion: Deletion) -> BoxFuture<'_, Result<Deleted>> {
        Box::pin(self.write("delete fibers", Scope::Many, move |c| past::delete(c, &deletion)))
    }

    fn past(&self, which: Find) -> BoxFuture<'_, Result<Option<PastFiber>>> {
        Box::pin(self.read("find what is remembered of a fiber", move |c| past::find(c, &which)))
    }

    fn forget(&self, deletion: Deletion, deleted_before_ms: Option<i64>) -> BoxFuture<'_, Result<u64>> {
        Box::pin(self.write("forget the keys of fibers", Scope::One, move |c| past::forget(c, &deletion, deleted_before_ms)))
    }

    fn back_up(&self, path: PathBuf, part: String) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.back_up(path, part))
    }

    fn ownership(&self) -> Ownership {
        self.ownership.clone()
    }

    fn limit_pages(&self, pages: u32) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write("limit the size of the database", Scope::Read, move |c| c.pragma_update(None, "max_page_count", pages)))
    }
}
