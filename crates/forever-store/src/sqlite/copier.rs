//! Copies the write-ahead log into the database (a checkpoint in SQLite's terms) while the writer
//! commits. Each file has one copier, with a thread and a connection of its own.
//!
//! A copy syncs the log, writes pages and syncs the database: some milliseconds in which no commit
//! should wait. SQLite allows it beside commits, but restarts the log only when all of it is
//! copied, and pages committed meanwhile are not. So the writer copies the short rest itself.
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tracing::warn;

/// The first SQLite version in which a copy beside a commit that restarts the log cannot damage the
/// database: <https://sqlite.org/wal.html#walresetbug>.
pub(super) const FIRST_SAFE: i32 = 3_051_003;

/// A rest longer than this is copied here as well, once, so that the writer's share is short.
const SHORT_REST: u32 = 64;

/// Copies the log on request.
#[derive(Debug)]
pub(super) struct Copier {
    shared: Arc<Shared>,
    /// `Some` until the thread is started, by the first request.
    conn: Option<Connection>,
    thread: Option<JoinHandle<()>>,
}

/// State shared by the thread and the writer.
#[derive(Debug)]
struct Shared {
    task: Mutex<Task>,
    changed: Condvar,
    /// Number of pages in the log, as the writer counts them.
    pages: Arc<AtomicU32>,
}

/// Task of the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    None,
    Copy,
    Stop,
}

impl Shared {
    fn task(&self) -> MutexGuard<'_, Task> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, conn: &Connection) {
        loop {
            let asked = self.changed.wait_while(self.task(), |task| *task == Task::None);
            if *asked.unwrap_or_else(PoisonError::into_inner) == Task::Stop {
                return;
            }
            if let Err(error) = self.copy(conn) {
                warn!(%error, "the write-ahead log could not be copied into the database");
            }
            // `Stop`, if the copier was dropped meanwhile, stays.
            let mut task = self.task();
            if *task == Task::Copy {
                *task = Task::None;
            }
            self.changed.notify_all();
        }
    }

    fn copy(&self, conn: &Connection) -> rusqlite::Result<()> {
        let copied = copy(conn)?;
        if self.pages.load(Ordering::Relaxed).saturating_sub(copied) > SHORT_REST {
            copy(conn)?;
        }
        Ok(())
    }
}

/// Copies the pages that no reader needs in the log; returns how many of its pages are copied.
pub(super) fn copy(conn: &Connection) -> rusqlite::Result<u32> {
    let copied: i64 = conn.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")?.query_row((), |row| row.get(2))?;
    Ok(u32::try_from(copied).unwrap_or(0))
}

impl Copier {
    /// Copier for the log that `conn` has open and another connection writes; `None` where SQLite
    /// is too old.
    pub(super) fn new(conn: Connection, pages: &Arc<AtomicU32>) -> Option<Self> {
        let shared = Shared { task: Mutex::new(Task::None), changed: Condvar::new(), pages: Arc::clone(pages) };
        (rusqlite::version_number() >= FIRST_SAFE).then(|| Copier { shared: Arc::new(shared), conn: Some(conn), thread: None })
    }

    /// Requests a copy of the pages that are in the log now. `false` if the thread cannot be
    /// started.
    pub(super) fn ask(&mut self) -> bool {
        if let Some(conn) = self.conn.take() {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().name("forever-log".to_owned()).spawn(move || shared.serve(&conn));
            self.thread = thread.inspect_err(|error| warn!(%error, "failed to start the thread `forever-log`")).ok();
        }
        *self.shared.task() = Task::Copy;
        self.shared.changed.notify_all();
        self.thread.is_some()
    }

    /// Whether no copy is under way: the last request is done or has failed.
    pub(super) fn is_done(&self) -> bool {
        *self.shared.task() != Task::Copy
    }

    /// Waits until no copy is under way.
    pub(super) fn wait(&self) {
        let idle = self.shared.changed.wait_while(self.shared.task(), |task| *task == Task::Copy);
        drop(idle);
    }
}

/// Ends the thread after its current copy, and closes its connection.
impl Drop for Copier {
    fn drop(&mut self) {
        *self.shared.task() = Task::Stop;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // The panic was printed already, and nothing is left to do.
            let _ = thread.join();
        }
    }
}
