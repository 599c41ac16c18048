//! This test binary started again as another process, to be killed.
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use forever_runtime::{Error, Forever};
use forever_testkit::process::{Process, arguments_of, say, this_program};

use crate::fibers::three;
use crate::support::{Place, Plan, Probe, usual};

/// Starts a process that plays a role over a database.
pub fn start(role: &str, place: &Place) -> Process {
    start_by(role, &place.path(), this_program().unwrap())
}

/// Over a database of any name, by a command that runs this program.
pub fn start_by(role: &str, db: &Path, mut command: Command) -> Process {
    command.args(arguments_of("child::role")).env("FOREVER_ROLE", role).env("FOREVER_DB", db).stderr(Stdio::null());
    Process::start(&mut command).unwrap()
}

/// Not a test: what the child does.
#[test]
#[ignore = "started by other tests"]
fn role() {
    let (Ok(role), Ok(db)) = (std::env::var("FOREVER_ROLE"), std::env::var("FOREVER_DB")) else { return };
    let async_runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    async_runtime.block_on(async {
        let db = PathBuf::from(db);
        match role.as_str() {
            "own" => {
                let _forever = open(&db, &Probe::default()).await;
                say("open");
                std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
            }
            "own from elsewhere" => {
                let forever = open(&db, &Probe::default()).await;
                std::env::set_current_dir("/").unwrap();
                forever.run(three("a")).await.unwrap();
                say("open");
                std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
            }
            "try" => match usual(&Probe::default()).sqlite(&db).open().await {
                Ok(_) => say("opened"),
                Err(error) => say(format!("{:?}: {error}", error.kind())),
            },
            "write too much" => {
                let probe = Probe::default();
                let forever = open(&db, &probe).await;
                let large = "long".repeat(300_000);
                say(format!("spawn: {}", told(&forever.spawn(three(&large)).id("large").await.unwrap_err())));
                forever.spawn(three("small")).id("small").await.unwrap().wait().await.unwrap();
                let noted = probe.clone();
                let stashes = forever.spawn_closure("stashes", |ctx| async move {
                    ctx.stash("short").await?;
                    noted.note(told(&ctx.stash(&large).await.unwrap_err()));
                    std::future::pending::<Result<(), Error>>().await
                });
                let _running = tokio::spawn(stashes.into_future());
                probe.reached_times("small.end", 1).await;
                while probe.log().last().unwrap() == "small.end" {
                    tokio::task::yield_now().await;
                }
                say(format!("stash: {}", probe.log().last().unwrap()));
                say(format!("conflict: {:?}", forever.spawn(three("other")).id("small").await.unwrap_err().kind()));
                say(format!("there: {}", forever.fibers().await.unwrap().fibers.len()));
                std::future::pending::<()>().await;
            }
            "die in a step" => {
                let probe = Probe::default();
                probe.plan("a.two", Plan::Abort);
                let forever = open(&db, &probe).await;
                forever.spawn(three("a")).key("k").await.unwrap().wait().await.unwrap();
            }
            "die among others" => {
                let probe = Probe::default();
                probe.plan("killer.two", Plan::Abort);
                // They are under way when the process dies, until they are let in alone.
                for name in ["x.three", "y.three"] {
                    probe.hold(name);
                }
                let gate = probe.hold("killer.one");
                let forever = open(&db, &probe).await;
                for name in ["killer", "x", "y"] {
                    forever.spawn(three(name)).key(name).await.unwrap();
                }
                gate.add_permits(1);
                std::future::pending::<()>().await;
            }
            "leave nothing behind" => {
                let probe = Probe::default();
                probe.hold("a.one");
                let forever = open(&db, &probe).await;
                forever.spawn(three("a")).await.unwrap();
                probe.reached("a.one").await;
                assert_eq!(threads(), 2);
                drop(forever);
                // The kernel lists a thread a moment longer than it takes to join it.
                let gone = (0..100_000).any(|_| threads() == 0);
                assert!(gone);
                say("nothing left");
            }
            "keep an agent alive" => {
                let _forever = crate::agents::keep_alive_for_ever(&db).await;
                say("kept");
                std::future::pending::<()>().await;
            }
            "die in a schedule" => crate::agents::die_in_a_schedule(&db).await,
            "tell" => {
                crate::telling::tell(&db).await;
                say("told");
            }
            other => panic!("no such role: {other}"),
        }
    });
}

async fn open(db: &std::path::Path, probe: &Probe) -> Forever {
    usual(probe).sqlite(db).open().await.unwrap()
}

/// How many threads of ours this process has.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks
        .filter(|t| std::fs::read_to_string(t.as_ref().unwrap().path().join("comm")).is_ok_and(|name| name.starts_with("forever-")))
        .count()
}

fn told(error: &Error) -> String {
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |e| e.source());
    let retryable = if error.is_retryable() { "retryable" } else { "final" };
    format!("{:?}, {retryable}: {}", error.kind(), causes.map(ToString::to_string).collect::<Vec<_>>().join(": "))
}
