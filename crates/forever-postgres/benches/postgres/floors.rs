//! What the server alone does: updates by one client.
use std::time::Duration;

use tokio::time::Instant;

use crate::Bench;
use crate::work::payload;

/// Rows of the table that is updated.
const ROWS: i64 = 1000;

/// Measures the floors; returns the rows a second of one client that updates 1 000 rows a
/// statement.
pub(crate) async fn measure(bench: &Bench) -> anyhow::Result<f64> {
    let client = &bench.observer.client;
    client
        .batch_execute(
            "DROP TABLE IF EXISTS forever_floor;
             CREATE TABLE forever_floor (fiber BIGINT PRIMARY KEY, epoch BIGINT NOT NULL, data TEXT) WITH (fillfactor = 50);
             INSERT INTO forever_floor SELECT n, 1, '' FROM generate_series(1, 1000) n",
        )
        .await?;
    let commits = one_row(bench).await?;
    println!("floor_one_row_commits_per_s={commits:.0}");
    let time = bench.window().min(Duration::from_secs(3));
    let many = client
        .prepare(
            "UPDATE forever_floor f SET data = u.data FROM unnest($1::bigint[], $2::bigint[], $3::text[]) u (fiber, epoch, data)
             WHERE f.fiber = u.fiber AND f.epoch = u.epoch RETURNING f.fiber",
        )
        .await?;
    let mut rows = 0.0;
    for at_once in [100, 1000] {
        let (begun, mut written) = (Instant::now(), 0_u32);
        let mut first = 0;
        while begun.elapsed() < time {
            let fibers: Vec<i64> = (0..at_once).map(|n| (first + n) % ROWS + 1).collect();
            let epochs = vec![1_i64; fibers.len()];
            let data: Vec<String> = fibers.iter().map(|n| payload(u64::from(written) + n.unsigned_abs())).collect();
            written += u32::try_from(client.query(&many, &[&fibers, &epochs, &data]).await?.len())?;
            first += at_once;
        }
        rows = f64::from(written) / begun.elapsed().as_secs_f64();
        println!("floor_rows_per_s_of_{at_once}_at_once={rows:.0}");
    }
    Ok(rows)
}

/// Transactions a second of one client that updates one row in each.
pub(crate) async fn one_row(bench: &Bench) -> anyhow::Result<f64> {
    let client = &bench.observer.client;
    let one = client.prepare("UPDATE forever_floor SET data = $1 WHERE fiber = 1").await?;
    let (begun, mut commits) = (Instant::now(), 0_u32);
    while begun.elapsed() < bench.window() / 3 {
        client.execute(&one, &[&payload(u64::from(commits))]).await?;
        commits += 1;
    }
    Ok(f64::from(commits) / begun.elapsed().as_secs_f64())
}
