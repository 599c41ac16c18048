//! An agent that keeps itself alive while it works, and is woken after its process was killed.
//!
//! ```text
//! cargo run --example keep_alive
//! ```
//!
//! The program starts itself as a worker, a second process, and requests ten page copies of its
//! agent `copy`. It kills the worker with SIGKILL after the fourth. Then it starts another worker,
//! which requests nothing: the heartbeat that the first one left in the database makes the runtime
//! wake the agent, whose `on_start` continues from its state. You see
//!
//! ```text
//! worker 1: asks for ten pages
//! worker 1: page 1
//! ..
//! worker 1 is killed; a heartbeat is left in the database
//! worker 2: asks for nothing
//! worker 2: woken, 4 of 10 pages are there
//! worker 2: page 5
//! ..
//! pages=10 kills=1 woken_without_a_request=true heartbeats_left=0
//! ```
//!
//! A guard costs one row. Work that has to resume in the middle of a function belongs in a fiber,
//! which needs no guard.
#![forbid(unsafe_code)]

#[path = "support/worker.rs"]
mod worker;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use forever::BoxError;
use forever::agent::{Agent, AgentHandle, KeepAlive};
use forever::prelude::*;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use forever_testkit::args::{Args, exit_code};
use forever_testkit::folder::Folder;
use worker::{Worker, say};

const USAGE: &str = "\
Kills the process of an agent that keeps itself alive, and watches it go on.

usage: keep_alive";

const PAGES: u32 = 10;

/// Agent that copies pages.
struct Copyist {
    me: AgentHandle<Copyist>,
    done: std::sync::Arc<Notify>,
}

/// State of the agent.
#[derive(Default, Serialize, Deserialize)]
struct Desk {
    wanted: u32,
    copied: u32,
}

impl Agent for Copyist {
    const CLASS: &'static str = "copyist";
    type State = Desk;

    /// Runs whenever the agent is loaded, for any reason.
    async fn on_start(&self) -> Result<(), BoxError> {
        let desk = self.me.state().await?;
        if desk.copied < desk.wanted {
            say(&format!("woken, {} of {} pages are there", desk.copied, desk.wanted));
            self.work(self.me.keep_alive().await?);
        }
        Ok(())
    }
}

impl Copyist {
    /// Requests pages.
    async fn copy(&self, wanted: u32) -> Result<(), BoxError> {
        // The guard comes first. It is stored when this returns, and the agent is woken again if
        // the process dies from now on. In the other order a process could die in between, and no
        // later one would look at what is wanted.
        let guard = self.me.keep_alive().await?;
        self.me.set_state(&Desk { wanted, copied: 0 }).await?;
        self.work(guard);
        Ok(())
    }

    /// Works in a task of its own.
    fn work(&self, mut guard: KeepAlive) {
        let (me, done) = (self.me.clone(), self.done.clone());
        tokio::spawn(async move {
            let worked = async {
                let mut desk = me.state().await?;
                while desk.copied < desk.wanted {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    desk.copied += 1;
                    me.set_state(&desk).await?;
                    say(&format!("page {}", desk.copied));
                }
                guard.release().await
            };
            if let Err(why) = worked.await {
                say(&format!("stopped: {why}"));
            }
            done.notify_one();
        });
    }
}

#[tokio::main(flavor = "current_thread")]
async fn work(dir: &Path, number: u32) -> anyhow::Result<()> {
    forever_testkit::process::end_with_parent();
    let done = std::sync::Arc::new(Notify::new());
    let of_agents = done.clone();
    say(if number == 1 { "asks for ten pages" } else { "asks for nothing" });
    let forever = Forever::builder().sqlite(dir.join("agents.db")).agent(move |me| Copyist { me, done: of_agents.clone() }).open().await?;
    if number == 1 {
        forever.agent::<Copyist>("copy").wake().await?.copy(PAGES).await.map_err(anyhow::Error::from_boxed)?;
    }
    done.notified().await;
    forever.close().await?;
    Ok(())
}

fn program() -> anyhow::Result<()> {
    let dir = Folder::new()?;
    let mut first = Worker::start(dir.path(), 1)?;
    first.lines_until("page 4")?;
    first.kill()?;
    let left = heartbeats(dir.path())?;
    println!("worker 1 is killed; {}", if left == 1 { "a heartbeat is left in the database" } else { "NO HEARTBEAT IS LEFT" });
    let mut second = Worker::start(dir.path(), 2)?;
    let lines = second.lines_to_its_end()?;
    let woken = lines.iter().any(|line| line.starts_with("woken, "));
    let pages = lines.iter().rev().find_map(|line| line.strip_prefix("page ")).unwrap_or("0").to_owned();
    println!("pages={pages} kills=1 woken_without_a_request={woken} heartbeats_left={}", heartbeats(dir.path())?);
    anyhow::ensure!(left == 1 && woken && pages == PAGES.to_string(), "the agent did not go on");
    Ok(())
}

/// Number of heartbeats, read from the database without the library.
fn heartbeats(dir: &Path) -> anyhow::Result<i64> {
    let database = rusqlite::Connection::open(dir.join("agents.db"))?;
    Ok(database.query_row("SELECT count(*) FROM agents WHERE heartbeat_ms IS NOT NULL", (), |row| row.get(0))?)
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
#[path = "../tests/crash/examples/keep_alive.rs"]
mod crash;
