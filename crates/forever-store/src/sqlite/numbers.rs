//! Numbers of new rows that others refer to.
//!
//! SQLite gives a new row the number behind the greatest of its table. Where that of the last row
//! was changed by hand, this is a number that other rows still refer to, and they would become
//! those of the new row. So the least number that may be given is found when the database is
//! opened, from the rows that refer to it.
use rusqlite::Connection;

/// Number for a new row of a table, in the place of its column `seq`. NULL behind the greatest
/// number, where SQLite takes any free one.
macro_rules! next {
    ($table:literal) => {
        concat!(
            "(SELECT CASE WHEN last < 9223372036854775807 THEN last + 1 END FROM
                  (SELECT max(coalesce((SELECT max(seq) FROM ",
            $table,
            "), 0), (SELECT ",
            $table,
            " FROM last_numbers)) AS last))"
        )
    };
}
pub(super) use next;

/// Finds the greatest numbers that are referred to. One behind 2^62 is damage.
pub(super) fn open(conn: &Connection) -> rusqlite::Result<()> {
    let greatest = |references: &[&str]| {
        let each: Vec<_> = references
            .iter()
            .map(|reference| {
                let (table, column) = reference.split_once('.').unwrap_or_default();
                format!("coalesce((SELECT max({column}) FROM {table} WHERE {column} < 1 << 62), 0)")
            })
            .collect();
        format!("max(0, {})", each.join(", "))
    };
    conn.execute_batch(&format!(
        "CREATE TEMP TABLE last_numbers (fibers INTEGER NOT NULL, chats INTEGER NOT NULL, turns INTEGER NOT NULL) STRICT;
         -- Turns that were deleted have left theirs.
         INSERT INTO last_numbers
         SELECT {}, {}, max({}, coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'turns'), 0));",
        greatest(&FIBERS),
        greatest(&CHATS),
        greatest(&TURNS),
    ))
}

/// Columns that refer to fibers, each at the beginning of an index.
const FIBERS: [&str; 14] = [
    "snapshots.fiber",
    "parts.fiber",
    "ops.fiber",
    "settled_ops.fiber",
    "branch_results.fiber",
    "waits.fiber",
    "wait_topics.fiber",
    "joins.child",
    "joins.fiber",
    "messages.fiber",
    "message_ids.fiber",
    "streams.fiber",
    "fibers.parent",
    "turns.fiber",
];

const CHATS: [&str; 2] = ["chat_messages.chat", "turns.chat"];

const TURNS: [&str; 3] = ["turn_requests.turn", "streams.turn", "incidents.turn"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::{Durability, open};

    fn opened(path: &std::path::Path) -> Connection {
        open::writer(path, Durability::Process, false).unwrap()
    }

    fn next_of(conn: &Connection, table: &str) -> i64 {
        let next = match table {
            "fibers" => next!("fibers"),
            "chats" => next!("chats"),
            _ => next!("turns"),
        };
        conn.query_row(&format!("SELECT {next}"), (), |row| row.get(0)).unwrap()
    }

    #[test]
    fn number_that_is_referred_to_is_not_given_again() {
        let folder = tempfile::tempdir().unwrap();
        for (table, references) in [("fibers", &FIBERS[..]), ("chats", &CHATS), ("turns", &TURNS)] {
            for reference in references {
                let path = folder.path().join(format!("{table} {reference}"));
                let conn = opened(&path);
                assert_eq!(next_of(&conn, table), 1);
                let (of, column) = reference.split_once('.').unwrap();
                let needed = "SELECT name, type FROM pragma_table_info(?1) WHERE \"notnull\" AND dflt_value IS NULL AND name <> ?2";
                let needed: Vec<(String, String)> = {
                    let mut needed = conn.prepare(needed).unwrap();
                    needed.query_map([of, column], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect()
                };
                let (mut columns, mut values) = (vec![column.to_owned()], vec!["77"]);
                for (name, kind) in needed {
                    columns.push(name);
                    values.push(if kind == "INTEGER" { "1" } else { "'1'" });
                }
                let (columns, values) = (columns.join(", "), values.join(", "));
                conn.execute_batch("PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON").unwrap();
                conn.execute(&format!("INSERT INTO {of} ({columns}) VALUES ({values})"), ()).unwrap();
                drop(conn);
                let conn = opened(&path);
                assert_eq!(next_of(&conn, table), 78, "{reference}");
                // No number is behind this one.
                conn.execute(&format!("UPDATE {of} SET {column} = 9223372036854775807"), ()).unwrap_err();
                conn.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
                conn.execute(&format!("UPDATE {of} SET {column} = 9223372036854775807"), ()).unwrap();
                drop(conn);
                assert!(next_of(&opened(&path), table) < 10, "{reference}");
            }
        }
    }
}
