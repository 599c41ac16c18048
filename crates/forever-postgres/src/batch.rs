//! Group commit: writes of activations that are queued together share a statement, and so a commit.
//!
//! One task takes everything that is queued. A statement has its rows in arrays and joins them with
//! the claims, so that a row whose claim is lost is left out and the other rows are written. It
//! returns the fibers whose rows it wrote. The missing ones, and all writes of a batch that failed,
//! are then written one by one, which gives each its own error. A batch has at most one write of
//! each fiber.
use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;

use forever_store::{
    BoxFuture, Claim, Error, LayoutRow, NewSnapshot, OpRecord, OpState, OpsDelta, Result, Seq, StreamAppend, StreamBatch, TurnSeq,
    TurnWrite,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::call::{Kind, Shared, Work, is_of_row};
use crate::notify::CHANGED;
use crate::sql::{Arg, Done, Tx, args};
use crate::{chat, fibers, layouts, ops, streams};

/// Most writes that share a statement.
const MOST: usize = 1000;

/// Most bytes of text that share a statement.
const MOST_BYTES: usize = 4 << 20;

type Checkpoint = (Claim, NewSnapshot);
type Started = (Claim, OpRecord, i64);
type Chunks = (Claim, TurnSeq, StreamBatch);

/// A write, and the channel on which its caller waits.
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
}

impl Queued {
    fn fiber(&self) -> Seq {
        match self {
            Queued::Checkpoint(job) => job.args.0.fiber,
            Queued::Started(job) => job.args.0.fiber,
            Queued::Chunks(job) => job.args.0.fiber,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Queued::Checkpoint(job) => job.args.1.data.len() + job.args.1.appended.iter().map(|append| append.data.len()).sum::<usize>(),
            Queued::Started(_) => 256,
            Queued::Chunks(job) => job.args.2.data.len(),
        }
    }
}

/// The write queue of a store.
#[derive(Debug)]
pub(crate) struct Queue(mpsc::UnboundedSender<Queued>);

impl Queue {
    /// Starts the task that writes. It ends when the queue is dropped or the store is closed.
    pub(crate) fn start(shared: Arc<Shared>) -> Self {
        let (queue, queued) = mpsc::unbounded_channel();
        tokio::spawn(write(shared, queued));
        Queue(queue)
    }

    /// Whether a checkpoint can share a statement.
    pub(crate) fn takes_checkpoint(new: &NewSnapshot) -> bool {
        new.delta.is_empty() && new.layouts.is_none() && new.received.is_none() && !new.joined && new.children.is_empty()
    }

    /// Whether the record of an operation can share a statement.
    pub(crate) fn takes_op(record: &OpRecord) -> bool {
        record.state == OpState::Started && record.stash.is_none()
    }

    pub(crate) fn checkpoint(&self, claim: Claim, new: NewSnapshot) -> BoxFuture<'_, Result<Vec<Claim>>> {
        self.send((claim, new), Queued::Checkpoint)
    }

    pub(crate) fn start_op(&self, claim: Claim, record: OpRecord, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        self.send((claim, record, now_ms), Queued::Started)
    }

    pub(crate) fn append_chunks(&self, claim: Claim, turn: TurnSeq, chunks: StreamBatch) -> BoxFuture<'_, Result<TurnWrite>> {
        self.send((claim, turn, chunks), Queued::Chunks)
    }

    fn send<A: Send + 'static, T: Send + 'static>(&self, args: A, of: fn(Job<A, T>) -> Queued) -> BoxFuture<'_, Result<T>> {
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            self.0.send(of(Job { args, answer })).map_err(|_| Error::closed())?;
            // The task drops queued writes only when the store is closed.
            answered.await.unwrap_or_else(|_| Err(Error::closed()))
        })
    }
}

async fn write(shared: Arc<Shared>, mut queued: mpsc::UnboundedReceiver<Queued>) {
    let mut left: VecDeque<Queued> = VecDeque::new();
    let mut known = HashSet::new();
    loop {
        if left.is_empty() {
            let Some(first) = queued.recv().await else { return };
            left.push_back(first);
        }
        while let Ok(next) = queued.try_recv() {
            left.push_back(next);
        }
        if shared.is_closed() {
            return;
        }
        write_once(&shared, &mut known, &mut left).await;
    }
}

/// Writes one batch of the queue and leaves in `left` what has to come after it; `known` has the
/// hashes of the layouts that this process has stored.
async fn write_once(shared: &Arc<Shared>, known: &mut HashSet<String>, left: &mut VecDeque<Queued>) {
    let (mut alone, mut with_ops, mut started, mut chunks) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut fibers, mut bytes) = (BTreeSet::new(), 0);
    for job in std::mem::take(left) {
        if fibers.len() >= MOST || bytes >= MOST_BYTES || !fibers.insert(job.fiber()) {
            left.push_back(job);
            continue;
        }
        bytes += job.bytes();
        match job {
            Queued::Checkpoint(job) if job.args.1.ops == OpsDelta::default() => alone.push(job),
            Queued::Checkpoint(job) => with_ops.push(job),
            Queued::Started(job) => started.push(job),
            Queued::Chunks(job) => chunks.push(job),
        }
    }
    let mut writes = JoinSet::new();
    let checkpoint = |many| Batch {
        what: "store a checkpoint",
        many,
        one: |tx, (claim, new)| Box::pin(fibers::checkpoint(tx, *claim, new)),
        fiber: |args: &Checkpoint| args.0.fiber,
        done: Vec::new,
    };
    spawn(&mut writes, shared, alone, &checkpoint(|tx, jobs| Box::pin(checkpoints(tx, jobs))));
    spawn(&mut writes, shared, with_ops, &checkpoint(|tx, jobs| Box::pin(checkpoints_with_ops(tx, jobs))));
    let append = Batch {
        what: "store chunks of a turn",
        many: |tx, jobs| {
            tx.announce(CHANGED);
            Box::pin(append_chunks(tx, jobs))
        },
        one: |tx, (claim, turn, chunks)| Box::pin(chat::append_chunks(tx, *claim, *turn, chunks)),
        fiber: |args| args.0.fiber,
        done: || TurnWrite::Done,
    };
    spawn(&mut writes, shared, chunks, &append);
    match save_layouts(shared, known, &started).await {
        Ok(()) => {
            let start = Batch {
                what: "store an operation",
                many: |tx, jobs| Box::pin(start_ops(tx, jobs)),
                one: |tx, (claim, record, now_ms)| Box::pin(ops::save(tx, *claim, record, *now_ms)),
                fiber: |args| args.0.fiber,
                done: || (),
            };
            spawn(&mut writes, shared, started, &start);
        }
        Err(error) => fail(started.into_iter().map(|job| job.answer), error),
    }
    while writes.join_next().await.is_some() {}
}

/// Stores the layouts of operations that this process has not stored yet. There are few, and none
/// is deleted.
async fn save_layouts(shared: &Shared, known: &mut HashSet<String>, started: &[Job<Started, ()>]) -> Result<()> {
    let layouts = started.iter().filter_map(|job| job.args.1.layout.clone());
    let new: Vec<Arc<LayoutRow>> = layouts.filter(|layout| !known.contains(&layout.hash)).collect();
    if !new.is_empty() {
        let save: Work<Vec<Arc<LayoutRow>>, ()> = |tx, new| Box::pin(layouts::save(tx, new.iter().map(|layout| &**layout)));
        shared.carry_out("store a layout", Kind::Write, &new, save).await?;
        known.extend(new.into_iter().map(|layout| layout.hash.clone()));
    }
    Ok(())
}

/// How writes of one kind are run: as a batch, and one by one.
struct Batch<A, T> {
    what: &'static str,
    /// Writes a batch, and returns the fibers whose rows were written.
    many: Work<Vec<A>, Vec<Seq>>,
    one: Work<A, T>,
    fiber: fn(&A) -> Seq,
    /// The result of a write that the batch made.
    done: fn() -> T,
}

fn spawn<A, T>(writes: &mut JoinSet<()>, shared: &Arc<Shared>, jobs: Vec<Job<A, T>>, batch: &Batch<A, T>)
where
    A: Send + Sync + 'static,
    T: Send + 'static,
{
    if jobs.is_empty() {
        return;
    }
    let shared = Arc::clone(shared);
    let &Batch { what, many, one, fiber, done } = batch;
    writes.spawn(async move {
        let (args, answers): (Vec<A>, Vec<_>) = jobs.into_iter().map(|job| (job.args, job.answer)).unzip();
        let written: BTreeSet<Seq> = match shared.carry_out(what, Kind::Single, &args, many).await {
            Ok(written) => written.into_iter().collect(),
            // One bad row fails the whole batch, so each write is tried alone.
            Err(error) if is_of_row(&error) => BTreeSet::new(),
            Err(error) => return fail(answers.into_iter(), error),
        };
        for (args, answer) in args.into_iter().zip(answers) {
            if written.contains(&fiber(&args)) {
                // A caller that was dropped needs no answer.
                let _ = answer.send(Ok(done()));
                continue;
            }
            let shared = Arc::clone(&shared);
            tokio::spawn(async move {
                let _ = answer.send(shared.carry_out(what, Kind::Write, &args, one).await);
            });
        }
    });
}

/// Sends one error to all callers.
fn fail<T>(answers: impl Iterator<Item = oneshot::Sender<Result<T>>>, error: Error) {
    let (kind, text) = (error.kind(), error.to_string());
    let error = Arc::new(error);
    for answer in answers {
        let _ = answer.send(Err(Error::new(kind, text.clone()).with_source(Arc::clone(&error))));
    }
}

async fn fibers_of(tx: &Tx, sql: &str, args: &[crate::sql::Arg<'_>]) -> Done<Vec<Seq>> {
    tx.rows(sql, args).await?.iter().map(|row| row.int("fiber")).collect()
}

fn column<'a, J, T>(jobs: &'a [J], of: impl Fn(&'a J) -> T) -> Vec<T> {
    jobs.iter().map(of).collect()
}

fn number(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

async fn checkpoints(tx: &Tx, jobs: &[Checkpoint]) -> Done<Vec<Seq>> {
    let appends = appends(jobs);
    let update = "UPDATE @snapshots s SET number = u.number, deaths = 0, saved_ms = u.saved_ms, at = u.at, data = u.data
         FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::text[]) u (fiber, epoch, number, saved_ms, at, data)
         WHERE s.fiber = u.fiber AND s.epoch = u.epoch AND s.number = u.number - 1 RETURNING s.fiber";
    let mut args = vec![
        Arg::from(column(jobs, |job| job.0.fiber)),
        Arg::from(column(jobs, |job| job.0.epoch)),
        Arg::from(column(jobs, |job| number(job.1.number))),
        Arg::from(column(jobs, |job| job.1.now_ms)),
        Arg::from(column(jobs, |job| job.1.at)),
        Arg::from(column(jobs, |job| job.1.data.as_str())),
    ];
    if appends.is_empty() {
        return fibers_of(tx, update, &args).await;
    }
    args.extend(streams::arguments(&appends));
    fibers_of(tx, &format!("WITH done AS ({update}), {} SELECT fiber FROM done", streams::parts(7)), &args).await
}

/// Items that checkpoints append, with their fibers and times.
fn appends(jobs: &[Checkpoint]) -> Vec<(Seq, i64, &StreamAppend)> {
    jobs.iter().flat_map(|(claim, new)| new.appended.iter().map(|append| (claim.fiber, new.now_ms, append))).collect()
}

/// As [`checkpoints`], and stores what the checkpoints change of operations.
async fn checkpoints_with_ops(tx: &Tx, jobs: &[Checkpoint]) -> Done<Vec<Seq>> {
    let settled: Vec<_> = jobs.iter().flat_map(|(claim, new)| new.ops.settled.iter().map(|op| (claim.fiber, new.now_ms, op))).collect();
    let [fibers, names, counts, texts, keeps, times] = streams::arguments(&appends(jobs));
    fibers_of(
        tx,
        &format!(
            "WITH u AS MATERIALIZED (
             SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::bool[])
                      u (fiber, epoch, number, saved_ms, at, data, temporary)),
         done AS (
             UPDATE @snapshots s SET number = u.number, deaths = 0, saved_ms = u.saved_ms, at = u.at, data = u.data
             FROM u WHERE s.fiber = u.fiber AND s.epoch = u.epoch AND s.number = u.number - 1 RETURNING s.fiber),
         v AS MATERIALIZED (
             SELECT v.* FROM unnest($8::bigint[], $9::bigint[], $10::bigint[], $11::text[], $12::text[], $13::text[])
                      v (fiber, now_ms, number, id, state, outcome) JOIN done USING (fiber)),
         settled AS (
             UPDATE @ops o SET state = v.state, outcome = v.outcome, failed = 0, error = NULL, next_ms = NULL, stash = NULL, changed_ms = v.now_ms
             FROM v WHERE o.fiber = v.fiber AND o.number = v.number AND o.id = v.id AND o.kind IN ('effect', 'op')),
         temporary AS (
             DELETE FROM @ops o USING u JOIN done USING (fiber)
             WHERE u.temporary AND o.fiber = u.fiber AND o.number = u.number - 1 AND o.kind IN ('step', 'transaction')
             RETURNING o.fiber, o.number, o.id),
         items AS (
             DELETE FROM @op_items i USING (SELECT fiber, number, id FROM v UNION ALL SELECT fiber, number, id FROM temporary) g
             WHERE i.fiber = g.fiber AND i.number = g.number AND i.op = g.id),
         {}
         SELECT fiber FROM done",
            streams::parts(14)
        ),
        args![
            column(jobs, |job| job.0.fiber),
            column(jobs, |job| job.0.epoch),
            column(jobs, |job| number(job.1.number)),
            column(jobs, |job| job.1.now_ms),
            column(jobs, |job| job.1.at),
            column(jobs, |job| job.1.data.as_str()),
            column(jobs, |job| job.1.ops.temporary),
            column(&settled, |op| op.0),
            column(&settled, |op| op.1),
            column(&settled, |op| ops::at(op.2.number)),
            column(&settled, |op| op.2.id.as_str()),
            column(&settled, |op| op.2.state.as_str()),
            column(&settled, |op| op.2.outcome.as_deref()),
            fibers,
            names,
            counts,
            texts,
            keeps,
            times,
        ],
    )
    .await
}

/// Locks the rows whose claims are in force. The condition is part of the lock, so the claims stay
/// in force until the commit.
const RUNNING: &str = "SELECT s.fiber FROM u JOIN @snapshots s ON s.fiber = u.fiber AND s.epoch = u.epoch AND s.worker IS NOT NULL";

async fn start_ops(tx: &Tx, jobs: &[Started]) -> Done<Vec<Seq>> {
    fibers_of(
        tx,
        &format!(
            "WITH u AS MATERIALIZED (
                 SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
                                      $9::text[], $10::bool[], $11::bigint[], $12::bigint[], $13::text[], $14::text[], $15::bigint[])
                          u (fiber, epoch, number, id, kind, function, step, key, outcome, resolved, failed, now_ms, layout, error, next_ms)),
             running AS MATERIALIZED ({RUNNING} FOR NO KEY UPDATE OF s)
             INSERT INTO @ops (fiber, number, id, kind, function, step, key, state, outcome, resolved, failed, started_ms, changed_ms,
                               layout, error, next_ms)
             SELECT fiber, number, id, kind, function, step, key, 'started', outcome, resolved, failed, now_ms, now_ms, layout, error, next_ms
             FROM u JOIN running USING (fiber)
             ON CONFLICT (fiber, number, id) DO UPDATE SET state = 'started', outcome = excluded.outcome, resolved = excluded.resolved,
                    failed = excluded.failed, stash = NULL, changed_ms = excluded.changed_ms, error = excluded.error, next_ms = excluded.next_ms
             RETURNING fiber"
        ),
        args![
            column(jobs, |job| job.0.fiber),
            column(jobs, |job| job.0.epoch),
            column(jobs, |job| ops::at(job.1.number)),
            column(jobs, |job| job.1.id.as_str()),
            column(jobs, |job| job.1.kind.as_str()),
            column(jobs, |job| job.1.function.as_str()),
            column(jobs, |job| job.1.step.as_str()),
            column(jobs, |job| job.1.key.as_deref()),
            column(jobs, |job| job.1.outcome.as_deref()),
            column(jobs, |job| job.1.resolved),
            column(jobs, |job| i64::from(job.1.failed)),
            column(jobs, |job| job.2),
            column(jobs, |job| job.1.layout.as_ref().map(|layout| layout.hash.as_str())),
            column(jobs, |job| job.1.retry.as_ref().map(|retry| retry.error.as_str())),
            column(jobs, |job| job.1.retry.as_ref().map(|retry| retry.next_ms)),
        ],
    )
    .await
}

async fn append_chunks(tx: &Tx, jobs: &[Chunks]) -> Done<Vec<Seq>> {
    fibers_of(
        tx,
        "WITH u AS MATERIALIZED (
             SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::bigint[])
                      u (fiber, epoch, turn, first, count, data, stored_ms)),
         running AS MATERIALIZED (
             SELECT s.fiber FROM u JOIN @snapshots s ON s.fiber = u.fiber AND s.epoch = u.epoch AND s.worker IS NOT NULL
             JOIN @turns t ON t.seq = u.turn AND t.fiber = u.fiber AND t.state = 'running' FOR NO KEY UPDATE OF s, t),
         stored AS (
             INSERT INTO @turn_chunks (turn, first, count, data, stored_ms)
             SELECT u.turn, u.first, u.count, u.data, u.stored_ms FROM u JOIN running USING (fiber)
             WHERE u.first = coalesce((SELECT c.first + c.count FROM @turn_chunks c WHERE c.turn = u.turn ORDER BY c.first DESC LIMIT 1), 0)
             RETURNING turn),
         fibers AS MATERIALIZED (SELECT u.fiber FROM u JOIN stored USING (turn)),
         progress AS (UPDATE @snapshots s SET deaths = 0 FROM fibers WHERE s.fiber = fibers.fiber AND s.deaths > 0)
         SELECT fiber FROM fibers",
        args![
            column(jobs, |job| job.0.fiber),
            column(jobs, |job| job.0.epoch),
            column(jobs, |job| job.1),
            column(jobs, |job| number(job.2.first)),
            column(jobs, |job| number(job.2.count)),
            column(jobs, |job| job.2.data.as_str()),
            column(jobs, |job| job.2.stored_ms),
        ],
    )
    .await
}
