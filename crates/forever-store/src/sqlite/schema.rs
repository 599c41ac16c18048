//! The tables, and the migrations from older schemas. Every table and column is explained in
//! docs/guide/src/reference/format.md.
use rusqlite::{Connection, TransactionBehavior};

/// `PRAGMA application_id` of our files: "Frv1".
pub(crate) const APPLICATION_ID: i32 = 0x4672_7631;

/// `PRAGMA application_id` of the files that versions before 0.1.0 made: "Frvr". Their schemas were
/// numbered from 1, as the released ones are.
pub(crate) const DEVELOPMENT_ID: i32 = 0x4672_7672;

/// One script per version; `PRAGMA user_version` counts those that have run. Released ones never
/// change.
pub(crate) const MIGRATIONS: &[&str] = &[include_str!("schema_1.sql")];

/// Our tables and views, and the indexes with names.
pub(super) const NAMES: [&str; 63] = [
    "agents",
    "agents_awake",
    "branch_results",
    "chat_messages",
    "chat_messages_pending",
    "chat_messages_pending_chat",
    "chat_messages_place",
    "chats",
    "closed_topics",
    "fibers",
    "fibers_agent",
    "fibers_ended",
    "fibers_function",
    "fibers_key",
    "fibers_open",
    "fibers_parent",
    "history_tail",
    "history_tail_left",
    "incidents",
    "joins",
    "joins_fiber",
    "layouts",
    "message_ids",
    "messages",
    "messages_fiber",
    "op_ledger",
    "ops",
    "ops_retried",
    "parts",
    "past_fibers",
    "past_fibers_deleted",
    "past_fibers_key",
    "schedules",
    "schedules_agent",
    "schedules_next",
    "schedules_running",
    "settled_ops",
    "settled_ops_fiber",
    "snapshot_documents",
    "snapshots",
    "stream_chunks",
    "stream_log",
    "stream_tail",
    "stream_tail_left",
    "streams",
    "streams_fiber",
    "streams_turn",
    "turn_log",
    "turn_requests",
    "turns",
    "turns_chat",
    "turns_failed",
    "turns_fiber",
    "turns_key",
    "turns_open",
    "turns_settled",
    "turns_unfolded",
    "user_migrations",
    "wait_topics",
    "waits",
    "waits_due",
    "waits_place",
    "workers",
];

/// The same of the temporary schema of the connection that writes.
pub(super) const TEMPORARY: [&str; 5] = ["last_numbers", "stream_deleted", "stream_next", "stream_tail_open", "stream_tail_open_first"];

/// The schema version that this code reads and writes.
pub(crate) fn version() -> i32 {
    i32::try_from(MIGRATIONS.len()).unwrap_or(i32::MAX)
}

/// Runs the `migrations` that a database still lacks, in one transaction.
pub(crate) fn migrate(conn: &mut Connection, migrations: &[&str]) -> rusqlite::Result<()> {
    let done: i32 = conn.pragma_query_value(None, "user_version", |r| r.get(0))?;
    let done = usize::try_from(done).unwrap_or(0);
    let Some(missing) = migrations.get(done..).filter(|m| !m.is_empty()) else { return Ok(()) };
    // A new column makes SQLite check all rows of its table again. A damaged row must not keep the
    // others from being read.
    conn.pragma_update(None, "ignore_check_constraints", true)?;
    // A damaged row may refer to one that there is not. It is moved with the others.
    let checks: bool = conn.pragma_query_value(None, "foreign_keys", |r| r.get(0))?;
    conn.pragma_update(None, "foreign_keys", false)?;
    // A view of the program may read a table that is replaced. It is not checked meanwhile.
    conn.pragma_update(None, "legacy_alter_table", true)?;
    let migrated = run(conn, missing, migrations.len());
    conn.pragma_update(None, "legacy_alter_table", false)?;
    conn.pragma_update(None, "foreign_keys", checks)?;
    conn.pragma_update(None, "ignore_check_constraints", false)?;
    migrated
}

fn run(conn: &mut Connection, missing: &[&str], version: usize) -> rusqlite::Result<()> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for script in missing {
        tx.execute_batch(script)?;
    }
    tx.pragma_update(None, "application_id", APPLICATION_ID)?;
    tx.pragma_update(None, "user_version", i64::try_from(version).unwrap_or(i64::MAX))?;
    tx.commit()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// A schema of before the first script, with a damaged row, one that refers to a fiber that there
    /// is not, and a view of the program.
    const SCHEMA_0: &str = "
        CREATE TABLE fibers (seq INTEGER PRIMARY KEY, state TEXT NOT NULL CHECK (state IN ('running', 'completed'))) STRICT;
        CREATE TABLE waits (fiber INTEGER PRIMARY KEY REFERENCES fibers (seq) ON DELETE CASCADE) STRICT;
        CREATE VIEW of_the_program AS SELECT state FROM fibers;
        PRAGMA foreign_keys = OFF;
        PRAGMA ignore_check_constraints = ON;
        INSERT INTO fibers VALUES (1, 'running'), (2, 'damaged');
        INSERT INTO waits VALUES (1), (7);
        PRAGMA ignore_check_constraints = OFF;
        PRAGMA foreign_keys = ON";

    const TO_1: &str = "
        CREATE TABLE new_fibers (
            seq   INTEGER PRIMARY KEY,
            name  TEXT NOT NULL,
            state TEXT NOT NULL CHECK (state IN ('running', 'completed'))
        ) STRICT;
        INSERT INTO new_fibers (seq, name, state) SELECT seq, 'fiber ' || seq, state FROM fibers;
        DROP TABLE fibers;
        ALTER TABLE new_fibers RENAME TO fibers;
        ALTER TABLE waits ADD COLUMN topic TEXT CHECK (topic <> '')";

    const TO_2: &str = "ALTER TABLE waits ADD COLUMN due_ms INTEGER";

    fn texts(conn: &Connection, query: &str) -> Vec<String> {
        conn.prepare(query).and_then(|mut s| s.query_map((), |r| r.get(0))?.collect()).unwrap()
    }

    /// The schema, the rows and the version.
    fn contents(conn: &Connection) -> Vec<String> {
        let mut all = texts(conn, "SELECT type || name || coalesce(sql, '') FROM sqlite_schema ORDER BY 1");
        for (table, columns) in [("fibers", "seq, state"), ("waits", "fiber")] {
            all.extend(texts(conn, &format!("SELECT json_array('{table}', {columns}) FROM {table} ORDER BY 1")));
        }
        all.push(conn.pragma_query_value(None, "user_version", |r| r.get::<_, i64>(0)).unwrap().to_string());
        all
    }

    #[test]
    fn every_name_in_the_scripts_is_known_to_be_ours() {
        let mut conn = Connection::open_in_memory().unwrap();
        migrate(&mut conn, MIGRATIONS).unwrap();
        let mut there = texts(&conn, "SELECT name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'");
        let mut ours = NAMES.to_vec();
        there.sort_unstable();
        ours.sort_unstable();
        assert_eq!(there, ours);
    }

    #[test]
    fn migration_runs_the_missing_scripts_and_keeps_all_rows() {
        let mut conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(SCHEMA_0).unwrap();
        let before = contents(&conn);
        migrate(&mut conn, &[TO_1, "nonsense"]).unwrap_err();
        assert_eq!(contents(&conn), before, "all scripts or none");

        migrate(&mut conn, &[TO_1]).unwrap();
        let rows = |conn: &Connection| texts(conn, "SELECT name || ' ' || state FROM fibers ORDER BY seq");
        assert_eq!(rows(&conn), ["fiber 1 running", "fiber 2 damaged"]);
        assert_eq!(texts(&conn, "SELECT CAST(fiber AS TEXT) FROM waits ORDER BY fiber"), ["1", "7"]);
        assert_eq!(texts(&conn, "SELECT state FROM of_the_program ORDER BY state"), ["damaged", "running"]);
        let first = contents(&conn);
        assert_eq!(first.last().unwrap(), "1");
        migrate(&mut conn, &[TO_1]).unwrap();
        assert_eq!(contents(&conn), first, "a script that has run does not run again");

        migrate(&mut conn, &[TO_1, TO_2]).unwrap();
        assert_eq!(contents(&conn).last().unwrap(), "2");
        assert_eq!(rows(&conn), ["fiber 1 running", "fiber 2 damaged"]);
        conn.execute("UPDATE waits SET due_ms = 5 WHERE fiber = 7", ()).unwrap();
        // Rows are checked again.
        conn.execute("INSERT INTO fibers (name, state) VALUES ('new', 'damaged')", ()).unwrap_err();
        conn.execute("INSERT INTO waits (fiber) VALUES (99)", ()).unwrap_err();
    }

    /// Where the frames of a write-ahead log end (<https://sqlite.org/fileformat2.html#walformat>).
    fn frames(log: &[u8]) -> Vec<usize> {
        let page = u32::from_be_bytes(log[8..12].try_into().unwrap()) as usize;
        (32..=log.len()).step_by(24 + page).skip(1).collect()
    }

    #[test]
    fn process_that_dies_while_it_migrates_has_changed_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (path, log) = (folder.path().join("a.db"), folder.path().join("a.db-wal"));
        let mut conn = Connection::open(&path).unwrap();
        conn.execute_batch("PRAGMA page_size = 512; PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0").unwrap();
        conn.execute_batch(SCHEMA_0).unwrap();
        let (before, begin) = (contents(&conn), std::fs::metadata(&log).unwrap().len());
        migrate(&mut conn, &[TO_1]).unwrap();
        let (after, whole) = (contents(&conn), std::fs::read(&log).unwrap());
        let ends: Vec<usize> = frames(&whole).into_iter().filter(|end| *end as u64 >= begin).collect();
        assert!(ends.len() > 4, "the migration writes several pages");
        let left_by = |cut: usize| {
            let copy = folder.path().join(format!("{cut}.db"));
            std::fs::copy(&path, &copy).unwrap();
            std::fs::write(Path::new(&format!("{}-wal", copy.display())), &whole[..cut]).unwrap();
            contents(&Connection::open(&copy).unwrap())
        };
        for two in ends.windows(2) {
            assert_eq!(left_by(two[0]), before);
            assert_eq!(left_by(usize::midpoint(two[0], two[1])), before);
        }
        assert_eq!(left_by(whole.len()), after);
    }
}
