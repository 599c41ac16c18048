//! The first process of `kill_and_resume`: starts workers, kills them, and counts.
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use crate::dice::Dice;
use crate::journal::Reader;
use crate::show::Show;
use crate::tally::{Place, Tally};
use crate::work::{self, Cut};
use crate::{DATABASE, JOURNAL};

const SIGKILL: i32 = 9;
/// How often the journal is looked at.
const LOOK: Duration = Duration::from_micros(200);
/// After so many looks at which nothing is new (20 s and more), the worker hangs.
const HANGS: u32 = 100_000;
/// How many steps after the one at which it is to die a worker waits for that.
const SLACK: usize = 3;

/// When a worker dies: a while after its fiber has come so far.
struct Moment {
    ended: usize,
    delay: Duration,
}

/// Random moments, in order.
fn moments(kills: u32, steps: u32, seed: u64) -> Vec<Moment> {
    let mut dice = Dice::new(seed, "moments");
    let mut ended: Vec<_> = (0..kills).map(|_| dice.below(steps - 1) as usize).collect();
    ended.sort_unstable();
    let moment = |ended| match dice.below(4) {
        // While the database is opened and the fiber is picked up, or soon after.
        0 => Moment { ended: 0, delay: Duration::from_micros(u64::from(dice.below(20_000))) },
        // Around a checkpoint.
        1 => Moment { ended, delay: Duration::from_micros(u64::from(dice.below(400))) },
        // In the middle of a step.
        _ => Moment { ended, delay: Duration::from_micros(u64::from(dice.below(80_000))) },
    };
    ended.into_iter().map(moment).collect()
}

/// Runs the fiber to its end over so many kills. Says whether everything is as it must be.
pub(crate) fn run(kills: u32, steps: u32, seed: u64) -> anyhow::Result<bool> {
    let dir = tempfile::Builder::new().prefix("forever-").tempdir()?;
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
        let mut worker = Worker::start(dir, steps, seed, Some(hold_after))?;
        run.started(&worker);
        run.follow(&mut worker, |tally| tally.ended() >= moment.ended)?;
        run.wait(moment.delay)?;
        let id = worker.0.id();
        let status = worker.kill()?;
        ensure!(status.signal() == Some(SIGKILL), "worker {id} was to die of SIGKILL, but ended with {status}");
        killed += 1;
        run.read_journal()?;
        run.tally.stored(stored_checkpoints(dir)?)?;
        run.show.killed(killed, kills, id, &run.tally);
    }
    let mut worker = Worker::start(dir, steps, seed, None)?;
    run.started(&worker);
    let status = run.follow(&mut worker, |_| false)?.context("a worker that nobody kills ends")?;
    ensure!(status.success(), "the last worker ended with {status}");
    run.read_journal()?;
    run.tally.stored(run.checkpoints)?;

    let result = crate::stored_result(&dir.join(DATABASE))?;
    run.show.table(&run.tally);
    let (finished, repeated) = (run.tally.finished(), run.tally.repeated());
    let same = result == expected;
    if !same {
        eprintln!("the result is {result:?}, not {expected:?}");
    }
    println!("kills={killed} steps={finished} repeated_finished_steps={repeated} result={}", if same { "ok" } else { "wrong" });
    Ok(killed == kills && finished == steps as usize && repeated == 0 && same)
}

/// What is seen of the fiber from outside.
struct Run {
    journal: Reader,
    tally: Tally,
    /// How many checkpoints the whole fiber makes.
    checkpoints: u64,
    show: Show,
}

impl Run {
    fn new(dir: &Path, cuts: Vec<Cut>) -> anyhow::Result<Self> {
        let checkpoints = cuts.len() as u64;
        Ok(Run { journal: Reader::open(&dir.join(JOURNAL))?, tally: Tally::new(cuts), checkpoints, show: Show::new() })
    }

    fn started(&mut self, worker: &Worker) {
        self.tally.place = Place::BeforeSteps;
        self.show.started(worker.0.id(), &self.tally);
    }

    /// Counts and shows what the worker does until `enough`, or until it ends; gives how it ended.
    fn follow(&mut self, worker: &mut Worker, enough: impl Fn(&Tally) -> bool) -> anyhow::Result<Option<ExitStatus>> {
        let mut idle = 0;
        while !enough(&self.tally) {
            if let Some(status) = worker.0.try_wait()? {
                return Ok(Some(status));
            }
            idle = if self.read_journal()? { 0 } else { idle + 1 };
            ensure!(idle < HANGS, "worker {} does nothing", worker.0.id());
            sleep(LOOK);
        }
        Ok(None)
    }

    /// Goes on for a while.
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

    /// Counts and shows the new lines of the journal; says whether there were any.
    fn read_journal(&mut self) -> anyhow::Result<bool> {
        let lines = self.journal.new_lines()?;
        for line in &lines {
            let number = self.tally.count(line)?;
            self.show.line(line, number, &self.tally);
        }
        Ok(!lines.is_empty())
    }
}

/// A worker process. It does not outlive this value, nor this process: it ends with the pipe that is its input.
struct Worker(Child);

impl Worker {
    fn start(dir: &Path, steps: u32, seed: u64, hold_after: Option<usize>) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--worker").arg(dir).args(["--steps", &steps.to_string(), "--seed", &seed.to_string()]);
        if let Some(steps) = hold_after {
            command.args(["--hold-after", &steps.to_string()]);
        }
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().context("failed to start a worker")?;
        Ok(Worker(child))
    }

    /// Sends SIGKILL, and waits until the process is gone.
    fn kill(&mut self) -> anyhow::Result<ExitStatus> {
        if let Some(status) = self.0.try_wait()? {
            bail!("worker {} was to be killed, but had ended with {status}", self.0.id());
        }
        self.0.kill()?;
        Ok(self.0.wait()?)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Fails when it is gone, as it should be.
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// How many checkpoints the dead worker has left. A copy is asked, so that the next worker finds the database as it was left.
fn stored_checkpoints(dir: &Path) -> anyhow::Result<u64> {
    let copy = dir.join("copy");
    fs::create_dir(&copy)?;
    // With what SQLite has beside the file, but not with the lock.
    for suffix in ["", "-wal", "-journal"] {
        let name = format!("{DATABASE}{suffix}");
        if dir.join(&name).exists() {
            fs::copy(dir.join(&name), copy.join(&name))?;
        }
    }
    let checkpoints = crate::stored_checkpoints(&copy.join(DATABASE))?;
    fs::remove_dir_all(&copy)?;
    Ok(checkpoints)
}
