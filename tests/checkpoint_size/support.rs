//! A database file, a world in which steps can be held, and looks into the tables.
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use forever::fiber::{Fiber, History};
use forever::testing::{Stage, StartFrom};
use forever::{Builder, Durability, Forever};
use serde_json::Value;
use tokio::sync::watch;

/// Counts the steps that were entered and holds the fiber before the one whose turn it is.
#[derive(Clone, Debug)]
pub(crate) struct World(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// How many steps may pass, over all runs.
    open: watch::Sender<usize>,
    entered: watch::Sender<usize>,
    done: Mutex<Vec<String>>,
}

impl World {
    /// One in which `open` steps may pass.
    pub(crate) fn new(open: usize) -> Self {
        World(Arc::new(Inner { open: watch::Sender::new(open), entered: watch::Sender::new(0), done: Mutex::default() }))
    }

    /// A step: passes when it may.
    pub(crate) async fn step<T>(&self, value: T) -> anyhow::Result<T> {
        let turn = *self.0.entered.borrow();
        self.0.entered.send_modify(|n| *n += 1);
        self.0.open.subscribe().wait_for(|open| turn < *open).await?;
        Ok(value)
    }

    /// A step that says that it was done.
    pub(crate) async fn did(&self, what: impl Into<String>) -> anyhow::Result<()> {
        self.step(()).await?;
        self.0.done.lock().unwrap().push(what.into());
        Ok(())
    }

    pub(crate) fn done(&self) -> Vec<String> {
        self.0.done.lock().unwrap().clone()
    }

    /// Lets more steps pass.
    pub(crate) fn open(&self, more: usize) {
        self.0.open.send_modify(|n| *n += more);
    }

    /// Ready when a step is held: all that were open have been passed, and their checkpoints stored.
    pub(crate) async fn held(&self) {
        self.entered(*self.0.open.borrow() + 1).await;
    }

    pub(crate) async fn entered(&self, times: usize) {
        self.0.entered.subscribe().wait_for(|n| *n >= times).await.unwrap();
    }

    /// The process of the fiber has died in a step: the step that was held is entered again.
    pub(crate) fn died(&self) {
        self.0.entered.send_modify(|n| *n -= 1);
    }
}

/// A database file in a folder of its own.
pub(crate) struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Place { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("kept.db")
    }

    pub(crate) fn builder<F: Fiber>(&self, world: &World) -> Builder {
        Forever::builder().resource(world.clone()).fiber::<F>().sqlite(self.path()).history(History::off()).durability(Durability::Process)
    }

    pub(crate) async fn open<F: Fiber>(&self, world: &World) -> Forever {
        self.builder::<F>(world).open().await.unwrap()
    }

    /// A second pair of eyes on the file.
    pub(crate) fn sql(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.path()).unwrap()
    }

    pub(crate) fn number(&self, query: &str) -> i64 {
        self.sql().query_row(query, (), |row| row.get(0)).unwrap()
    }

    pub(crate) fn text(&self, query: &str) -> String {
        self.sql().query_row(query, (), |row| row.get(0)).unwrap()
    }

    pub(crate) fn texts(&self, query: &str) -> Vec<String> {
        self.sql().prepare(query).unwrap().query_map((), |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }

    pub(crate) fn change(&self, statement: &str) -> usize {
        self.sql().execute(statement, ()).unwrap()
    }

    /// The one fiber's snapshot as a document.
    pub(crate) fn document(&self) -> Value {
        let text = self.text("SELECT document FROM snapshot_documents");
        serde_json::from_str(&text).unwrap_or_else(|why| panic!("{why}: {text}"))
    }

    pub(crate) fn items(&self) -> i64 {
        self.number("SELECT coalesce(sum(count), 0) FROM stream_log WHERE name LIKE 'log/%'")
    }
}

/// What became of a fiber that was killed at checkpoints.
pub(crate) struct Killed<T> {
    pub(crate) value: T,
    /// The document at each checkpoint.
    pub(crate) documents: Vec<Value>,
    pub(crate) done: Vec<String>,
}

/// Runs a fiber over a file; kills it after every checkpoint if `kill`, and looks at its document there.
pub(crate) async fn run<F: Fiber>(call: F, kill: bool) -> Killed<F::Output> {
    let (place, world) = (Place::new(), World::new(0));
    let mut forever = Some(place.open::<F>(&world).await);
    forever.as_ref().unwrap().spawn(call).id("f").await.unwrap();
    let mut documents = Vec::new();
    world.held().await;
    loop {
        if kill {
            forever.take();
            world.died();
            forever = Some(place.open::<F>(&world).await);
        }
        let handle = forever.as_ref().unwrap().fiber::<F>("f");
        world.open(1);
        tokio::select! {
            biased;
            ended = handle.wait() => {
                let value = ended.unwrap();
                for table in ["snapshots", "parts", "streams", "stream_chunks"] {
                    assert_eq!(place.number(&format!("SELECT count(*) FROM {table}")), 0, "{table} of a fiber that has completed");
                }
                return Killed { value, documents, done: world.done() };
            }
            () = world.held() => documents.push(place.document()),
        }
    }
}

/// The same end, effects and documents with and without kills.
pub(crate) async fn same<F: Fiber<Output: PartialEq + Debug>>(call: impl Fn() -> F) -> Killed<F::Output> {
    let (whole, killed) = (run(call(), false).await, run(call(), true).await);
    assert_eq!(whole.value, killed.value);
    assert_eq!(whole.done, killed.done);
    assert_eq!(whole.documents, killed.documents);
    // A checkpoint that is followed by another one at once is not seen in the file.
    let mut staged = staged(call).await.into_iter();
    for document in &whole.documents {
        assert!(staged.any(|snapshot| snapshot == *document), "not a snapshot of the stage: {document}");
    }
    whole
}

/// The snapshots of a fiber without a database, which resumes at each of them, from what a database would hold and from the text.
async fn staged<F: Fiber<Output: PartialEq + Debug>>(call: impl Fn() -> F) -> Vec<Value> {
    let stage = || Stage::new().resource(World::new(usize::MAX));
    let whole = stage().run(StartFrom::Start(call()), None).await;
    for k in 1..=whole.snapshots.len() {
        let first = stage();
        let killed = first.run(StartFrom::Start(call()), Some(k)).await;
        assert_eq!(killed.snapshots, whole.snapshots[..k]);
        for resuming in [first, stage()] {
            let resumed = resuming.run(StartFrom::<F>::Snapshot(whole.snapshots[k - 1].clone()), None).await;
            assert_eq!(resumed.outcome, whole.outcome, "resumed after checkpoint {k}");
            assert_eq!(resumed.snapshots, whole.snapshots[k..], "resumed after checkpoint {k}");
        }
    }
    whole.snapshots.iter().map(|text| serde_json::from_str(text).unwrap()).collect()
}
