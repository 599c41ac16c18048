//! Transactions of the program: the fence, commits that are cut off, conflicts, and what ends a transaction by itself.
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use forever_postgres::{PostgresStore, PostgresTx, PostgresTxFn, PostgresWork};
use forever_store::{BoxFuture, Claim, ErrorKind, FiberStore, OpKind, OpRecord, TransactionResult};
use forever_testkit::waiting::{DEADLINE, eventually, soon};
use tokio::sync::Barrier;
use tokio_postgres::{Client, NoTls};

use crate::faults::{cut_once, has};
use crate::proxy::{Fate, Proxy};
use crate::{accept, cluster, pooler, snapshot};

/// A closure whose runs are counted. What it returns is the text of its result.
pub(crate) struct Work<F> {
    closure: F,
    runs: u32,
}

pub(crate) fn work<F>(closure: F) -> Work<F>
where
    F: for<'t> PostgresTxFn<'t, String, tokio_postgres::Error>,
{
    Work { closure, runs: 0 }
}

impl<F> PostgresWork for Work<F>
where
    F: for<'t> PostgresTxFn<'t, String, tokio_postgres::Error>,
{
    fn run<'s>(&'s mut self, tx: &'s PostgresTx<'s>) -> BoxFuture<'s, Option<String>> {
        self.runs += 1;
        Box::pin(async move { self.closure.run(tx).await.ok() })
    }
}

/// A table of the program, and a look into the database.
struct Table {
    client: Client,
    name: String,
    schema: String,
}

impl Table {
    async fn new(url: &str) -> Self {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let schema = cluster::schema();
        let name = format!("\"{schema} entries\"");
        client.batch_execute(&format!("CREATE TABLE {name} (what TEXT NOT NULL, n BIGINT NOT NULL DEFAULT 0)")).await.unwrap();
        Table { client, name, schema }
    }

    fn insert(&self) -> String {
        format!("INSERT INTO {} (what) VALUES ($1)", self.name)
    }

    async fn entries(&self) -> Vec<String> {
        let rows = self.client.query(&format!("SELECT what FROM {} ORDER BY what", self.name), &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Number of records of transactions.
    async fn records(&self) -> i64 {
        let sql = format!("SELECT count(*) FROM \"{}\".ops WHERE kind = 'transaction'", self.schema);
        self.client.query_one(&sql, &[]).await.unwrap().get(0)
    }

    async fn store(&self, url: &str) -> (PostgresStore, Claim) {
        let store = PostgresStore::builder(url).schema(&self.schema).lease(Duration::ZERO).pooler(true).connect().await.unwrap();
        let worker = store.join(0).await.unwrap();
        let claim = accept(&store, "f", worker).await;
        (store, claim)
    }
}

fn record(id: &str) -> OpRecord {
    OpRecord::begun(id.to_owned(), OpKind::Transaction, "work", "step", None, Some(0))
}

async fn carry_out(store: &PostgresStore, claim: Claim, id: &str, work: &mut dyn PostgresWork) -> forever_store::Result<TransactionResult> {
    soon("it ends", store.transact(Some((claim, Some(record(id)))), work, 5)).await
}

async fn carry_out_outside(store: &PostgresStore, work: &mut dyn PostgresWork) -> forever_store::Result<TransactionResult> {
    soon("it ends", store.transact(None, work, 5)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_that_is_cut_off_before_its_commit_runs_again() {
    let Some(server) = cluster::own() else { return };
    let proxy = Proxy::start(server.socket()).await;
    let table = Table::new(&server.url()).await;
    let (store, claim) = table.store(&proxy.url()).await;
    let insert = table.insert();
    let mut expected = Vec::new();
    // The last statement is the one that stores the record.
    for (word, runs) in [("START TRANSACTION", 1), ("SET LOCAL", 1), (" entries\" (what)", 2), ("laid_out AS", 2)] {
        for fate in [Fate::CutBefore, Fate::CutAfter] {
            // Without a word at which it is cut.
            let id = format!("{}", expected.len());
            let mut work = work(async |tx| {
                tx.execute(&insert, &[&id]).await?;
                Ok("7".to_owned())
            });
            cut_once(&proxy, word, fate);
            let result = carry_out(&store, claim, &id, &mut work).await.unwrap();
            assert!(matches!(result, TransactionResult::Done), "{word} {fate:?}: {result:?}");
            assert_eq!(work.runs, runs, "{word} {fate:?}");
            expected.push(id);
        }
    }
    assert_eq!(table.entries().await, expected);
    assert_eq!(table.records().await, 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_of_unknown_outcome_is_found_out_by_its_record() {
    let Some(server) = cluster::own() else { return };
    let proxy = Proxy::start(server.socket()).await;
    let table = Table::new(&server.url()).await;
    let (store, claim) = table.store(&proxy.url()).await;
    let insert = table.insert();
    let mut work = work(async |tx| {
        tx.execute(&insert, &[&"booking"]).await?;
        Ok("7".to_owned())
    });
    cut_once(&proxy, "COMMIT\0", Fate::CutBefore);
    let result = carry_out(&store, claim, "rolled back", &mut work).await.unwrap();
    assert!(matches!(result, TransactionResult::Done), "{result:?}");
    assert_eq!((work.runs, table.entries().await.len()), (2, 1));
    cut_once(&proxy, "COMMIT\0", Fate::CutAfter);
    let result = carry_out(&store, claim, "committed", &mut work).await.unwrap();
    assert!(matches!(&result, TransactionResult::Before(text) if text == "7"), "{result:?}");
    assert_eq!((work.runs, table.entries().await.len()), (3, 2));

    // Without a record nothing tells.
    for (fate, entries) in [(Fate::CutBefore, 2), (Fate::CutAfter, 3)] {
        cut_once(&proxy, "COMMIT\0", fate);
        let error = store.transact(Some((claim, None)), &mut work, 5).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
        assert_eq!(table.entries().await.len(), entries, "{fate:?}");
    }
    assert_eq!(work.runs, 5);
}

/// Its commit arrives at the server when the program has long stopped waiting for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_that_is_on_its_way_is_waited_for() {
    let Some(url) = cluster::url() else { return };
    let table = Table::new(&url).await;
    let (store, claim) = table.store(&url).await;
    let (mut late, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let on_its_way = late.transaction().await.unwrap();
    on_its_way.execute(&table.insert(), &[&"booking"]).await.unwrap();
    let schema = &table.schema;
    let held = format!("SELECT FROM \"{schema}\".snapshots WHERE fiber = $1 FOR NO KEY UPDATE");
    on_its_way.execute(&held, &[&claim.fiber]).await.unwrap();
    let stored = format!(
        "INSERT INTO \"{schema}\".ops (fiber, number, id, kind, function, step, state, outcome, started_ms, changed_ms)
         VALUES ($1, 0, 'booking', 'transaction', 'work', 'step', 'completed', '7', 5, 5)"
    );
    on_its_way.execute(&stored, &[&claim.fiber]).await.unwrap();

    let insert = table.insert();
    let mut work = work(async |tx| {
        tx.execute(&insert, &[&"booking"]).await?;
        Ok("8".to_owned())
    });
    let again = carry_out(&store, claim, "booking", &mut work);
    let commit = async {
        let waits = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%' || $1 || '%'";
        eventually("it waits", async || !table.client.query(waits, &[schema]).await.unwrap().is_empty()).await;
        on_its_way.commit().await.unwrap();
    };
    let (result, ()) = tokio::join!(again, commit);
    assert!(matches!(&result, Ok(TransactionResult::Before(text)) if text == "7"), "{result:?}");
    assert_eq!((work.runs, table.entries().await), (0, vec!["booking".to_owned()]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_whose_future_is_dropped_is_rolled_back_unless_its_commit_is_under_way() {
    let Some(server) = cluster::own() else { return };
    let proxy = Proxy::start(server.socket()).await;
    let table = Table::new(&server.url()).await;
    let (store, claim) = table.store(&proxy.url()).await;
    let insert = table.insert();
    let hangs = AtomicU32::new(1);
    let mut work = work(async |tx| {
        tx.execute(&insert, &[&"booking"]).await?;
        if hangs.swap(0, Ordering::Relaxed) == 1 {
            std::future::pending::<()>().await;
        }
        Ok("7".to_owned())
    });
    let dropped = tokio::time::timeout(Duration::from_millis(300), store.transact(Some((claim, Some(record("a")))), &mut work, 5)).await;
    assert!(dropped.is_err());
    assert_eq!((table.entries().await.len(), table.records().await), (0, 0));
    assert!(matches!(carry_out(&store, claim, "a", &mut work).await.unwrap(), TransactionResult::Done));

    // The server gets the commit, and its answer does not arrive.
    let silent = proxy.clone();
    proxy.on_sent(move |bytes| {
        if has(bytes, "COMMIT\0") {
            silent.partition();
        }
        Fate::Forward
    });
    let runs = work.runs;
    let of = Some((claim, Some(record("b"))));
    let committed = eventually("it is committed", async || table.records().await == 2);
    tokio::select! {
        result = store.transact(of, &mut work, 5) => panic!("{result:?}"),
        () = committed => {}
    }
    proxy.on_sent(|_| Fate::Forward);
    proxy.heal();
    let result = carry_out(&store, claim, "b", &mut work).await.unwrap();
    assert!(matches!(&result, TransactionResult::Before(text) if text == "7"), "{result:?}");
    assert_eq!((work.runs, table.entries().await.len()), (runs + 1, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_that_has_lost_the_claim_commits_nothing() {
    let Some(url) = cluster::url() else { return };
    let table = Table::new(&url).await;
    let (a, claim) = table.store(&url).await;
    let b = PostgresStore::builder(&url).schema(&table.schema).lease(Duration::ZERO).connect().await.unwrap();
    let two = b.join(0).await.unwrap();
    let insert = table.insert();
    for record in [None, Some(record("a"))] {
        let taken = record.is_none();
        let mut work = work(async |tx| {
            tx.execute(&insert, &[&"by a"]).await?;
            // The closure is under way in a worker that only seems dead.
            b.take_over(two, 5).await.unwrap();
            Ok("7".to_owned())
        });
        let error = a.transact(Some((claim, record)), &mut work, 5).await.unwrap_err();
        assert!(error.is_claim_lost(), "{error}");
        assert_eq!(work.runs, u32::from(taken), "with a record, the loss is seen before the closure runs");
    }
    assert_eq!((table.entries().await.len(), table.records().await), (0, 0));

    // The fence of one with a record.
    let claim = accept(&a, "g", 1).await;
    let mut work = work(async |tx| {
        tx.execute(&insert, &[&"by a"]).await?;
        b.take_over(two, 5).await.unwrap();
        Ok("7".to_owned())
    });
    let error = carry_out(&a, claim, "a", &mut work).await.unwrap_err();
    assert!(error.is_claim_lost(), "{error}");
    assert_eq!((work.runs, table.entries().await.len(), table.records().await), (1, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_works_through_a_pooler_in_transaction_mode() {
    let Some(server) = cluster::own() else { return };
    let (url, _) = pooler::start(server.socket(), 5).await;
    let table = Table::new(&server.url()).await;
    let (store, claim) = table.store(&url).await;
    let insert = table.insert();
    for n in 0..20 {
        let id = format!("{n:02}");
        let mut work = work(async |tx| {
            let statement = tx.prepare(&insert).await?;
            tx.execute(&statement, &[&id]).await?;
            tx.execute(&insert, &[&id]).await?;
            Ok("7".to_owned())
        });
        assert!(matches!(carry_out(&store, claim, &id, &mut work).await.unwrap(), TransactionResult::Done));
        assert!(matches!(carry_out(&store, claim, &id, &mut work).await.unwrap(), TransactionResult::Before(_)));
        assert_eq!(work.runs, 1);
    }
    assert_eq!(table.entries().await.len(), 40);
}

/// Has the first runs of two transactions wait for each other.
struct Meeting {
    runs: AtomicU32,
    barrier: Barrier,
}

impl Default for Meeting {
    fn default() -> Self {
        Meeting { runs: AtomicU32::new(0), barrier: Barrier::new(2) }
    }
}

impl Meeting {
    async fn meet(&self) {
        if self.runs.fetch_add(1, Ordering::Relaxed) < 2 {
            self.barrier.wait().await;
        }
    }
}

async fn both_are_done(store: &PostgresStore, one: &mut dyn PostgresWork, two: &mut dyn PostgresWork) {
    let (one, two) = tokio::join!(carry_out_outside(store, one), carry_out_outside(store, two));
    assert!(matches!((one.unwrap(), two.unwrap()), (TransactionResult::Done, TransactionResult::Done)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conflicting_transactions_run_again() {
    let Some(url) = cluster::url() else { return };
    let table = Table::new(&url).await;
    let (store, _) = table.store(&url).await;
    let name = &table.name;
    table.client.batch_execute(&format!("INSERT INTO {name} VALUES ('a'), ('b')")).await.unwrap();
    let (read, write) = (format!("SELECT n FROM {name} WHERE what = $1"), format!("UPDATE {name} SET n = $2 WHERE what = $1"));
    let add = format!("UPDATE {name} SET n = n + 1 WHERE what = $1");

    // A deadlock: each has a row that the other one needs.
    let meeting = Meeting::default();
    let add_to_both = async |tx: &PostgresTx<'_>, first: &str, second: &str| {
        tx.execute(&add, &[&first]).await?;
        meeting.meet().await;
        tx.execute(&add, &[&second]).await?;
        Ok::<_, tokio_postgres::Error>(String::new())
    };
    let (mut one, mut two) = (work(async |tx| add_to_both(tx, "a", "b").await), work(async |tx| add_to_both(tx, "b", "a").await));
    both_are_done(&store, &mut one, &mut two).await;
    assert_eq!(one.runs + two.runs, 3);

    // Both have read the same, and one of them cannot be serialized. A closure that ignores the
    // error runs again as well.
    for ignores in [false, true] {
        let meeting = Meeting::default();
        let read_and_write = async |tx: &PostgresTx<'_>| {
            tx.batch_execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ").await?;
            let n: i64 = tx.query_one(&read, &[&"a"]).await?.get(0);
            meeting.meet().await;
            let written = tx.execute(&write, &[&"a", &(n + 1)]).await;
            if ignores { Ok(String::new()) } else { written.map(|_| String::new()) }
        };
        let (mut one, mut two) = (work(async |tx| read_and_write(tx).await), work(async |tx| read_and_write(tx).await));
        both_are_done(&store, &mut one, &mut two).await;
        assert_eq!(one.runs + two.runs, 3, "{ignores}");
    }
    let n: i64 = table.client.query_one(&read, &[&"a"]).await.unwrap().get(0);
    assert_eq!(n, 2 + 4, "each counts");
}

/// Adds one to a row.
fn add(name: &str) -> String {
    format!("UPDATE {name} SET n = n + 1 WHERE what = 'a'")
}

impl Table {
    /// A table with one row, and a session that has it locked in a transaction of its own.
    async fn with_a_locked_row(url: &str) -> (Self, Client) {
        let table = Table::new(url).await;
        table.client.batch_execute(&format!("INSERT INTO {} VALUES ('a')", table.name)).await.unwrap();
        let (other, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(connection);
        other.batch_execute(&format!("BEGIN; {}", add(&table.name))).await.unwrap();
        (table, other)
    }

    async fn n(&self) -> i64 {
        self.client.query_one(&format!("SELECT n FROM {}", self.name), &[]).await.unwrap().get(0)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_waits_for_a_row_for_as_long_as_another_session_has_it_locked() {
    let Some(url) = cluster::url() else { return };
    let (table, other) = Table::with_a_locked_row(&url).await;
    // Also with statements of the store's own that are prepared, in sessions of the store's own.
    for is_pooler in [false, true] {
        let builder = PostgresStore::builder(&url).schema(&table.schema).lease(Duration::ZERO).pooler(is_pooler);
        let store = builder.connect().await.unwrap();
        let add = add(&table.name);
        other.batch_execute(&format!("ROLLBACK; BEGIN; {add}")).await.unwrap();
        let mut work = work(async |tx| {
            tx.execute(&add, &[]).await?;
            Ok(String::new())
        });
        let adds = carry_out_outside(&store, &mut work);
        let release = async {
            let waits = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%' || $1 || '%'
                         AND clock_timestamp() - query_start > INTERVAL '1.3 s'";
            eventually("it waits for more than a second", async || !table.client.query(waits, &[&table.name]).await.unwrap().is_empty())
                .await;
            other.batch_execute("COMMIT").await.unwrap();
        };
        let (result, ()) = tokio::join!(adds, release);
        assert!(matches!(&result, Ok(TransactionResult::Done)), "{result:?}");
        assert_eq!(work.runs, 1);
    }
    assert_eq!(table.n().await, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_whose_wait_a_time_limit_of_the_role_ends_runs_again() {
    let Some(url) = cluster::url() else { return };
    for setting in ["statement_timeout", "lock_timeout"] {
        let (table, other) = Table::with_a_locked_row(&url).await;
        // As the role would have it.
        let of_role = cluster::with_setting(&url, setting, "100");
        let builder = PostgresStore::builder(of_role).schema(&table.schema).lease(Duration::ZERO).patience(DEADLINE);
        let store = builder.connect().await.unwrap();
        let (add, runs) = (add(&table.name), AtomicU32::new(0));
        let mut work = work(async |tx| {
            let limit: String = tx.query_one(&format!("SHOW {setting}"), &[]).await?.get(0);
            assert_eq!(limit, "100ms", "the limit is that of the role");
            runs.fetch_add(1, Ordering::Relaxed);
            tx.execute(&add, &[]).await?;
            Ok(String::new())
        });
        let release = async {
            eventually("it has run three times", async || runs.load(Ordering::Relaxed) >= 3).await;
            other.batch_execute("COMMIT").await.unwrap();
        };
        let (result, ()) = tokio::join!(carry_out_outside(&store, &mut work), release);
        assert!(matches!(&result, Ok(TransactionResult::Done)), "{setting}: {result:?}");
        assert_eq!(table.n().await, 2, "{setting}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_whose_commit_a_time_limit_ends_runs_again() {
    let Some(url) = cluster::url() else { return };
    let (table, other) = Table::with_a_locked_row(&url).await;
    let deferred = format!("ALTER TABLE {} ADD UNIQUE (what) DEFERRABLE INITIALLY DEFERRED", table.name);
    // One by one: each request is a transaction.
    for sql in ["ROLLBACK".to_owned(), deferred, format!("BEGIN; INSERT INTO {} VALUES ('b')", table.name)] {
        other.batch_execute(&sql).await.unwrap();
    }
    let of_role = cluster::with_setting(&url, "lock_timeout", "100");
    let builder = PostgresStore::builder(of_role).schema(&table.schema).lease(Duration::ZERO).patience(DEADLINE);
    let store = builder.connect().await.unwrap();
    let (insert, runs) = (table.insert(), AtomicU32::new(0));
    let mut work = work(async |tx| {
        runs.fetch_add(1, Ordering::Relaxed);
        // Whether there are two is looked up at the commit, which waits for the other one.
        tx.execute(&insert, &[&"b"]).await?;
        Ok(String::new())
    });
    let release = async {
        eventually("it has run twice", async || runs.load(Ordering::Relaxed) >= 2).await;
        other.batch_execute("ROLLBACK").await.unwrap();
    };
    let (result, ()) = tokio::join!(carry_out_outside(&store, &mut work), release);
    assert!(matches!(&result, Ok(TransactionResult::Done)), "{result:?}");
    assert_eq!(table.entries().await, ["a", "b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_that_the_server_ends_because_it_is_idle_runs_again() {
    let Some(url) = cluster::url() else { return };
    let table = Table::new(&url).await;
    // A transaction may be idle for the length of a lease.
    let builder = PostgresStore::builder(&url).schema(&table.schema).lease(Duration::from_secs(1)).sign_of_life(false);
    let store = builder.connect().await.unwrap();
    let (insert, runs, client) = (table.insert(), AtomicU32::new(0), &table.client);
    let mut work = work(async |tx| {
        let pid: i32 = tx.query_one("SELECT pg_backend_pid()", &[]).await?.get(0);
        if runs.fetch_add(1, Ordering::Relaxed) == 0 {
            let there = "SELECT FROM pg_stat_activity WHERE pid = $1";
            // No closure: what borrows the client in one is not known to be `Send` here.
            while !client.query(there, &[&pid]).await.unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
        }
        tx.execute(&insert, &[&"a"]).await?;
        Ok(String::new())
    });
    let result = carry_out_outside(&store, &mut work).await;
    assert!(matches!(&result, Ok(TransactionResult::Done)), "{result:?}");
    assert_eq!((work.runs, table.entries().await.len()), (2, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_that_ends_itself_or_cannot_be_committed_is_refused() {
    let Some(url) = cluster::url() else { return };
    let table = Table::new(&url).await;
    let (store, claim) = table.store(&url).await;
    let name = &table.name;
    table.client.batch_execute(&format!("ALTER TABLE {name} ADD UNIQUE (what) DEFERRABLE INITIALLY DEFERRED")).await.unwrap();
    let insert = table.insert();
    // What it does, the error, and whether its row stays because it committed that itself.
    for (n, (sql, kind, stays)) in [
        ("COMMIT", ErrorKind::Setup, true),
        ("ROLLBACK", ErrorKind::Setup, false),
        ("COMMIT; BEGIN", ErrorKind::Setup, true),
        ("COMMIT AND CHAIN", ErrorKind::Setup, true),
        ("RESET ALL", ErrorKind::Setup, false),
        ("SET TRANSACTION READ ONLY", ErrorKind::Setup, false),
        ("SELECT 1 / 0", ErrorKind::Value, false),
        ("INSERT INTO @ (what) SELECT what FROM @", ErrorKind::Value, false),
    ]
    .into_iter()
    .enumerate()
    {
        let (what, sql) = (format!("{n}"), sql.replace('@', name));
        for fails in [false, true] {
            table.client.batch_execute(&format!("DELETE FROM {name}")).await.unwrap();
            let mut work = work(async |tx| {
                tx.execute(&insert, &[&what]).await?;
                // It ignores the error.
                let _ = tx.batch_execute(&sql).await;
                if fails { tx.query_one("SELECT 1 WHERE FALSE", &[]).await.map(|_| String::new()) } else { Ok("7".to_owned()) }
            });
            let result = carry_out(&store, claim, &what, &mut work).await.unwrap();
            match &result {
                TransactionResult::Refused(error) => assert_eq!(error.kind(), kind, "{sql}: {error}"),
                TransactionResult::Back => assert!(fails && (kind == ErrorKind::Value || sql.contains("READ ONLY")), "{sql}"),
                other => panic!("{sql}: {other:?}"),
            }
            assert_eq!(work.runs, 1, "{sql}");
            assert_eq!(table.entries().await.len(), usize::from(stays), "{sql}");
        }
    }
    assert_eq!(table.records().await, 0);

    // Savepoints are allowed.
    table.client.batch_execute(&format!("DELETE FROM {name}")).await.unwrap();
    let mut work = work(async |tx| {
        tx.execute(&insert, &[&"stays"]).await?;
        tx.batch_execute("SAVEPOINT one").await?;
        tx.execute(&insert, &[&"goes"]).await?;
        tx.batch_execute("ROLLBACK TO one").await?;
        Ok("7".to_owned())
    });
    assert!(matches!(carry_out(&store, claim, "savepoint", &mut work).await.unwrap(), TransactionResult::Done));
    assert_eq!(table.entries().await, ["stays"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_that_a_transaction_leaves_behind_do_not_reach_the_store() {
    let Some(url) = cluster::url() else { return };
    let table = Table::new(&url).await;
    let builder = PostgresStore::builder(&url).schema(&table.schema).lease(Duration::ZERO).pool(1).transactions(1);
    let store = builder.connect().await.unwrap();
    let worker = store.join(0).await.unwrap();
    let claim = accept(&store, "f", worker).await;
    store.checkpoint(claim, snapshot(1)).await.unwrap();
    let mut work = work(async |tx| {
        tx.batch_execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY; DEALLOCATE ALL").await?;
        Ok("7".to_owned())
    });
    assert!(matches!(carry_out_outside(&store, &mut work).await.unwrap(), TransactionResult::Done));
    store.checkpoint(claim, snapshot(2)).await.unwrap();
    assert_eq!(store.load(claim.fiber).await.unwrap().number, 2);
}
