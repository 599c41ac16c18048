//! Runs the work of `benches/peers` with DBOS, durare or duroxide; `forever-peers` starts it.
#[path = "../../../support/state.rs"]
mod state;
#[path = "../../../support/usage.rs"]
mod usage;
#[path = "../../src/work.rs"]
mod work;

mod dbos_work;
mod durare_work;
mod duroxide_work;

use anyhow::{Context, bail};
use work::{Engine, Store};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let (job, place) = work::job(&args)?.context("this program is started by forever-peers")?;
    match (job.engine, job.store) {
        (Engine::Durare, _) => durare_work::run(job, place).await,
        (Engine::Duroxide(how), Store::Sqlite { .. }) => duroxide_work::run(how, job.task, place.as_ref()).await,
        (Engine::Dbos, Store::Postgres) => dbos_work::run(job.task, place).await,
        _ => bail!("{job:?} is not done here"),
    }
}
