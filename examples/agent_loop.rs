//! A chat agent whose process is killed again and again while it answers: a model with two tools.
//!
//! ```text
//! cargo run -p examples-http --example agent_loop
//! cargo run -p examples-http --example agent_loop -- --kills 12 --seed 7
//! ```
//!
//! The program starts itself as a worker, a second process with the agent, and kills it with
//! SIGKILL while the answer is written. The worker reports every chunk that a person would have
//! seen. The model follows a script: it thinks, asks for the weather, books a table, and sums up.
//! When it is cut off in the middle of a sentence, it is asked to continue from there. You see the
//! answer grow, with a mark for each kill, and last
//!
//! ```text
//! kills=8 shown=47 lost=0 doubled=0 bookings=1 asked=11 result=ok
//! ```
//!
//! What is checked; anything else ends with an error and exit code 1:
//!
//! - `lost`, `doubled`: chunks that were shown and are missing, or at another place, in the log at
//!   the end. Both are 0.
//! - `bookings`: tables that were booked, in a file that does not recognize repeated bookings. One,
//!   or none if the process died just then: then the model reads that the outcome is unknown, and
//!   tells the person.
//! - `asked`: calls of the model: at most three, and one more for each kill.
//!
//! Unix only: it needs SIGKILL.
#![forbid(unsafe_code)]

#[path = "support/talkative_model.rs"]
mod talkative_model;

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use forever::agent::Agent;
use forever::chat::message::UiMessage;
use forever::chat::{AgentLoop, ChatAgent, Entry, RecoveryPolicy, Tool, Turn, UnknownCall};
use forever::ops::Op;
use forever::prelude::*;
use forever::{BoxError, Builder};
use serde_json::{Value, json};

use forever_testkit::args::{Args, exit_code};
use forever_testkit::prng::Prng;
use forever_testkit::process::{Process, this_program};
use talkative_model::talkative;

const USAGE: &str = "\
Answers a person, with a model and two tools, in a process that is killed in the middle of it.

usage: agent_loop [--kills N] [--seed N]
  --kills N  how often to kill it at most, 0 to 50 (8); the answer may be whole before
  --seed N   what the moments of the kills are drawn from (1)";

/// Chat agent: each question is a turn, and each turn runs the loop of model and tools.
struct Concierge;

impl Agent for Concierge {
    const CLASS: &'static str = "concierge";
    type State = ();
}

impl ChatAgent for Concierge {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        turn.run_agent_loop().await
    }

    fn recovery() -> RecoveryPolicy {
        // The default would give up: this program dies on purpose.
        RecoveryPolicy::default().max_deaths(1000)
    }
}

/// The tools: one that may run any number of times, and one that must not run twice.
fn tools(looped: AgentLoop, dir: &Path) -> AgentLoop {
    let weather = Tool::new("weather", |input: Value, _| async move { Ok(json!({ "city": input["city"], "tonight": "clear" })) })
        .description("What the weather is like in a city tonight.")
        .on_unknown(UnknownCall::Retry);
    let bookings = dir.join(BOOKINGS);
    let book = Tool::new("book", move |input: Value, op: Op| {
        let line = format!("{} {}\n", op.id(), input["table"]);
        let booked = OpenOptions::new().append(true).create(true).open(&bookings).and_then(|mut file| file.write_all(line.as_bytes()));
        async move { booked.map(|()| json!("booked")).map_err(BoxError::from) }
    })
    .description("Books a table.");
    looped.tool(weather).tool(book)
}

fn builder(dir: &Path) -> Builder {
    let model = talkative(dir.join(ASKED));
    Forever::builder().agent_loop(tools(AgentLoop::new(model), dir)).chat_agent(|_| Concierge)
}

const DATABASE: &str = "concierge.db";
const BOOKINGS: &str = "bookings.txt";
const ASKED: &str = "asked.txt";
const QUESTION: &str = "Can we sit outside tonight? If so, book us a table.";

/// A worker: answers, and reports what is shown, unless it is killed.
#[tokio::main(flavor = "current_thread")]
async fn work(dir: &Path) -> anyhow::Result<()> {
    forever_testkit::process::end_with_parent();
    let forever = builder(dir).sqlite(dir.join(DATABASE)).open().await?;
    let concierge = forever.agent::<Concierge>("table 7");
    let turn = concierge.save_messages([UiMessage::user("question", QUESTION)]).id("evening").await?;
    let mut follow = turn.follow(0).await?;
    while let Some(entry) = follow.next().await? {
        match entry {
            Entry::Chunk(number, chunk) => println!("{number} {}", chunk.json()),
            Entry::End(end) => println!("end {}", end.state()),
            _ => {}
        }
    }
    forever.close().await?;
    Ok(())
}

/// The first process: shows the answer, and kills the workers.
fn watch(kills: u32, seed: u64) -> anyhow::Result<()> {
    let dir = tempfile::Builder::new().prefix("forever-").tempdir()?;
    let mut prng = Prng::of_purpose(seed, "kills");
    let mut shown: Vec<String> = Vec::new();
    println!("> {QUESTION}\n");
    let mut left = kills;
    loop {
        let mut worker = Process::start(this_program()?.args(["--worker".as_ref(), dir.path().as_os_str()]))?;
        // Each worker dies a few chunks further on than the last one, or at once.
        let until = (left > 0).then(|| shown.len() + prng.below(10_usize));
        let mut ended = false;
        while let Some(line) = worker.line()? {
            if line.starts_with("end ") {
                ended = true;
                continue;
            }
            let (number, chunk) = line.split_once(' ').context("a line of the worker")?;
            let number: usize = number.parse()?;
            if let Some(there) = shown.get(number) {
                ensure!(there == chunk, "chunk {number} was `{there}` and is `{chunk}`");
            } else {
                ensure!(number == shown.len(), "chunk {number} follows chunk {}", shown.len());
                show(chunk)?;
                shown.push(chunk.to_owned());
            }
            if until.is_some_and(|until| shown.len() >= until) {
                break;
            }
        }
        if ended {
            ensure!(worker.wait()?.success(), "the last worker failed");
            break;
        }
        if worker.end().is_ok() {
            print!(" ✗ ");
            left = left.saturating_sub(1);
        }
    }
    println!("\n");
    audit(dir.path(), kills - left, &shown)
}

/// Shows a chunk as a person would see it.
fn show(chunk: &str) -> anyhow::Result<()> {
    let chunk: Value = serde_json::from_str(chunk)?;
    match chunk["type"].as_str().unwrap_or_default() {
        "text-delta" => print!("{}", chunk["delta"].as_str().unwrap_or_default()),
        "tool-input-available" => print!("\n  [{}({})", chunk["toolName"].as_str().unwrap_or_default(), chunk["input"]),
        "tool-output-available" => println!(" -> {}]", chunk["output"]),
        "tool-output-error" => println!(" -> {}]", chunk["errorText"]),
        _ => {}
    }
    std::io::stdout().flush()?;
    Ok(())
}

/// Compares the shown chunks with the stored ones.
#[tokio::main(flavor = "current_thread")]
async fn audit(dir: &Path, kills: u32, shown: &[String]) -> anyhow::Result<()> {
    let forever = builder(dir).sqlite(dir.join(DATABASE)).open().await?;
    let concierge = forever.agent::<Concierge>("table 7");
    let turn = concierge.turn("evening").await?.context("the turn is gone")?;
    let stored: Vec<String> = turn
        .entries()
        .await?
        .into_iter()
        .filter_map(|entry| if let Entry::Chunk(_, chunk) = entry { Some(chunk.json().to_owned()) } else { None })
        .collect();
    let lost = shown.iter().zip(&stored).filter(|(shown, stored)| shown != stored).count() + shown.len().saturating_sub(stored.len());
    let doubled = stored.len().saturating_sub(shown.len());
    let answer = concierge.messages().await?.pop().context("there is no answer")?.text();
    forever.close().await?;
    let lines = |name: &str| std::fs::read_to_string(dir.join(name)).map_or(0, |text| text.lines().count());
    let (bookings, asked) = (lines(BOOKINGS), lines(ASKED));
    let said = answer.ends_with(talkative_model::BOOKED) || answer.ends_with(talkative_model::UNKNOWN);
    ensure!(said, "the answer is not whole: {answer}");
    ensure!(bookings <= 1, "the table was booked {bookings} times");
    ensure!(asked <= 3 + kills as usize, "the model was asked {asked} times");
    ensure!(lost == 0 && doubled == 0, "{lost} chunks are lost, {doubled} are there twice");
    println!("kills={kills} shown={} lost={lost} doubled={doubled} bookings={bookings} asked={asked} result=ok", shown.len());
    Ok(())
}

fn main() -> ExitCode {
    let mut args = Args::of_program(USAGE);
    let dir: Option<PathBuf> = args.value("--worker", "a folder", |_| true);
    let kills = args.value("--kills", "a number from 0 to 50", |kills| *kills <= 50).unwrap_or(8);
    let seed = args.value("--seed", "a number", |_| true).unwrap_or(1);
    args.finish();
    let done = match dir {
        Some(dir) => work(&dir),
        None => watch(kills, seed),
    };
    exit_code(done.map(|()| true))
}

// A test kills it at every write.
#[cfg(test)]
#[path = "../tests/crash/examples/agent_loop.rs"]
mod crash;
