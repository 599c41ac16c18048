//! The history of a run, as the database has seen it.
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use forever_testkit::history;
use tokio_postgres::{Client, NoTls};

/// Calls the database of a run.
pub(crate) fn with<T>(url: &str, work: impl AsyncFnOnce(Client) -> Result<T, tokio_postgres::Error>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        Ok(work(client).await?)
    })
}

/// Begins the history, in a schema whose tables no worker has made yet.
pub(crate) fn begin(url: &str, schema: &str) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let store = forever_postgres::PostgresStore::builder(url).schema(schema).lease(Duration::ZERO).connect().await?;
        drop(store);
        anyhow::Ok(())
    })?;
    with(url, async |client| client.batch_execute(&history::in_schema(history::BEGIN, schema)).await)
}

/// Where fibers stand in the database, and who may run them, for people.
pub(crate) fn stand_of(url: &str, schema: &str, fibers: &[String]) -> String {
    let sql = history::in_schema(
        "SELECT f.id || ' ' || f.state || coalesce(': ' || f.reason, '') || ', at ' || coalesce(s.at, 'its start')
                || ' after ' || s.number || ' checkpoints, epoch ' || s.epoch || ', worker ' || coalesce(s.worker::text, 'none')
                || coalesce(', alive ' || (SELECT count(*) FROM @workers w WHERE w.id = s.worker)::text, '')
                || coalesce(', waits ' || (SELECT w::text FROM @waits w WHERE w.fiber = f.seq), '')
                || coalesce(', declined by ' || (SELECT string_agg(d.worker::text, ' ') FROM @declined d WHERE d.fiber = f.seq), '')
         FROM @fibers f LEFT JOIN @snapshots s ON s.fiber = f.seq WHERE f.id = ANY ($1)",
        schema,
    );
    let rows = with(url, async |client| client.query(&sql, &[&fibers]).await);
    match rows {
        Ok(rows) => rows.iter().map(|row| row.get::<_, Option<String>>(0).unwrap_or_default()).collect::<Vec<_>>().join("\n"),
        Err(why) => format!("where they stand cannot be read: {why}"),
    }
}

/// Writes the history to a file, a line for each change.
pub(crate) fn write(url: &str, schema: &str, file: &Path) -> anyhow::Result<()> {
    let sql = history::in_schema(history::LINES, schema);
    let rows = with(url, async |client| client.query(&sql, &[]).await)?;
    let mut text = String::new();
    for row in rows {
        writeln!(text, "{}", row.get::<_, &str>(0))?;
    }
    Ok(std::fs::write(file, text)?)
}
