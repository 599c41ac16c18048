//! An agent with a cron schedule, an interval and a delay, which outlive the process.
//!
//! ```text
//! cargo run -p examples-http --example cron
//! ```
//!
//! Stop it with Ctrl-C and start it again: what was due meanwhile runs once.
#![forbid(unsafe_code)]

use std::time::Duration;

use forever::BoxError;
use forever::agent::{Agent, AgentHandle, Due};
use forever::prelude::*;

struct Gardener {
    me: AgentHandle<Gardener>,
}

impl Agent for Gardener {
    const CLASS: &'static str = "gardener";
    /// Number of times that the garden was watered.
    type State = u32;

    async fn on_start(&self) -> Result<(), BoxError> {
        // Idempotent: created at the first start, and found at every other. Six fields begin with
        // seconds.
        self.me.schedule("*/5 * * * * *", "water", ()).await?;
        self.me.schedule_every(Duration::from_secs(7), "weed", ()).await?;
        Ok(())
    }

    async fn on_schedule(&self, due: &Due) -> Result<(), BoxError> {
        if due.name() == "water" {
            let watered = self.me.state().await? + 1;
            self.me.set_state(&watered).await?;
            println!("watered {watered} times");
        } else {
            println!("{}: attempt {}", due.name(), due.attempt());
        }
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let forever = Forever::builder().sqlite("garden.db").agent(|me| Gardener { me }).open().await?;
    let roses = forever.agent::<Gardener>("roses");
    roses.wake().await?;
    roses.schedule(Duration::from_secs(3), "prune", ()).await?;
    tokio::signal::ctrl_c().await?;
    Ok(forever.close().await?)
}
