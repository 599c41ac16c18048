//! The first process of `kill_and_resume`: starts workers, kills them, and counts.
use std::fs;
use std::path::Path;
use std::process::ExitStatus;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, ensure};
use forever_testkit::folder::Folder;
use forever_testkit::prng::Prng;
use forever_testkit::process::Process;

use super::journal::Reader;
use super::show::Show;
use super::tally::{Place, Tally};
use super::work::{self, Cut};
use super::{DATABASE, JOURNAL};

/// Interval at which the journal is read.
const LOOK: Duration = Duration::from_micros(200);
/// Reads without a new line (20 s and more) after which the worker counts as stuck.
const HANGS: u32 = 100_000;
/// Steps after the one at which it is to die, at which a worker waits for its death.
const SLACK: usize = 3;

/// Moment of a worker's death: a while after its fiber has come to a step.
struct Moment {
    ended: usize,
    delay: Duration,
}

/// Random moments, in order.
fn moments(kills: u32, steps: u32, seed: u64) -> Vec<Moment> {
    let mut prng = Prng::of_purpose(seed, "moments");
    let mut ended: Vec<_> = (0..kills).map(|_| prng.below(steps - 1) as usize).collect();
    ended.sort_unstable();
    let moment = |ended| match prng.below(4) {
        // While the database is opened and the fiber is claimed, or soon after.
        0 => Moment { ended: 0, delay: Duration::from_micros(prng.below(20_000_u64)) },
        // Around a checkpoint.
        1 => Moment { ended, delay: Duration::from_micros(prng.below(400_u64)) },
        // In the middle of a step.
        _ => Moment { ended, delay: Duration::from_micros(prng.below(80_000_u64)) },
    };
    ended.into_iter().map(moment).collect()
}

/// Runs the fiber to its end through `kills` kills. Returns whether everything is as expected.
pub(crate) fn run(kills: u32, steps: u32, seed: u64) -> anyhow::Result<bool> {
    let dir = Folder::new()?;
    let good = run_in(dir.path(), kills, steps, seed);
    if !matches!(good, Ok(true)) {
        eprintln!("the database and the journal are kept in {}", dir.keep().display());
    }
    good
}

fn run_in(dir: &Path, kills: u32, steps: u32, seed: u64) -> anyhow::Result<bool> {
    let (expected, cuts) = work::in_one_go(steps, seed);
    let mut run = Run::new(dir, cuts)?;
    let mut killed = 0;
    for moment in moments(kills, steps, seed) {
        // The last step is never reached before the last kill.
        let hold_after = (moment.ended.max(run.tally.ended()) + SLACK).min(steps as usize - 1);
        let mut worker = start(dir, steps, seed, Some(hold_after))?;
        run.started(&worker);
        run.follow(&mut worker, |tally| tally.ended() >= moment.ended)?;
        run.wait(moment.delay)?;
        let id = worker.id();
        worker.kill()?;
        killed += 1;
        run.read_journal()?;
        run.tally.stored(stored_checkpoints(dir)?)?;
        run.show.killed(killed, kills, id, &run.tally);
    }
    let mut worker = start(dir, steps, seed, None)?;
    run.started(&worker);
    let status = run.follow(&mut worker, |_| false)?.context("a worker that is not killed ends")?;
    ensure!(status.success(), "the last worker ended with {status}");
    run.read_journal()?;
    run.tally.stored(run.checkpoints)?;

    let result = super::stored_result(&dir.join(DATABASE))?;
    run.show.table(&run.tally);
    let (finished, repeated) = (run.tally.finished(), run.tally.repeated());
    let same = result == expected;
    if !same {
        eprintln!("the result is {result:?}, not {expected:?}");
    }
    println!("kills={killed} steps={finished} repeated_finished_steps={repeated} result={}", if same { "ok" } else { "wrong" });
    Ok(killed == kills && finished == steps as usize && repeated == 0 && same)
}

/// State of the fiber as it is seen from outside.
struct Run {
    journal: Reader,
    tally: Tally,
    /// Number of checkpoints of the whole fiber.
    checkpoints: u64,
    show: Show,
}

impl Run {
    fn new(dir: &Path, cuts: Vec<Cut>) -> anyhow::Result<Self> {
        let checkpoints = cuts.len() as u64;
        Ok(Run { journal: Reader::open(&dir.join(JOURNAL))?, tally: Tally::new(cuts), checkpoints, show: Show::new() })
    }

    fn started(&mut self, worker: &Process) {
        self.tally.place = Place::BeforeSteps;
        self.show.started(worker.id(), &self.tally);
    }

    /// Counts and shows what the worker does until `enough`, or until it ends; returns its exit
    /// status.
    fn follow(&mut self, worker: &mut Process, enough: impl Fn(&Tally) -> bool) -> anyhow::Result<Option<ExitStatus>> {
        let mut idle = 0;
        while !enough(&self.tally) {
            if let Some(status) = worker.status()? {
                return Ok(Some(status));
            }
            idle = if self.read_journal()? { 0 } else { idle + 1 };
            ensure!(idle < HANGS, "worker {} does nothing", worker.id());
            sleep(LOOK);
        }
        Ok(None)
    }

    /// Continues to read for a while.
    fn wait(&mut self, delay: Duration) -> anyhow::Result<()> {
        let mut left = delay;
        while !left.is_zero() {
            let pause = left.min(LOOK);
            sleep(pause);
            left -= pause;
            self.read_journal()?;
        }
        Ok(())
    }

    /// Counts and shows the new lines of the journal; returns whether there were any.
    fn read_journal(&mut self) -> anyhow::Result<bool> {
        let lines = self.journal.new_lines()?;
        for line in &lines {
            let number = self.tally.count(line)?;
            self.show.line(line, number, &self.tally);
        }
        Ok(!lines.is_empty())
    }
}

fn start(dir: &Path, steps: u32, seed: u64, hold_after: Option<usize>) -> anyhow::Result<Process> {
    let mut args = vec!["--worker".to_owned(), dir.display().to_string()];
    args.extend(["--steps".to_owned(), steps.to_string(), "--seed".to_owned(), seed.to_string()]);
    if let Some(steps) = hold_after {
        args.extend(["--hold-after".to_owned(), steps.to_string()]);
    }
    Ok(Process::start_again(args)?)
}

/// Number of checkpoints that the dead worker has left. This reads a copy, so that the next worker
/// finds the database unchanged.
fn stored_checkpoints(dir: &Path) -> anyhow::Result<u64> {
    let copy = dir.join("copy");
    fs::create_dir(&copy)?;
    // With SQLite's files beside it. The lock file, not locked here, says that a file whose process
    // died while creating it is a database of this library.
    for suffix in ["", "-wal", "-journal", ".lock"] {
        let name = format!("{DATABASE}{suffix}");
        if dir.join(&name).exists() {
            fs::copy(dir.join(&name), copy.join(&name))?;
        }
    }
    let checkpoints = super::stored_checkpoints(&copy.join(DATABASE))?;
    fs::remove_dir_all(&copy)?;
    Ok(checkpoints)
}
