//! Runs of versions on real files.
use std::fmt::Debug;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use forever::fiber::{Fiber, FiberError, FiberState, FiberStatus};
use forever::layout::{Layout, Verdict};
use forever::testing::VirtualClock;
use forever::{Builder, Durability, Forever};
use forever_testkit::database::{self, Database};

use crate::io::{Hangs, Io};
use crate::oracle::message;
use crate::state::{How, Stop};

const ID: &str = "the-fiber";
/// How often a fiber that neither ends nor waits is looked at, a millisecond apart: on Postgres until the lease of a worker is over, for which
/// effects in doubt wait.
fn looks_at_most() -> u32 {
    if database::is_in_postgres() { 50_000 } else { 10_000 }
}
/// How many waits a fiber is helped out of before it counts as one that waits without end.
const HELPED: u32 = 60;

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;
type Spawn = Box<dyn for<'a> Fn(&'a Forever) -> Boxed<'a, ()>>;

/// The compiled code of one program.
pub(crate) struct Version {
    register: fn(Builder) -> Builder,
    spawn: Spawn,
    wait: for<'a> fn(&'a Forever) -> Boxed<'a, Result<i64, FiberError>>,
    status: for<'a> fn(&'a Forever) -> Boxed<'a, FiberStatus>,
    layouts: fn() -> Vec<Layout>,
}

/// What came of a fiber.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    Completed(i64),
    Parked(String),
    Failed(String),
    Waits,
}

impl Version {
    pub(crate) fn of<W, A, B>(call: impl Fn() -> W + 'static) -> Self
    where
        W: Fiber<Output = i64>,
        A: Fiber,
        B: Fiber,
    {
        let call = std::rc::Rc::new(call);
        Version {
            register: |builder| builder.fiber::<W>().fiber::<A>().fiber::<B>().fiber::<crate::versions::child>(),
            spawn: Box::new(move |forever| {
                let call = call();
                Box::pin(async move { drop(forever.spawn(call).id(ID).await.unwrap()) })
            }),
            wait: |forever| Box::pin(async move { forever.fiber::<W>(ID).wait().await }),
            status: |forever| Box::pin(async move { forever.fiber::<W>(ID).status().await.unwrap() }),
            layouts: || vec![forever::layout::of::<W>(), forever::layout::of::<A>(), forever::layout::of::<B>()],
        }
    }

    /// Whether this code says that it resumes everything of the other.
    pub(crate) fn can_resume(&self, old: &Version) -> bool {
        (self.layouts)().iter().zip((old.layouts)()).all(|(now, before)| now.can_resume(&before).is_ok())
    }

    /// Whether `layout::check!` says that everything is safe, in a repository that has the layouts of the other.
    pub(crate) fn is_safe_after(&self, old: &Version) -> bool {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("forever.layouts.json");
        let mut layouts: serde_json::Map<_, _> =
            (old.layouts)().into_iter().map(|layout| (layout.fiber().to_owned(), serde_json::to_value(&layout).unwrap())).collect();
        let child = forever::layout::of::<crate::versions::child>();
        layouts.insert(child.fiber().to_owned(), serde_json::to_value(&child).unwrap());
        std::fs::write(&path, serde_json::json!({ "layouts": layouts }).to_string()).unwrap();
        let said = Builder::__check_layouts((self.register)(Forever::builder()), &path).err().unwrap_or_default();
        assert!(said.is_empty() || said.contains("are not those in"), "{said}");
        !["will be parked", "is gone: its fibers", "need `migrate`"].iter().any(|what| said.contains(what))
    }

    fn builder(&self, path: &Path, io: &Io, clock: &VirtualClock) -> Builder {
        let builder = Forever::builder().sqlite(path).durability(Durability::Process).clock(clock.clone()).resource(io.clone());
        (self.register)(builder)
    }

    /// Runs a new fiber, or the one of the file, to a stop, and leaves a copy of the file as it is then.
    pub(crate) async fn bring(&self, from: Option<&Path>, stop: &Stop, to: &Path, clock: &VirtualClock) -> Result<(), String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fibers.db");
        if let Some(from) = from {
            database::copy(from, &path).await;
            end_lease(&path);
        }
        let hangs = if let How::Hangs(hangs) = stop.how { hangs } else { Hangs::Never };
        let io = Io::new(hangs, stop.how == How::WaitsForChild);
        let forever = self.builder(&path, &io, clock).open().await.unwrap();
        if from.is_none() {
            (self.spawn)(&forever).await;
        }
        for topic in &stop.received {
            _ = forever.send(ID, topic, &message(topic)).await;
        }
        let database = Database::open(&path);
        let stored = || database.number("SELECT count(*) FROM branch_results");
        // The record of an effect is stored before its body begins; of several side by side one may come later.
        let begun = || database.number("SELECT count(*) FROM op_ledger WHERE kind = 'effect' AND state = 'started'");
        let in_doubt = stop.state.in_doubt.len();
        let mut looks = 0;
        loop {
            let status = (self.status)(&forever).await;
            let waits = status.state == FiberState::Waiting;
            let there = match stop.how {
                How::Hangs(_) => {
                    io.hangs() && usize::try_from(stored()) == Ok(stop.state.results.len()) && usize::try_from(begun()) == Ok(in_doubt)
                }
                How::Waits | How::WaitsForChild => waits,
            };
            if there {
                break;
            }
            if waits && stop.slept {
                clock.advance(Duration::from_secs(3600));
            }
            looks += 1;
            if looks > looks_at_most()
                || !matches!(status.state, FiberState::Pending | FiberState::Running | FiberState::Waiting | FiberState::Interrupted)
            {
                return Err(format!("it did not come to {:?}: {status:?}, {:?}", stop.how, io.log()));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        if io.log() != stop.log {
            return Err(format!("until {:?}: {:?} in place of {:?}", stop.how, io.log(), stop.log));
        }
        if database::is_in_postgres() {
            drop(forever);
            database::end_sessions(&path).await;
            database::copy(&path, to).await;
            database::remove(&path).await;
        } else {
            forever.backup(to).await.unwrap();
            drop(forever);
        }
        Ok(())
    }

    /// Runs the fiber of a file to its end: what came of it, which calls were answered, and what was said before.
    pub(crate) async fn finish(&self, path: &Path, topics: &[String], clock: &VirtualClock) -> (End, Vec<String>, Verdict) {
        end_lease(path);
        let io = Io::new(Hangs::Never, false);
        let check = self.builder(path, &io, clock).check().await.unwrap();
        let verdict = check.entries.iter().find(|entry| entry.function == "work").expect("the fiber is unfinished").verdict.clone();
        let forever = self.builder(path, &io, clock).open().await.unwrap();
        let end = self.end(&forever, topics, clock).await;
        forever.close().await.unwrap();
        (end, io.log(), verdict)
    }

    /// Runs the fiber to its end by this code and by another one, whose workers are alive at the same time.
    pub(crate) async fn finish_beside(&self, other: &Version, path: &Path, topics: &[String], clock: &VirtualClock) -> (End, Vec<String>) {
        end_lease(path);
        let io = Io::new(Hangs::Never, false);
        let first = other.builder(path, &io, clock).open().await.unwrap();
        let second = self.builder(path, &io, clock).open().await.unwrap();
        let end = self.end(&second, topics, clock).await;
        second.close().await.unwrap();
        first.close().await.unwrap();
        (end, io.log())
    }

    async fn end(&self, forever: &Forever, topics: &[String], clock: &VirtualClock) -> End {
        tokio::select! {
            biased;
            end = (self.wait)(forever) => match end {
                Ok(result) => End::Completed(result),
                Err(error) if error.is_parked() => End::Parked(error.reason().to_owned()),
                Err(error) => End::Failed(error.to_string()),
            },
            () = self.help(forever, topics, clock) => End::Waits,
        }
    }

    /// Sends a fiber that waits what it may wait for, and lets time pass. Ready when that does not help.
    async fn help(&self, forever: &Forever, topics: &[String], clock: &VirtualClock) {
        let mut looks = 0;
        let mut helped = 0;
        while looks < looks_at_most() && helped < HELPED {
            tokio::time::sleep(Duration::from_millis(1)).await;
            looks += 1;
            if (self.status)(forever).await.state == FiberState::Waiting {
                helped += 1;
                for topic in topics {
                    _ = forever.send(ID, topic, &message(topic)).await;
                }
                clock.advance(Duration::from_secs(3600));
            }
        }
    }
}

/// On Postgres effects in doubt wait until the lease of the worker that began them is over.
fn end_lease(path: &Path) {
    if database::is_in_postgres() {
        Database::open(path).run("UPDATE snapshots SET leased_until = NULL");
    }
}

/// What is stored of the fiber, for people.
pub(crate) fn snapshot(path: &Path) -> String {
    let rows = Database::open(path).rows(&format!("SELECT data FROM snapshots JOIN fibers ON fiber = seq WHERE id = '{ID}'"));
    rows.into_iter().next().and_then(|mut row| row.remove(0)).unwrap_or_else(|| "no checkpoint".to_owned())
}
