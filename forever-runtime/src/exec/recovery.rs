//! Picks up, at open, every fiber that an earlier process has left: those with fewer deaths first,
//! of these the oldest first, each in its own task.
//!
//! A fiber of an agent is handed to the agent's hooks first: it is claimed, the hook is asked, and
//! its decision is stored under that claim, as often as it takes. A command of a person that was
//! first makes the decision void. A fiber whose function is not registered is parked and left as it
//! is; the next open looks at it again. What is wrong with one fiber is found in its own task and
//! never keeps the others.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tracing::{info, warn};

use crate::clock::from_ms;
use crate::error::{Error, ErrorKind, Result, chain};
use crate::exec::activation::{FiberTask, MAX_RECOVERIES, Turn};
use crate::exec::agent_hooks::{RecoveredFiber, RecoveryAction};
use crate::exec::executor::Executor;
use crate::exec::lease::EarlierLease;
use crate::exec::{activation, dispatch};
use crate::frame::backend::RunBackend;
use crate::frame::current::told;
use crate::frame::run::Run;
use crate::future::BoxFuture;
use crate::ops::known::Left;
use crate::ops::ledger::Ledger;
use crate::ops::stored_ledger::StoredLedger;
use crate::runtime::active::ActiveGuard;
use crate::runtime::commands::in_doubt;
use crate::runtime::events::EventKind;
use crate::runtime::exit::Exit;
use crate::runtime::exits;
use crate::runtime::link::Link;
use crate::runtime::race::race;
use crate::runtime::state::Runtime;
use crate::store::{
    AgentId, Claim, ClaimResult, DeclineResult, End, FiberRef, FiberRow, FiberState, LoadedFiber, RestartResult, Runnable, Seq,
    StoredClaim, Suspension,
};

/// How many rows are read at a time; snapshots are read later, each by its fiber.
const PAGE: u32 = 512;

/// Starts a task for every fiber that has not ended and does not wait, and then lets those be woken
/// that do.
pub(crate) async fn recover(exec: &Arc<Executor>, had_others: bool) -> Result<()> {
    let left = left_behind(exec).await?;
    if !left.is_empty() {
        let count = |state| left.iter().filter(|fiber| fiber.state == state).count();
        let (interrupted, parked) = (count(FiberState::Interrupted), count(FiberState::Parked));
        let ready = left.len() - interrupted - parked;
        info!(fibers = left.len(), interrupted, parked, ready, "recovering unfinished fibers");
    }
    let mut to_start = Vec::new();
    let mut owned: BTreeMap<AgentId, Vec<Runnable>> = BTreeMap::new();
    for fiber in left {
        // Of a parked closure nothing can be looked at again but what its agent says of it: the
        // class may be registered now.
        if fiber.state == FiberState::Interrupted || fiber.closure && fiber.state == FiberState::Parked {
            exec.runtime.tell(&fiber.id, &fiber.name, || EventKind::Recovered { deaths: fiber.deaths });
            if let Some(agent) = fiber.agent.clone().filter(|_| !exec.registry.is_ours(&fiber.name)) {
                owned.entry(agent).or_default().push(fiber);
                continue;
            }
        }
        if fiber.closure {
            warn!(fiber.id = %fiber.id, fiber.name = %fiber.name, "a closure fiber was interrupted; it stays so until it is resolved");
            continue;
        }
        // A fiber that is ready may have been dispatched meanwhile.
        let Some(alive) = exec.runtime.active.activate(&fiber) else { continue };
        to_start.push((fiber, alive));
    }
    // All of them are active by now, so that those who wait for one do so until it has ended.
    exec.runtime.start(start_in_order(Arc::clone(exec), to_start))?;
    for (agent, fibers) in owned {
        // Those who wait for one of them hear of it when the hook has decided.
        let undecided = fibers.iter().map(|fiber| (fiber.seq, exec.runtime.active.decide(&fiber.id, &fiber.name))).collect();
        exec.runtime.start(hand_over(Arc::clone(exec), agent, fibers, undecided))?;
    }
    dispatch::begin(exec, had_others).await
}

/// Starts activations, as many as may be started at a time.
async fn start_in_order(exec: Arc<Executor>, fibers: Vec<(Runnable, ActiveGuard)>) {
    let mut before = None;
    for (fiber, alive) in fibers {
        let Some(permit) = exec.permit_to_enter().await else { return alive.stop(Exit::Closed) };
        let (through, next) = oneshot::channel();
        let turn = Turn { before: before.replace(next), after: Some(through) };
        if exec.runtime.start(FiberTask::new(&exec, &fiber, alive, turn, Some(permit)).recover()).is_err() {
            return;
        }
    }
}

/// The fibers that are to be entered, all of them before the first is: one that runs may wake
/// others, and a fiber that is woken while it is looked for would be entered twice.
async fn left_behind(exec: &Executor) -> Result<Vec<Runnable>> {
    let mut left: Vec<Runnable> = Vec::new();
    loop {
        let page = exec.runtime.store.unfinished(left.last().map_or(Seq::MIN, |last| last.seq), PAGE).await?;
        if page.is_empty() {
            left.sort_by_key(|fiber| fiber.deaths);
            return Ok(left);
        }
        left.extend(page);
    }
}

/// Leaves a closure that is stored, and whose code is gone although this process lives, to its
/// agent's hook.
pub(crate) async fn interrupt_closure(exec: &Arc<Executor>, fiber: &Runnable, claim: Claim, why: &str) -> Result<()> {
    exec.runtime.store.suspend(claim, Suspension::Interrupted(why.to_owned()), exec.runtime.now_ms()).await?;
    if let Some(agent) = fiber.agent.clone() {
        let undecided = BTreeMap::from([(fiber.seq, exec.runtime.active.decide(&fiber.id, &fiber.name))]);
        return exec.runtime.start(hand_over(Arc::clone(exec), agent, vec![fiber.clone()], undecided));
    }
    exec.runtime.active.tell(&fiber.id);
    Ok(())
}

/// Hands a fiber that was interrupted in another worker to its agent's hook; says whether it has.
pub(crate) fn ask_hook(exec: &Arc<Executor>, agent: AgentId, fiber: &Runnable) -> bool {
    if exec.runtime.active.is_live(&fiber.id) {
        return false;
    }
    let undecided = BTreeMap::from([(fiber.seq, exec.runtime.active.decide(&fiber.id, &fiber.name))]);
    exec.runtime.start(hand_over(Arc::clone(exec), agent, vec![fiber.clone()], undecided)).is_ok()
}

/// Hands an agent's interrupted fibers to its hooks; those whose hook fails again and again, later
/// and later.
///
/// Those who wait for one of them wait until its hook has answered, or failed, for the first time.
async fn hand_over(exec: Arc<Executor>, agent: AgentId, mut fibers: Vec<Runnable>, mut undecided: BTreeMap<Seq, ActiveGuard>) {
    if !exec.agents.knows(&agent.class) {
        let why = format!("agent class `{}` is not registered", agent.class);
        warn!(agent = %agent, fibers = fibers.len(), "agent class is not registered");
        for fiber in fibers {
            decline(&exec, &agent, &fiber, &why).await;
            away(&mut undecided, fiber.seq);
        }
        return;
    }
    let mut failed = 0;
    loop {
        let before = fibers.len();
        fibers = hand_over_once(&exec, &agent, fibers, &mut undecided).await;
        std::mem::take(&mut undecided).into_values().for_each(ActiveGuard::away);
        if fibers.is_empty() {
            return;
        }
        failed = if fibers.len() < before { 1 } else { failed + 1 };
        let over = race(exec.runtime.closing(), exec.runtime.pause_after(failed)).await;
        if over.is_some() {
            return;
        }
    }
}

/// One pass over an agent's interrupted fibers; gives back those that are still to be decided.
async fn hand_over_once(
    exec: &Arc<Executor>,
    agent: &AgentId,
    fibers: Vec<Runnable>,
    undecided: &mut BTreeMap<Seq, ActiveGuard>,
) -> Vec<Runnable> {
    let mut rows = BTreeMap::new();
    let mut described = Vec::new();
    for fiber in fibers {
        match describe(exec, &fiber).await {
            Ok(Some(Described::Dead { seen, deaths, limit })) => {
                let why = format!(
                    "the process died {deaths} times while it ran or was recovered, without a checkpoint in between; {limit} recoveries are allowed",
                );
                // Not claimed only to end: it is stopped at this epoch.
                Decided { exec, agent, fiber: &fiber, claim: seen }.end(End::Failed(why)).await;
            }
            Ok(Some(Described::Alive { recovered, seen })) => {
                described.push(*recovered);
                rows.insert(fiber.seq, (fiber, Some(seen)));
            }
            // A person has resolved, cancelled or resumed it meanwhile.
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::Value => park(exec, agent, &fiber, &chain(&error)).await,
            Err(error) => {
                warn!(fiber.id = %fiber.id, error = %chain(&error), "an interrupted fiber could not be read");
                rows.insert(fiber.seq, (fiber, None));
            }
        }
    }
    let left = |rows: BTreeMap<Seq, (Runnable, _)>| rows.into_values().map(|(fiber, _)| fiber).collect();
    if described.is_empty() {
        return left(rows);
    }
    let everybody = described.clone();
    let mut order = match asked(exec, exec.agents.order(&exec.runtime, agent, described)).await {
        Ok(order) => order,
        // That worker finds them.
        Err(why) if why.kind() == ErrorKind::AgentElsewhere => return Vec::new(),
        Err(why) => {
            let why = chain(&why);
            warn!(agent = %agent, error = %why, "an agent could not be asked about its interrupted fibers");
            for (fiber, seen) in rows.values() {
                if let Some(seen) = seen {
                    let reason = Suspension::HookFailed { reason: why.clone(), worker: exec.runtime.worker };
                    let _ = exec.runtime.store.suspend(*seen, reason, exec.runtime.now_ms()).await;
                }
                exec.runtime.active.tell(&fiber.id);
            }
            return left(rows);
        }
    };
    // One that a hook has left out is not forgotten: it comes last.
    for fiber in everybody {
        if !order.iter().any(|there| there.seq == fiber.seq) {
            order.push(fiber);
        }
    }
    for recovered in order {
        let Some((fiber, Some(seen))) = rows.get(&recovered.seq) else { continue };
        if decide(exec, agent, fiber, recovered.clone(), *seen).await {
            rows.remove(&recovered.seq);
        }
        away(undecided, recovered.seq);
    }
    left(rows)
}

/// It stands in the store, or is live by itself, from now on.
fn away(undecided: &mut BTreeMap<Seq, ActiveGuard>, seq: Seq) {
    if let Some(alive) = undecided.remove(&seq) {
        alive.away();
    }
}

/// What is known of an interrupted fiber.
enum Described {
    /// The process died with it more often than is allowed.
    Dead {
        seen: Claim,
        deaths: u32,
        limit: u32,
    },
    Alive {
        recovered: Box<RecoveredFiber>,
        seen: Claim,
    },
}

/// Looks at a fiber for its hook; `None` if it is not interrupted any more.
async fn describe(exec: &Arc<Executor>, fiber: &Runnable) -> Result<Option<Described>> {
    // Among several workers one that was interrupted is ready, with the reason.
    let undecided = |row: &FiberRow| {
        row.state == FiberState::Interrupted
            || row.closure && row.state == FiberState::Parked
            || row.state == FiberState::Pending && row.reason.is_some()
    };
    let stored = exec.runtime.store.load(fiber.seq).await?;
    // After the load: while a claim at its epoch is possible, this row is of that epoch too.
    let Some(row) = exec.runtime.store.find(FiberRef::Seq(fiber.seq)).await?.filter(undecided) else {
        return Ok(None);
    };
    let seen = Claim { fiber: fiber.seq, epoch: stored.epoch };
    let limit = exec.registry.get(&fiber.name).and_then(|known| known.machine.max_recoveries).unwrap_or(MAX_RECOVERIES);
    if stored.deaths > limit {
        return Ok(Some(Described::Dead { seen, deaths: stored.deaths, limit }));
    }
    let (run, data) = as_stored(exec, &row.id, seen, stored);
    let recovered = RecoveredFiber {
        run,
        seq: row.seq,
        id: row.id,
        name: row.name,
        key: row.key,
        closure: row.closure,
        metadata: row.metadata.and_then(|text| serde_json::from_str(&text).ok()),
        reason: told(&row.reason.unwrap_or_default()).to_owned(),
        at: row.at,
        data,
        deaths: row.deaths,
        created: from_ms(row.created_ms),
    };
    Ok(Some(Described::Alive { recovered: Box::new(recovered), seen }))
}

/// The ledger of a fiber and its snapshot or stash, for a hook.
fn as_stored(exec: &Executor, id: &str, claim: Claim, mut stored: LoadedFiber) -> (Arc<Run>, Option<String>) {
    let earlier_lease = EarlierLease::of(&exec.runtime, stored.lease_left_ms);
    let backend = Arc::new(HookBackend { ledger: StoredLedger::new(&exec.runtime, claim, None), earlier_lease });
    let run = Run::again(id, backend as Arc<dyn RunBackend>, Left::of(&mut stored, &BTreeSet::new()));
    (run, stored.snapshot.map(|text| crate::frame::tracker::fill(&stored.rows, &text)))
}

/// The store, as a hook sees it that uses the ledger of a fiber.
struct HookBackend {
    ledger: StoredLedger,
    /// The lease of a worker that the fiber was taken over from.
    earlier_lease: Option<EarlierLease>,
}

impl RunBackend for HookBackend {
    fn link(&self) -> Link<Runtime> {
        Link::from(self.ledger.runtime())
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.ledger.runtime().clock.sleep(duration)
    }

    fn earlier_lease_over(&self) -> BoxFuture<'_, Result<()>> {
        EarlierLease::over(self.earlier_lease.as_ref(), self.ledger.runtime())
    }

    fn ledger(&self) -> &dyn Ledger {
        &self.ledger
    }

    fn is_closing(&self) -> bool {
        self.ledger.runtime().is_closing()
    }

    fn is_told_to_stop(&self) -> bool {
        self.is_closing()
    }

    fn resumes(&self) -> bool {
        false
    }

    fn parks(&self) -> bool {
        false
    }
}

/// Claims a fiber for its hook, and loads it: from here on a death of the process counts as one of
/// the fiber, and a hook that kills it is not asked for ever. `None` if there is nothing to decide.
async fn claim(exec: &Arc<Executor>, agent: &AgentId, fiber: &Runnable, seen: Claim) -> Result<Option<(Claim, LoadedFiber)>> {
    match exec.runtime.store.claim(seen, exec.runtime.worker, exec.runtime.now_ms()).await? {
        ClaimResult::Granted(claim, stored) => Ok(Some((claim, *stored))),
        ClaimResult::Ended(end) => {
            Decided { exec, agent, fiber, claim: seen }.tell(end);
            Ok(None)
        }
        ClaimResult::Refused => {
            exec.runtime.active.tell(&fiber.id);
            Ok(None)
        }
    }
}

/// Asks the hook about one fiber and does what it says; `false` if it is to be asked again.
async fn decide(exec: &Arc<Executor>, agent: &AgentId, fiber: &Runnable, described: RecoveredFiber, seen: Claim) -> bool {
    let (claim, stored) = match claim(exec, agent, fiber, seen).await {
        Ok(Some(claimed)) => claimed,
        Ok(None) => return true,
        Err(error) => {
            warn!(fiber.id = %fiber.id, error = %chain(&error), "an interrupted fiber could not be claimed");
            return false;
        }
    };
    let (run, data) = as_stored(exec, &described.id, claim, stored);
    let recovered = &RecoveredFiber { data, run, ..described };
    let decided = Decided { exec, agent, fiber, claim };
    let answer = asked(exec, exec.agents.recovered(&exec.runtime, agent, recovered)).await;
    match answer.and_then(|answer| if recovered.closure { possible_for_closure(answer) } else { Ok(answer) }) {
        Ok(answer) => {
            decided.apply(recovered, answer).await;
            true
        }
        Err(why) => {
            let why = chain(&why);
            warn!(fiber.id = %fiber.id, agent = %agent, error = %why, "the recovery hook of an agent failed");
            // It is asked again, unless a person has decided meanwhile: here, or in the worker that
            // finds this stored when this one is gone.
            !decided.suspend(Suspension::HookFailed { reason: why, worker: exec.runtime.worker }).await
        }
    }
}

fn possible_for_closure(answer: RecoveryAction) -> Result<RecoveryAction> {
    match answer {
        RecoveryAction::Resume | RecoveryAction::Restart => {
            let why = "its agent's recovery hook said that it goes on, but of a closure nothing is left but its stash";
            Err(Error::new(ErrorKind::Agent, why))
        }
        answer => Ok(answer),
    }
}

/// A decision about a fiber that was claimed for it.
struct Decided<'a> {
    exec: &'a Arc<Executor>,
    agent: &'a AgentId,
    fiber: &'a Runnable,
    claim: Claim,
}

impl Decided<'_> {
    async fn apply(&self, recovered: &RecoveredFiber, answer: RecoveryAction) {
        let exec = self.exec;
        match answer {
            // It is this worker's: its activation goes on under a claim of its own.
            RecoveryAction::Resume => {
                let claimed = Runnable { state: FiberState::Running, epoch: self.claim.epoch, ..self.fiber.clone() };
                let permit = exec.permit_to_enter().await;
                dispatch::start(exec, &claimed, permit);
            }
            RecoveryAction::Restart => {
                let restarted = self.stored(|| exec.runtime.store.restart_claimed(self.claim, exec.runtime.now_ms())).await;
                if let Some(RestartResult::InDoubt(op)) = restarted {
                    let why = format!("it is to be restarted, but {}", in_doubt(&op));
                    warn!(fiber.id = %self.fiber.id, agent = %self.agent, "{why}");
                    self.suspend(Suspension::Interrupted(why)).await;
                }
            }
            RecoveryAction::Skip => {
                self.suspend(Suspension::Interrupted(recovered.reason.clone())).await;
            }
            RecoveryAction::Complete(value) => self.end(End::Completed(value.to_string())).await,
            RecoveryAction::Fail(why) => self.end(End::Failed(why)).await,
        }
    }

    /// Stores a decision, as often as it takes; `None` if it is void, or the runtime closes.
    async fn stored<'a, T>(&self, store: impl Fn() -> BoxFuture<'a, Result<T>>) -> Option<T> {
        let mut failed = 0;
        loop {
            let error: Error = match store().await {
                Ok(stored) => return Some(stored),
                Err(error) => error,
            };
            if self.exec.runtime.is_closing() || error.is_closed() {
                return None;
            }
            if error.is_claim_lost() {
                self.exec.runtime.active.tell(&self.fiber.id);
                return None;
            }
            failed += 1;
            warn!(fiber.id = %self.fiber.id, error = %chain(&error), "a decision about an interrupted fiber could not be stored");
            race(self.exec.runtime.closing(), self.exec.runtime.pause_after(failed)).await;
        }
    }

    /// Takes the fiber out of the running ones; false if it was cancelled meanwhile.
    async fn suspend(&self, how: Suspension) -> bool {
        let suspended = self.stored(|| self.exec.runtime.store.suspend(self.claim, how.clone(), self.exec.runtime.now_ms())).await;
        self.exec.runtime.active.tell(&self.fiber.id);
        match suspended {
            Some(Some(end)) => {
                self.tell(end);
                false
            }
            Some(None) => true,
            None => false,
        }
    }

    async fn end(&self, how: End) {
        let ended =
            self.stored(|| self.exec.runtime.store.end(self.claim, how.clone(), Vec::new(), Vec::new(), self.exec.runtime.now_ms())).await;
        if let Some(end) = ended {
            self.tell(end);
        }
    }

    fn tell(&self, end: End) {
        exits::report(&self.exec.runtime, &self.fiber.id, &self.fiber.name, Some(self.agent), end.into());
        self.exec.runtime.active.tell(&self.fiber.id);
    }
}

/// Parks a fiber of which nothing can be decided.
async fn park(exec: &Arc<Executor>, agent: &AgentId, fiber: &Runnable, why: &str) {
    match exec.runtime.store.claim_of(fiber.seq).await {
        Ok(Some(StoredClaim { epoch, worker })) if worker.is_none_or(|worker| worker == exec.runtime.worker) => {
            let claim = Claim { fiber: fiber.seq, epoch };
            // A person's command that was first has made it void.
            if (Decided { exec, agent, fiber, claim }).suspend(Suspension::Parked(why.to_owned())).await {
                Runtime::log_stopped(&fiber.id, &fiber.name, "parked", why);
                exec.runtime.tell(&fiber.id, &fiber.name, || EventKind::Parked { reason: why.into() });
            }
        }
        Ok(_) => {}
        Err(error) => warn!(fiber.id = %fiber.id, error = %chain(&error), "an interrupted fiber could not be parked"),
    }
    exec.runtime.active.tell(&fiber.id);
}

/// Leaves a fiber of an agent whose class this worker does not have to other workers.
async fn decline(exec: &Arc<Executor>, agent: &AgentId, fiber: &Runnable, why: &str) {
    if exec.runtime.cluster().is_none() {
        return park(exec, agent, fiber, why).await;
    }
    let declined = async {
        let seen = Claim { fiber: fiber.seq, epoch: fiber.epoch };
        match activation::decline(&exec.runtime, seen, why, true).await? {
            DeclineResult::Left => {}
            DeclineResult::Parked => exec.runtime.tell(&fiber.id, &fiber.name, || EventKind::Parked { reason: why.into() }),
            DeclineResult::Ended(end) => Decided { exec, agent, fiber, claim: seen }.tell(end),
        }
        Ok::<_, Error>(())
    };
    if let Err(error) = declined.await
        && !error.is_claim_lost()
    {
        warn!(fiber.id = %fiber.id, error = %chain(&error), "an interrupted fiber could not be left to other workers");
    }
    exec.runtime.active.tell(&fiber.id);
}

/// What a hook says, if it says it in time. Its panic is an error by now.
async fn asked<T>(exec: &Executor, hook: impl Future<Output = Result<T>>) -> Result<T> {
    let limit = exec.runtime.settings.hook_timeout;
    match race(hook, exec.runtime.clock.sleep(limit)).await {
        Some(answer) => answer,
        None => Err(Error::new(ErrorKind::Agent, format!("its agent's recovery hook took longer than {limit:?}"))),
    }
}
