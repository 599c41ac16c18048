//! A second pair of eyes on the database of a test: the file, or the schema in Postgres in which the test kit of the runtime keeps it
//! where `FOREVER_TEST_STORE` names a server.
//!
//! A query has to be SQL of both. Tables of SQLite that have another name or form in Postgres are there as views of the session.
use std::path::Path;
use std::thread;

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
                let mut query = conn.prepare(query).unwrap();
                let columns = query.column_count();
                let rows = query.query_map((), |row| (0..columns).map(|n| Ok(text_of(row.get_ref(n)?))).collect());
                rows.unwrap().map(Result::unwrap).collect()
            }
            At::Postgres { url, schema } => rows(url, &begin(schema), query),
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

/// Runs statements in a new session, on a thread of its own, since the caller may be a task; returns their rows.
fn rows(url: &str, before: &str, sql: &str) -> Vec<Row> {
    let work = async {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        client.batch_execute(before).await?;
        client.simple_query(sql).await
    };
    let run = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work);
    let said: Result<_, tokio_postgres::Error> = thread::scope(|scope| scope.spawn(run).join().unwrap());
    let said = said.unwrap_or_else(|error| panic!("{sql}: {}", error.as_db_error().map_or_else(|| error.to_string(), ToString::to_string)));
    let row = |said| match said {
        SimpleQueryMessage::Row(row) => Some((0..row.len()).map(|n| row.get(n).map(str::to_owned)).collect()),
        _ => None,
    };
    said.into_iter().filter_map(row).collect()
}
