//! What the workers of one run share: the database, simulated time, the faults that are planned,
//! the trace, and the audit.
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;

use super::audit::Audit;
use super::clock::SimulatedClock;
use super::database::{Database, lock};
use super::faults::{Fault, Kind, Trigger};
use super::store::ModelStore;
use crate::error::Result;
use crate::store::Notification;
use crate::testing::dice::Dice;

/// Of so many calls of a busy worker one is slow; of so many claims one is not.
const SLOW: u64 = 4;

/// The longest time until a slow call arrives.
const SLOWEST_MS: u64 = 600;

/// Of so many slow calls one arrives when others may have come and gone.
const LATE: u64 = 2;

/// The longest time until such a call arrives.
const LATEST_MS: u64 = 5_000;

/// Defect that is built into the model, for tests of the kit itself.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defect {
    /// Claims and takeovers leave the epoch as it is.
    ClaimKeepsEpoch,
    /// Writes are accepted whatever their claim.
    WriteWithoutFence,
    /// A worker counts as dead before its lease has run out.
    EarlyTakeover,
    /// Some checkpoints are acknowledged and not stored.
    CheckpointLost,
    /// A fiber is loaded before it is claimed, and runs from what was loaded.
    LoadBeforeClaim,
    /// Workers do not know whether their lease is in force.
    NoLease,
}

/// What a fault wants of the task that runs a worker.
#[derive(Debug, Clone, Copy)]
pub(super) enum Order {
    /// To drop the worker as it is, and to start one again after this time.
    Crash(Duration),
    /// To close the worker, and to start one again after this time.
    Restart(Duration),
    /// To close the worker.
    End,
}

pub(super) struct Simulation {
    pub(super) database: Database,
    pub(super) clock: SimulatedClock,
    pub(super) lease: Duration,
    pub(super) defect: Option<Defect>,
    dice: Mutex<Dice>,
    trace: Mutex<Vec<String>>,
    /// Faults that have not happened.
    faults: Mutex<Vec<Fault>>,
    has_faults: bool,
    is_busy: bool,
    skew: Duration,
    /// Number of writes so far.
    writes: AtomicU64,
    /// Raised with every change of the database.
    version: AtomicU64,
    stores: Mutex<Vec<ModelStore>>,
    /// When a fault was last felt.
    troubled: Mutex<Option<Duration>>,
    orders: Vec<mpsc::UnboundedSender<Order>>,
    pub(super) audit: Mutex<Audit>,
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation").field("clock", &self.clock).finish_non_exhaustive()
    }
}

/// Options of a run.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) faults: Vec<Fault>,
    pub(super) lease: Duration,
    /// Longest simulated time.
    pub(super) patience: Duration,
    /// Whether some calls of the store wait behind others for long.
    pub(super) is_busy: bool,
    /// How far the clocks of workers differ at most from the store's.
    pub(super) skew: Duration,
    pub(super) defect: Option<Defect>,
}

/// What happens to a call.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Fate {
    /// Time until it arrives, and until its answer does.
    pub(super) before: Duration,
    pub(super) after: Duration,
    pub(super) fails: bool,
    pub(super) answer_lost: bool,
    /// Whether it is carried out, where its answer is lost.
    pub(super) is_stored: bool,
    pub(super) crash: Option<(bool, Duration)>,
    pub(super) pause: Option<(bool, Duration)>,
}

impl Simulation {
    pub(super) fn new(plan: &Plan, orders: Vec<mpsc::UnboundedSender<Order>>) -> Result<Self> {
        let clock = SimulatedClock::new();
        Ok(Simulation {
            database: Database::open(clock.clone())?,
            clock,
            lease: plan.lease,
            defect: plan.defect,
            dice: Mutex::new(Dice::new(plan.seed)),
            trace: Mutex::default(),
            faults: Mutex::new(plan.faults.clone()),
            has_faults: !plan.faults.is_empty(),
            is_busy: plan.is_busy,
            skew: plan.skew,
            writes: AtomicU64::new(0),
            version: AtomicU64::new(1),
            stores: Mutex::default(),
            troubled: Mutex::default(),
            orders,
            audit: Mutex::default(),
        })
    }

    /// Whether it has one worker, without a lease.
    pub(super) fn is_single(&self) -> bool {
        self.lease.is_zero()
    }

    pub(super) fn lease_ms(&self) -> i64 {
        i64::try_from(self.lease.as_millis()).unwrap_or(i64::MAX)
    }

    pub(super) fn below(&self, limit: u64) -> u64 {
        lock(&self.dice).below(limit)
    }

    /// A clock of one worker.
    pub(super) fn clock_of_worker(&self) -> SimulatedClock {
        let ms = u64::try_from(self.skew.as_millis()).unwrap_or(u64::MAX / 4);
        if ms == 0 { self.clock.clone() } else { self.clock.ahead_by(self.below(2 * ms + 1).cast_signed() - ms.cast_signed()) }
    }

    /// Adds a line to the trace.
    pub(super) fn tell(&self, who: impl fmt::Display, what: impl fmt::Display) {
        let passed = self.clock.passed();
        lock(&self.trace).push(format!("{:>5}.{:03} s  {who}: {what}", passed.as_secs(), passed.subsec_millis()));
    }

    pub(super) fn trace(&self) -> Vec<String> {
        lock(&self.trace).clone()
    }

    pub(super) fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    /// Number that tells whether the database has changed.
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// The database has changed.
    pub(super) fn changed(&self) {
        self.version.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add(&self, store: &ModelStore) {
        lock(&self.stores).push(store.clone());
    }

    pub(super) fn remove(&self, store: &ModelStore) {
        lock(&self.stores).retain(|there| !there.is(store));
    }

    pub(super) fn order(&self, slot: usize, order: Order) {
        if let Some(orders) = self.orders.get(slot) {
            // A slot that has ended needs no orders.
            let _ = orders.send(order);
        }
    }

    /// Notifies the other workers. Some notifications are lost.
    pub(super) fn notify_others(&self, of: &ModelStore, notification: Notification) {
        for other in lock(&self.stores).iter().filter(|other| !other.is(of)) {
            if !self.has_faults || self.below(8) != 0 {
                other.receive(notification);
            }
        }
    }

    /// A fault is felt now.
    pub(super) fn trouble(&self) {
        *lock(&self.troubled) = Some(self.clock.passed());
    }

    /// Whether a fault was felt within a time from now.
    pub(super) fn is_troubled(&self, within: Duration) -> bool {
        lock(&self.troubled).is_some_and(|at| self.clock.passed().saturating_sub(at) <= within)
    }

    /// Whether no worker is paused or cut off.
    pub(super) fn is_calm(&self) -> bool {
        lock(&self.stores).iter().all(|store| !store.0.gate.is_shut() && !store.is_cut_off())
    }

    /// The faults that happen at a time.
    pub(super) fn timed(&self) -> Vec<(Duration, usize, Fault)> {
        let faults = lock(&self.faults);
        let timed = |fault: &Fault| match fault.at {
            Trigger::Time(at, slot) => Some((at, slot, *fault)),
            Trigger::Write(_) => None,
        };
        faults.iter().filter_map(timed).collect()
    }

    /// Lets a fault happen that hits a worker between two of its calls.
    pub(super) fn strike(&self, slot: usize, fault: Fault) {
        let there = lock(&self.stores).iter().find(|store| store.slot() == slot).cloned();
        let Some(store) = there else { return };
        match fault.kind {
            Kind::Crash { down, .. } => store.crash(down),
            Kind::Restart { down } => self.order(slot, Order::Restart(down)),
            Kind::Pause { length, .. } => store.pause(length),
            Kind::Partition { length } => store.cut_off(length),
            Kind::AnswerLost { .. } => {}
        }
    }

    /// What happens to the next call of a worker.
    pub(super) fn fate(&self, store: &ModelStore, what: &str, writes: bool) -> Fate {
        if self.is_single() {
            return Fate { is_stored: true, ..Fate::default() };
        }
        let ms = |limit| Duration::from_millis(self.below(limit));
        let mut fate = Fate { is_stored: true, before: ms(2), ..Fate::default() };
        if writes {
            // At least one, so that everything that happens now comes before it.
            fate.before = Duration::from_millis(1) + ms(4);
            fate.after = ms(3);
            let number = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
            let fault = {
                let mut faults = lock(&self.faults);
                faults.iter().position(|fault| fault.at == Trigger::Write(number)).map(|there| faults.remove(there))
            };
            match fault.map(|fault| fault.kind) {
                Some(Kind::Crash { after, down }) => fate.crash = Some((after, down)),
                Some(Kind::Restart { down }) => self.order(store.slot(), Order::Restart(down)),
                Some(Kind::Pause { after, length }) => fate.pause = Some((after, length)),
                Some(Kind::Partition { length }) => store.cut_off(length),
                Some(Kind::AnswerLost { stored }) => (fate.answer_lost, fate.is_stored) = (true, stored),
                None => {}
            }
        }
        if self.is_busy && (self.below(SLOW) == 0) != (what == "claim") {
            // Long enough for other workers to run the fiber, and to let it go or to close.
            fate.before += ms(if what == "claim" && self.below(LATE) == 0 { LATEST_MS } else { SLOWEST_MS });
        }
        if store.is_cut_off() {
            fate.before = ms(200);
            (fate.fails, fate.answer_lost, fate.is_stored) = match self.below(4) {
                0 if writes => (false, true, true),
                1 if writes => (false, true, false),
                _ => (true, false, false),
            };
        }
        fate
    }
}
