//! Runs one fiber in its task: enters it, drives it, and stores how it ended.
//!
//! A fiber is entered only when the store says that it runs. When the store fails, the fiber is interrupted: it goes back to
//! its last snapshot and tries again, later and later, until the store works or the runtime closes. A fiber that waits leaves: what
//! wakes it starts a new task.
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tracing::{Instrument, debug, info_span, warn};

use super::FiberContext;
use super::core::{Core, race};
use super::events::EventKind;
use super::frame::{BoxFuture, Run, Sink};
use super::live::{Alive, Phase, Stop};
use super::op::ledger::Left;
use super::owner::{AgentId, EndedFiber};
use super::registry::{Begin, Known, Outcome};
use super::sink::StoreSink;
use super::timer::Alarm;
use super::waking;
use crate::error::{Error, ErrorKind, Result, chain};
use crate::store::{Aside, End, FiberState, Find, Seq, SettledOp, Waits};

/// The first and the longest pause before an interrupted fiber is tried again.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// After so many deaths without a checkpoint a fiber may be the one that kills the process: such fibers are entered one at a
/// time, so that the guilty one uses up its own recoveries and not those of the others.
const SUSPECT: u32 = 3;

/// `max_recoveries` where the fiber does not say.
pub(crate) const MAX_RECOVERIES: u32 = 10;

/// One fiber to be run.
pub(crate) struct FiberTask {
    pub(crate) core: Arc<Core>,
    pub(crate) known: Arc<dyn Known>,
    pub(crate) seq: Seq,
    pub(crate) agent: Option<AgentId>,
    pub(crate) alive: Alive,
    pub(crate) turn: Turn,
    /// Held until the fiber is in memory.
    pub(crate) entering: Option<OwnedSemaphorePermit>,
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

/// What came of a run.
struct Ran {
    outcome: Outcome,
    /// Whether it has come further than the last checkpoint before it.
    progress: bool,
    /// Operations that have ended since its last checkpoint.
    settled: Vec<SettledOp>,
}

/// What becomes of the task after a run.
enum Next {
    Stop(Stop),
    /// The fiber waits.
    Leave,
    /// It is to run again, at once.
    Again,
}

impl FiberTask {
    /// Runs a fiber that was just accepted.
    pub(crate) async fn begin(self, call: Box<dyn Any + Send>) {
        self.run(Some(Begin::Call(call)), 0).await;
    }

    /// Runs a fiber that is stored, which has died so many times since its last checkpoint.
    pub(crate) async fn recover(mut self, deaths: u32) {
        let limit = self.known.machine().max_recoveries.unwrap_or(MAX_RECOVERIES);
        if deaths > limit {
            self.turn.pass().await;
            let why =
                format!("the process died {deaths} times while it ran, without a checkpoint in between; {limit} recoveries are allowed");
            let stop = match self.end(End::Failed(why), Vec::new()).await {
                Ok(stop) => stop,
                Err(error) => Stop::Interrupted(chain(&error).into()),
            };
            return self.alive.stop(stop);
        }
        self.run(None, deaths).await;
    }

    async fn run(mut self, mut begin: Option<Begin>, deaths: u32) {
        // Its agent stays in memory for as long as it does.
        let _held = self.agent.as_ref().map(|agent| self.core.owners.hold(&self.core, agent));
        let mut failed = 0;
        loop {
            let Ran { outcome, progress, settled } = self.once(begin.take(), deaths).await;
            let why = match self.keep(outcome, settled).await {
                Ok(Next::Stop(stop)) => return self.alive.stop(stop),
                Ok(Next::Leave) => return self.alive.away(),
                Ok(Next::Again) => continue,
                Err(why) => why,
            };
            if self.core.is_closing() || why.is_closed() {
                return self.alive.stop(Stop::Closed);
            }
            let text: Arc<str> = chain(&why).into();
            failed = if progress { 1 } else { failed + 1 };
            let pause = pause(failed);
            warn!(fiber.id = %self.alive.id, error = %text, pause_ms = pause.as_millis(), "fiber interrupted");
            // The store has just failed; if it does again, the fiber is still there, called running.
            let aside = Aside::Interrupted(text.to_string());
            let _ = self.core.store.set_aside(self.seq, aside, self.core.now_ms()).await;
            self.core.tell(&self.alive.id, self.name(), || EventKind::Interrupted { reason: Arc::clone(&text) });
            if failed > 1 {
                self.alive.set(Phase::Stopped(Stop::Interrupted(text)));
            }
            let control = Arc::clone(&self.alive.control);
            let over = async {
                race(async { drop(control.asked().await) }, self.core.clock.sleep(pause)).await;
            };
            if race(self.core.closing(), over).await.is_some() {
                return self.alive.stop(Stop::Closed);
            }
            self.alive.set(Phase::Running);
        }
    }

    fn name(&self) -> &'static str {
        self.known.machine().name
    }

    /// One run, from the invocation or from what is stored.
    async fn once(&mut self, begin: Option<Begin>, deaths: u32) -> Ran {
        let entered = self.enter(begin, deaths).await;
        self.turn.pass().await;
        self.entering.take();
        let Entered { driven, sink, run, resuming } = match entered {
            Ok(entered) => entered,
            Err(outcome) => return Ran { outcome, progress: false, settled: Vec::new() },
        };
        self.core.tell(&self.alive.id, self.name(), || EventKind::Started { resuming });
        let span = info_span!("fiber", fiber.id = %self.alive.id, fiber.name = self.name(), forever.resuming = resuming);
        let driven = sink.let_others_in(driven.instrument(span));
        let outcome = until_told(&self.core, &self.alive, &run, driven).await;
        Ran { outcome, progress: sink.progress.load(Ordering::Relaxed), settled: run.ops.take_settled() }
    }

    /// Makes a run ready and stores that the fiber is entered; `Err` when it cannot be.
    async fn enter(&mut self, begin: Option<Begin>, deaths: u32) -> Result<Entered, Outcome> {
        let stored_before = begin.is_none();
        let mut begin = match begin {
            Some(call) => call,
            None => match self.core.store.load(self.seq).await {
                Ok(stored) => Begin::Stored(stored),
                Err(error) if error.kind() == ErrorKind::Value => return Err(Outcome::Parked(chain(&error))),
                Err(error) => return Err(Outcome::Interrupted(error)),
            },
        };
        let (left, resuming, same_layout) = match &mut begin {
            Begin::Call(_) => (None, false, false),
            Begin::Stored(stored) => {
                let same = stored.layout.as_ref().is_some_and(|l| l.hash == self.known.row().hash);
                let ops = std::mem::take(&mut stored.ops);
                (Some(Left { checkpoints: stored.number, restarts: stored.restarts, ops }), stored.snapshot.is_some(), same)
            }
        };
        let sink = Arc::new(StoreSink::new(&self.core, &self.known, self.seq, &self.alive, self.agent.clone(), same_layout));
        let (id, to_store) = (&self.alive.id, Arc::clone(&sink) as Arc<dyn Sink>);
        let run = match left {
            Some(left) => Run::again(id, to_store, left),
            None => Run::first(id, to_store),
        };
        let ctx = FiberContext {
            id: self.alive.id.clone(),
            name: self.name().into(),
            resuming,
            resources: self.core.resources.clone(),
            clock: Arc::clone(&self.core.clock),
            run: Arc::clone(&run),
        };
        let driven = self.known.prepare(begin, ctx, Arc::clone(&run)).map_err(Outcome::Parked)?;
        if stored_before {
            if deaths >= SUSPECT {
                // It may wait long, and nobody behind it should.
                self.turn.pass().await;
                let permit = race(Arc::clone(&self.core.suspects).acquire_owned(), self.core.closing()).await.and_then(Result::ok);
                sink.suspect(permit);
            }
            if self.core.is_closing() {
                return Err(Outcome::Interrupted(Error::closed()));
            }
            if !self.core.store.enter(self.seq, self.core.now_ms()).await.map_err(Outcome::Interrupted)? {
                return Err(Outcome::Over);
            }
        }
        Ok(Entered { driven, sink, run, resuming })
    }

    /// Stores how a run ended; `Err` when it is to be tried again.
    async fn keep(&self, outcome: Outcome, settled: Vec<SettledOp>) -> Result<Next> {
        debug!(fiber.id = %self.alive.id, outcome = outcome.word(), "fiber stopped");
        if let Some(reason) = self.alive.control.reason() {
            return self.end(End::Cancelled(reason.to_string()), settled).await.map(Next::Stop);
        }
        match outcome {
            Outcome::Completed(text) => self.end(End::Completed(text), settled).await.map(Next::Stop),
            Outcome::Failed(why) => self.end(End::Failed(why), settled).await.map(Next::Stop),
            Outcome::Parked(why) => {
                let reason: Arc<str> = why.as_str().into();
                self.core.store.set_aside(self.seq, Aside::Parked(why), self.core.now_ms()).await?;
                self.core.tell(&self.alive.id, self.name(), || EventKind::Parked { reason: Arc::clone(&reason) });
                Ok(Next::Stop(Stop::Parked(reason)))
            }
            Outcome::Waiting(wait) => {
                let due = wait.due_ms;
                if self.core.store.wait(self.seq, wait, self.core.now_ms()).await? == Waits::No {
                    return Ok(Next::Again);
                }
                if let Some(due) = due {
                    self.core.timer.set_earlier(Alarm::the(waking::WAITS), due);
                }
                self.core.tell(&self.alive.id, self.name(), || EventKind::Waiting);
                Ok(Next::Leave)
            }
            Outcome::Over => {
                let row = self.core.store.find(Find::Seq(self.seq)).await?;
                match row {
                    // Told to end by a process that died before it could; the store knows the reason.
                    Some(row) if !row.state.is_final() => self.end(End::Cancelled(String::new()), settled).await.map(Next::Stop),
                    _ => Ok(Next::Leave),
                }
            }
            Outcome::Interrupted(error) => Err(error),
        }
    }

    /// Stores how the fiber ended, and tells whom it concerns.
    async fn end(&self, end: End, ops: Vec<SettledOp>) -> Result<Stop> {
        let ended = self.core.store.end(self.seq, end, ops, self.core.now_ms()).await?;
        waking::start(&self.core, ended.woken);
        Ok(settled(&self.core, &self.alive.id, self.name(), self.agent.as_ref(), ended.end))
    }
}

/// Drives a run until it ends; one that is told to stop ends by itself or, when it is cancelled, is dropped in the end.
pub(crate) async fn until_told(core: &Core, alive: &Alive, run: &Run, driven: impl Future<Output = Outcome>) -> Outcome {
    let mut driven = std::pin::pin!(driven);
    let cancelled = async { drop(alive.control.asked().await) };
    let told = async {
        race(cancelled, core.closing()).await;
    };
    if let Some(outcome) = race(driven.as_mut(), told).await {
        return outcome;
    }
    run.ops.ask_to_stop();
    // A runtime that closes has a deadline of its own, after which the whole task is dropped.
    let grace = async {
        alive.control.asked().await;
        core.clock.sleep(core.settings.cancel_grace).await;
    };
    race(driven, grace).await.unwrap_or_else(|| Outcome::Interrupted(Error::closed()))
}

/// What those who wait for a fiber hear of its end; its agent is told as well.
pub(crate) fn settled(core: &Arc<Core>, id: &str, name: &str, agent: Option<&AgentId>, end: End) -> Stop {
    let (state, text): (_, Arc<str>) = match end {
        End::Completed(text) => (FiberState::Completed, text.into()),
        End::Failed(why) => (FiberState::Failed, why.into()),
        End::Cancelled(why) => (FiberState::Cancelled, why.into()),
    };
    let reason = || Arc::clone(&text);
    core.tell(id, name, || match state {
        FiberState::Completed => EventKind::Completed,
        FiberState::Failed => EventKind::Failed { reason: reason() },
        _ => EventKind::Cancelled { reason: reason() },
    });
    if let Some(agent) = agent.filter(|_| !core.registry.is_ours(name)) {
        let ended = EndedFiber { id: id.to_owned(), name: name.to_owned(), state, text: reason() };
        let (core_of_task, agent) = (Arc::clone(core), agent.clone());
        // A runtime that closes tells nobody any more.
        let _ = core.start(async move { core_of_task.owners.ended(&core_of_task, &agent, ended).await });
    }
    match state {
        FiberState::Completed => Stop::Completed(text),
        FiberState::Failed => Stop::Failed(text),
        _ => Stop::Cancelled(text),
    }
}

impl Outcome {
    fn word(&self) -> &'static str {
        match self {
            Outcome::Completed(_) => "completed",
            Outcome::Failed(_) => "failed",
            Outcome::Parked(_) => "parked",
            Outcome::Interrupted(_) => "interrupted",
            Outcome::Waiting(_) => "waiting",
            Outcome::Over => "over",
        }
    }
}

/// How long to wait after `failed` interruptions in a row without progress.
pub(crate) fn pause(failed: u32) -> Duration {
    let (first, longest) = BACKOFF;
    first.saturating_mul(1 << (failed.saturating_sub(1)).min(16)).min(longest)
}
