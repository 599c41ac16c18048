//! A table of the program's own in the database of the workers, with a row for each order.
use std::collections::BTreeMap;

use forever::BoxError;
use forever::fiber::FiberContext;

use crate::history::with;

/// The name of the table, quoted.
fn table(schema: &str) -> String {
    format!("\"{schema} bookings\"")
}

pub(crate) fn create(url: &str, schema: &str) -> anyhow::Result<()> {
    let sql = format!("CREATE TABLE {} (order_id TEXT NOT NULL)", table(schema));
    with(url, async |client| client.batch_execute(&sql).await)
}

/// Books the order of a fiber. Nothing in the table stops a second row.
pub(crate) async fn book(ctx: &FiberContext, schema: &str) -> Result<(), BoxError> {
    let insert = format!("INSERT INTO {} (order_id) VALUES ($1)", table(schema));
    ctx.postgres_transaction("book", async |tx| {
        tx.execute(&insert, &[&ctx.id()]).await?;
        Ok(())
    })
    .await
}

/// How many rows each order has.
pub(crate) fn counts(url: &str, schema: &str) -> anyhow::Result<BTreeMap<String, usize>> {
    let sql = format!("SELECT order_id FROM {}", table(schema));
    let rows = with(url, async |client| client.query(&sql, &[]).await)?;
    let mut counts = BTreeMap::new();
    for row in rows {
        *counts.entry(row.get(0)).or_default() += 1;
    }
    Ok(counts)
}
