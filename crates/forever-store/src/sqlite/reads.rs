//! A read that fails leaves no open snapshot that later reads would see.
use std::time::Duration;

use super::conn::Conn;
use super::{Durability, Sqlite};
use crate::FiberStore;

/// What a read that stops halfway leaves behind: SQLite does not end a savepoint in which a
/// statement fails, and releasing it can fail as well.
const HALF: &str = "SAVEPOINT half; SELECT count(*) FROM workers";

async fn last_worker(sqlite: &Sqlite) -> i64 {
    sqlite.read("find the last worker", |c| c.query_row("SELECT coalesce(max(id), 0) FROM workers", (), |r| r.get(0))).await.unwrap()
}

#[tokio::test]
async fn failed_read_does_not_keep_its_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let sqlite = Sqlite::open(&folder.path().join("a.db"), Durability::Process, Duration::ZERO).await.unwrap();
    let half = |fails: bool| {
        let read = move |c: &Conn| {
            c.execute_batch(HALF)?;
            c.query_row("SELECT count(*) FROM workers", (), |r| r.get::<_, i64>(0))?;
            if fails { Err(rusqlite::Error::InvalidQuery) } else { Ok(()) }
        };
        sqlite.read("read half", read)
    };
    half(true).await.unwrap_err();
    sqlite.join(0).await.unwrap();
    assert_eq!(last_worker(&sqlite).await, 1);
    // One that succeeds leaves none either.
    half(false).await.unwrap();
    sqlite.join(0).await.unwrap();
    assert_eq!(last_worker(&sqlite).await, 2);
}
