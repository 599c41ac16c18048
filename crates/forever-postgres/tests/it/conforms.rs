//! The suite that every store passes.
use std::sync::atomic::Ordering;
use std::time::Duration;

use forever_postgres::PostgresStore;
use forever_store::{WorkerId, conformance};
use forever_testkit::sizes;
use forever_testkit::waiting::eventually;

use crate::{cluster, pooler};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_conforms() {
    let Some(url) = cluster::url() else { return };
    conformance::run(async || PostgresStore::builder(&url).schema(cluster::schema()).lease(Duration::ZERO).connect().await.unwrap()).await;
}

/// Workers over a schema of their own.
struct Workers {
    url: String,
    schema: String,
}

impl conformance::Workers for Workers {
    type Store = PostgresStore;

    async fn open(&self) -> PostgresStore {
        PostgresStore::builder(&self.url).schema(&self.schema).lease(Duration::from_secs(3600)).connect().await.unwrap()
    }

    async fn end_lease(&self, worker: WorkerId, _by: &PostgresStore) {
        let (client, connection) = tokio_postgres::connect(&self.url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        let workers = format!("\"{}\".workers", self.schema);
        // It may take its lock meanwhile, which shows life as well.
        let end = format!("UPDATE {workers} SET lease_ms = 0, lock = NULL WHERE id = $1");
        eventually("another worker takes over", async || client.execute(&end, &[&worker]).await.unwrap() == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_conform() {
    let Some(url) = cluster::url() else { return };
    conformance::run_workers(async || Workers { url: url.clone(), schema: cluster::schema() }).await;
}

/// Each transaction runs on another connection, whose session is reset before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_conforms_through_a_pooler_in_transaction_mode() {
    if !sizes::runs_at_night("the conformance suite through a pooler") {
        return;
    }
    let Some(server) = cluster::own() else { return };
    let (url, transactions) = pooler::start(server.socket(), 12).await;
    let builder = || PostgresStore::builder(&url).schema(cluster::schema()).lease(Duration::ZERO).pooler(true).pool(6);
    conformance::run(async || builder().connect().await.unwrap()).await;
    assert!(transactions.load(Ordering::Relaxed) > 1000);
}
