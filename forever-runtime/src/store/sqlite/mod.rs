//! The store on SQLite: one file, or a database in memory that works the same.
mod agents;
mod backup;
mod beside;
mod chat;
mod lock;
mod log;
#[cfg(target_os = "linux")]
mod mounts;
mod open;
mod ops;
#[cfg(test)]
mod plans;
mod rows;
mod schema;
mod sync;
pub(crate) mod user;
mod worker;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rusqlite::{Connection, params};

pub use open::Durability;
#[cfg(feature = "testing")]
pub(crate) use worker::Pages;
pub(crate) use worker::Witness;
use worker::{Held, Opened, Scope, Worker};

use super::{
    Accepted, Again, Aside, Asked, Cancelled, End, Ended, FiberRow, Find, Message, NewFiber, NewMessage, NewSnapshot, OpsBehind, Ownership,
    RunsAgain, Seq, SettledOp, Store, Stored, Unfinished, Wait, Waits, Which,
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
        Ok(Sqlite { reader: None, writer: opened(writer).await?.answers_soon(true), lock: Weak::new(), is_in_memory: true, ownership })
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

impl Store for Sqlite {
    fn accept(&self, fiber: NewFiber) -> BoxFuture<'_, Result<Accepted>> {
        Box::pin(self.write("store a fiber", Scope::Many, move |c| rows::accept(c, &fiber)))
    }

    fn recover(&self, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write("recover what was left running", Scope::Many, move |c| {
            const RUNNING: &str = "SELECT seq FROM fibers WHERE state <> 'completed' AND state = 'running'";
            // Where somebody has made a number so large that nothing can be added to it, that must not keep all others waiting.
            c.execute(&format!("UPDATE snapshots SET deaths = min(deaths, 4294967294) + 1 WHERE fiber IN ({RUNNING})"), ())?;
            c.execute(
                &format!("UPDATE fibers SET state = 'interrupted', reason = ?1, changed_ms = ?2 WHERE seq IN ({RUNNING})"),
                params!["the process died", now_ms],
            )
            .map(drop)
        }))
    }

    fn unfinished(&self, after: Seq, limit: u32) -> BoxFuture<'_, Result<Vec<Unfinished>>> {
        Box::pin(self.read("list unfinished fibers", move |c| rows::unfinished(c, after, limit)))
    }

    fn load(&self, seq: Seq) -> BoxFuture<'_, Result<Stored>> {
        Box::pin(self.read("load a fiber", move |c| rows::load(c, seq)))
    }

    fn enter(&self, seq: Seq, now_ms: i64) -> BoxFuture<'_, Result<bool>> {
        Box::pin(self.write("store that a fiber runs", Scope::One, move |c| {
            c.prepare_cached(
                "UPDATE fibers SET state = 'running', reason = NULL, changed_ms = ?2
                 WHERE seq = ?1 AND finished_ms IS NULL AND cancel IS NULL",
            )?
            .execute(params![seq, now_ms])
            .map(|entered| entered == 1)
        }))
    }

    fn checkpoint(&self, seq: Seq, new: NewSnapshot) -> BoxFuture<'_, Result<Vec<Seq>>> {
        let alone = new.changes.is_empty()
            && new.layout.is_none()
            && new.ops == OpsBehind::default()
            && new.received.is_none()
            && !new.joined
            && new.children.is_empty();
        let scope = if alone { Scope::One } else { Scope::Many };
        Box::pin(self.write("store a checkpoint", scope, move |c| rows::checkpoint(c, seq, &new)))
    }

    fn stash(&self, seq: Seq, data: String, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write("store a stash", Scope::One, move |c| {
            c.prepare_cached("UPDATE snapshots SET number = number + 1, deaths = 0, saved_ms = ?2, data = ?3 WHERE fiber = ?1")?
                .execute(params![seq, now_ms, data])
                .map(drop)
        }))
    }

    fn arrive(&self, seq: Seq, number: u64, n: u32, data: String) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write("store what a step has given", Scope::Many, move |c| {
            c.prepare_cached("INSERT INTO arrived (fiber, number, n, data) VALUES (?1, ?2, ?3, ?4)")?.execute(params![
                seq,
                number.cast_signed(),
                n,
                data
            ])?;
            rows::forget_deaths(c, seq)
        }))
    }

    fn arrived(&self, seq: Seq, number: u64) -> BoxFuture<'_, Result<Vec<(u32, String)>>> {
        Box::pin(self.read("load what steps have given", move |c| {
            c.prepare_cached("SELECT n, data FROM arrived WHERE fiber = ?1 AND number = ?2")?
                .query_map(params![seq, number.cast_signed()], |r| Ok((r.get(0)?, r.get(1)?)))?
                .collect()
        }))
    }

    fn wait(&self, seq: Seq, wait: Wait, now_ms: i64) -> BoxFuture<'_, Result<Waits>> {
        Box::pin(self.write("store what a fiber waits for", Scope::Many, move |c| rows::wait(c, seq, &wait, now_ms)))
    }

    fn take_due(&self, now_ms: i64, limit: u32) -> BoxFuture<'_, Result<Vec<Unfinished>>> {
        Box::pin(self.write("wake fibers that are due", Scope::Many, move |c| rows::take_due(c, now_ms, limit)))
    }

    fn next_due(&self) -> BoxFuture<'_, Result<Option<i64>>> {
        Box::pin(self.read("find what is due next", |c| {
            c.prepare_cached("SELECT min(due_ms) FROM waits WHERE due_ms IS NOT NULL")?.query_row((), |r| r.get(0))
        }))
    }

    fn send(&self, message: NewMessage) -> BoxFuture<'_, Result<Asked<Option<Unfinished>>>> {
        Box::pin(self.write("store a message", Scope::Many, move |c| rows::send(c, &message)))
    }

    fn message(&self, seq: Seq, topic: &'static str) -> BoxFuture<'_, Result<Option<Message>>> {
        Box::pin(self.read("load a message", move |c| rows::message(c, seq, topic)))
    }

    fn end(&self, seq: Seq, how: End, settled: Vec<SettledOp>, now_ms: i64) -> BoxFuture<'_, Result<Ended>> {
        Box::pin(self.write("store how a fiber ended", Scope::Many, move |c| rows::end(c, seq, &how, &settled, now_ms)))
    }

    fn resolve(&self, id: String, how: End, now_ms: i64) -> BoxFuture<'_, Result<Asked<(FiberRow, Ended)>>> {
        Box::pin(self.write("store how a fiber ended", Scope::Many, move |c| rows::resolve(c, &id, &how, now_ms)))
    }

    fn cancel(&self, id: String, reason: String, now_ms: i64) -> BoxFuture<'_, Result<Asked<Cancelled>>> {
        Box::pin(self.write("cancel a fiber", Scope::Many, move |c| rows::cancel(c, &id, &reason, now_ms)))
    }

    fn again(&self, id: String, again: Again, now_ms: i64) -> BoxFuture<'_, Result<Asked<RunsAgain>>> {
        Box::pin(self.write("let a fiber run again", Scope::Many, move |c| rows::again(c, &id, again, now_ms)))
    }

    fn set_aside(&self, seq: Seq, aside: Aside, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        let (state, reason) = match aside {
            Aside::Interrupted(why) => ("interrupted", why),
            Aside::Parked(why) => ("parked", why),
        };
        Box::pin(self.write("store why a fiber stopped", Scope::One, move |c| {
            // A fiber that is parked again at every open for the same reason costs no write.
            c.prepare_cached(
                "UPDATE fibers SET state = ?2, reason = ?3, changed_ms = ?4
                 WHERE seq = ?1 AND (state <> ?2 OR reason IS NOT ?3) AND finished_ms IS NULL",
            )?
            .execute(params![seq, state, reason, now_ms])
            .map(drop)
        }))
    }

    fn find(&self, which: Find) -> BoxFuture<'_, Result<Option<FiberRow>>> {
        Box::pin(self.read("find a fiber", move |c| rows::find(c, &which)))
    }

    fn list(&self, which: Which, after: Seq, limit: u32) -> BoxFuture<'_, Result<Vec<FiberRow>>> {
        Box::pin(self.read("list fibers", move |c| rows::list(c, &which, after, limit)))
    }

    fn delete(&self, which: Which, limit: u32) -> BoxFuture<'_, Result<u64>> {
        Box::pin(self.write("delete fibers", Scope::One, move |c| rows::delete(c, &which, limit)))
    }

    fn close(&self, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let stored = self
                .write("store a clean close", Scope::Many, move |c| {
                    agents::close(c)?;
                    chat::close(c)?;
                    c.execute(
                        "UPDATE fibers SET state = 'interrupted', reason = 'the runtime was closed', changed_ms = ?1
                         WHERE state <> 'completed' AND state = 'running'",
                        params![now_ms],
                    )
                    .map(drop)
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
