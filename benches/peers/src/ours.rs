//! Forever, as in its README.
use std::path::Path;

use forever::Durability;
use forever::fiber::History;
use forever::prelude::*;

use crate::usage::{Usage, tell};
use crate::work::{BEFORE, DATABASE, Done, Job, Task, add, body};

#[fiber]
async fn chain(workflow: u64, steps: u64) -> anyhow::Result<u64> {
    let mut sum = 0;
    for step in 0..steps {
        let result = step!("work", body(workflow, step, sum).await);
        sum = add(sum, &result);
    }
    Ok(sum)
}

pub(crate) async fn run(job: Job, dir: &Path) -> anyhow::Result<()> {
    let durability = if job.power { Durability::Power } else { Durability::Process };
    let forever =
        Forever::builder().sqlite(dir.join(DATABASE)).durability(durability).history(History::off()).fiber::<chain>().open().await?;
    match job.task {
        Task::Finish { before, workflows, steps } => {
            forever.run(chain(BEFORE, before)).await?;
            let begun = Usage::now();
            let mut handles = Vec::new();
            for workflow in 0..workflows {
                handles.push(forever.spawn(chain(workflow, steps)).await?);
            }
            let mut sums = Vec::new();
            for handle in handles {
                sums.push(handle.wait().await?);
            }
            let spent = begun.spent();
            forever.close().await?;
            // Forever refuses to open a database whose `synchronous` does not read back as it was
            // set.
            tell(&Done::new(spent, sums, format!("SQLite {}, Durability::{durability:?}", rusqlite::version())));
            Ok(())
        }
        Task::Endless { .. } => {
            forever.spawn(chain(0, u64::MAX)).key("chain").await?.wait().await?;
            Ok(())
        }
    }
}
