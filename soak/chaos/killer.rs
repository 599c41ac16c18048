//! The killer: runs a round through many deaths, each at a moment of its own, and then to its end.
use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use forever::{Clock, SystemClock};
use forever_testkit::prng::Prng;
use forever_testkit::process::{Process, this_program};

use super::faults::{Faults, Injector};
use super::journal::{Journal, Reader};
use super::peek;
use super::round::Round;
use super::sabotage::Sabotage;
use super::worker::database;
use super::world::{EXIT, Mishap, Mishaps};

const SIGABRT: i32 = 6;
const SIGKILL: i32 = 9;
/// Interval at which the log of effects is read.
const LOOK: Duration = Duration::from_micros(300);
/// Time without progress after which a worker waits for something far away, and is killed there.
const IDLE: Duration = Duration::from_millis(400);
/// Longest life of a worker that makes progress.
const LONGEST: Duration = Duration::from_secs(10);
/// Time without progress, and time in all, after which a worker that is not killed counts as stuck.
const HANGS: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(180));
/// Number of lives after which a round is brought to its end.
const LIVES: u32 = 600;

/// Counts of deaths, and of what else happened to workers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Deaths {
    pub(crate) kills: u32,
    pub(crate) aborts: u32,
    pub(crate) exits: u32,
    /// Clean closes midway, which are no deaths.
    pub(crate) closes: u32,
    /// Times that an owner was stopped while a second process waited.
    pub(crate) stops: u32,
    /// Of these, the ones after which the stopped owner was killed; the others continued first.
    pub(crate) stopped_dead: u32,
    /// Dead workers whose database was checked in a copy.
    pub(crate) looks: u32,
}

impl Deaths {
    pub(crate) fn all(&self) -> u32 {
        self.kills + self.aborts + self.exits
    }

    pub(crate) fn add(&mut self, more: Deaths) {
        self.kills += more.kills;
        self.aborts += more.aborts;
        self.exits += more.exits;
        self.closes += more.closes;
        self.stops += more.stops;
        self.stopped_dead += more.stopped_dead;
        self.looks += more.looks;
    }
}

/// Plan of one life.
#[derive(Debug, Clone)]
struct Life {
    /// It is killed after this many lines, and then this many microseconds.
    lines: usize,
    micros: u64,
    /// Whether it is stopped first, and whether it continues before it is killed.
    stop: Option<bool>,
    mishaps: Mishaps,
    full: Option<(u64, u64)>,
    close: Option<u64>,
    faults: Option<Faults>,
}

impl Life {
    fn drawn(prng: &mut Prng, injector: Option<&Injector>) -> Self {
        let (lines, micros) = match prng.below(20) {
            // While the database is opened and fibers are claimed.
            0..=4 => (0, prng.below(15_000)),
            // At a place in the work, or soon after.
            5..=12 => (1 + prng.below(40_usize), prng.below(300)),
            13..=18 => (1 + prng.below(60_usize), prng.below(4000)),
            // Now and then a life is long.
            _ => (60 + prng.below(200_usize), prng.below(30_000)),
        };
        let one_in = |prng: &mut Prng, n| prng.below(n) == 0;
        let mishap = if prng.below(2) == 0 { Mishap::Abort } else { Mishap::Exit };
        let mishaps =
            Mishaps { end: one_in(prng, 12).then(|| (mishap, 1 + prng.below(20))), panic: one_in(prng, 12).then(|| 1 + prng.below(20)) };
        let mut life = Life {
            lines,
            micros,
            stop: one_in(prng, 50).then(|| one_in(prng, 2)),
            mishaps,
            full: one_in(prng, 20).then(|| (prng.below(6000_u64), 1000 + prng.below(60_000_u64))),
            close: one_in(prng, 40).then(|| prng.below(40_000_u64)),
            faults: injector.and_then(|injector| injector.draw(prng, false)),
        };
        if life.close.is_some() {
            // It runs until it ends by itself.
            life.lines = usize::MAX;
        } else if life.full.is_some() || life.faults.is_some() && prng.below(3) == 0 {
            // Most of these live until there is room again, or until the disk works again.
            life.micros += prng.below(100_000_u64);
        }
        life
    }

    /// A life that is not ended from outside. Its faults pass, and it has to end by itself all the
    /// same.
    fn last(prng: &mut Prng, injector: Option<&Injector>) -> Self {
        let faults = injector.and_then(|injector| injector.draw(prng, true));
        Life { lines: usize::MAX, micros: 0, stop: None, mishaps: Mishaps::default(), full: None, close: None, faults }
    }
}

/// A round while it runs.
pub(crate) struct Killer<'a> {
    dir: PathBuf,
    round: &'a Round,
    sabotage: Option<Sabotage>,
    injector: Option<&'a Injector>,
    prng: Prng,
    reader: Reader,
    journal: Journal,
    lives: u32,
    since: u64,
    done: bool,
    pub(crate) deaths: Deaths,
    /// Errors of workers.
    pub(crate) wrong: Vec<String>,
}

impl<'a> Killer<'a> {
    pub(crate) fn new(dir: &Path, round: &'a Round, sabotage: Option<Sabotage>, injector: Option<&'a Injector>) -> anyhow::Result<Self> {
        let now = SystemClock::new().now().duration_since(SystemTime::UNIX_EPOCH)?;
        Ok(Killer {
            dir: dir.to_owned(),
            round,
            sabotage,
            injector,
            prng: Prng::of_purpose(round.seed, "deaths"),
            reader: Reader::open(dir)?,
            journal: Journal::open(dir)?,
            lives: 0,
            since: u64::try_from(now.as_millis())?,
            done: false,
            deaths: Deaths::default(),
            wrong: Vec::new(),
        })
    }

    /// Runs the round. `enough` decides from the counts whether the deaths stop.
    pub(crate) fn run(&mut self, mut enough: impl FnMut(&Deaths) -> bool) -> anyhow::Result<()> {
        let mut next = None;
        while !self.done && self.wrong.is_empty() && self.lives < LIVES && !enough(&self.deaths) {
            let life = Life::drawn(&mut self.prng, self.injector);
            next = match next {
                None => {
                    let worker = self.start(&life, false)?;
                    self.end_of(worker, &life)?
                }
                Some(worker) => self.end_of(worker, &life)?,
            };
            self.see_what_is_left(next.is_some())?;
        }
        // A worker that has taken over is replaced by one that is not killed.
        if let Some(mut worker) = next {
            self.take_note(worker.end()?)?;
        }
        let last = Life::last(&mut self.prng, self.injector);
        let worker = self.start(&last, true)?;
        self.follow_to_the_end(worker)
    }

    fn start(&mut self, life: &Life, last: bool) -> anyhow::Result<Process> {
        self.lives += 1;
        let mut args = vec!["--worker".to_owned(), self.dir.display().to_string()];
        let mut option = |name: &str, value: String| args.extend([name.to_owned(), value]);
        option("--seed", self.round.seed.to_string());
        option("--life", self.lives.to_string());
        option("--since", self.since.to_string());
        if let Some((what, at)) = life.mishaps.end {
            option(if what == Mishap::Abort { "--abort" } else { "--exit" }, at.to_string());
        }
        if let Some(at) = life.mishaps.panic {
            option("--panic", at.to_string());
        }
        if let Some((after, long)) = life.full {
            option("--full-after", after.to_string());
            option("--full-for", long.to_string());
        }
        if let Some(after) = life.close {
            option("--close", after.to_string());
        }
        if last {
            args.push("--last".to_owned());
        }
        if self.sabotage == Some(Sabotage::Bank) && !last {
            args.push("--forgetful".to_owned());
        }
        let mut environment = Vec::new();
        if let (Some(injector), Some(faults)) = (self.injector, &life.faults) {
            args.push("--faulty".to_owned());
            environment = injector.environment(&self.dir, faults)?;
        }
        let mut command = this_program()?;
        command
            .args(args)
            .envs(environment)
            .current_dir(&self.dir)
            .stderr(OpenOptions::new().append(true).create(true).open(errors(&self.dir))?);
        Ok(Process::start_silent(&mut command)?)
    }

    /// Lets a worker live as planned, and ends it. Returns the worker that has taken over, if one
    /// has.
    fn end_of(&mut self, mut worker: Process, life: &Life) -> anyhow::Result<Option<Process>> {
        let from = self.reader.count()?;
        self.follow(&mut worker, from.saturating_add(life.lines))?;
        sleep(Duration::from_micros(life.micros));
        if let Some(goes_on) = life.stop
            && worker.status()?.is_none()
        {
            return self.stop(worker, goes_on);
        }
        self.take_note(worker.end()?)?;
        Ok(None)
    }

    /// Waits until the log has this many lines, the worker has ended, or it makes no progress.
    fn follow(&self, worker: &mut Process, lines: usize) -> anyhow::Result<()> {
        let (mut last, mut idle, mut passed) = (0, Duration::ZERO, Duration::ZERO);
        while idle < IDLE && passed < LONGEST {
            let now = self.reader.count()?;
            if now >= lines || worker.status()?.is_some() {
                break;
            }
            idle = if now == last { idle + LOOK } else { Duration::ZERO };
            last = now;
            passed += LOOK;
            sleep(LOOK);
        }
        Ok(())
    }

    /// Stops the owner of the database, lets another process wait for it, and checks that this one
    /// does nothing as long as the owner lives.
    fn stop(&mut self, mut owner: Process, goes_on: bool) -> anyhow::Result<Option<Process>> {
        owner.stop()?;
        if owner.status()?.is_some() || !self.owns(&owner) {
            // It ended by itself a moment before, or has not opened the database yet.
            self.take_note(owner.end()?)?;
            return Ok(None);
        }
        self.deaths.stops += 1;
        // Without faults, because one of them could end it while it waits.
        let life = Life { stop: None, faults: None, ..Life::drawn(&mut self.prng, None) };
        let mut second = self.start(&life, false)?;
        self.follow(&mut second, self.reader.count()? + 1)?;
        let still = self.reader.count()?;
        sleep(Duration::from_micros(5000 + self.prng.below(60_000_u64)));
        if self.reader.count()? != still || second.status()?.is_some() {
            self.wrong.push(format!("process {} did not wait for process {}, which is stopped", second.id(), owner.id()));
        }
        if goes_on {
            owner.go_on()?;
            sleep(Duration::from_micros(self.prng.below(30_000_u64)));
        } else {
            self.deaths.stopped_dead += 1;
        }
        self.take_note(owner.end()?)?;
        // If the first one closed by itself, the second one is already running.
        self.follow(&mut second, still + 1)?;
        Ok(Some(second))
    }

    /// Whether a worker owns the database: its number is in the lock file.
    fn owns(&self, worker: &Process) -> bool {
        let lock = database(&self.dir).with_extension("db.lock");
        std::fs::read_to_string(lock).is_ok_and(|owner| owner == worker.id().to_string())
    }

    fn take_note(&mut self, status: ExitStatus) -> anyhow::Result<()> {
        match (status.signal(), status.code()) {
            (Some(SIGKILL), _) => self.deaths.kills += 1,
            (Some(SIGABRT), _) => self.deaths.aborts += 1,
            (_, Some(EXIT)) => self.deaths.exits += 1,
            (_, Some(0)) => self.deaths.closes += 1,
            _ => {
                let errors = std::fs::read_to_string(errors(&self.dir))?;
                self.wrong.push(format!("worker {} ended with {status}: {}", self.lives, errors.trim_end()));
            }
        }
        Ok(())
    }

    /// After a death: reads the rest of the log, and now and then checks what is stored.
    fn see_what_is_left(&mut self, taken_over: bool) -> anyhow::Result<()> {
        let lines = self.reader.new_lines()?;
        self.done |= lines.iter().any(|line| line.text == "done");
        if taken_over || self.done {
            return Ok(());
        }
        if self.prng.below(6) == 0 {
            self.deaths.looks += 1;
            for words in peek::into_copy(&self.dir)? {
                self.journal.write(&words);
            }
        }
        if let Some(sabotage) = self.sabotage.take_if(|sabotage| *sabotage != Sabotage::Bank && self.deaths.all() >= 8)
            && !peek::damage(&self.dir, sabotage)?
        {
            self.sabotage = Some(sabotage);
        }
        Ok(())
    }

    fn follow_to_the_end(&mut self, mut worker: Process) -> anyhow::Result<()> {
        let (mut idle, mut passed) = (Duration::ZERO, Duration::ZERO);
        let status = loop {
            if let Some(status) = worker.status()? {
                break status;
            }
            // Agents tick even if everything else hangs.
            let ticks = |text: &str| ["due", "state", "woken", "interrupted", "refused"].iter().any(|verb| text.starts_with(verb));
            idle = if self.reader.new_lines()?.iter().all(|line| ticks(&line.text)) { idle + 10 * LOOK } else { Duration::ZERO };
            passed += 10 * LOOK;
            if idle > HANGS.0 || passed > HANGS.1 {
                self.wrong.push("the last worker does not end".to_owned());
                worker.end()?;
                return Ok(());
            }
            sleep(10 * LOOK);
        };
        if !status.success() {
            let errors = std::fs::read_to_string(errors(&self.dir))?;
            self.wrong.push(format!("the last worker ended with {status}: {}", errors.trim_end()));
        }
        Ok(())
    }
}

/// Path of the file with the workers' errors.
fn errors(dir: &Path) -> PathBuf {
    dir.join("errors.txt")
}
