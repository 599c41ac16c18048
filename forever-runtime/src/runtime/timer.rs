//! One timer for everything that is due: waits, schedules, heartbeats, retention.
//!
//! A layer with something due sets an alarm. One task sleeps until the earliest alarm and rings it.
//! What it rings runs in a task of its own, so that nothing slow delays another alarm.
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tracing::warn;

use crate::future::BoxFuture;
use crate::runtime::race::race;
use crate::runtime::state::Runtime;

/// Key of an alarm: its kind, and the item it is for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Alarm {
    pub(crate) what: &'static str,
    pub(crate) of: Arc<str>,
}

impl Alarm {
    /// The alarm of a kind with a single item.
    pub(crate) fn the(what: &'static str) -> Self {
        Alarm { what, of: "".into() }
    }
}

/// Action of the alarms of one kind.
pub(crate) type Ring = Arc<dyn Fn(Arc<Runtime>, Arc<str>) -> BoxFuture<'static, ()> + Send + Sync>;

/// A clock that is behind the latest time seen by more than this was set back. Smaller deviations
/// are ignored: clocks are corrected by seconds all the time.
pub const SET_BACK_MS: i64 = 60_000;

/// The alarms that are set.
#[derive(Default)]
pub(crate) struct Timer {
    alarms: Mutex<Alarms>,
    changed: Notify,
    rings: Mutex<HashMap<&'static str, Ring>>,
    /// Actions after the clock was set back.
    set_back: Mutex<Vec<Ring>>,
    /// The latest time seen since the clock was last set back.
    latest_ms: AtomicI64,
}

#[derive(Default)]
struct Alarms {
    at: HashMap<Alarm, i64>,
    in_order: BTreeSet<(i64, Alarm)>,
}

impl Alarms {
    fn remove(&mut self, alarm: &Alarm) {
        if let Some(at) = self.at.remove(alarm) {
            self.in_order.remove(&(at, alarm.clone()));
        }
    }

    fn insert(&mut self, alarm: Alarm, at_ms: i64) {
        self.remove(&alarm);
        self.at.insert(alarm.clone(), at_ms);
        self.in_order.insert((at_ms, alarm));
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.alarms().in_order.iter()).finish()
    }
}

impl Timer {
    /// Registers the action of the alarms of a kind.
    pub(crate) fn on(&self, what: &'static str, ring: Ring) {
        lock(&self.rings).insert(what, ring);
    }

    /// Registers an action for a clock that was set back: stored times that were computed before
    /// are far in the future then.
    pub(crate) fn on_set_back(&self, ring: Ring) {
        lock(&self.set_back).push(ring);
    }

    /// Records a time of the clock.
    pub(crate) fn saw(&self, now_ms: i64) {
        self.latest_ms.fetch_max(now_ms, Ordering::Relaxed);
    }

    /// Whether the clock was set back since the last call.
    fn was_set_back(&self, now_ms: i64) -> bool {
        let back = self.latest_ms.load(Ordering::Relaxed).saturating_sub(now_ms) > SET_BACK_MS;
        if back {
            self.latest_ms.store(now_ms, Ordering::Relaxed);
        }
        back
    }

    /// Removes and returns all alarms.
    fn take_all(&self) -> Vec<Alarm> {
        let mut alarms = self.alarms();
        alarms.at.clear();
        std::mem::take(&mut alarms.in_order).into_iter().map(|(_, alarm)| alarm).collect()
    }

    /// Sets an alarm, replacing its earlier time.
    pub(crate) fn set(&self, alarm: Alarm, at_ms: i64) {
        self.alarms().insert(alarm, at_ms);
        self.changed.notify_one();
    }

    /// Sets an alarm unless it is set to an earlier time.
    pub(crate) fn set_earlier(&self, alarm: Alarm, at_ms: i64) {
        let mut alarms = self.alarms();
        if alarms.at.get(&alarm).is_some_and(|at| *at <= at_ms) {
            return;
        }
        alarms.insert(alarm, at_ms);
        drop(alarms);
        self.changed.notify_one();
    }

    /// Removes an alarm.
    pub(crate) fn clear(&self, alarm: &Alarm) {
        self.alarms().remove(alarm);
    }

    fn alarms(&self) -> MutexGuard<'_, Alarms> {
        lock(&self.alarms)
    }

    fn next(&self) -> Option<i64> {
        self.alarms().in_order.first().map(|(at, _)| *at)
    }

    /// Removes and returns one alarm that is due.
    fn take_due(&self, now_ms: i64) -> Option<Alarm> {
        let mut alarms = self.alarms();
        let (_, alarm) = alarms.in_order.first().filter(|(at, _)| *at <= now_ms).cloned()?;
        alarms.remove(&alarm);
        Some(alarm)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Rings alarms until the runtime closes.
pub(crate) async fn run(runtime: Arc<Runtime>) {
    // A runtime that is closing leaves them for the next one.
    let start = |ring: &Ring, of: Arc<str>| drop(runtime.start(ring(Arc::clone(&runtime), of)));
    let rings = |alarm: Alarm| {
        let ring = lock(&runtime.timer.rings).get(alarm.what).cloned();
        if let Some(ring) = ring {
            start(&ring, Arc::clone(&alarm.of));
        }
    };
    while !runtime.is_closing() {
        if runtime.timer.was_set_back(runtime.now_ms()) {
            warn!("the clock was set back, and what is due is looked up again");
            lock(&runtime.timer.set_back).iter().for_each(|ring| start(ring, "".into()));
            // These alarms were set by the earlier clock. Each is set again by the action that it
            // rings.
            runtime.timer.take_all().into_iter().for_each(rings);
        }
        while let Some(alarm) = runtime.timer.take_due(runtime.now_ms()) {
            rings(alarm);
        }
        let Some(next) = runtime.timer.next() else {
            race(runtime.timer.changed.notified(), runtime.closing()).await;
            continue;
        };
        let left = Duration::from_millis(next.saturating_sub(runtime.now_ms()).max(0).unsigned_abs());
        let woken = race(runtime.timer.changed.notified(), runtime.clock.sleep_towards(left));
        race(woken, runtime.closing()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarms_come_out_in_the_order_of_their_times_and_not_before() {
        let timer = Timer::default();
        let alarm = |of: &str| Alarm { what: "test", of: of.into() };
        timer.set(alarm("late"), 30);
        timer.set(alarm("early"), 10);
        timer.set(alarm("moved"), 5);
        timer.set(alarm("moved"), 20);
        timer.set_earlier(alarm("early"), 15);
        timer.set_earlier(alarm("late"), 25);
        timer.set(alarm("gone"), 1);
        timer.clear(&alarm("gone"));
        let due = |now| std::iter::from_fn(|| timer.take_due(now)).map(|a| a.of.to_string()).collect::<Vec<_>>();
        assert_eq!(due(9), [""; 0]);
        assert_eq!(due(20), ["early", "moved"]);
        assert_eq!(timer.next(), Some(25));
        assert_eq!(due(25), ["late"]);
        assert_eq!(timer.next(), None);
    }

    #[test]
    fn a_clock_is_set_back_by_more_than_a_minute_and_once() {
        let timer = Timer::default();
        let looks = |now: i64| {
            timer.saw(now);
            timer.was_set_back(now)
        };
        assert!(!looks(1_000_000));
        assert!(!looks(1_000_000 - SET_BACK_MS));
        assert!(looks(1_000_000 - SET_BACK_MS - 1));
        assert!(!looks(1_000_000 - SET_BACK_MS - 1), "it is told once");
        assert!(!looks(9_000_000), "ahead is not back");
        assert!(looks(1_000_000));
    }
}
