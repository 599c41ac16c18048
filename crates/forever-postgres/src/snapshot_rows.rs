//! Rows beside the main text of a snapshot: those of its parts, and the items of its logs.
use std::collections::BTreeMap;

use forever_store::{Seq, SnapshotDelta, SnapshotRows};

use crate::sql::{Done, Tx, args};
use crate::streams;

pub(crate) async fn load(tx: &Tx, seq: Seq) -> Done<SnapshotRows> {
    let mut parts = BTreeMap::new();
    for row in tx.rows("SELECT name, data FROM @parts WHERE fiber = $1", args![seq]).await? {
        parts.insert(row.text("name")?, row.text("data")?.into());
    }
    let mut loaded = SnapshotRows { parts, ..SnapshotRows::default() };
    streams::read_logs(tx, seq, &mut loaded).await?;
    Ok(loaded)
}

pub(crate) async fn change(tx: &Tx, seq: Seq, delta: &SnapshotDelta) -> Done<()> {
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
    Ok(())
}

/// Deletes all rows beside the snapshots of fibers.
pub(crate) async fn delete(tx: &Tx, fibers: &[Seq]) -> Done<()> {
    tx.run("DELETE FROM @parts WHERE fiber = ANY ($1)", args![fibers]).await?;
    streams::delete_logs(tx, fibers).await
}
