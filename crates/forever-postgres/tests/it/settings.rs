//! Settings of the server and the role: those that the store does not depend on, those that its sessions set, and those that it refuses.
use std::time::Duration;

use forever_postgres::PostgresStore;
use forever_store::{ErrorKind, conformance};

use crate::cluster;
use crate::schemas::client;

/// Settings that a role may have for other programs' sake.
const OF_OTHERS: [(&str, &str); 16] = [
    ("default_transaction_read_only", "on"),
    ("default_transaction_isolation", "serializable"),
    ("default_transaction_deferrable", "on"),
    ("standard_conforming_strings", "off"),
    ("statement_timeout", "200"),
    ("lock_timeout", "1"),
    ("idle_in_transaction_session_timeout", "1"),
    ("search_path", "nowhere"),
    ("quote_all_identifiers", "on"),
    ("row_security", "off"),
    ("bytea_output", "escape"),
    ("DateStyle", "German"),
    ("IntervalStyle", "sql_standard"),
    ("TimeZone", "Asia/Kolkata"),
    ("extra_float_digits", "-15"),
    ("transform_null_equals", "on"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_conforms_whatever_settings_the_role_has() {
    if !forever_testkit::sizes::runs_at_night("the conformance suite under other settings") {
        return;
    }
    let Some(url) = cluster::url() else { return };
    let url = OF_OTHERS.iter().fold(url, |url, (name, value)| cluster::with_setting(&url, name, value));
    conformance::run(async || PostgresStore::builder(&url).schema(cluster::schema()).lease(Duration::ZERO).connect().await.unwrap()).await;
}

/// What a connect is refused for, of kind `Setup`.
async fn refusal(builder: forever_postgres::Builder) -> String {
    let error = builder.schema(cluster::schema()).connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Setup, "{error:?}");
    error.to_string()
}

#[tokio::test]
async fn setting_under_which_nothing_would_be_stored_is_refused_by_name_behind_a_pooler() {
    let Some(url) = cluster::url() else { return };
    for (name, value, shown) in [
        ("default_transaction_read_only", "on", "`on`"),
        ("standard_conforming_strings", "off", "`off`"),
        ("session_replication_role", "replica", "`replica`"),
        ("statement_timeout", "20", "`20` ms"),
        ("lock_timeout", "20", "`20` ms"),
        ("idle_in_transaction_session_timeout", "20", "`20` ms"),
    ] {
        let why = refusal(PostgresStore::builder(cluster::with_setting(&url, name, value)).pooler(true)).await;
        assert!(why.contains(&format!("`{name}` is {shown}")), "{why}");
    }
    // Limits that leave time are the program's own business.
    let url = cluster::with_setting(&url, "statement_timeout", "30000");
    PostgresStore::builder(url).schema(cluster::schema()).pooler(true).connect().await.unwrap();
}

#[tokio::test]
async fn setting_that_a_session_may_not_change_is_refused_by_name() {
    let Some(server) = cluster::own() else { return };
    let admin = client(&server.url()).await;
    let roles = "CREATE ROLE app LOGIN; GRANT CREATE ON DATABASE postgres TO app; ALTER ROLE app SET session_replication_role = replica";
    admin.batch_execute(roles).await.unwrap();
    let why = refusal(PostgresStore::builder(server.url().replace("user=postgres", "user=app"))).await;
    assert!(why.contains("`session_replication_role` is `replica`") && why.contains("needs `origin`"), "{why}");

    let latin = "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0";
    admin.batch_execute(latin).await.unwrap();
    let why = refusal(PostgresStore::builder(server.url().replace("dbname=postgres", "dbname=latin"))).await;
    assert!(why.contains("`server_encoding` is `LATIN1`") && why.contains("needs `UTF8`"), "{why}");

    // What the role has for others, its sessions set.
    admin.batch_execute("ALTER ROLE app RESET ALL; ALTER ROLE app SET default_transaction_read_only = on").await.unwrap();
    PostgresStore::builder(server.url().replace("user=postgres", "user=app")).schema(cluster::schema()).connect().await.unwrap();
}

/// Rights that the role lacks, the words of the refusal, and whether a process that only asks needs them, too.
const LACKING: [(&str, &str, bool); 6] = [
    ("REVOKE UPDATE ON ops FROM rights", "lacks the right to UPDATE on table `ops`", false),
    ("REVOKE DELETE ON snapshots FROM rights", "lacks the right to DELETE on table `snapshots`", false),
    ("REVOKE INSERT ON turns FROM rights", "lacks the right to INSERT on table `turns`", false),
    ("REVOKE SELECT ON fibers FROM rights", "lacks the right to SELECT on table `fibers`", true),
    ("ALTER TABLE parts ENABLE ROW LEVEL SECURITY", "row level security of table `parts`", true),
    ("REVOKE EXECUTE ON FUNCTION metadata_has FROM PUBLIC", "lacks the right to EXECUTE on function `metadata_has`", true),
];

#[tokio::test]
async fn right_that_the_role_lacks_is_refused_by_name() {
    let Some(server) = cluster::own() else { return };
    let admin = client(&server.url()).await;
    let schema = cluster::schema();
    let of_role = |user: &str| PostgresStore::builder(server.url().replace("user=postgres", user)).schema(&schema);
    of_role("user=postgres").connect().await.unwrap();
    // Others have tables there, too.
    let others = format!("CREATE ROLE rights LOGIN; SET search_path TO \"{schema}\"; CREATE TABLE of_others ()");
    admin.batch_execute(&others).await.unwrap();
    let all = format!(
        "GRANT USAGE ON SCHEMA \"{schema}\" TO rights; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA \"{schema}\" TO rights;
         REVOKE ALL ON of_others FROM rights; GRANT EXECUTE ON FUNCTION metadata_has TO PUBLIC; ALTER TABLE parts DISABLE ROW LEVEL SECURITY"
    );
    admin.batch_execute(&all).await.unwrap();
    let opened = async || [of_role("user=rights").connect().await, of_role("user=rights").connect_without_migrating().await];
    for opened in opened().await {
        opened.unwrap();
    }
    for (lacking, words, of_both) in LACKING {
        admin.batch_execute(lacking).await.unwrap();
        let [worker, client] = opened().await;
        if !of_both {
            client.as_ref().unwrap();
        }
        for refused in [Some(worker), of_both.then_some(client)].into_iter().flatten() {
            let error = refused.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Setup, "{error:?}");
            assert!(error.to_string().contains(words) && error.to_string().contains("`rights`"), "{error}");
        }
        admin.batch_execute(&all).await.unwrap();
    }
    // The owner passes over it.
    admin.batch_execute("ALTER TABLE parts ENABLE ROW LEVEL SECURITY").await.unwrap();
    of_role("user=postgres").connect().await.unwrap();
}
