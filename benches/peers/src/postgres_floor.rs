//! The floor on Postgres: one client, and one row for each workflow, which is updated and committed
//! after each step.
use tokio_postgres::{Client, NoTls};

use crate::usage::tell;
use crate::work::{BEFORE, Done, Task, add, begin, body};

const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS snapshots (workflow BIGINT PRIMARY KEY, step BIGINT, sum BIGINT, result TEXT)";

pub(crate) async fn run(task: Task, url: &str) -> anyhow::Result<()> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute(SCHEMA).await?;
    match task {
        Task::Finish { before, workflows, steps } => {
            chain(&client, BEFORE, before).await?;
            let begun = begin();
            let mut sums = Vec::new();
            for workflow in 0..workflows {
                sums.push(chain(&client, workflow, steps).await?);
            }
            tell(&Done::new(begun.spent(), sums, "one client of tokio-postgres, a prepared UPDATE for each step".to_owned()));
            Ok(())
        }
        Task::Endless { .. } => chain(&client, 0, u64::MAX).await.map(drop),
    }
}

async fn chain(client: &Client, workflow: u64, steps: u64) -> anyhow::Result<u64> {
    let workflow_id = i64::try_from(workflow)?;
    let stored = client.query_opt("SELECT step, sum FROM snapshots WHERE workflow = $1", &[&workflow_id]).await?;
    let (done, mut sum) =
        stored.as_ref().map_or((0, 0), |row| (row.get::<_, i64>(0).cast_unsigned(), row.get::<_, i64>(1).cast_unsigned()));
    if stored.is_none() {
        client.execute("INSERT INTO snapshots VALUES ($1, 0, 0, '')", &[&workflow_id]).await?;
    }
    let update = client.prepare("UPDATE snapshots SET step = $2, sum = $3, result = $4 WHERE workflow = $1").await?;
    for step in done..steps {
        let result = body(workflow, step, sum).await;
        sum = add(sum, &result);
        client.execute(&update, &[&workflow_id, &(step + 1).cast_signed(), &sum.cast_signed(), &result]).await?;
    }
    Ok(sum)
}
