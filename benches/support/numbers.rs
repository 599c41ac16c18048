//! Helpers for figures.
use std::time::Duration;

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

pub(crate) fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Prints the load of the machine over the last minute, where the system reports it.
pub(crate) fn print_load(when: &str) {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("load_{when}={}", load.split(' ').next().filter(|load| !load.is_empty()).unwrap_or("unknown"));
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}

/// The 50th and 99th percentile, and the maximum.
pub(crate) fn percentiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [50, 99, 100].map(|percent| values.get((values.len() * percent / 100).min(values.len().saturating_sub(1))).copied().unwrap_or(f64::NAN))
}
