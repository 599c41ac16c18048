//! Runs the work of `benches/peers` with durare or duroxide; `forever-peers` starts it.
#[path = "../../../support/state.rs"]
mod state;
#[path = "../../../support/usage.rs"]
mod usage;
#[path = "../../src/work.rs"]
mod work;

mod durare_work;
mod duroxide_work;

use anyhow::{Context, bail};
use work::Engine;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let (job, dir) = work::job(&args)?.context("this program is started by forever-peers")?;
    match job.engine {
        Engine::Durare => durare_work::run(job, dir).await,
        Engine::Duroxide(how) => duroxide_work::run(how, job, dir).await,
        other => bail!("{other:?} is not done here"),
    }
}
