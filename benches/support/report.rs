//! Child processes that measure, and the report of what they used.
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::ensure;

use crate::child::{self, Work};
use crate::numbers::{float, median};
use crate::running::Running;
use crate::syncs::SyncCounter;
use crate::usage::Spent;

/// Argument that gives a child process its work.
const WORK: &str = "--work";

/// Arguments of a benchmark.
pub(crate) struct Args {
    pub(crate) quick: bool,
    /// The part to run; `None` for all of them.
    only: Option<String>,
    dir: PathBuf,
}

impl Args {
    /// Reads the arguments. Returns `None` in a child process, after its work.
    pub(crate) fn read() -> anyhow::Result<Option<Self>> {
        let args: Vec<String> = std::env::args().skip(1).collect();
        let value = |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1));
        let dir = value("--dir").map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
        if let Some(work) = value(WORK) {
            child::run(serde_json::from_str(work)?, &dir)?;
            return Ok(None);
        }
        // `cargo test --benches` runs this without `--bench`, to see that it works.
        let quick = args.iter().any(|arg| arg == "--quick") || !args.iter().any(|arg| arg == "--bench");
        std::fs::create_dir_all(&dir)?;
        Ok(Some(Args { quick, only: value("--only").cloned(), dir }))
    }

    /// A folder for the databases, deleted when it is dropped.
    pub(crate) fn folder(&self, prefix: &str) -> anyhow::Result<tempfile::TempDir> {
        Ok(tempfile::Builder::new().prefix(prefix).tempdir_in(&self.dir)?)
    }

    /// Whether a part is to be run.
    pub(crate) fn wants(&self, part: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only == part)
    }
}

/// Starts child processes.
pub(crate) struct Children<'a> {
    pub(crate) syncs: SyncCounter,
    pub(crate) dir: &'a Path,
}

impl<'a> Children<'a> {
    pub(crate) fn new(dir: &'a Path) -> Self {
        Children { syncs: SyncCounter::build(dir), dir }
    }

    fn command(&self, work: Work, dir: &Path) -> anyhow::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(WORK).arg(serde_json::to_string(&work)?).arg("--dir").arg(dir).stdout(Stdio::piped());
        self.syncs.count(&mut command);
        Ok(command)
    }

    /// Runs a child's work in a folder of its own.
    pub(crate) fn measure<T: serde::de::DeserializeOwned>(&self, work: Work) -> anyhow::Result<T> {
        let dir = tempfile::tempdir_in(self.dir)?;
        self.measure_in(work, dir.path())
    }

    /// As [`measure`](Self::measure), in a folder where another child may have left a database.
    pub(crate) fn measure_in<T: serde::de::DeserializeOwned>(&self, work: Work, dir: &Path) -> anyhow::Result<T> {
        let output = self.command(work, dir)?.output()?;
        ensure!(output.status.success(), "{work:?} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Milliseconds until a child has printed each of the words; then kills it.
    pub(crate) fn killed_at<const N: usize>(&self, work: Work, dir: &Path, words: [&str; N]) -> anyhow::Result<[f64; N]> {
        let mut running = Running::start(&mut self.command(work, dir)?)?;
        let mut times = [0.0; N];
        for (time, word) in times.iter_mut().zip(words) {
            *time = running.wait_for(word)?;
        }
        running.kill()?;
        Ok(times)
    }
}

/// What several runs used for each step.
pub(crate) struct Sum {
    pub(crate) each_second: f64,
    pub(crate) syncs: Option<f64>,
    pub(crate) written: Option<f64>,
    pub(crate) stored: Option<f64>,
    pub(crate) latency_us: Option<[f64; 3]>,
}

impl Sum {
    pub(crate) fn of(runs: &[Spent], steps: u64) -> Self {
        let steps = float(steps);
        let each = |what: fn(&Spent) -> Option<u64>| {
            let each: Option<Vec<f64>> = runs.iter().map(|run| Some(float(what(run)?) / steps)).collect();
            each.map(median)
        };
        let latencies: Option<Vec<[f64; 3]>> = runs.iter().map(|run| run.latency_us).collect();
        Sum {
            each_second: median(runs.iter().map(|run| steps / run.seconds).collect()),
            syncs: each(|run| run.syncs),
            written: each(|run| run.written),
            stored: each(|run| run.stored),
            latency_us: latencies.map(|all| std::array::from_fn(|n| median(all.iter().map(|one| one[n]).collect()))),
        }
    }

    pub(crate) fn print(&self, name: &str, unit: &str) {
        println!("{name}_{unit}s_per_second={:.0}", self.each_second);
        println!("{name}_fsyncs_per_{unit}={}", known(self.syncs, 4));
        println!("{name}_bytes_written_per_{unit}={}", known(self.written, 0));
        println!("{name}_bytes_to_disk_per_{unit}={}", known(self.stored, 0));
        print_us(&format!("{name}_checkpoint"), self.latency_us);
    }
}

/// A figure, or a placeholder where it could not be measured.
pub(crate) fn known(value: Option<f64>, digits: usize) -> String {
    value.map_or("unknown".to_owned(), |value| format!("{value:.digits$}"))
}

/// Prints a latency, if it was measured.
pub(crate) fn print_us(name: &str, taken: Option<[f64; 3]>) {
    for (percentile, us) in ["p50", "p99", "max"].into_iter().zip(taken.into_iter().flatten()) {
        println!("{name}_{percentile}_us={us:.0}");
    }
}
