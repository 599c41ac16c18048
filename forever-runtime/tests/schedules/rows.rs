//! A store for the tasks of runtimes: SQLite and the real `claims.rs`, around which the operations of `rows.rs` are made anew, in as few words as can be.
//!
//! Every operation is carried out between two moments at which its caller may be dropped. Behind its commit, and before its caller goes on, it tells
//! everybody who listens of what has become ready. What is seen of the operations is compared at once with what must hold, by numbers that are kept
//! beside the database and not read from it.
use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};

use rusqlite::{Connection, OptionalExtension, Row, params};
use tokio::sync::watch;

use super::claims;
use super::conn::Conn;
use super::sync::{Mutex, meet};
use crate::error::{Error, ErrorKind, Result};
use crate::future::BoxFuture;
use crate::store::{
    Claim, ClaimResult, CommitNotices, End, Epoch, FiberState, LoadedFiber, OpOutcome, Ownership, ReadySender, Runnable, Seq, Store,
    StoredClaim, StreamAppend, Suspension, Wait, WaitResult, WorkerId,
};

const SCHEMA: &str = "
    CREATE TABLE workers (id INTEGER PRIMARY KEY AUTOINCREMENT, joined_ms INTEGER);
    CREATE TABLE fibers (seq INTEGER PRIMARY KEY, id TEXT, state TEXT, cancel TEXT, reason TEXT, changed_ms INTEGER, finished_ms INTEGER);
    CREATE TABLE snapshots (fiber INTEGER PRIMARY KEY, number INTEGER DEFAULT 0, epoch INTEGER, deaths INTEGER DEFAULT 0, worker INTEGER, ops TEXT);
    CREATE TABLE waits (fiber INTEGER PRIMARY KEY, due_ms INTEGER);
    CREATE TABLE messages (seq INTEGER PRIMARY KEY, fiber INTEGER)";

/// What `claims.rs` asks of the real `rows.rs`.
pub(super) fn state(row: &Row<'_>) -> rusqlite::Result<FiberState> {
    Ok(row.get_ref("state")?.as_str()?.parse().expect("a state"))
}

/// As above.
pub(super) fn finish(
    conn: &Connection,
    seq: Seq,
    end: &End,
    _: &[OpOutcome],
    now_ms: i64,
    _: &mut CommitNotices,
) -> rusqlite::Result<Option<End>> {
    let cancel: Option<String> = conn.query_row("SELECT cancel FROM fibers WHERE seq = ?1", [seq], |r| r.get(0))?;
    let end = cancel.map_or_else(|| end.clone(), End::Cancelled);
    let state = match &end {
        End::Completed(_) => "completed",
        End::Failed(_) => "failed",
        End::Cancelled(_) => "cancelled",
    };
    let finished = conn.execute(
        "UPDATE fibers SET state = ?2, changed_ms = ?3, finished_ms = ?3 WHERE seq = ?1 AND finished_ms IS NULL",
        params![seq, state, now_ms],
    )?;
    conn.execute("DELETE FROM waits WHERE fiber = ?1", [seq])?;
    if state == "completed" {
        conn.execute("DELETE FROM snapshots WHERE fiber = ?1", [seq])?;
    } else {
        claims::release_one(conn, seq)?;
    }
    Ok((finished > 0).then_some(end))
}

/// As above.
pub(super) fn load(conn: &Connection, seq: Seq) -> rusqlite::Result<LoadedFiber> {
    let sql = "SELECT coalesce(number, 0), coalesce(deaths, 0), coalesce(epoch, 0)
               FROM fibers LEFT JOIN snapshots ON fiber = seq WHERE seq = ?1";
    conn.query_row(sql, [seq], |r| {
        let (number, deaths, epoch) = (r.get::<_, u32>(0)?.into(), r.get(1)?, r.get(2)?);
        Ok(LoadedFiber {
            snapshot: None,
            rows: (),
            number,
            deaths,
            interrupted: false,
            epoch,
            lease_left_ms: None,
            layout: None,
            callees: Vec::new(),
        })
    })
}

fn runnable(row: &Row<'_>) -> rusqlite::Result<Runnable> {
    let state = if row.get::<_, String>(2)? == "interrupted" { FiberState::Interrupted } else { FiberState::Pending };
    let (seq, id, epoch) = (row.get(0)?, row.get(1)?, row.get(3)?);
    Ok(Runnable { seq, id, name: "receives".to_owned(), agent: None, state, epoch, deaths: 0 })
}

fn wake(conn: &Connection, seq: Seq) -> rusqlite::Result<Option<Runnable>> {
    conn.execute("DELETE FROM waits WHERE fiber = ?1", [seq])?;
    let sql = "UPDATE fibers SET state = 'pending' WHERE seq = ?1 AND state = 'waiting'
               RETURNING seq, id, state, (SELECT epoch FROM snapshots WHERE fiber = seq)";
    conn.query_row(sql, [seq], runnable).optional()
}

fn has_message(conn: &Connection, seq: Seq) -> rusqlite::Result<bool> {
    conn.query_row("SELECT EXISTS (SELECT 1 FROM messages WHERE fiber = ?1)", [seq], |r| r.get(0))
}

/// What was seen.
#[derive(Debug, Default)]
struct Seen {
    /// The operations in the order of their commits: which worker, what, and what came of it.
    story: Vec<String>,
    /// The claims in force, and by whom.
    in_force: HashMap<Seq, (WorkerId, Epoch)>,
    /// The greatest epoch that was given.
    last: HashMap<Seq, Epoch>,
    /// Every claim that a worker was given.
    given: HashSet<(WorkerId, Claim)>,
    /// Activations that were told not to wait, and claim the fiber again.
    again: HashSet<Seq>,
    /// The code that is in memory.
    inside: HashSet<(WorkerId, Seq)>,
    /// The workers that have let go of the database.
    gone: HashSet<WorkerId>,
    received: HashMap<Seq, u64>,
    ended: HashSet<Seq>,
}

impl Seen {
    fn claims(&mut self, worker: WorkerId, claim: Claim) {
        let last = self.last.insert(claim.fiber, claim.epoch);
        assert!(last < Some(claim.epoch), "{claim:?} was given before");
        let again = self.again.remove(&claim.fiber);
        let before = self.in_force.insert(claim.fiber, (worker, claim.epoch));
        assert!(before.is_none() || again && before.is_some_and(|it| it.0 == worker), "{claim:?} of {worker} beside {before:?}: {self:#?}");
        self.given.insert((worker, claim));
    }

    fn writes(&self, worker: WorkerId, claim: Claim) {
        assert_eq!(self.in_force.get(&claim.fiber), Some(&(worker, claim.epoch)), "a write of {worker} under {claim:?}: {self:#?}");
    }

    fn ends(&mut self, fiber: Seq) {
        self.in_force.remove(&fiber);
        assert!(self.ended.insert(fiber), "{fiber} ends twice");
    }
}

/// A database in memory.
pub(crate) struct Database {
    conn: Mutex<Conn>,
    listeners: std::sync::Mutex<Vec<ReadySender>>,
    seen: std::sync::Mutex<Seen>,
    /// How many fibers have ended.
    ended: watch::Sender<usize>,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.seen().fmt(f)
    }
}

impl Database {
    pub(crate) fn new() -> Arc<Self> {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(SCHEMA).unwrap();
        let (listeners, seen) = (std::sync::Mutex::default(), std::sync::Mutex::default());
        Arc::new(Database { conn: Mutex::new(Conn::of_reader(conn)), listeners, seen, ended: watch::Sender::new(0) })
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The code of a fiber begins under a claim.
    pub(crate) fn enters(self: &Arc<Self>, worker: WorkerId, claim: Claim) -> Box<dyn Any + Send> {
        let mut seen = self.seen();
        assert!(seen.given.contains(&(worker, claim)), "{worker} runs a fiber under {claim:?}, which it was not given");
        assert!(seen.inside.insert((worker, claim.fiber)), "{claim:?}: its code runs twice in one process");
        drop(seen);
        Box::new(Inside(Arc::clone(self), worker, claim.fiber))
    }

    pub(crate) fn is_polled(&self, worker: WorkerId) {
        assert!(!self.seen().gone.contains(&worker), "code runs in {worker}, which is gone");
    }

    /// Ready when so many fibers have ended.
    pub(crate) async fn until_ended(&self, fibers: usize) {
        let _ = self.ended.subscribe().wait_for(|ended| *ended >= fibers).await;
    }

    /// Ready when nothing holds the lock of a worker any more.
    pub(crate) async fn until_gone(&self, worker: WorkerId) {
        while !self.seen().gone.contains(&worker) {
            shuttle::future::yield_now().await;
        }
    }

    /// How many fibers are in a state.
    pub(crate) fn count(&self, state: &str) -> usize {
        let conn = self.conn.lock().unwrap();
        conn.prepare("SELECT 1 FROM fibers WHERE state = ?1").unwrap().query_map([state], |_| Ok(())).unwrap().count()
    }

    pub(crate) fn received(&self, fiber: Seq) -> u64 {
        self.seen().received.get(&fiber).copied().unwrap_or(0)
    }
}

struct Inside(Arc<Database>, WorkerId, Seq);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.seen().inside.remove(&(self.1, self.2));
    }
}

/// The lock of one worker, held by its store and by tasks that are polled.
struct Lock(Arc<Database>, WorkerId);

impl Drop for Lock {
    fn drop(&mut self) {
        self.0.seen().gone.insert(self.1);
    }
}

/// The store of one runtime.
pub(crate) struct OpenStore {
    pub(crate) worker: WorkerId,
    database: Arc<Database>,
    lock: std::sync::Mutex<Option<Arc<Lock>>>,
    closed: AtomicBool,
}

impl fmt::Debug for OpenStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {}", self.worker)
    }
}

/// A moment at which the caller may be dropped, and any task may go first.
async fn pause() {
    let mut over = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut over, true) {
            return std::task::Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

impl OpenStore {
    /// Joins, and takes over from all others.
    pub(crate) fn open(database: &Arc<Database>) -> Arc<Self> {
        let conn = database.conn.lock().unwrap();
        let worker = claims::join(&conn, 0).unwrap();
        database.seen().in_force.clear();
        let lock = Arc::new(Lock(Arc::clone(database), worker));
        Arc::new(OpenStore { worker, database: Arc::clone(database), lock: Some(lock).into(), closed: AtomicBool::new(false) })
    }

    async fn job<T: fmt::Debug>(
        &self,
        what: String,
        work: impl FnOnce(&Conn, &mut Seen, &mut CommitNotices) -> rusqlite::Result<T>,
    ) -> Result<T> {
        pause().await;
        let done = self.transaction(&what, work);
        pause().await;
        done
    }

    fn transaction<T: fmt::Debug>(
        &self,
        what: &str,
        work: impl FnOnce(&Conn, &mut Seen, &mut CommitNotices) -> rusqlite::Result<T>,
    ) -> Result<T> {
        let conn = self.database.conn.lock().unwrap_or_else(PoisonError::into_inner);
        if self.closed.load(Ordering::Relaxed) {
            return Err(Error::closed());
        }
        let mut notices = CommitNotices::default();
        conn.execute_batch("BEGIN").unwrap();
        let mut seen = self.database.seen();
        let done = work(&conn, &mut seen, &mut notices);
        seen.story.push(format!("{} {what}: {done:?}", self.worker));
        let ended = seen.ended.len();
        drop(seen);
        conn.execute_batch(if done.is_ok() { "COMMIT" } else { "ROLLBACK" }).unwrap();
        self.database.ended.send_replace(ended);
        let listeners = self.database.listeners.lock().unwrap().clone();
        for fiber in notices.ready {
            for listener in &listeners {
                listener.send(fiber.clone());
            }
        }
        done.map_err(|why| match why {
            rusqlite::Error::ToSqlConversionFailure(why) => *why.downcast::<Error>().expect("an error of ours"),
            why => panic!("{why}"),
        })
    }

    /// Stores a fiber, claimed or not.
    pub(crate) async fn accept(&self, id: String, claimed: bool) -> Result<Claim> {
        self.job("accept".to_owned(), |c, seen, notices| {
            let state = if claimed { "running" } else { "pending" };
            c.execute("INSERT INTO fibers (id, state) VALUES (?1, ?2)", params![id, state])?;
            let claim = Claim { fiber: c.last_insert_rowid(), epoch: i64::from(claimed) };
            let worker = claimed.then_some(self.worker);
            c.execute("INSERT INTO snapshots (fiber, epoch, worker) VALUES (?1, ?2, ?3)", params![claim.fiber, claim.epoch, worker])?;
            if let Some(worker) = worker {
                seen.claims(worker, claim);
            } else {
                let state = FiberState::Pending;
                let (seq, epoch) = (claim.fiber, claim.epoch);
                notices.ready.push(Runnable { seq, id, name: "receives".to_owned(), agent: None, state, epoch, deaths: 0 });
            }
            Ok(claim)
        })
        .await
    }

    pub(crate) async fn send(&self, fiber: Seq) -> Result<()> {
        self.job(format!("send {fiber}"), |c, _, notices| {
            c.execute("INSERT INTO messages (fiber) VALUES (?1)", [fiber])?;
            notices.ready.extend(wake(c, fiber)?);
            Ok(())
        })
        .await
    }

    /// Tells a fiber to end; one that does not run ends at once. Says whether it runs.
    pub(crate) async fn cancel(&self, fiber: Seq) -> Result<bool> {
        self.job(format!("cancel {fiber}"), |c, seen, notices| {
            let sql = "UPDATE fibers SET cancel = 'enough' WHERE seq = ?1 AND finished_ms IS NULL RETURNING state = 'running'";
            let runs: Option<bool> = c.query_row(sql, [fiber], |r| r.get(0)).optional()?;
            if runs == Some(false) {
                claims::void(c, fiber)?;
                finish(c, fiber, &End::Cancelled(String::new()), &[], 0, notices)?;
                seen.ends(fiber);
            }
            Ok(runs == Some(true))
        })
        .await
    }

    /// Takes the claims of all others, as if they were gone.
    pub(crate) async fn take_over(&self) -> Result<()> {
        self.job("take over".to_owned(), |c, seen, _| {
            claims::take_over(c, self.worker, 0)?;
            seen.in_force.retain(|_, it| it.0 == self.worker);
            Ok(())
        })
        .await
    }

    pub(crate) async fn unfinished(&self) -> Result<Vec<Runnable>> {
        self.job("unfinished".to_owned(), |c, _, _| {
            c.prepare("SELECT seq, id, state, epoch FROM fibers JOIN snapshots ON fiber = seq WHERE finished_ms IS NULL AND state <> 'waiting' ORDER BY seq")?
                .query_map((), runnable)?
                .collect()
        })
        .await
    }
}

impl OpenStore {
    pub(crate) fn ownership(&self) -> Ownership {
        let lock = self.lock.lock().unwrap();
        Ownership(match &*lock {
            Some(lock) => {
                let lock: Arc<dyn Any + Send + Sync> = Arc::<Lock>::clone(lock);
                Arc::downgrade(&lock)
            }
            None => std::sync::Weak::<()>::new(),
        })
    }
}

impl Store for OpenStore {
    fn on_ready(&self, ready: ReadySender) {
        self.database.listeners.lock().unwrap().push(ready);
    }

    fn load(&self, seq: Seq) -> BoxFuture<'_, Result<LoadedFiber>> {
        Box::pin(self.job(format!("load {seq}"), move |c, _, _| load(c, seq)))
    }

    fn claim_of(&self, seq: Seq) -> BoxFuture<'_, Result<Option<StoredClaim>>> {
        Box::pin(self.job(format!("epoch {seq}"), move |c, _, _| claims::claim_of(c, seq)))
    }

    fn ready(&self, after: Seq, limit: u32) -> BoxFuture<'_, Result<Vec<Runnable>>> {
        Box::pin(self.job("ready".to_owned(), move |c, _, _| {
            c.prepare("SELECT seq, id, state, epoch FROM fibers JOIN snapshots ON fiber = seq WHERE state = 'pending' AND seq > ?1 ORDER BY seq LIMIT ?2")?
                .query_map(params![after, limit], runnable)?
                .collect()
        }))
    }

    fn claim(&self, at: Claim, worker: WorkerId, now_ms: i64) -> BoxFuture<'_, Result<ClaimResult>> {
        Box::pin(self.job(format!("claim {at:?}"), move |c, seen, notices| {
            let claimed = claims::claim(c, at, worker, now_ms, notices)?;
            match &claimed {
                ClaimResult::Granted(claim, _) => seen.claims(worker, *claim),
                ClaimResult::Ended(_) => seen.ends(at.fiber),
                ClaimResult::Refused => {}
            }
            Ok(claimed)
        }))
    }

    fn wait(&self, claim: Claim, wait: Wait, now_ms: i64) -> BoxFuture<'_, Result<WaitResult>> {
        Box::pin(self.job(format!("wait {claim:?}"), move |c, seen, _| {
            claims::check(c, claim)?;
            seen.writes(self.worker, claim);
            if wait.due_ms.is_some_and(|due| due <= now_ms) {
                c.execute("INSERT INTO messages (fiber) VALUES (?1)", [claim.fiber])?;
            }
            let there = has_message(c, claim.fiber)?;
            let waits = "UPDATE fibers SET state = 'waiting' WHERE seq = ?1 AND finished_ms IS NULL AND cancel IS NULL";
            if there || c.execute(waits, [claim.fiber])? == 0 {
                seen.again.insert(claim.fiber);
                return Ok(WaitResult::Ready);
            }
            c.execute("INSERT OR REPLACE INTO waits (fiber, due_ms) VALUES (?1, ?2)", params![claim.fiber, wait.due_ms])?;
            claims::release_one(c, claim.fiber)?;
            seen.in_force.remove(&claim.fiber);
            Ok(WaitResult::Waiting)
        }))
    }

    fn take_due(&self, now_ms: i64, limit: u32) -> BoxFuture<'_, Result<Vec<Runnable>>> {
        Box::pin(self.job("take due".to_owned(), move |c, _, _| {
            let due: Vec<Seq> = c
                .prepare("SELECT fiber FROM waits WHERE due_ms <= ?1 ORDER BY due_ms LIMIT ?2")?
                .query_map(params![now_ms, limit], |r| r.get(0))?
                .collect::<Result<_, _>>()?;
            // A fiber that waited for a time finds a message.
            due.iter().try_for_each(|seq| c.execute("INSERT INTO messages (fiber) VALUES (?1)", [seq]).map(drop))?;
            due.into_iter().filter_map(|seq| wake(c, seq).transpose()).collect()
        }))
    }

    fn next_due(&self) -> BoxFuture<'_, Result<Option<i64>>> {
        Box::pin(self.job("next due".to_owned(), |c, _, _| c.query_row("SELECT min(due_ms) FROM waits", (), |r| r.get(0))))
    }

    fn end(&self, claim: Claim, end: End, settled: Vec<OpOutcome>, _: Vec<StreamAppend>, now_ms: i64) -> BoxFuture<'_, Result<End>> {
        Box::pin(self.job(format!("end {claim:?} {end:?}"), move |c, seen, notices| {
            claims::check(c, claim)?;
            let end = finish(c, claim.fiber, &end, &settled, now_ms, notices)?.ok_or_else(|| claims::lost(claim))?;
            seen.writes(self.worker, claim);
            seen.ends(claim.fiber);
            Ok(end)
        }))
    }

    fn suspend(&self, claim: Claim, how: Suspension, now_ms: i64) -> BoxFuture<'_, Result<Option<End>>> {
        Box::pin(self.job(format!("suspend {claim:?} {how:?}"), move |c, seen, notices| {
            claims::check(c, claim)?;
            if c.query_row("SELECT cancel IS NOT NULL FROM fibers WHERE seq = ?1", [claim.fiber], |r| r.get(0))? {
                let end = finish(c, claim.fiber, &End::Cancelled(String::new()), &[], now_ms, notices)?;
                let end = end.ok_or_else(|| claims::lost(claim))?;
                seen.writes(self.worker, claim);
                seen.ends(claim.fiber);
                return Ok(Some(end));
            }
            seen.writes(self.worker, claim);
            let state = if matches!(how, Suspension::Parked(_)) { "parked" } else { "interrupted" };
            c.execute("UPDATE fibers SET state = ?2 WHERE seq = ?1", params![claim.fiber, state])?;
            claims::release_one(c, claim.fiber)?;
            seen.in_force.remove(&claim.fiber);
            Ok(None)
        }))
    }

    fn close(&self, worker: WorkerId, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let stored = self.transaction("close", |c, seen, _| {
                claims::close(c, worker, now_ms)?;
                seen.in_force.retain(|_, it| it.0 != worker);
                // Nothing is carried out behind it: a task is dropped long before, unless it blocks its thread.
                self.closed.store(true, Ordering::Relaxed);
                Ok(())
            });
            self.abandon();
            stored
        })
    }

    fn abandon(&self) {
        let conn = self.database.conn.lock().unwrap_or_else(PoisonError::into_inner);
        self.closed.store(true, Ordering::Relaxed);
        drop(conn);
        let lock = self.lock.lock().unwrap().take();
        meet();
        drop(lock);
    }

    fn receive(&self, claim: Claim, number: u64) -> BoxFuture<'_, Result<bool>> {
        Box::pin(self.job(format!("receive {claim:?} {number}"), move |c, seen, _| {
            let follows = "UPDATE snapshots SET number = ?2, deaths = 0 WHERE fiber = ?1 AND number = ?2 - 1 AND epoch = ?3";
            if !has_message(c, claim.fiber)? {
                return Ok(false);
            }
            if c.execute(follows, params![claim.fiber, number.cast_signed(), claim.epoch])? == 0 {
                claims::check(c, claim)?;
                panic!("checkpoint {number} under {claim:?} does not follow the stored one");
            }
            seen.writes(self.worker, claim);
            c.execute("DELETE FROM messages WHERE seq = (SELECT min(seq) FROM messages WHERE fiber = ?1)", [claim.fiber])?;
            *seen.received.entry(claim.fiber).or_default() += 1;
            Ok(true)
        }))
    }

    fn database(&self) -> &Arc<Database> {
        &self.database
    }
}

/// Whether a call has come too late.
pub(crate) fn is_closed<T>(told: &Result<T>) -> bool {
    told.as_ref().is_err_and(|error| error.kind() == ErrorKind::Closed)
}
