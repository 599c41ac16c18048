//! Runs one activation of a fiber in its task: claims it, drives it, and stores how it ended.
//!
//! A fiber's code begins only under a claim, and everything it stores is conditional on that claim.
//! When the store fails, the fiber is interrupted: it goes back to its last snapshot and claims it
//! again, later and later, until the store works or the runtime closes. When the claim is lost, the
//! activation stops at once and stores nothing. A fiber that waits leaves: what wakes it starts a
//! new task.
use std::any::Any;
use std::collections::BTreeSet;
use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tracing::{Instrument, debug, info_span, warn};

use crate::error::{Error, ErrorKind, Result, chain};
use crate::exec::backend::StoreBackend;
use crate::exec::compatibility::not_registered;
use crate::exec::dispatch;
use crate::exec::entry_order::Standing;
use crate::exec::executor::Executor;
use crate::exec::failed;
use crate::exec::lease::{LeaseNumber, while_leased};
use crate::exec::registry::{Begin, Known};
use crate::frame::backend::RunBackend;
use crate::frame::context::FiberContext;
use crate::frame::poll::Guarded;
use crate::frame::run::Run;
use crate::future::BoxFuture;
use crate::ops::known::Left;
use crate::runtime::active::{ActiveGuard, RunState};
use crate::runtime::events::EventKind;
use crate::runtime::exit::Exit;
use crate::runtime::exits;
use crate::runtime::race::race;
use crate::runtime::state::Runtime;
use crate::runtime::sync::sleep;
use crate::runtime::timer::Alarm;
use crate::store::{
    AgentId, Claim, ClaimResult, DeclineResult, End, Epoch, FiberState, LoadedFiber, OpOutcome, Runnable, Seq, StoredClaim, StreamAppend,
    Suspension, WaitResult,
};

/// `max_recoveries` where the fiber does not say.
pub(crate) const MAX_RECOVERIES: u32 = 10;

/// One fiber to be run.
pub(crate) struct FiberTask {
    pub(crate) exec: Arc<Executor>,
    /// Its stored name.
    name: String,
    /// Its function; none that is not registered.
    known: Option<Arc<Known>>,
    seq: Seq,
    agent: Option<AgentId>,
    /// What this task knows of who may run the fiber.
    known_claim: KnownClaim,
    /// Deaths of its workers since its last progress.
    deaths: u32,
    /// Whether the activation before this one was cut off.
    interrupted: bool,
    /// The lease that its claim was requested under.
    lease: LeaseNumber,
    alive: ActiveGuard,
    turn: Turn,
    /// The functions whose values could not be read, by their depth of calls.
    unreadable: BTreeSet<u32>,
    /// Held until the fiber is in memory.
    entering: Option<OwnedSemaphorePermit>,
    /// Held until the fiber has made progress, unless it was just accepted.
    standing: Option<Standing>,
    /// What the activation before has left for the next one.
    handed_over: Option<Arc<dyn Any + Send + Sync>>,
    /// Whether the arguments of its invocation may be secret.
    is_secret: bool,
}

/// A fiber's place among those that are recovered: entered after the one before, and before the one
/// after.
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

/// What an activation knows of the claim of its fiber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KnownClaim {
    /// The fiber is stopped in this state, and may be claimed at this epoch.
    Stopped(FiberState, Epoch),
    /// This activation has it claimed at this epoch.
    Claimed(Epoch),
    /// A write of this activation at this epoch may have been carried out or not.
    Unknown(Epoch),
}

impl KnownClaim {
    fn epoch(self) -> Epoch {
        match self {
            KnownClaim::Stopped(_, epoch) | KnownClaim::Claimed(epoch) | KnownClaim::Unknown(epoch) => epoch,
        }
    }
}

/// A fiber whose code may begin.
struct Entered {
    driven: BoxFuture<'static, Exit>,
    backend: Arc<StoreBackend>,
    run: Arc<Run>,
    resuming: bool,
    claim: Claim,
}

/// Result of a run.
struct Ran {
    exit: Exit,
    /// What is stored of it is conditional on this: none if nothing could be read of the fiber.
    claim: Option<Claim>,
    /// Whether it has come further than the last checkpoint before it.
    progress: bool,
    /// Operations that have ended since its last checkpoint.
    settled: Vec<OpOutcome>,
    /// What it has sent to its streams since then.
    sent: Vec<StreamAppend>,
}

impl Ran {
    /// It was not entered.
    fn not(exit: Exit, claim: Option<Claim>) -> Self {
        Ran { exit, claim, progress: false, settled: Vec::new(), sent: Vec::new() }
    }
}

/// Leaves the task, with an exit to report if there is one, or runs the fiber again at once.
type Next = ControlFlow<Option<Exit>>;

impl FiberTask {
    pub(crate) fn new(
        exec: &Arc<Executor>,
        fiber: &Runnable,
        alive: ActiveGuard,
        turn: Turn,
        entering: Option<OwnedSemaphorePermit>,
    ) -> Self {
        let known = exec.registry.get(&fiber.name);
        let (name, agent) = (fiber.name.clone(), fiber.agent.clone());
        let known_claim = KnownClaim::Stopped(fiber.state, fiber.epoch);
        let (exec, unreadable) = (Arc::clone(exec), BTreeSet::new());
        let lease = LeaseNumber::of(&exec.runtime);
        let standing = Some(exec.order.stand(fiber));
        FiberTask {
            exec,
            name,
            known,
            seq: fiber.seq,
            agent,
            known_claim,
            deaths: fiber.deaths,
            interrupted: false,
            lease,
            alive,
            turn,
            unreadable,
            entering,
            standing,
            handed_over: None,
            is_secret: false,
        }
    }

    /// Runs a fiber that was just accepted, under the claim that it was accepted with, which was
    /// requested under `lease`.
    pub(crate) async fn begin(
        exec: Arc<Executor>,
        known: Arc<Known>,
        (claim, lease): (Claim, LeaseNumber),
        agent: Option<AgentId>,
        alive: ActiveGuard,
        (call, is_secret): (Box<dyn Any + Send>, bool),
    ) {
        let task = FiberTask {
            exec,
            name: known.machine.name.to_owned(),
            known: Some(known),
            seq: claim.fiber,
            agent,
            known_claim: KnownClaim::Claimed(claim.epoch),
            deaths: 0,
            interrupted: false,
            lease,
            alive,
            turn: Turn::default(),
            unreadable: BTreeSet::new(),
            entering: None,
            standing: None,
            handed_over: None,
            is_secret,
        };
        task.run(Some((claim, call))).await;
    }

    /// Runs a fiber that is stored and claimed by no worker.
    pub(crate) async fn recover(self) {
        self.run(None).await;
    }

    async fn run(mut self, mut begin: Option<(Claim, Box<dyn Any + Send>)>) {
        // Its agent stays in memory for as long as it does.
        let _held = self.agent.as_ref().map(|agent| self.exec.agents.hold(&self.exec.runtime, agent));
        let mut failed = 0;
        loop {
            let Ran { exit, claim, progress, settled, sent } = self.once(begin.take()).await;
            let exit = match exit {
                // It is entered once more, and its `migrate` function is asked.
                Exit::Unreadable { depth, .. } if self.unreadable.insert(depth) && self.alive.control.reason().is_none() => continue,
                Exit::Unreadable { why, .. } => Exit::Unfit(why),
                exit => exit,
            };
            if let Exit::Again(handed_over) = &exit {
                self.handed_over = Some(Arc::clone(handed_over));
            }
            let why = match self.store_exit(exit, claim, settled, sent).await {
                Ok(Break(Some(exit))) => return self.alive.stop(exit),
                Ok(Break(None)) => return self.alive.away(),
                Ok(Continue(())) => continue,
                Err(why) => why,
            };
            if self.exec.runtime.is_closing() || why.is_closed() {
                return self.alive.stop(Exit::Closed);
            }
            if why.is_claim_lost() {
                debug!(fiber.id = %self.alive.id, "the claim of an activation was lost");
                return self.alive.away();
            }
            // The write that failed may have been carried out all the same.
            self.known_claim = KnownClaim::Unknown(self.known_claim.epoch());
            let text: Arc<str> = chain(&*why).into();
            failed = if progress { 1 } else { failed + 1 };
            let pause = self.exec.runtime.settings.timings.pause_after(failed);
            warn!(fiber.id = %self.alive.id, error = %text, pause_ms = pause.as_millis(), "fiber interrupted");
            // Among several workers it stays claimed, so that another one takes it over if this one
            // dies.
            if let Some(claim) = claim.filter(|_| self.exec.runtime.cluster().is_none()) {
                // The store has just failed; if it does again, the fiber is still there, called
                // running, and this worker's.
                let aside = Suspension::Interrupted(text.to_string());
                match self.exec.runtime.store.suspend(claim, aside, self.exec.runtime.now_ms()).await {
                    Ok(Some(end)) => {
                        let exit = self.report(end.into());
                        return self.alive.stop(exit);
                    }
                    Err(error) if error.is_claim_lost() => return self.alive.away(),
                    Ok(None) | Err(_) => {}
                }
            }
            self.exec.runtime.tell(&self.alive.id, &self.name, || EventKind::Interrupted { reason: Arc::clone(&text) });
            if failed > 1 {
                self.alive.set(RunState::Stopped(Exit::Interrupted(why)));
            }
            let control = Arc::clone(&self.alive.control);
            let over = async {
                race(control.made_ready_or_asked(), self.exec.runtime.clock.sleep(pause)).await;
            };
            if race(self.exec.runtime.closing(), over).await.is_some() {
                return self.alive.stop(Exit::Closed);
            }
            self.alive.set(RunState::Running);
        }
    }

    /// One run, from the invocation or from what is stored.
    async fn once(&mut self, begin: Option<(Claim, Box<dyn Any + Send>)>) -> Ran {
        let entered = self.enter(begin).await;
        self.turn.pass().await;
        self.entering.take();
        self.standing.take();
        let Entered { driven, backend, run, resuming, claim } = match entered {
            Ok(entered) => entered,
            Err(not) => return not,
        };
        self.exec.runtime.tell(&self.alive.id, &self.name, || EventKind::Started { resuming });
        let span = info_span!("fiber", fiber.id = %self.alive.id, fiber.name = self.name, forever.resuming = resuming);
        let driven = backend.let_others_in(Guarded::new(driven).instrument(span));
        let driven = while_leased(&self.exec.runtime, claim, self.lease, driven);
        let exit = until_told(&self.exec, &self.alive, &run, driven).await;
        let mut sent = run.outputs.take();
        if let (Exit::Failed(_), Some((function, step))) = (&exit, run.tx_position.step()) {
            sent.push(failed::record(function, step));
        }
        let exit = run.secrets.exit(exit);
        Ran { exit, claim: Some(claim), progress: backend.progress.load(Ordering::Relaxed), settled: run.ops.take_settled(), sent }
    }

    /// Makes a run ready and claims the fiber; `Err` when it cannot be run.
    async fn enter(&mut self, begin: Option<(Claim, Box<dyn Any + Send>)>) -> Result<Entered, Ran> {
        if let Some((claim, call)) = begin {
            return self.prepare(Begin::Call(call), claim).map_err(|why| Ran::not(Exit::unfit(why), Some(claim)));
        }
        self.wait_to_enter().await;
        let Some(seen) = self.seen().await? else { return Err(Ran::not(Exit::ClaimLost, None)) };
        // Not claimed only to end: the deaths are those of this epoch.
        if let Some(exit) = self.exhausted(self.deaths) {
            return Err(Ran::not(exit, Some(seen)));
        }
        let suspect = self.pass_healthier().await;
        self.wait_to_enter().await;
        if self.exec.runtime.is_closing() {
            return Err(Ran::not(Exit::cut_off(), None));
        }
        let (claim, stored) = self.claim(seen).await?;
        if let Some(exit) = self.exhausted(stored.deaths) {
            return Err(Ran::not(exit, Some(claim)));
        }
        let entered = self.prepare(Begin::Stored(stored), claim).map_err(|why| Ran::not(Exit::unfit(why), Some(claim)))?;
        entered.backend.hold_until_progress(suspect, self.standing.take());
        Ok(entered)
    }

    /// Waits until it may be among those that are started, unless it is.
    async fn wait_to_enter(&mut self) {
        if self.entering.is_none() {
            self.entering = self.exec.permit_to_enter().await;
        }
    }

    /// Lets a suspect wait for fibers with fewer deaths; gives the permit of the one that may be
    /// entered.
    async fn pass_healthier(&mut self) -> Option<OwnedSemaphorePermit> {
        if !self.standing.as_ref()?.is_suspect() {
            return None;
        }
        // It may wait long, and those behind it should not.
        self.turn.pass().await;
        self.entering.take();
        let (standing, runtime) = (self.standing.as_ref()?, &self.exec.runtime);
        let healthier = async {
            race(standing.healthier_gone(), sleep(runtime.settings.timings.suspect)).await;
        };
        race(healthier, runtime.closing()).await?;
        race(standing.is_next(), runtime.closing()).await?;
        let permit = race(Arc::clone(&self.exec.suspects).acquire_owned(), runtime.closing()).await.and_then(Result::ok);
        standing.entered();
        permit
    }

    /// The exit of a fiber that has died too often.
    fn exhausted(&self, deaths: u32) -> Option<Exit> {
        let limit = self.known.as_ref()?.machine.max_recoveries.unwrap_or(MAX_RECOVERIES);
        (deaths > limit).then(|| {
            let why =
                format!("the process died {deaths} times while it ran, without a checkpoint in between; {limit} recoveries are allowed");
            Exit::failed(why)
        })
    }

    /// The epoch at which this activation may claim the fiber; `None` if the fiber has moved on
    /// without it.
    async fn seen(&mut self) -> Result<Option<Claim>, Ran> {
        let epoch = match self.known_claim {
            // Neither is claimed only to be parked again.
            KnownClaim::Stopped(state, epoch) if state == FiberState::Parked || self.known.is_none() => return self.fits(epoch).await,
            KnownClaim::Claimed(epoch) | KnownClaim::Stopped(_, epoch) => epoch,
            KnownClaim::Unknown(epoch) => {
                let stored = self.exec.runtime.store.claim_of(self.seq).await;
                let stored = stored.map_err(|error| Ran::not(Exit::interrupted(error), None))?;
                // Anything else has come from another worker or a command, and is the dispatcher's.
                let this = Some(self.exec.runtime.worker);
                let alone = self.exec.runtime.cluster().is_none();
                let own = |stored: &StoredClaim| {
                    [epoch, epoch.saturating_add(1)].contains(&stored.epoch) && (stored.worker == this || stored.worker.is_none() && alone)
                };
                match stored.filter(own) {
                    Some(StoredClaim { epoch, .. }) => epoch,
                    None => return Ok(None),
                }
            }
        };
        Ok(Some(Claim { fiber: self.seq, epoch }))
    }

    /// Looks whether a stopped fiber fits the code. A parked one that does not is not written, so
    /// that since when it is parked stays stored.
    async fn fits(&mut self, epoch: Epoch) -> Result<Option<Claim>, Ran> {
        let seen = Claim { fiber: self.seq, epoch };
        let stored = match self.exec.runtime.store.load(self.seq).await {
            Ok(stored) => stored,
            Err(error) if error.kind() == ErrorKind::Value => return Err(Ran::not(Exit::parked(chain(&error)), Some(seen))),
            Err(error) => return Err(Ran::not(Exit::interrupted(error), None)),
        };
        if stored.epoch != epoch {
            return Ok(None);
        }
        match self.prepare(Begin::Stored(Box::new(stored)), seen) {
            Ok(_) => Ok(Some(seen)),
            Err(why) => Err(Ran::not(Exit::unfit(why), Some(seen))),
        }
    }

    /// A run that is not claimed yet, unless it begins with an invocation; `Err` says why what is
    /// stored does not fit.
    fn prepare(&mut self, mut begin: Begin, claim: Claim) -> Result<Entered, String> {
        let handed_over = self.handed_over.take();
        let Some(known) = &self.known else {
            warn!(fiber.id = %self.alive.id, fiber.name = %self.name, "fiber is not registered");
            return Err(not_registered(&self.name));
        };
        let interrupted = matches!(&begin, Begin::Stored(stored) if stored.interrupted);
        let (left, resuming, same_layout) = match &mut begin {
            Begin::Call(_) => (None, false, false),
            Begin::Stored(stored) => {
                let same = stored.callees.is_empty() && stored.layout.as_ref().is_some_and(|l| l.hash == known.row().hash);
                (Some(Left::of(stored, &self.unreadable)), stored.snapshot.is_some(), same)
            }
        };
        let backend = Arc::new(StoreBackend::new(&self.exec, known, claim, &self.alive, self.agent.clone(), same_layout));
        if let Begin::Stored(stored) = &begin {
            backend.set_earlier_lease(stored.lease_left_ms);
        }
        if let (Begin::Stored(stored), Some(mut history)) = (&begin, backend.history()) {
            history.resume(&stored.rows);
        }
        let (id, to_store) = (&self.alive.id, Arc::clone(&backend) as Arc<dyn RunBackend>);
        let run = match left {
            Some(left) => Run::again(id, to_store, left),
            None => Run::first(id, to_store, self.is_secret),
        };
        let ctx = FiberContext {
            id: self.alive.id.clone(),
            name: self.name.as_str().into(),
            resuming,
            resources: self.exec.resources.clone(),
            clock: Arc::clone(&self.exec.runtime.clock),
            run: Arc::clone(&run),
            interrupted,
            handed_over,
            host: None,
        };
        let driven = known.prepare(begin, ctx, Arc::clone(&run))?;
        Ok(Entered { driven, backend, run, resuming, claim })
    }

    /// Claims the fiber, and loads what it runs from.
    async fn claim(&mut self, seen: Claim) -> Result<(Claim, Box<LoadedFiber>), Ran> {
        // Until the answer is there, whether it is claimed is unknown.
        self.known_claim = KnownClaim::Unknown(seen.epoch);
        self.lease = LeaseNumber::of(&self.exec.runtime);
        let claimed = self.exec.runtime.store.claim(seen, self.exec.runtime.worker, self.exec.runtime.now_ms()).await;
        match claimed {
            Ok(ClaimResult::Granted(claim, stored)) => {
                self.known_claim = KnownClaim::Claimed(claim.epoch);
                self.interrupted = stored.interrupted;
                self.alive.control.claimed(claim.epoch);
                Ok((claim, stored))
            }
            Ok(ClaimResult::Ended(end)) => Err(Ran::not(Exit::from(end), None)),
            Ok(ClaimResult::Refused) => {
                debug!(fiber.id = %self.alive.id, epoch = seen.epoch, "the claim of a fiber was refused");
                Err(Ran::not(Exit::ClaimLost, None))
            }
            // What is wrong with the row is said in it, if at least its epoch can be read.
            Err(error) if error.kind() == ErrorKind::Value => Err(Ran::not(Exit::parked(chain(&error)), Some(seen))),
            Err(error) => Err(Ran::not(Exit::interrupted(error), None)),
        }
    }

    /// Stores how a run ended; `Err` when it is to be tried again.
    async fn store_exit(
        &mut self,
        exit: Exit,
        claim: Option<Claim>,
        settled: Vec<OpOutcome>,
        sent: Vec<StreamAppend>,
    ) -> Result<Next, Arc<Error>> {
        debug!(fiber.id = %self.alive.id, exit = exit.word(), "fiber stopped");
        let Some(claim) = claim else {
            return match exit {
                Exit::Interrupted(error) => Err(error),
                // Nothing can be stored of a row whose epoch cannot be read.
                Exit::Parked(why) | Exit::Unfit(why) => {
                    self.parked(&why);
                    Ok(Break(Some(Exit::Unfit(why))))
                }
                // It was cancelled, and has ended in the attempt to claim it.
                exit @ (Exit::Completed(_) | Exit::Failed(_) | Exit::Cancelled(_)) => Ok(Break(Some(self.report(exit)))),
                _ => Ok(Break(None)),
            };
        };
        if let Some(reason) = self.alive.control.reason()
            && !matches!(exit, Exit::ClaimLost)
        {
            return self.end(claim, End::Cancelled(reason.to_string()), settled, sent).await.map(|exit| Break(Some(exit)));
        }
        match exit {
            Exit::Completed(text) => self.end(claim, End::Completed(text.to_string()), settled, sent).await.map(|exit| Break(Some(exit))),
            Exit::Failed(why) => self.end(claim, End::Failed(why.to_string()), settled, sent).await.map(|exit| Break(Some(exit))),
            Exit::Unfit(why) => match decline(&self.exec.runtime, claim, &why, self.interrupted).await? {
                DeclineResult::Left => {
                    debug!(fiber.id = %self.alive.id, reason = %why, "a fiber is left to workers whose code fits");
                    Ok(Break(None))
                }
                DeclineResult::Parked => Ok(Break(Some(self.parked(&why)))),
                DeclineResult::Ended(end) => Ok(Break(Some(self.report(end.into())))),
            },
            Exit::Parked(why) => {
                let ended = self.exec.runtime.store.suspend(claim, Suspension::Parked(why.to_string()), self.exec.runtime.now_ms()).await?;
                Ok(Break(Some(match ended {
                    Some(end) => self.report(end.into()),
                    None => self.parked(&why),
                })))
            }
            Exit::StoredAsParked(why) => {
                let parked = Suspension::Parked(why.to_string());
                match self.exec.runtime.store.suspend(claim, parked, self.exec.runtime.now_ms()).await {
                    Ok(Some(end)) => Ok(Break(Some(self.report(end.into())))),
                    Ok(None) => Ok(Break(Some(self.parked(&why)))),
                    // It was released when it was parked.
                    Err(error) if error.is_claim_lost() => Ok(Break(Some(self.parked(&why)))),
                    Err(error) => Err(error.into()),
                }
            }
            Exit::Waiting(wait) => {
                let due = wait.due_ms;
                if self.exec.runtime.store.wait(claim, wait, self.exec.runtime.now_ms()).await? == WaitResult::Ready {
                    return Ok(Continue(()));
                }
                if let Some(due) = due {
                    self.exec.runtime.timer.set_earlier(Alarm::the(dispatch::WAITS), due);
                }
                self.exec.runtime.tell(&self.alive.id, &self.name, || EventKind::Waiting);
                Ok(Break(None))
            }
            // What was still to be written under the claim is refused from now on.
            Exit::Again(_) => {
                let aside = Suspension::Interrupted("it is tried again".to_owned());
                let ended = self.exec.runtime.store.suspend(claim, aside, self.exec.runtime.now_ms()).await?;
                self.known_claim = KnownClaim::Stopped(FiberState::Interrupted, claim.epoch.saturating_add(1));
                Ok(ended.map_or(Continue(()), |end| Break(Some(self.report(end.into())))))
            }
            Exit::Interrupted(error) => Err(error),
            _ => Ok(Break(None)),
        }
    }

    fn parked(&self, why: &str) -> Exit {
        let reason: Arc<str> = why.into();
        Runtime::log_stopped(&self.alive.id, &self.name, "parked", why);
        self.exec.runtime.tell(&self.alive.id, &self.name, || EventKind::Parked { reason: Arc::clone(&reason) });
        Exit::Parked(reason)
    }

    /// Tells of an end that is stored.
    fn report(&self, exit: Exit) -> Exit {
        exits::report(&self.exec.runtime, &self.alive.id, &self.name, self.agent.as_ref(), exit)
    }

    /// Stores how the fiber ended, and tells whom it concerns.
    async fn end(&self, claim: Claim, end: End, ops: Vec<OpOutcome>, sent: Vec<StreamAppend>) -> Result<Exit, Arc<Error>> {
        let end = self.exec.runtime.store.end(claim, end, ops, sent, self.exec.runtime.now_ms()).await?;
        Ok(self.report(end.into()))
    }
}

/// Drives a run until it ends. A run that is asked to stop ends by itself or, when it is cancelled,
/// is dropped after its grace.
pub(crate) async fn until_told(exec: &Executor, alive: &ActiveGuard, run: &Run, driven: impl Future<Output = Exit>) -> Exit {
    let control = &alive.control;
    #[cfg(feature = "testing")]
    let driven = crate::testing::fuse::Fuse::count_polls(exec.runtime.settings.fuse.as_ref(), || exec.runtime.is_closing(), driven);
    let cancelled = async {
        control.asked().await;
        run.ops.cancel();
        exec.runtime.clock.sleep(exec.runtime.settings.cancel_grace).await;
    };
    let closing = async {
        exec.runtime.closing().await;
        run.ops.close();
        // It has a deadline of its own, after which the whole task is dropped.
        std::future::pending::<()>().await;
    };
    let told = async {
        race(cancelled, closing).await;
    };
    // Once the store has refused a write, the code is dropped where it is.
    match race(race(driven, control.lost()), told).await {
        Some(Some(outcome)) => outcome,
        Some(None) => Exit::ClaimLost,
        None => Exit::cut_off(),
    }
}

/// Leaves a fiber that does not fit the code of this worker to other workers. Without one that may
/// run it, it is parked.
///
/// `interrupted` says whether the activation before was cut off: then the hook of its agent decides
/// there as well.
pub(crate) async fn decline(runtime: &Runtime, seen: Claim, why: &str, interrupted: bool) -> Result<DeclineResult> {
    if let Some(cluster) = runtime.cluster() {
        return cluster.decline(seen, runtime.worker, why.to_owned(), interrupted, runtime.now_ms()).await;
    }
    let ended = runtime.store.suspend(seen, Suspension::Parked(why.to_owned()), runtime.now_ms()).await?;
    Ok(ended.map_or(DeclineResult::Parked, DeclineResult::Ended))
}
