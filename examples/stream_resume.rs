//! A model's answer that streams into a fiber, whose process is killed in the middle of it again
//! and again.
//!
//! ```text
//! cargo run -p examples-http --example stream_resume
//! cargo run -p examples-http --example stream_resume -- --kills 12 --seed 7
//! ```
//!
//! The program is the model: a server on loopback that follows a script and streams its answer,
//! word by word, to every client. It starts itself as a worker, a second process with the fiber
//! [`ask`], whose one step appends each chunk to its log, `op.log::<String>()`. It kills the worker
//! with SIGKILL in the middle of the stream. The next worker runs the step again, which reads the
//! stored chunks and asks the model to continue after them. You see where each worker begins and
//! dies, the answer, and last
//!
//! ```text
//! kills=6 chunks=83 repeated_chunks=1 result=ok
//! ```
//!
//! What is checked; anything else ends with an error and exit code 1:
//!
//! - The chunks that the model is asked to continue are those in the database when the worker died:
//!   no stored chunk is requested again.
//! - `repeated_chunks`: chunks that had left the model but were not stored when the worker died, so
//!   that the model makes them again. It is the chunk on its way, if any; more only where the model
//!   is faster than the disk.
//! - `result`: the fiber returns the whole text, each chunk once.
//!
//! Unix only: it needs SIGKILL.
#![forbid(unsafe_code)]

#[path = "support/streaming_model.rs"]
mod streaming_model;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{bail, ensure};
use forever::ops::Op;
use forever::prelude::*;
use rusqlite::{Connection, OpenFlags};
use tokio::time::{sleep, timeout};

use forever_testkit::args::{Args, exit_code};
use forever_testkit::prng::Prng;
use forever_testkit::process::Process;
use streaming_model::{Client, Model};

const USAGE: &str = "\
Streams a model's answer into a process that is killed in the middle of it.

usage: stream_resume [--kills N] [--seed N]
  --kills N  how often to kill it, 0 to 50 (6)
  --seed N   what the moments of the kills are drawn from (1)";

/// Asks a model.
#[fiber(max_recoveries = 1000)]
async fn ask(model: Res<Client>, question: String) -> anyhow::Result<String> {
    Ok(step!("answer", |op| answer(&model, &question, op).await?))
}

/// The body of the step: requests what is not stored yet.
async fn answer(model: &Client, question: &str, op: &Op) -> anyhow::Result<String> {
    let log = op.log::<String>();
    let mut chunks = log.items().await?;
    let mut stream = model.go_on(question, &chunks).await?;
    while let Some(chunk) = stream.next().await? {
        log.push(&chunk).await?; // durable from here on
        chunks.push(chunk);
    }
    Ok(chunks.concat())
}

const DATABASE: &str = "answers.db";
const QUESTION: &str = "Why keep a log?";

/// A worker: gets the answer, unless it is killed.
#[tokio::main(flavor = "current_thread")]
async fn work(dir: &Path, url: &str) -> anyhow::Result<()> {
    forever_testkit::process::end_with_parent();
    let forever = Forever::builder().sqlite(dir.join(DATABASE)).resource(Client::at(url)?).fiber::<ask>().open().await?;
    forever.spawn(ask(QUESTION.into())).key(QUESTION).await?.wait().await?;
    forever.close().await?;
    Ok(())
}

/// Time after which a worker that has not reached the chunk at which it dies, or its end, hangs.
const HANGS: Duration = Duration::from_secs(30);

/// The first process: runs the model and kills the workers.
#[tokio::main(flavor = "current_thread")]
async fn stream(kills: u32, seed: u64) -> anyhow::Result<()> {
    let dir = tempfile::Builder::new().prefix("forever-").tempdir()?;
    let (model, url) = Model::start().await?;
    let start = || Process::start_again(["--worker".as_ref(), dir.path().as_os_str(), "--model".as_ref(), url.as_ref()]);
    let all = streaming_model::chunks();
    let mut prng = Prng::of_purpose(seed, "kills");
    let end = u32::try_from(all.len())?;
    let mut ends: Vec<_> = (0..kills).map(|_| 1 + prng.below(end - 1) as usize).collect();
    ends.sort_unstable();
    for (n, at) in ends.into_iter().enumerate() {
        model.falls_silent_at(at);
        let mut worker = start()?;
        let sent = tokio::select! {
            silent = timeout(HANGS, model.silent()) => silent?,
            status = worker.ended() => bail!("worker {} was to be killed, but had ended with {}", worker.id(), status?),
        };
        // While the last chunk is on its way, is being stored, or is stored.
        if prng.below(2) == 1 {
            sleep(Duration::from_millis(1)).await;
        }
        let id = worker.id();
        worker.kill()?;
        let stored = stored(&dir.path().join(DATABASE))?;
        model.expects(stored);
        println!("✗ kill {}/{kills} of process {id}: {sent} of {end} chunks have left the model, {stored} are stored", n + 1);
    }
    model.falls_silent_at(usize::MAX);
    let status = timeout(HANGS, start()?.ended()).await??;
    ensure!(status.success(), "the last worker ended with {status}");

    // No fiber is registered here, so nothing runs.
    let forever = Forever::builder().sqlite(dir.path().join(DATABASE)).open().await?;
    let text = forever.fiber_by_key::<ask>(QUESTION).await?.wait().await?;
    forever.close().await?;
    println!("\n{QUESTION} {text}\n");
    ensure!(text == all.concat(), "the text is not whole");
    if let Some((expected, asked)) = model.unexpected() {
        bail!("{expected} chunks were stored, but the model was asked to go on behind {asked}");
    }
    println!("kills={kills} chunks={end} repeated_chunks={} result=ok", model.repeated());
    Ok(())
}

/// Number of chunks that a dead worker left in the database.
fn stored(database: &Path) -> anyhow::Result<usize> {
    let database = Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let count: u32 = database.query_row("SELECT coalesce(sum(count), 0) FROM stream_log WHERE name LIKE 'op/%'", (), |row| row.get(0))?;
    Ok(usize::try_from(count)?)
}

fn main() -> ExitCode {
    let mut args = Args::of_program(USAGE);
    let dir: Option<PathBuf> = args.value("--worker", "a folder", |_| true);
    let url: Option<String> = args.value("--model", "a URL", |_| true);
    let kills = args.value("--kills", "a number from 0 to 50", |kills| *kills <= 50).unwrap_or(6);
    let seed = args.value("--seed", "a number", |_| true).unwrap_or(1);
    args.finish();
    let done = match dir.zip(url) {
        Some((dir, url)) => work(&dir, &url),
        None => stream(kills, seed),
    };
    exit_code(done.map(|()| true))
}

// A test kills it at every write.
#[cfg(test)]
#[path = "../tests/crash/examples/stream_resume.rs"]
mod crash;
