//! Child processes that do the work, and checks of their results.
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use crate::running::Running;
use crate::syncs::SyncCounter;
use crate::usage::Spent;
use crate::work::{DATABASE, DIR, Done, Duroxide, Engine, JOB, Job, Task, add, result, word};

/// cargo's target folder.
pub(crate) fn target() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe()?;
    Ok(program.ancestors().nth(2).context("cargo puts programs into a folder of its target")?.to_owned())
}

/// Builds the program of durare and duroxide, beside this one.
pub(crate) fn build_others() -> anyhow::Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target = target()?;
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/sqlx/Cargo.toml");
    let built =
        Command::new(cargo).args(["build", "--release", "--locked", "--manifest-path", manifest, "--target-dir"]).arg(&target).status()?;
    ensure!(built.success(), "{manifest} was not built");
    Ok(target.join("release").join(format!("forever-peers-sqlx{}", std::env::consts::EXE_SUFFIX)))
}

impl Engine {
    /// Its name in the output.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Engine::Floor => "floor",
            Engine::Forever => "forever",
            Engine::Durare => "durare",
            Engine::Duroxide(Duroxide::Renewed) => "duroxide",
            Engine::Duroxide(Duroxide::Whole) => "duroxide_one_history",
            Engine::Duroxide(Duroxide::Defaults) => "duroxide_defaults",
        }
    }

    pub(crate) fn is_a_peer(self) -> bool {
        matches!(self, Engine::Durare | Engine::Duroxide(_))
    }

    /// Whether its public interface can set `synchronous=FULL`.
    pub(crate) fn can_sync(self) -> bool {
        !matches!(self, Engine::Duroxide(_))
    }
}

/// Starts child processes, one after the other.
pub(crate) struct Children<'a> {
    syncs: SyncCounter,
    dir: &'a Path,
    others: PathBuf,
}

/// What a process used, and what it left.
pub(crate) struct Finished {
    pub(crate) spent: Spent,
    pub(crate) settings: String,
    /// Size of the database in bytes, after its log was copied into it.
    pub(crate) kept: u64,
}

impl<'a> Children<'a> {
    pub(crate) fn new(dir: &'a Path, others: PathBuf) -> Self {
        Children { syncs: SyncCounter::build(dir), dir, others }
    }

    pub(crate) fn folder(&self) -> anyhow::Result<tempfile::TempDir> {
        Ok(tempfile::tempdir_in(self.dir)?)
    }

    fn command(&self, job: Job, dir: &Path) -> anyhow::Result<Command> {
        let program = match job.engine {
            Engine::Floor | Engine::Forever => std::env::current_exe()?,
            Engine::Durare | Engine::Duroxide(_) => self.others.clone(),
        };
        let mut command = Command::new(program);
        // duroxide logs to standard output, where the words are printed.
        command.arg(JOB).arg(serde_json::to_string(&job)?).arg(DIR).arg(dir).env("RUST_LOG", "off").stdout(Stdio::piped());
        self.syncs.count(&mut command);
        Ok(command)
    }

    /// Runs `workflows` workflows to their results, after one of `before` steps.
    pub(crate) fn finish(&self, engine: Engine, power: bool, before: u64, workflows: u64, steps: u64) -> anyhow::Result<Finished> {
        let dir = self.folder()?;
        let job = Job { engine, power, task: Task::Finish { before, workflows, steps } };
        let output = self.command(job, dir.path())?.output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{job:?} ended with {}: {}", output.status, said.lines().next().unwrap_or_default());
        let done: Done = serde_json::from_slice(&output.stdout).with_context(|| format!("{job:?}"))?;
        let sums: Vec<u64> = (0..workflows).map(|workflow| expected(workflow, steps)).collect();
        ensure!(done.sums == sums, "{job:?} has other results than it should have");
        let bodies = before + workflows * steps;
        ensure!(done.bodies == bodies, "{job:?} ran {} bodies for {bodies} steps", done.bodies);
        if let (true, 1, Some(syncs)) = (power, workflows, done.spent.syncs) {
            ensure!(syncs >= steps, "{job:?} synced only {syncs} times");
        }
        Ok(Finished { spent: done.spent, settings: done.settings, kept: kept(dir.path())? })
    }

    /// Starts or resumes the workflow in the folder at step `from`, and kills it `steps` steps
    /// later. Returns the milliseconds from the start of the process to the body of the first of
    /// these steps, and of the last.
    pub(crate) fn killed_after(&self, engine: Engine, power: bool, dir: &Path, from: u64, steps: u64) -> anyhow::Result<[f64; 2]> {
        let job = Job { engine, power, task: Task::Endless { steps } };
        let at = |name: &str, step: u64| word(name, step, expected(0, step));
        let words = [at("first", from), at("last", from + steps)];
        let mut child = Running::start(&mut self.command(job, dir)?)?;
        let mut times = [0.0; 2];
        for (time, word) in times.iter_mut().zip(words) {
            *time = child.wait_for(&word).with_context(|| format!("{job:?}"))?;
        }
        child.kill()?;
        Ok(times)
    }
}

/// The expected sum after `steps` steps.
fn expected(workflow: u64, steps: u64) -> u64 {
    (0..steps).fold(0, |sum, step| add(sum, &result(workflow, step, sum)))
}

fn kept(dir: &Path) -> anyhow::Result<u64> {
    let path = dir.join(DATABASE);
    let conn = rusqlite::Connection::open(&path)?;
    let busy: i64 = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| row.get(0))?;
    ensure!(busy == 0, "somebody still has {DATABASE} open");
    Ok(path.metadata()?.len())
}
