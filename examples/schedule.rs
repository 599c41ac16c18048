//! An agent with schedules: a delay, a cron pattern, an interval; one that fails, and one that is
//! due while no process runs.
//!
//! ```text
//! cargo run -p examples-http --example schedule
//! ```
//!
//! The program starts itself as a worker, a second process, in which its agent `kitchen` creates
//! schedules and runs them for a second, and kills it with SIGKILL. Two and a half seconds later,
//! in which a delay and several intervals fall due, it starts another worker. You see
//!
//! ```text
//! worker 1: every second (cron, 6 fields): clock
//! worker 1: after 200 ms: tea for Ada, attempt 1
//! worker 1: after 400 ms: toast, attempt 1: it burns
//! worker 1: after 400 ms: toast, attempt 2
//! worker 1: every 250 ms: stir
//! ..
//! worker 1 is killed
//! worker 2: 3 schedules are there: clock, stir, cake
//! worker 2: every 250 ms: stir
//! worker 2: after 3 s: cake, due while no process ran
//! ..
//! tea=1 toast=2 cake=1 schedules_left=2 (the repeating ones)
//! ```
//!
//! Each runs at least once for each time that is due: again if it fails (three attempts) or its
//! process dies. Missed runs are not repeated: after any number of missed intervals, one run
//! follows.
#![forbid(unsafe_code)]

#[path = "support/worker.rs"]
mod worker;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use forever::BoxError;
use forever::agent::{Agent, AgentHandle, Due, Schedule};
use forever::prelude::*;
use tokio::sync::Notify;

use forever_testkit::args::{Args, exit_code};
use worker::{Worker, say};

const USAGE: &str = "\
Lets an agent hear of its schedules, over the death of its process.

usage: schedule";

/// Prints each call of `on_schedule`.
struct Kitchen {
    me: AgentHandle<Kitchen>,
    cake: Arc<Notify>,
}

impl Agent for Kitchen {
    const CLASS: &'static str = "kitchen";
    type State = ();

    async fn on_start(&self) -> Result<(), BoxError> {
        // Cron and intervals are idempotent: created at the first start, and found at every other.
        self.me.schedule("* * * * * *", "clock", ()).await?;
        self.me.schedule_every(Duration::from_millis(250), "stir", ()).await?;
        Ok(())
    }

    async fn on_schedule(&self, due: &Due) -> Result<(), BoxError> {
        match due.name() {
            "clock" => say("every second (cron, 6 fields): clock"),
            "stir" => say("every 250 ms: stir"),
            "tea" => say(&format!("after 200 ms: tea for {}, attempt {}", due.payload::<String>()?, due.attempt())),
            "toast" if due.attempt() == 1 => {
                say("after 400 ms: toast, attempt 1: it burns");
                return Err("it burns".into());
            }
            "toast" => say(&format!("after 400 ms: toast, attempt {}", due.attempt())),
            "cake" => {
                say("after 3 s: cake, due while no process ran");
                self.cake.notify_one();
            }
            other => return Err(format!("no recipe for {other}").into()),
        }
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn work(dir: &Path, number: u32) -> anyhow::Result<()> {
    forever_testkit::process::end_with_parent();
    let cake = Arc::new(Notify::new());
    let of_agents = Arc::clone(&cake);
    let forever =
        Forever::builder().sqlite(dir.join("agents.db")).agent(move |me| Kitchen { me, cake: Arc::clone(&of_agents) }).open().await?;
    let kitchen = forever.agent::<Kitchen>("kitchen");
    if number == 1 {
        kitchen.wake().await?;
        kitchen.schedule(Duration::from_millis(200), "tea", "Ada").await?;
        kitchen.schedule(Duration::from_millis(400), "toast", ()).await?;
        kitchen.schedule(Duration::from_secs(3), "cake", ()).await?;
    } else {
        let there = kitchen.schedules().await?;
        let names: Vec<_> = there.iter().map(Schedule::name).collect();
        say(&format!("{} schedules are there: {}", there.len(), names.join(", ")));
    }
    cake.notified().await;
    // The first worker is killed before this line.
    tokio::time::sleep(Duration::from_millis(300)).await;
    forever.close().await?;
    Ok(())
}

fn program() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let mut first = Worker::start(dir.path(), 1)?;
    let mut lines = Vec::new();
    // At the second interval after the toast, its run is stored as done.
    for last in ["toast, attempt 2", "stir", "stir"] {
        lines.extend(first.lines_until(last)?);
    }
    first.kill()?;
    println!("worker 1 is killed");
    std::thread::sleep(Duration::from_millis(2500));
    let mut second = Worker::start(dir.path(), 2)?;
    lines.extend(second.lines_to_its_end()?);
    let times = |what: &str| lines.iter().filter(|line| line.contains(what)).count();
    let (tea, toast, cake) = (times("tea for"), times(": toast"), times(": cake, due"));
    let database = rusqlite::Connection::open(dir.path().join("agents.db"))?;
    let left: i64 = database.query_row("SELECT count(*) FROM schedules", (), |row| row.get(0))?;
    println!("tea={tea} toast={toast} cake={cake} schedules_left={left} (the repeating ones)");
    anyhow::ensure!((tea, toast, cake, left) == (1, 2, 1, 2), "that is not what was scheduled");
    Ok(())
}

fn main() -> ExitCode {
    let mut args = Args::of_program(USAGE);
    let role = Worker::role(&mut args);
    args.finish();
    let done = match role {
        Some((dir, number)) => work(&dir, number),
        None => program(),
    };
    exit_code(done.map(|()| true))
}

// A test kills it at every write.
#[cfg(test)]
#[path = "../tests/crash/examples/schedule.rs"]
mod crash;
