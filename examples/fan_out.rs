//! A fiber that spawns children, each with concurrent steps, killed again and again midway.
//!
//! ```text
//! cargo run --example fan_out
//! cargo run --example fan_out -- --kills 3 --seed 7
//! ```
//!
//! The fiber [`book`] spawns a fiber [`chapter`] for each topic with `spawn!` and waits for all of
//! them with `wait_all!`. Each chapter reads its pages with `steps!`, two at a time, and then is
//! written. The program starts itself as a worker, a second process that runs all of this from a
//! database file, kills it with SIGKILL midway, and starts the next one. You see what each worker
//! does, and last
//!
//! ```text
//! kills=6 children=8 pages=96 repeated_pages=0 order=kept result=ok
//! ```
//!
//! What is checked; anything else ends with an error and exit code 1:
//!
//! - `kills`: workers that died of SIGKILL.
//! - `children`: fibers beside the first: one for each topic, however often the parent was killed
//!   around a `spawn!`.
//! - `pages`: pages that were read. A page whose reading was interrupted is read again.
//! - `repeated_pages`: pages that were read again although their result was stored when an earlier
//!   process died.
//! - `order`: the chapters are in the order of the topics, and the pages in theirs, in whatever
//!   order they were finished.
//!
//! Unix only: it needs SIGKILL.
#![forbid(unsafe_code)]

#[path = "support/worker.rs"]
mod worker;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use forever::prelude::*;

use forever_testkit::args::{Args, exit_code};
use forever_testkit::folder::Folder;
use forever_testkit::prng::Prng;
use worker::{Worker, say};

const USAGE: &str = "\
Runs a fiber with children in a process that is killed midway.

usage: fan_out [--kills N] [--seed N]
  --kills N   how often to kill it, 0 to 6 (6)
  --seed N    what the moments of the kills are drawn from (1)";

const TOPICS: [&str; 8] = ["tides", "bells", "moss", "radio", "glass", "yeast", "maps", "snow"];
const PAGES: u32 = 12;

/// Spawns a chapter for each topic, and joins the results.
#[fiber]
async fn book(topics: Vec<String>) -> anyhow::Result<Vec<String>> {
    let mut chapters = Vec::new();
    for topic in topics {
        chapters.push(spawn!(chapter(topic)));
    }
    let mut texts = Vec::new();
    for text in wait_all!(chapters) {
        texts.push(text?);
    }
    Ok(texts)
}

/// Reads the pages of a topic, two at a time, and writes about them.
#[fiber]
async fn chapter(topic: String) -> anyhow::Result<String> {
    let pages = steps!(for page in 1..=PAGES, limit = 2, read(&topic, page).await?);
    Ok(step!("write", written(&topic, &pages)))
}

/// Pages that a worker has still to read before it may be killed.
static LEFT: AtomicI64 = AtomicI64::new(0);
const ENOUGH: &str = "it is enough";
/// Pages that it reads beyond that while it waits for the kill, so that the book is not done before
/// the last kill.
const SLACK: i64 = 4;

/// Slow work that should not be repeated.
async fn read(topic: &str, page: u32) -> anyhow::Result<String> {
    say(&format!("reads {topic} {page}"));
    let longest = Prng::of_purpose(u64::from(page), topic).below(25_u64);
    tokio::time::sleep(Duration::from_millis(10 + longest)).await;
    let left = LEFT.fetch_sub(1, Ordering::Relaxed) - 1;
    if left == 0 {
        say(ENOUGH);
    }
    if left < -SLACK {
        std::future::pending::<()>().await;
    }
    Ok(format!("{topic} {page}"))
}

fn written(topic: &str, pages: &[String]) -> String {
    format!("{topic}: {}", pages.join(", "))
}

/// The expected result.
fn expected() -> Vec<String> {
    let pages = |topic| (1..=PAGES).map(|page| format!("{topic} {page}")).collect::<Vec<_>>();
    TOPICS.map(|topic| written(topic, &pages(topic))).into()
}

/// A worker: continues the book until it is done, unless it is killed.
#[tokio::main(flavor = "current_thread")]
async fn work(dir: &Path, enough: u32) -> anyhow::Result<()> {
    forever_testkit::process::end_with_parent();
    LEFT.store(if enough == 0 { i64::MAX } else { enough.into() }, Ordering::Relaxed);
    let forever = Forever::builder().sqlite(dir.join("book.db")).fiber::<book>().fiber::<chapter>().open().await?;
    let handle = forever.spawn(book(TOPICS.map(str::to_owned).into())).key("book").await?;
    let order = if handle.wait().await? == expected() { "kept" } else { "wrong" };
    let children = forever.fibers().name("chapter").await?.fibers.len();
    say(&format!("children={children} order={order}"));
    forever.close().await?;
    Ok(())
}

/// The pages whose results the dead worker stored, by themselves or in finished chapters. This
/// reads a copy, so that the next worker finds the database unchanged.
fn stored_pages(dir: &Path) -> anyhow::Result<BTreeSet<String>> {
    let copy = Folder::new()?;
    for name in ["book.db", "book.db-wal"] {
        if dir.join(name).exists() {
            std::fs::copy(dir.join(name), copy.path().join(name))?;
        }
    }
    let sql = rusqlite::Connection::open(copy.path().join("book.db"))?;
    let rows = |query| -> anyhow::Result<Vec<String>> {
        let mut statement = sql.prepare(query)?;
        let rows = statement.query_map((), |row| row.get(0))?;
        Ok(rows.collect::<Result<_, _>>()?)
    };
    let mut pages = BTreeSet::new();
    for page in rows("SELECT data FROM branch_results")? {
        pages.insert(serde_json::from_str(&page)?);
    }
    let done = "SELECT json_extract(args, '$.topic') FROM fibers WHERE name = 'chapter' AND state = 'completed'";
    for topic in rows(done)? {
        pages.extend((1..=PAGES).map(|page| format!("{topic} {page}")));
    }
    Ok(pages)
}

/// Pages that were read, with their results.
#[derive(Default)]
struct Pages {
    read: BTreeSet<String>,
    /// The pages whose results are stored.
    stored: BTreeSet<String>,
    /// Number of stored pages that were read again.
    repeated: u32,
}

impl Pages {
    /// Counts the lines of a worker.
    fn said(&mut self, lines: &[String]) {
        for page in lines.iter().filter_map(|line| line.strip_prefix("reads ")) {
            self.repeated += u32::from(self.stored.contains(page));
            self.read.insert(page.to_owned());
        }
    }
}

/// Starts workers and kills them.
fn run(kills: u32, seed: u64) -> anyhow::Result<()> {
    let dir = Folder::new()?;
    let mut prng = Prng::of_purpose(seed, "kills");
    let mut pages = Pages::default();
    for kill in 1..=kills {
        let mut worker = Worker::start(dir.path(), 5 + prng.below(6))?;
        pages.said(&worker.lines_until(ENOUGH)?);
        std::thread::sleep(Duration::from_micros(prng.below(3000_u64)));
        pages.said(&worker.kill()?);
        pages.stored.extend(stored_pages(dir.path())?);
        println!("✗ kill {kill}/{kills}; pages whose results are stored: {}", pages.stored.len());
    }
    let lines = Worker::start(dir.path(), 0)?.lines_to_its_end()?;
    pages.said(&lines);
    let last = lines.last().context("the last worker reports the result")?;
    let (children, order) = last.split_once(' ').context("it says two things")?;
    let Pages { read, repeated, .. } = pages;
    let read = read.len();
    let good = repeated == 0 && *last == format!("children={} order=kept", TOPICS.len()) && read == TOPICS.len() * PAGES as usize;
    let result = if good { "ok" } else { "wrong" };
    println!("kills={kills} {children} pages={read} repeated_pages={repeated} {order} result={result}");
    ensure!(good, "this is not as it must be");
    Ok(())
}

fn main() -> ExitCode {
    let mut args = Args::of_program(USAGE);
    let role = Worker::role(&mut args);
    let kills = args.value("--kills", "a number from 0 to 6", |kills| *kills <= 6).unwrap_or(6);
    let seed = args.value("--seed", "a number", |_| true).unwrap_or(1);
    args.finish();
    let done = match role {
        Some((dir, enough)) => work(&dir, enough),
        None => run(kills, seed),
    };
    exit_code(done.map(|()| true))
}

// A test kills it at every write.
#[cfg(test)]
#[path = "../tests/crash/examples/fan_out.rs"]
mod crash;
