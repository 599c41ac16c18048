//! Metrics: what an exporter is given.
#![allow(clippy::cast_precision_loss, clippy::float_cmp, reason = "counters are small whole numbers")]
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use forever::prelude::*;
use forever_testkit::waiting::{eventually, soon};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit, set_global_recorder,
};

/// Values by metric with its labels.
#[derive(Clone, Default)]
pub(crate) struct Recorded(Arc<Mutex<BTreeMap<String, Vec<f64>>>>);

struct Handle(Recorded, String);

impl Recorded {
    fn handle(&self, key: &Key) -> Arc<Handle> {
        let labels: Vec<String> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        Arc::new(Handle(self.clone(), format!("{} {}", key.name(), labels.join(" "))))
    }

    /// The metrics, with their labels.
    pub(crate) fn names(&self) -> String {
        self.0.lock().unwrap().keys().cloned().collect::<Vec<_>>().join("\n")
    }

    /// Sum of what was recorded of a metric.
    fn sum(&self, metric: &str) -> f64 {
        self.0.lock().unwrap().get(metric).map_or(0.0, |values| values.iter().sum())
    }

    fn count(&self, metric: &str) -> usize {
        self.0.lock().unwrap().get(metric).map_or(0, Vec::len)
    }

    fn last(&self, metric: &str) -> Option<f64> {
        self.0.lock().unwrap().get(metric).and_then(|values| values.last().copied())
    }
}

impl Handle {
    fn push(&self, value: f64) {
        self.0.0.lock().unwrap().entry(self.1.clone()).or_default().push(value);
    }
}

impl CounterFn for Handle {
    fn increment(&self, value: u64) {
        self.push(value as f64);
    }

    fn absolute(&self, _: u64) {
        unreachable!();
    }
}

impl GaugeFn for Handle {
    fn increment(&self, _: f64) {
        unreachable!();
    }

    fn decrement(&self, _: f64) {
        unreachable!();
    }

    fn set(&self, value: f64) {
        self.push(value);
    }
}

impl HistogramFn for Handle {
    fn record(&self, value: f64) {
        self.push(value);
    }
}

impl Recorder for Recorded {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.handle(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.handle(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.handle(key))
    }
}

/// One for the process. Other tests record theirs too, of functions with other names.
static RECORDED: LazyLock<Recorded> = LazyLock::new(|| {
    let recorded = Recorded::default();
    set_global_recorder(recorded.clone()).unwrap_or_else(|_| panic!("there is a recorder already"));
    recorded
});

pub(crate) fn recorded() -> Recorded {
    RECORDED.clone()
}

#[derive(Clone, Default)]
struct Tries(Arc<Mutex<u32>>);

#[fiber]
async fn metered(tries: Res<Tries>, good: bool) -> anyhow::Result<u32> {
    step!("slow", tokio::time::sleep(Duration::from_millis(20)).await);
    let tried = step!("retried", retry = Retry::times(2).backoff(Backoff::none()), {
        let mut tries = tries.0.lock().unwrap();
        *tries += 1;
        anyhow::ensure!(*tries > 2, "try again");
        *tries
    });
    anyhow::ensure!(good, "it fails");
    Ok(tried)
}

#[fiber]
async fn metered_wait() -> anyhow::Result<()> {
    let _: String = recv!("word");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn events_durations_and_states_are_recorded_by_function() {
    let recorded = RECORDED.clone();
    let tries = Tries::default();
    let builder = Forever::builder().in_memory().fiber::<metered>().fiber::<metered_wait>().resource(tries);
    let forever = builder.open().await.unwrap();
    assert_eq!(soon("the result", forever.run(metered(true))).await.unwrap(), 3);
    soon("the failure", forever.run(metered(false))).await.unwrap_err();
    forever.spawn(metered_wait()).id("w").await.unwrap();
    let cancelled = forever.spawn(metered_wait()).await.unwrap();
    cancelled.cancel("enough").await.unwrap();

    let of = |metric: &str, labels: &str| recorded.sum(&format!("forever_{metric} function={labels}"));
    assert_eq!(of("fibers_spawned_total", "metered"), 2.0);
    assert_eq!(of("fibers_started_total", "metered resumed=false"), 2.0);
    assert_eq!(of("fibers_ended_total", "metered outcome=completed"), 1.0);
    assert_eq!(of("fibers_ended_total", "metered outcome=failed"), 1.0);
    eventually("the cancel", async || of("fibers_ended_total", "metered_wait outcome=cancelled") > 0.0).await;
    assert_eq!(of("step_retries_total", "metered step=retried"), 2.0);
    assert_eq!(recorded.count("forever_step_duration_seconds function=metered step=slow"), 2);
    assert_eq!(recorded.count("forever_step_duration_seconds function=metered step=retried"), 2);
    assert!(recorded.count("forever_checkpoint_duration_seconds ") >= 4);

    // The gauges are set every ten seconds.
    let gauge = |labels: &str| recorded.last(&format!("forever_fibers function={labels}"));
    eventually("the gauges", async || gauge("metered_wait state=waiting") == Some(1.0)).await;
    assert_eq!((gauge("metered state=completed"), gauge("metered state=failed")), (None, None), "those that have ended are not counted");
    forever.send("w", "word", "go").await.unwrap();
    soon("the end", forever.fiber::<metered_wait>("w").wait()).await.unwrap();
    eventually("the gauges", async || gauge("metered_wait state=waiting") == Some(0.0)).await;
    forever.close().await.unwrap();
}
