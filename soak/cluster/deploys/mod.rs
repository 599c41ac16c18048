//! Rolling deploys: old and new workers of a fleet overlap, and nothing that is finished is carried
//! out again.
//!
//! ```text
//! cargo run -p forever-soak --bin cluster -- --deploys 10 --series 6
//! cargo run -p forever-soak --bin cluster -- --deploys 10 --kills --skew-ms 600000 --busy
//! cargo run -p forever-soak --bin cluster -- --deploys 10 --pauses
//! ```
//!
//! Each series has 200 jobs, which advance a step or two, wait, and are woken at once. With each
//! deploy all of them begin a round: a new worker starts, and an old one closes while it runs. Some
//! members are idle: they start nothing and send nothing. The bank is outside: the log, to which the
//! bodies write. When all jobs have ended, an audit reads the log and the ledgers, and prints a line:
//!
//! - `repeated_steps`: bodies of steps that began after the result of the step was stored, as later
//!   code of the job shows. `repeated_effects`: charges of an effect beyond its first.
//!   `lost_stashes`: bodies that were given an older stash than one that was stored.
//! - `ledger_started`: operations of jobs that their ledgers do not call completed at the end.
//!   `set_back`: operations that were in doubt again after their results were stored.
//! - `lost_jobs`: jobs without a result, or with a wrong one. `stuck_jobs`: jobs that do not end.
//! - `late_steps`, `late_effects`, with `--pauses` alone: what a worker began that stood still while
//!   others took over, and may not know it yet.
//! - how often the interleavings were met: `claims`, those by another worker than the last one
//!   (`woken_elsewhere`), those after a takeover or a close (`taken_over`), and those that the store
//!   has refused, because another worker was faster (`claims_refused`).
mod audit;
mod interleavings;
mod jobs;
mod member;
mod refused;
mod series;

use std::time::Duration;

use anyhow::Context;
use forever_testkit::postgres::Cluster;

pub(crate) use member::{Member, Role, run as run_member};

/// What to do.
#[allow(clippy::struct_excessive_bools, reason = "each is an option of the command line")]
pub(crate) struct Plan {
    /// Deploys of a series.
    pub(crate) deploys: u32,
    pub(crate) series: u32,
    /// Workers that send messages.
    pub(crate) workers: u32,
    /// Workers that are idle.
    pub(crate) idle: u32,
    /// Whether some workers are killed, and not closed.
    pub(crate) kills: bool,
    /// Whether workers stand still now and then, for longer than their lease.
    pub(crate) pauses: bool,
    /// How far the clocks of workers differ at most from the machine's, in milliseconds.
    pub(crate) skew_ms: i64,
    /// Whether other work takes both cores.
    pub(crate) busy: bool,
    pub(crate) seed: u64,
    pub(crate) lease: Duration,
    pub(crate) url: Option<String>,
    pub(crate) keep: bool,
}

/// Runs the series, and prints a line for each; returns whether all are good.
pub(crate) fn run(plan: &Plan) -> anyhow::Result<bool> {
    let server = match &plan.url {
        Some(_) => None,
        None => Some(Cluster::start().context("no Postgres is installed (`initdb` and `pg_ctl`): give the URL of one with `--url`")?),
    };
    let url = plan.url.clone().or_else(|| server.as_ref().map(Cluster::url)).context("there is a server")?;
    if plan.busy {
        spin();
    }
    let mut bad = 0;
    for number in 1..=plan.series {
        bad += u32::from(!series::run(plan, number, &url)?);
    }
    println!("series={} good={} audit={}", plan.series, plan.series - bad, if bad == 0 { "ok" } else { "failed" });
    Ok(bad == 0)
}

/// Takes as much time of each processor as the system gives.
fn spin() {
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    for _ in 0..threads {
        std::thread::spawn(|| {
            loop {
                std::hint::spin_loop();
            }
        });
    }
}
