//! Gauges of the database, set from time to time (feature `metrics`).
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use metrics::gauge;

use crate::error::{Result, chain};
use crate::runtime::metrics::{FIBERS, LIVE, OLDEST_READY, describe, event};
use crate::runtime::race::race;
use crate::runtime::state::Runtime;
use crate::store::{FiberCount, FiberQuery, FiberState};

/// Interval at which they are set.
const INTERVAL: Duration = Duration::from_secs(10);

/// Describes all metrics, counts events from now on, and sets the gauges until the runtime closes.
pub(crate) fn begin(runtime: &Arc<Runtime>) -> Result<()> {
    describe();
    runtime.listeners.observe(event);
    // A modelled cluster is the same by its seed, so nothing but its program asks its store.
    #[cfg(feature = "testing")]
    if runtime.settings.gate.is_some() {
        return Ok(());
    }
    runtime.start(set_gauges(Arc::clone(runtime)))
}

/// The states of fibers that have not ended: those that have are counted when they end, and there
/// may be millions.
const UNFINISHED: [FiberState; 5] =
    [FiberState::Pending, FiberState::Running, FiberState::Waiting, FiberState::Interrupted, FiberState::Parked];

async fn set_gauges(runtime: Arc<Runtime>) {
    let mut known = BTreeSet::new();
    loop {
        if let Err(why) = set_once(&runtime, &mut known).await
            && !why.is_closed()
        {
            tracing::debug!(error = %chain(&why), "the gauges could not be set");
        }
        // They are read by the time of the system, whatever the clock of the fibers is.
        if race(runtime.closing(), tokio::time::sleep(INTERVAL)).await.is_some() {
            return;
        }
    }
}

async fn set_once(runtime: &Runtime, known: &mut BTreeSet<(String, &'static str)>) -> Result<()> {
    #[allow(clippy::cast_precision_loss, reason = "a gauge is a float")]
    let set = |function: &str, state: &'static str, fibers: u64| {
        gauge!(FIBERS, "function" => function.to_owned(), "state" => state).set(fibers as f64);
    };
    #[allow(clippy::cast_precision_loss, reason = "a gauge is a float")]
    gauge!(LIVE).set(runtime.active.count() as f64);

    let counts = runtime.store.counts(UNFINISHED.to_vec()).await?;
    let of = |count: &FiberCount| (count.name.clone(), count.state.as_str());
    let now: BTreeSet<_> = counts.iter().map(of).collect();
    for (function, state) in known.difference(&now) {
        set(function, state, 0);
    }
    for count in &counts {
        set(&count.name, count.state.as_str(), count.fibers);
    }
    *known = now;

    let ready = FiberQuery { states: vec![FiberState::Pending], ..FiberQuery::default() };
    let oldest = runtime.store.list(ready, 0, 1).await?;
    let age_ms = oldest.first().map_or(0, |fiber| runtime.now_ms().saturating_sub(fiber.changed_ms).max(0));
    gauge!(OLDEST_READY).set(Duration::from_millis(age_ms.unsigned_abs()).as_secs_f64());
    Ok(())
}
