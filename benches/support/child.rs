//! The measured work; each run is a process of its own.
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use forever::fiber::History;
use forever::prelude::*;
use forever::{Durability, testing};

use crate::numbers::percentiles;
use crate::scale::{self, Scale};
use crate::state::hex;
use crate::turns::{self, Turns};
use crate::usage::{Spent, Usage, say, tell};

/// File name of a run's database, in its folder.
pub(crate) const DATABASE: &str = "bench.db";

/// Work of a child process.
#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
pub(crate) enum Work {
    /// Nothing: only starts.
    Start,
    /// Commits of one row of `bytes` bytes each, with SQLite alone.
    Floor {
        commits: u64,
        bytes: usize,
        power: bool,
    },
    /// Concurrent fibers with `steps` steps each; with `timed`, the latency of each checkpoint is
    /// measured.
    Fibers {
        fibers: u64,
        steps: u64,
        power: bool,
        timed: bool,
    },
    /// One fiber without end. After `steps` steps of this process it stops, and waits to be killed.
    Endless {
        steps: u64,
        power: bool,
    },
    Scale(Scale),
    Turns(Turns),
}

/// The state of the fibers: 160 bytes that differ after each step.
pub(crate) fn payload(step: u64) -> String {
    hex(step, 10)
}

/// A fiber that consists of steps alone.
#[fiber]
pub(crate) async fn work(probe: Res<Probe>, number: u64, steps: u64) -> anyhow::Result<String> {
    let mut state = payload(number);
    for step in 0..steps {
        state = step!("work", probe.step(number, step).await);
    }
    Ok(state)
}

/// What the steps do, and what they measure.
pub(crate) struct Probe {
    passed: AtomicU64,
    stop_after: u64,
    clock: Option<Arc<Latency>>,
}

impl Probe {
    pub(crate) fn new(stop_after: u64) -> Self {
        Probe { passed: AtomicU64::new(0), stop_after, clock: None }
    }

    async fn step(&self, number: u64, step: u64) -> String {
        if let Some(clock) = &self.clock {
            clock.begins(number, step);
        }
        if self.stop_after < u64::MAX {
            let passed = self.passed.fetch_add(1, Ordering::Relaxed);
            if passed == 0 {
                say("step");
            }
            if passed == self.stop_after {
                say("stopped");
                std::future::pending::<()>().await;
            }
        }
        let state = payload(number + step);
        if let Some(clock) = &self.clock {
            clock.ends(number);
        }
        state
    }
}

/// Latency of checkpoints: from the end of a step's body to the beginning of the next one's.
struct Latency {
    begun: Instant,
    steps: u64,
    /// Time at which the last body of each fiber ended, in nanoseconds.
    ended: Vec<AtomicU64>,
    /// Nanoseconds of each checkpoint, except the last of each fiber.
    taken: Vec<AtomicU32>,
}

impl Latency {
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    fn new(fibers: u64, steps: u64) -> Self {
        let ended = (0..fibers).map(|_| AtomicU64::new(0)).collect();
        Latency { begun: Instant::now(), steps, ended, taken: (0..fibers * (steps - 1)).map(|_| AtomicU32::new(0)).collect() }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn begins(&self, number: u64, step: u64) {
        let (Some(ended), Some(before)) = (self.ended.get(place(number)), step.checked_sub(1)) else { return };
        let taken = self.now() - ended.load(Ordering::Relaxed);
        self.taken[place(number * (self.steps - 1) + before)].store(u32::try_from(taken).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    fn ends(&self, number: u64) {
        self.ended[place(number)].store(self.now(), Ordering::Relaxed);
    }

    /// The 50th and 99th percentile, and the maximum, in microseconds.
    fn percentiles_us(&self) -> [f64; 3] {
        percentiles(self.taken.iter().map(|taken| f64::from(taken.load(Ordering::Relaxed)) / 1e3).collect())
    }
}

fn place(number: u64) -> usize {
    usize::try_from(number).expect("it counts what is in memory")
}

/// Length in bytes of the snapshots of [`work`].
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn snapshot_bytes() -> usize {
    let stage = testing::Stage::new().resource(Probe::new(u64::MAX));
    let played = stage.run(testing::StartFrom::Start(work(0, 10_000)), Some(1_000)).await;
    played.snapshots.last().map_or(0, String::len)
}

/// Runs the work in the folder `dir`.
pub(crate) fn run(work: Work, dir: &Path) -> anyhow::Result<()> {
    match work {
        Work::Start => {
            say("step");
            std::thread::park();
            Ok(())
        }
        Work::Floor { commits, bytes, power } => floor(dir, commits, bytes, power),
        Work::Fibers { fibers, steps, power, timed } => many(dir, fibers, steps, power, timed),
        Work::Endless { steps, power } => endless(dir, steps, power),
        Work::Scale(scale) => scale::run(scale, dir),
        Work::Turns(turns) => turns::run(turns, dir),
    }
}

/// The floor of disk and SQLite: a prepared statement that replaces one row, with a commit each
/// time.
fn floor(dir: &Path, commits: u64, bytes: usize, power: bool) -> anyhow::Result<()> {
    let conn = rusqlite::Connection::open(dir.join(DATABASE))?;
    conn.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))?;
    conn.pragma_update(None, "synchronous", if power { "FULL" } else { "NORMAL" })?;
    conn.execute_batch("CREATE TABLE snapshots (fiber INTEGER PRIMARY KEY, number INTEGER NOT NULL, data TEXT NOT NULL) STRICT")?;
    conn.execute("INSERT INTO snapshots VALUES (1, 0, '')", ())?;
    let mut update = conn.prepare("UPDATE snapshots SET number = ?1, data = ?2 WHERE fiber = 1")?;
    let begun = Usage::now();
    for number in 0..commits {
        let mut data = payload(number);
        data.extend(std::iter::repeat_n('-', bytes.saturating_sub(data.len())));
        update.execute((i64::try_from(number)?, data))?;
    }
    tell(&begun.spent());
    Ok(())
}

pub(crate) fn durability(power: bool) -> Durability {
    if power { Durability::Power } else { Durability::Process }
}

async fn open(dir: &Path, power: bool, probe: Probe) -> anyhow::Result<Forever> {
    Ok(Forever::builder()
        .sqlite(dir.join(DATABASE))
        .durability(durability(power))
        .history(History::off())
        .resource(probe)
        .fiber::<work>()
        .open()
        .await?)
}

#[tokio::main]
async fn many(dir: &Path, fibers: u64, steps: u64, power: bool, timed: bool) -> anyhow::Result<()> {
    let clock = timed.then(|| Arc::new(Latency::new(fibers, steps)));
    let forever = open(dir, power, Probe { clock: clock.clone(), ..Probe::new(u64::MAX) }).await?;
    let begun = Usage::now();
    let mut tasks = Vec::new();
    for number in 0..fibers {
        let forever = forever.clone();
        tasks.push(tokio::spawn(async move { forever.run(work(number, steps)).await }));
    }
    for task in tasks {
        task.await??;
    }
    let spent = begun.spent();
    tell(&Spent { latency_us: clock.map(|clock| clock.percentiles_us()), ..spent });
    Ok(forever.close().await?)
}

#[tokio::main]
async fn endless(dir: &Path, steps: u64, power: bool) -> anyhow::Result<()> {
    let forever = open(dir, power, Probe::new(steps)).await?;
    forever.spawn(work(0, u64::MAX)).key("endless").await?.wait().await?;
    Ok(())
}
