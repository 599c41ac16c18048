//! Rows that somebody has damaged: they are no harm to other chats, and what is put right goes on.
use std::path::Path;
use std::time::Duration;

use forever::Forever;
use forever::chat::{TurnHandle, TurnState};
use forever::fiber::FiberError;
use forever::prelude::*;
use forever_testkit::database::{self, Database};
use forever_testkit::notes::Notes;
use forever_testkit::waiting::{eventually, soon};
use serde_json::json;

use crate::scripted::{Scripted, ask, scripted, told};

async fn open(path: &Path, seen: &Notes) -> Forever {
    scripted(seen).sqlite(path).open().await.unwrap()
}

/// A database in which one turn each of these chats was interrupted after three words.
async fn interrupted(path: &Path, chats: &[&str]) -> Notes {
    let seen = Notes::default();
    let forever = open(path, &seen).await;
    for chat in chats {
        let turn = ask(&forever.agent(*chat), "r", json!({ "n": 3, "mode": "hang" })).await;
        eventually("three words", async || turn.entries().await.unwrap().len() >= 5).await;
    }
    // As a process that is killed.
    drop(forever);
    seen
}

pub(crate) fn sql(path: &Path, statement: &str) {
    Database::open(path).run(statement);
}

async fn turn(forever: &Forever, chat: &str) -> TurnHandle {
    forever.agent::<Scripted>(chat).turn("r").await.unwrap().unwrap()
}

/// What is said of the fiber of the first turn, which does not go on.
pub(crate) async fn parked(forever: &Forever, path: &Path) -> FiberError {
    let id = Database::open(path).text("SELECT f.id FROM turns t JOIN fibers f ON f.seq = t.fiber WHERE t.seq = 1");
    let fiber = forever.find_fiber::<String>(&id).await.unwrap();
    soon("its end", fiber.wait()).await.unwrap_err()
}

#[tokio::test(start_paused = true)]
async fn a_damaged_turn_whose_fiber_has_ended_keeps_no_database_from_opening() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("chat.db");
    let seen = interrupted(&path, &["a", "b"]).await;
    sql(&path, "UPDATE fibers SET state = 'failed', finished_ms = 1; UPDATE turns SET deaths = -1 WHERE seq = 1");
    let forever = open(&path, &seen).await;
    assert_eq!(turn(&forever, "b").await.status().await.unwrap().state(), TurnState::Interrupted);
    assert!(forever.agent::<Scripted>("a").turn("r").await.is_err());
    forever.close().await.unwrap();
    sql(&path, "UPDATE turns SET deaths = 1 WHERE seq = 1");
    let forever = open(&path, &seen).await;
    assert_eq!(turn(&forever, "a").await.status().await.unwrap().state(), TurnState::Interrupted);
}

#[tokio::test(start_paused = true)]
async fn a_damaged_turn_keeps_nobody_from_seeing_the_others() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("chat.db");
    let seen = Notes::default();
    let forever = open(&path, &seen).await;
    let agent = forever.agent::<Scripted>("a");
    for n in 0..300 {
        ask(&agent, &format!("r{n}"), json!({ "n": 0 })).await;
        // No more of them are queued than may be.
        if n % 100 == 99 {
            assert!(agent.wait_until_stable(Duration::from_secs(60)).await.unwrap());
        }
    }
    let listed = async |states: &[TurnState]| {
        let turns = agent.turns(states).await.unwrap();
        turns.iter().map(|turn| turn.id().to_owned()).collect::<Vec<_>>()
    };
    let all: Vec<String> = (0..300).map(|n| format!("r{n}")).collect();
    sql(&path, "UPDATE turns SET origins = 'x', deaths = -1, reason = CAST(x'ff' AS TEXT) WHERE id = 'r7'");
    assert_eq!(listed(&[]).await, all, "what is left of it is shown");
    sql(&path, "UPDATE turns SET state = 'gone' WHERE id = 'r8'");
    let without: Vec<String> = all.iter().filter(|id| *id != "r8").cloned().collect();
    assert_eq!(listed(&[]).await, without, "all pages, whatever is missing from one");
    assert_eq!(listed(&[TurnState::Completed]).await, without);
}

#[tokio::test(start_paused = true)]
async fn a_log_that_makes_no_sense_parks_its_turn_and_goes_on_when_it_is_put_right() {
    // The table of a turn's log, and which rows are the first turn's.
    let log = database::chunks();
    let of_turn = if database::is_in_postgres() { "WHERE turn = 1" } else { "WHERE stream = (SELECT seq FROM streams WHERE turn = 1)" };
    let damages = [
        "UPDATE stream_tail SET first = -1 WHERE first = 0",
        "UPDATE stream_tail SET first = -9223372036854775808 WHERE first = 0",
        "UPDATE stream_tail SET first = 9223372036854775807 WHERE first = 4",
        "UPDATE stream_tail SET count = 9223372036854775807 WHERE first = 4",
        "UPDATE stream_tail SET count = -1 WHERE first = 2",
        "UPDATE stream_tail SET count = 2 WHERE first = 4",
        "UPDATE stream_tail SET data = '' WHERE first = 3",
        "UPDATE stream_tail SET data = 'x' WHERE first = 3",
        "DELETE FROM stream_tail WHERE first = 0",
        // Rows that overlap.
        "UPDATE stream_tail SET count = 2, data = data || '\n' || data WHERE first = 2",
        "DELETE FROM stream_tail WHERE first = 2",
    ];
    let place = tempfile::tempdir().unwrap();
    for (n, damage) in damages.iter().enumerate() {
        // There a place before the first is the first.
        if database::is_in_postgres() && damage.contains("first = -") {
            continue;
        }
        let path = place.path().join(format!("{n}.db"));
        let seen = interrupted(&path, &["a", "b"]).await;
        let copy = format!("CREATE TABLE copy AS SELECT * FROM {log} {of_turn}");
        sql(&path, &format!("{copy}; {}", damage.replace("stream_tail", log).replace("WHERE", &format!("{of_turn} AND"))));
        let forever = open(&path, &seen).await;
        let error = parked(&forever, &path).await;
        assert!(error.is_parked() && !error.reason().is_empty(), "{damage}: {error}");
        // There is an answer, whatever it is.
        if let Ok(entries) = turn(&forever, "a").await.entries().await {
            assert!(entries.len() <= 5, "{damage}");
        }
        assert_eq!(turn(&forever, "b").await.entries().await.unwrap().len(), 5, "{damage}");
        forever.close().await.unwrap();

        sql(&path, &format!("DELETE FROM {log} {of_turn}; INSERT INTO {log} SELECT * FROM copy; DROP TABLE copy"));
        sql(&path, r#"UPDATE turn_requests SET body = '{"n":4}'"#);
        let forever = open(&path, &seen).await;
        let mended = turn(&forever, "a").await;
        assert!(mended.wait().await.unwrap().is_completed(), "{damage}");
        assert_eq!(told(&mended).await, "start|text-start|w0 |w1 |w2 |w3 |text-end|finish|completed", "{damage}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_parked_takes_no_process_with_it_and_is_not_touched() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("chat.db");
    let seen = interrupted(&path, &["a"]).await;
    let deaths = || Database::open(&path).number("SELECT deaths FROM turns");
    let log = database::chunks();
    sql(&path, &format!("CREATE TABLE copy AS SELECT * FROM {log}; UPDATE {log} SET data = 'x' WHERE first = 3"));
    for _ in 0..8 {
        let forever = open(&path, &seen).await;
        assert!(parked(&forever, &path).await.is_parked());
        // As a process that is killed, for another reason.
        drop(forever);
        assert_eq!(deaths(), 1, "that of the process that it was interrupted with");
    }
    let forever = open(&path, &seen).await;
    assert!(parked(&forever, &path).await.is_parked());
    forever.close().await.unwrap();
    assert_eq!(deaths(), 1, "a clean close either");

    sql(&path, &format!("DELETE FROM {log}; INSERT INTO {log} SELECT * FROM copy; DROP TABLE copy"));
    sql(&path, r#"UPDATE turns SET deaths = 4294967296; UPDATE turn_requests SET body = '{"n":4}'"#);
    let forever = open(&path, &seen).await;
    assert!(parked(&forever, &path).await.is_parked());
    forever.close().await.unwrap();
    assert_eq!(deaths(), 4_294_967_296, "what is damaged stays as it is");
    sql(&path, "UPDATE turns SET deaths = 1");
    let forever = open(&path, &seen).await;
    assert!(turn(&forever, "a").await.wait().await.unwrap().is_completed());
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_has_ended_at_no_time_keeps_none_behind_it_waiting() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("chat.db");
    let seen = Notes::default();
    let forever = open(&path, &seen).await;
    let agent = forever.agent::<Scripted>("a");
    ask(&agent, "r", json!({ "n": 1 })).await.wait().await.unwrap();
    sql(&path, "UPDATE turns SET settled_ms = NULL");
    let second = ask(&agent, "r2", json!({ "n": 1 })).await;
    assert!(soon("its answer", second.wait()).await.unwrap().is_completed());
    assert_eq!(told(&turn(&forever, "a").await).await, "start|text-start|w0 |text-end|finish|completed");
}
