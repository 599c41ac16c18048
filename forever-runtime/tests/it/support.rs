//! What tests share: a probe inside fibers, databases in temporary folders, and runtimes over them.
use std::collections::HashMap;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use forever_runtime::{Builder, Clock, Forever, Retention};
use tempfile::TempDir;
use tokio::sync::{Semaphore, watch};

use crate::fibers::{Big, Outer, Three};

/// Seen by every step of the test fibers: keeps a log and does what the test has planned for a step.
#[derive(Clone, Default)]
pub struct Probe(Arc<Inner>);

#[derive(Default)]
struct Inner {
    log: watch::Sender<Vec<String>>,
    plans: Mutex<HashMap<String, Plan>>,
    /// Whether the process has died, as far as the steps can tell: none goes on.
    dead: watch::Sender<bool>,
}

#[derive(Clone)]
pub enum Plan {
    /// The step goes on when a permit is added.
    Hold(Arc<Semaphore>),
    Fail(String),
    Panic(String),
    /// The step keeps its thread until the channel has something for it or is gone.
    Block(Arc<Mutex<std::sync::mpsc::Receiver<()>>>),
    /// The process dies.
    Abort,
    /// The process dies as far as the steps can tell; the test drops the runtime.
    Die,
}

impl Probe {
    pub fn plan(&self, step: &str, plan: Plan) {
        self.0.plans.lock().unwrap().insert(step.to_owned(), plan);
    }

    /// Holds every run of a step until the semaphore has a permit for it.
    pub fn hold(&self, step: &str) -> Arc<Semaphore> {
        let gate = Arc::new(Semaphore::new(0));
        self.plan(step, Plan::Hold(Arc::clone(&gate)));
        gate
    }

    /// Lets a step keep its thread until the sender sends or goes.
    pub fn block(&self, step: &str) -> std::sync::mpsc::Sender<()> {
        let (free, blocked) = std::sync::mpsc::channel();
        self.plan(step, Plan::Block(Arc::new(Mutex::new(blocked))));
        free
    }

    pub fn clear(&self) {
        self.0.plans.lock().unwrap().clear();
        self.0.log.send_replace(Vec::new());
    }

    /// The body of a step: its value is the length of its name.
    pub async fn step(&self, step: &str) -> Result<u64, String> {
        self.0.log.send_modify(|log| log.push(step.to_owned()));
        if *self.0.dead.borrow() {
            std::future::pending::<()>().await;
        }
        let plan = self.0.plans.lock().unwrap().get(step).cloned();
        match plan {
            None => {}
            Some(Plan::Hold(gate)) => gate.acquire().await.unwrap().forget(),
            Some(Plan::Fail(why)) => return Err(why),
            Some(Plan::Panic(why)) => panic!("{why}"),
            Some(Plan::Block(blocked)) => {
                let _ = blocked.lock().unwrap().recv();
                self.note(format!("{step} is no longer blocked"));
            }
            Some(Plan::Abort) => std::process::abort(),
            Some(Plan::Die) => {
                self.0.dead.send_replace(true);
                std::future::pending::<()>().await;
            }
        }
        Ok(step.len() as u64)
    }

    /// Adds a line to the log.
    pub fn note(&self, line: impl Into<String>) {
        self.0.log.send_modify(|log| log.push(line.into()));
    }

    pub fn log(&self) -> Vec<String> {
        self.0.log.borrow().clone()
    }

    /// How often a line is in the log.
    pub fn times(&self, line: &str) -> usize {
        self.0.log.borrow().iter().filter(|s| *s == line).count()
    }

    /// Ready when a line is in the log so many times.
    pub async fn reached_times(&self, line: &str, times: usize) {
        self.0.log.subscribe().wait_for(|log| log.iter().filter(|s| *s == line).count() >= times).await.unwrap();
    }

    /// Ready when a step has been to [`Die`](Plan::Die).
    pub async fn died(&self) {
        self.0.dead.subscribe().wait_for(|dead| *dead).await.unwrap();
    }

    /// The next process begins.
    pub fn revive(&self) {
        self.0.dead.send_replace(false);
    }

    /// Ready when a step's body has been entered.
    pub async fn reached(&self, step: &str) {
        self.0.log.subscribe().wait_for(|log| log.iter().any(|s| s == step)).await.unwrap();
    }
}

/// A database file in a folder of its own.
pub struct Place {
    pub folder: TempDir,
}

impl Place {
    pub fn new() -> Self {
        Place { folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("fibers.db")
    }

    /// A runtime of the usual fibers over the file.
    pub fn builder(&self, probe: &Probe) -> Builder {
        usual(probe).sqlite(self.path())
    }

    pub async fn open(&self, probe: &Probe) -> Forever {
        self.builder(probe).open().await.unwrap()
    }

    /// A second pair of eyes on the file.
    pub fn sql(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.path()).unwrap()
    }

    pub fn text(&self, query: &str) -> Option<String> {
        self.sql().query_row(query, (), |r| r.get(0)).unwrap()
    }

    pub fn number(&self, query: &str) -> i64 {
        self.sql().query_row(query, (), |r| r.get(0)).unwrap()
    }
}

pub fn usual(probe: &Probe) -> Builder {
    // Without retention there is nothing that a runtime waits for by itself.
    Forever::builder().retention(Retention::forever()).resource(probe.clone()).fiber::<Three>().fiber::<Outer>().fiber::<Big>()
}

/// A clock that stands still: sleeps end when the test says so, ids count up.
#[derive(Debug, Clone)]
pub struct Still {
    ids: Arc<Mutex<u32>>,
    pub slept: Arc<Mutex<Vec<Duration>>>,
    /// One permit ends one sleep.
    pub wake: Arc<Semaphore>,
    asleep: watch::Sender<usize>,
}

impl Still {
    pub fn new() -> Self {
        Still { ids: Arc::default(), slept: Arc::default(), wake: Arc::new(Semaphore::new(0)), asleep: watch::Sender::new(0) }
    }

    /// Ready when so many sleeps have begun, in all.
    pub async fn asleep(&self, times: usize) {
        self.asleep.subscribe().wait_for(|n| *n >= times).await.unwrap();
    }
}

impl Clock for Still {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.slept.lock().unwrap().push(duration);
        self.asleep.send_modify(|n| *n += 1);
        let wake = Arc::clone(&self.wake);
        Box::pin(async move { wake.acquire().await.unwrap().forget() })
    }

    fn id(&self) -> String {
        let mut ids = self.ids.lock().unwrap();
        *ids += 1;
        format!("id-{ids:04}")
    }
}
