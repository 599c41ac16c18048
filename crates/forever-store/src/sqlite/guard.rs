//! The guard: code of the program may change none of Forever's tables, nor the transaction or the
//! connection that it runs in.
//!
//! While the code runs, SQLite calls the guard for every statement that it prepares; the store's
//! own statements are not checked. A forbidden action is reported even if the code ignores the
//! error that SQLite returns.
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rusqlite::Connection;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization, TransactionOperation};
use rusqlite::types::Value;

use super::compat::Outcome as _;
use super::schema;

thread_local! {
    /// Whether code of the program is running.
    static GUARDS: Cell<bool> = const { Cell::new(false) };
    /// The first forbidden action that it tried.
    static FORBIDDEN: RefCell<Option<String>> = const { RefCell::new(None) };
    /// The first action that may have changed SQLite's own rows about Forever's tables.
    static TOUCHED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Installs the guard on a connection. It allows everything until code of the program runs on the
/// connection's thread.
///
/// It is installed once, because installing it makes SQLite prepare all statements again.
/// Statements that were prepared before are not checked. Those of the store are in the same cache,
/// so the ones that end a transaction have texts that no program would use.
pub(super) fn install(conn: &mut Connection) -> rusqlite::Result<()> {
    let installed = conn.authorizer(Some(|about: AuthContext<'_>| {
        if !GUARDS.get() {
            return Authorization::Allow;
        }
        if let Some(what) = touched(&about) {
            TOUCHED.with_borrow_mut(|first| {
                first.get_or_insert(what);
            });
        }
        let Some(what) = forbidden(&about) else { return Authorization::Allow };
        FORBIDDEN.with_borrow_mut(|first| {
            first.get_or_insert(what);
        });
        Authorization::Deny
    }));
    installed.outcome().map(drop)
}

/// Result of a run of the program's code.
pub(super) struct Ran<T> {
    pub(super) came: std::thread::Result<T>,
    /// The forbidden action that it tried, if any.
    pub(super) forbidden: Option<String>,
    /// An action that is allowed for tables of its own only, if any.
    pub(super) touched: Option<String>,
}

/// Runs code of the program under the guard.
pub(super) fn guarded<T>(work: impl FnOnce() -> T) -> Ran<T> {
    FORBIDDEN.take();
    TOUCHED.take();
    GUARDS.set(true);
    let came = catch_unwind(AssertUnwindSafe(work));
    GUARDS.set(false);
    Ran { came, forbidden: FORBIDDEN.take(), touched: TOUCHED.take() }
}

/// Rows of SQLite's own tables about Forever's tables.
pub(super) fn catalog(conn: &Connection) -> rusqlite::Result<Vec<String>> {
    let tables = "SELECT name FROM sqlite_schema WHERE name = 'sqlite_sequence' OR name GLOB 'sqlite_stat*'";
    let tables: Vec<String> = conn.prepare(tables)?.query_map((), |r| r.get(0))?.collect::<Result<_, _>>()?;
    let mut rows = Vec::new();
    for table in tables {
        let mut all = conn.prepare(&format!("SELECT * FROM {table}"))?;
        let columns = all.column_count();
        let mut found = all.query(())?;
        while let Some(row) = found.next()? {
            let values = (0..columns).map(|n| row.get(n)).collect::<Result<Vec<Value>, _>>()?;
            // The first column names the table.
            if matches!(values.first(), Some(Value::Text(of)) if is_ours(of)) {
                rows.push(format!("{table} {values:?}"));
            }
        }
    }
    rows.sort_unstable();
    Ok(rows)
}

/// Whether SQLite's own tables are written: directly, or because a table is dropped, renamed or
/// analyzed.
fn touched(about: &AuthContext<'_>) -> Option<String> {
    let (what, table) = match about.action {
        AuthAction::Insert { table_name } => ("INSERT INTO", table_name),
        AuthAction::Update { table_name, .. } => ("UPDATE", table_name),
        AuthAction::Delete { table_name } => ("DELETE FROM", table_name),
        _ => return None,
    };
    let name = table.to_ascii_lowercase();
    (name == "sqlite_sequence" || name.starts_with("sqlite_stat")).then(|| format!("{what} {name}"))
}

/// Whether a table, index or view is one of Forever's.
pub(super) fn is_ours(name: &str) -> bool {
    schema::NAMES.iter().chain(&schema::TEMPORARY).any(|ours| ours.eq_ignore_ascii_case(name))
}

const ENDS: &str = "it is begun and ended from outside, and cannot be nested";

/// The forbidden part of an action, as the end of a sentence.
fn forbidden(about: &AuthContext<'_>) -> Option<String> {
    use AuthAction as A;
    let ours = |what: &str, name: &str| {
        let by = about.accessor.map(|by| format!(" by `{by}`")).unwrap_or_default();
        is_ours(name).then(|| format!("`{what} {name}`{by} is not allowed: `{name}` is Forever's"))
    };
    let never = |what: String, why: &str| Some(format!("`{what}` is not allowed: {why}"));
    match about.action {
        A::Transaction { operation } => match operation {
            TransactionOperation::Begin => never("BEGIN".into(), ENDS),
            TransactionOperation::Rollback => never("ROLLBACK".into(), ENDS),
            _ => never("COMMIT".into(), ENDS),
        },
        A::Savepoint { operation, savepoint_name } => match operation {
            TransactionOperation::Release => never(format!("RELEASE {savepoint_name}"), ENDS),
            TransactionOperation::Rollback => never(format!("ROLLBACK TO {savepoint_name}"), ENDS),
            _ => never(format!("SAVEPOINT {savepoint_name}"), ENDS),
        },
        A::Attach { filename } => never(format!("ATTACH {filename}"), "there is one database"),
        A::Detach { database_name } => never(format!("DETACH {database_name}"), "there is one database"),
        A::Pragma { pragma_name, pragma_value } => {
            let name = pragma_name.to_ascii_lowercase();
            let reads = match pragma_value {
                None => READING.contains(&&*name) || LISTING.contains(&&*name),
                Some(_) => LISTING.contains(&&*name),
            };
            let value = pragma_value.map(|value| format!(" = {value}")).unwrap_or_default();
            if reads { None } else { never(format!("PRAGMA {pragma_name}{value}"), "the settings of the database are Forever's") }
        }
        A::Insert { table_name } => ours("INSERT INTO", table_name),
        A::Update { table_name, .. } => ours("UPDATE", table_name),
        A::Delete { table_name } => ours("DELETE FROM", table_name),
        A::Analyze { table_name } => ours("ANALYZE", table_name),
        // The new name is not known here: it could hide a table of ours.
        A::AlterTable { database_name, table_name } if database_name.eq_ignore_ascii_case("temp") => {
            never(format!("ALTER TABLE temp.{table_name}"), "make a new temporary table")
        }
        A::AlterTable { table_name, .. } => ours("ALTER TABLE", table_name),
        A::CreateTable { table_name } | A::CreateTempTable { table_name } | A::CreateVtable { table_name, .. } => {
            ours("CREATE TABLE", table_name)
        }
        A::CreateView { view_name } | A::CreateTempView { view_name } => ours("CREATE VIEW", view_name),
        A::CreateIndex { index_name, table_name } | A::CreateTempIndex { index_name, table_name } => {
            ours("CREATE INDEX", index_name).or_else(|| ours("CREATE INDEX ON", table_name))
        }
        A::CreateTrigger { table_name, .. } | A::CreateTempTrigger { table_name, .. } => ours("CREATE TRIGGER ON", table_name),
        A::DropTable { table_name } | A::DropTempTable { table_name } | A::DropVtable { table_name, .. } => ours("DROP TABLE", table_name),
        A::DropView { view_name } | A::DropTempView { view_name } => ours("DROP VIEW", view_name),
        A::DropIndex { index_name, .. } | A::DropTempIndex { index_name, .. } => ours("DROP INDEX", index_name),
        A::Unknown { code, .. } => never(format!("action {code} of SQLite"), "Forever does not know it"),
        _ => None,
    }
}

/// Pragmas that describe a table, an index or the database, with a value or without.
const LISTING: [&str; 9] = [
    "table_info",
    "table_xinfo",
    "table_list",
    "index_list",
    "index_info",
    "index_xinfo",
    "foreign_key_list",
    "foreign_key_check",
    "quick_check",
];

/// Pragmas that only read when they have no value.
const READING: [&str; 18] = [
    "application_id",
    "busy_timeout",
    "collation_list",
    "compile_options",
    "data_version",
    "database_list",
    "encoding",
    "foreign_keys",
    "freelist_count",
    "function_list",
    "integrity_check",
    "journal_mode",
    "module_list",
    "page_count",
    "page_size",
    "schema_version",
    "synchronous",
    "user_version",
];
