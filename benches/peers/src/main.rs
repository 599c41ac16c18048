//! Comparison of Forever, durare and duroxide on SQLite, and SQLite alone, and of Forever, durare
//! and DBOS on Postgres, and Postgres alone: the same work on the same disk or server in the same
//! run.
//!
//! ```text
//! cargo run --release --manifest-path benches/peers/Cargo.toml              # some minutes
//! cargo run --release --manifest-path benches/peers/Cargo.toml -- --quick   # less than one, rough
//! ```
//!
//! `--only steps`, `together`, `recovery` or `postgres` runs one part; `--dir PATH` puts the SQLite
//! databases on another disk. Prints one `key=value` a line, then tables, and draws
//! docs/guide/src/images/recovery.svg (not with `--quick`). docs/guide/src/internals/performance.md
//! has figures.
//!
//! `steps`, `together` and `recovery` are of SQLite. `postgres` does all three, the last one up to
//! 1 000 steps, on one server of its own, which it starts with default settings in the system's
//! temporary folder (`TMPDIR`). Each run has a new database there. The part is left out where no
//! Postgres is installed.
//!
//! Each run is a process of its own, and its output is checked: the sums of all results, how often
//! the body of a step ran, at which step a process resumes, and, where syncs can be counted, that a
//! step at `synchronous=FULL` is synced; on Postgres, that each step of one workflow is committed.
//! A wrong run ends the comparison, except that a throughput run of another engine than Forever
//! that fails is printed as `failed`. DBOS, durare and duroxide are in the program `sqlx`, which
//! this one builds first; it needs what duroxide's TLS needs, which on Linux are OpenSSL's headers.
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
mod postgres_floor;
mod recovery;
mod server;
mod steps;
mod table;
mod work;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use children::{Children, build_others, target};
use numbers::print_load;
use server::Server;
use table::Table;
use work::{Engine, Store};

const PARTS: [&str; 4] = ["steps", "together", "recovery", "postgres"];

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
                other => bail!("`{other}` is not known: --quick, --only {}, --dir PATH", PARTS.join("|")),
            }
        }
        let known = read.only.as_ref().is_none_or(|part| PARTS.contains(&part.as_str()));
        ensure!(known, "the parts are {}", PARTS.join(", "));
        Ok(read)
    }

    fn wants(&self, part: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only == part)
    }
}

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().collect();
    match work::job(&args)? {
        Some((job, place)) => child(job, place),
        None => parent(&Args::read(&args)?),
    }
}

#[tokio::main]
async fn child(job: work::Job, place: &str) -> anyhow::Result<()> {
    match (job.engine, job.store) {
        (Engine::Floor, Store::Sqlite { power }) => floor::run(power, job.task, place.as_ref()).await,
        (Engine::Floor, Store::Postgres) => postgres_floor::run(job.task, place).await,
        (Engine::Forever, _) => ours::run(job, place).await,
        _ => bail!("{job:?} is not done here"),
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn parent(args: &Args) -> anyhow::Result<()> {
    ensure!(!cfg!(debug_assertions), "the other engines are built with --release, so this has to be as well");
    let others = build_others()?;
    let begun = Instant::now();
    std::fs::create_dir_all(&args.dir)?;
    let dir = tempfile::Builder::new().prefix("peers-").tempdir_in(&args.dir)?;
    let children = Children::new(dir.path(), others.clone(), None);
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
        let lines = recovery::measure(&children, &recovery::ways(args.quick))?;
        tables.push(recovery::table("SQLite", &lines));
        if !args.quick {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/src/images/recovery.svg");
            std::fs::write(path, plot::svg(&lines))?;
        }
    }
    if args.wants("postgres") {
        tables.extend(postgres(dir.path(), others, args.quick)?);
    }
    print_load("after");
    println!("took_seconds={:.0}", begun.elapsed().as_secs_f64());
    for table in tables {
        println!("\n{table}");
    }
    Ok(())
}

/// All parts on one Postgres server.
fn postgres(dir: &Path, others: PathBuf, quick: bool) -> anyhow::Result<Vec<Table>> {
    let Some(server) = Server::start()? else {
        println!("postgres=left out: no `initdb` in PATH or /usr/lib/postgresql");
        return Ok(Vec::new());
    };
    let children = Children::new(dir, others, Some(&server));
    let mut tables = Vec::from(steps::on_postgres(&children, quick)?);
    let lines = recovery::measure(&children, &recovery::postgres_ways(quick))?;
    tables.push(recovery::table("Postgres", &lines));
    Ok(tables)
}

/// Prints the versions of the compared crates, from the lock files.
fn print_versions() {
    let (here, others) = (include_str!("../Cargo.lock"), include_str!("../sqlx/Cargo.lock"));
    let ours = ["forever-fiber", "rusqlite", "tokio-postgres"].map(|name| (name, here));
    let theirs = ["dbos", "durare", "duroxide", "sqlx"].map(|name| (name, others));
    for (name, lock) in ours.into_iter().chain(theirs) {
        let entry = format!("name = \"{name}\"\nversion = \"");
        // sqlx is there twice: durare and duroxide use an older one than DBOS.
        let versions: Vec<&str> = lock.split(&entry).skip(1).filter_map(|rest| rest.split('"').next()).collect();
        println!("{name}_version={}", versions.join(" and "));
    }
    println!("cores={}", std::thread::available_parallelism().map_or(0, usize::from));
}
