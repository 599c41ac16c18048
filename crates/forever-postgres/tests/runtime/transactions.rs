//! Transactions in the program's own tables: carried out once in a fiber, whatever happens to its worker.
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use forever::fiber::{Fiber, FiberErrorKind, FiberState};
use forever::prelude::*;
use forever::store::PostgresStore;
use forever::{BoxError, Builder, Error, ErrorKind};
use forever_postgres::tokio_postgres::{self, Client, NoTls};
use forever_testkit::waiting::{eventually, soon};
use tokio::sync::Semaphore;

use crate::cluster;

const LEASE: Duration = Duration::from_secs(3600);

/// Tables of the program in a schema of their own, and what its closures do.
#[derive(Clone)]
struct World {
    /// A URL with which the program's tables are found without their schema.
    url: String,
    schema: String,
    client: Arc<Client>,
    /// Number of runs of closures.
    runs: Arc<AtomicU32>,
    /// Number of calls of a service that fails every other time.
    calls: Arc<AtomicU32>,
    /// One permit lets one step through its gate.
    gate: Arc<Semaphore>,
}

impl World {
    /// `None` without a server.
    async fn new() -> Option<Self> {
        let url = cluster::url()?;
        let schema = cluster::schema().replace(' ', "_");
        let url = cluster::with_setting(&url, "search_path", &format!("own_{schema}"));
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let tables = format!(
            "CREATE SCHEMA own_{schema};
             CREATE TABLE entries (n BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, what TEXT NOT NULL CHECK (what <> 'bad'));
             CREATE TABLE notes (of BIGINT NOT NULL REFERENCES entries (n) DEFERRABLE INITIALLY DEFERRED)"
        );
        client.batch_execute(&tables).await.unwrap();
        Some(World {
            url,
            schema,
            client: Arc::new(client),
            runs: Arc::default(),
            calls: Arc::default(),
            gate: Arc::new(Semaphore::new(0)),
        })
    }

    async fn builder(&self, lease: Duration) -> Builder {
        let store = PostgresStore::builder(&self.url).schema(&self.schema).lease(lease).connect().await.unwrap();
        Forever::builder().store(store).resource(self.clone())
    }

    async fn open<F: Fiber>(&self) -> Forever {
        self.builder(LEASE).await.fiber::<F>().open().await.unwrap()
    }

    async fn note(&self, ctx: &FiberContext, what: &str) -> anyhow::Result<i64> {
        ctx.postgres_transaction(what, async |tx| {
            self.runs.fetch_add(1, SeqCst);
            Ok(tx.query_one("INSERT INTO entries (what) VALUES ($1) RETURNING n", &[&what]).await?.get(0))
        })
        .await
    }

    /// Fails every other time.
    fn call(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.calls.fetch_add(1, SeqCst) % 2 == 1, "not now");
        Ok(())
    }

    async fn pass_gate(&self) {
        self.gate.acquire().await.unwrap().forget();
    }

    async fn entries(&self) -> Vec<String> {
        let rows = self.client.query("SELECT what FROM entries ORDER BY what", &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Number of stored records.
    async fn records(&self) -> i64 {
        let sql = format!("SELECT count(*) FROM {}.ops WHERE kind = 'transaction'", self.schema);
        self.client.query_one(&sql, &[]).await.unwrap().get(0)
    }
}

async fn in_time<T>(future: impl IntoFuture<Output = T>) -> T {
    soon("it ends", future).await
}

#[fiber]
async fn gated(ctx: &FiberContext, world: Res<World>) -> anyhow::Result<i64> {
    let before = world.note(ctx, "before any step").await?;
    let one = step!({
        let n = world.note(ctx, "in a step").await?;
        let (left, right) = tokio::join!(keyed(&world, ctx, "b"), keyed(&world, ctx, "a"));
        world.pass_gate().await;
        n + left? + right?
    });
    let more = steps!(for n in 0..3, world.note(ctx, &format!("item {n}")).await?);
    let (two, three) = steps!(world.note(ctx, "left").await?, world.note(ctx, "right").await?);
    Ok(before + one + two + three + more.iter().sum::<i64>())
}

async fn keyed(world: &World, ctx: &FiberContext, what: &str) -> anyhow::Result<i64> {
    ctx.postgres_transaction("book", async |tx| {
        world.runs.fetch_add(1, SeqCst);
        Ok(tx.query_one("INSERT INTO entries (what) VALUES ($1) RETURNING n", &[&what]).await?.get(0))
    })
    .key(what)
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_that_dies_between_a_commit_and_the_checkpoint_repeats_no_transaction() {
    let Some(world) = World::new().await else { return };
    let forever = world.open::<gated>().await;
    let id = forever.spawn(gated()).await.unwrap().id().to_owned();
    eventually("it is at the gate", async || world.runs.load(SeqCst) == 4 && world.records().await == 4).await;
    // As if the process had died.
    drop(forever);

    let forever = world.open::<gated>().await;
    world.gate.add_permits(1);
    let sum = in_time(forever.fiber::<gated>(&id).wait()).await.unwrap();
    assert_eq!(world.runs.load(SeqCst), 9, "each closure has run once");
    assert_eq!(world.entries().await, ["a", "b", "before any step", "in a step", "item 0", "item 1", "item 2", "left", "right"]);
    let total: i64 = world.client.query_one("SELECT sum(n)::bigint FROM entries", &[]).await.unwrap().get(0);
    assert_eq!(sum, total, "the results are those of the rows");
    assert_eq!(world.records().await, 0, "checkpoints delete the records");
    forever.close().await.unwrap();
}

#[fiber]
async fn retried(ctx: &FiberContext, world: Res<World>) -> anyhow::Result<i64> {
    let n = step!(retry = Retry::times(9).backoff(Backoff::none()), {
        let n = world.note(ctx, "before the failure").await?;
        world.call()?;
        n + world.note(ctx, "after it").await?
    });
    Ok(n)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn later_attempt_of_a_step_gets_the_stored_result() {
    let Some(world) = World::new().await else { return };
    let forever = world.open::<retried>().await;
    assert_eq!(in_time(forever.run(retried())).await.unwrap(), 3);
    assert_eq!((world.runs.load(SeqCst), world.calls.load(SeqCst)), (2, 2));
    assert_eq!(world.entries().await, ["after it", "before the failure"]);
    forever.close().await.unwrap();
}

/// Its closure waits in the first run.
#[fiber]
async fn slow(ctx: &FiberContext, world: Res<World>) -> anyhow::Result<u32> {
    let run = step!({
        let booked: anyhow::Result<u32> = ctx
            .postgres_transaction("book", async |tx| {
                let run = world.runs.fetch_add(1, SeqCst);
                tx.execute("INSERT INTO entries (what) VALUES ($1)", &[&format!("run {run}")]).await?;
                if run == 0 {
                    world.pass_gate().await;
                }
                Ok(run)
            })
            .await;
        booked?
    });
    Ok(run)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_that_only_seemed_dead_does_not_commit() {
    let Some(world) = World::new().await else { return };
    // Every worker but the one that takes over counts as dead.
    let open = async || world.builder(Duration::ZERO).await.fiber::<slow>().open().await.unwrap();
    let a = open().await;
    let id = a.spawn(slow()).await.unwrap().id().to_owned();
    eventually("its closure is under way", async || world.runs.load(SeqCst) == 1).await;
    let b = open().await;
    assert_eq!(in_time(b.fiber::<slow>(&id).wait()).await.unwrap(), 1, "the second run of the closure");
    world.gate.add_permits(1);
    let under_way = "SELECT FROM pg_stat_activity WHERE state = 'idle in transaction' AND query LIKE '%entries%'";
    eventually("the late transaction has ended", async || {
        world.gate.available_permits() == 0 && world.client.query(under_way, &[]).await.unwrap().is_empty()
    })
    .await;
    assert_eq!(world.entries().await, ["run 1"]);
    assert_eq!(b.fiber::<slow>(&id).status().await.unwrap().state, FiberState::Completed);
    drop(a);
    b.close().await.unwrap();
}

#[derive(Debug)]
enum Refusal {
    SoldOut(u32),
    Postgres(tokio_postgres::Error),
    Forever(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Refusal::Forever(error)
    }
}

impl From<tokio_postgres::Error> for Refusal {
    fn from(error: tokio_postgres::Error) -> Self {
        Refusal::Postgres(error)
    }
}

#[fiber]
async fn failing(ctx: &FiberContext, _world: Res<World>) -> anyhow::Result<()> {
    step!({
        let sold_out: Result<(), Refusal> = ctx
            .postgres_transaction("book", async |tx| {
                tx.execute("INSERT INTO entries (what) VALUES ('taken back')", &[]).await?;
                Err(Refusal::SoldOut(7))
            })
            .await;
        assert!(matches!(sold_out, Err(Refusal::SoldOut(7))), "{sold_out:?}");
        let bad: Result<(), Refusal> = ctx
            .postgres_transaction("book", async |tx| {
                tx.execute("INSERT INTO entries (what) VALUES ('taken back')", &[]).await?;
                tx.execute("INSERT INTO entries (what) VALUES ('bad')", &[]).await?;
                Ok(())
            })
            .await;
        assert!(matches!(&bad, Err(Refusal::Postgres(why)) if why.code().is_some()), "{bad:?}");
        let dangling: Result<(), Refusal> = ctx
            .postgres_transaction("book", async |tx| {
                tx.execute("INSERT INTO notes VALUES (-1)", &[]).await?;
                Ok(())
            })
            .await;
        assert!(matches!(&dangling, Err(Refusal::Forever(why)) if why.kind() == ErrorKind::Value), "{dangling:?}");
        let ended: Result<(), Refusal> = ctx.postgres_transaction("book", async |tx| Ok(tx.batch_execute("ROLLBACK").await?)).await;
        assert!(matches!(&ended, Err(Refusal::Forever(why)) if why.kind() == ErrorKind::Setup), "{ended:?}");
        let of_sqlite: Result<(), Error> = ctx.transaction("of SQLite", |_| Ok(())).await;
        let why = of_sqlite.unwrap_err();
        assert_eq!(why.kind(), ErrorKind::Setup);
        assert!(why.to_string().contains("`postgres_transaction`"), "{why}");
        // It is rolled back where it is.
        let late = tokio::time::timeout(
            Duration::from_millis(100),
            ctx.postgres_transaction("book", async |tx| {
                tx.execute("INSERT INTO entries (what) VALUES ('taken back')", &[]).await?;
                std::future::pending::<anyhow::Result<()>>().await
            })
            .into_future(),
        );
        assert!(late.await.is_err());
        let stored: Result<(), Error> = ctx.postgres_transaction("book", async |_| Ok(())).await;
        stored?;
    });
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_that_fails_is_rolled_back_and_its_error_is_the_callers() {
    let Some(world) = World::new().await else { return };
    let forever = world.open::<failing>().await;
    in_time(forever.run(failing())).await.unwrap();
    assert!(world.entries().await.is_empty());
    assert_eq!(world.records().await, 0);
    forever.close().await.unwrap();
}

#[fiber]
async fn panicking(ctx: &FiberContext, world: Res<World>) -> anyhow::Result<()> {
    step!({
        let booked: anyhow::Result<()> = ctx
            .postgres_transaction("book", async |tx| {
                tx.execute("INSERT INTO entries (what) VALUES ('taken back')", &[]).await?;
                assert!(world.runs.fetch_add(1, SeqCst) > 0, "at the disco");
                Ok(())
            })
            .await;
        booked?;
    });
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closure_that_panics_is_rolled_back() {
    let Some(world) = World::new().await else { return };
    let forever = world.open::<panicking>().await;
    let error = in_time(forever.run(panicking())).await.unwrap_err();
    assert_eq!(error.kind(), FiberErrorKind::Failed, "{error}");
    assert!(world.entries().await.is_empty());
    assert_eq!(world.records().await, 0);
    forever.close().await.unwrap();
}

/// Each adds one to what all the others have made of the counter.
#[fiber]
async fn counting(ctx: &FiberContext, _world: Res<World>) -> anyhow::Result<()> {
    for _ in 0..5 {
        step!({
            let counted: anyhow::Result<()> = ctx
                .postgres_transaction("book", async |tx| {
                    tx.batch_execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE").await?;
                    let n: i64 = tx.query_one("SELECT sum(of)::bigint FROM notes", &[]).await?.get(0);
                    tokio::task::yield_now().await;
                    tx.execute("UPDATE notes SET of = $1", &[&(n + 1)]).await?;
                    Ok(())
                })
                .await;
            counted?;
        });
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fibers_that_conflict_all_get_through() {
    let Some(world) = World::new().await else { return };
    world.client.batch_execute("ALTER TABLE notes DROP CONSTRAINT notes_of_fkey; INSERT INTO notes VALUES (0)").await.unwrap();
    let forever = world.open::<counting>().await;
    let mut handles = Vec::new();
    for _ in 0..4 {
        handles.push(forever.spawn(counting()).await.unwrap());
    }
    for handle in handles {
        in_time(handle.wait()).await.unwrap();
    }
    let n: i64 = world.client.query_one("SELECT of FROM notes", &[]).await.unwrap().get(0);
    assert_eq!(n, 20);
    forever.close().await.unwrap();
}

#[fiber]
async fn changing(ctx: &FiberContext, world: Res<World>) -> anyhow::Result<()> {
    step!({
        let changed: anyhow::Result<()> = ctx
            .postgres_transaction("book", async |tx| {
                world.runs.fetch_add(1, SeqCst);
                tx.execute("UPDATE entries SET what = what || '!'", &[]).await?;
                Ok(())
            })
            .await;
        changed?;
    });
    Ok(())
}

impl World {
    /// A session that has the only entry locked until it commits.
    async fn locked(&self) -> Client {
        self.client.batch_execute("INSERT INTO entries (what) VALUES ('a')").await.unwrap();
        let (other, connection) = tokio_postgres::connect(&self.url, NoTls).await.unwrap();
        tokio::spawn(connection);
        other.batch_execute("BEGIN; UPDATE entries SET what = 'b'").await.unwrap();
        other
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fiber_waits_for_a_row_of_the_program_for_as_long_as_it_takes() {
    let Some(world) = World::new().await else { return };
    let other = world.locked().await;
    let forever = world.open::<changing>().await;
    let handle = forever.spawn(changing()).await.unwrap();
    let waits = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%what || ''!''%'
                 AND clock_timestamp() - query_start > INTERVAL '1.3 s'";
    eventually("it waits for more than a second", async || !world.client.query(waits, &[]).await.unwrap().is_empty()).await;
    other.batch_execute("COMMIT").await.unwrap();
    in_time(handle.wait()).await.unwrap();
    assert_eq!((world.runs.load(SeqCst), world.entries().await), (1, vec!["b!".to_owned()]));
    forever.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runtime_that_closes_leaves_a_transaction_that_is_to_be_repeated_to_the_next_one() {
    let Some(world) = World::new().await else { return };
    let other = world.locked().await;
    let hour = Duration::from_secs(3600);
    // Its role has a limit, so the closure runs again and again.
    let of_role = cluster::with_setting(&world.url, "lock_timeout", "50");
    let store = PostgresStore::builder(of_role).schema(&world.schema).lease(LEASE).patience(hour).connect().await.unwrap();
    let forever = Forever::builder().store(store).resource(world.clone()).fiber::<changing>().open().await.unwrap();
    let id = forever.spawn(changing()).await.unwrap().id().to_owned();
    eventually("it has run twice", async || world.runs.load(SeqCst) >= 2).await;
    in_time(forever.close().deadline(hour)).await.unwrap();

    other.batch_execute("COMMIT").await.unwrap();
    let forever = world.open::<changing>().await;
    in_time(forever.fiber::<changing>(&id).wait()).await.unwrap();
    assert_eq!(world.entries().await, ["b!"]);
    forever.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_outside_of_fibers_is_committed_or_rolled_back() {
    let Some(world) = World::new().await else { return };
    let forever = world.builder(LEASE).await.open().await.unwrap();
    let what = "outside".to_owned();
    let n: i64 = forever
        .postgres_transaction(async |tx| {
            tx.execute("INSERT INTO entries (what) VALUES ($1)", &[&what]).await?;
            Ok::<_, BoxError>(tx.query_one("SELECT count(*) FROM entries", &[]).await?.get(0))
        })
        .await
        .unwrap();
    assert_eq!(n, 1);
    let error = forever
        .postgres_transaction(async |tx| {
            tx.execute("INSERT INTO entries (what) VALUES ($1)", &[&what]).await?;
            Err::<(), BoxError>("no".into())
        })
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "no");
    let error = forever.postgres_transaction(async |tx| Ok::<_, BoxError>(tx.batch_execute("COMMIT").await?)).await.unwrap_err();
    assert_eq!(error.downcast_ref::<Error>().unwrap().kind(), ErrorKind::Setup, "{error}");
    let error = forever.transaction(|_| Ok::<_, Error>(())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Setup);
    assert_eq!(world.entries().await, ["outside"]);
    forever.close().await.unwrap();
    let error = forever.postgres_transaction(async |_| Ok::<_, Error>(())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
}

/// Begins a transaction in the closure of another one: passes the error on, then ignores it.
#[fiber]
async fn nesting(ctx: &FiberContext, world: Res<World>) -> anyhow::Result<(String, bool)> {
    let why = step!("passed on", {
        let outer: anyhow::Result<i64> = ctx
            .postgres_transaction("book", async |tx| {
                tx.execute("INSERT INTO entries (what) VALUES ('taken back')", &[]).await?;
                world.note(ctx, "taken back").await
            })
            .await;
        outer.unwrap_err().downcast::<Error>()?.to_string()
    });
    let refused = step!("ignored", {
        let outer: anyhow::Result<bool> = ctx
            .postgres_transaction("book", async |tx| {
                tx.execute("INSERT INTO entries (what) VALUES ('outer')", &[]).await?;
                Ok(keyed(&world, ctx, "inner").await.is_err())
            })
            .await;
        outer?
    });
    let (left, right) = tokio::join!(keyed(&world, ctx, "left"), keyed(&world, ctx, "right"));
    left?;
    right?;
    Ok((why, refused))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nested_transaction_is_refused_at_once() {
    for connections in [4, 1] {
        let Some(world) = World::new().await else { return };
        let store = PostgresStore::builder(&world.url).schema(&world.schema).lease(LEASE).transactions(connections);
        let builder = Forever::builder().store(store.connect().await.unwrap()).resource(world.clone());
        let forever = builder.fiber::<nesting>().open().await.unwrap();
        let (why, refused) = in_time(forever.run(nesting())).await.unwrap();
        assert!(why.contains("inside of another one") && refused, "{why}");
        assert_eq!(world.entries().await, ["left", "outer", "right"]);
        assert_eq!(world.records().await, 0);

        let inner = async || forever.postgres_transaction(async |_| Ok::<_, Error>(())).await;
        let nested = forever.postgres_transaction(async |_| inner().await);
        assert_eq!(in_time(nested).await.unwrap_err().kind(), ErrorKind::Setup);
        in_time(inner()).await.unwrap();

        // Another database has connections of its own.
        let other = World::new().await.unwrap();
        let other = other.builder(LEASE).await.open().await.unwrap();
        let inner = async || other.postgres_transaction(async |_| Ok::<_, Error>(())).await;
        in_time(forever.postgres_transaction(async |_| inner().await)).await.unwrap();
        other.close().await.unwrap();
        forever.close().await.unwrap();
    }
}

/// It does not run again, so only a transaction with a key has a record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closure_fiber_repeats_a_transaction_without_a_key_alone() {
    let Some(world) = World::new().await else { return };
    let forever = world.builder(LEASE).await.open().await.unwrap();
    let here = world.clone();
    let closure = async move |ctx: FiberContext| {
        for _ in 0..2 {
            here.note(&ctx, "without").await?;
            keyed(&here, &ctx, "with").await?;
        }
        Ok::<_, anyhow::Error>(here.records().await)
    };
    let records = in_time(forever.spawn_closure("entries", closure)).await.unwrap();
    assert_eq!(records, 1);
    assert_eq!(world.entries().await, ["with", "without", "without"]);
    assert_eq!(world.records().await, 0, "it goes with the fiber");
    forever.close().await.unwrap();
}

#[tokio::test]
async fn sqlite_has_no_transactions_of_postgres() {
    let forever = Forever::builder().in_memory().open().await.unwrap();
    let error = forever.postgres_transaction(async |_| Ok::<_, Error>(())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Setup);
    assert!(error.to_string().contains("opened with SQLite"), "{error}");
    forever.close().await.unwrap();
}
