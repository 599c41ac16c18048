//! What SQLite keeps to beyond the conformance suite: transactions of the program, calls that are
//! given up, a close, and who spins for an answer.
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread::{self, ThreadId};
use std::time::Duration;

use forever_testkit::process::arguments_of;

use super::Sqlite;
use super::conn::Conn;
use super::job::Scope;
use super::pace::{self, Caller, Pace};
use super::user::{TransactionFn, Tx};
use crate::conformance::ops::{behind, ledger, open, record};
use crate::conformance::{FIRST, ReadyReceiver, SECOND, accept, claimed, message, next_message, row, snapshot};
use crate::error::ErrorKind;
use crate::{
    AdminStore, Deletion, Durability, End, FiberQuery, FiberState, FiberStore, NewSnapshot, OpKind, OpState, TransactionResult, Wait,
};

/// Work that counts its runs and gives this.
fn work(runs: &Arc<AtomicU32>, gives: Option<&'static str>) -> TransactionFn {
    let runs = Arc::clone(runs);
    Box::new(move |_| {
        runs.fetch_add(1, Ordering::Relaxed);
        gives.map(str::to_owned)
    })
}

pub(super) async fn carries_out_a_transaction_once(store: &Sqlite) {
    let (claim, other) = (accept(store, "a").await, accept(store, "b").await);
    store.take_over(SECOND, 1).await.unwrap();
    let claim = claimed(store, claim.fiber, SECOND).await;
    let other = claimed(store, other.fiber, SECOND).await;
    let runs = Arc::new(AtomicU32::new(0));
    let of = |claim| Some((claim, Some(record("t", OpKind::Transaction))));
    assert!(matches!(store.transact(of(claim), work(&runs, Some("7")), 1).await.unwrap(), TransactionResult::Done));
    let there = store.load(claim.fiber).await.unwrap().ops.remove(0);
    assert_eq!((there.state, there.outcome.as_deref()), (OpState::Completed, Some("7")));
    assert_eq!((row(store, "a").await.deaths, row(store, "b").await.deaths), (0, 1), "it has come further");
    assert_eq!((open(store, claim).await, ledger(store, claim).await), (vec!["t".to_owned()], vec![]));
    assert!(matches!(store.transact(of(claim), work(&runs, Some("8")), 2).await.unwrap(), TransactionResult::Before(text) if text == "7"));
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    assert!(matches!(store.transact(of(other), work(&runs, Some("9")), 3).await.unwrap(), TransactionResult::Done));
    store.checkpoint(claim, NewSnapshot { ops: behind(vec![]), ..snapshot(1) }).await.unwrap();
    assert_eq!((open(store, claim).await, open(store, other).await), (vec![], vec!["t".to_owned()]));
    assert!(matches!(store.transact(of(claim), work(&runs, Some("8")), 4).await.unwrap(), TransactionResult::Done));
    assert!(matches!(store.transact(None, work(&runs, Some("")), 5).await.unwrap(), TransactionResult::Done));
    assert_eq!(runs.load(Ordering::Relaxed), 4);
}

pub(super) async fn takes_back_what_goes_wrong(store: &Sqlite) {
    let claim = accept(store, "a").await;
    let of = || Some((claim, Some(record("t", OpKind::Transaction))));
    assert!(matches!(store.transact(of(), work(&Arc::default(), None), 1).await.unwrap(), TransactionResult::Back));
    assert!(matches!(store.transact(of(), Box::new(|_| panic!("at the disco")), 1).await.unwrap(), TransactionResult::Panicked(_)));
    assert_eq!(open(store, claim).await, [""; 0]);
    assert!(matches!(store.transact(of(), work(&Arc::default(), Some("7")), 1).await.unwrap(), TransactionResult::Done));
}

#[tokio::test]
async fn transaction_is_carried_out_once_or_taken_back() {
    carries_out_a_transaction_once(&Sqlite::in_memory().await.unwrap()).await;
    takes_back_what_goes_wrong(&Sqlite::in_memory().await.unwrap()).await;
}

#[tokio::test]
async fn transaction_inside_of_another_one_is_refused() {
    let (store, other) = (Arc::new(Sqlite::in_memory().await.unwrap()), Sqlite::in_memory().await.unwrap());
    let runs = Arc::new(AtomicU32::new(0));
    let (inner, counted, here) = (Arc::clone(&store), Arc::clone(&runs), tokio::runtime::Handle::current());
    let nested = move |_: &Tx<'_>| {
        here.block_on(async {
            // What hangs would hang the thread that writes.
            let refused = inner.transact(None, work(&counted, Some("")), 2);
            let refused = tokio::time::timeout(Duration::from_secs(20), refused).await.ok()?.unwrap();
            assert!(matches!(refused, TransactionResult::Refused(why) if why.kind() == ErrorKind::Setup));
            let elsewhere = other.transact(None, work(&counted, Some("")), 2).await.unwrap();
            assert!(matches!(elsewhere, TransactionResult::Done), "another database has a thread of its own");
            Some(String::new())
        })
    };
    let done = store.transact(None, Box::new(nested), 1).await.unwrap();
    assert!(matches!(done, TransactionResult::Done), "{done:?}");
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    // Nothing of it is left on the thread.
    assert!(matches!(store.transact(None, work(&runs, Some("")), 3).await.unwrap(), TransactionResult::Done));
}

#[tokio::test]
async fn transaction_asks_for_tables_columns_settings_and_the_only_row() {
    let store = &Sqlite::in_memory().await.unwrap();
    let work = |tx: &Tx<'_>| {
        tx.execute_batch(
            "CREATE TABLE own (a TEXT, b AS (a)); CREATE TABLE bare (a PRIMARY KEY) WITHOUT ROWID; CREATE VIEW seen AS SELECT a FROM own",
        )?;
        for (database, table, there) in [
            (None, "own", true),
            (Some("main"), "OWN", true),
            (Some("temp"), "own", false),
            (None, "seen", false),
            (None, "none", false),
            (None, "fibers", true),
        ] {
            assert_eq!(tx.table_exists(database, table)?, there, "{database:?} {table}");
        }
        for (table, column, there) in [
            ("own", "A", true),
            ("own", "b", true),
            ("own", "c", false),
            ("own", "rowid", true),
            ("bare", "rowid", false),
            ("seen", "a", false),
        ] {
            assert_eq!(tx.column_exists(None, table, column)?, there, "{table} {column}");
        }
        let number = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
        assert_eq!(tx.pragma_query_value(Some("main"), "user_version", number)?, i64::from(super::schema_version()));
        let mut names = Vec::new();
        tx.pragma_query(None, "database_list", |row| {
            names.push(row.get::<_, String>(1)?);
            Ok(())
        })?;
        assert!(names.contains(&"main".to_owned()), "{names:?}");
        assert_eq!(tx.query_one("SELECT 7", (), number)?, 7);
        assert!(matches!(tx.query_one("SELECT 7 WHERE 0", (), number), Err(rusqlite::Error::QueryReturnedNoRows)));
        let why = tx.query_one("SELECT 7 UNION SELECT 8", (), number).unwrap_err();
        assert_eq!(why.to_string(), "Query returned more than one row");
        Ok::<_, rusqlite::Error>(())
    };
    let done = store.transact(None, Box::new(move |tx| work(tx).map(|()| String::new()).ok()), 1).await.unwrap();
    assert!(matches!(done, TransactionResult::Done), "{done:?}");
}

/// A fiber that the program's own table refuses to let go stays, whatever the error is.
#[tokio::test]
async fn refused_deletion_of_a_fiber_keeps_no_other() {
    for refuses in [
        "CREATE TABLE own (f INTEGER NOT NULL REFERENCES fibers (seq) ON DELETE SET NULL)",
        "CREATE TABLE own (f INTEGER UNIQUE DEFAULT 7 REFERENCES fibers (seq) ON DELETE SET DEFAULT)",
        "CREATE TABLE own (f INTEGER REFERENCES fibers (seq) ON DELETE CASCADE);
         CREATE TRIGGER keeps BEFORE DELETE ON own BEGIN SELECT RAISE(FAIL, 'keep'); END",
        "CREATE TABLE own (f INTEGER REFERENCES fibers (seq) ON DELETE CASCADE);
         CREATE TRIGGER keeps BEFORE DELETE ON own BEGIN SELECT abs(-9223372036854775808 + old.f - old.f); END",
        "CREATE TABLE own (f INTEGER REFERENCES fibers (seq) ON DELETE CASCADE); CREATE TABLE more (n INTEGER PRIMARY KEY);
         CREATE TRIGGER keeps BEFORE DELETE ON own BEGIN INSERT INTO more VALUES ('no number'); END",
        "CREATE TABLE own (f INTEGER REFERENCES fibers (seq) ON DELETE CASCADE);
         CREATE TRIGGER keeps BEFORE DELETE ON own BEGIN SELECT zeroblob(2000000000 + old.f); END",
    ] {
        let store = &Sqlite::in_memory().await.unwrap();
        let mut held = Vec::new();
        for id in ["a", "held", "b"] {
            held.push(accept(store, id).await);
            store.end(*held.last().unwrap(), End::Completed("1".into()), Vec::new(), Vec::new(), 5).await.unwrap();
        }
        let sql = format!("{refuses}; INSERT INTO own VALUES ({})", held[1].fiber);
        let made = store.transact(None, Box::new(move |tx| tx.execute_batch(&sql).map(|()| String::new()).ok()), 6).await.unwrap();
        assert!(matches!(made, TransactionResult::Done), "{refuses}");
        let deleted = store.delete(Deletion { limit: 9, ..Deletion::default() }).await.map(|deleted| (deleted.count, deleted.held));
        assert_eq!(deleted.unwrap(), (2, 1), "{refuses}");
        let left = store.list(FiberQuery::default(), 0, 9).await.unwrap();
        assert_eq!(left.iter().map(|row| &*row.id).collect::<Vec<_>>(), ["held"], "{refuses}");
    }
}

#[tokio::test]
async fn lost_claim_does_not_run_the_code_of_the_program() {
    let store = &Sqlite::in_memory().await.unwrap();
    let lost = accept(store, "a").await;
    store.take_over(SECOND, 2).await.unwrap();
    claimed(store, lost.fiber, FIRST).await;
    let ran = Arc::new(AtomicBool::new(false));
    for record in [Some(record("t", OpKind::Transaction)), None] {
        let ran = Arc::clone(&ran);
        let work = Box::new(move |_: &Tx<'_>| {
            ran.store(true, Ordering::Relaxed);
            Some(String::new())
        });
        assert_eq!(store.transact(Some((lost, record)), work, 3).await.unwrap_err().kind(), ErrorKind::ClaimLost);
    }
    assert!(!ran.load(Ordering::Relaxed));
}

#[tokio::test]
async fn write_that_was_polled_is_carried_out() {
    let store = &Sqlite::in_memory().await.unwrap();
    let claim = accept(store, "a").await;
    store.wait(claim, Wait { topics: vec!["go".into()], ..Wait::default() }, 5).await.unwrap();
    let mut told = ReadyReceiver::by(store);
    let mut given_up = store.send(message("a", "go", "1"));
    std::future::poll_fn(|cx| std::task::Poll::Ready(given_up.as_mut().poll(cx).is_pending())).await;
    drop(given_up);
    // Behind it in the queue, so it has been carried out when this is.
    accept(store, "later").await;
    assert_eq!(told.ids(), ["a"]);
    assert_eq!(next_message(store, claim.fiber, "go").await.unwrap().data, "1");
}

#[tokio::test]
async fn write_that_comes_behind_a_close_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let open = async || Sqlite::open(&path, Durability::Process, Duration::ZERO).await.unwrap();
    let store = open().await;
    let worker = store.join(1).await.unwrap();
    let claim = claimed(&store, accept(&store, "a").await.fiber, worker).await;
    // Queued in this order, and often carried out in one transaction.
    let (closed, late) = tokio::join!(store.close(worker, 2), store.checkpoint(claim, snapshot(1)));
    closed.unwrap();
    let kind = late.unwrap_err().kind();
    assert!(matches!(kind, ErrorKind::ClaimLost | ErrorKind::Closed), "{kind:?}");
    drop(store);
    let row = row(&open().await, "a").await;
    assert_eq!((row.state, row.checkpoints, row.deaths), (FiberState::Interrupted, 0, 0));
}

#[test]
fn caller_spins_if_it_comes_soon_and_its_answer_does() {
    let us = Duration::from_micros;
    assert_eq!(pace::spin_limit(us(5), us(200)), Some(us(320)));
    assert_eq!(pace::spin_limit(us(5), us(400)), None, "the disk is slow");
    assert_eq!(pace::spin_limit(us(200), us(20)), None, "it was busy with other things");
    assert_eq!(pace::spin_limit(us(5), Duration::ZERO), Some(pace::SLACK), "nothing is known yet");
}

#[test]
fn callers_that_come_together_do_not_spin() {
    let pace = Pace::new();
    let first = Caller::new(&pace);
    assert_eq!(Caller::new(&pace).spins(), None);
    drop(first);
}

#[test]
fn other_tasks_have_a_turn_after_a_millisecond_of_spinning() {
    let (pace, longest) = (Pace::new(), pace::ns(pace::LONGEST_SPIN));
    pace.spun.store(longest - 1, Ordering::Relaxed);
    assert!(!pace.has_spun_long());
    pace.spun.store(longest, Ordering::Relaxed);
    assert!(pace.has_spun_long());
    assert!(!pace.has_spun_long(), "they had it");
}

/// A file and its store, at a durability.
async fn file(durability: Durability) -> (tempfile::TempDir, Sqlite) {
    let folder = tempfile::tempdir().unwrap();
    let store = Sqlite::open(folder.path().join("a.db"), durability, Duration::ZERO).await.unwrap();
    (folder, store)
}

/// How often a test tries to be the only caller, and soon enough after the call before.
const TRIES: u32 = 20_000;

/// The threads on which a change of the table `workers` was run, once for each time.
async fn changes(store: &Sqlite, short: bool) -> Vec<ThreadId> {
    let threads = Arc::new(Mutex::new(Vec::new()));
    let ran = Arc::clone(&threads);
    let work = move |c: &Conn| {
        ran.lock().unwrap().push(thread::current().id());
        c.prepare_cached("INSERT INTO workers (joined_ms) VALUES (1)")?.execute(()).map(drop)
    };
    if short {
        store.write_short("change something", Scope::One, work).await.unwrap();
    } else {
        store.write("change something", Scope::One, work).await.unwrap();
    }
    let threads = threads.lock().unwrap();
    threads.clone()
}

/// Whether any of many changes in a row ran on this thread; stops at the first that did.
async fn runs_here(store: &Sqlite, short: bool, tries: u32) -> bool {
    for _ in 0..tries {
        if changes(store, short).await == [thread::current().id()] {
            return true;
        }
    }
    false
}

#[tokio::test]
async fn lone_caller_runs_short_jobs_itself_where_no_commit_waits_for_the_disk() {
    let (_folder, process) = file(Durability::Process).await;
    assert!(runs_here(&process, true, TRIES).await);
    assert!(!runs_here(&process, false, 100).await, "it may run code of the program");
    let (_folder, power) = file(Durability::Power).await;
    assert!(!runs_here(&power, true, 100).await);
    assert!(!runs_here(&Sqlite::in_memory().await.unwrap(), true, 100).await);
}

#[tokio::test]
async fn lone_caller_does_not_wait_for_a_tool_that_writes() {
    let (folder, store) = file(Durability::Process).await;
    let tool = rusqlite::Connection::open(folder.path().join("a.db")).unwrap();
    let here = thread::current().id();
    for _ in 0..TRIES {
        if !runs_here(&store, true, TRIES).await {
            break;
        }
        tool.execute_batch("BEGIN IMMEDIATE").unwrap();
        let mut change = Box::pin(changes(&store, true));
        // It would be ready after five seconds, with an error.
        assert!(change.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        tool.execute_batch("COMMIT").unwrap();
        let threads = change.await;
        assert_ne!(threads.last(), Some(&here));
        if threads.first() == Some(&here) {
            assert_eq!(threads.len(), 2, "on the writer's thread it waits");
            return;
        }
    }
    panic!("no job was run by its caller while the tool wrote");
}

#[tokio::test]
async fn short_job_does_not_overtake_one_whose_caller_is_gone() {
    let (_folder, store) = file(Durability::Process).await;
    for n in 0..200 {
        runs_here(&store, true, 10).await;
        let mut slow = Box::pin(store.write("be slow", Scope::One, move |c| {
            thread::sleep(Duration::from_micros(200));
            c.execute("INSERT INTO workers (joined_ms) VALUES (?1)", [1000 + n]).map(drop)
        }));
        let polled = slow.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        drop(slow);
        assert!(matches!(polled, Poll::Pending | Poll::Ready(Ok(()))));
        let before = store.write_short("count", Scope::Many, move |c| {
            c.query_row("SELECT count(*) FROM workers WHERE joined_ms = ?1", [1000 + n], |r| r.get::<_, u32>(0))
        });
        assert_eq!(before.await.unwrap(), 1);
    }
}

#[tokio::test]
async fn panic_of_a_job_on_the_thread_of_its_caller_closes_the_store() {
    let (folder, store) = file(Durability::Process).await;
    let here = thread::current().id();
    for _ in 0..TRIES {
        assert!(runs_here(&store, true, TRIES).await);
        let (told, ran) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let of_job = (Arc::clone(&told), Arc::clone(&ran));
        let answer = store.write_short("panic", Scope::Many, move |c| {
            c.execute("INSERT INTO workers (joined_ms) VALUES (7)", ())?;
            of_job.1.store(true, Ordering::Relaxed);
            of_job.0.store(thread::current().id() == here, Ordering::Relaxed);
            if thread::current().id() == here { panic!("at the disco") } else { Ok(()) }
        });
        let answer = answer.await;
        assert!(ran.load(Ordering::Relaxed));
        if told.load(Ordering::Relaxed) {
            assert_eq!(answer.unwrap_err().kind(), ErrorKind::Closed);
            assert_eq!(store.join(0).await.unwrap_err().kind(), ErrorKind::Closed);
            // The file is free as soon as the reader has let go of it too.
            drop(store);
            let again = Sqlite::open(folder.path().join("a.db"), Durability::Process, Duration::ZERO).await.unwrap();
            let stored =
                again.read("count", |c| c.query_row("SELECT count(*) FROM workers WHERE joined_ms = 7", (), |r| r.get::<_, u32>(0)));
            assert_eq!(stored.await.unwrap(), 0, "what it did is taken back");
            return;
        }
        // The writer's thread was first: its row must not be taken for the other's.
        store.write("tidy up", Scope::One, |c| c.execute("DELETE FROM workers WHERE joined_ms = 7", ()).map(drop)).await.unwrap();
    }
    panic!("no job was run by its caller");
}

/// A runtime with threads of its own.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Many changes at once; returns how many of their callers had an answer.
async fn crowd(store: Arc<Sqlite>, ran: Arc<Mutex<Vec<i64>>>) -> usize {
    let mut callers = tokio::task::JoinSet::new();
    for n in 0..200 {
        let (store, ran) = (Arc::clone(&store), Arc::clone(&ran));
        callers.spawn(async move {
            let insert = move |c: &Conn| {
                c.execute("INSERT INTO workers (joined_ms) VALUES (?1)", [n])?;
                ran.lock().unwrap().push(n);
                if n % 50 == 49 { Err(rusqlite::Error::QueryReturnedNoRows) } else { Ok(n) }
            };
            let answer = store.write("join a crowd", Scope::Many, insert).await;
            assert_eq!(answer.ok(), (n % 50 != 49).then_some(n));
        });
    }
    callers.join_all().await.len()
}

#[test]
fn each_of_a_crowd_has_its_own_answer_also_when_the_runtime_of_the_store_is_gone() {
    let (of_store, of_callers) = (runtime(), runtime());
    let (_folder, store) = of_store.block_on(file(Durability::Power));
    let (store, ran) = (Arc::new(store), Arc::new(Mutex::default()));
    let crowd = || of_callers.block_on(crowd(Arc::clone(&store), Arc::clone(&ran)));
    assert_eq!(crowd(), 200);
    of_store.shutdown_background();
    assert_eq!(crowd(), 200);
    let stored = of_callers.block_on(store.read("count", |c| c.query_row("SELECT count(*) FROM workers", (), |r| r.get::<_, u32>(0))));
    assert_eq!(stored.unwrap(), 2 * 196, "what failed is taken back");
    assert!(ran.lock().unwrap().len() > 400, "no batch was large enough to fail as a whole");
}

/// Panics when it is dropped.
struct Grenade;

impl Drop for Grenade {
    fn drop(&mut self) {
        panic!("a value of the program panics in its drop");
    }
}

#[test]
fn panic_in_the_drop_of_one_job_takes_no_answer_from_the_others() {
    let runtime = runtime();
    let answers = runtime.block_on(async {
        let (_folder, store) = file(Durability::Power).await;
        let mut calls: Vec<_> = (0..20)
            .map(|n| {
                let grenade = (n == 7).then(|| Grenade);
                let work = move |_: &Conn| {
                    std::hint::black_box(&grenade);
                    // While the first is slow, the others gather.
                    thread::sleep(Duration::from_millis(if n == 0 { 50 } else { 0 }));
                    Ok(n)
                };
                Box::pin(store.write("be one of many", Scope::Many, work))
            })
            .collect();
        for call in &mut calls {
            assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        let mut answers = Vec::new();
        for call in calls {
            answers.push(call.await);
        }
        answers
    });
    for (n, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer.is_err_and(|e| e.kind() == ErrorKind::Closed), n == 7, "{n}");
    }
}

#[cfg(unix)]
const FOLDER: &str = "FOREVER_TEST_PRIVATE";

/// What the files of a folder allow, by their names.
#[cfg(unix)]
fn rights(folder: &std::path::Path) -> BTreeMap<String, u32> {
    use std::os::unix::fs::PermissionsExt;

    let files = folder.read_dir().unwrap().map(Result::unwrap);
    files.map(|file| (file.file_name().into_string().unwrap(), file.metadata().unwrap().permissions().mode() & 0o777)).collect()
}

#[cfg(unix)]
#[test]
fn files_of_a_database_are_its_users_alone_under_any_umask() {
    for umask in ["000", "022", "077", "377"] {
        let folder = tempfile::tempdir().unwrap();
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &format!("umask {umask}; exec \"$0\" \"$@\"")]).arg(std::env::current_exe().unwrap());
        shell.args(arguments_of("sqlite::tests::makes_files")).env(FOLDER, folder.path());
        assert!(shell.status().unwrap().success());
        let files = ["a.db", "a.db-shm", "a.db-wal", "a.db.lock", "backup.db"].map(|name| (name.to_owned(), 0o600));
        assert_eq!(rights(folder.path()), BTreeMap::from(files), "umask {umask}");
    }
}

#[cfg(unix)]
#[tokio::test]
#[ignore = "a process of the test above"]
async fn makes_files() {
    use std::os::unix::fs::PermissionsExt;

    let folder = std::path::PathBuf::from(std::env::var(FOLDER).unwrap());
    let path = folder.join("a.db");
    let store = Sqlite::open(&path, Durability::Process, Duration::ZERO).await.unwrap();
    store.back_up(folder.join("backup.db"), "1").await.unwrap();
    let copied = super::copied::Copied::of(&path).await.unwrap();
    let of_copy = copied.path().parent().unwrap().metadata().unwrap().permissions().mode();
    assert_eq!(of_copy & 0o077, 0, "{of_copy:o}");
    drop(copied);
    // It dies, so that its log stays.
    std::process::exit(0);
}
