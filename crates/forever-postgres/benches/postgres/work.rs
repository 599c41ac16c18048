//! The fibers that are measured, and what they measure.
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forever::fiber::History;
use forever::prelude::*;
use forever::{Clock, Error, SystemClock};
use forever_postgres::Builder;
use tokio::time::Instant;

/// A text of 160 bytes that differs after each step.
pub(crate) fn payload(n: u64) -> String {
    format!("{n:0>160x}")
}

/// What the fibers of a process do.
#[derive(Debug, Clone, Default)]
pub(crate) struct Meter(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    steps: AtomicU64,
    ends: AtomicBool,
    /// Fibers with this number and smaller ones end.
    over: AtomicU64,
    /// When each fiber made its first step in this process.
    first: Mutex<BTreeMap<u64, Instant>>,
    late_ms: Mutex<Vec<f64>>,
}

impl Meter {
    fn step(&self, n: u64) -> String {
        self.0.steps.fetch_add(1, Ordering::Relaxed);
        payload(n)
    }

    pub(crate) fn steps(&self) -> u64 {
        self.0.steps.load(Ordering::Relaxed)
    }

    /// Lets all fibers end after their step.
    pub(crate) fn end(&self) {
        self.0.ends.store(true, Ordering::Relaxed);
    }

    /// Lets fibers up to a number end.
    pub(crate) fn end_up_to(&self, number: u64) {
        self.0.over.store(number, Ordering::Relaxed);
    }

    fn goes_on(&self, number: u64) -> bool {
        !self.0.ends.load(Ordering::Relaxed) && number > self.0.over.load(Ordering::Relaxed)
    }

    async fn slow_step(&self, number: u64) {
        self.0.first.lock().unwrap_or_else(PoisonError::into_inner).entry(number).or_insert_with(Instant::now);
        self.step(number);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    /// When each fiber of a range made its first step in this process, once all of them have.
    pub(crate) fn firsts(&self, numbers: std::ops::Range<u64>) -> Option<Vec<Instant>> {
        let first = self.0.first.lock().unwrap_or_else(PoisonError::into_inner);
        numbers.map(|number| first.get(&number).copied()).collect()
    }

    fn woken(&self, due_ms: u64) {
        let late = 1e3 * now().saturating_sub(Duration::from_millis(due_ms)).as_secs_f64();
        self.0.late_ms.lock().unwrap_or_else(PoisonError::into_inner).push(late);
    }

    /// How late fibers were woken.
    pub(crate) fn late_ms(&self) -> Vec<f64> {
        self.0.late_ms.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Time since 1970.
fn now() -> Duration {
    SystemClock::new().now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}

fn now_ms() -> u64 {
    u64::try_from(now().as_millis()).unwrap_or(u64::MAX)
}

/// Steps without end, as fast as they can be stored.
#[fiber]
pub(crate) async fn work(meter: Res<Meter>, number: u64) -> Result<u64, Error> {
    let mut n = number << 32;
    while meter.goes_on(number) {
        let state = step!("work", meter.step(n));
        n += state.len() as u64;
    }
    Ok(n)
}

/// Steps of 5 ms without end.
#[fiber]
pub(crate) async fn slow(meter: Res<Meter>, number: u64) -> Result<u64, Error> {
    let mut n = 0;
    while meter.goes_on(number) {
        step!("slow", meter.slow_step(number).await);
        n += 1;
    }
    Ok(n)
}

/// One step.
#[fiber]
pub(crate) async fn short(meter: Res<Meter>, number: u64) -> Result<u64, Error> {
    let state = step!("work", meter.step(number));
    Ok(state.len() as u64)
}

#[fiber]
pub(crate) async fn sleeper(meter: Res<Meter>, ms: u64) -> Result<(), Error> {
    let due_ms = step!("due", now_ms() + ms);
    sleep!(Duration::from_millis(due_ms.saturating_sub(now_ms())));
    meter.woken(due_ms);
    Ok(())
}

pub(crate) async fn open(builder: Builder, meter: &Meter) -> anyhow::Result<Forever> {
    let store = builder.connect().await?;
    let forever =
        Forever::builder().store(store).history(History::off()).fiber::<work>().fiber::<slow>().fiber::<short>().fiber::<sleeper>();
    Ok(forever.resource(meter.clone()).open().await?)
}
