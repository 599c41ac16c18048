//! Streams of fibers: one row for each append.
use forever_store::{LOGS, Seq, SnapshotRows, StreamAppend, StreamBatch, StreamsDelta, log_number};

use crate::sql::{Arg, Done, Tx, args};

/// Rows of a stream after which old ones are deleted.
const TRIMMED: u64 = 64;

/// Parts of a `WITH` that append items and delete old ones, for fibers of its part `done`. Their
/// parameters begin at `at` and are those of [`arguments`].
pub(crate) fn parts(at: usize) -> String {
    let parameter = |n: usize, of: &str| format!("${}::{of}[]", at + n);
    let types = ["bigint", "text", "bigint", "bigint", "text", "bigint", "bigint"];
    let parameters = types.iter().enumerate().map(|(n, of)| parameter(n, of)).collect::<Vec<_>>().join(", ");
    format!(
        "appends AS MATERIALIZED (
             SELECT a.*, coalesce(a.known, (SELECT i.first + i.count FROM @stream_items i WHERE i.fiber = a.fiber AND i.name = a.name
                                   ORDER BY i.first DESC LIMIT 1), 0) AS first
             FROM unnest({parameters}) a (fiber, name, known, count, data, keep, stored_ms) JOIN done USING (fiber)),
         appended AS (
             INSERT INTO @stream_items (fiber, name, first, count, data, stored_ms)
             SELECT fiber, name, first, count, data, stored_ms FROM appends
             -- A row can be there already only if a person has written it.
             ON CONFLICT (fiber, name, first) WHERE fiber IS NOT NULL
             DO UPDATE SET count = excluded.count, data = excluded.data, stored_ms = excluded.stored_ms),
         trimmed AS (
             DELETE FROM @stream_items i USING appends a
             WHERE i.fiber = a.fiber AND i.name = a.name AND a.first % {TRIMMED} = 0 AND i.first + i.count <= a.first + a.count - a.keep)"
    )
}

/// Arguments of [`parts`].
pub(crate) fn arguments<'a>(appends: &[(Seq, i64, &'a StreamAppend)]) -> [Arg<'a>; 7] {
    [
        Arg::from(appends.iter().map(|append| append.0).collect::<Vec<_>>()),
        Arg::from(appends.iter().map(|append| &*append.2.name).collect::<Vec<_>>()),
        Arg::from(appends.iter().map(|append| append.2.first.map(number)).collect::<Vec<_>>()),
        Arg::from(appends.iter().map(|append| number(append.2.count)).collect::<Vec<_>>()),
        Arg::from(appends.iter().map(|append| append.2.data.as_str()).collect::<Vec<_>>()),
        Arg::from(appends.iter().map(|append| append.2.keep.map(number)).collect::<Vec<_>>()),
        Arg::from(appends.iter().map(|append| append.1).collect::<Vec<_>>()),
    ]
}

fn number(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Changes streams of a fiber whose row is locked.
pub(crate) async fn change(tx: &Tx, fiber: Seq, delta: &StreamsDelta, now_ms: i64) -> Done<()> {
    if !delta.removed.is_empty() {
        tx.run("DELETE FROM @stream_items WHERE fiber = $1 AND name = ANY ($2)", args![fiber, &delta.removed]).await?;
    }
    append(tx, fiber, &delta.appended, now_ms).await
}

/// Appends to streams of a fiber whose row is locked.
pub(crate) async fn append(tx: &Tx, fiber: Seq, new: &[StreamAppend], now_ms: i64) -> Done<()> {
    for append in new {
        let sql = format!("WITH done AS (SELECT $1::bigint AS fiber), {} SELECT fiber FROM done", parts(2));
        let mut args = vec![Arg::from(fiber)];
        args.extend(arguments(&[(fiber, now_ms, append)]));
        tx.rows(&sql, &args).await?;
    }
    Ok(())
}

/// Names of the streams of a fiber, in the order of their bytes.
pub(crate) async fn names(tx: &Tx, fiber: Seq) -> Done<Vec<String>> {
    let rows = tx.rows("SELECT DISTINCT name FROM @stream_items WHERE fiber = $1 ORDER BY name", args![fiber]).await?;
    rows.iter().map(|row| row.text("name")).collect()
}

/// Name behind those of all streams of logs. Names are compared by their bytes.
const BEHIND_LOGS: &str = "log0";

/// Reads the logs of a snapshot.
pub(crate) async fn read_logs(tx: &Tx, fiber: Seq, into: &mut SnapshotRows) -> Done<()> {
    let sql = "SELECT name, first, count, data FROM @stream_items WHERE fiber = $1 AND name >= $2 AND name < $3 ORDER BY name, first";
    for row in tx.rows(sql, args![fiber, LOGS, BEHIND_LOGS]).await? {
        if let Some(log) = log_number(&row.text("name")?) {
            into.add_to_log(log, row.int("first")?, row.int("count")?, &row.text("data")?);
        }
    }
    Ok(())
}

/// Deletes the logs of snapshots.
pub(crate) async fn delete_logs(tx: &Tx, fibers: &[Seq]) -> Done<()> {
    let sql = "DELETE FROM @stream_items WHERE fiber = ANY ($1) AND name >= $2 AND name < $3";
    tx.run(sql, args![fibers, LOGS, BEHIND_LOGS]).await.map(drop)
}

/// Deletes a stream of a fiber.
pub(crate) async fn delete_one(tx: &Tx, fiber: Seq, name: &str) -> Done<()> {
    tx.run("DELETE FROM @stream_items WHERE fiber = $1 AND name = $2", args![fiber, name]).await.map(drop)
}

/// Deletes all streams of fibers.
pub(crate) async fn delete(tx: &Tx, fibers: &[Seq]) -> Done<()> {
    tx.run("DELETE FROM @stream_items WHERE fiber = ANY ($1)", args![fibers]).await.map(drop)
}

pub(crate) async fn read(tx: &Tx, fiber: Seq, name: &str, from: u64, limit: u32) -> Done<Vec<StreamBatch>> {
    // The row that contains item `from` may begin with an earlier one.
    let rows = tx
        .rows(
            "SELECT first, count, data, stored_ms FROM @stream_items
             WHERE fiber = $1 AND name = $2
                   AND first >= coalesce((SELECT max(first) FROM @stream_items WHERE fiber = $1 AND name = $2 AND first <= $3), 0)
             ORDER BY first LIMIT $4",
            args![fiber, name, from, limit],
        )
        .await?;
    rows.iter()
        .map(|row| {
            Ok(StreamBatch {
                first: row.number("first")?,
                count: row.number("count")?,
                data: row.text("data")?,
                stored_ms: row.int("stored_ms")?,
            })
        })
        .collect()
}
