//! The suite that every store passes.
use std::time::Duration;

use forever_postgres::PostgresStore;
use forever_store::conformance;

use crate::cluster;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_conforms() {
    let Some(url) = cluster::url() else { return };
    conformance::run(async || PostgresStore::builder(&url).schema(cluster::schema()).lease(Duration::ZERO).connect().await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_conforms_without_anything_of_a_session() {
    let Some(url) = cluster::url() else { return };
    let builder = || PostgresStore::builder(&url).schema(cluster::schema()).lease(Duration::ZERO).pooler(true).pool(3);
    conformance::run(async || builder().connect().await.unwrap()).await;
}
