//! The work that every engine does, how a child process receives it, and how results are checked.
//!
//! A workflow is a chain: each step gets the sum of all earlier results and returns 192 characters
//! that depend on it. So a result that was lost, repeated or mixed up changes every later sum. No
//! two results are equal.
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::state::hex;
use crate::usage::{Spent, Usage, say};

/// File name of a run's SQLite database, in its folder.
pub(crate) const DATABASE: &str = "peers.db";

/// Arguments that give a child process its job, and the folder of its SQLite database or the URL of
/// its Postgres database.
pub(crate) const JOB: &str = "--job";
pub(crate) const PLACE: &str = "--place";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Engine {
    /// SQLite or Postgres alone.
    Floor,
    Forever,
    Durare,
    /// DBOS's own library for Rust.
    Dbos,
    Duroxide(Duroxide),
}

/// How duroxide is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Duroxide {
    /// As its guide says for long loops: `continue_as_new` after 100 steps; polling and locks set
    /// for this work.
    Renewed,
    /// With the same settings, and one history of any length.
    Whole,
    /// `continue_as_new` after 100 steps, and `RuntimeOptions::default()`.
    Defaults,
}

/// The database of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Store {
    /// SQLite, durable against power loss (`synchronous=FULL`), or against the death of the process
    /// (`NORMAL`).
    Sqlite { power: bool },
    /// Postgres with its default settings.
    Postgres,
}

/// Task of a child process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Runs one workflow of `before` steps, which is not measured; then starts `workflows`
    /// workflows at once, of `steps` steps each, and waits for their results.
    Finish { before: u64, workflows: u64, steps: u64 },
    /// Starts one workflow without end, or resumes it unless `new`. Prints which step it runs
    /// first; after `steps` steps it prints the current one, and waits there to be killed.
    Endless { new: bool, steps: u64 },
}

/// Number of the workflow that runs before the others.
pub(crate) const BEFORE: u64 = 1_000_000;

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) engine: Engine,
    pub(crate) store: Store,
    pub(crate) task: Task,
}

/// What a child prints after the workflow that is not measured. It then waits for a line.
pub(crate) const READY: &str = "ready";

/// Begins the measurement, when the parent has read what the server did so far.
pub(crate) fn begin() -> Usage {
    say(READY);
    // Without a parent there is no line, and no need of one.
    let _ = std::io::stdin().read_line(&mut String::new());
    Usage::now()
}

/// Output of a child after [`Task::Finish`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) spent: Spent,
    /// How often a body of a step ran.
    pub(crate) bodies: u64,
    pub(crate) sums: Vec<u64>,
    /// Settings of the engine, as far as it reports them.
    pub(crate) settings: String,
}

impl Done {
    pub(crate) fn new(spent: Spent, sums: Vec<u64>, settings: String) -> Self {
        Done { spent, bodies: BODIES.load(Ordering::Relaxed), sums, settings }
    }
}

/// The sum of all results, with one more added.
pub(crate) fn add(sum: u64, result: &str) -> u64 {
    // FNV-1a.
    result.bytes().fold(sum ^ 0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The result of a step.
pub(crate) fn result(workflow: u64, step: u64, sum: u64) -> String {
    hex(add(sum, &format!("{workflow} {step}")), 12)
}

/// The output of a step's body when it is the first or the last of its process.
pub(crate) fn word(word: &str, step: u64, sum: u64) -> String {
    format!("{word} {step} {sum}")
}

static BODIES: AtomicU64 = AtomicU64::new(0);
static LAST: AtomicU64 = AtomicU64::new(u64::MAX);

/// The body of a step.
pub(crate) async fn body(workflow: u64, step: u64, sum: u64) -> String {
    let before = BODIES.fetch_add(1, Ordering::Relaxed);
    let last = LAST.load(Ordering::Relaxed);
    if before == 0 && last < u64::MAX {
        say(&word("first", step, sum));
    }
    if before == last {
        say(&word("last", step, sum));
        std::future::pending::<()>().await;
    }
    result(workflow, step, sum)
}

/// The job of this process and its place, if it is a child. A child that has not ended after some
/// minutes is stuck.
pub(crate) fn job(args: &[String]) -> anyhow::Result<Option<(Job, &str)>> {
    let value = |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1));
    let (Some(job), Some(place)) = (value(JOB), value(PLACE)) else { return Ok(None) };
    let job: Job = serde_json::from_str(job)?;
    if let Task::Endless { steps, .. } = job.task {
        LAST.store(steps, Ordering::Relaxed);
    }
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_mins(5));
        eprintln!("{job:?} has not come to its end");
        std::process::exit(1);
    });
    Ok(Some((job, place)))
}
