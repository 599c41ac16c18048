//! Checkpoints a second over the store alone, beside a floor of the same server: `key=value` lines.
//!
//! The floor is one client that updates one row a transaction. Each checkpoint has another text.
#[path = "../tests/it/cluster.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod cluster;
#[path = "../tests/it/rows.rs"]
mod rows;

use std::sync::Arc;
use std::time::Duration;

use forever_postgres::PostgresStore;
use forever_store::{FiberStore, NewSnapshot};
use tokio::time::Instant;
use tokio_postgres::{Client, NoTls};

const TIME: Duration = Duration::from_secs(3);

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(run());
}

async fn run() {
    let Some(url) = cluster::url() else { return };
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    println!("floor_one_row_commits_per_s={:.0}", floor(&client).await);
    for fibers in [1, 10, 100, 1000] {
        let schema = cluster::schema();
        let store = PostgresStore::builder(&url).schema(&schema).lease(Duration::from_secs(60)).connect().await.unwrap();
        let worker = store.join(0).await.unwrap();
        let store = Arc::new(store);
        let before = wal(&client).await;
        let (steps, took) = checkpoints(&store, worker, fibers).await;
        let bytes = (wal(&client).await - before) / i64::from(steps);
        println!("steps_per_s_{fibers}_fibers={:.0}", f64::from(steps) / took.as_secs_f64());
        println!("wal_bytes_per_step_{fibers}_fibers={bytes}");
        store.abandon();
        println!("hot_percent_{fibers}_fibers={}", hot(&client, &schema).await);
    }
}

async fn floor(client: &Client) -> f64 {
    client
        .batch_execute("CREATE TABLE floor (n INT PRIMARY KEY, data TEXT) WITH (fillfactor = 50); INSERT INTO floor VALUES (1, '')")
        .await
        .unwrap();
    let update = client.prepare("UPDATE floor SET data = $1 WHERE n = 1").await.unwrap();
    let (begun, mut commits) = (Instant::now(), 0_u32);
    while begun.elapsed() < TIME {
        client.execute(&update, &[&data(commits.into())]).await.unwrap();
        commits += 1;
    }
    f64::from(commits) / begun.elapsed().as_secs_f64()
}

fn data(n: u64) -> String {
    format!("{{\"n\":{n},\"text\":\"{n:0>100}\"}}")
}

/// Fibers that make checkpoints for a while; gives how many they made, and how long it took.
async fn checkpoints(store: &Arc<PostgresStore>, worker: i64, fibers: u32) -> (u32, Duration) {
    let mut claims = Vec::new();
    for n in 0..fibers {
        claims.push(rows::accept(store.as_ref(), &format!("f{n}"), worker).await);
    }
    let begun = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for claim in claims {
        let store = Arc::clone(store);
        tasks.spawn(async move {
            let mut made = 0_u32;
            while begun.elapsed() < TIME {
                made += 1;
                let snapshot = NewSnapshot { data: data(made.into()), ..rows::snapshot(made.into()) };
                store.checkpoint(claim, snapshot).await.unwrap();
            }
            made
        });
    }
    let made = tasks.join_all().await.into_iter().sum();
    (made, begun.elapsed())
}

/// The bytes of write-ahead log so far.
async fn wal(client: &Client) -> i64 {
    client.query_one("SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint", &[]).await.unwrap().get(0)
}

/// How many of a hundred updates of snapshots stayed in their page without an index entry.
async fn hot(client: &Client, schema: &str) -> i64 {
    // Statistics of a session are there when it ends.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let sql = "SELECT coalesce(100 * n_tup_hot_upd / nullif(n_tup_upd, 0), 0) FROM pg_stat_all_tables WHERE schemaname = $1 AND relname = 'snapshots'";
    client.query_one(sql, &[&schema]).await.unwrap().get(0)
}
