//! The connection of a worker, and what is kept in memory of the database that it writes.
use std::cell::{RefCell, RefMut};
use std::ops::Deref;

use rusqlite::Connection;

use super::histories::{Histories, Mark};

/// A connection, with the state in memory that belongs to its transactions: what is undone in one
/// is undone in the other.
pub(crate) struct Conn {
    sqlite: Connection,
    histories: RefCell<Histories>,
}

impl Deref for Conn {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.sqlite
    }
}

// Prepared statements are cached by their text, and code of the program prepares statements too. It
// must not get these from the cache.
const BEGIN: &str = "BEGIN IMMEDIATE /* forever */";
const COMMIT: &str = "COMMIT /* forever */";
const ROLLBACK: &str = "ROLLBACK /* forever */";
const SAVEPOINT_JOB: &str = "SAVEPOINT job /* forever */";
const ROLLBACK_TO_JOB: &str = "ROLLBACK TO job /* forever */";
const RELEASE_JOB: &str = "RELEASE job /* forever */";

impl Conn {
    /// A connection that writes.
    pub(crate) fn of_writer(sqlite: Connection) -> rusqlite::Result<Self> {
        let histories = RefCell::new(Histories::load(&sqlite)?);
        Ok(Conn { sqlite, histories })
    }

    /// A connection that only reads. What it reads of the histories is in the database alone.
    pub(crate) fn of_reader(sqlite: Connection) -> Self {
        Conn { sqlite, histories: RefCell::default() }
    }

    pub(super) fn histories(&self) -> RefMut<'_, Histories> {
        self.histories.borrow_mut()
    }

    pub(super) fn begin(&self) -> rusqlite::Result<()> {
        execute(self, BEGIN)?;
        // For a transaction that ended without this connection's doing.
        self.histories().undo(Mark::default());
        Ok(())
    }

    /// Commits. If that fails, a transaction may still be open.
    pub(super) fn commit(&self) -> rusqlite::Result<()> {
        self.histories().write(self)?;
        execute(self, COMMIT)?;
        self.histories().committed();
        Ok(())
    }

    /// Rolls back, unless SQLite has done so by itself.
    pub(super) fn roll_back(&self) -> rusqlite::Result<()> {
        self.histories().undo(Mark::default());
        if self.is_autocommit() { Ok(()) } else { execute(self, ROLLBACK) }
    }

    /// Runs a part of a transaction. If it fails, only its changes are rolled back, or the whole
    /// transaction where that cannot be done.
    pub(super) fn in_savepoint(&self, work: impl FnOnce() -> rusqlite::Result<()>) -> rusqlite::Result<()> {
        execute(self, SAVEPOINT_JOB)?;
        let mark = self.histories().mark();
        let ran = work();
        if self.is_autocommit() {
            return ran;
        }
        let back = if ran.is_err() {
            self.histories().undo(mark);
            execute(self, ROLLBACK_TO_JOB)
        } else {
            Ok(())
        };
        if back.and_then(|()| execute(self, RELEASE_JOB)).is_err() {
            let _ = self.roll_back();
        }
        ran
    }
}

pub(super) fn execute(conn: &Connection, sql: &str) -> rusqlite::Result<()> {
    conn.prepare_cached(sql)?.execute(()).map(drop)
}
