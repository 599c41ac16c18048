//! Runs one activation of a fiber in its task: claims it, drives it, and stores how it ended.
//!
//! A fiber's code begins only under a claim, and everything it stores is conditional on that claim. When the store fails, the fiber is interrupted:
//! it goes back to its last snapshot and claims it again, later and later, until the store works or the runtime closes. When the claim is
//! lost, the activation stops at once and stores nothing. A fiber that waits leaves: what wakes it starts a new task.
use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tracing::{Instrument, debug, info_span, warn};

use super::FiberContext;
use super::core::{Core, race};
use super::dispatch;
use super::drive::Guarded;
use super::events::EventKind;
use super::frame::{Run, Sink};
use super::live::{Alive, Phase, Stop};
use super::op::ledger::Left;
use super::owner::EndedFiber;
use super::registry::{Begin, Known, Outcome};
use super::sink::StoreSink;
use super::timer::Alarm;
use crate::error::{Error, ErrorKind, Result, chain};
use crate::future::BoxFuture;
use crate::store::{AgentId, Claim, ClaimResult, End, FiberState, OpOutcome, Runnable, Seq, Suspension, WaitResult};

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
    /// Its stored name.
    name: String,
    /// Its function; none that is not registered.
    known: Option<Arc<dyn Known>>,
    seq: Seq,
    agent: Option<AgentId>,
    alive: Alive,
    turn: Turn,
    /// The functions whose values could not be read, by their depth of calls.
    unreadable: BTreeSet<u32>,
    /// Held until the fiber is in memory.
    entering: Option<OwnedSemaphorePermit>,
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
    claim: Claim,
}

/// Result of a run.
struct Ran {
    outcome: Outcome,
    /// What is stored of it is conditional on this: none if nothing could be read of the fiber.
    claim: Option<Claim>,
    /// Whether it has come further than the last checkpoint before it.
    progress: bool,
    /// Operations that have ended since its last checkpoint.
    settled: Vec<OpOutcome>,
}

impl Ran {
    /// It was not entered.
    fn not(outcome: Outcome, claim: Option<Claim>) -> Self {
        Ran { outcome, claim, progress: false, settled: Vec::new() }
    }
}

/// What the task does after a run.
enum Next {
    Stop(Stop),
    /// The fiber waits.
    Leave,
    /// It is to run again, at once.
    Again,
}

impl FiberTask {
    pub(crate) fn new(core: &Arc<Core>, fiber: &Runnable, alive: Alive, turn: Turn, entering: Option<OwnedSemaphorePermit>) -> Self {
        let known = core.registry.get(&fiber.name);
        let (name, agent) = (fiber.name.clone(), fiber.agent.clone());
        FiberTask { core: Arc::clone(core), name, known, seq: fiber.seq, agent, alive, turn, unreadable: BTreeSet::new(), entering }
    }

    /// Runs a fiber that was just accepted, under the claim that it was accepted with.
    pub(crate) async fn begin(
        core: Arc<Core>,
        known: Arc<dyn Known>,
        claim: Claim,
        agent: Option<AgentId>,
        alive: Alive,
        call: Box<dyn Any + Send>,
    ) {
        let (name, turn) = (known.machine().name.to_owned(), Turn::default());
        let task =
            FiberTask { core, name, known: Some(known), seq: claim.fiber, agent, alive, turn, unreadable: BTreeSet::new(), entering: None };
        task.run(Some((claim, call))).await;
    }

    /// Runs a fiber that is stored and claimed by no worker.
    pub(crate) async fn recover(self) {
        self.run(None).await;
    }

    async fn run(mut self, mut begin: Option<(Claim, Box<dyn Any + Send>)>) {
        // Its agent stays in memory for as long as it does.
        let _held = self.agent.as_ref().map(|agent| self.core.owners.hold(&self.core, agent));
        let mut failed = 0;
        loop {
            let Ran { outcome, claim, progress, settled } = self.once(begin.take()).await;
            let outcome = match outcome {
                // It is entered once more, and its `migrate` function is asked.
                Outcome::Unreadable(depth, _) if self.unreadable.insert(depth) && self.alive.control.reason().is_none() => continue,
                Outcome::Unreadable(_, why) => Outcome::Parked(why),
                outcome => outcome,
            };
            let why = match self.keep(outcome, claim, settled).await {
                Ok(Next::Stop(stop)) => return self.alive.stop(stop),
                Ok(Next::Leave) => return self.alive.away(),
                Ok(Next::Again) => continue,
                Err(why) => why,
            };
            if self.core.is_closing() || why.is_closed() {
                return self.alive.stop(Stop::Closed);
            }
            if why.is_claim_lost() {
                debug!(fiber.id = %self.alive.id, "the claim of an activation was lost");
                return self.alive.away();
            }
            let text: Arc<str> = chain(&why).into();
            failed = if progress { 1 } else { failed + 1 };
            let pause = pause(failed);
            warn!(fiber.id = %self.alive.id, error = %text, pause_ms = pause.as_millis(), "fiber interrupted");
            if let Some(claim) = claim {
                // The store has just failed; if it does again, the fiber is still there, called running, and this worker's.
                let aside = Suspension::Interrupted(text.to_string());
                match self.core.store.suspend(claim, aside, self.core.now_ms()).await {
                    Ok(Some(end)) => {
                        let stop = self.ended(end);
                        return self.alive.stop(stop);
                    }
                    Err(error) if error.is_claim_lost() => return self.alive.away(),
                    Ok(None) | Err(_) => {}
                }
            }
            self.core.tell(&self.alive.id, &self.name, || EventKind::Interrupted { reason: Arc::clone(&text) });
            if failed > 1 {
                self.alive.set(Phase::Stopped(Stop::Interrupted(text)));
            }
            let control = Arc::clone(&self.alive.control);
            let over = async {
                race(control.made_ready_or_asked(), self.core.clock.sleep(pause)).await;
            };
            if race(self.core.closing(), over).await.is_some() {
                return self.alive.stop(Stop::Closed);
            }
            self.alive.set(Phase::Running);
        }
    }

    /// One run, from the invocation or from what is stored.
    async fn once(&mut self, begin: Option<(Claim, Box<dyn Any + Send>)>) -> Ran {
        let entered = self.enter(begin).await;
        self.turn.pass().await;
        self.entering.take();
        let Entered { driven, sink, run, resuming, claim } = match entered {
            Ok(entered) => entered,
            Err(not) => return not,
        };
        self.core.tell(&self.alive.id, &self.name, || EventKind::Started { resuming });
        let span = info_span!("fiber", fiber.id = %self.alive.id, fiber.name = self.name, forever.resuming = resuming);
        let driven = sink.let_others_in(Guarded::new(driven).instrument(span));
        let outcome = until_told(&self.core, &self.alive, &run, driven).await;
        Ran { outcome, claim: Some(claim), progress: sink.progress.load(Ordering::Relaxed), settled: run.ops.take_settled() }
    }

    /// Makes a run ready and claims the fiber; `Err` when it cannot be run.
    async fn enter(&mut self, begin: Option<(Claim, Box<dyn Any + Send>)>) -> Result<Entered, Ran> {
        if let Some((claim, call)) = begin {
            return self.prepare(Begin::Call(call), claim).map_err(|why| Ran::not(Outcome::Parked(why), Some(claim)));
        }
        let stored = match self.core.store.load(self.seq).await {
            Ok(stored) => stored,
            Err(error) if error.kind() == ErrorKind::Value => {
                // What is wrong with the row is said in it, if at least its epoch can be read.
                let claim = self.core.store.epoch(self.seq).await.unwrap_or(None).map(|epoch| Claim { fiber: self.seq, epoch });
                return Err(Ran::not(Outcome::Parked(chain(&error)), claim));
            }
            Err(error) => return Err(Ran::not(Outcome::Interrupted(error), None)),
        };
        let (deaths, seen) = (stored.deaths, Claim { fiber: self.seq, epoch: stored.epoch });
        let limit = self.known.as_ref().and_then(|known| known.machine().max_recoveries).unwrap_or(MAX_RECOVERIES);
        if self.known.is_some() && deaths > limit {
            let why =
                format!("the process died {deaths} times while it ran, without a checkpoint in between; {limit} recoveries are allowed");
            return Err(Ran::not(Outcome::Failed(why), Some(seen)));
        }
        let entered = self.prepare(Begin::Stored(Box::new(stored)), seen);
        let mut entered = entered.map_err(|why| Ran::not(Outcome::Parked(why), Some(seen)))?;
        if deaths >= SUSPECT {
            // It may wait long, and those behind it should not.
            self.turn.pass().await;
            let permit = race(Arc::clone(&self.core.suspects).acquire_owned(), self.core.closing()).await.and_then(Result::ok);
            entered.sink.suspect(permit);
        }
        if self.core.is_closing() {
            return Err(Ran::not(Outcome::Interrupted(Error::closed()), Some(seen)));
        }
        entered.claim = self.claim(seen).await?;
        entered.sink.claimed(entered.claim);
        Ok(entered)
    }

    /// A run that is not claimed yet, unless it begins with an invocation; `Err` says why what is stored does not fit.
    fn prepare(&self, mut begin: Begin, claim: Claim) -> Result<Entered, String> {
        let Some(known) = &self.known else {
            warn!(fiber.id = %self.alive.id, fiber.name = %self.name, "fiber is not registered");
            return Err(format!("fiber `{}` is not registered", self.name));
        };
        let (left, resuming, same_layout) = match &mut begin {
            Begin::Call(_) => (None, false, false),
            Begin::Stored(stored) => {
                let same = stored.callees.is_empty() && stored.layout.as_ref().is_some_and(|l| l.hash == known.row().hash);
                (Some(Left::of(stored, &self.unreadable)), stored.snapshot.is_some(), same)
            }
        };
        let sink = Arc::new(StoreSink::new(&self.core, known, claim, &self.alive, self.agent.clone(), same_layout));
        let (id, to_store) = (&self.alive.id, Arc::clone(&sink) as Arc<dyn Sink>);
        let run = match left {
            Some(left) => Run::again(id, to_store, left),
            None => Run::first(id, to_store),
        };
        let ctx = FiberContext {
            id: self.alive.id.clone(),
            name: self.name.as_str().into(),
            resuming,
            resources: self.core.resources.clone(),
            clock: Arc::clone(&self.core.clock),
            run: Arc::clone(&run),
        };
        let driven = known.prepare(begin, ctx, Arc::clone(&run))?;
        Ok(Entered { driven, sink, run, resuming, claim })
    }

    async fn claim(&self, seen: Claim) -> Result<Claim, Ran> {
        let claimed = self.core.store.claim(seen, self.core.worker, self.core.now_ms()).await;
        // Whether it is claimed is unknown when this fails: nothing is stored under what was read, and the next look says.
        match claimed.map_err(|error| Ran::not(Outcome::Interrupted(error), None))? {
            ClaimResult::Granted(claim) => {
                self.alive.control.claimed();
                Ok(claim)
            }
            ClaimResult::Ended(end) => Err(Ran::not(Outcome::Ended(end), None)),
            ClaimResult::Refused => Err(Ran::not(Outcome::Lost, None)),
        }
    }

    /// Stores how a run ended; `Err` when it is to be tried again.
    async fn keep(&self, outcome: Outcome, claim: Option<Claim>, settled: Vec<OpOutcome>) -> Result<Next> {
        debug!(fiber.id = %self.alive.id, outcome = outcome.word(), "fiber stopped");
        let Some(claim) = claim else {
            return match outcome {
                Outcome::Interrupted(error) => Err(error),
                // Nothing can be stored of a row whose epoch cannot be read.
                Outcome::Parked(why) => Ok(Next::Stop(self.parked(&why))),
                Outcome::Ended(end) => Ok(Next::Stop(self.ended(end))),
                _ => Ok(Next::Leave),
            };
        };
        if let Some(reason) = self.alive.control.reason()
            && !matches!(outcome, Outcome::Lost)
        {
            return self.end(claim, End::Cancelled(reason.to_string()), settled).await.map(Next::Stop);
        }
        match outcome {
            Outcome::Completed(text) => self.end(claim, End::Completed(text), settled).await.map(Next::Stop),
            Outcome::Failed(why) => self.end(claim, End::Failed(why), settled).await.map(Next::Stop),
            Outcome::Parked(why) => {
                let ended = self.core.store.suspend(claim, Suspension::Parked(why.clone()), self.core.now_ms()).await?;
                Ok(Next::Stop(match ended {
                    Some(end) => self.ended(end),
                    None => self.parked(&why),
                }))
            }
            Outcome::Waiting(wait) => {
                let due = wait.due_ms;
                if self.core.store.wait(claim, wait, self.core.now_ms()).await? == WaitResult::Ready {
                    return Ok(Next::Again);
                }
                if let Some(due) = due {
                    self.core.timer.set_earlier(Alarm::the(dispatch::WAITS), due);
                }
                self.core.tell(&self.alive.id, &self.name, || EventKind::Waiting);
                Ok(Next::Leave)
            }
            Outcome::Lost | Outcome::Ended(_) | Outcome::Unreadable(..) => Ok(Next::Leave),
            Outcome::Interrupted(error) => Err(error),
        }
    }

    fn parked(&self, why: &str) -> Stop {
        let reason: Arc<str> = why.into();
        self.core.tell(&self.alive.id, &self.name, || EventKind::Parked { reason: Arc::clone(&reason) });
        Stop::Parked(reason)
    }

    /// Tells of an end that is stored.
    fn ended(&self, end: End) -> Stop {
        settled_as(&self.core, &self.alive.id, &self.name, self.agent.as_ref(), end)
    }

    /// Stores how the fiber ended, and tells whom it concerns.
    async fn end(&self, claim: Claim, end: End, ops: Vec<OpOutcome>) -> Result<Stop> {
        let end = self.core.store.end(claim, end, ops, self.core.now_ms()).await?;
        Ok(self.ended(end))
    }
}

/// Drives a run until it ends; one that is told to stop ends by itself or, when it is cancelled, is dropped in the end.
pub(crate) async fn until_told(core: &Core, alive: &Alive, run: &Run, driven: impl Future<Output = Outcome>) -> Outcome {
    let (mut driven, control) = (std::pin::pin!(driven), &alive.control);
    let told = race(core.closing(), control.lost_or_asked());
    if let Some(outcome) = race(driven.as_mut(), async {
        told.await;
    })
    .await
    {
        return outcome;
    }
    if control.is_lost() {
        // The store has refused a write: the code is dropped where it is.
        return Outcome::Lost;
    }
    run.ops.ask_to_stop();
    // A runtime that closes has a deadline of its own, after which the whole task is dropped.
    let grace = async {
        control.asked().await;
        core.clock.sleep(core.settings.cancel_grace).await;
    };
    match race(race(driven, control.lost()), grace).await {
        Some(Some(outcome)) => outcome,
        Some(None) => Outcome::Lost,
        None => Outcome::Interrupted(Error::closed()),
    }
}

/// What those who wait for a fiber hear of its end; its agent is told as well.
pub(crate) fn settled_as(core: &Arc<Core>, id: &str, name: &str, agent: Option<&AgentId>, end: End) -> Stop {
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
            Outcome::Parked(_) | Outcome::Unreadable(..) => "parked",
            Outcome::Interrupted(_) => "interrupted",
            Outcome::Waiting(_) => "waiting",
            Outcome::Ended(_) => "ended",
            Outcome::Lost => "lost",
        }
    }
}

/// How long to wait after `failed` interruptions in a row without progress.
pub(crate) fn pause(failed: u32) -> Duration {
    let (first, longest) = BACKOFF;
    first.saturating_mul(1 << (failed.saturating_sub(1)).min(16)).min(longest)
}
