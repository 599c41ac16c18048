//! One run: workers in one thread over one modelled database, in simulated time.
use std::cell::RefCell;
use std::fmt::Debug;
use std::future::{Future, IntoFuture, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::ready;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, join, join_all, select};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, Sleep};

use super::audit::Interleavings;
use super::database::lock;
use super::simulation::{Order, Plan, Simulation};
use super::store::ModelStore;
use crate::api::builder::{Builder, Place};
use crate::api::forever::Forever;
use crate::runtime::events::{Event, EventKind};
use crate::runtime::gate::Gate;
use crate::runtime::race::race;
use crate::runtime::settings::Retention;
use crate::testing::crash::{DbState, Run, Steps, World, text_of};

/// Time between two tries of a client, and of a worker that could not be opened.
const AGAIN: Duration = Duration::from_secs(1);

/// How long after a fault a call may fail because of it.
const AFTERMATH: Duration = Duration::from_secs(300);

/// How long the fleet stays at rest before a run ends.
const REST: Duration = Duration::from_secs(5);

/// Polls of one future at one instant after which time passes.
const SPINS: u32 = 200;

/// Common parts of all runs.
pub(super) struct Script<'a, S, C> {
    pub(super) setup: &'a S,
    pub(super) call: &'a C,
    pub(super) workers: usize,
    /// How many of them are idle: the program is not called on them.
    pub(super) idle: usize,
    /// Number of calls of the program at a time.
    pub(super) clients: usize,
}

/// Result of a run.
pub(super) struct Ran<R> {
    /// The parts that are compared.
    pub(super) run: Run<R>,
    pub(super) trace: Vec<String>,
    pub(super) violations: Vec<String>,
    pub(super) met: Interleavings,
    pub(super) writes: u64,
    /// Simulated time until all was done.
    pub(super) length: Duration,
}

/// The workers that are open, by slot.
struct Fleet {
    slots: RefCell<Vec<Option<Running>>>,
    /// How many of them, from the first, are called.
    called: usize,
    changed: watch::Sender<()>,
}

#[derive(Clone)]
struct Running {
    forever: Forever,
    store: ModelStore,
}

impl Fleet {
    fn set(&self, slot: usize, running: Option<Running>) {
        if let Some(there) = self.slots.borrow_mut().get_mut(slot) {
            *there = running;
        }
        self.changed.send_replace(());
    }

    /// One of the workers that are open.
    fn pick(&self, sim: &Simulation) -> Option<Running> {
        let open: Vec<Running> = self.slots.borrow().iter().take(self.called).flatten().cloned().collect();
        let one = usize::try_from(sim.below(open.len().max(1) as u64)).unwrap_or(0);
        open.into_iter().nth(one)
    }

    fn has(&self, store: &ModelStore) -> bool {
        self.slots.borrow().iter().flatten().any(|running| running.store.is(store))
    }

    /// Ready when a worker is not open any more.
    async fn gone(&self, store: &ModelStore) {
        let mut changed = self.changed.subscribe();
        while self.has(store) {
            // The sender is in `self`.
            let _ = changed.changed().await;
        }
    }
}

impl<S, C, R> Script<'_, S, C>
where
    S: Fn(&World) -> Builder,
    C: AsyncFn(Forever) -> R,
    R: Debug + PartialEq,
{
    /// Runs the program with the faults of a plan.
    pub(super) fn run(&self, plan: &Plan, expected: Option<&R>) -> Result<Ran<R>, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.map_err(|error| format!("a tokio runtime could not be made: {error}"))?;
        runtime.block_on(self.run_in(plan, expected))
    }

    async fn run_in(&self, plan: &Plan, expected: Option<&R>) -> Result<Ran<R>, String> {
        let world = World::default();
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..self.workers).map(|_| mpsc::unbounded_channel()).unzip();
        let sim = Arc::new(Simulation::new(plan, senders).map_err(|error| error.to_string())?);
        let called = self.workers.saturating_sub(self.idle).max(1);
        let fleet = Fleet { slots: RefCell::new((0..self.workers).map(|_| None).collect()), called, changed: watch::Sender::new(()) };
        for (at, slot, fault) in sim.timed() {
            let sim = Arc::clone(&sim);
            drop(tokio::spawn(async move {
                tokio::time::sleep(at).await;
                sim.strike(slot, fault);
            }));
        }
        let slots = receivers.into_iter().enumerate().map(|(slot, orders)| self.slot(slot, orders, &sim, &world, &fleet));
        let work = async {
            let outcome = self.clients(&sim, &fleet, expected).await;
            at_rest(&sim).await?;
            let length = sim.clock.passed();
            (0..self.workers).for_each(|slot| sim.order(slot, Order::End));
            outcome.map(|outcome| (outcome, length))
        };
        let all = join(work, join_all(slots));
        let ended = race(all, tokio::time::sleep(plan.patience)).await;
        let ended = match ended {
            Some((ended, opened)) => opened.into_iter().collect::<Result<Vec<()>, String>>().and(ended),
            None => Err(format!("it has not come to its end after {:?} of simulated time", plan.patience)),
        };
        let (outcome, length) = match ended {
            Ok((outcome, length)) => (Ok(outcome), length),
            Err(why) => (Err(why), sim.clock.passed()),
        };
        let end = sim.database.with(DbState::read).map_err(|error| format!("the database cannot be read: {error}"))?;
        let run = Run { world, outcome, processes: Vec::new(), steps: Steps::default(), end };
        let (violations, met) = {
            let mut audit = lock(&sim.audit);
            (std::mem::take(&mut audit.violations), audit.met)
        };
        Ok(Ran { run, trace: sim.trace(), violations, met, writes: sim.writes(), length })
    }

    /// Runs the workers of a slot, one after the other.
    async fn slot(
        &self,
        slot: usize,
        mut orders: mpsc::UnboundedReceiver<Order>,
        sim: &Arc<Simulation>,
        world: &World,
        fleet: &Fleet,
    ) -> Result<(), String> {
        loop {
            let store = ModelStore::new(sim, slot);
            let mut builder = (self.setup)(world).clock(sim.clock_of_worker()).retention(Retention::forever());
            *builder.place() = Some(Place::Store(Arc::new(store.clone())));
            builder.gate(Arc::clone(&store.0.gate));
            let of_witness = store.clone();
            builder.event_witness(move |event| hear(&of_witness, event));
            let opened = {
                let mut open = pin!(gated(Arc::clone(&store.0.gate), builder.open()));
                loop {
                    match select(open.as_mut(), pin!(orders.recv())).await {
                        Either::Left((opened, _)) => break Ok(opened),
                        // It closes when it is open.
                        Either::Right((Some(Order::Restart(_)), _)) => {}
                        Either::Right((order, _)) => break Err(order),
                    }
                }
            };
            let order = match opened {
                Ok(Ok(forever)) => self.process(slot, &mut orders, forever, &store, fleet).await,
                Ok(Err(error)) if sim.is_troubled(AFTERMATH) => {
                    sim.tell(&store, format_args!("could not be opened: {error}"));
                    Some(Order::Crash(AGAIN))
                }
                Ok(Err(error)) => return Err(format!("a worker could not be opened: {error}")),
                Err(order) => order,
            };
            store.kill();
            let down = match order {
                Some(Order::Crash(down) | Order::Restart(down)) => down,
                Some(Order::End) | None => return Ok(()),
            };
            let mut down = pin!(tokio::time::sleep(down));
            loop {
                match select(down.as_mut(), pin!(orders.recv())).await {
                    Either::Left(_) => break,
                    Either::Right((Some(Order::End) | None, _)) => return Ok(()),
                    // What is down cannot crash.
                    Either::Right(_) => {}
                }
            }
        }
    }

    /// Runs an open worker until an order ends it; gives the order.
    async fn process(
        &self,
        slot: usize,
        orders: &mut mpsc::UnboundedReceiver<Order>,
        forever: Forever,
        store: &ModelStore,
        fleet: &Fleet,
    ) -> Option<Order> {
        let runtime = Arc::downgrade(forever.runtime());
        fleet.set(slot, Some(Running { forever: forever.clone(), store: store.clone() }));
        let mut order = orders.recv().await;
        // Calls on a worker that closes fail.
        store.sim().trouble();
        fleet.set(slot, None);
        if !matches!(order, Some(Order::Crash(_))) {
            let mut close = pin!(gated(Arc::clone(&store.0.gate), forever.close().into_future()));
            loop {
                match select(close.as_mut(), pin!(orders.recv())).await {
                    Either::Left(_) => break,
                    // It closes already.
                    Either::Right((Some(Order::Restart(_)), _)) => {}
                    Either::Right((Some(crash @ Order::Crash(_)), _)) => {
                        // After the end nothing is opened again.
                        if !matches!(order, Some(Order::End)) {
                            order = Some(crash);
                        }
                        break;
                    }
                    Either::Right((end, _)) => {
                        order = end;
                        // As where it closes undisturbed, a failure is for the audit to find.
                        let _ = close.as_mut().await;
                        break;
                    }
                }
            }
        }
        store.kill();
        drop(forever);
        let left = runtime.upgrade();
        if let Some(runtime) = left {
            runtime.died().await;
        }
        order
    }

    /// Calls the program from each client, and gives the result, which must be the same for all.
    async fn clients(&self, sim: &Arc<Simulation>, fleet: &Fleet, expected: Option<&R>) -> Result<R, String> {
        let clients = (0..self.clients).map(|_| self.client(sim, fleet, expected));
        let mut outcomes = join_all(clients).await.into_iter();
        let Some(first) = outcomes.next() else { return Err("there is no client".to_owned()) };
        let first = first?;
        for other in outcomes {
            let other = other?;
            if other != first {
                return Err(format!("one client gets {first:?}, and another one {other:?}"));
            }
        }
        Ok(first)
    }

    /// Calls the program, and calls it again when its worker is gone or a fault has hindered it.
    async fn client(&self, sim: &Arc<Simulation>, fleet: &Fleet, expected: Option<&R>) -> Result<R, String> {
        loop {
            let mut changed = fleet.changed.subscribe();
            let Some(Running { forever, store }) = fleet.pick(sim) else {
                // The sender is in the fleet.
                let _ = changed.changed().await;
                continue;
            };
            sim.tell("client", format_args!("calls the program, on worker {}", store.worker()));
            let call = AssertUnwindSafe((self.call)(forever)).catch_unwind();
            let called = match select(pin!(gated(Arc::clone(&store.0.gate), call)), pin!(fleet.gone(&store))).await {
                Either::Left((called, _)) => called,
                Either::Right(_) => {
                    sim.tell("client", format_args!("its worker {} is gone", store.worker()));
                    continue;
                }
            };
            let called = called.map_err(|payload| format!("it panicked: {}", text_of(payload.as_ref())));
            let is_expected = matches!((&called, expected), (Ok(outcome), Some(expected)) if outcome == expected);
            if is_expected || !sim.is_troubled(AFTERMATH) {
                return called;
            }
            match &called {
                Ok(outcome) => sim.tell("client", format_args!("gets {outcome:?}, and calls again")),
                Err(why) => sim.tell("client", format_args!("{why}; it calls again")),
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}

/// Takes in an event of a worker, as it occurs.
fn hear(store: &ModelStore, event: &Event) {
    let sim = store.sim();
    match &event.kind {
        EventKind::StepStarted { step } => {
            sim.tell(store, format_args!("begins step `{step}` of {}", event.name));
            lock(&sim.audit).step_started(store.worker(), &event.fiber, step, &event.name);
        }
        EventKind::StepFinished { step, checkpoint } => lock(&sim.audit).step_finished(&event.fiber, step, *checkpoint),
        _ => {}
    }
}

/// Waits until no fiber and no schedule runs, and no worker is paused or cut off.
async fn at_rest(sim: &Simulation) -> Result<(), String> {
    const BUSY: &str = "SELECT (SELECT count(*) FROM fibers
                                WHERE state IN ('pending', 'running') OR state = 'interrupted' AND kind <> 'closure')
                             + (SELECT count(*) FROM schedules WHERE running_ms IS NOT NULL)";
    let mut rested = None;
    loop {
        let busy: i64 = sim.database.with(|conn| conn.query_row(BUSY, (), |row| row.get(0))).map_err(|error| error.to_string())?;
        if busy > 0 || !sim.is_calm() {
            rested = None;
        }
        let since = *rested.get_or_insert_with(Instant::now);
        if since.elapsed() >= REST {
            return Ok(());
        }
        tokio::time::sleep(REST / 10).await;
    }
}

/// A future that is not polled while a gate is shut. If it never rests, time passes all the same.
fn gated<F: Future>(gate: Arc<Gate>, future: F) -> impl Future<Output = F::Output> {
    let mut future = Box::pin(future);
    let (mut at, mut polls) = (Instant::now(), 0);
    let mut rest: Option<Pin<Box<Sleep>>> = None;
    poll_fn(move |cx| {
        ready!(gate.poll_open(cx));
        if let Some(resting) = &mut rest {
            ready!(resting.as_mut().poll(cx));
            rest = None;
        }
        let now = Instant::now();
        polls = if now == at { polls + 1 } else { 0 };
        at = now;
        if polls > SPINS {
            polls = 0;
            let mut resting = Box::pin(tokio::time::sleep(Duration::from_millis(1)));
            let polled = resting.as_mut().poll(cx);
            rest = Some(resting);
            ready!(polled);
        }
        future.as_mut().poll(cx)
    })
}
