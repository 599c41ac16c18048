//! The states of the model, and what may happen in each.
use stateright::{Model, Property};

const WORKERS: usize = 2;

/// Steps of the fiber; then it ends.
const STEPS: u8 = 2;

/// Length of a lease, by the clock of the database. An older one has run out as well.
const LEASE: i8 = 1;

/// How far the clock of each worker is ahead of that of the database.
const AHEAD: [i8; WORKERS] = [2, -2];

/// Most claims of a run, most crashes and most session locks that are lost by the living.
const CLAIMS: u8 = 3;
const CRASHES: u8 = 1;
const CUTS: u8 = 1;

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
}

pub(crate) const ONE_WRITER: &str = "writes of the newest claim alone are stored";
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum FiberState {
    Pending,
    Running(usize),
    Completed,
}

/// The newest claim of a worker, as the worker sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Activation {
    /// Number of the claim, which is no part of the protocol.
    claim: u8,
    epoch: u8,
    number: u8,
    /// Whether it waits for a write.
    waits: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Worker {
    is_up: bool,
    activation: Option<Activation>,
    /// How long ago it renewed its lease, by the clock of the database.
    renewed: i8,
}

/// A write on its way to the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Write {
    worker: usize,
    claim: u8,
    epoch: u8,
    /// The checkpoint that it stores; `None` for the end.
    number: Option<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct World {
    rows: [Option<Row>; WORKERS],
    /// Whether the server holds the session lock of each worker.
    locks: [bool; WORKERS],
    state: FiberState,
    epoch: u8,
    number: u8,
    workers: [Worker; WORKERS],
    writes: Vec<Write>,
    claims: u8,
    crashes: u8,
    cuts: u8,
    /// The claim that was granted last, unless it was taken over.
    newest: Option<u8>,
    /// How often each step and the end were stored.
    stored: [u8; STEPS as usize],
    ended: u8,
    /// Whether a write of an older claim was stored.
    stored_by_others: bool,
    /// Whether a worker with a lease and a lock lost its claims.
    took_from_the_living: bool,
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
    Claim(usize),
    /// The body of a step, or of the whole fiber, has ended, and the worker sends the write.
    Send(usize),
    /// The worker stops waiting for its write, and knows nothing of it.
    GiveUp(usize),
    Arrive(Write),
}

pub(crate) struct Protocol {
    pub(crate) mutation: Option<Mutation>,
}

impl Protocol {
    fn is(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// Whether others take a worker for alive.
    fn is_alive(&self, world: &World, worker: usize) -> bool {
        let Some(row) = &world.rows[worker] else { return false };
        let holds = !row.names_lock || world.locks[worker];
        holds && (self.is(Mutation::LockAlone) || row.age < LEASE)
    }

    /// Whether the database stores a write.
    fn stores(&self, world: &World, write: &Write) -> bool {
        let is_fenced = write.epoch != world.epoch && !self.is(Mutation::LockAlone);
        match write.number {
            Some(number) => !is_fenced && world.state != FiberState::Completed && number == world.number + 1,
            None => (!is_fenced || self.is(Mutation::EndWithoutEpoch)) && world.state != FiberState::Completed,
        }
    }

    fn arrive(&self, world: &mut World, write: Write) {
        world.writes.retain(|other| *other != write);
        let stores = self.stores(world, &write);
        if stores {
            world.stored_by_others |= world.newest != Some(write.claim);
            if let Some(number) = write.number {
                world.number = number;
                world.stored[usize::from(number) - 1] += 1;
            } else {
                world.state = FiberState::Completed;
                world.ended += 1;
            }
        }
        // The answer, where it is still waited for.
        let activation = &mut world.workers[write.worker].activation;
        if let Some(of_write) = activation.as_mut().filter(|activation| activation.claim == write.claim && activation.waits) {
            match write.number {
                Some(number) if stores => {
                    of_write.number = number;
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
            state: FiberState::Pending,
            epoch: 0,
            number: 0,
            workers: [0, 1].map(|_| Worker { is_up: true, activation: None, renewed: 0 }),
            writes: Vec::new(),
            claims: 0,
            crashes: 0,
            cuts: 0,
            newest: None,
            stored: [0; STEPS as usize],
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
            if world.crashes < CRASHES {
                actions.push(Action::Crash(worker));
            }
            if world.locks[worker] && world.cuts < CUTS {
                actions.push(Action::LoseLock(worker));
            }
            if !world.locks[worker] {
                let names = world.rows[worker].as_ref().is_some_and(|row| row.names_lock);
                actions.push(if names { Action::ForgetLock(worker) } else { Action::TakeLock(worker) });
            }
            for other in (0..WORKERS).filter(|other| *other != worker && !self.is_alive(world, *other)) {
                if world.rows[other].is_some() || world.state == FiberState::Running(other) {
                    actions.push(Action::TakeOver { by: worker, of: other });
                }
            }
            match of.activation {
                // It may run its own fiber again, whose stop it could not store.
                None if world.claims < CLAIMS && [FiberState::Pending, FiberState::Running(worker)].contains(&world.state) => {
                    actions.push(Action::Claim(worker));
                }
                None => {}
                Some(Activation { waits: true, .. }) => actions.push(Action::GiveUp(worker)),
                Some(Activation { waits: false, .. }) => actions.push(Action::Send(worker)),
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
                if world.state == FiberState::Running(of) {
                    world.state = FiberState::Pending;
                    world.epoch += 1;
                    world.newest = None;
                }
            }
            Action::Claim(worker) => {
                world.claims += 1;
                world.epoch += u8::from(!self.is(Mutation::ClaimKeepsEpoch));
                world.state = FiberState::Running(worker);
                world.newest = Some(world.claims);
                let activation = Activation { claim: world.claims, epoch: world.epoch, number: world.number, waits: false };
                world.workers[worker].activation = Some(activation);
            }
            Action::Send(worker) => {
                let activation = world.workers[worker].activation.as_mut()?;
                activation.waits = true;
                let number = (activation.number < STEPS).then_some(activation.number + 1);
                world.writes.push(Write { worker, claim: activation.claim, epoch: activation.epoch, number });
                world.writes.sort_unstable();
            }
            Action::GiveUp(worker) => world.workers[worker].activation = None,
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
            Property::always("no finished step repeats", |_, world: &World| {
                world.stored.iter().all(|times| *times <= 1) && world.ended <= 1
            }),
            Property::always("a fiber that has ended has all its steps", |_, world: &World| {
                world.ended == 0 || world.stored == [1; STEPS as usize]
            }),
            Property::always(LIVING_KEEP, |_, world: &World| !world.took_from_the_living),
            Property::always(NONE_LOST, |protocol: &Protocol, world: &World| match world.state {
                FiberState::Running(worker) => {
                    let of = &world.workers[worker];
                    of.is_up || of.renewed < LEASE || !protocol.is_alive(world, worker)
                }
                FiberState::Pending | FiberState::Completed => true,
            }),
            Property::sometimes("the fiber ends after a takeover", |_, world: &World| {
                world.ended == 1 && world.crashes == 1 && world.claims > 1
            }),
            Property::sometimes("a late write is fenced", |protocol: &Protocol, world: &World| {
                world.writes.iter().any(|write| !protocol.stores(world, write) && world.newest != Some(write.claim))
            }),
        ]
    }
}
