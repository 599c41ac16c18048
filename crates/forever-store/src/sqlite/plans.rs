//! Query plans: every statement uses an index, however many rows there are.
//!
//! The statements checked are those that really ran. A trace on the connection records the text of
//! every statement while the conformance tests run, and then each one is explained.
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock};

use rusqlite::Connection;

use super::store::opened;
use super::worker::{Held, Worker};
use super::{Sqlite, open, tests, traced};
use crate::conformance;
use crate::{AdminStore, ChatStore, DeleteCursor, Deletion, FiberQuery, FiberState, InteractionQuery};

/// The statements that were run, and those of them that SQLite parsed again.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<BTreeSet<String>>>, Arc<Mutex<BTreeSet<String>>>);

impl Seen {
    /// A store whose statements are all recorded.
    async fn store(&self) -> Sqlite {
        let seen = self.clone();
        let writer = Worker::start("traced", None, move || {
            let take_down = move |sql: &str, again: bool| {
                seen.0.lock().unwrap().insert(sql.to_owned());
                if again {
                    seen.1.lock().unwrap().insert(sql.to_owned());
                }
            };
            let conn = traced::after_statements(open::in_memory(None)?, take_down);
            Ok(Held { conn: super::conn::Conn::of_writer(conn).unwrap(), log: None, kept: (), answers_on: None })
        });
        let (lock, ownership) = (std::sync::Weak::new(), super::Ownership::of(&Arc::new(())));
        let writer = opened(writer.unwrap()).await.unwrap();
        Sqlite {
            reader: None,
            writer,
            ready: OnceLock::new(),
            unread: OnceLock::new(),
            lock,
            is_in_memory: true,
            ownership,
            lengths: super::recent_items::Lengths::default(),
        }
    }

    /// Runs every operation, and the transactions of the program.
    async fn everything(&self) {
        conformance::run(async || self.store().await).await;
        tests::carries_out_a_transaction_once(&self.store().await).await;
        tests::takes_back_what_goes_wrong(&self.store().await).await;
    }

    /// The statements that contain `text`.
    fn with(&self, text: &str) -> Vec<String> {
        self.0.lock().unwrap().iter().filter(|sql| sql.contains(text)).cloned().collect()
    }
}

/// One line for each step of a plan.
fn plan(conn: &Connection, sql: &str) -> Vec<String> {
    let mut explain = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    for n in 1..=explain.parameter_count() {
        explain.raw_bind_parameter(n, 0).unwrap();
    }
    let mut rows = explain.raw_query();
    let mut lines = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        lines.push(row.get(3).unwrap());
    }
    lines
}

#[tokio::test]
async fn every_statement_uses_an_index() {
    let seen = Seen::default();
    seen.everything().await;
    let conn = open::in_memory(None).unwrap();
    let statements = seen.with("");
    for (operation, text) in [
        ("accept", "INSERT INTO fibers"),
        ("accept", "INSERT INTO snapshots"),
        ("claim", "UPDATE fibers SET state = 'running'"),
        ("claim", "WHERE f.seq = ?1 AND s.epoch = ?2"),
        ("checkpoint", "UPDATE snapshots SET number = ?2"),
        ("end", "SELECT cancel,"),
        ("end", "finished_ms = ?5 WHERE seq = ?1"),
        ("end", "DELETE FROM snapshots"),
        ("wake", "UPDATE fibers SET state = 'pending', changed_ms"),
        ("wait", "INTO waits"),
        ("wait", "INTO wait_topics"),
        ("take_due", "WHERE due_ms <= ?1"),
        ("next_due", "SELECT min(due_ms)"),
        ("unfinished", "UNION ALL"),
        ("take over", "SET deaths = min(deaths, 4294967294) + 1, epoch"),
        ("take over", "UPDATE fibers SET state = 'interrupted'"),
        ("sweep", "AND f.state = 'pending' AND f.seq > ?1"),
        ("load", "SELECT f.args"),
        ("delete", "DELETE FROM fibers WHERE seq IN"),
        ("send", "INSERT INTO messages"),
    ] {
        assert!(statements.iter().any(|sql| sql.contains(text)), "{operation} was not run: {text}");
    }
    let slow: Vec<_> = statements.iter().filter_map(|sql| slow(&conn, sql)).collect();
    assert!(slow.is_empty(), "{}", slow.join("\n\n"));
}

#[tokio::test]
async fn no_statement_is_parsed_again_for_other_values() {
    let seen = Seen::default();
    seen.everything().await;
    let again = seen.1.lock().unwrap();
    assert!(again.is_empty(), "{again:#?}");
}

#[tokio::test]
async fn lists_of_a_state_or_an_agent_and_retention_use_an_index() {
    let seen = Seen::default();
    let store = seen.store().await;
    let conn = open::in_memory(None).unwrap();
    seen.0.lock().unwrap().clear();
    for state in FiberState::ALL {
        let which = FiberQuery { states: vec![state], ..FiberQuery::default() };
        store.list(which.clone(), 0, 10).await.unwrap();
        let of = |name: Option<&str>| FiberQuery { class: Some("Chat".into()), agent: name.map(str::to_owned), ..which.clone() };
        store.list(of(Some("ada")), 0, 10).await.unwrap();
        store.list(FiberQuery { states: Vec::new(), ..of(Some("ada")) }, 0, 10).await.unwrap();
        if state.is_final() {
            let query = FiberQuery { ended_before_ms: Some(1), exclude_awaited: true, exclude_in_doubt: true, ..which };
            let first = Deletion { query, limit: 10, ..Deletion::default() };
            let after = Some(DeleteCursor { finished_ms: 0, seq: 0 });
            store.delete(Deletion { after, ..first.clone() }).await.unwrap();
            store.delete(first).await.unwrap();
        }
    }
    store.list(FiberQuery::default(), 0, 10).await.unwrap();
    let statements = seen.with("FROM fibers f");
    // For each final state, the first page of fibers to delete, and the next.
    assert_eq!(statements.len(), 8 + 8 + 1 + 3 * 2 + 1, "{statements:#?}");
    let slow: Vec<_> = statements.iter().filter_map(|sql| slow(&conn, sql)).collect();
    assert!(slow.is_empty(), "{}", slow.join("\n\n"));
}

#[tokio::test]
async fn lists_and_counts_of_a_function_use_its_index() {
    let seen = Seen::default();
    let store = seen.store().await;
    let conn = open::in_memory(None).unwrap();
    seen.0.lock().unwrap().clear();
    for newest_first in [true, false] {
        let which = FiberQuery { name: Some("work".into()), newest_first, ..FiberQuery::default() };
        store.list(which.clone(), 0, 10).await.unwrap();
        store.list(FiberQuery { states: vec![FiberState::Failed, FiberState::Parked], ..which }, 0, 10).await.unwrap();
    }
    let statements = seen.with("FROM fibers f");
    assert_eq!(statements.len(), 8 * 2, "{statements:#?}");
    for sql in &statements {
        assert_eq!(slow(&conn, sql), None);
        let plan = plan(&conn, sql);
        let index = if sql.contains("'running')") { "fibers_open (state=? AND seq" } else { "fibers_function (name=? AND state=? AND seq" };
        assert!(plan.iter().any(|line| line.starts_with(&format!("SEARCH f USING INDEX {index}"))), "{plan:#?}");
    }
    seen.0.lock().unwrap().clear();
    store.counts(Vec::new()).await.unwrap();
    let counts = seen.with("FROM fibers");
    let plan = plan(&conn, &counts[0]);
    for of in ["SCAN fibers USING COVERING INDEX fibers_function", "SEARCH fibers USING INDEX fibers_open (state=?)"] {
        assert!(plan.iter().any(|line| line == of), "{plan:#?}");
    }
    // However many have completed.
    seen.0.lock().unwrap().clear();
    store.counts(vec![FiberState::Running, FiberState::Waiting, FiberState::Parked]).await.unwrap();
    let plan = self::plan(&conn, &seen.with("FROM fibers")[0]);
    assert!(plan[0].starts_with("SEARCH fibers USING INDEX fibers_open (state=?"), "{plan:#?}");
}

#[tokio::test]
async fn pending_interactions_are_read_from_their_indexes() {
    let seen = Seen::default();
    let store = seen.store().await;
    let conn = open::in_memory(None).unwrap();
    for (class, agent, index) in [
        (None, None, "SEARCH m USING INDEX chat_messages_pending ("),
        (Some("Chat"), None, "SEARCH m USING INDEX chat_messages_pending ("),
        (Some("Chat"), Some("ada"), "SEARCH m USING INDEX chat_messages_pending_chat (chat=? AND "),
    ] {
        seen.0.lock().unwrap().clear();
        let query = InteractionQuery { class: class.map(str::to_owned), agent: agent.map(str::to_owned) };
        store.pending_interactions(query, None, 10).await.unwrap();
        let statements = seen.with("FROM chat");
        assert_eq!(statements.len(), 1, "{statements:#?}");
        assert_eq!(slow(&conn, &statements[0]), None);
        let plan = plan(&conn, &statements[0]);
        assert!(plan.iter().any(|line| line.starts_with(index)), "{plan:#?}");
    }
}

/// The plan of a statement, if it reads more rows than it returns.
fn slow(conn: &Connection, sql: &str) -> Option<String> {
    let lines = plan(conn, sql);
    let all = || format!("{sql}\n    {}", lines.join("\n    "));
    let slow = |line: &String| {
        let few = NO_ROWS_OF_OURS.iter().chain(&ONLY_WHAT_IS_ASKED_FOR).any(|few| line.starts_with("SCAN ") && line.contains(few));
        let allowed = ALLOWED.iter().any(|(part, step)| sql.contains(part) && line.starts_with(step));
        (line.starts_with("SCAN ") || line.contains("TEMP B-TREE") || line.contains("AUTOMATIC")) && !few && !allowed
    };
    lines.iter().any(slow).then(all)
}

/// What a scan may be of: rows that are not of a table.
const NO_ROWS_OF_OURS: [&str; 8] = [
    "SCAN last_numbers",
    "SCAN stream_next",
    "SCAN sqlite_sequence",
    "SCAN CONSTANT ROW",
    "SCAN json_each",
    "SCAN e VIRTUAL TABLE",
    "SCAN b",
    "SCAN (subquery",
];

/// Partial indexes that contain only the rows of such a statement: awake, running, due, or open.
const ONLY_WHAT_IS_ASKED_FOR: [&str; 4] = ["agents_awake", "schedules_running", "turns_open", "waits_due"];

/// Sorts and scans that are allowed all the same, by a part of the statement.
const ALLOWED: [(&str, &str); 18] = [
    // All fibers are counted: from the index alone, but for the running ones.
    ("count(*) AS fibers FROM fibers WHERE", "SCAN fibers USING COVERING INDEX fibers_function"),
    ("count(*) AS fibers FROM fibers WHERE", "USE TEMP B-TREE FOR GROUP BY"),
    // One row, or as many as there are workers.
    ("DELETE FROM workers", "SCAN workers"),
    // The fibers below one, in the order of their numbers.
    ("WITH RECURSIVE below", "USE TEMP B-TREE FOR ORDER BY"),
    // The schedules of one agent.
    ("FROM schedules WHERE class = ?1 AND agent = ?2", "USE TEMP B-TREE FOR ORDER BY"),
    // The messages of one fiber that a person looks at, of all topics.
    ("JOIN messages m ON m.fiber = f.seq", "USE TEMP B-TREE FOR ORDER BY"),
    // An operation that a person asks for by its id: first among the fibers that have not
    // completed.
    ("FROM ops o WHERE o.fiber = f.seq AND o.id = ?1", "SCAN f USING COVERING INDEX fibers_open"),
    ("FROM ops o WHERE o.id = ?1", "SCAN o"),
    // The ledger of one fiber, whose parts are searched.
    ("FROM op_ledger o WHERE o.fiber = ?1", "SCAN o"),
    ("ORDER BY o.started_ms", "USE TEMP B-TREE FOR ORDER BY"),
    // The patterns of cron schedules; when a runtime opens, and when the clock was set back.
    ("kind = 'cron' AND attempts = 0 AND cron IS NOT NULL GROUP BY cron", "USE TEMP B-TREE FOR GROUP BY"),
    // The agents that are awake when a runtime opens, and the schedules of classes that it does not
    // know; once.
    ("heartbeat_ms IS NOT NULL ORDER BY", "USE TEMP B-TREE"),
    ("WHERE class NOT IN", "SCAN schedules"),
    // Until SQLite 3.47 or so, by a sort.
    ("WHERE class NOT IN", "UNION USING TEMP B-TREE"),
    ("WHERE class NOT IN", "USE TEMP B-TREE FOR ORDER BY"),
    // Tombstones that a person deletes by hand.
    ("FROM past_fibers WHERE 1 AND name", "SCAN past_fibers"),
    // The tables of the database, once for each page that is deleted.
    ("FROM sqlite_schema m", "SCAN"),
    ("FROM sqlite_schema m", "USE TEMP B-TREE FOR ORDER BY"),
];
