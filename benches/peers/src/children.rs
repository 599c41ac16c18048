//! Child processes that do the work, and checks of their results.
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use crate::running::Running;
use crate::server::{Database, Server, Totals};
use crate::syncs::SyncCounter;
use crate::usage::Spent;
use crate::work::{DATABASE, Done, Duroxide, Engine, JOB, Job, PLACE, READY, Store, Task, add, result, word};

/// cargo's target folder.
pub(crate) fn target() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe()?;
    Ok(program.ancestors().nth(2).context("cargo puts programs into a folder of its target")?.to_owned())
}

/// Builds the program of DBOS, durare and duroxide, beside this one.
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
            Engine::Dbos => "dbos",
            Engine::Duroxide(Duroxide::Renewed) => "duroxide",
            Engine::Duroxide(Duroxide::Whole) => "duroxide_one_history",
            Engine::Duroxide(Duroxide::Defaults) => "duroxide_defaults",
        }
    }

    pub(crate) fn is_a_peer(self) -> bool {
        matches!(self, Engine::Durare | Engine::Dbos | Engine::Duroxide(_))
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
    server: Option<&'a Server>,
}

/// Where a run stores its work. It is removed when this is dropped.
pub(crate) enum Place<'a> {
    Folder(tempfile::TempDir),
    Database(Database<'a>),
}

impl Place<'_> {
    fn argument(&self) -> &OsStr {
        match self {
            Place::Folder(dir) => dir.path().as_os_str(),
            Place::Database(database) => database.url.as_ref(),
        }
    }

    /// The child begins with what is measured.
    fn begin(&self) -> anyhow::Result<()> {
        match self {
            Place::Folder(_) => Ok(()),
            Place::Database(database) => database.begin(),
        }
    }

    fn whole(&self) -> anyhow::Result<Whole> {
        Ok(match self {
            Place::Folder(dir) => Whole::Kept(kept(dir.path())?),
            Place::Database(database) => Whole::Server(database.spent()?),
        })
    }
}

/// What a process used, and what it left.
pub(crate) struct Finished {
    pub(crate) spent: Spent,
    pub(crate) settings: String,
    pub(crate) whole: Whole,
}

/// What a run left or cost, seen from outside.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Whole {
    /// Size of an SQLite database in bytes, after its log was copied into it.
    Kept(u64),
    Server(Totals),
}

impl Whole {
    /// The figure that includes all that comes before the steps, such as making the tables.
    pub(crate) fn with_start(self) -> u64 {
        match self {
            Whole::Kept(bytes) => bytes,
            Whole::Server(totals) => totals.transactions,
        }
    }
}

impl<'a> Children<'a> {
    pub(crate) fn new(dir: &'a Path, others: PathBuf, server: Option<&'a Server>) -> Self {
        Children { syncs: SyncCounter::build(dir), dir, others, server }
    }

    pub(crate) fn place(&self, store: Store) -> anyhow::Result<Place<'a>> {
        Ok(match store {
            Store::Sqlite { .. } => Place::Folder(tempfile::tempdir_in(self.dir)?),
            Store::Postgres => Place::Database(self.server.context("no server was started")?.database()?),
        })
    }

    fn command(&self, job: Job, place: &Place) -> anyhow::Result<Command> {
        let program = match job.engine {
            Engine::Floor | Engine::Forever => std::env::current_exe()?,
            Engine::Durare | Engine::Dbos | Engine::Duroxide(_) => self.others.clone(),
        };
        let mut command = Command::new(program);
        // duroxide logs to standard output, where the words are printed.
        command.arg(JOB).arg(serde_json::to_string(&job)?).arg(PLACE).arg(place.argument()).env("RUST_LOG", "off").stdout(Stdio::piped());
        self.syncs.count(&mut command);
        Ok(command)
    }

    /// Runs `workflows` workflows to their results, after one of `before` steps.
    pub(crate) fn finish(&self, engine: Engine, store: Store, before: u64, workflows: u64, steps: u64) -> anyhow::Result<Finished> {
        let place = self.place(store)?;
        let job = Job { engine, store, task: Task::Finish { before, workflows, steps } };
        let done = measured(&mut self.command(job, &place)?, &place).with_context(|| format!("{job:?}"))?;
        let sums: Vec<u64> = (0..workflows).map(|workflow| expected(workflow, steps)).collect();
        ensure!(done.sums == sums, "{job:?} has other results than it should have");
        let bodies = before + workflows * steps;
        ensure!(done.bodies == bodies, "{job:?} ran {} bodies for {bodies} steps", done.bodies);
        let whole = place.whole()?;
        match (store, whole, done.spent.syncs) {
            (Store::Sqlite { power: true }, _, Some(syncs)) if workflows == 1 => {
                ensure!(syncs >= steps, "{job:?} synced only {syncs} times");
            }
            (_, Whole::Server(Totals { writes, .. }), _) if workflows == 1 => {
                ensure!(writes >= steps, "{job:?} wrote in only {writes} transactions");
            }
            _ => {}
        }
        Ok(Finished { spent: done.spent, settings: done.settings, whole })
    }

    /// Starts or resumes the workflow in its place at step `from`, and kills it `steps` steps
    /// later. Returns the milliseconds from the start of the process to the body of the first of
    /// these steps, and of the last.
    pub(crate) fn killed_after(&self, engine: Engine, store: Store, place: &Place, from: u64, steps: u64) -> anyhow::Result<[f64; 2]> {
        let job = Job { engine, store, task: Task::Endless { new: from == 0, steps } };
        let at = |name: &str, step: u64| word(name, step, expected(0, step));
        let words = [at("first", from), at("last", from + steps)];
        let mut child = Running::start(&mut self.command(job, place)?)?;
        let mut times = [0.0; 2];
        for (time, word) in times.iter_mut().zip(words) {
            *time = child.wait_for(&word).with_context(|| format!("{job:?}"))?;
        }
        child.kill()?;
        Ok(times)
    }
}

/// Runs a child to its end.
fn measured(command: &mut Command, place: &Place) -> anyhow::Result<Done> {
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut words = BufReader::new(child.stdout.take().context("it was asked for")?);
    let (mut ready, mut done) = (String::new(), String::new());
    words.read_line(&mut ready)?;
    if ready.trim_end() == READY {
        place.begin()?;
        child.stdin.take().context("it was asked for")?.write_all(b"\n")?;
        words.read_to_string(&mut done)?;
    }
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ended with {}: {}", output.status, said.lines().next().unwrap_or_default());
    Ok(serde_json::from_str(&done)?)
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
