//! The table of layouts: each is stored once, and never deleted.
use forever_store::LayoutRow;

use crate::sql::{Done, Row, Tx, args};

/// The columns that [`of`] reads, from `@layouts l`.
pub(crate) const COLUMNS: &str = "l.hash AS layout_hash, l.fiber AS layout_fiber, l.layout AS layout_text";

/// The layout in a row with [`COLUMNS`]; `None` where the join found none.
pub(crate) fn of(row: &Row) -> Done<Option<LayoutRow>> {
    let Some(hash) = row.text_opt("layout_hash")? else { return Ok(None) };
    Ok(Some(LayoutRow { hash, fiber: row.text("layout_fiber")?, layout: row.text("layout_text")? }))
}

/// Stores the layouts that are not stored yet.
pub(crate) async fn save(tx: &Tx, layouts: impl IntoIterator<Item = &LayoutRow>) -> Done<()> {
    let mut layouts: Vec<&LayoutRow> = layouts.into_iter().collect();
    if layouts.is_empty() {
        return Ok(());
    }
    // One order for all transactions, so that two that store the same layouts cannot deadlock.
    layouts.sort_by(|a, b| a.hash.cmp(&b.hash));
    let of = |text: fn(&LayoutRow) -> &String| layouts.iter().map(|layout| text(layout).as_str()).collect::<Vec<_>>();
    tx.run(
        "INSERT INTO @layouts (hash, fiber, layout) SELECT DISTINCT ON (u.hash) * FROM unnest($1::text[], $2::text[], $3::text[]) u (hash, fiber, layout)
         WHERE NOT EXISTS (SELECT 1 FROM @layouts l WHERE l.hash = u.hash) ORDER BY u.hash ON CONFLICT DO NOTHING",
        args![of(|l| &l.hash), of(|l| &l.fiber), of(|l| &l.layout)],
    )
    .await?;
    Ok(())
}

/// The layouts with these hashes, which are separated by a space; in their order.
pub(crate) async fn with_hashes(tx: &Tx, hashes: &str) -> Done<Vec<LayoutRow>> {
    let hashes: Vec<&str> = hashes.split_whitespace().collect();
    if hashes.is_empty() {
        return Ok(Vec::new());
    }
    let sql =
        format!("SELECT {COLUMNS} FROM unnest($1::text[]) WITH ORDINALITY u (hash, n) JOIN @layouts l ON l.hash = u.hash ORDER BY u.n");
    tx.rows(&sql, args![hashes]).await?.iter().filter_map(|row| of(row).transpose()).collect()
}
