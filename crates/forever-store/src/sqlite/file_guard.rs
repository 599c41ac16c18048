//! Checks that the files that a connection has open are still the database, and that this runtime
//! still has the lock. Runs before each write transaction and after its commit.
use std::cell::Cell;
use std::sync::Arc;

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use tracing::warn;

use super::job::Failure;
use super::pace::BUSY_TIMEOUT;

/// Resource held beside a connection.
pub(crate) trait Kept {
    /// Whether the holder still has the lock beside the database.
    fn is_ours(&self) -> bool {
        true
    }

    /// Checks whether the files that SQLite has open are still those of the database.
    fn look(&self) -> Files {
        Files::Same
    }

    /// Whether all files were in their places at the last check, and no file of their folder was
    /// added, removed or renamed since. May return `false` although nothing has moved.
    fn is_unmoved(&self) -> bool {
        false
    }

    /// Whether the write-ahead log has a header, its own or that of a frame, at this place.
    fn log_has_header(&self, at: u64) -> bool {
        let _ = at;
        true
    }

    /// Takes the lock again after its file was removed; returns whether no other process has it.
    fn take_again(&self) -> bool {
        true
    }

    /// Why the database is lost, if it is.
    fn lost(&self) -> Option<Arc<str>> {
        None
    }

    /// Marks the database as lost.
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

    fn is_unmoved(&self) -> bool {
        (**self).is_unmoved()
    }

    fn log_has_header(&self, at: u64) -> bool {
        (**self).log_has_header(at)
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

/// Result of a check of the files of a database.
#[derive(Debug)]
pub(crate) enum Files {
    Same,
    /// The lock file is not the one that was locked.
    NoLock,
    /// There is no write-ahead log: SQLite's open one can still be copied into the database.
    NoLog(String),
    /// Another file, or none, is in the place of the database.
    Gone(String),
}

/// Keeps an owner from writing to a database that it no longer owns, and from reporting a write as
/// stored that the next process to open the database would not find.
#[derive(Debug, Default)]
pub(super) struct Fence {
    /// SQLite's number that changes when another connection commits: <https://sqlite.org/pragma.html#pragma_data_version>.
    seen: Cell<Option<i64>>,
}

const TRUNCATED: &str = "its write-ahead log (`-wal`) was truncated";

const TAKEN: &str = "its lock file was removed or replaced, and another process has written to it";

impl Fence {
    /// Fails if another process owns the database by now. Inside a write transaction this cannot
    /// change before its end.
    pub(super) fn holds(&self, lock: &dyn Kept, conn: &Connection) -> Result<(), Failure> {
        // With the lock in its place no other process can own the database. This check costs one
        // system call, the version four.
        if lock.is_unmoved() {
            return Ok(());
        }
        let version = data_version(conn)?;
        if self.seen.get() == Some(version) {
            return Ok(());
        }
        if !lock.is_ours() {
            return Err(lose(lock, conn, TAKEN.into(), false));
        }
        // A person's tool has written, or this is the first check.
        self.seen.set(Some(version));
        Ok(())
    }

    /// Fails if the last commit is not in the files where the database is.
    ///
    /// `header` is a place of the log that commits before it have written to. `settle_log` waits
    /// until no other copy of the log is under way.
    pub(super) fn still_holds(
        &self,
        lock: &dyn Kept,
        conn: &Connection,
        header: Option<u64>,
        settle_log: impl FnOnce(),
    ) -> Result<(), Failure> {
        if header.is_some_and(|at| !lock.log_has_header(at)) {
            return Err(lose(lock, conn, TRUNCATED.into(), true));
        }
        let why = match lock.look() {
            Files::Same => return Ok(()),
            Files::NoLock => {
                // Still free, and no other process had the lock in between.
                if lock.take_again() && Some(data_version(conn)?) == self.seen.get() {
                    return Ok(());
                }
                TAKEN.to_owned()
            }
            Files::NoLog(why) => {
                // SQLite still reads the log that it has open, whatever its name. Waiting for
                // readers on any thread is worth it here.
                settle_log();
                let _ = conn.busy_timeout(BUSY_TIMEOUT);
                let copied = conn.prepare_cached("PRAGMA wal_checkpoint(FULL) /* forever */").and_then(|mut s| s.query_row((), |_| Ok(())));
                if let Err(error) = copied {
                    warn!(%error, "a write-ahead log that was removed could not be copied into its database");
                }
                why
            }
            Files::Gone(why) => why,
        };
        Err(lose(lock, conn, why, true))
    }
}

fn lose(lock: &dyn Kept, conn: &Connection, why: String, committed: bool) -> Failure {
    // SQLite would remove the log of the new owner.
    let _ = conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
    Failure::Lost { why: lock.lose(why), committed }
}

fn data_version(conn: &Connection) -> rusqlite::Result<i64> {
    conn.prepare_cached("PRAGMA data_version /* forever */")?.query_row((), |r| r.get(0))
}
