//! A fiber whose process is killed again and again, and whose finished steps never run again.
//!
//! ```text
//! cargo run --example kill_and_resume
//! cargo run --example kill_and_resume -- --kills 50 --steps 120 --seed 7
//! ```
//!
//! The program starts itself as a worker, a second process that runs the fiber [`warehouse`] from a
//! database file. It kills the worker with SIGKILL at random moments: while the database is opened,
//! inside a step, right after one. Each time it starts the next worker, which resumes at the last
//! checkpoint, until the fiber is done. You see a line for each step and for each kill, then a
//! table of how often each step ran, and last
//!
//! ```text
//! kills=20 steps=60 repeated_finished_steps=0 result=ok
//! ```
//!
//! What is checked; anything else ends with an error and exit code 1:
//!
//! - `kills`: workers that were alive and died of SIGKILL. So that the fiber is not done before the
//!   last kill, a worker that gets a few steps past the moment at which it was to die waits there,
//!   inside a step.
//! - `steps`: the steps of the fiber, each with a name of its own.
//! - `repeated_finished_steps`: a step is *finished* when its checkpoint is stored. After each kill
//!   the program copies the database as the dead worker left it, and reads the number of
//!   checkpoints from the copy. A finished step must never run again: its body would write another
//!   line to `journal.txt`, a file outside of the database. A step whose body was interrupted, or
//!   ended so late that its checkpoint was not stored, runs again (at least once). The table shows
//!   these, too.
//! - `result`: equal to the result of the plain function [`work::in_one_go`], which has no steps.
//!
//! Unix only: it needs SIGKILL.
#![forbid(unsafe_code)]

#[path = "support/journal.rs"]
mod journal;
#[path = "support/killer.rs"]
mod killer;
#[path = "support/show.rs"]
mod show;
#[path = "support/tally.rs"]
mod tally;
#[path = "support/work.rs"]
mod work;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use forever::prelude::*;
use forever::{ErrorKind, Forever};

use forever_testkit::args::{Args, exit_code};
use work::{Desk, Order, Report, Way};

const USAGE: &str = "\
Runs a fiber in a process that is killed again and again.

usage: kill_and_resume [--kills N] [--steps N] [--seed N]
  --kills N   how often to kill it, 0 to 1000 (20)
  --steps N   how many steps it has, 2 to 10000 (60)
  --seed N    what the work and the moments of the kills are drawn from (1)";

/// Sends out the orders of a day.
///
/// An ordinary function, except for `step!` and `call!`. A kill costs at most the step that it
/// hits. By default a fiber whose process dies ten times without a finished step in between is
/// given up; here such deaths are no sign of a defect.
#[fiber(max_recoveries = 1000)]
async fn warehouse(desk: Res<Desk>, steps: u32, seed: u64) -> anyhow::Result<Report> {
    let orders = step!("read orders", desk.read_orders(steps, seed).await?);
    let mut report = Report::default();
    for order in &orders {
        let cost = match &order.way {
            Way::Letter => {
                let stamp = step!("stamp", desk.work(&order.name("stamp")).await?);
                report.letters += 1;
                stamp
            }
            Way::Parcel { items } => {
                let mut weight = 0;
                for item in items {
                    weight += step!("pick", desk.work(&order.name(&format!("pick {item}"))).await?);
                }
                weight.max(step!("pack", desk.work(&order.name("pack")).await?))
            }
            Way::Abroad { queue } => call!(customs(order.clone(), *queue))?,
        };
        if cost % 7 == 0 {
            report.lucky.push(order.number);
            continue;
        }
        report.add(cost);
    }
    let seal = step!("close the day", desk.work("close the day").await?);
    report.add(seal);
    Ok(report)
}

/// Takes an order through customs: a fiber function, which `warehouse` calls inline.
#[fiber]
async fn customs(desk: Res<Desk>, order: Order, queue: u32) -> anyhow::Result<u64> {
    let mut ahead = queue;
    loop {
        step!("in the queue", desk.work(&order.name(&format!("{ahead} ahead"))).await?);
        if ahead == 0 {
            break;
        }
        ahead -= 1;
    }
    let duty = step!(desk.work(&order.name("declare")).await?);
    Ok(duty + u64::from(queue))
}

/// File names of a run, in a folder of its own.
const DATABASE: &str = "fibers.db";
const JOURNAL: &str = "journal.txt";

/// Key of the fiber: the first worker spawns it, and later ones find it.
const KEY: &str = "monday";

/// A worker: continues the fiber until it is done, unless it is killed.
#[tokio::main(flavor = "current_thread")]
async fn worker(dir: &Path, steps: u32, seed: u64, hold_after: usize) -> anyhow::Result<()> {
    forever_testkit::process::end_with_parent();
    let desk = Desk::open(&dir.join(JOURNAL), hold_after)?;
    let forever = Forever::builder().sqlite(dir.join(DATABASE)).resource(desk).fiber::<warehouse>().open().await?;
    let handle = forever.spawn(warehouse(steps, seed)).key(KEY).await?;
    handle.wait().await?;
    forever.close().await?;
    Ok(())
}

/// Number of checkpoints of the fiber in the database file.
#[tokio::main(flavor = "current_thread")]
async fn stored_checkpoints(database: &Path) -> anyhow::Result<u64> {
    // No fiber is registered here, so nothing runs.
    let forever = Forever::builder().sqlite(database).open().await?;
    let checkpoints = match forever.fiber_by_key::<warehouse>(KEY).await {
        Ok(handle) => handle.status().await?.checkpoints,
        Err(error) if error.kind() == ErrorKind::NotFound => 0, // killed before the fiber was accepted
        Err(error) => return Err(error.into()),
    };
    forever.close().await?;
    Ok(checkpoints)
}

/// The result of the fiber, which is stored beyond the life of its process.
#[tokio::main(flavor = "current_thread")]
async fn stored_result(database: &Path) -> anyhow::Result<Report> {
    let forever = Forever::builder().sqlite(database).open().await?;
    let result = forever.fiber_by_key::<warehouse>(KEY).await?.wait().await?;
    forever.close().await?;
    Ok(result)
}

fn main() -> ExitCode {
    let mut args = Args::of_program(USAGE);
    let worker_dir: Option<PathBuf> = args.value("--worker", "a folder", |_| true);
    let hold_after = args.value("--hold-after", "a number", |_| true).unwrap_or(usize::MAX);
    let kills = args.value("--kills", "a number from 0 to 1000", |kills| *kills <= 1000).unwrap_or(20);
    let steps = args.value("--steps", "a number from 2 to 10000", |steps| (2..=10_000).contains(steps)).unwrap_or(60);
    let seed = args.value("--seed", "a number", |_| true).unwrap_or(1);
    args.finish();
    let done = match worker_dir {
        Some(dir) => worker(&dir, steps, seed, hold_after).map(|()| true),
        None => killer::run(kills, steps, seed),
    };
    exit_code(done)
}

// A test kills it at every write.
#[cfg(test)]
#[path = "../tests/crash/examples/kill_and_resume.rs"]
mod crash;
