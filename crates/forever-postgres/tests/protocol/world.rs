//! The states of the model, and what may happen in each.
use stateright::{Model, Property};

use crate::fence::{Change, Rules, StoredFiber};

const WORKERS: usize = 2;

/// Steps of the fiber; then it ends.
const STEPS: usize = 2;

/// Length of a lease, by the clock of the database. An older one has run out as well.
const LEASE: i8 = 1;

/// How far the clock of each worker is ahead of that of the database.
const AHEAD: [i8; WORKERS] = [2, -2];

/// Most claims of a run.
const CLAIMS: u8 = 3;

/// How often each of these happens at most.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// The fiber waits.
    pub(crate) waits: u8,
    pub(crate) crashes: u8,
    /// A session lock is lost by the living.
    pub(crate) cuts: u8,
    /// A branch, an operation or a stash is stored.
    pub(crate) results: u8,
    /// A worker stops waiting for a write that is on its way.
    pub(crate) gives_up: u8,
}

/// A part of the protocol that is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// The end of a fiber is stored whatever the epoch.
    EndWithoutEpoch,
    /// A claim does not raise the epoch.
    ClaimKeepsEpoch,
    /// A renewal stores the time of the worker.
    LeaseByWorkersClock,
    /// Writes are not conditional on an epoch: the session lock is all there is.
    LockAlone,
    /// A fiber is loaded before it is claimed, and runs from what was loaded if its epoch is the same.
    LoadBeforeClaim,
    /// As [`LoadBeforeClaim`](Self::LoadBeforeClaim), and a fiber that is released keeps its epoch.
    LoadBeforeClaimAndReleaseKeepsEpoch,
}

pub(crate) const ONE_WRITER: &str = "writes of the newest claim alone are stored";
pub(crate) const FROM_THE_NEWEST: &str = "a claimed fiber runs from its last checkpoint";
pub(crate) const WITH_ALL_RESULTS: &str = "a claimed fiber knows all results since its last checkpoint";
pub(crate) const LIVING_KEEP: &str = "a worker with a lease and a lock keeps its claims";
pub(crate) const NONE_LOST: &str = "the fiber of a dead worker can be taken over once its lease has run out";

/// The row of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Row {
    /// Age of the time that it has.
    age: i8,
    /// Whether it names a lock.
    names_lock: bool,
}

/// The newest claim of a worker, as the worker sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Activation {
    /// Number of the claim, which is no part of the protocol.
    claim: u8,
    epoch: usize,
    number: usize,
    results: usize,
    /// Whether it waits for the answer to a write.
    waits: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Worker {
    is_up: bool,
    /// The fiber as it was loaded, where that comes before the claim.
    loaded: Option<StoredFiber>,
    activation: Option<Activation>,
    /// How long ago it renewed its lease, by the clock of the database.
    renewed: i8,
}

/// A write on its way to the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Write {
    worker: usize,
    claim: u8,
    change: Change,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct World {
    rows: [Option<Row>; WORKERS],
    /// Whether the server holds the session lock of each worker.
    locks: [bool; WORKERS],
    fiber: StoredFiber,
    workers: [Worker; WORKERS],
    writes: Vec<Write>,
    claims: u8,
    waits: u8,
    crashes: u8,
    cuts: u8,
    results: u8,
    gives_up: u8,
    /// The claim that was granted last, unless it was taken over.
    newest: Option<u8>,
    /// How often each step and the end were stored.
    stored: [u8; STEPS],
    ended: u8,
    /// Whether a write of an older claim was stored, or one while no worker ran the fiber.
    stored_by_others: bool,
    /// Whether a worker with a lease and a lock lost its claims.
    took_from_the_living: bool,
}

impl World {
    /// The activation of the newest claim, unless a write of it is on its way.
    fn running(&self) -> Option<Activation> {
        let mut activations = self.workers.iter().filter_map(|worker| worker.activation);
        activations.find(|activation| self.newest == Some(activation.claim) && !activation.waits)
    }

    /// Sends a write of a worker's activation.
    fn send(&mut self, worker: usize, change: Change) -> Option<()> {
        let activation = self.workers[worker].activation.as_mut()?;
        activation.waits = true;
        self.writes.push(Write { worker, claim: activation.claim, change });
        self.writes.sort_unstable();
        Some(())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Time passes.
    Tick,
    Renew(usize),
    Crash(usize),
    /// The server loses the session of a worker that lives.
    LoseLock(usize),
    /// The worker finds that its lock is lost, and stores that.
    ForgetLock(usize),
    TakeLock(usize),
    TakeOver {
        by: usize,
        of: usize,
    },
    Load(usize),
    Claim(usize),
    /// A branch, an operation or a stash has a result, and the worker sends the write.
    SendResult(usize),
    /// The body of a step, or of the whole fiber, has ended, and the worker sends the write.
    Send(usize),
    /// The fiber waits, and the worker sends that. What it waits for happens at once.
    SendWait(usize),
    /// The worker stops waiting for its write, and knows nothing of it.
    GiveUp(usize),
    Arrive(Write),
}

pub(crate) struct Protocol {
    pub(crate) mutation: Option<Mutation>,
    pub(crate) limits: Limits,
}

impl Protocol {
    fn is(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// Whether a fiber is loaded before it is claimed.
    fn loads_before(&self) -> bool {
        self.is(Mutation::LoadBeforeClaim) || self.is(Mutation::LoadBeforeClaimAndReleaseKeepsEpoch)
    }

    /// Whether others take a worker for alive.
    fn is_alive(&self, world: &World, worker: usize) -> bool {
        let Some(row) = &world.rows[worker] else { return false };
        let holds = !row.names_lock || world.locks[worker];
        holds && (self.is(Mutation::LockAlone) || row.age < LEASE)
    }

    /// The rules of the database.
    fn rules(&self) -> Rules {
        Rules {
            claim_raises_epoch: !self.is(Mutation::ClaimKeepsEpoch),
            write_needs_epoch: !self.is(Mutation::LockAlone),
            end_needs_epoch: !self.is(Mutation::LockAlone) && !self.is(Mutation::EndWithoutEpoch),
            release_raises_epoch: !self.is(Mutation::LoadBeforeClaimAndReleaseKeepsEpoch),
        }
    }

    /// Whether the database stores a write.
    fn stores(&self, world: &World, write: &Write) -> bool {
        world.fiber.after(write.change, self.rules()).is_some()
    }

    fn arrive(&self, world: &mut World, write: Write) {
        world.writes.retain(|other| *other != write);
        let after = world.fiber.after(write.change, self.rules());
        if let Some(after) = after {
            world.stored_by_others |= world.newest != Some(write.claim) || !world.fiber.is_held_for(write.change);
            world.fiber = after;
            match write.change {
                Change::Checkpoint { number, .. } => world.stored[number - 1] += 1,
                Change::End { .. } => world.ended += 1,
                _ => {}
            }
        }
        // The answer, where it is still waited for.
        let activation = &mut world.workers[write.worker].activation;
        if let Some(of_write) = activation.as_mut().filter(|activation| activation.claim == write.claim && activation.waits) {
            match write.change {
                Change::Checkpoint { number, .. } if after.is_some() => {
                    (of_write.number, of_write.results) = (number, 0);
                    of_write.waits = false;
                }
                Change::Result { .. } if after.is_some() => {
                    of_write.results += 1;
                    of_write.waits = false;
                }
                _ => *activation = None,
            }
        }
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let row =
            |worker: usize| Some(Row { age: if self.is(Mutation::LeaseByWorkersClock) { -AHEAD[worker] } else { 0 }, names_lock: true });
        vec![World {
            rows: [row(0), row(1)],
            locks: [true; WORKERS],
            fiber: StoredFiber::NEW,
            workers: [0, 1].map(|_| Worker { is_up: true, loaded: None, activation: None, renewed: 0 }),
            writes: Vec::new(),
            claims: 0,
            waits: 0,
            crashes: 0,
            cuts: 0,
            results: 0,
            gives_up: 0,
            newest: None,
            stored: [0; STEPS],
            ended: 0,
            stored_by_others: false,
            took_from_the_living: false,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        actions.push(Action::Tick);
        actions.extend(world.writes.iter().map(|write| Action::Arrive(*write)));
        for (worker, of) in world.workers.iter().enumerate().filter(|(_, worker)| worker.is_up) {
            if of.renewed > 0 || world.rows[worker].is_none() {
                actions.push(Action::Renew(worker));
            }
            if world.crashes < self.limits.crashes {
                actions.push(Action::Crash(worker));
            }
            if world.locks[worker] && world.cuts < self.limits.cuts {
                actions.push(Action::LoseLock(worker));
            }
            if !world.locks[worker] {
                let names = world.rows[worker].as_ref().is_some_and(|row| row.names_lock);
                actions.push(if names { Action::ForgetLock(worker) } else { Action::TakeLock(worker) });
            }
            for other in (0..WORKERS).filter(|other| *other != worker && !self.is_alive(world, *other)) {
                if world.rows[other].is_some() || world.fiber.worker == Some(other) {
                    actions.push(Action::TakeOver { by: worker, of: other });
                }
            }
            match of.activation {
                None if world.claims < CLAIMS => {
                    if self.loads_before() && of.loaded != Some(world.fiber) {
                        actions.push(Action::Load(worker));
                    }
                    let may_claim = !self.loads_before() || of.loaded.is_some_and(|loaded| loaded.epoch == world.fiber.epoch);
                    if may_claim && world.fiber.after(Change::Claim { by: worker }, self.rules()).is_some() {
                        actions.push(Action::Claim(worker));
                    }
                }
                Some(Activation { waits: true, .. }) if world.gives_up < self.limits.gives_up => actions.push(Action::GiveUp(worker)),
                None | Some(Activation { waits: true, .. }) => {}
                Some(Activation { waits: false, .. }) => {
                    actions.push(Action::Send(worker));
                    if world.results < self.limits.results {
                        actions.push(Action::SendResult(worker));
                    }
                    if world.waits < self.limits.waits {
                        actions.push(Action::SendWait(worker));
                    }
                }
            }
        }
    }

    fn next_state(&self, before: &World, action: Action) -> Option<World> {
        let mut world = before.clone();
        match action {
            Action::Tick => {
                for age in world.rows.iter_mut().flatten().map(|row| &mut row.age) {
                    *age = (*age + 1).min(LEASE);
                }
                for worker in &mut world.workers {
                    worker.renewed = (worker.renewed + 1).min(LEASE);
                }
            }
            Action::Renew(worker) => {
                let ahead = if self.is(Mutation::LeaseByWorkersClock) { AHEAD[worker] } else { 0 };
                let names_lock = world.rows[worker].as_ref().map_or(world.locks[worker], |row| row.names_lock);
                world.rows[worker] = Some(Row { age: -ahead, names_lock });
                world.workers[worker].renewed = 0;
            }
            Action::Crash(worker) => {
                world.crashes += 1;
                world.locks[worker] = false;
                world.workers[worker].is_up = false;
                world.workers[worker].loaded = None;
                world.workers[worker].activation = None;
            }
            Action::LoseLock(worker) => {
                world.cuts += 1;
                world.locks[worker] = false;
            }
            Action::ForgetLock(worker) => world.rows[worker].as_mut()?.names_lock = false,
            Action::TakeLock(worker) => {
                world.locks[worker] = true;
                if let Some(row) = &mut world.rows[worker] {
                    row.names_lock = true;
                }
            }
            Action::TakeOver { of, .. } => {
                let lives = world.workers[of].is_up && world.locks[of] && world.workers[of].renewed < LEASE;
                world.took_from_the_living |= lives && world.rows[of].is_some();
                world.rows[of] = None;
                if world.fiber.worker == Some(of) {
                    world.fiber = world.fiber.after(Change::TakeOver, self.rules())?;
                    world.newest = None;
                }
            }
            Action::Load(worker) => world.workers[worker].loaded = Some(world.fiber),
            Action::Claim(worker) => {
                world.claims += 1;
                world.fiber = world.fiber.after(Change::Claim { by: worker }, self.rules())?;
                world.newest = Some(world.claims);
                let epoch = world.fiber.epoch;
                let StoredFiber { number, results, .. } = world.workers[worker].loaded.take().unwrap_or(world.fiber);
                world.workers[worker].activation = Some(Activation { claim: world.claims, epoch, number, results, waits: false });
            }
            Action::SendResult(worker) => {
                world.results += 1;
                let epoch = world.workers[worker].activation?.epoch;
                world.send(worker, Change::Result { epoch })?;
            }
            Action::Send(worker) => {
                let Activation { epoch, number, .. } = world.workers[worker].activation?;
                let is_last = number == STEPS;
                world.send(worker, if is_last { Change::End { epoch } } else { Change::Checkpoint { epoch, number: number + 1 } })?;
            }
            Action::SendWait(worker) => {
                world.waits += 1;
                let epoch = world.workers[worker].activation?.epoch;
                world.send(worker, Change::Wait { epoch })?;
            }
            Action::GiveUp(worker) => {
                // How often is no part of the state where it may happen at any time.
                world.gives_up += u8::from(self.limits.gives_up < u8::MAX);
                world.workers[worker].activation = None;
            }
            Action::Arrive(write) => self.arrive(&mut world, write),
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONE_WRITER, |protocol: &Protocol, world: &World| {
                let acceptable = world.writes.iter().filter(|write| protocol.stores(world, write));
                let mut claims: Vec<u8> = acceptable.map(|write| write.claim).collect();
                claims.dedup();
                !world.stored_by_others && claims.len() <= 1
            }),
            Property::always(FROM_THE_NEWEST, |_, world: &World| world.running().is_none_or(|runs| runs.number == world.fiber.number)),
            Property::always(WITH_ALL_RESULTS, |_, world: &World| {
                world.running().is_none_or(|runs| runs.number != world.fiber.number || runs.results == world.fiber.results)
            }),
            Property::always("no finished step repeats", |_, world: &World| {
                world.stored.iter().all(|times| *times <= 1) && world.ended <= 1
            }),
            Property::always("a fiber that has ended has all its steps", |_, world: &World| world.ended == 0 || world.stored == [1; STEPS]),
            Property::always(LIVING_KEEP, |_, world: &World| !world.took_from_the_living),
            Property::always(NONE_LOST, |protocol: &Protocol, world: &World| {
                world.fiber.worker.is_none_or(|worker| {
                    let of = &world.workers[worker];
                    of.is_up || of.renewed < LEASE || !protocol.is_alive(world, worker)
                })
            }),
            Property::sometimes("the fiber ends after a takeover, and after all that may happen", |protocol: &Protocol, world: &World| {
                let Limits { waits, crashes, cuts, results, .. } = protocol.limits;
                let happened = (world.waits, world.crashes, world.cuts, world.results);
                world.ended == 1 && world.claims > 1 && happened == (waits, crashes, cuts, results)
            }),
            Property::sometimes("a late write is fenced", |protocol: &Protocol, world: &World| {
                world.writes.iter().any(|write| !protocol.stores(world, write) && world.newest != Some(write.claim))
            }),
        ]
    }
}
