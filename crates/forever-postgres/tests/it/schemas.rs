//! Schemas: of a newer version, of others, made by several at once.
use std::time::Duration;

use forever_postgres::PostgresStore;
use forever_store::{ErrorKind, FiberStore};
use tokio_postgres::NoTls;

use crate::cluster;

pub(crate) async fn client(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test]
async fn newer_version_is_refused_and_left_alone() {
    let Some(url) = cluster::url() else { return };
    let schema = cluster::schema();
    drop(PostgresStore::builder(&url).schema(&schema).connect().await.unwrap());
    let client = client(&url).await;
    client.execute(&format!("INSERT INTO \"{schema}\".forever_version (version) VALUES (99)"), &[]).await.unwrap();
    let error = PostgresStore::builder(&url).schema(&schema).connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Format, "{error}");
    assert!(error.to_string().contains("version 99"), "{error}");
}

#[tokio::test]
async fn schema_of_a_development_version_is_refused_and_left_alone() {
    let Some(url) = cluster::url() else { return };
    let client = client(&url).await;
    for version in [1, 11] {
        let schema = cluster::schema();
        let made = format!(
            "CREATE SCHEMA \"{schema}\"; SET search_path TO \"{schema}\";
             CREATE TABLE forever_schema (version BIGINT PRIMARY KEY, applied TIMESTAMPTZ NOT NULL DEFAULT now());
             INSERT INTO forever_schema (version) VALUES ({version}); CREATE TABLE fibers (id TEXT); INSERT INTO fibers VALUES ('f')"
        );
        client.batch_execute(&made).await.unwrap();
        let contents = async || -> String {
            let sql = "SELECT schema_to_xml(current_schema, TRUE, FALSE, '')::text";
            client.query_one(sql, &[]).await.unwrap().get(0)
        };
        let before = contents().await;
        let builder = || PostgresStore::builder(&url).schema(&schema);
        for refused in [builder().connect().await, builder().connect_without_migrating().await] {
            let error = refused.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Format, "{error}");
            assert!(error.to_string().contains("development version of Forever before 0.1.0"), "{error}");
        }
        assert_eq!(contents().await, before);
    }
}

#[tokio::test]
async fn tables_of_others_are_refused_and_left_alone() {
    let Some(url) = cluster::url() else { return };
    let schema = cluster::schema();
    let client = client(&url).await;
    client.batch_execute(&format!("CREATE SCHEMA \"{schema}\"; CREATE TABLE \"{schema}\".fibers (n INT)")).await.unwrap();
    let error = PostgresStore::builder(&url).schema(&schema).connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Format, "{error}");
    client.query(&format!("SELECT n FROM \"{schema}\".fibers"), &[]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_workers_make_the_tables_once() {
    let Some(url) = cluster::url() else { return };
    let schema = cluster::schema();
    let mut opening = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let builder = PostgresStore::builder(&url).schema(&schema).lease(Duration::from_secs(60));
        opening.spawn(async move {
            let store = builder.connect().await.unwrap();
            store.join(0).await.unwrap()
        });
    }
    let mut workers: Vec<i64> = opening.join_all().await;
    workers.sort_unstable();
    assert_eq!(workers, [1, 2, 3, 4]);
}

#[tokio::test]
async fn what_makes_no_sense_is_refused() {
    for (builder, word) in [
        (PostgresStore::builder("host=/nowhere").schema("a@b"), "schema"),
        (PostgresStore::builder("host=/nowhere").schema(""), "schema"),
        (PostgresStore::builder("nonsense"), "URL"),
    ] {
        let error = builder.connect().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Setup, "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
    let nowhere = PostgresStore::builder("host=/nowhere user=a").patience(Duration::from_millis(100)).connect().await.unwrap_err();
    assert_eq!(nowhere.kind(), ErrorKind::Store, "{nowhere}");
}
