//! The suite that every store passes.
use std::sync::atomic::Ordering;
use std::time::Duration;

use forever_postgres::PostgresStore;
use forever_store::conformance;

use crate::{cluster, pooler};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_conforms() {
    let Some(url) = cluster::url() else { return };
    conformance::run(async || PostgresStore::builder(&url).schema(cluster::schema()).lease(Duration::ZERO).connect().await.unwrap()).await;
}

/// Each transaction runs on another connection, whose session is reset before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_conforms_through_a_pooler_in_transaction_mode() {
    let Some(server) = cluster::own() else { return };
    let (url, transactions) = pooler::start(server.socket(), 12).await;
    let builder = || PostgresStore::builder(&url).schema(cluster::schema()).lease(Duration::ZERO).pooler(true).pool(6);
    conformance::run(async || builder().connect().await.unwrap()).await;
    assert!(transactions.load(Ordering::Relaxed) > 1000);
}
