//! Writes the database that is kept of the version of now: two processes have it one after the other, and both die of SIGKILL.
use std::path::{Path, PathBuf};
use std::time::Duration;

use forever::Forever;
use forever_testkit::process::{Process, end_with_parent, say, this_test};

use crate::desk::{Desk, Standing};
use crate::programs;
use crate::{VERSION, databases};

const HELD: &str = "everything is held";

/// Not a test: `cargo test -p forever-tests --test old -- --ignored write_the_database_of_this_version`.
#[test]
#[ignore = "writes a file of the repository"]
fn write_the_database_of_this_version() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("old.db");
    for life in 1..=2 {
        let mut command = this_test("write::life").unwrap();
        let mut process = Process::start(command.env("FOREVER_LIFE", life.to_string()).env("FOREVER_DATABASE", &path)).unwrap();
        process.until_said(HELD).unwrap();
        process.kill().unwrap();
    }
    for suffix in ["", "-wal"] {
        let (from, to) = (format!("{}{suffix}", path.display()), databases().join(format!("{VERSION}.db{suffix}")));
        std::fs::copy(from, to).unwrap();
    }
}

/// Not a test: one of the processes.
#[test]
#[ignore = "started by `write_the_database_of_this_version`"]
fn life() {
    let (Ok(life), Ok(path)) = (std::env::var("FOREVER_LIFE"), std::env::var("FOREVER_DATABASE")) else { return };
    end_with_parent();
    let (life, path) = (life.parse().unwrap(), PathBuf::from(path));
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(async {
        let desk = Desk::new(life, &programs::holds(VERSION));
        let builder = Forever::builder().sqlite(&path).clock(Standing::default());
        let forever = programs::settings(programs::registered(builder, &desk), life).open().await.unwrap();
        programs::begin(&forever, &desk).await.unwrap();
        let mut asked = 0;
        while !desk.holds_all() {
            asked += 1;
            assert!(asked < 2000, "not held: {:?}", desk.missing());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // The log holds only what comes now, so that the files are small.
        rusqlite::Connection::open(&path).unwrap().query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(())).unwrap();
        programs::then(&forever, &desk).await.unwrap();
        for (of, query) in programs::settled(VERSION) {
            if of == life {
                until(&path, &query).await;
            }
        }
        say(HELD);
        std::future::pending::<()>().await;
    });
}

/// Waits until that is so in the database.
async fn until(path: &Path, query: &str) {
    for _ in 0..2000 {
        let sql = rusqlite::Connection::open(path).unwrap();
        if sql.query_row(query, (), |row| row.get(0)).unwrap_or(false) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it does not come about: {query}");
}
