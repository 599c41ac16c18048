//! Running a fiber without a database, to a chosen checkpoint.
//!
//! A [`Stage`] holds the resources; [`Stage::play`] runs a fiber on it until it ends or until a given checkpoint has been
//! made, at which point it is dropped the way a killed process drops it: nothing of it goes on. The snapshots are the texts
//! that a database would hold.
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::fiber::drive::{Ended, drive};
use crate::fiber::frame::{BoxFuture, Checkpoint, Frame, OpRecord, Run, Sink, Stopped};
use crate::fiber::{Fiber, FiberContext, Needs, Resources, Snapshot};
use crate::{Error, ErrorKind};

/// Where a fiber is played: its resources.
///
/// It remembers what a database would: how many checkpoints led to each snapshot, and the records of unfinished operations.
#[derive(Debug, Default)]
pub struct Stage {
    resources: Resources,
    kept: Arc<Mutex<Kept>>,
}

/// What outlives a play.
#[derive(Debug, Default)]
struct Kept {
    /// The number of the checkpoint that made each snapshot.
    numbers: BTreeMap<String, u64>,
    ops: BTreeMap<String, OpRecord>,
}

/// Where a play begins.
#[derive(Debug)]
pub enum From<F> {
    /// At the start, with these arguments.
    Start(F),
    /// In the middle, from the text of a snapshot.
    Snapshot(String),
}

/// What a play came to.
#[derive(Debug)]
pub struct Played<T> {
    /// The snapshots made, in order.
    pub snapshots: Vec<String>,
    /// How it ended.
    pub outcome: Outcome<T>,
}

/// How a play ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome<T> {
    /// The function returned `Ok`.
    Completed(T),
    /// The function returned `Err`, panicked, or reached a value that cannot be saved; the text says which.
    Failed(String),
    /// The snapshot does not fit the code.
    Parked(String),
    /// It was killed after the checkpoint that was asked for.
    Killed,
}

impl Stage {
    /// A stage without resources.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a resource, found by its type.
    pub fn resource<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.resources.insert(value);
        self
    }

    /// Runs a fiber until it ends or, with `kill_after = Some(k)`, until its `k`-th checkpoint of this play (from 1) is stored.
    ///
    /// # Panics
    /// When the fiber needs a resource that the stage lacks, or the snapshot is not JSON.
    pub async fn play<F: Fiber>(&self, from: From<F>, kill_after: Option<usize>) -> Played<F::Output> {
        let mut needs = Needs::new(&self.resources);
        F::needs(&mut needs);
        assert!(needs.missing.is_empty(), "missing resources: {:?}", needs.missing);
        let tape = Arc::new(Tape { kill_after, snapshots: Mutex::default(), kept: Arc::clone(&self.kept) });
        let run = match &from {
            From::Start(_) => {
                *locked(&self.kept) = Kept::default();
                Run::first("test", tape.clone())
            }
            From::Snapshot(text) => {
                let made = locked(&self.kept).numbers.get(text).copied().unwrap_or_default();
                Run::again("test", tape.clone(), made)
            }
        };
        let ctx = FiberContext::new("test".to_owned(), self.resources.clone());
        let (start, frame) = match from {
            From::Start(invocation) => (Some(invocation), Ok(Frame::start(F::MACHINE, run.clone()))),
            From::Snapshot(text) => {
                let snapshot: Snapshot = serde_json::from_str(&text).expect("a snapshot is JSON");
                (None, Frame::resume(F::MACHINE, run.clone(), snapshot))
            }
        };
        let outcome = match frame {
            Err(why) => Outcome::Parked(why),
            Ok(frame) => match drive(start, &ctx, frame, &run).await {
                Ended::Returned(Ok(value)) => Outcome::Completed(value),
                Ended::Returned(Err(error)) => Outcome::Failed(error.into().to_string()),
                Ended::Panicked(message) => Outcome::Failed(format!("panicked: {message}")),
                Ended::Stopped(Stopped::Failed(why)) => Outcome::Failed(why),
                Ended::Stopped(Stopped::Parked(why)) => Outcome::Parked(why),
                Ended::Stopped(Stopped::Interrupted(_)) => Outcome::Killed,
            },
        };
        let snapshots = std::mem::take(&mut *locked(&tape.snapshots));
        Played { snapshots, outcome }
    }
}

/// Keeps the snapshots of a play and ends it when its time has come.
struct Tape {
    kill_after: Option<usize>,
    snapshots: Mutex<Vec<String>>,
    kept: Arc<Mutex<Kept>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sink for Tape {
    fn commit(&self, checkpoint: Checkpoint) -> BoxFuture<'_, Result<(), Error>> {
        let mut kept = locked(&self.kept);
        kept.numbers.insert(checkpoint.snapshot.clone(), checkpoint.number);
        if let Some(op) = &checkpoint.finished_op {
            kept.ops.remove(op);
        }
        let mut snapshots = locked(&self.snapshots);
        snapshots.push(checkpoint.snapshot);
        let killed = self.kill_after.is_some_and(|k| snapshots.len() >= k);
        Box::pin(async move { if killed { Err(Error::new(ErrorKind::Store, "killed by the test")) } else { Ok(()) } })
    }

    fn save_op(&self, record: OpRecord) -> BoxFuture<'_, Result<(), Error>> {
        locked(&self.kept).ops.insert(record.id.clone(), record);
        Box::pin(async { Ok(()) })
    }

    fn load_op<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<OpRecord>, Error>> {
        let record = locked(&self.kept).ops.get(id).cloned();
        Box::pin(async move { Ok(record) })
    }
}
