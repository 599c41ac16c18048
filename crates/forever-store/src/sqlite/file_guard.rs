//! Whether the files that a connection has open are still the database, and the lock still this
//! runtime's: asked before each transaction that writes, and behind its commit.
use std::cell::Cell;
use std::sync::Arc;

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use tracing::warn;

use super::job::Failure;
use super::pace::BUSY_TIMEOUT;

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

    /// Whether all files were in their places at the last look, and no file of their folder was
    /// added, removed or renamed since. Says no now and then although it is so.
    fn is_unmoved(&self) -> bool {
        false
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

    fn is_unmoved(&self) -> bool {
        (**self).is_unmoved()
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

/// Keeps an owner from writing into what is not its database any more, and from telling that
/// something is stored which is not there for whoever opens the database next.
#[derive(Debug, Default)]
pub(super) struct Fence {
    /// SQLite's number that changes when another connection has committed: <https://sqlite.org/pragma.html#pragma_data_version>.
    seen: Cell<Option<i64>>,
}

const TAKEN: &str = "its lock file was removed or replaced, and another process has written to it";

impl Fence {
    /// Fails if the database is another's by now. Inside a transaction that writes, nobody can make
    /// it so before its end.
    pub(super) fn holds(&self, lock: &dyn Kept, conn: &Connection) -> Result<(), Failure> {
        // With the lock in its place no other process can own the database. That is one question to
        // the system, and the version four.
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
        // A person's tool has written, or this is the first look.
        self.seen.set(Some(version));
        Ok(())
    }

    /// Fails if what was committed just now is not in the files that are found where the database
    /// is. `settle_log` waits until no other copy of the log is under way.
    pub(super) fn still_holds(&self, lock: &dyn Kept, conn: &Connection, settle_log: impl FnOnce()) -> Result<(), Failure> {
        let why = match lock.look() {
            Files::Same => return Ok(()),
            Files::NoLock => {
                // Taken by nobody, and nobody has had it in between.
                if lock.take_again() && Some(data_version(conn)?) == self.seen.get() {
                    return Ok(());
                }
                TAKEN.to_owned()
            }
            Files::NoLog(why) => {
                // The log is read where it was, whatever its name. This is worth a wait for readers
                // on any thread.
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
    // SQLite would remove the log of whoever has the database now.
    let _ = conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
    Failure::Lost { why: lock.lose(why), committed }
}

fn data_version(conn: &Connection) -> rusqlite::Result<i64> {
    conn.prepare_cached("PRAGMA data_version /* forever */")?.query_row((), |r| r.get(0))
}
