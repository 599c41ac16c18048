//! What a step costs, against the floor of the same disk in the same run, and how long it takes to go on after a SIGKILL.
//!
//! ```text
//! cargo bench --bench checkpoint              # a minute or two
//! cargo bench --bench checkpoint -- --quick   # some seconds, rough
//! ```
//!
//! Prints one `key=value` a line; the figures are medians of `rounds`. It reports and judges nothing. docs/performance.md
//! explains each line. The databases are in cargo's target folder, so that is the disk that is measured; `--dir PATH` names
//! another. Every state that is written differs from the one before: SQLite does not write, or sync, a page that stays the same.
#![forbid(unsafe_code)]

#[path = "support/child.rs"]
mod child;
#[path = "support/usage.rs"]
mod usage;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use child::Work;
use usage::{Spent, SyncCounter};

/// Tells a child process what to do.
const WORK: &str = "--work";

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1));
    let dir = value("--dir").map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    if let Some(work) = value(WORK) {
        return child::run(serde_json::from_str(work)?, &dir);
    }
    // `cargo test --benches` runs this without `--bench`, to see that it works.
    let quick = args.iter().any(|arg| arg == "--quick") || !args.iter().any(|arg| arg == "--bench");
    std::fs::create_dir_all(&dir)?;
    let dir = tempfile::Builder::new().prefix("checkpoint-").tempdir_in(dir)?;
    let bench = Bench { rounds: if quick { 1 } else { 5 }, syncs: SyncCounter::build(dir.path()), dir: dir.path() };
    bench.steps(if quick { 2_000 } else { 10_000 })?;
    bench.fibers(if quick { 100 } else { 1_000 }, if quick { 20 } else { 100 })?;
    bench.resume(if quick { 3 } else { 11 }, quick)
}

struct Bench<'a> {
    rounds: usize,
    syncs: SyncCounter,
    dir: &'a Path,
}

impl Bench<'_> {
    /// One fiber, at both durabilities, each round right after its floor.
    fn steps(&self, steps: u64) -> anyhow::Result<()> {
        let bytes = child::snapshot_bytes();
        println!("rounds={}\nsteps={steps}\nsnapshot_bytes={bytes}", self.rounds);
        for (name, power) in [("power", true), ("process", false)] {
            let (mut floors, mut fibers) = (Vec::new(), Vec::new());
            for _ in 0..self.rounds {
                floors.push(self.measure(Work::Floor { commits: steps, bytes, power })?);
                fibers.push(self.measure(Work::Fibers { fibers: 1, steps, power })?);
            }
            let (floor, fiber) = (Sum::of(&floors, steps), Sum::of(&fibers, steps));
            floor.print(&format!("{name}_floor"), "commit");
            fiber.print(&format!("{name}_fiber"), "step");
            println!("{name}_fiber_to_floor={:.2}", fiber.each_second / floor.each_second);
        }
        Ok(())
    }

    /// Many fibers at once, which share syncs.
    fn fibers(&self, fibers: u64, steps: u64) -> anyhow::Result<()> {
        println!("fibers={fibers}\nsteps_of_each={steps}");
        for (name, power) in [("power", true), ("process", false)] {
            let rounds = self.rounds.div_ceil(2);
            let spent = (0..rounds).map(|_| self.measure(Work::Fibers { fibers, steps, power })).collect::<Result<Vec<_>, _>>()?;
            Sum::of(&spent, fibers * steps).print(&format!("{name}_fibers"), "step");
        }
        Ok(())
    }

    /// From the start of a process to the body of its first new step, after a SIGKILL in a step.
    fn resume(&self, rounds: usize, quick: bool) -> anyhow::Result<()> {
        let starts = (0..rounds).map(|_| self.first_step(Work::Start, self.dir)).collect::<Result<Vec<_>, _>>()?;
        println!("process_start_ms={:.1}", median(starts));
        for steps in [10, 1_000, if quick { 10_000 } else { 100_000 }] {
            let dir = tempfile::tempdir_in(self.dir)?;
            // These only have to be made; at the durability that is faster.
            self.killed_after(Work::Endless { steps, power: false }, dir.path())?;
            let resume = Work::Endless { steps: 1, power: true };
            let times = (0..rounds).map(|_| self.killed_after(resume, dir.path())).collect::<Result<Vec<_>, _>>()?;
            println!("resume_after_{steps}_steps_ms={:.1}", median(times));
        }
        Ok(())
    }

    fn command(&self, work: Work, dir: &Path) -> anyhow::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(WORK).arg(serde_json::to_string(&work)?).arg("--dir").arg(dir).stdout(Stdio::piped());
        self.syncs.count(&mut command);
        Ok(command)
    }

    /// Lets a child do its work in a folder of its own.
    fn measure(&self, work: Work) -> anyhow::Result<Spent> {
        let dir = tempfile::tempdir_in(self.dir)?;
        let output = self.command(work, dir.path())?.output()?;
        ensure!(output.status.success(), "{work:?} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// How many milliseconds it takes until a child is in its first step; kills it there.
    fn first_step(&self, work: Work, dir: &Path) -> anyhow::Result<f64> {
        let mut running = Running::start(&mut self.command(work, dir)?)?;
        let taken = running.wait_for("step")?;
        running.kill()?;
        Ok(taken)
    }

    /// The same, but kills it when it has done its steps and stopped in the next.
    fn killed_after(&self, work: Work, dir: &Path) -> anyhow::Result<f64> {
        let mut running = Running::start(&mut self.command(work, dir)?)?;
        let taken = running.wait_for("step")?;
        running.wait_for("stopped")?;
        running.kill()?;
        Ok(taken)
    }
}

/// A child that runs until it is killed.
struct Running {
    child: Child,
    begun: Instant,
    words: BufReader<std::process::ChildStdout>,
}

impl Running {
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    fn start(command: &mut Command) -> anyhow::Result<Self> {
        let begun = Instant::now();
        let mut child = command.spawn()?;
        let words = BufReader::new(child.stdout.take().context("it was asked for")?);
        Ok(Running { child, begun, words })
    }

    /// Waits for a word; gives the milliseconds since the start.
    fn wait_for(&mut self, word: &str) -> anyhow::Result<f64> {
        let mut line = String::new();
        self.words.read_line(&mut line)?;
        let taken = self.begun.elapsed();
        ensure!(line.trim_end() == word, "expected `{word}`, got `{line}`");
        Ok(ms(taken))
    }

    /// SIGKILL, where there is one.
    fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

/// What several runs used up for each step.
struct Sum {
    each_second: f64,
    syncs: Option<f64>,
    written: Option<f64>,
    stored: Option<f64>,
}

impl Sum {
    fn of(runs: &[Spent], steps: u64) -> Self {
        let steps = float(steps);
        let each = |what: fn(&Spent) -> Option<u64>| {
            let each: Option<Vec<f64>> = runs.iter().map(|run| Some(float(what(run)?) / steps)).collect();
            each.map(median)
        };
        Sum {
            each_second: median(runs.iter().map(|run| steps / run.seconds).collect()),
            syncs: each(|run| run.syncs),
            written: each(|run| run.written),
            stored: each(|run| run.stored),
        }
    }

    fn print(&self, name: &str, unit: &str) {
        let known = |value: Option<f64>, digits: usize| value.map_or("unknown".to_owned(), |value| format!("{value:.digits$}"));
        println!("{name}_{unit}s_per_second={:.0}", self.each_second);
        println!("{name}_fsyncs_per_{unit}={}", known(self.syncs, 4));
        println!("{name}_bytes_written_per_{unit}={}", known(self.written, 0));
        println!("{name}_bytes_to_disk_per_{unit}={}", known(self.stored, 0));
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn float(count: u64) -> f64 {
    count as f64
}
