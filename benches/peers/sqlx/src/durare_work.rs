//! durare, as in its README: `#[durare::workflow]`, `#[durare::step]`, an engine over SQLite or
//! Postgres, `recover()` at the start.
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use durare::{DurableContext, DurableEngine, PostgresProvider, SqliteProvider, StateProvider, WorkflowOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous};

use crate::usage::tell;
use crate::work::{BEFORE, DATABASE, Done, Job, Store, Task, add, begin, body};

#[durare::step]
async fn work(ctx: &DurableContext, workflow: u64, step: u64, sum: u64) -> durare::Result<String> {
    Ok(body(workflow, step, sum).await)
}

#[durare::workflow]
async fn chain(ctx: DurableContext, input: (u64, u64)) -> durare::Result<u64> {
    let (workflow, steps) = input;
    let mut sum = 0;
    for step in 0..steps {
        sum = add(sum, &work(&ctx, workflow, step, sum).await?);
    }
    Ok(sum)
}

pub(crate) async fn run(job: Job, place: &str) -> anyhow::Result<()> {
    let (provider, pool): (Arc<dyn StateProvider>, _) = match job.store {
        Store::Sqlite { power } => {
            let pool = pool(&Path::new(place).join(DATABASE), power).await?;
            (Arc::new(SqliteProvider::from_pool(pool.clone())), Some(pool))
        }
        Store::Postgres => (Arc::new(PostgresProvider::connect(place).await?), None),
    };
    let mut builder = DurableEngine::builder(provider);
    // The default is the hash of the program's file, which takes time at each start.
    builder.app_version("1");
    let engine = builder.build().await?;
    engine.recover().await?;
    match job.task {
        Task::Finish { before, workflows, steps } => {
            let start = |workflow: u64, steps: u64| {
                engine.start_with(Chain, (workflow, steps), WorkflowOptions::with_id(format!("chain-{workflow}")))
            };
            start(BEFORE, before).await?.await?;
            let begun = begin();
            let mut handles = Vec::new();
            for workflow in 0..workflows {
                handles.push(start(workflow, steps).await?);
            }
            let mut sums = Vec::new();
            for handle in handles {
                sums.push(handle.await?);
            }
            let spent = begun.spent();
            let settings = match &pool {
                Some(pool) => settings(pool).await?,
                None => "PostgresProvider::connect with its pool of 8".to_owned(),
            };
            engine.shutdown(Duration::from_secs(1)).await?;
            if let Some(pool) = pool {
                pool.close().await;
            }
            tell(&Done::new(spent, sums, settings));
            Ok(())
        }
        Task::Endless { new, .. } => {
            if new {
                engine.start_with(Chain, (0, u64::MAX), WorkflowOptions::with_id("chain-0")).await?;
            }
            std::future::pending().await
        }
    }
}

/// As `SqliteProvider::connect` sets it up, except for `synchronous`.
async fn pool(path: &Path, power: bool) -> anyhow::Result<SqlitePool> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .foreign_keys(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(if power { SqliteSynchronous::Full } else { SqliteSynchronous::Normal })
        .busy_timeout(Duration::from_secs(5));
    Ok(SqlitePoolOptions::new().max_connections(5).connect_with(options).await?)
}

async fn settings(pool: &SqlitePool) -> anyhow::Result<String> {
    let version: String = sqlx::query_scalar("SELECT sqlite_version()").fetch_one(pool).await?;
    let journal: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(pool).await?;
    let synchronous: i64 = sqlx::query_scalar("PRAGMA synchronous").fetch_one(pool).await?;
    Ok(format!("SQLite {version}, journal_mode={journal}, synchronous={synchronous}"))
}
