//! duroxide, as in its guide: an orchestration that schedules an activity for each step, over its
//! SQLite provider.
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use duroxide::providers::sqlite::SqliteProvider;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::runtime::{Runtime, RuntimeOptions};
use duroxide::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry};

use crate::usage::tell;
use crate::work::{BEFORE, DATABASE, Done, Duroxide, Task, add, begin, body};

/// Steps after which an execution continues as a new one, as the guide recommends ("Minimize
/// History Size").
const BATCH: u64 = 100;

/// Input of an execution: workflow, number of steps, finished steps, and the sum of their results.
type Input = (u64, u64, u64, u64);

async fn chain(ctx: OrchestrationContext, input: Input, batch: u64) -> Result<u64, String> {
    let (workflow, steps, done, mut sum) = input;
    let end = steps.min(done.saturating_add(batch));
    for step in done..end {
        sum = add(sum, &ctx.schedule_activity_typed::<_, String>("work", &(workflow, step, sum)).await?);
    }
    if end < steps {
        return ctx.continue_as_new_typed(&(workflow, steps, end, sum)).await.map(|_| sum);
    }
    Ok(sum)
}

pub(crate) async fn run(how: Duroxide, task: Task, dir: &Path) -> anyhow::Result<()> {
    let path = dir.join(DATABASE);
    let store = Arc::new(SqliteProvider::new(&format!("sqlite:{}?mode=rwc", path.display()), None).await?);
    let work = |_: ActivityContext, (workflow, step, sum): (u64, u64, u64)| async move { Ok(body(workflow, step, sum).await) };
    let activities = ActivityRegistry::builder().register_typed("work", work).build();
    let batch = if how == Duroxide::Whole { u64::MAX } else { BATCH };
    let orchestrations = OrchestrationRegistry::builder().register_typed("chain", move |ctx, input| chain(ctx, input, batch)).build();
    let options = options(how);
    let settings = format!(
        "poll {:?}, {} orchestration and {} activity dispatchers, locks {:?} and {:?}, {}",
        options.dispatcher_min_poll_interval,
        options.orchestration_concurrency,
        options.worker_concurrency,
        options.orchestrator_lock_timeout,
        options.worker_lock_timeout,
        if how == Duroxide::Whole { "one history".to_owned() } else { format!("continue_as_new after {BATCH} steps") },
    );
    let runtime = Runtime::start_with_options(store.clone(), activities, orchestrations, options).await;
    let client = Client::new(store);
    match task {
        Task::Finish { before, workflows, steps } => {
            start(&client, BEFORE, before).await?;
            end(&client, BEFORE).await?;
            let begun = begin();
            for workflow in 0..workflows {
                start(&client, workflow, steps).await?;
            }
            let mut sums = Vec::new();
            for workflow in 0..workflows {
                sums.push(end(&client, workflow).await?);
            }
            let spent = begun.spent();
            runtime.shutdown(Some(1000)).await;
            tell(&Done::new(spent, sums, settings));
            Ok(())
        }
        Task::Endless { new, .. } => {
            if new {
                start(&client, 0, u64::MAX).await?;
            }
            std::future::pending().await
        }
    }
}

async fn start(client: &Client, workflow: u64, steps: u64) -> anyhow::Result<()> {
    let input: Input = (workflow, steps, 0, 0);
    Ok(client.start_orchestration_typed(&format!("chain-{workflow}"), "chain", input).await?)
}

async fn end(client: &Client, workflow: u64) -> anyhow::Result<u64> {
    let result = client.wait_for_orchestration_typed(&format!("chain-{workflow}"), Duration::from_mins(5)).await?;
    result.map_err(|error| anyhow!(error))
}

fn options(how: Duroxide) -> RuntimeOptions {
    if how == Duroxide::Defaults {
        return RuntimeOptions::default();
    }
    RuntimeOptions {
        dispatcher_min_poll_interval: Duration::from_millis(1),
        // With two of each, the default, the workers lock each other out of the file so often that
        // workflows fail.
        orchestration_concurrency: 1,
        worker_concurrency: 1,
        // Time after which the locks of a killed process expire. The runtime renews the locks of
        // steps that take longer.
        orchestrator_lock_timeout: Duration::from_secs(1),
        worker_lock_timeout: Duration::from_secs(1),
        ..RuntimeOptions::default()
    }
}
