//! Forever, as in its README.
use std::path::Path;

use forever::Durability;
use forever::fiber::History;
use forever::prelude::*;

use crate::usage::tell;
use crate::work::{BEFORE, DATABASE, Done, Job, Store, Task, add, begin, body};

#[fiber]
async fn chain(workflow: u64, steps: u64) -> anyhow::Result<u64> {
    let mut sum = 0;
    for step in 0..steps {
        let result = step!("work", body(workflow, step, sum).await);
        sum = add(sum, &result);
    }
    Ok(sum)
}

pub(crate) async fn run(job: Job, place: &str) -> anyhow::Result<()> {
    let builder = Forever::builder().history(History::off()).fiber::<chain>();
    let (builder, settings) = match job.store {
        Store::Sqlite { power } => {
            let durability = if power { Durability::Power } else { Durability::Process };
            // Forever refuses to open a database whose `synchronous` does not read back as it was
            // set.
            let settings = format!("SQLite {}, Durability::{durability:?}", rusqlite::version());
            (builder.sqlite(Path::new(place).join(DATABASE)).durability(durability), settings)
        }
        Store::Postgres => (builder.postgres(place), "Builder::postgres with its defaults (pool of 8)".to_owned()),
    };
    let forever = builder.open().await?;
    match job.task {
        Task::Finish { before, workflows, steps } => {
            forever.run(chain(BEFORE, before)).await?;
            let begun = begin();
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
            tell(&Done::new(spent, sums, settings));
            Ok(())
        }
        Task::Endless { .. } => {
            forever.spawn(chain(0, u64::MAX)).key("chain").await?.wait().await?;
            Ok(())
        }
    }
}
