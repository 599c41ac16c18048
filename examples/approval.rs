//! A fiber that waits three days for a person, in processes that do not live that long.
//!
//! ```text
//! cargo run --example approval
//! ```
//!
//! The fiber [`refund`] drafts a letter and waits for an approval. While it waits it is a row in
//! the database: it is in no process's memory, and a kill loses nothing. The program starts itself
//! as a worker, once for each day, and kills each worker but the last with SIGKILL:
//!
//! - day 0: two refunds are started. Both are drafted, and wait.
//! - day 1: there is no answer. Both still wait, and the drafts are not written again.
//! - day 2: a person approves Ada's refund. The fiber continues after its `recv!` and pays.
//! - day 4: Grace's refund has had no answer for three days. Her fiber continues without one as
//!   soon as the database is opened: its timeout was fixed on day 0, and expired while no process
//!   was running.
//!
//! You do not have to wait for that: each worker's clock is the system's, shifted by some days. You
//! see what each fiber does, and last
//!
//! ```text
//! kills=3 drafts=2 paid=1 expired=1 result=ok
//! ```
//!
//! What is checked; anything else ends with an error and exit code 1: `kills` workers died of
//! SIGKILL, each refund was drafted once over all of them, and each fiber had the expected result.
//!
//! Unix only: it needs SIGKILL.
#![forbid(unsafe_code)]

#[path = "support/worker.rs"]
mod worker;

use std::path::Path;
use std::pin::Pin;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::ensure;
use forever::fiber::FiberState;
use forever::prelude::*;
use forever::{Clock, SystemClock};
use serde::{Deserialize, Serialize};

use forever_testkit::args::{Args, exit_code};
use forever_testkit::folder::Folder;
use worker::{Worker, say};

const USAGE: &str = "\
Waits three days for a person, in processes that do not live that long.

usage: approval";

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A person's decision about a refund.
#[derive(Serialize, Deserialize)]
struct Approval {
    by: String,
    granted: bool,
}

/// Result of a refund.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Refund {
    Paid,
    Refused,
    Expired,
}

/// Asks a person before money is paid back.
#[fiber]
async fn refund(customer: String, cents: u32) -> anyhow::Result<Refund> {
    let letter = step!("draft", draft(&customer, cents));
    let answer: Option<Approval> = recv!("approval", timeout = 3 * DAY);
    match answer {
        Some(Approval { by, granted: true }) => {
            step!("pay", say(&format!("{customer}: pays, as approved by {by}: {letter}")));
            Ok(Refund::Paid)
        }
        Some(Approval { by, .. }) => {
            step!("refuse", say(&format!("{customer}: refused by {by}")));
            Ok(Refund::Refused)
        }
        None => {
            step!("expire", say(&format!("{customer}: no answer in three days")));
            Ok(Refund::Expired)
        }
    }
}

fn draft(customer: &str, cents: u32) -> String {
    say(&format!("{customer}: drafts a letter"));
    format!("\"Dear {customer}, here are {}.{:02}\"", cents / 100, cents % 100)
}

/// The system's clock, shifted by some days.
#[derive(Debug)]
struct Calendar {
    system: SystemClock,
    days: u32,
}

impl Clock for Calendar {
    fn is_shared(&self) -> bool {
        true
    }

    fn now(&self) -> SystemTime {
        self.system.now() + DAY * self.days
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.system.sleep(duration)
    }

    fn id(&self) -> String {
        self.system.id()
    }
}

/// Line of a worker that may be killed.
const READY: &str = "ready to die";

/// A worker: the work of one day.
#[tokio::main(flavor = "current_thread")]
async fn work(dir: &Path, day: u32) -> anyhow::Result<()> {
    forever_testkit::process::end_with_parent();
    let clock = Calendar { system: SystemClock::new(), days: day };
    let forever = Forever::builder().sqlite(dir.join("refunds.db")).clock(clock).fiber::<refund>().open().await?;
    match day {
        0 => {
            forever.spawn(refund("Ada".into(), 4200)).id("ada").await?;
            forever.spawn(refund("Grace".into(), 999)).id("grace").await?;
            show_waiting(&forever, 2).await?;
        }
        1 => show_waiting(&forever, 2).await?,
        2 => {
            forever.send("ada", "approval", &Approval { by: "Charles".into(), granted: true }).await?;
            ensure!(forever.fiber::<refund>("ada").wait().await? == Refund::Paid, "Ada's refund is approved");
            show_waiting(&forever, 1).await?;
        }
        _ => {
            ensure!(forever.fiber::<refund>("grace").wait().await? == Refund::Expired, "Grace's has no answer");
            return Ok(forever.close().await?);
        }
    }
    say(READY);
    std::future::pending().await
}

/// Shows the waiting refunds, as soon as there are `wanted` of them.
async fn show_waiting(forever: &Forever, wanted: usize) -> anyhow::Result<()> {
    loop {
        let waiting = forever.fibers().state(FiberState::Waiting).await?.fibers;
        if waiting.len() == wanted {
            for fiber in waiting {
                say(&format!("`{}` waits: a row in the database, and nothing in memory", fiber.id));
            }
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// The days, each with a worker of its own.
fn days() -> anyhow::Result<()> {
    let dir = Folder::new()?;
    let mut said = Vec::new();
    let mut kills = 0;
    for day in [0, 1, 2] {
        println!("day {day}");
        let mut worker = Worker::start(dir.path(), day)?;
        said.extend(worker.lines_until(READY)?);
        worker.kill()?;
        println!("✗ worker {day} is killed");
        kills += 1;
    }
    println!("day 4");
    said.extend(Worker::start(dir.path(), 4)?.lines_to_its_end()?);

    let count = |what: &str| said.iter().filter(|line| line.contains(what)).count();
    let (drafts, paid, expired) = (count("drafts a letter"), count("pays, as approved"), count("no answer in three days"));
    ensure!((drafts, paid, expired) == (2, 1, 1), "drafts={drafts} paid={paid} expired={expired}");
    println!("kills={kills} drafts={drafts} paid={paid} expired={expired} result=ok");
    Ok(())
}

fn main() -> ExitCode {
    let mut args = Args::of_program(USAGE);
    let role = Worker::role(&mut args);
    args.finish();
    let done = match role {
        Some((dir, day)) => work(&dir, day),
        None => days(),
    };
    exit_code(done.map(|()| true))
}

// A test kills it at every write.
#[cfg(test)]
#[path = "../tests/crash/examples/approval.rs"]
mod crash;
