//! Opening a file: the checks before anything is changed, and the settings of a connection.
use std::fs::File;
use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::lock::{self, DatabaseFile, beside};
use super::pace::BUSY_TIMEOUT;
use super::{compat, fences, guard, numbers, schema, streams};
use crate::error::{Error, ErrorKind, Result};

/// A log that one huge snapshot has made long is truncated to this many bytes.
const LOG_LIMIT: i64 = 32 << 20;

/// Page size of a new database. A commit writes whole pages, and most rows are shorter than one of
/// these, so half of SQLite's default halves the bytes written.
const PAGE_BYTES: i64 = 2048;

/// What a commit survives.
///
/// Given to `Builder::durability`, or with a store:
///
/// ```
/// # mod forever { pub use forever_store as store; pub use forever_store::Result; }
/// use forever::store::{Durability, Sqlite};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("cache.db");
/// // What a power failure takes from it can be computed again.
/// let store = Sqlite::open(path, Durability::Process, Duration::ZERO).await?;
/// # drop(store);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Durability {
    /// Power loss: every commit is synced to the disk (`synchronous=FULL`).
    #[default]
    Power,
    /// Process death. After a power loss the newest commits may be missing; older ones are there,
    /// and the database is undamaged (`synchronous=NORMAL`).
    Process,
}

impl Durability {
    /// The value of `PRAGMA synchronous`.
    fn level(self) -> i64 {
        match self {
            Durability::Power => 2,
            Durability::Process => 1,
        }
    }
}

/// Number of attempts to open a file before it counts as damaged.
const ATTEMPTS: u32 = 3;

/// Opens a file, and retries where SQLite reports damage: it reports a read that fails with `EIO`
/// in the same way (`SQLITE_IOERR_CORRUPTFS` becomes `SQLITE_CORRUPT`). A file counts as damaged if
/// it can be read from beginning to end and SQLite reports damage each time.
fn readable<T>(path: &Path, mut open: impl FnMut() -> Result<T>) -> Result<T> {
    let mut attempts = 1;
    loop {
        let error = match open() {
            Err(error) if is_corrupt(&error) => error,
            opened => return opened,
        };
        for file in [path.to_owned(), beside(path, "-wal")] {
            match File::open(&file).and_then(|mut file| std::io::copy(&mut file, &mut std::io::sink())) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    let why = format!("failed to open database `{}`: `{}` cannot be read", path.display(), file.display());
                    return Err(Error::new(ErrorKind::Store, why).with_source(e));
                }
                _ => {}
            }
        }
        if attempts == ATTEMPTS {
            return Err(error);
        }
        attempts += 1;
    }
}

fn is_corrupt(error: &Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<rusqlite::Error>());
    cause.and_then(rusqlite::Error::sqlite_error_code) == Some(rusqlite::ErrorCode::DatabaseCorrupt)
}

/// Refuses a file that is not a database of this library, and changes nothing.
///
/// Gives the connection that it has read the write-ahead log with, if it had to. The first
/// connection of a process reads the log to its end; others use what it has found while it is open.
pub(crate) fn check(file: &DatabaseFile) -> Result<Option<Connection>> {
    readable(file.path(), || check_once(file))
}

fn check_once(file: &DatabaseFile) -> Result<Option<Connection>> {
    let real = file.path();
    let refused = |kind, why: String| Error::new(kind, format!("failed to open database `{}`: {why}", file.given().display()));
    let header = file.header().map_err(|e| refused(ErrorKind::Store, "it cannot be read".into()).with_source(e))?;
    if header.is_empty() {
        let log = beside(real, "-wal");
        // SQLite would remove it: https://sqlite.org/wal.html#the_wal_file
        if std::fs::metadata(&log).is_ok_and(|found| found.len() > 0) {
            let why = format!(
                "its write-ahead log `{}` has commits, and the database is not beside it: put the database back in its place, or move the log away",
                log.display()
            );
            return Err(refused(ErrorKind::Format, why));
        }
        return Ok(None);
    }
    if header.len() < 100 || !header.starts_with(b"SQLite format 3\0") {
        return Err(refused(ErrorKind::Format, "it is not an SQLite database".into()));
    }
    // The places of the two numbers are fixed by SQLite's file format, section 1.3.
    let (version, application) = (number(&header, 60), number(&header, 68));
    if application != 0 {
        return fits(application, version).map(|()| None).map_err(|why| refused(ErrorKind::Format, why));
    }
    // The database of another program, or one of ours whose first page is still in the log alone.
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let foreign = Connection::open_with_flags(real, flags).and_then(|conn| {
        conn.busy_timeout(BUSY_TIMEOUT)?;
        leave_log(&conn, true)?;
        Ok((is_ours(&conn)?, conn))
    });
    match foreign {
        // Its process was killed while it created the database, so it had the lock. A read-only
        // connection cannot roll back the unfinished transaction; the writer can, and checks again.
        Err(e) if is_half_done(&e) && lock::lock_path(real).exists() => Ok(None),
        Err(e) => Err(refused(kind_of(&e), "it cannot be read".into()).with_source(e)),
        Ok((ours, conn)) => ours.map(|()| Some(conn)).map_err(|why| refused(ErrorKind::Format, why)),
    }
}

/// Whether a transaction has to be rolled back before the file can be read.
fn is_half_done(error: &rusqlite::Error) -> bool {
    compat::extended_code(error) == Some(rusqlite::ffi::SQLITE_READONLY_ROLLBACK)
}

fn number(header: &[u8], at: usize) -> i32 {
    header.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, i32::from_be_bytes)
}

fn fits(application: i32, version: i32) -> Result<(), String> {
    if application == schema::DEVELOPMENT_ID {
        return Err("it was made by a development version of Forever before 0.1.0, whose tables this program does not read".into());
    }
    if application != schema::APPLICATION_ID {
        return Err(format!("it belongs to another program (application id {application:#x})"));
    }
    if version > schema::version() {
        return Err(format!("its schema has version {version}, and this program knows versions up to {}", schema::version()));
    }
    Ok(())
}

/// Whether the database is one of ours or empty; otherwise the reason why not.
fn is_ours(conn: &Connection) -> rusqlite::Result<Result<(), String>> {
    let application: i32 = conn.pragma_query_value(None, "application_id", |r| r.get(0))?;
    let version: i32 = conn.pragma_query_value(None, "user_version", |r| r.get(0))?;
    if application == 0 {
        let tables: i64 = conn.query_row("SELECT count(*) FROM sqlite_schema", (), |r| r.get(0))?;
        let empty = tables == 0 && version == 0;
        return Ok(if empty { Ok(()) } else { Err("it is an SQLite database of another program".into()) });
    }
    Ok(fits(application, version))
}

/// Opens the one connection that writes. `path` has passed [`check`], and the caller holds the
/// lock. A connection that `dies` leaves the write-ahead log as it is when it is closed, as a
/// killed process does.
pub(crate) fn writer(path: &Path, durability: Durability, dies: bool) -> Result<Connection> {
    readable(path, || writer_once(path, durability, dies))
}

fn writer_once(path: &Path, durability: Durability, dies: bool) -> Result<Connection> {
    let failed = |why: &str| Error::new(ErrorKind::Store, format!("failed to open database `{}`: {why}", path.display()));
    let sqlite = |e: rusqlite::Error| Error::new(kind_of(&e), format!("failed to open database `{}`", path.display())).with_source(e);
    let new = std::fs::metadata(path).map_or(true, |found| found.len() == 0);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut conn = Connection::open_with_flags(path, flags).map_err(sqlite)?;
    conn.busy_timeout(BUSY_TIMEOUT).map_err(sqlite)?;
    leave_log(&conn, true).map_err(sqlite)?;
    is_ours(&conn).map_err(sqlite)?.map_err(|why| Error::new(ErrorKind::Format, failed(&why).to_string()))?;
    leave_log(&conn, dies).map_err(sqlite)?;

    // No effect on an existing database, whose pages may be in its log alone.
    conn.pragma_update(None, "page_size", PAGE_BYTES).map_err(sqlite)?;
    let mode: String = conn.pragma_update_and_check(None, "journal_mode", "WAL", |r| r.get(0)).map_err(sqlite)?;
    if mode != "wal" {
        return Err(failed(&format!("its journal mode stays `{mode}` where `wal` is needed")));
    }
    set(&conn, "synchronous", durability.level()).map_err(sqlite)?.map_err(|why| failed(&why))?;
    // Where the system has a stronger sync than the usual one (macOS), durability against power
    // loss uses it. Elsewhere these pragmas have no effect.
    let strong = i64::from(durability == Durability::Power);
    set(&conn, "fullfsync", strong).map_err(sqlite)?.map_err(|why| failed(&why))?;
    set(&conn, "checkpoint_fullfsync", strong).map_err(sqlite)?.map_err(|why| failed(&why))?;
    set(&conn, "journal_size_limit", LOG_LIMIT).map_err(sqlite)?.map_err(|why| failed(&why))?;
    prepare(&mut conn).map_err(sqlite)?;
    if new {
        sync_folder(path).map_err(|e| failed("its folder cannot be synced").with_source(e))?;
    }
    Ok(conn)
}

/// Opens a connection that only reads. The writer has opened the database already, so an error here
/// is not one of its format.
pub(crate) fn reader(path: &Path) -> Result<Connection> {
    let sqlite = |e| not_opened(path, e);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags).map_err(sqlite)?;
    conn.busy_timeout(BUSY_TIMEOUT).map_err(sqlite)?;
    keep_statements(&conn).map_err(sqlite)?;
    // Parses the schema now, beside what the writer does, and not when the first caller waits.
    conn.prepare("SELECT 1 FROM fibers").map(drop).map_err(sqlite)?;
    Ok(conn)
}

/// Opens a connection that copies the write-ahead log of a database that the writer has opened. It
/// has the same files open from now on, even if others take their places.
pub(crate) fn copier(path: &Path, durability: Durability) -> Result<Connection> {
    let sqlite = |e| not_opened(path, e);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags).map_err(sqlite)?;
    // The writer's connection is closed last, and tidies up.
    leave_log(&conn, true).map_err(sqlite)?;
    // `synchronous` stays at its default, `FULL`: a copy syncs as much at `NORMAL`, and setting it
    // would parse the schema.
    conn.pragma_update(None, "checkpoint_fullfsync", i64::from(durability == Durability::Power)).map_err(sqlite)?;
    // The first read opens the log. This one reads no table of the schema.
    conn.pragma_query_value(None, "user_version", |_| Ok(())).map_err(sqlite)?;
    Ok(conn)
}

/// Error of a further connection to a database that the writer has opened.
fn not_opened(path: &Path, why: rusqlite::Error) -> Error {
    Error::new(ErrorKind::Store, format!("failed to open database `{}`", path.display())).with_source(why)
}

/// Opens a database that lives as long as its connection. All connections of this process that are
/// open at a time share the database of one name.
pub(crate) fn in_memory(name: Option<&str>) -> Result<Connection> {
    let sqlite = |e: rusqlite::Error| Error::new(ErrorKind::Store, "failed to open a database in memory").with_source(e);
    let mut conn = match name {
        // Names that begin with a slash are shared: https://sqlite.org/src/file/src/memdb.c
        Some(name) => Connection::open(format!("file:/{name}?vfs=memdb")).map_err(sqlite)?,
        None => Connection::open_in_memory().map_err(sqlite)?,
    };
    conn.busy_timeout(BUSY_TIMEOUT).map_err(sqlite)?;
    prepare(&mut conn).map_err(sqlite)?;
    Ok(conn)
}

/// Capacity of the statement cache: more than there are statements, so none is parsed twice.
const STATEMENTS: usize = 256;

/// Maximum size of the page cache: the items of a thousand streams that are not copied yet, and the
/// pages that they are copied to. SQLite's own is 2 MiB.
const CACHE_KIB: i64 = 8 << 10;

/// Keeps statements as they were parsed. By default SQLite parses most of them again when they get
/// other values, in search of a better plan (<https://sqlite.org/queryplanner-ng.html#qpstab>).
fn keep_statements(conn: &Connection) -> rusqlite::Result<()> {
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(drop)
}

fn prepare(conn: &mut Connection) -> rusqlite::Result<()> {
    keep_statements(conn)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, true)?;
    conn.pragma_update(None, "temp_store", "memory")?;
    conn.pragma_update(None, "cache_size", -CACHE_KIB)?;
    schema::migrate(conn, schema::MIGRATIONS)?;
    // A file that cannot be opened for writing at this moment is opened for reading by SQLite. It
    // reports that at the first write only, also if the file could be written by then.
    let transaction = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    numbers::open(&transaction)?;
    streams::open(&transaction)?;
    transaction.commit()?;
    fences::install(conn)?;
    guard::install(conn)
}

/// Sets a pragma and reads it back; the inner error means that it had no effect.
fn set(conn: &Connection, pragma: &str, value: i64) -> rusqlite::Result<Result<(), String>> {
    // Some pragmas return a row when set, some do not.
    conn.pragma_update(None, pragma, value)?;
    let got: i64 = conn.pragma_query_value(None, pragma, |r| r.get(0))?;
    Ok(if got == value { Ok(()) } else { Err(format!("`{pragma}` stays {got} where {value} is needed")) })
}

/// Sets whether closing the connection leaves the write-ahead log as it is. Files that are not ours
/// are not tidied up.
fn leave_log(conn: &Connection, leave: bool) -> rusqlite::Result<()> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, leave).map(drop)
}

fn kind_of(error: &rusqlite::Error) -> ErrorKind {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::NotADatabase | rusqlite::ErrorCode::DatabaseCorrupt) => ErrorKind::Format,
        _ => ErrorKind::Store,
    }
}

/// Syncs the folder of a new file: SQLite syncs the file, but not its entry in the folder.
pub(super) fn sync_folder(path: &Path) -> std::io::Result<()> {
    match path.parent() {
        #[cfg(unix)]
        Some(folder) => {
            File::open(folder)?.sync_all()?;
            #[cfg(test)]
            tests::SYNCED.with_borrow_mut(|synced| synced.push(folder.to_owned()));
            Ok(())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::path::PathBuf;
    use std::time::Duration;

    use super::*;
    use crate::Sqlite;

    thread_local! {
        /// The folders that this thread has synced.
        pub(super) static SYNCED: RefCell<Vec<PathBuf>> = const { RefCell::new(Vec::new()) };
    }

    #[cfg(unix)]
    #[test]
    fn folder_of_a_new_database_is_synced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        for made in [|_: &Path| {}, |path: &Path| drop(File::create(path).unwrap())] {
            SYNCED.take();
            made(&path);
            drop(writer(&path, Durability::Power, false).unwrap());
            assert_eq!(SYNCED.take(), [folder.path()], "before anybody is told that something is stored");
            drop(writer(&path, Durability::Power, false).unwrap());
            assert_eq!(SYNCED.take(), [] as [&Path; 0], "its name is stored by then");
            std::fs::remove_file(&path).unwrap();
        }
    }

    /// The names and the contents of all files of a folder, but for the index of the log.
    fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
        let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        paths.filter(|path| !path.ends_with("a.db-shm")).map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
    }

    #[tokio::test]
    async fn database_of_a_development_version_is_refused_and_left_alone() {
        // The first page is in the log alone while the connection that made it is open.
        for (version, is_in_log) in [(1, false), (1, true), (13, false), (13, true)] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("a.db");
            let made = Connection::open(&path).unwrap();
            made.execute_batch(&format!(
                "PRAGMA journal_mode = WAL; PRAGMA application_id = 0x46727672; PRAGMA user_version = {version};
                 CREATE TABLE fibers (id TEXT); INSERT INTO fibers VALUES ('f')"
            ))
            .unwrap();
            let made = Some(made).filter(|_| is_in_log);
            let before = files(folder.path());
            let error = Sqlite::open(&path, Durability::Power, Duration::ZERO).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Format);
            assert!(error.to_string().contains("development version of Forever before 0.1.0"), "{error}");
            assert_eq!(files(folder.path()), before);
            drop(made);
        }
    }

    #[test]
    fn every_durability_is_what_sqlite_says_it_is() {
        let folder = tempfile::tempdir().unwrap();
        for (durability, level) in [(Durability::Power, 2), (Durability::Process, 1)] {
            let conn = writer(&folder.path().join("a.db"), durability, false).unwrap();
            let read = |pragma| conn.pragma_query_value(None, pragma, |r| r.get::<_, i64>(0)).unwrap();
            assert_eq!(read("synchronous"), level);
            assert_eq!(read("fullfsync"), i64::from(level == 2));
            assert_eq!(read("foreign_keys"), 1);
            assert_eq!(read("application_id"), i64::from(schema::APPLICATION_ID));
            assert_eq!(read("user_version"), i64::from(schema::version()));
            let mode: String = conn.pragma_query_value(None, "journal_mode", |r| r.get(0)).unwrap();
            assert_eq!(mode, "wal");
            let copier = copier(&folder.path().join("a.db"), durability).unwrap();
            let read = |pragma| copier.pragma_query_value(None, pragma, |r| r.get::<_, i64>(0)).unwrap();
            assert_eq!(read("synchronous"), 2, "by default");
            assert_eq!(read("checkpoint_fullfsync"), i64::from(level == 2));
        }
    }

    /// The error with which SQLite reports damage, and a read that failed with `EIO`.
    fn corrupt() -> Error {
        let why = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT), None);
        Error::new(kind_of(&why), "failed to open").with_source(why)
    }

    #[test]
    fn failed_read_is_not_taken_for_damage() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        std::fs::write(&path, "there").unwrap();
        let mut failures = [true, false].into_iter();
        let opened = readable(&path, || if failures.next().unwrap() { Err(corrupt()) } else { Ok(1) });
        assert_eq!(opened.unwrap(), 1);
        assert_eq!(readable::<()>(&path, || Err(corrupt())).unwrap_err().kind(), ErrorKind::Format);
        // A folder is what can be opened and cannot be read.
        let unreadable = readable::<()>(folder.path(), || Err(corrupt())).unwrap_err();
        assert_eq!(unreadable.kind(), ErrorKind::Store, "{unreadable}");
    }

    #[test]
    fn a_setting_that_does_not_take_is_an_error() {
        let conn = Connection::open_in_memory().unwrap();
        let why = set(&conn, "synchronous", 77).unwrap().unwrap_err();
        assert!(why.starts_with("`synchronous` stays "), "{why}");
    }
}
