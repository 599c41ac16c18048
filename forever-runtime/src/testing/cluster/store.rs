//! `ModelStore`: one worker's store over the database that all workers of a run share.
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;

use super::database::{EndedClaim, at_once, lock};
use super::lease::ModelLease;
use super::simulation::{Defect, Order, Simulation};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::gate::Gate;
use crate::store::{Changes, Claim, FiberStore, LoadedFiber, Notification, ReadySender, Runnable, Seq, UnreadSender, Watch, WorkerId};

/// Most claims of a takeover that are sent to the dispatcher at once.
const PAGE: u32 = 10_000;

/// Store of one worker. Clones are the same store.
#[derive(Clone)]
pub(super) struct ModelStore(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) sim: Arc<Simulation>,
    slot: usize,
    pub(super) gate: Arc<Gate>,
    worker: AtomicI64,
    pub(super) ready: OnceLock<ReadySender>,
    pub(super) unread: OnceLock<UnreadSender>,
    received: Mutex<Option<Notification>>,
    notify: Notify,
    pub(super) fenced: AtomicBool,
    pub(super) lease: ModelLease,
    /// Runs that a schedule may not survive, as the runtime says.
    pub(super) strikes: AtomicU32,
    /// Whether its process is gone.
    dead: AtomicBool,
    closed: AtomicBool,
    cut_off_until_ms: AtomicI64,
    /// What the last look at the database has found, so that looks at an unchanged one cost little.
    pub(super) looks: Mutex<Looks>,
    /// Checkpoints of fibers that were dropped, for a defect.
    pub(super) dropped: Mutex<BTreeMap<Seq, u64>>,
    /// Fibers that were loaded before they are claimed, for a defect.
    pub(super) loaded_early: Mutex<BTreeMap<Seq, LoadedFiber>>,
}

/// Results of looks, each with the version of the database that it was of.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// No fiber was ready, and none was interrupted.
    pub(super) nothing_ready: u64,
    pub(super) changes: Option<(u64, Watch, Changes)>,
    nothing_to_take_over: u64,
}

impl fmt::Debug for ModelStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelStore").field("worker", &self.worker()).finish_non_exhaustive()
    }
}

/// The name of a worker in the trace.
impl fmt::Display for ModelStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.worker() {
            0 => write!(f, "slot {}", self.0.slot + 1),
            worker => write!(f, "worker {worker}"),
        }
    }
}

impl ModelStore {
    pub(super) fn new(sim: &Arc<Simulation>, slot: usize) -> Self {
        ModelStore(Arc::new(Inner {
            sim: Arc::clone(sim),
            slot,
            gate: Arc::default(),
            worker: AtomicI64::new(0),
            ready: OnceLock::new(),
            unread: OnceLock::new(),
            received: Mutex::default(),
            notify: Notify::new(),
            fenced: AtomicBool::new(false),
            lease: ModelLease::new(sim.lease, sim.clock.clone()),
            strikes: AtomicU32::new(0),
            dead: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            cut_off_until_ms: AtomicI64::new(i64::MIN),
            looks: Mutex::default(),
            dropped: Mutex::default(),
            loaded_early: Mutex::default(),
        }))
    }

    pub(super) fn is(&self, other: &ModelStore) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(super) fn slot(&self) -> usize {
        self.0.slot
    }

    pub(super) fn worker(&self) -> WorkerId {
        self.0.worker.load(Ordering::Relaxed)
    }

    pub(super) fn sim(&self) -> &Simulation {
        &self.0.sim
    }

    pub(super) fn is_dead(&self) -> bool {
        self.0.dead.load(Ordering::Relaxed)
    }

    pub(super) fn is_cut_off(&self) -> bool {
        self.0.cut_off_until_ms.load(Ordering::Relaxed) > self.sim().clock.now_ms()
    }

    /// Ends the process of the worker where it is.
    pub(super) fn crash(&self, down: Duration) {
        if !self.0.dead.swap(true, Ordering::Relaxed) {
            self.sim().tell(self, format_args!("crashes, and is down for {down:?}"));
            self.sim().trouble();
            self.0.gate.shut();
            self.sim().remove(self);
            self.sim().order(self.0.slot, Order::Crash(down));
        }
    }

    /// Lets no further call of the worker arrive.
    pub(super) fn kill(&self) {
        self.0.dead.store(true, Ordering::Relaxed);
        self.gone();
    }

    /// Lets the worker stand still.
    pub(super) fn pause(&self, length: Duration) {
        self.sim().tell(self, format_args!("pauses for {length:?}"));
        self.sim().trouble();
        self.0.gate.shut();
        let store = self.clone();
        // A task of the test, which runs while the worker does not.
        drop(tokio::spawn(async move {
            tokio::time::sleep(length).await;
            store.sim().tell(&store, "goes on");
            store.sim().trouble();
            store.0.gate.open();
        }));
    }

    /// Cuts the worker off from the store.
    pub(super) fn cut_off(&self, length: Duration) {
        self.sim().tell(self, format_args!("is cut off from the store for {length:?}"));
        self.sim().trouble();
        let until_ms = self.sim().clock.now_ms() + i64::try_from(length.as_millis()).unwrap_or(i64::MAX);
        self.0.cut_off_until_ms.fetch_max(until_ms, Ordering::Relaxed);
    }

    /// Takes in the notification of another worker.
    pub(super) fn receive(&self, notification: Notification) {
        if self.is_cut_off() {
            return;
        }
        let mut received = lock(&self.0.received);
        let before = received.unwrap_or_default();
        let Notification { ready, requested } = notification;
        *received = Some(Notification { ready: before.ready || ready, requested: before.requested || requested });
        self.0.notify.notify_one();
    }

    pub(super) async fn notified(&self) -> Notification {
        loop {
            let received = lock(&self.0.received).take();
            if let Some(received) = received {
                return received;
            }
            self.0.notify.notified().await;
        }
    }

    /// Waits while the worker is paused, and for good if its process is gone.
    async fn stand_still(&self) {
        self.0.gate.opened().await;
        if self.is_dead() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until a call may arrive.
    async fn turn(&self) -> Result<()> {
        self.stand_still().await;
        if self.0.closed.load(Ordering::Relaxed) { Err(Error::closed()) } else { Ok(()) }
    }

    /// Carries out a read.
    pub(super) async fn read<T>(&self, what: &'static str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.call(what, false, None, work).await
    }

    /// Carries out a write.
    pub(super) async fn write<T>(&self, what: &'static str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.call(what, true, None, work).await
    }

    /// Carries out a write under a claim.
    pub(super) async fn write_under<T>(&self, what: &'static str, claim: Claim, work: impl FnOnce(Claim) -> Result<T>) -> Result<T> {
        self.call(what, true, Some(claim), || work(self.in_force(claim)?)).await
    }

    /// The claim that a write is conditional on.
    fn in_force(&self, claim: Claim) -> Result<Claim> {
        if self.sim().defect != Some(Defect::WriteWithoutFence) {
            return Ok(claim);
        }
        let standing = self.sim().database.standing(claim.fiber)?;
        Ok(standing.map_or(claim, |(_, _, epoch, _)| Claim { epoch, ..claim }))
    }

    async fn call<T>(&self, what: &'static str, writes: bool, claim: Option<Claim>, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.turn().await?;
        let fate = self.sim().fate(self, what, writes);
        pass(fate.before).await;
        self.turn().await?;
        if fate.fails || fate.answer_lost {
            self.sim().trouble();
        }
        if fate.fails {
            return Err(Error::new(ErrorKind::Store, format!("failed to reach the store: {what}")));
        }
        match (fate.crash, fate.pause) {
            (Some((false, down)), _) => self.crash(down),
            (_, Some((false, length))) => {
                self.sim().tell(self, format_args!("is about to write: {what}"));
                self.pause(length);
            }
            _ => {}
        }
        self.turn().await?;
        let lost = || Err(Error::new(ErrorKind::OutcomeUnknown, format!("the answer of the store is lost: {what}")));
        if !fate.is_stored {
            self.sim().tell(self, format_args!("its write is lost, and it does not know: {what}"));
            return lost();
        }
        let done = work();
        self.finished(what, writes, claim, &done);
        match (fate.crash, fate.pause) {
            (Some((true, down)), _) => {
                self.sim().tell(self, format_args!("has written: {what}"));
                self.crash(down);
            }
            (_, Some((true, length))) => {
                self.sim().tell(self, format_args!("has written: {what}"));
                self.pause(length);
            }
            _ => {}
        }
        if fate.answer_lost {
            self.sim().tell(self, format_args!("its write is stored, and the answer is lost: {what}"));
            self.stand_still().await;
            return lost();
        }
        pass(fate.after).await;
        if writes {
            self.stand_still().await;
        }
        done
    }

    /// What follows a call that was carried out.
    fn finished<T>(&self, what: &'static str, writes: bool, claim: Option<Claim>, done: &Result<T>) {
        if writes {
            self.sim().changed();
        }
        for fiber in self.sim().database.take_ready() {
            self.send_ready(fiber);
        }
        for left in self.sim().database.take_unread() {
            self.sim().tell(self, format_args!("leaves unread messages of {}", left.name));
            if let Some(unread) = self.0.unread.get() {
                unread.send(left);
            }
        }
        match (done, claim) {
            (Err(error), Some(claim)) if error.is_claim_lost() => {
                let name = self.sim().database.name(claim.fiber);
                self.sim().tell(self, format_args!("is fenced: `{what}` of {name} at epoch {} is refused", claim.epoch));
            }
            (Ok(_), Some(claim)) if !self.sim().is_single() => {
                let name = self.sim().database.name(claim.fiber);
                lock(&self.sim().audit).wrote(claim, self.worker(), what, &name);
            }
            _ => {}
        }
        if writes && done.is_ok() && !self.sim().is_single() {
            self.sim().notify_others(self, Notification::default());
        }
    }

    fn send_ready(&self, fiber: Runnable) {
        if let Some(ready) = self.0.ready.get().filter(|_| !self.is_dead()) {
            lock(&self.sim().audit).read_ready(self.worker(), std::slice::from_ref(&fiber));
            ready.send(fiber);
        }
    }

    /// Registers the worker, and starts what keeps its lease.
    pub(super) fn begin(&self, now_ms: i64) -> Result<WorkerId> {
        let sim = self.sim();
        let worker = sim.database.join(sim.lease_ms(), now_ms)?;
        self.0.worker.store(worker, Ordering::Relaxed);
        self.0.lease.renew(false);
        lock(&sim.audit).renewed(worker, sim.clock.now_ms());
        sim.tell(self, format_args!("joins, in slot {}", self.0.slot + 1));
        self.take_over_now()?;
        sim.add(self);
        drop(tokio::spawn(self.clone().keep_lease()));
        drop(tokio::spawn(self.clone().look_for_dead()));
        Ok(worker)
    }

    fn is_gone(&self) -> bool {
        self.is_dead() || self.0.closed.load(Ordering::Relaxed)
    }

    async fn keep_lease(self) {
        while !self.is_gone() {
            tokio::time::sleep(self.sim().lease / 4).await;
            self.0.gate.opened().await;
            if self.is_gone() || self.is_cut_off() {
                continue;
            }
            let (sim, worker) = (self.sim(), self.worker());
            let was_lost = sim.database.renew(worker, sim.lease_ms());
            self.0.lease.renew(was_lost);
            if was_lost {
                sim.changed();
                lock(&sim.audit).met.went_on += 1;
                sim.tell(&self, "finds that it counted as dead");
                self.0.fenced.store(true, Ordering::Relaxed);
            }
            lock(&sim.audit).renewed(worker, sim.clock.now_ms());
        }
    }

    async fn look_for_dead(self) {
        while !self.is_gone() {
            tokio::time::sleep(self.sim().lease / 4 + Duration::from_millis(self.sim().below(100))).await;
            self.0.gate.opened().await;
            if self.is_gone() || self.is_cut_off() {
                continue;
            }
            if let Err(error) = self.take_over_now() {
                self.sim().tell(&self, format_args!("could not take over: {error}"));
            }
        }
    }

    /// Takes over from workers that are gone.
    pub(super) fn take_over_now(&self) -> Result<()> {
        let (sim, worker) = (self.sim(), self.worker());
        let early = sim.defect == Some(Defect::EarlyTakeover);
        let dead = sim.database.dead(worker, if early { 6 } else { 1 });
        for from in &dead {
            sim.tell(self, format_args!("finds the lease of worker {from} run out"));
            lock(&sim.audit).took_over(*from, worker, sim.lease_ms(), sim.clock.now_ms());
        }
        if dead.is_empty() && lock(&self.0.looks).nothing_to_take_over == sim.version() {
            return Ok(());
        }
        sim.changed();
        let claims = sim.database.take_over(&dead, sim.defect != Some(Defect::ClaimKeepsEpoch))?;
        for EndedClaim { claim, worker } in &claims {
            lock(&sim.audit).released(claim.fiber);
            let name = sim.database.name(claim.fiber);
            match worker {
                Some(from) => sim.tell(self, format_args!("takes over {name} at epoch {} from worker {from}", claim.epoch)),
                None => sim.tell(self, format_args!("takes over {name} at epoch {}", claim.epoch)),
            }
        }
        if claims.is_empty() {
            lock(&self.0.looks).nothing_to_take_over = sim.version();
        }
        let strikes = self.0.strikes.load(Ordering::Relaxed);
        if !dead.is_empty() && strikes > 0 {
            // No worker has number 0.
            sim.database.recover_schedules(strikes, 0)?;
        }
        if !claims.is_empty() {
            let ready = at_once(sim.database.sqlite.ready(Seq::MIN, PAGE))?;
            for fiber in ready.into_iter().filter(|fiber| claims.iter().any(|ended| ended.claim.fiber == fiber.seq)) {
                self.send_ready(fiber);
            }
        }
        Ok(())
    }

    /// Hands over what the worker has claimed, and closes its store.
    pub(super) fn leave(&self) -> Result<()> {
        let sim = self.sim();
        sim.tell(self, "closes");
        sim.changed();
        let claims = sim.database.leave(self.worker())?;
        for EndedClaim { claim, .. } in claims {
            sim.tell(self, format_args!("hands over {}", sim.database.name(claim.fiber)));
        }
        self.gone();
        sim.notify_others(self, Notification { ready: true, requested: false });
        Ok(())
    }

    /// Closes the store without a word, as the end of the process does.
    pub(super) fn gone(&self) {
        self.0.closed.store(true, Ordering::Relaxed);
        self.sim().remove(self);
    }
}

/// Lets simulated time pass.
async fn pass(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}
