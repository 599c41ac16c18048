//! Runs one fiber in its task: enters it, drives it, and stores how it ended.
//!
//! A fiber is entered only when the store says that it runs. When the store fails, the fiber is interrupted: it goes back to
//! its last snapshot and tries again, later and later, until the store works or the runtime closes.
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tracing::{Instrument, debug, info_span, warn};

use super::FiberContext;
use super::core::{Core, race};
use super::frame::{BoxFuture, Checkpoint, OpRecord, Run, Sink};
use super::live::{Alive, Phase, Stop};
use super::registry::{Begin, Known, Outcome};
use crate::error::{Error, ErrorKind, Result, chain};
use crate::store::{Aside, End, NewSnapshot, Seq};

/// The first and the longest pause before an interrupted fiber is tried again.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// After so many deaths without a checkpoint a fiber may be the one that kills the process: such fibers are entered one at a
/// time, so that the guilty one uses up its own recoveries and not those of the others.
const SUSPECT: u32 = 3;

/// How long others wait for a suspect that neither makes a checkpoint nor ends.
const SUSPECT_TIME: Duration = Duration::from_secs(1);

/// `max_recoveries` where the fiber does not say.
const MAX_RECOVERIES: u32 = 10;

/// One fiber to be run.
pub(crate) struct FiberTask {
    pub(crate) core: Arc<Core>,
    pub(crate) known: Arc<dyn Known>,
    pub(crate) seq: Seq,
    pub(crate) alive: Alive,
    pub(crate) turn: Turn,
}

/// A fiber's place among those that are recovered: entered after the one before, and before the one after.
///
/// All of them are looked up at once; only the moment at which their code begins is in order.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    pub(crate) before: Option<oneshot::Receiver<()>>,
    /// Its drop is the signal.
    pub(crate) after: Option<oneshot::Sender<()>>,
}

impl Turn {
    /// Waits until it is this fiber's turn, and lets the next one in.
    async fn pass(&mut self) {
        if let Some(before) = self.before.take() {
            // That the other one is gone says as much as that it is through.
            let _ = before.await;
        }
        self.after.take();
    }
}

/// A fiber whose code may begin.
struct Entered {
    driven: BoxFuture<'static, Outcome>,
    sink: Arc<StoreSink>,
    run: Arc<Run>,
    resuming: bool,
}

impl FiberTask {
    /// Runs a fiber that was just accepted.
    pub(crate) async fn begin(self, call: Box<dyn std::any::Any + Send>) {
        self.run(Some(Begin::Call(call)), 0).await;
    }

    /// Runs a fiber that an earlier process has left, `deaths` of which it has seen since its last checkpoint.
    pub(crate) async fn recover(mut self, deaths: u32) {
        let limit = self.known.machine().max_recoveries.unwrap_or(MAX_RECOVERIES);
        if deaths > limit {
            self.turn.pass().await;
            let why =
                format!("the process died {deaths} times while it ran, without a checkpoint in between; {limit} recoveries are allowed");
            let stored = self.core.store.end(self.seq, End::Failed(why.clone()), self.core.now_ms()).await;
            self.alive.stop(stored.map_or_else(|e| Stop::Interrupted(chain(&e).into()), |()| Stop::Failed(why.into())));
            return;
        }
        self.run(None, deaths).await;
    }

    async fn run(mut self, mut begin: Option<Begin>, deaths: u32) {
        let mut failed = 0;
        loop {
            let (progress, outcome) = self.once(begin.take(), deaths).await;
            let why = match self.keep(outcome).await {
                Ok(stop) => return self.alive.stop(stop),
                Err(why) => why,
            };
            if self.core.is_closing() || why.is_closed() {
                return self.alive.stop(Stop::Closed);
            }
            let text = chain(&why);
            failed = if progress { 1 } else { failed + 1 };
            let pause = pause(failed);
            warn!(fiber.id = %self.alive.id, error = %text, pause_ms = pause.as_millis(), "fiber interrupted");
            // The store has just failed; if it does again, the fiber is still there, called running.
            let aside = Aside::Interrupted(text.clone());
            let _ = self.core.store.set_aside(self.seq, aside, self.core.now_ms()).await;
            if failed > 1 {
                self.alive.set(Phase::Stopped(Stop::Interrupted(text.into())));
            }
            if race(self.core.closing(), self.core.clock.sleep(pause)).await.is_some() {
                return self.alive.stop(Stop::Closed);
            }
            self.alive.set(Phase::Running);
        }
    }

    /// One run, from the invocation or from what is stored; says whether it has made a checkpoint.
    async fn once(&mut self, begin: Option<Begin>, deaths: u32) -> (bool, Outcome) {
        let entered = self.enter(begin, deaths).await;
        self.turn.pass().await;
        let Entered { driven, sink, run, resuming } = match entered {
            Ok(entered) => entered,
            Err(outcome) => return (false, outcome),
        };
        let name = self.known.machine().name;
        let span = info_span!("fiber", fiber.id = %self.alive.id, fiber.name = name, forever.resuming = resuming);
        let mut driven = std::pin::pin!(sink.let_others_in(driven.instrument(span)));
        let outcome = if let Some(outcome) = race(driven.as_mut(), self.core.closing()).await {
            outcome
        } else {
            run.ops.ask_to_stop();
            driven.await
        };
        (sink.progress.load(Ordering::Relaxed), outcome)
    }

    /// Makes a run ready and stores that the fiber is entered; `Err` when it cannot be.
    async fn enter(&mut self, begin: Option<Begin>, deaths: u32) -> Result<Entered, Outcome> {
        let stored_before = begin.is_none();
        let begin = match begin {
            Some(call) => call,
            None => match self.core.store.load(self.seq).await {
                Ok(stored) => Begin::Stored(stored),
                Err(error) if error.kind() == ErrorKind::Value => return Err(Outcome::Parked(chain(&error))),
                Err(error) => return Err(Outcome::Interrupted(error)),
            },
        };
        let (number, resuming, same_layout) = match &begin {
            Begin::Call(_) => (0, false, false),
            Begin::Stored(stored) => {
                let same = stored.layout.as_ref().is_some_and(|l| l.hash == self.known.row().hash);
                (stored.number, stored.snapshot.is_some(), same)
            }
        };
        let sink = Arc::new(StoreSink {
            core: Arc::clone(&self.core),
            known: Arc::clone(&self.known),
            seq: self.seq,
            layout_stored: AtomicBool::new(same_layout),
            progress: AtomicBool::new(false),
            suspect: Mutex::new(None),
        });
        let (id, to_store) = (&self.alive.id, Arc::clone(&sink) as Arc<dyn Sink>);
        let run = if stored_before { Run::again(id, to_store, number) } else { Run::first(id, to_store) };
        let ctx = FiberContext {
            id: self.alive.id.clone(),
            name: self.known.machine().name,
            resuming,
            resources: self.core.resources.clone(),
            clock: Arc::clone(&self.core.clock),
        };
        let driven = self.known.prepare(begin, ctx, Arc::clone(&run)).map_err(Outcome::Parked)?;
        if stored_before {
            if deaths >= SUSPECT {
                // It may wait long, and nobody behind it should.
                self.turn.pass().await;
                *sink.suspect() = race(Arc::clone(&self.core.suspects).acquire_owned(), self.core.closing()).await.and_then(Result::ok);
            }
            if self.core.is_closing() {
                return Err(Outcome::Interrupted(Error::closed()));
            }
            self.core.store.enter(self.seq, self.core.now_ms()).await.map_err(Outcome::Interrupted)?;
        }
        Ok(Entered { driven, sink, run, resuming })
    }

    /// Stores how a run ended; `Err` when it is to be tried again.
    async fn keep(&self, outcome: Outcome) -> Result<Stop> {
        let (store, now_ms) = (&self.core.store, self.core.now_ms());
        debug!(fiber.id = %self.alive.id, outcome = outcome.word(), "fiber stopped");
        match outcome {
            Outcome::Completed(text) => {
                let shared: Arc<str> = text.as_str().into();
                store.end(self.seq, End::Completed(text), now_ms).await.map(|()| Stop::Completed(shared))
            }
            Outcome::Failed(why) => store.end(self.seq, End::Failed(why.clone()), now_ms).await.map(|()| Stop::Failed(why.into())),
            Outcome::Parked(why) => store.set_aside(self.seq, Aside::Parked(why.clone()), now_ms).await.map(|()| Stop::Parked(why.into())),
            Outcome::Interrupted(error) => Err(error),
        }
    }
}

impl Outcome {
    fn word(&self) -> &'static str {
        match self {
            Outcome::Completed(_) => "completed",
            Outcome::Failed(_) => "failed",
            Outcome::Parked(_) => "parked",
            Outcome::Interrupted(_) => "interrupted",
        }
    }
}

/// How long to wait after `failed` interruptions in a row without progress.
fn pause(failed: u32) -> Duration {
    let (first, longest) = BACKOFF;
    first.saturating_mul(1 << (failed - 1).min(16)).min(longest)
}

/// Takes a fiber's checkpoints to the store.
struct StoreSink {
    core: Arc<Core>,
    known: Arc<dyn Known>,
    seq: Seq,
    /// Whether the stored snapshot names the layout that this code writes.
    layout_stored: AtomicBool,
    /// Whether this run has made a checkpoint.
    progress: AtomicBool,
    /// Held by a suspect until it has shown that it lives.
    suspect: Mutex<Option<OwnedSemaphorePermit>>,
}

impl StoreSink {
    fn suspect(&self) -> std::sync::MutexGuard<'_, Option<OwnedSemaphorePermit>> {
        self.suspect.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drives a run; a suspect keeps the others waiting for a while at most.
    async fn let_others_in<T>(&self, driven: impl Future<Output = T>) -> T {
        let mut driven = std::pin::pin!(driven);
        if self.suspect().is_some() {
            if let Some(ended) = race(driven.as_mut(), self.core.clock.sleep(SUSPECT_TIME)).await {
                return ended;
            }
            self.suspect().take();
        }
        driven.await
    }
}

impl Sink for StoreSink {
    fn commit(&self, checkpoint: Checkpoint) -> BoxFuture<'_, Result<(), Error>> {
        let layout = (!self.layout_stored.load(Ordering::Relaxed)).then(|| self.known.row().clone());
        let (at, number, bytes) = (checkpoint.at, checkpoint.number, checkpoint.snapshot.len() + checkpoint.changes.bytes());
        let new = NewSnapshot {
            number,
            at,
            data: checkpoint.snapshot,
            now_ms: self.core.now_ms(),
            layout,
            finished_op: checkpoint.finished_op,
            changes: checkpoint.changes,
        };
        Box::pin(async move {
            self.core.store.checkpoint(self.seq, new).await?;
            self.layout_stored.store(true, Ordering::Relaxed);
            self.progress.store(true, Ordering::Relaxed);
            self.suspect().take();
            debug!(at, number, bytes, "checkpoint");
            if self.core.is_closing() { Err(Error::closed()) } else { Ok(()) }
        })
    }

    fn save_op(&self, record: OpRecord) -> BoxFuture<'_, Result<(), Error>> {
        self.core.store.save_op(self.seq, record, self.core.now_ms())
    }

    fn load_op<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<OpRecord>, Error>> {
        self.core.store.load_op(self.seq, id.to_owned())
    }
}
