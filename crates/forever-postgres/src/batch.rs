//! Group commit: writes that are queued together share a statement, and so a commit.
//!
//! One task takes everything that is queued. A statement has its rows in arrays and joins them with
//! the claims, so that a row whose claim is lost is left out and the other rows are written. It
//! says which rows it wrote. The missing ones, and all writes of a batch that failed, are then
//! written one by one, which gives each its own error. A batch has at most one write of each fiber.
//!
//! Writes of running activations have one queue, and begins and ends of fibers another one, so that
//! none waits for a slower kind.
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use forever_store::{
    AcceptResult, BoxFuture, Claim, End, Error, LayoutRow, NewFiber, NewSnapshot, OpOutcome, OpRecord, OpState, OpsDelta, Result, Seq,
    StreamAppend, StreamBatch, StreamsDelta, TurnSeq, TurnWrite,
};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::call::{Kind, Shared, Work, is_of_row};
use crate::grouped::{self, Checkpoint, Chunks, Ended, Started};
use crate::notify::CHANGED;
use crate::places::Places;
use crate::{chat, fibers, layouts, ops};

/// Most writes that share a statement.
const MOST: usize = 1000;

/// Number of writes that may be queued; further callers wait for a place.
const QUEUE: usize = 4 * MOST;

/// Most bytes of text that share a statement.
const MOST_BYTES: usize = 4 << 20;

/// A write, and the channel on which its caller waits. Large arguments are boxed, because a write
/// is moved from queue to queue.
#[derive(Debug)]
struct Job<A, T> {
    args: A,
    answer: oneshot::Sender<Result<T>>,
}

/// A queued write.
#[derive(Debug)]
enum Queued {
    Checkpoint(Job<Checkpoint, Vec<Claim>>),
    Started(Job<Started, ()>),
    Chunks(Job<Chunks, TurnWrite>),
    Accept(Job<Box<NewFiber>, AcceptResult>),
    End(Job<Ended, End>),
}

impl Queued {
    /// The fiber that it changes; `None` for one that does not exist yet.
    fn fiber(&self) -> Option<Seq> {
        match self {
            Queued::Checkpoint(job) => Some(job.args.claim.fiber),
            Queued::Started(job) => Some(job.args.0.fiber),
            Queued::Chunks(job) => Some(job.args.0.fiber),
            Queued::Accept(_) => None,
            Queued::End(job) => Some(job.args.0.fiber),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Queued::Checkpoint(job) => job.args.new.data.len() + job.args.new.streams.bytes(),
            Queued::Started(_) => 256,
            Queued::Chunks(job) => job.args.2.data.len(),
            Queued::Accept(job) => job.args.args.len() + job.args.metadata.as_ref().map_or(0, String::len),
            Queued::End(job) => match &job.args.1 {
                End::Completed(text) | End::Failed(text) | End::Cancelled(text) => text.len(),
            },
        }
    }
}

/// The write queues of a store.
#[derive(Debug)]
pub(crate) struct Queue {
    /// Writes of running activations.
    steps: mpsc::Sender<Queued>,
    /// Begins and ends of fibers.
    lives: mpsc::Sender<Queued>,
    places: Arc<Places>,
    shared: Arc<Shared>,
}

impl Queue {
    /// Starts the tasks that write. They end when the queue is dropped or the store is closed.
    pub(crate) fn start(shared: &Arc<Shared>) -> Self {
        let (steps, of_steps) = mpsc::channel(QUEUE);
        let (lives, of_lives) = mpsc::channel(QUEUE);
        let places = Arc::<Places>::default();
        for queued in [of_steps, of_lives] {
            tokio::spawn(write(Arc::clone(shared), Arc::clone(&places), queued));
        }
        Queue { steps, lives, places, shared: Arc::clone(shared) }
    }

    /// Whether a checkpoint can share a statement.
    pub(crate) fn takes_checkpoint(new: &NewSnapshot) -> bool {
        // Every field is named: the shared statement stores it, or it is empty here.
        let NewSnapshot {
            number: _,
            replaces,
            at: _,
            data: _,
            now_ms: _,
            layouts: _,
            ops,
            delta,
            streams,
            received,
            closed,
            joined,
            children,
        } = new;
        let (OpsDelta { settled: _, temporary: _ }, StreamsDelta { removed, appended: _ }) = (ops, streams);
        !replaces && delta.is_empty() && removed.is_empty() && received.is_empty() && closed.is_none() && !joined && children.is_empty()
    }

    /// Whether the record of an operation can share a statement.
    pub(crate) fn takes_op(record: &OpRecord) -> bool {
        #[rustfmt::skip]
        let OpRecord {
            id: _, kind: _, function: _, step: _, key: _, number: _, state, outcome: _, resolved: _, failed: _, retry: _, stash, layout: _,
        } = record;
        *state == OpState::Started && stash.is_none()
    }

    /// Whether a new fiber can share a statement. One with a key or an id that was given may exist
    /// already.
    pub(crate) fn takes_fiber(new: &NewFiber) -> bool {
        let NewFiber { id: _, name: _, key, id_given, closure: _, args: _, metadata: _, agent: _, parent: _, worker: _, now_ms: _ } = new;
        key.is_none() && !id_given
    }

    /// Whether the end of a fiber can share a statement.
    pub(crate) fn takes_end(end: &End, outcomes: &[OpOutcome], appended: &[StreamAppend]) -> bool {
        matches!(end, End::Completed(_)) && outcomes.is_empty() && appended.is_empty()
    }

    pub(crate) fn checkpoint(&self, claim: Claim, new: NewSnapshot) -> BoxFuture<'_, Result<Vec<Claim>>> {
        self.send(&self.steps, Checkpoint { claim, new: Box::new(new), place: None }, Queued::Checkpoint)
    }

    pub(crate) fn start_op(&self, claim: Claim, record: OpRecord, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        self.send(&self.steps, (claim, Box::new(record), now_ms), Queued::Started)
    }

    pub(crate) fn append_chunks(&self, claim: Claim, turn: TurnSeq, chunks: StreamBatch) -> BoxFuture<'_, Result<TurnWrite>> {
        self.send(&self.steps, (claim, turn, chunks), Queued::Chunks)
    }

    pub(crate) fn accept(&self, fiber: NewFiber) -> BoxFuture<'_, Result<AcceptResult>> {
        self.send(&self.lives, Box::new(fiber), Queued::Accept)
    }

    pub(crate) fn end(&self, claim: Claim, end: End, now_ms: i64) -> BoxFuture<'_, Result<End>> {
        self.send(&self.lives, (claim, end, now_ms), Queued::End)
    }

    fn send<'a, A, T>(&'a self, queue: &'a mpsc::Sender<Queued>, args: A, of: fn(Job<A, T>) -> Queued) -> BoxFuture<'a, Result<T>>
    where
        A: Send + 'static,
        T: Send + 'static,
    {
        Box::pin(async move {
            let _asks = self.shared.asks();
            let (answer, answered) = oneshot::channel();
            let queued = of(Job { args, answer });
            if let Err(TrySendError::Full(queued)) = queue.try_send(queued) {
                queue.send(queued).await.map_err(|_| Error::closed())?;
            }
            let answer = answered.await;
            self.shared.hears().await;
            // The task drops queued writes only when the store is closed.
            answer.unwrap_or_else(|_| Err(Error::closed()))
        })
    }

    pub(crate) fn uses_places(&self) -> bool {
        self.places.are_used()
    }

    /// Notes that the snapshot of a fiber is written past the queue.
    pub(crate) fn moved(&self, fiber: Seq) {
        self.places.forget(fiber);
    }
}

async fn write(shared: Arc<Shared>, places: Arc<Places>, mut queued: mpsc::Receiver<Queued>) {
    let mut left = Vec::new();
    let mut known = HashSet::new();
    loop {
        if left.is_empty() && queued.recv_many(&mut left, QUEUE).await == 0 {
            return;
        }
        // What does not fit into a batch stays here in its order, and the rest in the channel.
        while left.len() < QUEUE
            && let Ok(next) = queued.try_recv()
        {
            left.push(next);
        }
        if shared.is_closed() {
            return;
        }
        Writes { shared: &shared, places: &places, batches: Vec::new() }.once(&mut known, &mut left).await;
        places.look(&shared).await;
    }
}

/// The writes of one batch.
struct Writes<'a> {
    shared: &'a Arc<Shared>,
    places: &'a Arc<Places>,
    batches: Vec<BoxFuture<'static, ()>>,
}

impl Writes<'_> {
    /// Writes one batch of the queue and leaves in `left` what has to come after it; `known` has
    /// the hashes of the layouts that this process has stored.
    async fn once(mut self, known: &mut HashSet<String>, left: &mut Vec<Queued>) {
        // Plain checkpoints and those that change operations, each with and without known places.
        let mut checkpoints: [Vec<Job<Checkpoint, _>>; 4] = Default::default();
        let (mut started, mut chunks, mut accepted, mut ended) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (mut fibers, mut taken, mut bytes) = (BTreeSet::new(), 0, 0);
        for mut job in std::mem::take(left) {
            if taken >= MOST || bytes >= MOST_BYTES || job.fiber().is_some_and(|fiber| !fibers.insert(fiber)) {
                left.push(job);
                continue;
            }
            taken += 1;
            bytes += job.bytes();
            if let Queued::Checkpoint(job) = &mut job {
                job.args.place = self.places.take(job.args.claim.fiber);
            }
            match job {
                Queued::Checkpoint(job) => {
                    checkpoints[2 * usize::from(job.args.changes_ops()) + usize::from(job.args.place.is_some())].push(job);
                }
                Queued::Started(job) => started.push(job),
                Queued::Chunks(job) => chunks.push(job),
                Queued::Accept(job) => accepted.push(job),
                Queued::End(job) => ended.push(job),
            }
        }
        let layouts = checkpoints.iter().flatten().flat_map(|job| job.args.new.layouts.iter().flat_map(|layouts| layouts.iter()));
        let layouts = layouts.chain(started.iter().filter_map(|job| job.args.1.layout.as_ref())).cloned();
        if let Err(error) = save_layouts(self.shared, known, layouts.collect()).await {
            let error = Arc::new(error);
            for jobs in &mut checkpoints {
                let (with_layouts, without) = std::mem::take(jobs).into_iter().partition(|job| job.args.new.layouts.is_some());
                fail(answers(with_layouts), &error);
                *jobs = without;
            }
            fail(answers(std::mem::take(&mut started)), &error);
        }
        for jobs in checkpoints {
            self.add(jobs, CHECKPOINT);
        }
        self.add(chunks, CHUNKS);
        self.add(started, STARTED);
        self.add(accepted, ACCEPT);
        self.add(ended, END);
        if self.batches.len() == 1 {
            // Without the detour over another thread.
            return self.batches.remove(0).await;
        }
        let mut running = JoinSet::from_iter(self.batches);
        while running.join_next().await.is_some() {}
    }

    fn add<A, R, T>(&mut self, jobs: Vec<Job<A, T>>, batch: Batch<A, R, T>)
    where
        A: Send + Sync + 'static,
        R: Send + 'static,
        T: Send + 'static,
    {
        if !jobs.is_empty() {
            self.batches.push(Box::pin(batch.write(Arc::clone(self.shared), Arc::clone(self.places), jobs)));
        }
    }
}

const CHECKPOINT: Batch<Checkpoint, String, Vec<Claim>> = Batch {
    what: "store a checkpoint",
    kind: Kind::Single,
    many: |tx, jobs| Box::pin(grouped::checkpoints(tx, jobs)),
    one: |tx, job| Box::pin(fibers::checkpoint(tx, job.claim, &job.new)),
    done: |places, job, place| {
        places.keep(job.claim.fiber, place);
        Vec::new()
    },
    // The row may be elsewhere by now.
    again: |job| job.place.take().is_some(),
};

const CHUNKS: Batch<Chunks, (), TurnWrite> = Batch {
    what: "store chunks of a turn",
    kind: Kind::Single,
    many: |tx, jobs| {
        tx.announce(CHANGED);
        Box::pin(grouped::append_chunks(tx, jobs))
    },
    one: |tx, (claim, turn, chunks)| Box::pin(chat::append_chunks(tx, *claim, *turn, chunks)),
    done: |_, _, ()| TurnWrite::Done,
    again: |_| false,
};

const STARTED: Batch<Started, (), ()> = Batch {
    what: "store an operation",
    kind: Kind::Single,
    many: |tx, jobs| Box::pin(grouped::start_ops(tx, jobs)),
    one: |tx, (claim, record, now_ms)| Box::pin(ops::save(tx, *claim, record, *now_ms)),
    done: |_, _, ()| (),
    again: |_| false,
};

// In a transaction: until its commit is sent nothing is stored, and it can be repeated.
const ACCEPT: Batch<Box<NewFiber>, Claim, AcceptResult> = Batch {
    what: "store a fiber",
    kind: Kind::Write,
    many: |tx, jobs| Box::pin(grouped::accept(tx, jobs)),
    one: |tx, fiber| Box::pin(fibers::accept(tx, fiber)),
    done: |_, _, claim| AcceptResult::Created(claim),
    again: |_| false,
};

const END: Batch<Ended, (), End> = Batch {
    what: "store how a fiber ended",
    kind: Kind::Write,
    many: |tx, jobs| Box::pin(grouped::end(tx, jobs)),
    one: |tx, (claim, end, now_ms)| Box::pin(fibers::end(tx, *claim, end, &[], &[], *now_ms)),
    done: |places, (claim, end, _), ()| {
        places.forget(claim.fiber);
        end.clone()
    },
    again: |_| false,
};

/// Stores layouts that this process has not stored yet. There are few, and none is deleted.
async fn save_layouts(shared: &Shared, known: &mut HashSet<String>, layouts: Vec<Arc<LayoutRow>>) -> Result<()> {
    let new: Vec<Arc<LayoutRow>> = layouts.into_iter().filter(|layout| !known.contains(&layout.hash)).collect();
    if !new.is_empty() {
        let save: Work<Vec<Arc<LayoutRow>>, ()> = |tx, new| Box::pin(layouts::save(tx, new.iter().map(|layout| &**layout)));
        shared.carry_out("store a layout", Kind::Write, &new, save).await?;
        known.extend(new.into_iter().map(|layout| layout.hash.clone()));
    }
    Ok(())
}

/// How writes of one kind are run: as a batch, and one by one.
struct Batch<A, R, T> {
    what: &'static str,
    /// How a batch uses the database.
    kind: Kind,
    /// Writes a batch; returns what is known of each row that was written.
    many: Work<Vec<A>, Vec<Option<R>>>,
    one: Work<A, T>,
    /// The result of a write that the batch made.
    done: fn(&Places, &A, R) -> T,
    /// Whether a row that was not written may be in another batch, which this prepares.
    again: fn(&mut A) -> bool,
}

impl<A: Send + Sync + 'static, R: Send + 'static, T: Send + 'static> Batch<A, R, T> {
    async fn write(self, shared: Arc<Shared>, places: Arc<Places>, jobs: Vec<Job<A, T>>) {
        let (mut args, mut answers): (Vec<A>, Vec<_>) = jobs.into_iter().map(|job| (job.args, job.answer)).unzip();
        while !args.is_empty() {
            let written = match shared.carry_out_batch(self.what, self.kind, &args, self.many).await {
                Ok(written) => written,
                // One bad row fails the whole batch, so each write is tried alone.
                Err(error) if is_of_row(&error) => args.iter().map(|_| None).collect(),
                Err(error) => return fail(answers, &Arc::new(error)),
            };
            let (mut args_left, mut answers_left) = (Vec::new(), Vec::new());
            for ((mut args, answer), written) in args.into_iter().zip(answers).zip(written) {
                if let Some(written) = written {
                    // A caller that was dropped needs no answer.
                    let _ = answer.send(Ok((self.done)(&places, &args, written)));
                } else if (self.again)(&mut args) {
                    args_left.push(args);
                    answers_left.push(answer);
                } else {
                    let (shared, what, one) = (Arc::clone(&shared), self.what, self.one);
                    tokio::spawn(async move {
                        let _ = answer.send(shared.carry_out(what, Kind::Write, &args, one).await);
                    });
                }
            }
            (args, answers) = (args_left, answers_left);
        }
    }
}

fn answers<A, T>(jobs: Vec<Job<A, T>>) -> impl Iterator<Item = oneshot::Sender<Result<T>>> {
    jobs.into_iter().map(|job| job.answer)
}

/// Sends one error to all callers.
fn fail<T>(answers: impl IntoIterator<Item = oneshot::Sender<Result<T>>>, error: &Arc<Error>) {
    for answer in answers {
        let shared = Error::new(error.kind(), error.to_string()).with_source(Arc::clone(error));
        let _ = answer.send(Err(shared));
    }
}
