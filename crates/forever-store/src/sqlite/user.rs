//! The program's own tables: its transactions and its migrations.
//!
//! Code of the program runs on the thread of the connection that writes, inside the writer's
//! transaction, under the guard (`guard.rs`), which keeps it away from Forever's tables.
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use rusqlite::{CachedStatement, Connection, ErrorCode, OptionalExtension, Params, Row, Statement, ffi, params};
use sha2::{Digest, Sha256};

use super::conn::{Conn, execute};
use super::guard::{Ran, catalog, guarded, is_ours};
use super::job::Scope;
use super::store::Sqlite;
use super::{claims, compat, ops, rows};
use crate::error::{Error, ErrorKind, Result};
use crate::{Claim, OpRecord, OpState, Seq, TransactionResult, hex};

/// The database inside a transaction, as `FiberContext::transaction` and `Forever::transaction`
/// give it to their closures.
///
/// It has the methods of a [`rusqlite::Connection`] that run SQL, but none that change the
/// connection.
///
/// All tables may be read, including Forever's. Forbidden are: to begin, end or nest transactions,
/// to attach databases, to change settings by `PRAGMA`, and to change Forever's tables or what
/// belongs to them, such as their rows of `sqlite_sequence`. A transaction that tries one of these
/// is rolled back.
///
/// On Postgres it is `forever::ops::PostgresTx`.
///
/// SQLite plans a statement once, whatever its values
/// ([QPSG](https://sqlite.org/queryplanner-ng.html#qpstab)). So an index serves `LIKE 'a%'`, but
/// not `LIKE ?1`.
///
/// ```
/// # mod forever { pub mod ops { pub use forever_store::Tx; } pub use forever_store::rusqlite; }
/// use forever::ops::Tx;
/// use forever::rusqlite::{self, params};
///
/// /// Called by the closure of a transaction: `|tx| Ok(book(tx, "a-1", 2)?)`.
/// fn book(tx: &Tx<'_>, room: &str, nights: u32) -> rusqlite::Result<i64> {
///     tx.execute("INSERT INTO bookings (room, nights) VALUES (?1, ?2)", params![room, nights])?;
///     tx.query_row("SELECT sum(nights) FROM bookings WHERE room = ?1", [room], |row| row.get(0))
/// }
/// ```
pub struct Tx<'a>(&'a Connection);

/// Each method does the same as the method of [`rusqlite::Connection`] with its name, in the newest
/// version of rusqlite.
impl Tx<'_> {
    /// Runs one statement; gives the number of rows that it changed.
    ///
    /// # Errors
    /// When SQLite fails, or the statement gives rows.
    pub fn execute<P: Params>(&self, sql: &str, params: P) -> rusqlite::Result<usize> {
        self.0.execute(sql, params)
    }

    /// Runs several statements, divided by semicolons.
    ///
    /// # Errors
    /// When SQLite fails.
    pub fn execute_batch(&self, sql: &str) -> rusqlite::Result<()> {
        self.0.execute_batch(sql)
    }

    /// Runs a query, and maps its first row to a value.
    ///
    /// # Errors
    /// When SQLite fails, or there is no row ([`QueryReturnedNoRows`](rusqlite::Error::QueryReturnedNoRows)).
    pub fn query_row<T, P, F>(&self, sql: &str, params: P, f: F) -> rusqlite::Result<T>
    where
        P: Params,
        F: FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    {
        self.0.query_row(sql, params, f)
    }

    /// Runs a query, and maps its only row to a value.
    ///
    /// # Errors
    /// When SQLite fails, or there is not one row.
    pub fn query_one<T, P, F>(&self, sql: &str, params: P, f: F) -> rusqlite::Result<T>
    where
        P: Params,
        F: FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    {
        compat::query_one(self.0, sql, params, f)
    }

    /// Runs a query, and maps its first row to a value or to an error of the caller's type.
    ///
    /// # Errors
    /// Those of the closure, and when SQLite fails or there is no row.
    pub fn query_row_and_then<T, E, P, F>(&self, sql: &str, params: P, f: F) -> Result<T, E>
    where
        P: Params,
        F: FnOnce(&Row<'_>) -> Result<T, E>,
        E: From<rusqlite::Error>,
    {
        self.0.query_row_and_then(sql, params, f)
    }

    /// Prepares a statement, to be run several times.
    ///
    /// # Errors
    /// When SQLite fails.
    pub fn prepare(&self, sql: &str) -> rusqlite::Result<Statement<'_>> {
        self.0.prepare(sql)
    }

    /// Prepares a statement, and caches it for later transactions.
    ///
    /// # Errors
    /// When SQLite fails.
    pub fn prepare_cached(&self, sql: &str) -> rusqlite::Result<CachedStatement<'_>> {
        // The store's own statements are cached by their text too, and those are not checked.
        self.0.prepare_cached(&format!("/* tx */ {sql}"))
    }

    /// Rowid of the last inserted row.
    pub fn last_insert_rowid(&self) -> i64 {
        self.0.last_insert_rowid()
    }

    /// Number of rows that the last statement changed.
    pub fn changes(&self) -> u64 {
        self.0.changes()
    }

    /// Number of rows changed since the database was opened, by any code. Use the difference of two
    /// calls.
    pub fn total_changes(&self) -> u64 {
        self.0.total_changes()
    }

    /// Reads a setting.
    ///
    /// # Errors
    /// When SQLite fails.
    pub fn pragma_query_value<T, F>(&self, schema_name: Option<&str>, pragma_name: &str, f: F) -> rusqlite::Result<T>
    where
        F: FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    {
        self.0.query_row(&pragma(schema_name, pragma_name), (), f)
    }

    /// Reads the rows of a `PRAGMA` without a value.
    ///
    /// # Errors
    /// When SQLite fails.
    pub fn pragma_query<F>(&self, schema_name: Option<&str>, pragma_name: &str, mut f: F) -> rusqlite::Result<()>
    where
        F: FnMut(&Row<'_>) -> rusqlite::Result<()>,
    {
        let mut statement = self.0.prepare(&pragma(schema_name, pragma_name))?;
        let mut rows = statement.query(())?;
        while let Some(row) = rows.next()? {
            f(row)?;
        }
        Ok(())
    }

    /// Whether a table of this name exists, in one database of the connection or in any.
    ///
    /// # Errors
    /// When SQLite fails.
    pub fn table_exists(&self, db_name: Option<&str>, table_name: &str) -> rusqlite::Result<bool> {
        exists(self.0, db_name, table_name, None)
    }

    /// Whether a table has a column of this name.
    ///
    /// # Errors
    /// When SQLite fails.
    pub fn column_exists(&self, db_name: Option<&str>, table_name: &str, column_name: &str) -> rusqlite::Result<bool> {
        exists(self.0, db_name, table_name, Some(column_name))
    }
}

impl fmt::Debug for Tx<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tx").finish_non_exhaustive()
    }
}

/// Code of the program in a transaction: returns the text of its result, or `None` to roll back.
///
/// It may be run more than once. Only what the last run did is committed.
pub type TransactionFn = Box<dyn FnMut(&Tx<'_>) -> Option<String> + Send>;

/// A change of the program's tables, applied once.
#[derive(Debug, Clone)]
pub struct Migration {
    /// Name under which it is recorded.
    pub name: String,
    /// SQL that makes it.
    pub sql: String,
}

impl Migration {
    /// Hash of its text. Line endings, which differ between checkouts, make no difference.
    fn hash(&self) -> String {
        hex(&Sha256::digest(self.sql.replace("\r\n", "\n"))[..16])
    }
}

thread_local! {
    /// The writer whose transaction of the program this thread carries out; 0 for none.
    static WITHIN: Cell<usize> = const { Cell::new(0) };
}

impl Sqlite {
    /// Runs a transaction of the program, under a claim or outside of fibers.
    ///
    /// A record is stored in the same transaction, as completed with the result. If it is stored as
    /// completed already, the code does not run. One that is begun by the code of another is
    /// refused.
    #[doc(hidden)]
    pub async fn transact(&self, of: Option<(Claim, Option<OpRecord>)>, mut work: TransactionFn, now_ms: i64) -> Result<TransactionResult> {
        let id = std::ptr::from_ref(&self.writer).addr();
        if WITHIN.get() == id {
            // It would be carried out after the one that waits for it.
            let why =
                "a transaction cannot be begun inside of another one's closure: run its statements in that one, or begin it afterwards";
            return Ok(TransactionResult::Refused(Error::new(ErrorKind::Setup, why)));
        }
        let work = move |c: &Conn| {
            let before = WITHIN.replace(id);
            let done = transact(c, of.as_ref(), &mut work, now_ms);
            WITHIN.set(before);
            done
        };
        let done = self.write("carry out a transaction", Scope::Many, work).await;
        match done {
            Err(error) if is_its_own_fault(&error) => {
                let why = "a transaction was taken back: it was rolled back by its own SQL, or left a constraint violated";
                Ok(TransactionResult::Refused(Error::new(ErrorKind::Value, why).with_source(error)))
            }
            done => done,
        }
    }

    /// Applies the program's migrations.
    #[doc(hidden)]
    pub async fn migrate(&self, given: Vec<Migration>, now_ms: i64) -> Result<()> {
        // Each has a transaction of its own, so the writer opens none.
        self.writer.call("read which migrations were applied", Scope::Read, move |c| Ok(migrate(c, &given, now_ms))).await?
    }
}

/// Whether a transaction could not be committed because of its own content: a retry would not help.
fn is_its_own_fault(error: &Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<Arc<rusqlite::Error>>());
    let code = cause.and_then(|cause| cause.sqlite_error_code());
    matches!(code, Some(ErrorCode::ConstraintViolation | ErrorCode::OperationAborted))
}

/// Runs the program's code in a savepoint, so that only its changes are rolled back.
fn transact(
    conn: &Connection,
    of: Option<&(Claim, Option<OpRecord>)>,
    work: &mut TransactionFn,
    now_ms: i64,
) -> rusqlite::Result<TransactionResult> {
    if let Some((claim, record)) = of {
        claims::check_running(conn, *claim)?;
        if let Some(record) = record
            && let Some(text) = carried_out(conn, claim.fiber, record)?
        {
            return Ok(TransactionResult::Before(text));
        }
    }
    execute(conn, "SAVEPOINT forever_tx /* forever */")?;
    let mut ran = guarded(|| work(&Tx(conn)));
    if conn.is_autocommit() {
        return Err(rolled_back());
    }
    if let Ran { came: Ok(Some(_)), forbidden: None, touched: Some(what) } = &mut ran {
        // Rare, so the earlier state is read afterwards. The work may run more than once.
        let (what, after) = (std::mem::take(what), catalog(conn)?);
        execute(conn, "ROLLBACK TO forever_tx /* forever */")?;
        let before = catalog(conn)?;
        if after == before {
            ran = guarded(|| work(&Tx(conn)));
            if conn.is_autocommit() {
                return Err(rolled_back());
            }
        }
        if after != before || catalog(conn)? != before {
            ran.forbidden.get_or_insert(format!("`{what}` is not allowed: it changed what belongs to Forever's tables"));
        }
    }
    let Ran { came, forbidden, .. } = ran;
    let transacted = match (came, forbidden) {
        (Err(payload), _) => TransactionResult::Panicked(payload),
        (Ok(_), Some(what)) => TransactionResult::Refused(Error::new(ErrorKind::Setup, format!("in a transaction, {what}"))),
        (Ok(None), None) => TransactionResult::Back,
        (Ok(Some(text)), None) => {
            if let Some((claim, Some(record))) = of {
                let record = OpRecord { state: OpState::Completed, outcome: Some(text), ..record.clone() };
                ops::save(conn, claim.fiber, &record, now_ms)?;
                rows::forget_deaths(conn, claim.fiber)?;
            }
            TransactionResult::Done
        }
    };
    if !matches!(transacted, TransactionResult::Done) {
        execute(conn, "ROLLBACK TO forever_tx /* forever */")?;
    }
    execute(conn, "RELEASE forever_tx /* forever */")?;
    Ok(transacted)
}

/// SQL of a pragma without a value. rusqlite's own methods for it have another type for the name of
/// the schema in older versions.
fn pragma(schema: Option<&str>, name: &str) -> String {
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let of = schema.map(|schema| quoted(schema) + ".").unwrap_or_default();
    format!("PRAGMA {of}{}", quoted(name))
}

/// Whether there is a table, and a column of it, in any case of letters. Older versions of rusqlite
/// do not have the methods that ask this.
fn exists(conn: &Connection, database: Option<&str>, table: &str, column: Option<&str>) -> rusqlite::Result<bool> {
    conn.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM pragma_table_list(?2) t, pragma_table_xinfo(t.name, t.schema) c
         WHERE t.type <> 'view' AND (?1 IS NULL OR t.schema = ?1 COLLATE NOCASE)
         AND (?3 IS NULL OR c.name = ?3 COLLATE NOCASE OR (NOT t.wr AND lower(?3) IN ('rowid', '_rowid_', 'oid'))))",
    )?
    .query_row(params![database, table, column], |r| r.get(0))
}

/// Result of a transaction that was carried out before.
fn carried_out(conn: &Connection, seq: Seq, op: &OpRecord) -> rusqlite::Result<Option<String>> {
    conn.prepare_cached(
        "SELECT outcome FROM ops WHERE fiber = ?1 AND number = ?2 AND id = ?3 AND kind = 'transaction' AND state = 'completed'",
    )?
    .query_row(params![seq, ops::at(op.number), op.id], |r| r.get(0))
    .optional()
}

/// `INSERT OR ROLLBACK` and similar statements end their transaction.
fn rolled_back() -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(
        ffi::Error::new(ffi::SQLITE_ABORT_ROLLBACK),
        Some("the transaction was rolled back by its own SQL".into()),
    )
}

fn migrate(conn: &Connection, given: &[Migration], now_ms: i64) -> Result<()> {
    let setup = |why: String| Error::new(ErrorKind::Setup, why);
    for (n, migration) in given.iter().enumerate() {
        if given[..n].iter().any(|other| other.name == migration.name) {
            return Err(setup(format!("there are two migrations of the name `{}`", migration.name)));
        }
    }
    let unreadable = |e| Error::new(ErrorKind::Store, "failed to read which migrations were applied").with_source(e);
    let applied = applied(conn).map_err(unreadable)?;
    for (n, (name, hash)) in applied.iter().enumerate() {
        let there = given.get(n).filter(|migration| migration.name == *name);
        let why = match there {
            Some(migration) if migration.hash() == *hash => continue,
            Some(_) => "was changed after it was applied: put it back as it was, and make the change in a new one".to_owned(),
            None if given.iter().any(|migration| migration.name == *name) => {
                format!("was applied as number {}, and stands elsewhere now: keep the order in which they were applied", n + 1)
            }
            None => "is in the database but not in the program".to_owned(),
        };
        return Err(setup(format!("migration `{name}` {why}")));
    }
    for (n, migration) in given.iter().enumerate().skip(applied.len()) {
        apply(conn, n + 1, migration, now_ms)?;
    }
    Ok(())
}

/// Names and hashes of the applied migrations, in order.
fn applied(conn: &Connection) -> rusqlite::Result<Vec<(String, String)>> {
    conn.prepare("SELECT name, hash FROM user_migrations ORDER BY n")?.query_map((), |r| Ok((r.get(0)?, r.get(1)?)))?.collect()
}

/// Applies a migration in a transaction of its own. Foreign keys are checked at its end, so a table
/// that others refer to can be rebuilt (<https://sqlite.org/lang_altertable.html>, section 7).
fn apply(conn: &Connection, n: usize, migration: &Migration, now_ms: i64) -> Result<()> {
    let name = &migration.name;
    let failed = |e| Error::new(kind_of(&e), format!("failed to apply migration `{name}`")).with_source(e);
    conn.pragma_update(None, "foreign_keys", false).map_err(failed)?;
    let applied = conn.execute_batch("BEGIN IMMEDIATE").map_err(failed).and_then(|()| {
        let before = catalog(conn).map_err(failed)?;
        let Ran { came, mut forbidden, touched } = guarded(|| conn.execute_batch(&migration.sql));
        if let Some(what) = touched
            && catalog(conn).map_err(failed)? != before
        {
            forbidden.get_or_insert(format!("`{what}` is not allowed: it changed what belongs to Forever's tables"));
        }
        if let Some(what) = forbidden {
            return Err(Error::new(ErrorKind::Setup, format!("failed to apply migration `{name}`: in a migration, {what}")));
        }
        came.unwrap_or_else(|_| Err(rolled_back())).map_err(failed)?;
        if conn.is_autocommit() {
            return Err(failed(rolled_back()));
        }
        if let Some(table) = dangling(conn).map_err(failed)? {
            let why = format!("failed to apply migration `{name}`: a row of `{table}` refers to one that is not there");
            return Err(Error::new(ErrorKind::Setup, why));
        }
        conn.execute(
            "INSERT INTO user_migrations (n, name, hash, applied_ms) VALUES (?1, ?2, ?3, ?4)",
            params![i64::try_from(n).unwrap_or(i64::MAX), name, migration.hash(), now_ms],
        )
        .and_then(|_| conn.execute_batch("COMMIT"))
        .map_err(failed)
    });
    if !conn.is_autocommit() {
        conn.execute_batch("ROLLBACK").map_err(failed)?;
    }
    conn.pragma_update(None, "foreign_keys", true).map_err(failed)?;
    applied
}

/// Kind of the error of a migration: `Store` if a retry may succeed, otherwise that of faulty SQL.
fn kind_of(error: &rusqlite::Error) -> ErrorKind {
    match error.sqlite_error_code() {
        Some(
            ErrorCode::SystemIoFailure
            | ErrorCode::DiskFull
            // A read that fails with `EIO` is reported as this.
            | ErrorCode::DatabaseCorrupt
            | ErrorCode::CannotOpen
            | ErrorCode::DatabaseBusy
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::OutOfMemory,
        ) => ErrorKind::Store,
        _ => ErrorKind::Setup,
    }
}

/// A table of the program with a row whose foreign key refers to no row.
fn dangling(conn: &Connection) -> rusqlite::Result<Option<String>> {
    let tables: Vec<String> =
        conn.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")?.query_map((), |r| r.get(0))?.collect::<Result<_, _>>()?;
    for table in tables.into_iter().filter(|table| !is_ours(table)) {
        if conn.prepare("SELECT 1 FROM pragma_foreign_key_check(?1)")?.exists([&table])? {
            return Ok(Some(table));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::open;

    #[test]
    fn migration_on_a_full_disk_can_be_tried_again() {
        let conn = open::in_memory(None).unwrap();
        let given = [Migration {
            name: "notes".to_owned(),
            sql: "CREATE TABLE notes (data); INSERT INTO notes VALUES (zeroblob(100000))".to_owned(),
        }];
        let pages: i64 = conn.pragma_query_value(None, "page_count", |r| r.get(0)).unwrap();
        conn.pragma_update(None, "max_page_count", pages + 2).unwrap();
        let error = migrate(&conn, &given, 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Store, "{error}");
        conn.pragma_update(None, "max_page_count", pages + 1000).unwrap();
        migrate(&conn, &given, 0).unwrap();
        let there: i64 = conn.query_row("SELECT count(*) FROM notes", (), |r| r.get(0)).unwrap();
        assert_eq!(there, 1);
    }
}
