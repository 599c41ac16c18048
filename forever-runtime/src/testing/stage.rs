//! Runs a fiber without a database, to a chosen checkpoint.
//!
//! A [`Stage`] holds the resources. [`Stage::run`] runs a fiber on it until it ends, or until a
//! given checkpoint, where it is dropped as by a killed process. The snapshots are the texts that a
//! database would hold.
use std::any::{Any, TypeId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use crate::frame::activation::Frame;
use crate::frame::backend::{Checkpoint, RunBackend};
use crate::frame::context::FiberContext;
use crate::frame::fiber::Fiber;
use crate::frame::machine::Machine;
use crate::frame::poll::drive;
use crate::frame::resources::{Needs, Resources};
use crate::frame::run::Run;
use crate::frame::saved::ReturnValue;
use crate::frame::snapshot::Snapshot;
use crate::future::BoxFuture;
use crate::layout::rows::LeftUnder;
use crate::ops::known::Left;
use crate::ops::ledger::Ledger;
use crate::ops::memory::MemoryLedger;
use crate::runtime::exit::Exit;
use crate::store::{BranchResult, NewFiber, PendingMessage, SnapshotRows, StreamAppend, TopicPage};
use crate::{Error, ErrorKind, exact};

/// Stage on which fibers run without a database, to a chosen checkpoint.
///
/// It has their resources, and remembers what a database would: the number of checkpoints before
/// each snapshot, and the records of unfinished operations.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::fiber::Fiber;
/// use forever::testing::{Stage, StartFrom};
/// use std::fmt::Debug;
///
/// /// A fiber that is killed after any of its checkpoints has the same result.
/// async fn resumes_everywhere<F: Fiber>(stage: Stage, call: F)
/// where
///     F::Output: PartialEq + Debug,
/// {
///     let whole = stage.run(StartFrom::Start(call), None).await;
///     for snapshot in whole.snapshots {
///         let resumed = stage.run::<F>(StartFrom::Snapshot(snapshot), None).await;
///         assert_eq!(resumed.outcome, whole.outcome);
///     }
/// }
/// ```
#[derive(Debug, Default)]
pub struct Stage {
    resources: Resources,
    children: Children,
    kept: Arc<Mutex<Kept>>,
    on_kill: OnKill,
}

/// Runs a child.
type RunChild = dyn Fn(Stage, Box<dyn Any + Send>) -> BoxFuture<'static, Exit> + Send + Sync;

/// Functions that fibers may spawn, by stored name.
#[derive(Clone, Default)]
struct Children(BTreeMap<&'static str, (TypeId, Arc<RunChild>)>);

impl fmt::Debug for Children {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// What is called at a kill.
#[derive(Clone, Default)]
struct OnKill(Option<Arc<dyn Fn() + Send + Sync>>);

impl OnKill {
    fn call(&self) {
        self.0.iter().for_each(|called| called());
    }
}

impl fmt::Debug for OnKill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "OnKill(..)" } else { "OnKill" })
    }
}

/// State that outlives a run.
#[derive(Debug, Default)]
struct Kept {
    /// Stored data of each snapshot.
    made: BTreeMap<String, Made>,
    ledger: Arc<MemoryLedger>,
    /// Branch results, by the last checkpoint and the branch.
    branch_results: BTreeMap<(u64, String), String>,
    /// Sent messages, with number and topic.
    messages: Vec<(i64, String, String)>,
    /// Closed topics.
    closed: BTreeSet<String>,
    /// Children that were stored, all of which have ended.
    ended: BTreeMap<String, Exit>,
}

/// Stored data of a snapshot.
#[derive(Debug, Clone)]
struct Made {
    /// Number of its checkpoint.
    number: u64,
    text: String,
    beside: SnapshotRows,
}

/// Minimum length of a part: short, so that tests cover many.
const PART: usize = 24;

/// Starting point of a run.
///
/// See [`Stage`] for an example.
#[derive(Debug)]
pub enum StartFrom<F> {
    /// From the start, with these arguments.
    Start(F),
    /// From the start again, after an earlier run that was killed before its first checkpoint.
    Restart(F),
    /// From the text of a snapshot.
    Snapshot(String),
}

/// End of a run. Its checkpoints count from 1.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::fiber::Fiber;
/// use forever::testing::{Kill, Outcome, Stage, StartFrom};
///
/// /// The first step runs twice: the fiber dies between its body and its checkpoint.
/// async fn repeats_the_first_step<F: Fiber + Clone>(stage: Stage, call: F) {
///     let killed = stage.run_until(StartFrom::Start(call.clone()), Kill::Before(1)).await;
///     assert!(matches!(killed.outcome, Outcome::Killed));
///     let again = stage.run(StartFrom::Restart(call), None).await;
///     assert!(matches!(again.outcome, Outcome::Completed(_)));
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kill {
    /// Runs to its end.
    Never,
    /// Right after this checkpoint is stored.
    After(usize),
    /// Right before this checkpoint is stored: the body of its step has run.
    Before(usize),
    /// Right before this attempt of a step with `retry`, of those outside of `steps!`: the fiber
    /// leaves memory as in a long pause, with a snapshot of its own, and is
    /// [waiting](Outcome::Waiting).
    AtAttempt(usize),
}

/// Result of a run.
///
/// See [`Stage`] for an example.
#[derive(Debug)]
pub struct StageRun<T> {
    /// The snapshots made, in order.
    pub snapshots: Vec<String>,
    /// How it ended.
    pub outcome: Outcome<T>,
}

/// Outcome of a run.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::fiber::Fiber;
/// use forever::testing::{Outcome, Stage, StartFrom};
///
/// async fn result<F: Fiber>(stage: &Stage, call: F) -> F::Output {
///     match stage.run(StartFrom::Start(call), None).await.outcome {
///         Outcome::Completed(value) => value,
///         Outcome::Failed(why) | Outcome::Parked(why) => panic!("{why}"),
///         Outcome::Killed | Outcome::Waiting => panic!("it has not ended"),
///     }
/// }
/// ```
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome<T> {
    /// The function returned `Ok`.
    Completed(T),
    /// The function returned `Err`, panicked, or reached a value that cannot be saved; the text
    /// says which.
    Failed(String),
    /// The snapshot does not fit the code.
    Parked(String),
    /// It was killed at the chosen checkpoint.
    Killed,
    /// It waits for a message that was not sent.
    Waiting,
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

    /// Registers `F`, so that fibers can `spawn!` it.
    ///
    /// A child runs to its end, on a stage with the same resources, when the checkpoint that stores
    /// it is made. It is never killed.
    pub fn fiber<F: Fiber>(mut self) -> Self {
        let run = |stage: Stage, call: Box<dyn Any + Send>| -> BoxFuture<'static, Exit> {
            Box::pin(async move {
                let call = call.downcast::<F>().expect("a child is found by its type");
                match stage.run(StartFrom::Start(*call), None).await.outcome {
                    Outcome::Completed(value) => Exit::Completed(value.__saved().save().expect("a result can be saved").into()),
                    Outcome::Failed(why) => Exit::failed(why),
                    Outcome::Parked(why) => Exit::parked(why),
                    Outcome::Killed | Outcome::Waiting => Exit::interrupted(Error::new(ErrorKind::Setup, "it waits")),
                }
            })
        };
        self.children.0.insert(F::MACHINE.name, (TypeId::of::<F>(), Arc::new(run)));
        self
    }

    /// Calls a function at each kill, and where a fiber leaves memory.
    ///
    /// The destructors of what the body holds run after it; in a process that dies they would not.
    pub fn on_kill(mut self, called: impl Fn() + Send + Sync + 'static) -> Self {
        self.on_kill = OnKill(Some(Arc::new(called)));
        self
    }

    /// Sends a message, as `forever.send` does.
    ///
    /// It is pending for all later runs, until one has received it.
    ///
    /// # Panics
    /// When the value cannot be saved.
    pub fn send<V: Serialize + ?Sized>(&self, topic: &str, value: &V) {
        let data = exact::to_string(value).expect("a message can be saved");
        let mut kept = locked(&self.kept);
        let seq = kept.messages.last().map_or(1, |(seq, ..)| seq + 1);
        kept.messages.push((seq, topic.to_owned(), data));
    }

    /// Runs a fiber until it ends, or until a chosen checkpoint is stored.
    ///
    /// With `kill_after = Some(k)` that is the `k`-th checkpoint of this run, from 1.
    ///
    /// # Panics
    /// When the fiber needs a resource that the stage lacks, or the snapshot is not JSON.
    pub async fn run<F: Fiber>(&self, from: StartFrom<F>, kill_after: Option<usize>) -> StageRun<F::Output> {
        self.run_until(from, kill_after.map_or(Kill::Never, Kill::After)).await
    }

    /// Runs a fiber until it ends or is killed.
    ///
    /// # Panics
    /// When the fiber needs a resource that the stage lacks, or the snapshot is not JSON.
    pub async fn run_until<F: Fiber>(&self, from: StartFrom<F>, kill: Kill) -> StageRun<F::Output> {
        let mut needs = Needs::new(&self.resources);
        F::needs(&mut needs);
        assert!(needs.missing.is_empty(), "missing resources: {:?}", needs.missing);
        let (start, from) = match from {
            StartFrom::Start(invocation) => (Some(invocation), StartFrom::Start(())),
            StartFrom::Restart(invocation) => (Some(invocation), StartFrom::Restart(())),
            StartFrom::Snapshot(text) => (None, StartFrom::Snapshot(text)),
        };
        let (tape, run, frame) = self.begin(F::MACHINE, &from, kill);
        let ctx = FiberContext::new("test".to_owned(), self.resources.clone(), &run);
        let outcome = match frame {
            Err(why) => Outcome::Parked(why),
            Ok(frame) => match drive(start, &ctx, frame, &run).await {
                Ok(Ok(value)) => Outcome::Completed(value),
                Ok(Err(error)) => Outcome::Failed(error.into().to_string()),
                Err(Exit::Parked(why) | Exit::StoredAsParked(why) | Exit::Unfit(why) | Exit::Unreadable { why, .. }) => {
                    Outcome::Parked(why.to_string())
                }
                Err(Exit::Waiting(_)) => Outcome::Waiting,
                Err(Exit::Interrupted(_)) => Outcome::Killed,
                Err(Exit::Failed(why)) => Outcome::Failed(why.to_string()),
                Err(exit) => Outcome::Failed(exit.word().to_owned()),
            },
        };
        let snapshots = std::mem::take(&mut *locked(&tape.snapshots));
        StageRun { snapshots, outcome }
    }

    /// A run, not yet begun; `Err` in place of its frame where the snapshot does not fit.
    fn begin(&self, machine: &'static Machine, from: &StartFrom<()>, kill: Kill) -> (Arc<Tape>, Arc<Run>, Result<Frame, String>) {
        let made = match from {
            StartFrom::Start(()) => {
                let messages = std::mem::take(&mut locked(&self.kept).messages);
                *locked(&self.kept) = Kept { messages, ..Kept::default() };
                None
            }
            StartFrom::Restart(()) => None,
            StartFrom::Snapshot(text) => {
                let made = locked(&self.kept).made.get(text).cloned();
                Some(made.unwrap_or_else(|| Made { number: 0, text: text.clone(), beside: SnapshotRows::default() }))
            }
        };
        let beside = Mutex::new(made.as_ref().map(|made| made.beside.clone()).unwrap_or_default());
        let ledger = Arc::clone(&locked(&self.kept).ledger);
        let (resources, children) = (self.resources.clone(), self.children.clone());
        let attempts = AtomicUsize::new(0);
        let tape = Arc::new(Tape {
            kill,
            attempts,
            snapshots: Mutex::default(),
            beside,
            kept: Arc::clone(&self.kept),
            ledger,
            resources,
            children,
            on_kill: self.on_kill.clone(),
        });
        let run = if let StartFrom::Start(()) = from {
            Run::first("test", tape.clone(), false)
        } else {
            let checkpoints = made.as_ref().map_or(0, |made| made.number);
            let ops = tape.ledger.since(checkpoints);
            let kept = locked(&self.kept);
            let since = kept.branch_results.iter().filter(|((at, _), _)| *at == checkpoints);
            let under = LeftUnder::with_results(since.map(|((_, branch), data)| (branch.clone(), data.clone())).collect());
            drop(kept);
            Run::again("test", tape.clone(), Left { checkpoints, ops, under, ..Left::default() })
        };
        run.kept().part_from(PART);
        let Some(made) = made else { return (tape, Arc::clone(&run), Ok(Frame::start(machine, run))) };
        let mut snapshot: Snapshot = serde_json::from_str(&made.text).expect("a snapshot is JSON");
        let whole = snapshot.put_back(&made.beside);
        run.kept().resume(&made.text, made.beside);
        let frame = whole.and_then(|()| Frame::resume(machine, Arc::clone(&run), snapshot));
        (tape, run, frame)
    }
}

/// Stores the snapshots of a run, and ends it at the chosen checkpoint.
struct Tape {
    kill: Kill,
    /// Attempts so far of steps with `retry`.
    attempts: AtomicUsize,
    snapshots: Mutex<Vec<String>>,
    /// Rows beside the last snapshot.
    beside: Mutex<SnapshotRows>,
    kept: Arc<Mutex<Kept>>,
    ledger: Arc<MemoryLedger>,
    resources: Resources,
    children: Children,
    on_kill: OnKill,
}

impl Tape {
    /// Runs the children that a checkpoint has stored.
    async fn run_children(&self, children: Vec<(NewFiber, Box<dyn Any + Send>)>) {
        for (new, call) in children {
            let stage = Stage {
                resources: self.resources.clone(),
                children: self.children.clone(),
                kept: Arc::default(),
                on_kill: OnKill::default(),
            };
            let Some((_, run)) = self.children.0.get(&*new.name) else { continue };
            let end = run(stage, call).await;
            locked(&self.kept).ended.insert(new.id, end);
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RunBackend for Tape {
    fn commit(&self, checkpoint: Checkpoint) -> BoxFuture<'_, Result<(), Error>> {
        let killed = || -> BoxFuture<'_, Result<(), Error>> {
            Box::pin(async {
                self.on_kill.call();
                Err(Error::new(ErrorKind::Store, "killed by the test"))
            })
        };
        let made = locked(&self.snapshots).len();
        if let Kill::Before(k) = self.kill
            && made + 1 >= k
        {
            return killed();
        }
        let mut kept = locked(&self.kept);
        let mut beside = locked(&self.beside);
        beside.apply(&checkpoint.delta, &checkpoint.streams);
        let whole = crate::frame::tracker::fill(&beside, &checkpoint.snapshot);
        kept.made.insert(whole.clone(), Made { number: checkpoint.number, text: checkpoint.snapshot, beside: beside.clone() });
        if !checkpoint.replaces {
            kept.ledger.pass(&checkpoint.ops);
        }
        if checkpoint.outbox.joined {
            kept.branch_results.clear();
        }
        let received = checkpoint.outbox.received;
        kept.messages.retain(|(seq, ..)| !received.contains(seq));
        kept.closed.extend(checkpoint.outbox.closed);
        locked(&self.snapshots).push(whole);
        let is_killed = matches!(self.kill, Kill::After(k) if made + 1 >= k);
        let children = checkpoint.outbox.children;
        Box::pin(async move {
            self.run_children(children).await;
            if is_killed { killed().await } else { Ok(()) }
        })
    }

    fn pauses(&self) -> bool {
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed) + 1;
        let is_killed = self.kill == Kill::AtAttempt(attempt);
        if is_killed {
            self.on_kill.call();
        }
        is_killed
    }

    fn child(&self, name: &'static str, function: TypeId, args: String) -> Result<NewFiber, Error> {
        if self.children.0.get(name).is_none_or(|(known, _)| *known != function) {
            return Err(Error::new(ErrorKind::Setup, format!("fiber `{name}` is not known: add it with `Stage::fiber`")));
        }
        let id = format!("child {}", locked(&self.kept).ended.len() + 1);
        let name = name.to_owned();
        let (key, metadata, agent, parent, worker) = (None, None, None, None, None);
        Ok(NewFiber { id, name, key, id_given: false, closure: false, args, metadata, agent, parent, worker, now_ms: 0 })
    }

    fn ended<'a>(&'a self, fiber: &'a str) -> BoxFuture<'a, Result<Option<Exit>, Error>> {
        let end = locked(&self.kept).ended.get(fiber).cloned();
        Box::pin(async move { Ok(end) })
    }

    fn save_branch(&self, number: u64, result: BranchResult, _: Vec<StreamAppend>) -> BoxFuture<'_, Result<(), Error>> {
        locked(&self.kept).branch_results.insert((number, result.branch), result.data);
        Box::pin(async { Ok(()) })
    }

    fn topic<'a>(&'a self, topic: &'a str, after: i64, limit: u32) -> BoxFuture<'a, Result<TopicPage, Error>> {
        let kept = locked(&self.kept);
        let of_topic = kept.messages.iter().filter(|(seq, t, _)| t == topic && *seq > after).take(limit as usize);
        let message =
            |(seq, topic, data): &(i64, String, String)| PendingMessage { seq: *seq, topic: topic.clone(), data: data.clone(), sent_ms: 0 };
        let page = TopicPage { messages: of_topic.map(message).collect(), closed: kept.closed.contains(topic) };
        Box::pin(async move { Ok(page) })
    }

    fn ledger(&self) -> &dyn Ledger {
        &*self.ledger
    }
}
