//! The history of a run, as the database has seen it: triggers write down each change of a
//! snapshot, in the transaction that makes it. The library has no part in that.
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use tokio_postgres::{Client, NoTls};

/// A change is numbered while its row is locked, so changes of one fiber are in their order.
const TRIGGERS: &str = "
CREATE TABLE @history (n BIGINT GENERATED ALWAYS AS IDENTITY, fiber BIGINT, what TEXT, epoch BIGINT, number BIGINT, worker BIGINT);
CREATE FUNCTION @write_history() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE what TEXT;
BEGIN
    IF TG_OP = 'INSERT' THEN what := 'made';
    ELSIF NEW.number <> OLD.number THEN what := 'checkpoint';
    ELSIF NEW.epoch <> OLD.epoch OR NEW.worker IS DISTINCT FROM OLD.worker THEN
        what := CASE WHEN NEW.worker IS NULL THEN 'released' ELSE 'claimed' END;
    ELSE RETURN NULL;
    END IF;
    INSERT INTO @history (fiber, what, epoch, number, worker) VALUES (NEW.fiber, what, NEW.epoch, NEW.number, NEW.worker);
    RETURN NULL;
END $$;
CREATE TRIGGER history AFTER INSERT OR UPDATE ON @snapshots FOR EACH ROW EXECUTE FUNCTION @write_history();
CREATE FUNCTION @write_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO @history (fiber, what) VALUES (NEW.seq, NEW.state);
    RETURN NULL;
END $$;
CREATE TRIGGER history_end AFTER UPDATE ON @fibers FOR EACH ROW
    WHEN (NEW.finished_ms IS NOT NULL AND NEW.finished_ms IS DISTINCT FROM OLD.finished_ms) EXECUTE FUNCTION @write_end();
";

fn in_schema(sql: &str, schema: &str) -> String {
    sql.replace('@', &format!("\"{schema}\"."))
}

/// Calls the database of a run.
fn with<T>(url: &str, work: impl AsyncFnOnce(Client) -> Result<T, tokio_postgres::Error>) -> anyhow::Result<T> {
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
    with(url, async |client| client.batch_execute(&in_schema(TRIGGERS, schema)).await)
}

/// Where fibers stand in the database, and who may run them, for people.
pub(crate) fn stand_of(url: &str, schema: &str, fibers: &[String]) -> String {
    let sql = in_schema(
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

/// Writes the history to a file: a line for each change, with the id of the fiber, what happened,
/// and the epoch, the number of the checkpoint and the worker after it.
pub(crate) fn write(url: &str, schema: &str, file: &Path) -> anyhow::Result<()> {
    let sql = in_schema(
        "SELECT f.id, h.what, coalesce(h.epoch, 0), coalesce(h.number, 0), coalesce(h.worker, 0)
         FROM @history h JOIN @fibers f ON f.seq = h.fiber ORDER BY h.n",
        schema,
    );
    let rows = with(url, async |client| client.query(&sql, &[]).await)?;
    let mut text = String::new();
    for row in rows {
        let (id, what): (&str, &str) = (row.get(0), row.get(1));
        let [epoch, number, worker]: [i64; 3] = [row.get(2), row.get(3), row.get(4)];
        writeln!(text, "{id} {what} {epoch} {number} {worker}")?;
    }
    Ok(std::fs::write(file, text)?)
}
