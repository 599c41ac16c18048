//! Processes that only ask: clients, and runtimes that were opened idle, beside a worker.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forever::fiber::FiberState;
use forever::prelude::*;
use forever::{Client, ErrorKind};
use forever_postgres::PostgresStore;
use forever_testkit::waiting::{eventually, soon};

use crate::{cluster, store};

const LEASE: Duration = Duration::from_secs(3600);

/// How often an effect was carried out.
#[derive(Clone, Default)]
struct Charges(Arc<AtomicU64>);

#[fiber]
async fn order(ctx: &FiberContext, charges: Res<Charges>, n: u64) -> anyhow::Result<u64> {
    step!("charge", effect, charges.0.fetch_add(1, Ordering::Relaxed));
    ctx.stream::<u64>("charged").send(&n)?;
    let more: u64 = recv!("more");
    Ok(n + more)
}

async fn worker(url: &str, schema: &str, charges: &Charges) -> Forever {
    let builder = Forever::builder().store(store(url, schema, LEASE).await);
    builder.fiber::<order>().resource(charges.clone()).open().await.unwrap()
}

async fn client(url: &str, schema: &str) -> forever::Result<Client> {
    let store = PostgresStore::builder(url).schema(schema).connect_without_migrating().await?;
    Forever::builder().store(store).client().await
}

/// A number that the tables have.
async fn number(url: &str, schema: &str, query: &str) -> i64 {
    let (sql, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    sql.query_one(&query.replace('@', &format!("\"{schema}\".")), &[]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_spawns_sends_waits_lists_and_follows_streams_and_runs_nothing() {
    let Some(url) = cluster::url() else { return };
    let (schema, charges) = (cluster::schema(), Charges::default());
    // Its tables are made by a worker, which closes: the client is alone at first.
    worker(&url, &schema, &charges).await.close().await.unwrap();
    let client = client(&url, &schema).await.unwrap();
    let orders: Vec<_> = (0..5).map(|n| format!("order {n}")).collect();
    for (n, id) in (0..).zip(&orders) {
        client.spawn(order(n)).id(id).await.unwrap();
    }
    assert!(!client.spawn(order(0)).id("order 0").await.unwrap().accepted(), "it is joined");
    assert_eq!(client.fibers().state(FiberState::Pending).await.unwrap().fibers.len(), 5);
    assert_eq!(number(&url, &schema, "SELECT count(*) FROM @snapshots WHERE worker IS NOT NULL OR epoch > 0").await, 0);
    assert_eq!(number(&url, &schema, "SELECT count(*) FROM @workers").await, 0, "it has no lease");
    assert_eq!(charges.0.load(Ordering::Relaxed), 0);

    let worker = worker(&url, &schema, &charges).await;
    eventually("each waits", async || {
        let waiting = client.counts().await.unwrap();
        waiting.iter().any(|count| count.state == FiberState::Waiting && count.fibers == 5)
    })
    .await;
    assert_eq!(client.workers().await.unwrap().len(), 1);
    let streamed = client.stream::<u64>("order 3", "charged", 0).next().await.unwrap().unwrap();
    assert_eq!(streamed.value, 3);
    for id in &orders {
        client.send(id, "more", &10).await.unwrap();
    }
    for (n, id) in (0..).zip(&orders) {
        assert_eq!(soon(id, client.fiber::<order>(id).wait()).await.unwrap(), n + 10);
    }
    assert_eq!(soon("its tenth", client.find_fiber::<u64>("order 1").await.unwrap().wait()).await.unwrap(), 11);
    assert_eq!(client.status("order 2").await.unwrap().state, FiberState::Completed);
    assert_eq!(charges.0.load(Ordering::Relaxed), 5, "each effect once");
    client.spawn(order(9)).key("late").await.unwrap();
    client.cancel(client.fiber_by_key::<order>("late").await.unwrap().id(), "enough").await.unwrap();
    client.close().await.unwrap();
    worker.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_runtime_leaves_what_it_spawns_to_a_living_worker() {
    let Some(url) = cluster::url() else { return };
    let (schema, charges) = (cluster::schema(), Charges::default());
    let worker = worker(&url, &schema, &charges).await;
    let idle = Forever::builder().store(store(&url, &schema, LEASE).await).open_idle().await.unwrap();
    let mut handles = Vec::new();
    for n in 0..20 {
        handles.push(idle.spawn(order(n)).await.unwrap());
    }
    for handle in &handles {
        idle.send(handle.id(), "more", &1).await.unwrap();
    }
    for (n, handle) in (0..).zip(handles) {
        assert_eq!(soon("the worker runs it", handle.wait()).await.unwrap(), n + 1);
    }
    assert_eq!(charges.0.load(Ordering::Relaxed), 20, "each effect once");
    let only_worker = number(&url, &schema, "SELECT max(id) FROM @workers").await;
    assert_eq!(only_worker, worker.workers().await.unwrap()[0].id);
    assert_eq!(number(&url, &schema, "SELECT count(*) FROM @workers").await, 1);
    idle.close().await.unwrap();
    worker.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_makes_no_tables_and_names_those_of_another_version() {
    let Some(url) = cluster::url() else { return };
    let (schema, charges) = (cluster::schema(), Charges::default());
    let refused = async || {
        let error = client(&url, &schema).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Format);
        with_causes(&error)
    };
    let text = refused().await;
    assert!(text.contains("there are no tables") && text.contains(&*schema), "{text}");
    let exists = format!("SELECT count(*) FROM pg_namespace WHERE nspname = '{schema}'");
    assert_eq!(number(&url, &schema, &exists).await, 0, "none was made");

    worker(&url, &schema, &charges).await.close().await.unwrap();
    let version = number(&url, &schema, "SELECT max(version) FROM @forever_version").await;
    number(&url, &schema, "WITH d AS (DELETE FROM @forever_version WHERE version = (SELECT max(version) FROM @forever_version) RETURNING 1) SELECT count(*) FROM d").await;
    let text = refused().await;
    assert!(text.contains(&format!("has version {}", version - 1)) && text.contains(&format!("needs version {version}")), "{text}");
    number(&url, &schema, "WITH i AS (INSERT INTO @forever_version (version) VALUES (999) RETURNING 1) SELECT count(*) FROM i").await;
    let text = refused().await;
    assert!(text.contains("has version 999"), "{text}");
}

/// An error with its causes.
fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[tokio::test]
async fn client_of_a_file_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    for builder in [Forever::builder().sqlite(folder.path().join("a.db")), Forever::builder().in_memory()] {
        let error = builder.client().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Setup);
        assert!(error.to_string().contains("one process owns an SQLite file"), "{error}");
    }
    let text = Forever::builder().client().await.unwrap_err().to_string();
    assert!(text.contains("no database was named"), "{text}");
    assert!(!folder.path().join("a.db").exists());
}
