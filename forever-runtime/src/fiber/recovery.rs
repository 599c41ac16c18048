//! Picks up, at open, every fiber that an earlier process has left: oldest first, each in its own task.
//!
//! A fiber of an agent is handed to the agent's hooks first. A fiber whose function is not registered is parked and left as it is; the
//! next open looks at it again. What is wrong with one fiber is found in its own task and never keeps the others.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tracing::{info, warn};

use super::core::{Core, Link, race};
use super::events::EventKind;
use super::frame::{BoxFuture, Run, Sink};
use super::live::Alive;
use super::managed::in_doubt;
use super::op::ledger::{Ledger, Left, StoredLedger};
use super::owner::{AgentId, RecoveredFiber, Recovery};
use super::runner::{self, FiberTask, MAX_RECOVERIES, Turn};
use super::waking::{self, park_unknown};
use crate::clock::from_ms;
use crate::error::{ErrorKind, Result, chain};
use crate::store::{Again, Aside, Asked, End, FiberRow, FiberState, Find, RunsAgain, Seq, Unfinished};

/// How many rows are read at a time; snapshots are read later, each by its fiber.
const PAGE: u32 = 512;

/// Starts a task for every fiber that has not ended and does not wait, and then lets those be woken that do.
pub(crate) async fn recover(core: &Arc<Core>) -> Result<()> {
    core.store.recover(core.now_ms()).await?;
    let left = left_behind(core).await?;
    if !left.is_empty() {
        info!(fibers = left.len(), "recovering unfinished fibers");
    }
    let mut before = None;
    let mut owned: BTreeMap<AgentId, Vec<Unfinished>> = BTreeMap::new();
    for fiber in left {
        // Of a parked closure nothing can be looked at again but what its agent says of it: the class may be registered now.
        if fiber.state == FiberState::Interrupted || fiber.closure && fiber.state == FiberState::Parked {
            core.tell(&fiber.id, &fiber.name, || EventKind::Recovered { deaths: fiber.deaths });
            if let Some(agent) = fiber.agent.clone().filter(|_| !core.registry.is_ours(&fiber.name)) {
                owned.entry(agent).or_default().push(fiber);
                continue;
            }
        }
        if fiber.closure {
            warn!(fiber.id = %fiber.id, fiber.name = %fiber.name, "a closure fiber was interrupted; it stays so until it is resolved");
            continue;
        }
        let alive = core.live.enter(&fiber.id, &fiber.name);
        let of_task = Arc::clone(core);
        match core.registry.get(&fiber.name) {
            Some(known) => {
                let (through, next) = oneshot::channel();
                let turn = Turn { before: before.replace(next), after: Some(through) };
                let task = FiberTask { core: of_task, known, seq: fiber.seq, agent: fiber.agent, alive, turn, entering: None };
                core.start(task.recover(fiber.deaths))?;
            }
            None => core.start(park_unknown(of_task, fiber.seq, fiber.name, alive))?,
        }
    }
    for (agent, fibers) in owned {
        // Whoever waits for one of them hears of it when it is decided what becomes of it.
        let undecided = fibers.iter().map(|fiber| (fiber.seq, core.live.enter(&fiber.id, &fiber.name))).collect();
        core.start(hand_over(Arc::clone(core), agent, fibers, undecided))?;
    }
    waking::prepare(core).await
}

/// The fibers that are to be entered, all of them before the first is: one that runs may wake others, and a fiber that is woken
/// while it is looked for would be entered twice.
async fn left_behind(core: &Core) -> Result<Vec<Unfinished>> {
    let mut left: Vec<Unfinished> = Vec::new();
    loop {
        let page = core.store.unfinished(left.last().map_or(Seq::MIN, |last| last.seq), PAGE).await?;
        if page.is_empty() {
            return Ok(left);
        }
        left.extend(page);
    }
}

/// Hands an agent's interrupted fibers to its hooks; those whose hook fails again and again, later and later.
///
/// They are live until their hook has answered, or failed, for the first time; after that somebody may resume or resolve them by hand.
async fn hand_over(core: Arc<Core>, agent: AgentId, mut fibers: Vec<Unfinished>, mut undecided: BTreeMap<Seq, Alive>) {
    if !core.owners.knows(&agent.class) {
        let why = format!("agent class `{}` is not registered", agent.class);
        warn!(agent = %agent, fibers = fibers.len(), "agent class is not registered");
        for fiber in fibers {
            aside(&core, &fiber, Aside::Parked(why.clone())).await;
            core.tell(&fiber.id, &fiber.name, || EventKind::Parked { reason: why.as_str().into() });
            away(&mut undecided, fiber.seq);
        }
        return;
    }
    let mut failed = 0;
    loop {
        let before = fibers.len();
        fibers = hand_over_once(&core, &agent, fibers, &mut undecided).await;
        std::mem::take(&mut undecided).into_values().for_each(Alive::away);
        if fibers.is_empty() {
            return;
        }
        failed = if fibers.len() < before { 1 } else { failed + 1 };
        let over = race(core.closing(), core.clock.sleep(runner::pause(failed))).await;
        if over.is_some() {
            return;
        }
    }
}

/// One pass over an agent's interrupted fibers; gives back those that are still to be decided.
async fn hand_over_once(
    core: &Arc<Core>,
    agent: &AgentId,
    fibers: Vec<Unfinished>,
    undecided: &mut BTreeMap<Seq, Alive>,
) -> Vec<Unfinished> {
    let mut rows = BTreeMap::new();
    let mut described = Vec::new();
    for fiber in fibers {
        let limit = core.registry.get(&fiber.name).and_then(|known| known.machine().max_recoveries).unwrap_or(MAX_RECOVERIES);
        if fiber.deaths > limit {
            let why = format!(
                "the process died {} times while it ran or was recovered, without a checkpoint in between; {limit} recoveries are allowed",
                fiber.deaths
            );
            end(core, agent, &fiber, End::Failed(why)).await;
            continue;
        }
        match describe(core, &fiber).await {
            Ok(Some(recovered)) => {
                described.push(recovered);
                rows.insert(fiber.seq, fiber);
            }
            // Resolved, cancelled or resumed by somebody meanwhile.
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::Value => aside(core, &fiber, Aside::Parked(chain(&error))).await,
            Err(error) => {
                warn!(fiber.id = %fiber.id, error = %chain(&error), "an interrupted fiber could not be read");
                rows.insert(fiber.seq, fiber);
            }
        }
    }
    if described.is_empty() {
        return rows.into_values().collect();
    }
    let everybody = described.clone();
    let mut order = match asked(core, core.owners.order(core, agent, described)).await {
        Ok(order) => order,
        Err(why) => {
            warn!(agent = %agent, error = %why, "an agent could not be asked about its interrupted fibers");
            for fiber in rows.values() {
                aside(core, fiber, Aside::Interrupted(why.clone())).await;
            }
            return rows.into_values().collect();
        }
    };
    // One that a hook has left out is not forgotten: it comes last.
    for fiber in everybody {
        if !order.iter().any(|there| there.seq == fiber.seq) {
            order.push(fiber);
        }
    }
    for recovered in order {
        let Some(fiber) = rows.get(&recovered.seq) else { continue };
        if decide(core, agent, fiber, &recovered).await {
            rows.remove(&recovered.seq);
        }
        away(undecided, recovered.seq);
    }
    rows.into_values().collect()
}

/// It stands in the store, or is live by itself, from now on.
fn away(undecided: &mut BTreeMap<Seq, Alive>, seq: Seq) {
    if let Some(alive) = undecided.remove(&seq) {
        alive.away();
    }
}

/// What a hook is told of a fiber; `None` if it is not interrupted any more.
async fn describe(core: &Arc<Core>, fiber: &Unfinished) -> Result<Option<RecoveredFiber>> {
    let undecided = |row: &FiberRow| row.state == FiberState::Interrupted || row.closure && row.state == FiberState::Parked;
    let Some(row) = core.store.find(Find::Seq(fiber.seq)).await?.filter(undecided) else {
        return Ok(None);
    };
    let stored = core.store.load(fiber.seq).await?;
    let sink = HookSink { ledger: StoredLedger { core: Arc::clone(core), seq: row.seq } };
    let left = Left { checkpoints: stored.number, restarts: stored.restarts, ops: stored.ops };
    let run = Run::again(&row.id, Arc::new(sink), left);
    Ok(Some(RecoveredFiber {
        run,
        seq: row.seq,
        id: row.id,
        name: row.name,
        key: row.key,
        closure: row.closure,
        metadata: row.metadata.and_then(|text| serde_json::from_str(&text).ok()),
        reason: row.reason.unwrap_or_default(),
        at: row.at,
        data: stored.snapshot.map(|text| stored.beside.fill(&text)),
        deaths: row.deaths,
        created: from_ms(row.created_ms),
    }))
}

/// The store, as a hook sees it that uses the ledger of a fiber.
struct HookSink {
    ledger: StoredLedger,
}

impl Sink for HookSink {
    fn link(&self) -> Link {
        Link::from(&self.ledger.core)
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.ledger.core.clock.sleep(duration)
    }

    fn ledger(&self) -> &dyn Ledger {
        &self.ledger
    }

    fn is_told_to_stop(&self) -> bool {
        self.ledger.core.is_closing()
    }

    fn resumes(&self) -> bool {
        false
    }

    fn parks(&self) -> bool {
        false
    }
}

/// Asks the hook about one fiber and does what it says; `false` if it is to be asked again.
async fn decide(core: &Arc<Core>, agent: &AgentId, fiber: &Unfinished, recovered: &RecoveredFiber) -> bool {
    // From here on a death of the process counts as one of the fiber: a hook that kills it is not asked for ever.
    match core.store.enter(fiber.seq, core.now_ms()).await {
        Ok(true) => {}
        Ok(false) => {
            end(core, agent, fiber, End::Cancelled(String::new())).await;
            return true;
        }
        Err(error) => {
            warn!(fiber.id = %fiber.id, error = %chain(&error), "an interrupted fiber could not be entered");
            return false;
        }
    }
    let answer = asked(core, core.owners.recovered(core, agent, recovered)).await;
    match answer.and_then(|answer| if recovered.closure { possible_for_closure(answer) } else { Ok(answer) }) {
        Ok(answer) => apply(core, agent, fiber, recovered, answer).await,
        Err(why) => {
            warn!(fiber.id = %fiber.id, agent = %agent, error = %why, "the recovery hook of an agent failed");
            aside(core, fiber, Aside::Interrupted(why)).await;
            return false;
        }
    }
    true
}

fn possible_for_closure(answer: Recovery) -> std::result::Result<Recovery, String> {
    match answer {
        Recovery::Resume | Recovery::Restart => {
            Err("its agent's recovery hook said that it goes on, but of a closure nothing is left but its stash".into())
        }
        answer => Ok(answer),
    }
}

async fn apply(core: &Arc<Core>, agent: &AgentId, fiber: &Unfinished, recovered: &RecoveredFiber, answer: Recovery) {
    match answer {
        Recovery::Resume => start(core, fiber),
        Recovery::Restart => {
            aside(core, fiber, Aside::Interrupted("it is to be restarted".into())).await;
            match core.store.again(fiber.id.clone(), Again::FromStart, core.now_ms()).await {
                Ok(Asked::Done(RunsAgain::Yes(fiber))) => start(core, &fiber),
                Ok(Asked::Done(RunsAgain::InDoubt(op))) => {
                    let why = format!("it is to be restarted, but {}", in_doubt(&op));
                    warn!(fiber.id = %fiber.id, agent = %agent, "{why}");
                    aside(core, fiber, Aside::Interrupted(why)).await;
                }
                Ok(Asked::Unknown | Asked::Not(_)) => {}
                Err(error) => warn!(fiber.id = %fiber.id, error = %chain(&error), "an interrupted fiber could not be restarted"),
            }
        }
        Recovery::Skip => aside(core, fiber, Aside::Interrupted(recovered.reason.clone())).await,
        Recovery::Complete(value) => end(core, agent, fiber, End::Completed(value.to_string())).await,
        Recovery::Fail(why) => end(core, agent, fiber, End::Failed(why)).await,
    }
}

fn start(core: &Arc<Core>, fiber: &Unfinished) {
    waking::start(core, vec![fiber.clone()]);
}

async fn aside(core: &Core, fiber: &Unfinished, how: Aside) {
    if let Err(error) = core.store.set_aside(fiber.seq, how, core.now_ms()).await {
        warn!(fiber.id = %fiber.id, error = %chain(&error), "what became of an interrupted fiber could not be stored");
    }
    core.live.tell(&fiber.id);
}

async fn end(core: &Arc<Core>, agent: &AgentId, fiber: &Unfinished, how: End) {
    match core.store.end(fiber.seq, how, Vec::new(), core.now_ms()).await {
        Ok(ended) => {
            waking::start(core, ended.woken);
            runner::settled(core, &fiber.id, &fiber.name, Some(agent), ended.end);
            core.live.tell(&fiber.id);
        }
        Err(error) => warn!(fiber.id = %fiber.id, error = %chain(&error), "what became of an interrupted fiber could not be stored"),
    }
}

/// What a hook says, if it says it in time. Its panic is an error by now.
async fn asked<T>(core: &Core, hook: impl Future<Output = Result<T>>) -> std::result::Result<T, String> {
    let limit = core.settings.hook_timeout;
    match race(hook, core.clock.sleep(limit)).await {
        Some(answer) => answer.map_err(|error| chain(&error)),
        None => Err(format!("its agent's recovery hook took longer than {limit:?}")),
    }
}
