//! Time from the death of a worker to the first new step of its fibers elsewhere.
use std::time::Duration;

use forever_postgres::{Builder, PostgresStore};
use forever_testkit::postgres::schema;
use forever_testkit::process::{Process, end_with_parent, this_program};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::Bench;
use crate::numbers::{ms, percentiles};
use crate::work::{Meter, open, slow};

/// Fibers of a worker that dies.
const FIBERS: u64 = 10;

/// What a worker is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Plan {
    url: String,
    schema: String,
    lease_ms: u64,
    shows_life: bool,
    /// Number of its first fiber.
    first: u64,
}

impl Plan {
    fn builder(&self) -> Builder {
        let lease = Duration::from_millis(self.lease_ms);
        PostgresStore::builder(&self.url).schema(&self.schema).lease(lease).sign_of_life(self.shows_life)
    }
}

/// A worker process: makes fibers, and says when all of them are under way.
pub(crate) async fn worker(plan: &Plan) -> anyhow::Result<()> {
    end_with_parent();
    let meter = Meter::default();
    let forever = open(plan.builder(), &meter).await?;
    for number in plan.first..plan.first + FIBERS {
        forever.spawn(slow(number)).await?;
    }
    while meter.firsts(plan.first..plan.first + FIBERS).is_none() || meter.steps() < 3 * FIBERS {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Until it holds its lock.
    let begun = Instant::now();
    while plan.shows_life && !forever.workers().await?.iter().any(|worker| worker.is_this && worker.shows_life) {
        anyhow::ensure!(begun.elapsed() < Duration::from_secs(30), "the worker does not show life");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    println!("under way");
    std::future::pending().await
}

pub(crate) async fn measure(bench: &Bench) -> anyhow::Result<()> {
    let few = if bench.quick { 1 } else { 5 };
    let kills = if bench.quick { 5 } else { 50 };
    after(bench, "sigkill", kills, true, Process::kill).await?;
    // The session lock stays, because the server still sees the connection.
    after(bench, "sigstop_with_a_lease_of_2_s", few, true, |worker| worker.stop()).await?;
    after(bench, "sigkill_by_a_lease_of_2_s_alone", few, false, Process::kill).await
}

async fn after(
    bench: &Bench,
    name: &str,
    deaths: u64,
    shows_life: bool,
    mut end: impl FnMut(&mut Process) -> std::io::Result<()>,
) -> anyhow::Result<()> {
    let mut plan = Plan { url: bench.url.clone(), schema: schema(), lease_ms: 2_000, shows_life, first: 1 };
    let meter = Meter::default();
    let survivor = open(plan.builder(), &meter).await?;
    let mut took = Vec::new();
    for _ in 0..deaths {
        let mut worker = Process::start(this_program()?.args(["--worker", &serde_json::to_string(&plan)?]))?;
        let said = tokio::task::spawn_blocking(move || worker.line().map(|line| (worker, line)));
        let (mut worker, line) = said.await??;
        anyhow::ensure!(line.as_deref() == Some("under way"), "a worker did not come so far");
        let numbers = plan.first..plan.first + FIBERS;
        anyhow::ensure!(numbers.clone().all(|n| meter.firsts(n..n + 1).is_none()), "they run in the worker that made them");
        let begun = Instant::now();
        end(&mut worker)?;
        let firsts = loop {
            if let Some(firsts) = meter.firsts(numbers.clone()) {
                break firsts;
            }
            anyhow::ensure!(begun.elapsed() < Duration::from_secs(60), "fibers of a worker that is gone were not taken over");
            tokio::time::sleep(Duration::from_millis(2)).await;
        };
        took.extend(firsts.into_iter().map(|first| ms(first.saturating_duration_since(begun))));
        meter.end_up_to(numbers.end - 1);
        plan.first = numbers.end;
    }
    let [p50, p99, max] = percentiles(took);
    println!(
        "takeover_deaths_{name}={deaths} takeover_p50_ms_{name}={p50:.0} takeover_p99_ms_{name}={p99:.0} takeover_max_ms_{name}={max:.0}"
    );
    survivor.close().await?;
    Ok(())
}
