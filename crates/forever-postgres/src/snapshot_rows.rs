//! Rows beside the main text of a snapshot: those of its parts, and those of the items of its logs.
use std::collections::BTreeMap;
use std::sync::Arc;

use forever_store::{Seq, SnapshotDelta, SnapshotRows};

use crate::sql::{Done, Tx, args};

pub(crate) async fn load(tx: &Tx, seq: Seq) -> Done<SnapshotRows> {
    let mut parts = BTreeMap::new();
    for row in tx.rows("SELECT name, data FROM @parts WHERE fiber = $1", args![seq]).await? {
        parts.insert(row.text("name")?, row.text("data")?.into());
    }
    let mut logs: BTreeMap<u64, Vec<Arc<str>>> = BTreeMap::new();
    for row in tx.rows("SELECT log, n, data FROM @log_items WHERE fiber = $1 ORDER BY log, n", args![seq]).await? {
        // The library writes no negative number.
        let Ok(log) = u64::try_from(row.int("log")?) else { continue };
        let items = logs.entry(log).or_default();
        // Items behind a missing one do not belong to the log.
        if usize::try_from(row.int("n")?) == Ok(items.len()) {
            items.push(row.text("data")?.into());
        }
    }
    Ok(SnapshotRows { parts, logs })
}

pub(crate) async fn change(tx: &Tx, seq: Seq, delta: &SnapshotDelta) -> Done<()> {
    let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    if !delta.removed_parts.is_empty() {
        tx.run("DELETE FROM @parts WHERE fiber = $1 AND name = ANY ($2)", args![seq, &delta.removed_parts]).await?;
    }
    if !delta.parts.is_empty() {
        // One statement cannot write a row twice, so only the last text of each part is written.
        let parts: BTreeMap<&str, &str> = delta.parts.iter().map(|(name, text)| (name.as_str(), &**text)).collect();
        tx.run(
            "INSERT INTO @parts (fiber, name, data) SELECT $1, * FROM unnest($2::text[], $3::text[])
             ON CONFLICT (fiber, name) DO UPDATE SET data = excluded.data",
            args![seq, parts.keys().copied().collect::<Vec<_>>(), parts.values().copied().collect::<Vec<_>>()],
        )
        .await?;
    }
    if !delta.removed_logs.is_empty() {
        let logs: Vec<i64> = delta.removed_logs.iter().map(|log| number(*log)).collect();
        tx.run("DELETE FROM @log_items WHERE fiber = $1 AND log = ANY ($2)", args![seq, logs]).await?;
    }
    if !delta.items.is_empty() {
        let items: BTreeMap<(i64, i64), &str> =
            delta.items.iter().map(|item| ((number(item.log), number(item.n)), item.text.as_str())).collect();
        // An item can be stored already only if it was inserted by hand.
        tx.run(
            "INSERT INTO @log_items (fiber, log, n, data) SELECT $1, * FROM unnest($2::bigint[], $3::bigint[], $4::text[])
             ON CONFLICT (fiber, log, n) DO UPDATE SET data = excluded.data",
            args![
                seq,
                items.keys().map(|key| key.0).collect::<Vec<_>>(),
                items.keys().map(|key| key.1).collect::<Vec<_>>(),
                items.values().copied().collect::<Vec<_>>()
            ],
        )
        .await?;
    }
    Ok(())
}

/// Deletes all rows beside the snapshots of fibers.
pub(crate) async fn delete(tx: &Tx, fibers: &[Seq]) -> Done<()> {
    tx.run("DELETE FROM @parts WHERE fiber = ANY ($1)", args![fibers]).await?;
    tx.run("DELETE FROM @log_items WHERE fiber = ANY ($1)", args![fibers]).await.map(drop)
}
