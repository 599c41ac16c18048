//! Comparison of Forever, durare and duroxide on SQLite, and SQLite alone: the same work on the
//! same disk in the same run.
//!
//! ```text
//! cargo run --release --manifest-path benches/peers/Cargo.toml              # some minutes
//! cargo run --release --manifest-path benches/peers/Cargo.toml -- --quick   # less than one, rough
//! ```
//!
//! `--only steps`, `together` or `recovery` runs one part; `--dir PATH` puts the databases on
//! another disk. Prints one `key=value` a line, then tables, and draws
//! docs/guide/src/images/recovery.svg (not with `--quick`). docs/guide/src/internals/performance.md
//! explains the figures.
//!
//! Each run is a process of its own, and its output is checked: the sums of all results, how often
//! the body of a step ran, at which step a process resumes, and, where syncs can be counted, that a
//! step at `synchronous=FULL` is synced. A wrong run ends the comparison. durare and duroxide are
//! in the program `sqlx`, which this one builds first; it needs what duroxide's TLS needs, which on
//! Linux are OpenSSL's headers.
#[expect(dead_code, reason = "other benchmarks measure more")]
#[path = "../../support/numbers.rs"]
mod numbers;
#[path = "../../support/running.rs"]
mod running;
#[path = "../../support/state.rs"]
mod state;
#[path = "../../support/syncs.rs"]
mod syncs;
#[path = "../../support/usage.rs"]
mod usage;

mod children;
mod floor;
mod ours;
mod plot;
mod recovery;
mod steps;
mod table;
mod work;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use children::{Children, build_others, target};
use numbers::print_load;
use work::Engine;

/// Arguments of the comparison.
struct Args {
    quick: bool,
    only: Option<String>,
    dir: PathBuf,
}

impl Args {
    fn read(args: &[String]) -> anyhow::Result<Self> {
        let mut read = Args { quick: false, only: None, dir: target()?.join("tmp") };
        let mut args = args.iter().skip(1);
        while let Some(arg) = args.next() {
            let mut value = || args.next().cloned().with_context(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--quick" => read.quick = true,
                "--only" => read.only = Some(value()?),
                "--dir" => read.dir = value()?.into(),
                other => bail!("`{other}` is not known: --quick, --only steps|together|recovery, --dir PATH"),
            }
        }
        let known = read.only.as_ref().is_none_or(|part| ["steps", "together", "recovery"].contains(&part.as_str()));
        ensure!(known, "the parts are steps, together and recovery");
        Ok(read)
    }

    fn wants(&self, part: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only == part)
    }
}

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().collect();
    match work::job(&args)? {
        Some((job, dir)) => child(job, dir),
        None => parent(&Args::read(&args)?),
    }
}

#[tokio::main]
async fn child(job: work::Job, dir: &Path) -> anyhow::Result<()> {
    match job.engine {
        Engine::Floor => floor::run(job, dir).await,
        Engine::Forever => ours::run(job, dir).await,
        other => bail!("{other:?} is not done here"),
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn parent(args: &Args) -> anyhow::Result<()> {
    ensure!(!cfg!(debug_assertions), "durare and duroxide are built with --release, so this has to be as well");
    let others = build_others()?;
    let begun = Instant::now();
    std::fs::create_dir_all(&args.dir)?;
    let dir = tempfile::Builder::new().prefix("peers-").tempdir_in(&args.dir)?;
    let children = Children::new(dir.path(), others);
    print_versions();
    print_load("before");
    let mut tables = Vec::new();
    if args.wants("steps") {
        tables.push(steps::one_after_the_other(&children, args.quick)?);
    }
    if args.wants("together") {
        tables.push(steps::together(&children, args.quick)?);
    }
    if args.wants("recovery") {
        let lines = recovery::measure(&children, args.quick)?;
        tables.push(recovery::table(&lines));
        if !args.quick {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/src/images/recovery.svg");
            std::fs::write(path, plot::svg(&lines))?;
        }
    }
    print_load("after");
    println!("took_seconds={:.0}", begun.elapsed().as_secs_f64());
    for table in tables {
        println!("\n{table}");
    }
    Ok(())
}

/// Prints the versions of the compared crates, from the lock files.
fn print_versions() {
    let (here, others) = (include_str!("../Cargo.lock"), include_str!("../sqlx/Cargo.lock"));
    for (name, lock) in [("forever-fiber", here), ("rusqlite", here), ("durare", others), ("duroxide", others), ("sqlx", others)] {
        let entry = format!("name = \"{name}\"\nversion = \"");
        let version = lock.split_once(&entry).and_then(|(_, rest)| rest.split('"').next()).unwrap_or("unknown");
        println!("{name}_version={version}");
    }
    println!("cores={}", std::thread::available_parallelism().map_or(0, usize::from));
}
