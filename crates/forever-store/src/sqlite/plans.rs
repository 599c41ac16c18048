//! Query plans: every statement uses an index, however many rows there are.
//!
//! The statements checked are those that really ran. A trace on the connection records the text of
//! every statement while the conformance tests run, and then each one is explained.
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use rusqlite::Connection;

use super::compat::Outcome as _;
use super::store::opened;
use super::worker::{Held, Worker};
use super::{Sqlite, open, places, rows, tests, traced};
use crate::conformance;
use crate::{AdminStore, ChatStore, DeleteCursor, Deletion, FiberQuery, FiberState, FiberStore, InteractionQuery, Seq, UnfinishedGroup};

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
    // Whichever states are counted: those left out cost nothing.
    for states in [Vec::new(), vec![FiberState::Running, FiberState::Waiting, FiberState::Parked], vec![FiberState::Completed]] {
        seen.0.lock().unwrap().clear();
        store.counts(states.clone()).await.unwrap();
        let plan = plan(&conn, &seen.with("FROM fibers")[0]);
        let counted = "SEARCH f USING COVERING INDEX fibers_function (name=? AND state=?)";
        assert!(plan.iter().any(|line| line == counted), "{plan:#?}");
        let running = plan.iter().any(|line| line == "SEARCH fibers USING INDEX fibers_open (state=?)");
        assert_eq!(running, states.is_empty() || states.contains(&FiberState::Running), "{plan:#?}");
    }
}

#[tokio::test]
async fn waiting_fibers_are_grouped_from_their_index() {
    let seen = Seen::default();
    let store = seen.store().await;
    let conn = open::in_memory(None).unwrap();
    seen.0.lock().unwrap().clear();
    store.unfinished_groups().await.unwrap();
    let group = UnfinishedGroup {
        name: "work".into(),
        waiting: true,
        at: Some("answer pending".into()),
        layout: None,
        callees: None,
        mixed: false,
        fibers: 1,
    };
    store.unfinished_of(group, 0, 10).await.unwrap();
    let plans: Vec<_> = seen.with("FROM waits").iter().map(|sql| plan(&conn, sql).join("\n")).collect();
    assert_eq!(plans.len(), 2, "{plans:#?}");
    assert!(plans.iter().any(|plan| plan.contains("SEARCH waits USING COVERING INDEX waits_place (place>?)")), "{plans:#?}");
    let of_group = "SEARCH waits USING COVERING INDEX waits_place (place=? AND rowid>?)";
    assert!(plans.iter().any(|plan| plan.contains(of_group)), "{plans:#?}");
}

/// Fibers that wait at one place, and a few that have failed.
const WAITING: i64 = 200_000;

/// Thousands of instructions of SQLite's machine that a read takes.
fn cost<T>(conn: &mut Connection, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> (T, u64) {
    let count = Arc::new(AtomicU64::new(0));
    let of_handler = Arc::clone(&count);
    let counts = move || {
        of_handler.fetch_add(1, Ordering::Relaxed);
        false
    };
    conn.progress_handler(1_000, Some(counts)).outcome().unwrap();
    let read = read(conn).unwrap();
    conn.progress_handler(0, None::<fn() -> bool>).outcome().unwrap();
    (read, count.load(Ordering::Relaxed))
}

#[test]
fn two_hundred_thousand_waiting_fibers_are_counted_and_listed_from_indexes() {
    let mut conn = open::in_memory(None).unwrap();
    let place = places::digest([Some(b"work"), Some(b"answer pending"), Some(b"hash"), None], false);
    conn.execute_batch(
        "INSERT INTO layouts (hash, fiber, layout) VALUES ('hash', 'work', '{}');
         INSERT INTO fibers (id, name, state, args, created_ms, changed_ms) VALUES ('f-1', 'work', 'failed', '{}', 0, 0);",
    )
    .unwrap();
    let fill = "WITH RECURSIVE n (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM n WHERE n <= ?1)
                INSERT INTO fibers (seq, id, name, state, args, created_ms, changed_ms) SELECT n, 'f-' || n, 'work', 'waiting', '{}', 0, 0 FROM n";
    conn.execute(fill, [WAITING]).unwrap();
    let snapshots = "INSERT INTO snapshots (fiber, number, at, layout, data) SELECT seq, 1, 'answer pending', 'hash', '{}' FROM fibers";
    conn.execute(snapshots, ()).unwrap();
    conn.execute("INSERT INTO waits (fiber, topic, place) SELECT seq, 'go', ?1 FROM fibers WHERE state = 'waiting'", [place]).unwrap();

    let waiting = WAITING.unsigned_abs();
    // An entry of an index for each fiber. With its row it would be three times as much.
    let (groups, grouped) = cost(&mut conn, rows::unfinished_groups);
    assert_eq!(groups.iter().map(|group| (group.waiting, group.fibers)).collect::<Vec<_>>(), [(true, waiting)]);
    assert!(grouped < 15 * waiting / 1_000, "{grouped}");
    let (counts, counted) = cost(&mut conn, |conn| rows::counts(conn, &[]));
    assert_eq!(
        counts.iter().map(|count| (count.state, count.fibers)).collect::<Vec<_>>(),
        [(FiberState::Failed, 1), (FiberState::Waiting, waiting)]
    );
    assert!(counted < 5 * waiting / 1_000, "{counted}");
    // What follows costs the same however many fibers wait.
    let (_, counted) = cost(&mut conn, |conn| rows::counts(conn, &[FiberState::Failed]));
    let (page, paged) = cost(&mut conn, |conn| rows::unfinished_of(conn, &groups[0], WAITING / 2, 500));
    assert_eq!(page.len(), 500);
    let (_, unfinished) = cost(&mut conn, |conn| rows::unfinished(conn, 0, 500));
    let mut all = vec![counted, paged, unfinished];
    let newest = FiberQuery { newest_first: true, ..FiberQuery::default() };
    let some = FiberQuery { from_seq: Some(WAITING - 499), ..newest.clone() };
    for state in FiberState::ALL {
        // Those that have completed are in the index of their function alone.
        let query = FiberQuery { states: vec![state], ..if state == FiberState::Completed { some.clone() } else { newest.clone() } };
        all.push(cost(&mut conn, |conn| rows::list(conn, &query, Seq::MAX, 50)).1);
        all.push(
            cost(&mut conn, |conn| rows::list(conn, &FiberQuery { name: Some("work".into()), from_seq: None, ..query }, Seq::MAX, 50)).1,
        );
    }
    let text = FiberQuery { text: Some("no such text".into()), ..some };
    let (found, searched) = cost(&mut conn, |conn| rows::list(conn, &text, Seq::MAX, 50));
    assert!(found.is_empty());
    all.push(searched);
    let retrying = FiberQuery { only_retrying: true, ..newest };
    let (found, searched) = cost(&mut conn, |conn| rows::list(conn, &retrying, Seq::MAX, 50));
    assert!(found.is_empty());
    all.push(searched);
    assert!(all.iter().all(|cost| *cost < 100), "{all:?}");
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

#[tokio::test]
async fn what_is_wrong_is_read_from_indexes() {
    let seen = Seen::default();
    let store = seen.store().await;
    let conn = open::in_memory(None).unwrap();
    seen.0.lock().unwrap().clear();
    store.stops("work".into(), FiberState::Failed, 10).await.unwrap();
    store.stops("work".into(), FiberState::Running, 10).await.unwrap();
    store.retries(10).await.unwrap();
    store.queues(10, 2, 3).await.unwrap();
    store.failed_turns(None, 10).await.unwrap();
    for (text, step) in [
        ("f.state = 'failed'", "SEARCH f USING INDEX fibers_function (name=? AND state=?"),
        ("f.state = 'running'", "SEARCH f USING INDEX fibers_open (state=?"),
        ("FROM ops WHERE", "SCAN ops USING INDEX ops_retried"),
        ("q.fiber", "SEARCH messages USING COVERING INDEX messages_fiber (fiber=?"),
        ("t.state IN", "SEARCH t USING INDEX turns_failed ("),
    ] {
        let statements = seen.with(text);
        assert_eq!(statements.len(), 1, "{statements:#?}");
        assert_eq!(slow(&conn, &statements[0]), None);
        let plan = plan(&conn, &statements[0]);
        assert!(plan.iter().any(|line| line.starts_with(step)), "{plan:#?}");
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

/// Partial indexes that contain only the rows of such a statement: awake, retried, running, due, or
/// open.
const ONLY_WHAT_IS_ASKED_FOR: [&str; 5] = ["agents_awake", "ops_retried", "schedules_running", "turns_open", "waits_due"];

/// Sorts and scans that are allowed all the same, by a part of the statement.
const ALLOWED: [(&str, &str); 28] = [
    // The names of functions, by one search for each, and states.
    ("WITH RECURSIVE names", "SCAN n"),
    ("WITH RECURSIVE names", "SCAN s"),
    ("WITH RECURSIVE names", "SCAN 2 CONSTANT ROWS"),
    ("WITH RECURSIVE names", "SCAN 7 CONSTANT ROWS"),
    // The few fibers that run.
    ("count(*) AS fibers FROM fibers WHERE", "USE TEMP B-TREE FOR GROUP BY"),
    // The topics of one fiber.
    ("SELECT topic, sum(unread), max(closed)", "USE TEMP B-TREE FOR GROUP BY"),
    // One fiber of each place, after those at it were counted.
    ("FROM waits WHERE place IS NOT NULL GROUP BY place", "SCAN w"),
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
    // As many of the newest messages as are asked for, in the order of their index.
    ("ORDER BY next_ms DESC LIMIT ?1) o", "SCAN o"),
    ("ORDER BY seq DESC LIMIT ?1) n", "SCAN messages"),
    ("ORDER BY seq DESC LIMIT ?1) n", "SCAN n"),
    ("ORDER BY seq DESC LIMIT ?1) n", "SCAN q"),
    ("ORDER BY seq DESC LIMIT ?1) n", "USE TEMP B-TREE FOR"),
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
