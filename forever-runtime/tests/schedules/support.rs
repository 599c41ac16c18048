//! Orders of threads, databases in memory, and what is seen of both.
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use rusqlite::Connection;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, FailurePersistence, Runner};

use crate::error::Result;
use crate::store::sqlite::conn::Conn;
use crate::store::sqlite::file_guard::Kept;
use crate::store::sqlite::job::Scope;
use crate::store::sqlite::log::Log;
use crate::store::sqlite::sync::{Handle, meet, thread};
use crate::store::sqlite::worker::{Held, Worker};
use forever_testkit::sizes::size;

/// Tries `test` in many orders: at random, and with a few threads that are much faster than the others.
pub(crate) fn in_any_order(test: fn()) {
    in_orders(500, test);
}

/// The same, in so many orders of each kind in the night, and a fifth of them in the gate, if the environment does not say how many.
pub(crate) fn in_orders(at_night: usize, test: fn()) {
    let at_night = at_night as u64;
    let times = usize::try_from(size("FOREVER_SCHEDULES", at_night / 5, at_night)).unwrap();
    let seed = size("FOREVER_SCHEDULES_SEED", 1, 1);
    let config = || {
        let mut config = Config::new();
        config.failure_persistence = FailurePersistence::None;
        // What a failed test has to say needs more than the usual.
        config.stack_size = 0x40000;
        config
    };
    Runner::new(RandomScheduler::new_from_seed(seed, times), config()).run(test);
    Runner::new(PctScheduler::new_from_seed(seed, 3, times), config()).run(test);
}

/// A database in memory, as its writer and the test see it.
#[derive(Clone, Default)]
pub(crate) struct Book(Arc<Mutex<Pages>>);

#[derive(Default)]
struct Pages {
    /// Written by a transaction that has not been committed.
    written: Vec<u32>,
    committed: Vec<u32>,
    open: bool,
    inline: u32,
    /// What was let go of, in order.
    gone: Vec<&'static str>,
}

/// Notes that it is let go of.
pub(crate) struct Noted(Book, &'static str);

impl Kept for Noted {}

impl Drop for Noted {
    fn drop(&mut self) {
        // A thread that unwinds meets nobody.
        let meets = || {
            if !thread::panicking() {
                meet();
            }
        };
        meets();
        let mut pages = self.0.pages();
        pages.gone.push(self.1);
        pages.open &= self.1 != "connection";
        drop(pages);
        meets();
    }
}

impl Book {
    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap()
    }

    pub(crate) fn note(&self, what: &'static str) -> Noted {
        Noted(self.clone(), what)
    }

    /// A connection to a new database, whose end is noted.
    pub(crate) fn connect(&self) -> Conn {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let name = LAST.fetch_add(1, Ordering::Relaxed);
        let mut conn = Connection::open(format!("file:/schedule-{name}?vfs=memdb")).unwrap();
        conn.execute_batch("CREATE TABLE t (n INTEGER UNIQUE)").unwrap();
        let noted = self.note("connection");
        // SQLite lets go of it when the connection is closed.
        conn.update_hook(Some(move |_, _: &str, _: &str, _| {
            let _ = &noted;
        }))
        .unwrap();
        let (book, back) = (self.clone(), self.clone());
        conn.commit_hook(Some(move || {
            let mut pages = book.pages();
            let written = std::mem::take(&mut pages.written);
            pages.committed.extend(written);
            false
        }))
        .unwrap();
        conn.rollback_hook(Some(move || back.pages().written.clear())).unwrap();
        self.pages().open = true;
        Conn::of_reader(conn)
    }

    pub(crate) fn worker(&self) -> Worker {
        let book = self.clone();
        let open = move || Ok(Held { conn: book.connect(), log: Some(Log), kept: book.note("lock"), answers_on: Some(Handle) });
        let (worker, opened) = Worker::start("writer", None, open).unwrap();
        shuttle::future::block_on(opened).unwrap().unwrap();
        worker.with_inline_jobs()
    }

    /// A short job that writes `n`; twice the same is an error.
    pub(crate) async fn write(&self, worker: &Worker, n: u32, scope: Scope) -> Result<()> {
        worker.call_short("write", scope, self.job(n, scope)).await
    }

    /// The same, always on the worker's own thread.
    pub(crate) async fn write_there(&self, worker: &Worker, n: u32, scope: Scope) -> Result<()> {
        worker.call("write", scope, self.job(n, scope)).await
    }

    fn job(&self, n: u32, scope: Scope) -> impl FnMut(&Conn) -> rusqlite::Result<()> + Send + use<> {
        let (book, caller) = (self.clone(), thread::current().id());
        move |conn| {
            meet();
            {
                let mut pages = book.pages();
                // A statement by itself is committed before it returns.
                pages.written.push(n);
                pages.inline += u32::from(thread::current().id() == caller);
            }
            let twice = if scope == Scope::Many && n % 10 == 9 { 2 } else { 1 };
            for _ in 0..twice {
                if let Err(error) = conn.execute("INSERT INTO t VALUES (?1)", [n]) {
                    book.pages().written.retain(|written| *written != n);
                    return Err(error);
                }
            }
            meet();
            Ok(())
        }
    }

    /// How many jobs have run on the thread of their caller.
    pub(crate) fn inline(&self) -> u32 {
        self.pages().inline
    }

    /// All that can be read, by the thread that writes.
    pub(crate) async fn read(&self, worker: &Worker) -> Result<Vec<u32>> {
        worker
            .call("read", Scope::Read, |conn| conn.prepare("SELECT n FROM t ORDER BY rowid")?.query_map((), |r| r.get(0))?.collect())
            .await
    }

    pub(crate) fn committed(&self) -> Vec<u32> {
        self.pages().committed.clone()
    }

    pub(crate) fn is_open(&self) -> bool {
        self.pages().open
    }

    pub(crate) fn gone(&self) -> Vec<&'static str> {
        self.pages().gone.clone()
    }
}

/// Runs a future to its end, on a thread of its own.
pub(crate) fn caller<T: Send + 'static>(call: impl Future<Output = T> + Send + 'static) -> thread::JoinHandle<T> {
    thread::spawn(move || shuttle::future::block_on(call))
}
