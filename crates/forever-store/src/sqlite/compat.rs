//! Differences between the versions of rusqlite that the store works with, 0.32 to 0.43.
//!
//! A program contains one `libsqlite3-sys`, and rusqlite comes in the version that goes with it. So
//! another library of the program that uses SQLite, such as sqlx or Diesel, decides about it.
//!
//! No code asks for the version. A method that older versions lack is one of the trait [`Missing`]
//! too, and the compiler prefers the method of [`Connection`] itself. A method that returns nothing
//! in older versions and a result in newer ones returns an [`Outcome`].
use std::ffi::c_int;

use rusqlite::{Connection, Error, Params, Row, ffi};

/// What a method returns that in older versions returns nothing, or is not there.
pub(super) trait Outcome {
    /// Whether the method is there.
    fn outcome(self) -> rusqlite::Result<bool>;
}

/// Until 0.37, of `commit_hook` and `authorizer`.
impl Outcome for () {
    fn outcome(self) -> rusqlite::Result<bool> {
        Ok(true)
    }
}

impl Outcome for rusqlite::Result<()> {
    fn outcome(self) -> rusqlite::Result<bool> {
        self.map(|()| true)
    }
}

/// Outcome of a method that this version does not have.
pub(super) struct NotThere;

impl Outcome for NotThere {
    fn outcome(self) -> rusqlite::Result<bool> {
        Ok(false)
    }
}

/// Methods of newer versions, for the older ones.
#[allow(dead_code, reason = "each is unused where the connection has it itself")]
trait Missing {
    /// Since 0.41. From 0.33 it takes `&self` and a function that captures nothing: the compiler
    /// prefers this one to it.
    fn wal_hook<F>(&mut self, _: Option<F>) -> NotThere {
        NotThere
    }

    /// Since 0.36.
    fn query_one<T, P: Params, F: FnOnce(&Row<'_>) -> rusqlite::Result<T>>(&self, sql: &str, params: P, f: F) -> rusqlite::Result<T>;
}

impl Missing for Connection {
    fn query_one<T, P: Params, F: FnOnce(&Row<'_>) -> rusqlite::Result<T>>(&self, sql: &str, params: P, f: F) -> rusqlite::Result<T> {
        let mut statement = self.prepare(sql)?;
        let mut rows = statement.query(params)?;
        let value = f(rows.next()?.ok_or(Error::QueryReturnedNoRows)?)?;
        match rows.next()? {
            // The variant for this is as new as the method.
            Some(_) => Err(Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_ERROR), Some("Query returned more than one row".into()))),
            None => Ok(value),
        }
    }
}

/// In place of rusqlite's type, which is there since 0.33.
#[allow(dead_code, reason = "unused where rusqlite has its own")]
struct Wal;

/// Calls `hook` after each commit with the number of pages in the write-ahead log, in place of
/// SQLite's own rule for copying the log. `false` if this version cannot.
pub(super) fn wal_hook(conn: &mut Connection, mut hook: impl FnMut(c_int) + Send + 'static) -> rusqlite::Result<bool> {
    // A name that this brings comes before the one of the module.
    #[allow(unused_imports, clippy::wildcard_imports, reason = "`Wal` is not there in every version")]
    use rusqlite::hooks::*;

    let hook = move |_: &mut Wal, pages| {
        hook(pages);
        Ok::<_, Error>(())
    };
    conn.wal_hook(Some(hook)).outcome()
}

/// Runs a query, and maps its only row to a value.
pub(super) fn query_one<T, P, F>(conn: &Connection, sql: &str, params: P, f: F) -> rusqlite::Result<T>
where
    P: Params,
    F: FnOnce(&Row<'_>) -> rusqlite::Result<T>,
{
    conn.query_one(sql, params, f)
}

/// SQLite's extended code of an error: a method of the error since 0.40.
pub(super) fn extended_code(error: &Error) -> Option<c_int> {
    match error {
        Error::SqliteFailure(cause, _) => Some(cause.extended_code),
        _ => None,
    }
}
