//! Fibers of all kinds in a process that dies all the time, and an audit of everything that they
//! did.
//!
//! ```text
//! cargo run --release -p forever-soak --bin chaos -- --minutes 2 --seed 1
//! cargo run --release -p forever-soak --bin chaos -- --deaths 500
//! cargo run --release -p forever-soak --bin chaos -- --break snapshot
//! cargo run --release -p forever-soak --bin chaos -- --faults --deaths 500
//! ```
//!
//! The program starts itself as a worker, a second process that runs some dozens of fibers from a
//! database file. After some milliseconds it ends the worker, by SIGKILL or by `abort` or `exit` in
//! a step, at random moments: while the database is opened, around checkpoints, in the middle of
//! steps. Then it starts the next worker. Now and then the disk is full for a while, a step panics,
//! the worker closes by itself, or it is stopped with SIGSTOP while another process waits for the
//! database. That process must do nothing until the stopped one is dead.
//!
//! What fibers do outside of the database (a step begins, a bank makes a charge, a message is sent)
//! they write to a log, a file of its own in which a line is durable from the moment of the event.
//! When everything has ended, an audit reads that log and the database, without the library, and
//! compares them with what was promised. That is a round. The next round has a fresh database, and
//! a seed that is greater by one.
//!
//! You see a line for each round, what was done and checked in all, and last
//!
//! ```text
//! deaths=N fibers=N finished_steps=N repeated_finished_steps=0 lost_fibers=0 duplicate_effects=0 audit=ok
//! ```
//!
//! - `deaths`: processes that died midway, by any cause.
//! - `fibers`: the accepted fibers; all have ended.
//! - `finished_steps`: finished steps of these fibers.
//! - `repeated_finished_steps`: steps whose body began again although the log shows that they had
//!   finished.
//! - `lost_fibers`: accepted fibers that are missing, have not ended, or have a wrong result; the
//!   same for messages and schedules.
//! - `duplicate_effects`: charges, rows, children and messages that exist more than once.
//!
//! If anything is not as promised, the program prints what, with the lines of the log about it,
//! ends with `audit=failed` and exit code 1, and keeps the folder of the round. `--break` shows
//! that: it breaks a promise from outside (`bank`: the bank ignores ids; `fiber`: a row is deleted;
//! `snapshot`: a snapshot is emptied).
//!
//! `--faults` also makes the I/O of the workers' databases fail: errors of reads, writes, syncs,
//! opens and locks, a full disk, short and torn writes, for one call or for a while
//! (`faults.c`, preloaded into the workers; Linux only). The last line counts them
//! (`faults_eio_read=N ..`), and a run without any of them fails. The audit stays the same.
//!
//! `docs/guide/src/internals/reliability.md` has the figures of long runs. Unix only: it needs
//! signals.
#![forbid(unsafe_code)]

pub(crate) mod audit;
mod driver;
pub(crate) mod faults;
pub(crate) mod fibers;
pub(crate) mod journal;
pub(crate) mod killer;
pub(crate) mod money;
mod office;
mod outside;
mod peek;
pub(crate) mod round;
mod sabotage;
mod stored;
mod track;
pub(crate) mod worker;
pub(crate) mod world;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use forever::{Clock, SystemClock};
use forever_testkit::args::{Args, exit_code};

use audit::{Counts, Fault, Findings};
use faults::{FaultCounts, FaultKind, Injector};
use killer::{Deaths, Killer};
use round::Round;
use sabotage::Sabotage;
use worker::Orders;
use world::{Mishap, Mishaps};

const USAGE: &str = "\
Runs fibers of all kinds in a process that dies all the time, and audits what they did.

usage: chaos [--minutes F] [--deaths N] [--seed N] [--dir PATH] [--break WHAT] [--faults] [--faults-only KIND]
  --minutes F   how long to go on (1)
  --deaths N    go on for so many deaths, however long it takes
  --seed N      the seed of the first round (1)
  --dir PATH    where the databases are, each in a folder of its own (the system's place for temporary files)
  --break WHAT  break a promise, to see the audit fail: bank, fiber or snapshot
  --faults      inject faults into the workers' I/O (Linux, needs a C compiler)
  --faults-only KIND
                only this kind: eio-read, eio-write, enospc, short, torn, fsync, open or lock";

/// When the deaths stop.
#[derive(Clone, Copy)]
enum Until {
    Deaths(u32),
    Time(SystemTime),
}

/// Sums over all rounds.
#[derive(Default)]
struct Sum {
    rounds: u32,
    deaths: Deaths,
    counts: Counts,
    repeated: usize,
    lost: usize,
    duplicates: usize,
    /// Injected faults, if any were asked for.
    faults: Option<FaultCounts>,
}

impl Sum {
    fn add(&mut self, deaths: Deaths, findings: &Findings, faults: FaultCounts) {
        if let Some(sum) = &mut self.faults {
            sum.add(faults);
        }
        self.rounds += 1;
        self.deaths.add(deaths);
        self.counts.add(&findings.counts);
        self.repeated += findings.repeated;
        self.lost += findings.lost;
        self.duplicates += findings.duplicates;
    }

    fn print(&self, good: bool) {
        let Sum { rounds, deaths, counts, repeated, lost, duplicates, faults } = self;
        let Deaths { kills, aborts, exits, closes, stops, stopped_dead, looks } = deaths;
        println!(
            "\nrounds={rounds} kills={kills} aborts={aborts} exits={exits} stops={stops} killed_while_stopped={stopped_dead} \
             full_disks={} panics={} clean_closes={closes}",
            counts.full_disks, counts.panics
        );
        println!(
            "audited: lines={} begun_steps={} looks_into_dead_databases={looks} requests={} questions={} charges={} rows={} messages={} \
             children={} cancelled_children={} errands={} ticks={} interrupted_by_full_disks={} given_up_closures={}",
            counts.lines,
            counts.begun,
            counts.requests,
            counts.questions,
            counts.charges,
            counts.rows,
            counts.messages,
            counts.children,
            counts.cancelled,
            counts.errands,
            counts.ticks,
            counts.interrupted,
            counts.given_up
        );
        if faults.is_some() {
            println!("interrupted_by_faults={} refused_calls={}", counts.interrupted_by_faults, counts.refused);
        }
        println!(
            "deaths={} fibers={} finished_steps={} repeated_finished_steps={repeated} lost_fibers={lost} duplicate_effects={duplicates}{} audit={}",
            deaths.all(),
            counts.fibers,
            counts.finished_steps,
            faults.map(|faults| format!(" {faults}")).unwrap_or_default(),
            if good { "ok" } else { "failed" }
        );
    }
}

/// Runs rounds until the limit, or until one is not as promised; returns whether all were as
/// promised.
fn run(until: Until, seed: u64, place: &Path, sabotage: Option<Sabotage>, injector: Option<&Injector>) -> anyhow::Result<bool> {
    let clock = SystemClock::new();
    let mut sum = Sum { faults: injector.map(|_| FaultCounts::default()), ..Sum::default() };
    loop {
        let dir = tempfile::Builder::new().prefix("forever-chaos-").tempdir_in(place)?;
        let round = Round::drawn(seed + u64::from(sum.rounds));
        let begun = clock.now();
        let mut killer = Killer::new(dir.path(), &round, sabotage, injector)?;
        let before = sum.deaths.all();
        killer.run(|deaths| {
            live_line(&round, before + deaths.all());
            match until {
                Until::Deaths(wanted) => before + deaths.all() >= wanted,
                Until::Time(end) => clock.now() >= end,
            }
        })?;
        let mut findings = audit::round(dir.path(), &round)?;
        for text in std::mem::take(&mut killer.wrong) {
            findings.fault("opens", None, text);
        }
        sum.add(killer.deaths, &findings, faults::counts(dir.path())?);
        let good = findings.faults.is_empty();
        show_round(&round, &killer.deaths, &findings, clock.now().duration_since(begun).unwrap_or_default());
        let enough = match until {
            Until::Deaths(wanted) => sum.deaths.all() >= wanted,
            Until::Time(end) => clock.now() >= end,
        };
        if !good {
            explain(dir.path(), &findings)?;
            println!("\nthe database and the log are kept in {}", dir.keep().display());
        }
        if !good || enough {
            // A run that was to have faults, and had none, proves nothing.
            let injected = sum.faults.is_none_or(|faults| faults.all() > 0);
            if !injected {
                println!("\n✗ no faults were injected");
            }
            sum.print(good && injected);
            return Ok(good && injected);
        }
    }
}

/// As [`run`], with faults in the workers' I/O, of one kind or of all.
fn run_with_faults(until: Until, seed: u64, place: &Path, sabotage: Option<Sabotage>, only: Option<FaultKind>) -> anyhow::Result<bool> {
    let dir = tempfile::tempdir_in(place)?;
    let injector = Injector::compile(dir.path(), only)?;
    run(until, seed, place, sabotage, Some(&injector))
}

/// On a terminal: shows the progress, in the place of the round's line.
fn live_line(round: &Round, deaths: u32) {
    let mut out = std::io::stdout();
    if out.is_terminal() {
        let _ = write!(out, "\rround of seed {}: {deaths} deaths so far ", round.seed).and_then(|()| out.flush());
    }
}

fn show_round(round: &Round, deaths: &Deaths, findings: &Findings, took: Duration) {
    let counts = &findings.counts;
    let durability = format!("{:?}", round.durability).to_lowercase();
    let threads = if round.threads == 1 { "1 thread" } else { "threads" };
    println!(
        "{}seed {:<6} {durability:<7} {threads:<8} {:>3} deaths {:>2} stops {:>2} full disks {:>4} fibers {:>5} steps {:>6.1} s  {}",
        if std::io::stdout().is_terminal() { "\r" } else { "" },
        round.seed,
        deaths.all(),
        deaths.stops,
        counts.full_disks,
        counts.fibers,
        counts.finished_steps,
        took.as_secs_f64(),
        if findings.faults.is_empty() { "ok" } else { "FAILED" }
    );
}

/// Most faults that are explained, and most lines of the log for each.
const SHOWN: (usize, usize) = (10, 40);

fn explain(dir: &Path, findings: &Findings) -> anyhow::Result<()> {
    let lines = journal::read(dir)?;
    for Fault { text, about, line } in findings.faults.iter().take(SHOWN.0) {
        println!("\n✗ {text}");
        let of_it = |text: &str| text.split(' ').any(|word| word == about || word.split(['/', '.']).next() == Some(about));
        let about: Vec<_> = lines.iter().filter(|there| of_it(&there.text)).collect();
        let end = line.map_or(about.len(), |line| about.partition_point(|there| there.number <= line));
        for line in &about[end.saturating_sub(SHOWN.1)..end] {
            println!("  {:>6}  {:>7}  {}", line.number, line.process, line.text);
        }
    }
    let more = findings.faults.len().saturating_sub(SHOWN.0);
    if more > 0 {
        println!("\nand {more} more");
    }
    Ok(())
}

/// Arguments of a worker, if this process is one.
fn orders(args: &mut Args, seed: u64) -> Option<Orders> {
    let any = |_: &u64| true;
    let nth = |args: &mut Args, name| args.value(name, "a number", |_: &u32| true);
    let end = nth(args, "--abort").map(|at| (Mishap::Abort, at)).or_else(|| nth(args, "--exit").map(|at| (Mishap::Exit, at)));
    let mishaps = Mishaps { end, panic: nth(args, "--panic") };
    let life = nth(args, "--life").unwrap_or(0);
    let since = args.value("--since", "milliseconds", any).unwrap_or(0);
    let full = args.value("--full-after", "microseconds", any).zip(args.value("--full-for", "microseconds", any));
    let close = args.value("--close", "microseconds", any);
    let (last, forgetful, faulty) = (args.flag("--last"), args.flag("--forgetful"), args.flag("--faulty"));
    let dir: Option<PathBuf> = args.value("--worker", "a folder", |_| true);
    dir.map(|dir| Orders { dir, seed, life, since, mishaps, full, close, last, forgetful, faulty })
}

fn main() -> ExitCode {
    let mut args = Args::of_program(USAGE);
    let minutes = args.value("--minutes", "a number from 0 to 10000", |minutes| (0.0..=10_000.0).contains(minutes)).unwrap_or(1.0);
    let deaths = args.value("--deaths", "a number", |_| true);
    let seed = args.value("--seed", "a number", |_| true).unwrap_or(1);
    let place = args.value("--dir", "a folder that is there", |dir: &PathBuf| dir.is_dir()).unwrap_or_else(std::env::temp_dir);
    let sabotage = args.value("--break", "bank, fiber or snapshot", |_| true);
    let only = args.value("--faults-only", "eio-read, eio-write, enospc, short, torn, fsync, open or lock", |_: &FaultKind| true);
    let faults = args.flag("--faults") || only.is_some();
    let orders = orders(&mut args, seed);
    args.finish();
    let until = match deaths {
        Some(deaths) => Until::Deaths(deaths),
        None => Until::Time(SystemClock::new().now() + Duration::from_secs_f64(60.0 * minutes)),
    };
    let done = match orders {
        Some(orders) => worker::run(&orders).map(|()| true),
        None if faults => run_with_faults(until, seed, &place, sabotage, only),
        None => run(until, seed, &place, sabotage, None),
    };
    exit_code(done)
}

// A test kills it at every write.
#[cfg(test)]
#[path = "../../tests/crash/examples/chaos.rs"]
mod crash;
