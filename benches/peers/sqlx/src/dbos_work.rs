//! DBOS, as in its documentation: a registered workflow of `dbos::step`s. `launch` resumes what an
//! earlier process left.
use dbos::{Config, DBOS, StartOptions};

use crate::usage::tell;
use crate::work::{BEFORE, Done, Task, add, begin, body};

async fn chain(input: (u64, u64)) -> dbos::Result<u64> {
    let (workflow, steps) = input;
    let mut sum = 0;
    for step in 0..steps {
        let result: String = dbos::step("work", || async move { Ok(body(workflow, step, sum).await) }).await?;
        sum = add(sum, &result);
    }
    Ok(sum)
}

pub(crate) async fn run(task: Task, url: &str) -> anyhow::Result<()> {
    // It has no default, and resumes only workflows of the same version.
    let config = Config { app_version: Some("1".to_owned()), ..Config::new("peers", url) };
    let settings = format!("Config::new, pool of {}", config.max_connections);
    let dbos = DBOS::new(config);
    let chain = dbos.register_workflow("chain", chain)?;
    dbos.launch().await?;
    let start = async |workflow: u64, steps: u64| {
        let id = format!("chain-{workflow}");
        chain.start_with((workflow, steps), StartOptions { workflow_id: Some(&id), ..StartOptions::default() }).await
    };
    match task {
        Task::Finish { before, workflows, steps } => {
            start(BEFORE, before).await?.result().await?;
            let begun = begin();
            let mut handles = Vec::new();
            for workflow in 0..workflows {
                handles.push(start(workflow, steps).await?);
            }
            let mut sums = Vec::new();
            for handle in handles {
                sums.push(handle.result().await?);
            }
            let spent = begun.spent();
            dbos.shutdown().await;
            tell(&Done::new(spent, sums, settings));
            Ok(())
        }
        Task::Endless { new, .. } => {
            if new {
                start(0, u64::MAX).await?;
            }
            std::future::pending().await
        }
    }
}
