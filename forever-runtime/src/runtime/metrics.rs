//! Metrics through the facade of the `metrics` crate (feature `metrics`).
//!
//! The labels are names of functions and steps, states and outcomes: what is in the code, never
//! what a fiber was given. Their names and meanings are in the guide,
//! `docs/guide/src/operations/metrics.md`. The gauges are set by `gauges`.
use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, histogram};

use crate::runtime::events::{Event, EventKind};

const SPAWNED: &str = "forever_fibers_spawned_total";
const STARTED: &str = "forever_fibers_started_total";
const RECOVERED: &str = "forever_fibers_recovered_total";
const INTERRUPTED: &str = "forever_fibers_interrupted_total";
const PARKED: &str = "forever_fibers_parked_total";
const ENDED: &str = "forever_fibers_ended_total";
const UNREAD: &str = "forever_unread_messages_total";
const RETRIED: &str = "forever_step_retries_total";
const STEP: &str = "forever_step_duration_seconds";
const STORED: &str = "forever_checkpoint_duration_seconds";
pub(super) const FIBERS: &str = "forever_fibers";
pub(super) const LIVE: &str = "forever_fibers_live";
pub(super) const OLDEST_READY: &str = "forever_oldest_ready_seconds";

/// Describes the metrics to the exporter.
pub(super) fn describe() {
    describe_counter!(SPAWNED, "Fibers that were accepted");
    describe_counter!(STARTED, "Times that the code of a fiber has started, or gone on from a snapshot");
    describe_counter!(RECOVERED, "Fibers that were found unfinished after a death of their process");
    describe_counter!(INTERRUPTED, "Interruptions by a cause outside of the code of a fiber, such as its database");
    describe_counter!(PARKED, "Fibers that have stopped until a person or a deploy repairs them");
    describe_counter!(ENDED, "Fibers that have ended");
    describe_counter!(UNREAD, "Messages that fibers had not received when they ended");
    describe_counter!(RETRIED, "Attempts of steps that have failed and are followed by another one");
    describe_histogram!(STEP, Unit::Seconds, "Time from the begin of a step to its stored checkpoint");
    describe_histogram!(STORED, Unit::Seconds, "Time in which the store has stored a checkpoint");
    describe_gauge!(FIBERS, "Fibers in the database that have not ended");
    describe_gauge!(LIVE, "Fibers whose code is in the memory of this process");
    describe_gauge!(OLDEST_READY, Unit::Seconds, "Age of the oldest fiber that is ready and claimed by no worker");
}

/// Counts an event of a fiber.
pub(super) fn event(event: &Event) {
    let (function, kind) = (&*event.name, &event.kind);
    let of = |metric: &'static str| counter!(metric, "function" => function.to_owned()).increment(1);
    let ended = |outcome: &'static str| counter!(ENDED, "function" => function.to_owned(), "outcome" => outcome).increment(1);
    match kind {
        EventKind::Spawned => of(SPAWNED),
        EventKind::Started { resuming } => {
            let resumed = if *resuming { "true" } else { "false" };
            counter!(STARTED, "function" => function.to_owned(), "resumed" => resumed).increment(1);
        }
        EventKind::Recovered { .. } => of(RECOVERED),
        EventKind::Interrupted { .. } => of(INTERRUPTED),
        EventKind::Parked { .. } => of(PARKED),
        EventKind::StepRetried { step, .. } => {
            counter!(RETRIED, "function" => function.to_owned(), "step" => step.clone()).increment(1);
        }
        EventKind::Completed => ended("completed"),
        EventKind::Failed { .. } => ended("failed"),
        EventKind::Cancelled { .. } => ended("cancelled"),
        EventKind::Unread { topics } => {
            let messages = topics.iter().map(|topic| topic.messages).sum();
            counter!(UNREAD, "function" => function.to_owned()).increment(messages);
        }
        EventKind::StepStarted { .. } | EventKind::StepFinished { .. } | EventKind::Stashed | EventKind::Waiting | EventKind::Woken => {}
    }
}

/// Records how long a step has taken.
pub(crate) fn step(function: &'static str, step: &'static str, took: Duration) {
    histogram!(STEP, "function" => function, "step" => step).record(took);
}

/// Records how long the store has taken for a checkpoint.
pub(crate) fn stored(took: Duration) {
    histogram!(STORED).record(took);
}
