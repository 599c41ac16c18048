//! Copies of the databases, opened by the code of now.
use std::path::{Path, PathBuf};
use std::time::Duration;

use forever::testing::VirtualClock;
use forever::{Builder, Durability, Forever, Retention};
use tempfile::TempDir;

use crate::desk::{Desk, LAST};
use crate::{VERSION, after, databases, programs};

/// A copy of the database of a version, in a folder of its own.
struct Copy {
    folder: TempDir,
    version: u32,
}

impl Copy {
    fn of(version: u32) -> Self {
        let copy = Copy { folder: tempfile::tempdir().unwrap(), version };
        for suffix in ["", "-wal"] {
            std::fs::copy(databases().join(format!("{version}.db{suffix}")), copy.file(suffix)).unwrap();
        }
        copy
    }

    /// Another copy, of which the log ends after so many bytes.
    fn cut(&self, log: usize) -> Self {
        let copy = Copy { folder: tempfile::tempdir().unwrap(), version: self.version };
        std::fs::copy(self.file(""), copy.file("")).unwrap();
        let whole = std::fs::read(self.file("-wal")).unwrap();
        std::fs::write(copy.file("-wal"), &whole[..log]).unwrap();
        copy
    }

    fn file(&self, suffix: &str) -> PathBuf {
        self.folder.path().join(format!("old.db{suffix}"))
    }

    fn sql(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.file("")).unwrap()
    }

    /// Of the file as it was left, or brought up to date. Until version 6 the logs of turns were one table.
    fn number(&self, query: &str) -> i64 {
        let sql = self.sql();
        if (4..6).contains(&sql.pragma_query_value(None, "user_version", |row| row.get::<_, u32>(0)).unwrap()) {
            sql.execute_batch("CREATE TEMP VIEW turn_log AS SELECT * FROM turn_chunks").unwrap();
        }
        sql.query_row(query, (), |row| row.get(0)).unwrap()
    }

    fn builder(&self, desk: &Desk, clock: &VirtualClock) -> Builder {
        builder(&self.file(""), desk, clock)
    }
}

fn builder(path: &Path, desk: &Desk, clock: &VirtualClock) -> Builder {
    let builder = Forever::builder().sqlite(path).clock(clock.clone()).durability(Durability::Process).retention(Retention::forever());
    programs::registered(builder, desk)
}

/// Opens a database and finishes everything in it.
async fn finish(copy: &Copy) {
    let (desk, clock) = (Desk::new(LAST, &[]), VirtualClock::new());
    let version = copy.version;
    let forever = copy.builder(&desk, &clock).open().await.unwrap();
    if version >= 4 {
        after::four::at_once(&forever).await;
    }
    after::one::finish(&forever).await;
    if version >= 2 {
        after::two::finish(&forever, &clock, &desk).await;
    }
    if version >= 3 {
        after::three::finish(&forever).await;
    }
    if version >= 4 {
        after::four::later(&forever).await;
    }
    if version >= 5 {
        after::five::finish(&forever).await;
    }
    if version >= 6 {
        after::six::finish(&forever, version).await;
    }
    if version >= 7 {
        after::seven::finish(&forever).await;
    }
    if version >= 8 {
        after::eight::finish(&forever).await;
    }
    if version >= 9 {
        after::nine::finish(&forever).await;
    }
    if version >= 10 {
        after::ten::finish(&forever).await;
    }
    if version >= 11 {
        after::eleven::finish(&forever).await;
    }
    if version >= 12 {
        after::twelve::finish(&forever).await;
    }
    if version >= 13 {
        after::thirteen::finish(&forever).await;
    }
    let mut left = programs::left(version);
    left.sort_unstable();
    assert_eq!(desk.done(), left, "what was finished is not done again, and the rest is done once");
    forever.close().await.unwrap();
    drop(forever);

    assert_eq!(copy.number("PRAGMA user_version"), i64::from(VERSION));
    assert_eq!(copy.number("SELECT count(*) FROM fibers WHERE state NOT IN ('completed', 'cancelled')"), 1, "one is parked");
    for table in ["waits", "wait_topics", "joins", "branch_results"] {
        assert_eq!(copy.number(&format!("SELECT count(*) FROM {table}")), 0, "{table}");
    }
    let unread = "SELECT count(*) FROM messages WHERE fiber NOT IN (SELECT seq FROM fibers WHERE finished_ms IS NOT NULL)";
    assert_eq!(copy.number(unread), 0, "messages of fibers that have not ended");
    assert_eq!(copy.number("SELECT count(*) FROM agents WHERE heartbeat_ms IS NOT NULL"), 0);
    let health: String = copy.sql().query_row("PRAGMA integrity_check", (), |row| row.get(0)).unwrap();
    assert_eq!(health, "ok");
    assert!(!copy.sql().prepare("PRAGMA foreign_key_check").unwrap().exists(()).unwrap());

    let (desk, clock) = (Desk::new(1, &[]), VirtualClock::new());
    let forever = copy.builder(&desk, &clock).open().await.unwrap();
    after::one::finish_with_the_code_of_then(&forever).await;
    assert_eq!(desk.done(), ["moved: second"]);
}

#[test]
fn there_is_a_database_of_every_version() {
    assert_eq!(TESTED, (1..=VERSION).collect::<Vec<_>>());
    for version in 1..=VERSION {
        let copy = Copy::of(version);
        let log = std::fs::metadata(copy.file("-wal")).unwrap().len();
        assert!(log > 0, "the process of {version} died with its newest commits in the log");
        assert_eq!(copy.number("PRAGMA user_version"), i64::from(version));
        for (life, query) in programs::settled(version) {
            assert!(life == 1 || copy.number(&query) == 1, "{version}: {query}");
        }
    }
    // A newer schema than these tests know would fail here.
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("new.db");
    let open = Forever::builder().sqlite(&path).open();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { open.await.unwrap().close().await.unwrap() });
    let newest: u32 = rusqlite::Connection::open(&path).unwrap().pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!(newest, VERSION, "write a database of the new version: see tests/old/main.rs");
}

/// The tests of each version.
macro_rules! versions {
    ($($name:ident = $version:literal,)*) => {
        const TESTED: &[u32] = &[$($version),*];

        $(mod $name {
            #[tokio::test]
            async fn a_database_of_it_is_opened_and_finished() {
                super::finish(&super::Copy::of($version)).await;
            }

            #[tokio::test]
            async fn a_process_that_dies_while_it_opens_one_has_changed_nothing() {
                super::killed_while_it_is_opened($version).await;
            }
        })*
    };
}

versions! {
    version_1 = 1,
    version_2 = 2,
    version_3 = 3,
    version_4 = 4,
    version_5 = 5,
    version_6 = 6,
    version_7 = 7,
    version_8 = 8,
    version_9 = 9,
    version_10 = 10,
    version_11 = 11,
    version_12 = 12,
    version_13 = 13,
}

/// What SQLite writes before and in front of each page in the log.
const LOG_HEADER: usize = 32;
const FRAME_HEADER: usize = 24;

/// Where the frames end that are in a log, and which of them end a transaction.
fn frames(log: &[u8]) -> Vec<(usize, bool)> {
    let number = |at: usize| u32::from_be_bytes(log[at..at + 4].try_into().unwrap());
    // Frames of an older log may follow, with other salts.
    let salts = &log[16..24];
    let frame = FRAME_HEADER + number(8) as usize;
    (LOG_HEADER..)
        .step_by(frame)
        .take_while(|at| at + frame <= log.len() && log[at + 8..at + 16] == *salts)
        .map(|at| (at + frame, number(at + 4) != 0))
        .collect()
}

/// All rows of all tables, and what the schema says.
fn contents(copy: &Copy) -> Vec<String> {
    let sql = copy.sql();
    let mut schema = sql.prepare("SELECT name, sql FROM sqlite_schema ORDER BY type, name").unwrap();
    let schema: Vec<(String, Option<String>)> =
        schema.query_map((), |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect();
    let mut all = Vec::new();
    for (name, text) in schema {
        let text = text.unwrap_or_default();
        if text.starts_with("CREATE TABLE") {
            let mut rows = sql.prepare(&format!("SELECT * FROM {name}")).unwrap();
            let columns = rows.column_count();
            let row =
                |row: &rusqlite::Row<'_>| (0..columns).map(|n| row.get::<_, rusqlite::types::Value>(n)).collect::<Result<Vec<_>, _>>();
            all.extend(rows.query_map((), row).unwrap().map(|row| format!("{name}: {:?}", row.unwrap())));
        }
        all.push(text);
    }
    all
}

#[tokio::test]
async fn snapshots_read_the_same_before_and_after_the_tables_are_brought_up_to_date() {
    for version in 2..=VERSION {
        let copy = Copy::of(version);
        let documents = || -> Vec<String> {
            let sql = copy.sql();
            let mut documents = sql.prepare("SELECT id || ': ' || coalesce(document, '') FROM snapshot_documents ORDER BY id").unwrap();
            documents.query_map((), |row| row.get(0)).unwrap().map(Result::unwrap).collect()
        };
        let before = documents();
        assert!(before.iter().any(|document| document.starts_with("lines: {") && document.contains("[\"")), "{before:#?}");
        copy.builder(&Desk::new(LAST, &[]), &VirtualClock::new()).open_idle().await.unwrap().close().await.unwrap();
        assert_eq!(copy.number("PRAGMA user_version"), i64::from(VERSION));
        assert_eq!(documents(), before, "of version {version}");
    }
}

/// A process that dies while it brings the tables up to date leaves a beginning of what it wrote to the log, in whole pages or not.
async fn killed_while_it_is_opened(version: u32) {
    let whole = Copy::of(version);
    let before = frames(&std::fs::read(whole.file("-wal")).unwrap()).len();
    let (desk, clock) = (Desk::new(LAST, &[]), VirtualClock::new());
    let forever = whole.builder(&desk, &clock).open().await.unwrap();
    // Two commits, before any fiber is entered: the tables of the new version, or what was recovered, and one more, which may come
    // when `open` has returned.
    let committed = async {
        loop {
            let log = frames(&std::fs::read(whole.file("-wal")).unwrap());
            let commits: Vec<_> = (before..log.len()).filter(|n| log[*n].1).take(2).collect();
            if commits.len() == 2 {
                return (log, commits);
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let (log, commits) = tokio::time::timeout(Duration::from_secs(30), committed).await.expect("there is a second commit");
    let cuts: Vec<usize> =
        (before - 1..commits[1]).flat_map(|n| [log[n].0, usize::midpoint(log[n].0, log[n + 1].0)]).chain([log[commits[1]].0]).collect();
    let copies: Vec<Copy> = cuts.iter().map(|at| whole.cut(*at)).collect();
    drop(forever);
    // Versions 6 to 13 have changed little of what the ones before have.
    let pages = match version {
        // Of version 10, two columns: a page of the schema, and the header.
        10 | VERSION => 0,
        5..=9 | 11 | 12 => 2,
        _ => 5,
    };
    assert!(commits[0] > before + pages || version == VERSION, "bringing it up to date is a transaction of several pages");
    let untouched = contents(&Copy::of(version));
    let nothing = cuts.iter().take_while(|at| **at < log[commits[0]].0).count();
    for (n, (copy, at)) in copies.iter().zip(&cuts).enumerate() {
        let there = copy.cut(*at);
        let stored = there.number("PRAGMA user_version");
        assert!(stored == i64::from(if n < nothing { version } else { VERSION }), "all or nothing, at {at}: {stored}");
        if n < nothing {
            assert_eq!(contents(&there), untouched, "at {at}");
        }
        // Those in which nothing has changed are all the same.
        if n >= nothing || [0, nothing / 2, nothing - 1].contains(&n) {
            finish(copy).await;
        }
    }
}
