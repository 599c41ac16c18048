//! Several workers over one Postgres database, killed and paused at random, and an audit of
//! everything that they did.
//!
//! ```text
//! cargo run --release -p forever-soak --bin cluster
//! cargo run --release -p forever-soak --bin cluster -- --workers 5 --minutes 10 --crashes --partitions
//! cargo run --release -p forever-soak --bin cluster -- --url postgres://app:secret@db.local/app
//! ```
//!
//! The program starts itself as workers: processes that open the same database, start orders, and
//! run them. An order picks its items in steps, charges a card in an effect, writes a row
//! to a table of the program, starts a child, sleeps, and waits for a message. All workers call the same three agents. The first process is
//! the adversary. It kills workers with SIGKILL, pauses them with SIGSTOP for shorter and for
//! longer than their lease, lets them close, with `--crashes` it crashes the server of the
//! database, and with `--partitions` it cuts workers off from the server. Each worker that is gone
//! is replaced by a new one.
//!
//! Without `--url` it starts a Postgres server of its own in a temporary folder, from the
//! installed programs.
//!
//! What orders do outside the database they write to a log that survives every process. You see
//! who was killed, and who took over its orders and how fast. When everything has ended, an audit
//! reads the log without the library:
//!
//! ```text
//! calls=N answered=N unknown=N void=N repeated_calls=0 lost_answers=0
//! deaths=N fibers=N finished_steps=N repeated_finished_steps=0 lost_fibers=0 duplicate_effects=0
//! audit=ok
//! ```
//!
//! - `deaths`: workers that were killed, or lost their claims while they were paused or cut off.
//! - `fibers`: accepted orders; all have ended.
//! - `finished_steps`: finished steps of these orders.
//! - `repeated_finished_steps`: steps whose results were stored, and which were carried out and
//!   stored once more.
//! - `lost_fibers`: accepted orders that have not ended, or have a wrong result; the same for
//!   results that another worker has waited for.
//! - `calls`: calls of agents that were carried out, most of them by another worker than the
//!   caller's. `answered`, `unknown` and `void` are what callers heard. `repeated_calls` were
//!   carried out more than once. `lost_answers` were answered without being carried out, or carried
//!   out although the caller heard that they never begin.
//! - `duplicate_effects`: charges of an order beyond its first, and rows in the table of the
//!   program.
//!
//! A worker that is paused while others take over its orders does not know, when it goes on, that
//! they are not its own any more, until its next write is refused. Bodies that it begins until
//! then are counted as `late_bodies`.
//!
//! Unix only: it needs signals.
#![forbid(unsafe_code)]

mod adversary;
mod audit;
mod bookings;
mod deploys;
mod history;
mod journal;
mod orders;
mod partition;
mod till;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use forever_testkit::args::{Args, exit_code};

use adversary::Plan;
use worker::Orders;

const USAGE: &str = "\
Runs several workers over one Postgres database, kills and pauses them, and audits what they did.

usage: cluster [--workers N] [--minutes F] [--deaths N] [--seed N] [--lease-ms N] [--crashes] [--partitions] [--history FILE]
               [--url URL] [--keep]
       cluster --deploys N [--series N] [--workers N] [--idle N] [--kills] [--pauses] [--skew-ms N] [--busy] [--seed N] [--lease-ms N]
               [--url URL] [--keep]
  --workers N   how many workers (3)
  --minutes F   how long to go on (0.5)
  --deaths N    go on for so many deaths, however long it takes
  --seed N      the seed of what happens (1)
  --lease-ms N  the lease of the workers (2000)
  --crashes     crash and restart the server of the database now and then
  --partitions  cut workers off from the server, in one direction or both, and slow their links down
  --history FILE
                write what the database has seen of each fiber to a file
  --url URL     a server that is there, in place of one of its own
  --keep        keep the log, also where the audit finds nothing
  --deploys N   rolling deploys, in place of deaths: so many in a series
  --series N    how many series (1)
  --idle N      how many workers more that start nothing (1)
  --kills       kill some of the old workers with SIGKILL in place of closing them
  --pauses      stop workers with SIGSTOP, for shorter and longer than their lease
  --skew-ms N   clocks of workers that are wrong by so much at most (0)
  --busy        take both cores with other work";

fn main() -> ExitCode {
    let mut args = Args::of_program(USAGE);
    let workers = args.value("--workers", "a number from 1 to 20", |n: &u32| (1..=20).contains(n)).unwrap_or(3);
    let minutes = args.value("--minutes", "a number from 0 to 10000", |minutes| (0.0..=10_000.0).contains(minutes)).unwrap_or(0.5);
    let deaths: Option<u32> = args.value("--deaths", "a number", |_| true);
    let seed = args.value("--seed", "a number", |_| true).unwrap_or(1);
    let lease = args.value("--lease-ms", "milliseconds, 500 at least", |ms: &u64| *ms >= 500).unwrap_or(2_000);
    let lease = Duration::from_millis(lease);
    let (crashes, partitions, keep) = (args.flag("--crashes"), args.flag("--partitions"), args.flag("--keep"));
    let history: Option<PathBuf> = args.value("--history", "a file", |_| true);
    let url: Option<String> = args.value("--url", "a URL of Postgres", |_| true);
    let schema: Option<String> = args.value("--schema", "a name", |_| true);
    let dir: Option<PathBuf> = args.value("--dir", "a folder", |_| true);
    let worker: Option<u32> = args.value("--worker", "a number", |_| true);
    let deploys: Option<u32> = args.value("--deploys", "a number from 1 to 1000", |n| (1..=1000).contains(n));
    let series = args.value("--series", "a number", |_| true).unwrap_or(1);
    let idle = args.value("--idle", "a number from 0 to 20", |n: &u32| *n <= 20).unwrap_or(1);
    let (kills, pauses, busy) = (args.flag("--kills"), args.flag("--pauses"), args.flag("--busy"));
    let skew_ms = args.value("--skew-ms", "milliseconds", |ms: &i64| (0..=86_400_000).contains(ms)).unwrap_or(0);
    let role: Option<deploys::Role> = args.value("--role", "a role", |_| true);
    let rounds = args.value("--rounds", "a number", |_| true).unwrap_or(0);
    let own_skew_ms = args.value("--own-skew-ms", "milliseconds", |_| true).unwrap_or(0);
    let life = args.value("--life", "a number", |_| true).unwrap_or(0);
    args.finish();
    if let (Some(role), Some(dir), Some(url), Some(schema)) = (role, &dir, &url, &schema) {
        let (dir, url, schema) = (dir.clone(), url.clone(), schema.clone());
        return exit_code(
            deploys::run_member(deploys::Member { role, dir, url, schema, lease, skew_ms: own_skew_ms, rounds }).map(|()| true),
        );
    }
    if let Some(deploys) = deploys {
        let plan = deploys::Plan { deploys, series, workers, idle, kills, pauses, skew_ms, busy, seed, lease, url, keep };
        return exit_code(deploys::run(&plan));
    }
    let done = match (worker, dir, url, schema) {
        (Some(worker), Some(dir), Some(url), Some(schema)) => worker::run(Orders { worker, life, dir, url, schema, lease }).map(|()| true),
        (_, _, url, _) => {
            let until = match deaths {
                Some(deaths) => adversary::Until::Deaths(deaths),
                None => adversary::Until::Time(Duration::from_secs_f64(60.0 * minutes)),
            };
            adversary::run(&Plan { workers, until, seed, lease, crashes, partitions, history, url, keep })
        }
    };
    exit_code(done)
}
