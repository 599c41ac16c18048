//! Random runs of three workers over one database. Its history is replayed as a path of the model.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forever_postgres::PostgresStore;
use forever_store::{AcceptResult, Claim, ClaimResult, End, Error, FiberStore, NewFiber, NewSnapshot, Seq, Suspension, WorkerId};
use forever_testkit::history;
use forever_testkit::postgres as cluster;
use forever_testkit::prng::Prng;
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls};

use crate::trace::Trace;

const WORKERS: usize = 3;
const FIBERS: usize = 12;
const ROUNDS: usize = 120;

/// Most operations of a round, which happen at the same time.
const AT_ONCE: usize = 6;

/// A worker, as far as the run knows it.
#[derive(Clone)]
struct Worker {
    store: Arc<PostgresStore>,
    id: WorkerId,
}

/// A claim that was granted, whatever happened to it since.
#[derive(Debug, Clone, Copy)]
struct Activation {
    worker: usize,
    claim: Claim,
    number: u64,
}

/// What an operation of an activation, or a claim, has come to.
#[derive(Debug, Clone, Copy)]
enum Outcome {
    Granted(Activation),
    /// It stored a checkpoint and goes on.
    Stored(Activation),
    /// It has stored that the fiber waits or has ended.
    Stopped,
    /// It has lost its claim, and may write once more before it notices.
    Lost(Activation),
    /// It does not know what is stored, and stops.
    Unknown,
    Refused,
}

/// What was seen of a run, beside its history.
#[derive(Debug, Default)]
struct Seen {
    checkpoints: usize,
    stops: usize,
    lost: usize,
    unknown: usize,
}

fn outcome(result: Result<Outcome, Error>, activation: Activation) -> Outcome {
    match result {
        Ok(outcome) => outcome,
        Err(error) if error.is_claim_lost() => Outcome::Lost(activation),
        Err(error) => {
            assert!(error.is_outcome_unknown() || error.is_retryable(), "{error}");
            Outcome::Unknown
        }
    }
}

async fn checkpoint(worker: Worker, activation: Activation) -> Outcome {
    let Activation { claim, number, .. } = activation;
    let new = NewSnapshot { number: number + 1, data: history::claim(claim.epoch), ..snapshot() };
    let stored = worker.store.checkpoint(claim, new).await;
    outcome(stored.map(|_| Outcome::Stored(Activation { number: number + 1, ..activation })), activation)
}

async fn wait(worker: Worker, activation: Activation) -> Outcome {
    let how = Suspension::Interrupted(history::claim(activation.claim.epoch));
    let stored = worker.store.suspend(activation.claim, how, 3).await;
    outcome(stored.map(|_| Outcome::Stopped), activation)
}

async fn end(worker: Worker, activation: Activation) -> Outcome {
    let how = End::Completed(history::claim(activation.claim.epoch));
    let stored = worker.store.end(activation.claim, how, Vec::new(), Vec::new(), 4).await;
    outcome(stored.map(|_| Outcome::Stopped), activation)
}

async fn claim(at: usize, worker: Worker, fiber: Seq) -> Outcome {
    let claimed = async {
        let Some(seen) = worker.store.claim_of(fiber).await? else { return Ok(Outcome::Refused) };
        let seen = Claim { fiber, epoch: seen.epoch };
        let ClaimResult::Granted(claim, loaded) = worker.store.claim(seen, worker.id, 2).await? else { return Ok(Outcome::Refused) };
        Ok::<_, Error>(Outcome::Granted(Activation { worker: at, claim, number: loaded.number }))
    };
    claimed.await.unwrap_or_else(|error| {
        assert!(error.is_outcome_unknown() || error.is_retryable(), "{error}");
        Outcome::Unknown
    })
}

fn snapshot() -> NewSnapshot {
    NewSnapshot {
        replaces: false,
        number: 0,
        at: "step",
        data: String::new(),
        now_ms: 2,
        layouts: None,
        ops: forever_store::OpsDelta::default(),
        delta: forever_store::SnapshotDelta::default(),
        streams: forever_store::StreamsDelta::default(),
        received: Vec::new(),
        closed: None,
        joined: false,
        children: Vec::new(),
    }
}

fn new_fiber(id: String, worker: Option<WorkerId>) -> NewFiber {
    NewFiber {
        id,
        name: "work".to_owned(),
        key: None,
        id_given: false,
        closure: false,
        args: "{}".to_owned(),
        metadata: None,
        agent: None,
        parent: None,
        worker,
        now_ms: 1,
    }
}

struct Run {
    prng: Prng,
    schema: String,
    client: Arc<Client>,
    workers: Vec<Worker>,
    fibers: Vec<Seq>,
    activations: Vec<Activation>,
    seen: Seen,
}

impl Run {
    async fn start(url: &str, seed: u64) -> Run {
        let schema = cluster::schema();
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let builder = PostgresStore::builder(url).schema(&schema).lease(Duration::from_secs(4)).pool(4);
        drop(builder.clone().connect().await.unwrap());
        client.batch_execute(&history::in_schema(history::BEGIN, &schema)).await.unwrap();
        let mut workers = Vec::new();
        for _ in 0..WORKERS {
            let store = Arc::new(builder.clone().connect().await.unwrap());
            let id = store.join(0).await.unwrap();
            workers.push(Worker { store, id });
        }
        let prng = Prng::of_purpose(seed, "protocol");
        Run { prng, schema, client: Arc::new(client), workers, fibers: Vec::new(), activations: Vec::new(), seen: Seen::default() }
    }

    fn worker(&mut self) -> usize {
        self.prng.below(WORKERS)
    }

    async fn make_fiber(&mut self) {
        let at = self.worker();
        let worker = self.prng.chance(70).then_some(self.workers[at].id);
        let new = new_fiber(format!("f{}", self.fibers.len()), worker);
        let AcceptResult::Created(claim) = self.workers[at].store.accept(new).await.unwrap() else { panic!("it exists") };
        self.fibers.push(claim.fiber);
        if worker.is_some() {
            self.activations.push(Activation { worker: at, claim, number: 0 });
        }
    }

    /// Some operations at the same time, of which each activation has one at most.
    async fn round(&mut self) {
        let mut operations = JoinSet::new();
        for _ in 0..=self.prng.below(AT_ONCE) {
            if self.activations.is_empty() || self.prng.chance(25) {
                let (at, fiber) = (self.worker(), self.fibers[self.prng.below(self.fibers.len())]);
                operations.spawn(claim(at, self.workers[at].clone(), fiber));
                continue;
            }
            let activation = self.activations.swap_remove(self.prng.below(self.activations.len()));
            let worker = self.workers[activation.worker].clone();
            match self.prng.below(20) {
                0 => operations.spawn(end(worker, activation)),
                1..4 => operations.spawn(wait(worker, activation)),
                _ => operations.spawn(checkpoint(worker, activation)),
            };
        }
        if self.prng.chance(10) {
            self.disturb().await;
        }
        while let Some(outcome) = operations.join_next().await {
            self.take_in(outcome.unwrap());
        }
    }

    fn take_in(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Granted(activation) => self.activations.push(activation),
            Outcome::Stored(activation) => {
                self.seen.checkpoints += 1;
                self.activations.push(activation);
            }
            Outcome::Stopped => self.seen.stops += 1,
            Outcome::Lost(activation) => {
                self.seen.lost += 1;
                if self.prng.chance(50) {
                    self.activations.push(activation);
                }
            }
            Outcome::Unknown => self.seen.unknown += 1,
            Outcome::Refused => {}
        }
    }

    /// Does to a worker what a pause beyond its lease, a lost session or a cut connection does.
    async fn disturb(&mut self) {
        let (at, by) = (self.worker(), self.worker());
        let (paused, taker) = (self.workers[at].id, self.workers[by].clone());
        let sql = match self.prng.below(3) {
            0 => "UPDATE @workers SET seen = seen - INTERVAL '1 hour', lock = NULL WHERE id = $1",
            1 => {
                "SELECT pg_terminate_backend(l.pid) FROM pg_locks l JOIN @workers w
                 ON l.locktype = 'advisory' AND ((l.classid::bigint << 32) | l.objid::bigint) = w.lock WHERE w.id = $1"
            }
            _ => {
                // Of those whose last statement was one of this run.
                "SELECT pg_terminate_backend(pid) FROM (
                     SELECT pid FROM pg_stat_activity, @workers w WHERE query LIKE '%@%' AND pid <> pg_backend_pid() AND w.id = $1
                     ORDER BY random() LIMIT 2) picked"
            }
        };
        self.client.execute(&history::in_schema(sql, &self.schema), &[&paused]).await.unwrap();
        if self.prng.chance(50) {
            let _ = taker.store.take_over(taker.id, 5).await;
        }
    }

    /// Lets one worker end all fibers, and returns the history.
    async fn finish(mut self) -> (Vec<String>, Seen) {
        for worker in &self.workers[1..] {
            worker.store.close(worker.id, 6).await.unwrap();
        }
        for fiber in self.fibers.clone() {
            loop {
                match claim(0, self.workers[0].clone(), fiber).await {
                    Outcome::Granted(activation) => {
                        let ended = end(self.workers[0].clone(), activation).await;
                        self.take_in(ended);
                    }
                    Outcome::Refused if self.workers[0].store.claim_of(fiber).await.unwrap().is_none() => break,
                    other => self.take_in(other),
                }
            }
        }
        let rows = self.client.query(&history::in_schema(history::LINES, &self.schema), &[]).await.unwrap();
        (rows.iter().map(|row| row.get(0)).collect(), self.seen)
    }
}

fn replay<'a>(lines: impl IntoIterator<Item = &'a str>) -> Result<Trace, String> {
    let mut trace = Trace::default();
    lines.into_iter().try_for_each(|line| trace.replay(line))?;
    Ok(trace)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_of_real_runs_are_paths_of_the_model() {
    let Some(url) = cluster::url() else { return };
    let seed = std::env::var("FOREVER_PROTOCOL_SEED").map_or(1, |seed| seed.parse().unwrap());
    let mut run = Run::start(&url, seed).await;
    for round in 0..ROUNDS {
        if round % (ROUNDS / FIBERS) == 0 {
            run.make_fiber().await;
        }
        run.round().await;
    }
    let (lines, counted) = run.finish().await;
    let trace = replay(lines.iter().map(String::as_str)).unwrap();
    let mut changes: BTreeMap<&str, usize> = BTreeMap::new();
    for line in &lines {
        *changes.entry(line.split(' ').nth(1).unwrap()).or_default() += 1;
    }
    println!("seed {seed}: {changes:?}, {counted:?}");
    assert_eq!(trace.fibers().len(), FIBERS);
    assert!(trace.fibers().values().all(|fiber| fiber.has_ended), "{trace:?}");
    let stored = changes["checkpoint"];
    assert!((counted.checkpoints..=counted.checkpoints + counted.unknown).contains(&stored), "what was acknowledged is stored, once");
    assert!(counted.lost > 0 && changes["released"] > 0 && changes["claimed"] > 0, "claims are lost");
    damaged_everywhere(&lines);
}

/// Damages a real history at each place, and checks that each damage is refused.
fn damaged_everywhere(lines: &[String]) {
    let mut damages = [0; 3];
    for (at, line) in lines.iter().enumerate() {
        let words: Vec<&str> = line.split(' ').collect();
        let [id, what, epoch, number, worker, writer] = words[..] else { panic!("{line}") };
        let (kind, instead) = match what {
            "claimed" => (0, format!("{id} claimed {} {number} {worker} 0", epoch.parse::<usize>().unwrap() - 1)),
            "checkpoint" if writer != "1" => {
                (1, format!("{id} checkpoint {epoch} {number} {worker} {}", writer.parse::<usize>().unwrap() - 1))
            }
            "completed" => (2, format!("{line}\n{id} checkpoint 1 1 1 1")),
            _ => continue,
        };
        damages[kind] += 1;
        let before = lines[..at].iter().map(String::as_str);
        replay(before.chain(instead.lines())).unwrap_err();
    }
    assert!(damages.iter().all(|n| *n > 0), "{damages:?}");
}

const GOOD: &str = "\
f made 1 0 1 0
f checkpoint 1 1 1 1
f released 2 1 0 0
f claimed 3 1 2 0
f checkpoint 3 2 2 3
f released 4 2 0 3
f claimed 5 2 1 0
f completed 0 0 0 5
";

fn refused(there: &str, instead: &str, why: &str) {
    replay(GOOD.lines()).unwrap();
    let damaged = GOOD.replacen(there, instead, 1);
    let fault = replay(damaged.lines()).unwrap_err();
    assert!(fault.contains(why), "{there} -> {instead}: {fault}");
}

#[test]
fn claim_that_does_not_raise_the_epoch_is_no_path() {
    refused("f claimed 3 1 2 0", "f claimed 2 1 2 0", "the model has");
    refused("f claimed 5 2 1 0", "f claimed 4 2 1 0", "the model has");
    refused("f released 4 2 0 3", "f released 3 2 0 3", "the model has");
}

#[test]
fn write_of_a_worker_that_has_lost_its_claim_is_no_path() {
    refused("f checkpoint 3 2 2 3", "f checkpoint 3 2 2 1", "the model refuses");
    refused("f completed 0 0 0 5", "f completed 0 0 0 1", "the model refuses");
    refused("f released 4 2 0 3", "f released 4 2 0 1", "the model refuses");
    refused("f claimed 3 1 2 0\nf checkpoint 3 2 2 3", "f checkpoint 2 2 0 2", "no worker runs the fiber");
}

#[test]
fn write_after_the_end_is_no_path() {
    refused("f completed 0 0 0 5", "f completed 0 0 0 5\nf checkpoint 5 3 1 5", "the model refuses");
    refused("f completed 0 0 0 5", "f completed 0 0 0 5\nf completed 0 0 0 5", "the model refuses");
}

#[test]
fn checkpoint_that_is_repeated_or_left_out_is_no_path() {
    refused("f checkpoint 3 2 2 3", "f checkpoint 3 2 2 3\nf checkpoint 3 2 2 3", "the model refuses");
    refused("f checkpoint 3 2 2 3", "f checkpoint 3 3 2 3", "the model refuses");
    refused("f made 1 0 1 0", "f made 1 1 1 0", "the model has");
    refused("f checkpoint 1 1 1 1\n", "f made 1 0 1 0\n", "once");
}

#[test]
fn claim_of_a_fiber_that_another_worker_runs_is_no_path() {
    refused("f released 2 1 0 0\nf claimed 3 1 2 0", "f claimed 2 1 2 0", "the model refuses");
}
