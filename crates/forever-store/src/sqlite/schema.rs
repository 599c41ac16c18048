//! The tables, and the migrations from older schemas. Every table and column is explained in
//! docs/guide/src/reference/format.md.
use rusqlite::{Connection, TransactionBehavior};

use super::chat::interactions;
use super::places;

/// `PRAGMA application_id` of our files: "Frvr".
pub(crate) const APPLICATION_ID: i32 = 0x4672_7672;

/// Migration from one version of the schema to the next.
struct Migration {
    script: &'static str,
    /// Fills the columns that the script has added, where SQL cannot.
    fill: fn(&Connection) -> rusqlite::Result<()>,
}

const fn script(script: &'static str) -> Migration {
    Migration { script, fill: |_| Ok(()) }
}

/// One per version; `PRAGMA user_version` counts those that have run. Released ones never change.
const MIGRATIONS: &[Migration] = &[
    script(include_str!("schema_1.sql")),
    script(include_str!("schema_2.sql")),
    script(include_str!("schema_3.sql")),
    script(include_str!("schema_4.sql")),
    script(include_str!("schema_5.sql")),
    Migration { script: include_str!("schema_6.sql"), fill: interactions::mark },
    script(include_str!("schema_7.sql")),
    script(include_str!("schema_8.sql")),
    script(include_str!("schema_9.sql")),
    script(include_str!("schema_10.sql")),
    script(include_str!("schema_11.sql")),
    script(include_str!("schema_12.sql")),
    Migration { script: include_str!("schema_13.sql"), fill: places::set },
];

/// Our tables and views, and the indexes with names.
pub(super) const NAMES: [&str; 61] = [
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

/// Runs the migrations that a database of version `from` still lacks, in one transaction.
pub(crate) fn migrate(conn: &mut Connection, from: i32) -> rusqlite::Result<()> {
    let done = usize::try_from(from).unwrap_or(0);
    let Some(missing) = MIGRATIONS.get(done..).filter(|m| !m.is_empty()) else { return Ok(()) };
    // A new column makes SQLite check all rows of its table again. A damaged row must not keep the
    // others from being read.
    conn.pragma_update(None, "ignore_check_constraints", true)?;
    // A damaged row may refer to one that there is not. It is moved with the others.
    let checks: bool = conn.pragma_query_value(None, "foreign_keys", |r| r.get(0))?;
    conn.pragma_update(None, "foreign_keys", false)?;
    // A view of the program may read a table that is replaced. It is not checked meanwhile.
    conn.pragma_update(None, "legacy_alter_table", true)?;
    let migrated = run(conn, missing);
    conn.pragma_update(None, "legacy_alter_table", false)?;
    conn.pragma_update(None, "foreign_keys", checks)?;
    conn.pragma_update(None, "ignore_check_constraints", false)?;
    migrated
}

fn run(conn: &mut Connection, missing: &[Migration]) -> rusqlite::Result<()> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for migration in missing {
        tx.execute_batch(migration.script)?;
        (migration.fill)(&tx)?;
    }
    tx.pragma_update(None, "application_id", APPLICATION_ID)?;
    tx.pragma_update(None, "user_version", version())?;
    tx.commit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_in_the_scripts_is_known_to_be_ours() {
        let mut conn = Connection::open_in_memory().unwrap();
        migrate(&mut conn, 0).unwrap();
        let mut there: Vec<String> = conn
            .prepare("SELECT name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'")
            .and_then(|mut s| s.query_map((), |r| r.get(0))?.collect())
            .unwrap();
        let mut ours = NAMES.to_vec();
        there.sort_unstable();
        ours.sort_unstable();
        assert_eq!(there, ours);
    }
}
