//! Counts, from the library's log, how often another worker was faster.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// What the library logs when the store refuses a claim.
const REFUSED: &str = "the claim of a fiber was refused";

/// How many claims the store has refused in this process.
#[derive(Debug, Clone, Default)]
pub(super) struct Refusals(Arc<AtomicU64>);

impl Refusals {
    /// Counts from now on.
    pub(super) fn count() -> anyhow::Result<Self> {
        let refusals = Refusals::default();
        tracing::subscriber::set_global_default(refusals.clone())?;
        Ok(refusals)
    }

    pub(super) fn so_far(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Whether the text of an event is [`REFUSED`].
struct IsRefused(bool);

impl Visit for IsRefused {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0 |= field.name() == "message" && format!("{value:?}") == REFUSED;
    }
}

impl Subscriber for Refusals {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().ends_with("::activation")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut is_refused = IsRefused(false);
        event.record(&mut is_refused);
        self.0.fetch_add(u64::from(is_refused.0), Ordering::Relaxed);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
