//! Benchmark of whole runtimes over one Postgres: throughput, cost of a step, takeovers, and scale.
//!
//! ```text
//! cargo bench -p forever-postgres --bench postgres              # some ten minutes
//! cargo bench -p forever-postgres --bench postgres -- --quick   # less than two, rough
//! cargo bench -p forever-postgres --bench postgres -- --only steps
//! ```
//!
//! The parts are `steps`, `spawns`, `takeover`, `pinned`, `sleeping` and `finished`. Each prints
//! `key=value` lines, after the floors of the same server in the same run: one client that updates
//! one row a transaction, and one that updates 100 or 1 000 rows of arrays in one statement. The
//! server and the workers share the processors. docs/guide/src/internals/performance.md has
//! figures.
//!
//! The server is one of its own in a temporary folder, with `pg_stat_statements` where it is
//! installed. `FOREVER_TEST_POSTGRES` names another one.
#![forbid(unsafe_code)]

mod floors;
#[path = "../../../../benches/support/numbers.rs"]
#[allow(dead_code, reason = "other benchmarks use more of it")]
mod numbers;
mod scale;
mod spent;
mod takeover;
mod throughput;
mod work;

use std::time::Duration;

use forever_testkit::args::Args;
use forever_testkit::postgres::Cluster;

use numbers::print_load;
use spent::Observer;

const USAGE: &str = "\
usage: cargo bench -p forever-postgres --bench postgres -- [--quick] [--only NAME] [--pinned-minutes N] [--statements]
  --quick             short and rough
  --only NAME         one part: steps, spawns, takeover, pinned, sleeping or finished
  --pinned-minutes N  how long an idle transaction is held in the part `pinned` (3)
  --statements        list the statements that took the most time, after each figure of steps";

/// What all parts share.
struct Bench {
    url: String,
    observer: Observer,
    quick: bool,
    lists_statements: bool,
    pinned: Duration,
}

impl Bench {
    /// How long throughput is measured.
    fn window(&self) -> Duration {
        Duration::from_secs(if self.quick { 1 } else { 5 })
    }

    /// `all`, or a hundredth of it with `--quick`.
    fn some(&self, all: u64) -> u64 {
        if self.quick { all / 100 } else { all }
    }
}

fn main() -> anyhow::Result<()> {
    let mut args = Args::of_program(USAGE);
    // Cargo says so.
    args.flag("--bench");
    let (quick, lists_statements) = (args.flag("--quick"), args.flag("--statements"));
    let only: Option<String> = args.value("--only", "the name of a part", |_| true);
    let minutes = args.value("--pinned-minutes", "minutes", |minutes| (0.1..1000.0).contains(minutes)).unwrap_or(3.0);
    let worker = args.value("--worker", "what a worker is to do", |_: &String| true);
    args.finish();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    if let Some(plan) = worker {
        return runtime.block_on(takeover::worker(&serde_json::from_str(&plan)?));
    }
    let own = if std::env::var_os("FOREVER_TEST_POSTGRES").is_some() { None } else { Cluster::start() };
    let Some(url) = own.as_ref().map(Cluster::url).or_else(|| std::env::var("FOREVER_TEST_POSTGRES").ok()) else {
        return Ok(());
    };
    if let Some(own) = &own {
        runtime.block_on(spent::count_statements(&url))?;
        own.crash();
        own.start_again();
    }
    print_load("before");
    let wants = |name: &str| only.as_deref().is_none_or(|only| only == name);
    runtime.block_on(async {
        let pinned = if quick { Duration::from_secs(6) } else { Duration::from_secs_f64(60.0 * minutes) };
        let bench = Bench { observer: Observer::connect(&url).await?, url, quick, lists_statements, pinned };
        let rows_floor = floors::measure(&bench).await?;
        if wants("steps") {
            throughput::steps(&bench, rows_floor).await?;
        }
        if wants("spawns") {
            throughput::spawns(&bench).await?;
        }
        if wants("takeover") {
            takeover::measure(&bench).await?;
        }
        if wants("pinned") {
            throughput::pinned(&bench).await?;
        }
        if wants("sleeping") {
            scale::sleeping(&bench).await?;
        }
        if wants("finished") {
            scale::finished(&bench).await?;
        }
        anyhow::Ok(())
    })?;
    print_load("after");
    Ok(())
}
