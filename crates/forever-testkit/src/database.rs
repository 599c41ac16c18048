//! A second pair of eyes on the database of a test: the file, or the schema in Postgres in which the test kit of the runtime keeps it
//! where `FOREVER_TEST_STORE` names a server.
//!
//! A query has to be SQL of both. Tables of SQLite that have another name or form in Postgres are there as views of the session.
use std::path::Path;
use std::thread;
use std::time::Duration;

use rusqlite::OpenFlags;
use rusqlite::config::DbConfig;
use rusqlite::types::ValueRef;
use tokio_postgres::{NoTls, SimpleQueryMessage};

/// A row, whose values are texts or NULL.
pub type Row = Vec<Option<String>>;

/// What reads and writes beside the store.
#[derive(Debug)]
pub struct Database {
    at: At,
}

#[derive(Debug)]
enum At {
    Sqlite(rusqlite::Connection),
    Postgres { url: String, schema: String },
}

/// Whether tests keep their databases in Postgres.
pub fn is_in_postgres() -> bool {
    url().is_some()
}

/// The table with the chunks of turns that have not ended.
pub fn chunks() -> &'static str {
    if is_in_postgres() { "stream_items" } else { "stream_tail" }
}

fn url() -> Option<String> {
    std::env::var("FOREVER_TEST_STORE").ok()
}

/// As `forever::testing` names it.
fn schema(path: &Path) -> String {
    format!("file {}", path.display())
}

/// Tables and views of SQLite, in Postgres.
const VIEWS: &str = "
    CREATE TEMP VIEW op_ledger AS SELECT * FROM ops;
    CREATE TEMP VIEW stream_log AS SELECT * FROM stream_items;
    CREATE TEMP VIEW turn_log AS SELECT * FROM stream_items WHERE turn IS NOT NULL;";

impl Database {
    /// Opens the database that a runtime has opened at this path.
    pub fn open(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref();
        let at = match url() {
            Some(url) => At::Postgres { url, schema: schema(path) },
            None => At::Sqlite(rusqlite::Connection::open(path).unwrap()),
        };
        Database { at }
    }

    /// Opens it to read alone: the next process finds the log of a file as the last one has left it.
    pub fn look(path: impl AsRef<Path>) -> Self {
        if is_in_postgres() {
            return Self::open(path);
        }
        let conn = rusqlite::Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX).unwrap();
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
        Database { at: At::Sqlite(conn) }
    }

    /// Whether a runtime has come to make its tables.
    pub fn has_tables(&self) -> bool {
        match &self.at {
            At::Sqlite(_) => self.number("SELECT count(*) FROM sqlite_schema WHERE name = 'branch_results'") > 0,
            At::Postgres { url, schema } => {
                let tables = format!("SELECT 1 FROM pg_tables WHERE schemaname = '{schema}' AND tablename = 'branch_results'");
                !rows(url, "", &tables).is_empty()
            }
        }
    }

    /// The rows of a query.
    pub fn rows(&self, query: &str) -> Vec<Row> {
        match &self.at {
            At::Sqlite(conn) => {
                let mut query = conn.prepare_cached(query).unwrap();
                let columns = query.column_count();
                let rows = query.query_map((), |row| (0..columns).map(|n| Ok(text_of(row.get_ref(n)?))).collect());
                rows.unwrap().map(Result::unwrap).collect()
            }
            At::Postgres { url, schema } => rows(url, &begin(schema), query),
        }
    }

    /// The rows of several queries, all from one moment.
    pub fn at_one_moment<const N: usize>(&self, queries: [&str; N]) -> [Vec<Row>; N] {
        match &self.at {
            At::Sqlite(conn) => {
                let _all = conn.unchecked_transaction().unwrap();
                queries.map(|query| self.rows(query))
            }
            At::Postgres { url, schema } => {
                let queries = format!("BEGIN ISOLATION LEVEL REPEATABLE READ; {}", queries.join(";"));
                // `BEGIN` has a result too.
                let mut rows = results(url, &begin(schema), &queries).into_iter().skip(1);
                std::array::from_fn(|_| rows.next().unwrap_or_default())
            }
        }
    }

    /// The one number that a query gives.
    pub fn number(&self, query: &str) -> i64 {
        self.text(query).parse().unwrap()
    }

    /// The one text that a query gives.
    pub fn text(&self, query: &str) -> String {
        let rows = self.rows(query);
        let [row] = rows.as_slice() else { panic!("`{query}` gives {} rows", rows.len()) };
        row[0].clone().unwrap_or_else(|| panic!("`{query}` gives NULL"))
    }

    /// Runs statements, as another program might: without what the tables check.
    pub fn run(&self, statements: &str) {
        match &self.at {
            At::Sqlite(conn) => conn.execute_batch(&format!("PRAGMA ignore_check_constraints = ON; {statements}")).unwrap(),
            At::Postgres { url, schema } => drop(rows(url, &begin(schema), statements)),
        }
    }
}

fn begin(schema: &str) -> String {
    format!("SET search_path = \"{schema}\"; {VIEWS}")
}

fn text_of(value: ValueRef<'_>) -> Option<String> {
    match value {
        ValueRef::Null => None,
        ValueRef::Integer(n) => Some(n.to_string()),
        ValueRef::Real(n) => Some(n.to_string()),
        ValueRef::Text(text) | ValueRef::Blob(text) => Some(String::from_utf8_lossy(text).into_owned()),
    }
}

/// Ends what a runtime that was dropped would still do: its sessions, which the test kit names after the schema.
pub async fn end_sessions(path: &Path) {
    if let Some(url) = url() {
        // What a session has begun to commit is stored by then, or never.
        let sql = format!("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = '{}'", schema(path));
        tokio::task::spawn_blocking(move || rows(&url, "", &sql)).await.unwrap();
    }
}

/// Waits until the sessions of a runtime have done what they were asked for.
pub async fn until_idle(path: &Path) {
    let Some(url) = url() else { return };
    let sql = format!("SELECT 1 FROM pg_stat_activity WHERE application_name = '{}' AND state <> 'idle'", schema(path));
    let mut idle = 0;
    while idle < 3 {
        tokio::time::sleep(Duration::from_millis(2)).await;
        let (url, sql) = (url.clone(), sql.clone());
        let busy = tokio::task::spawn_blocking(move || rows(&url, "", &sql)).await.unwrap();
        idle = if busy.is_empty() { idle + 1 } else { 0 };
    }
}

/// Removes a database that no runtime has open.
pub async fn remove(path: &Path) {
    match url() {
        None => std::fs::remove_file(path).unwrap(),
        Some(url) => {
            let sql = format!("DROP SCHEMA \"{}\" CASCADE", schema(path));
            tokio::task::spawn_blocking(move || rows(&url, "", &sql)).await.unwrap();
        }
    }
}

/// Copies a database that no runtime has open.
///
/// Meanwhile the tasks of the caller's thread run: the sessions of a runtime that it has dropped end in them.
pub async fn copy(from: &Path, to: &Path) {
    match url() {
        None => drop(std::fs::copy(from, to).unwrap()),
        Some(url) => {
            let (from, to) = (schema(from), schema(to));
            tokio::task::spawn_blocking(move || copy_schema(&url, &from, &to)).await.unwrap();
        }
    }
}

fn copy_schema(url: &str, from: &str, to: &str) {
    let mut copy = format!("DROP SCHEMA IF EXISTS \"{to}\" CASCADE; CREATE SCHEMA \"{to}\";");
    let mut add = |statement: String| copy.push_str(&statement);
    for [table] in texts(url, &format!("SELECT tablename FROM pg_tables WHERE schemaname = '{from}'")) {
        add(format!("CREATE TABLE \"{to}\".{table} (LIKE \"{from}\".{table} INCLUDING ALL);"));
        add(format!("INSERT INTO \"{to}\".{table} SELECT * FROM \"{from}\".{table};"));
    }
    let identities =
        format!("SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = '{from}' AND is_identity = 'YES'");
    for [table, column] in texts(url, &identities) {
        let next = format!("(SELECT coalesce(max({column}), 0) + 1 FROM \"{to}\".{table})");
        add(format!("SELECT setval(pg_get_serial_sequence('\"{to}\".{table}', '{column}'), {next}, FALSE);"));
    }
    // References are not among `ALL`.
    let references = format!(
        "SELECT c.relname, pg_get_constraintdef(r.oid) FROM pg_constraint r JOIN pg_class c ON c.oid = r.conrelid
         JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = '{from}' AND r.contype = 'f'"
    );
    for [table, definition] in texts(url, &references) {
        add(format!("ALTER TABLE \"{to}\".{table} ADD {};", definition.replace(from, to)));
    }
    rows(url, "", &copy);
}

/// The rows of a query without NULL.
fn texts<const N: usize>(url: &str, query: &str) -> Vec<[String; N]> {
    let row = |row: Row| <[Option<String>; N]>::try_from(row).unwrap().map(Option::unwrap);
    rows(url, "", query).into_iter().map(row).collect()
}

/// Runs statements in a new session; returns the rows of all of them.
fn rows(url: &str, before: &str, sql: &str) -> Vec<Row> {
    results(url, before, sql).concat()
}

/// Runs statements in a new session, on a thread of its own, since the caller may be a task; returns the rows of each.
fn results(url: &str, before: &str, sql: &str) -> Vec<Vec<Row>> {
    let work = async {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        client.batch_execute(before).await?;
        client.simple_query(sql).await
    };
    let run = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work);
    let said: Result<_, tokio_postgres::Error> = thread::scope(|scope| scope.spawn(run).join().unwrap());
    let said = said.unwrap_or_else(|error| panic!("{sql}: {}", error.as_db_error().map_or_else(|| error.to_string(), ToString::to_string)));
    let (mut all, mut rows) = (Vec::new(), Vec::new());
    for said in said {
        match said {
            SimpleQueryMessage::Row(row) => rows.push((0..row.len()).map(|n| row.get(n).map(str::to_owned)).collect()),
            SimpleQueryMessage::CommandComplete(_) => all.push(std::mem::take(&mut rows)),
            _ => {}
        }
    }
    all
}
