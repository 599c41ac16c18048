//! Reads a history: its items, and the snapshot at each.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;

use super::item::{Item, depth_and_name, local_name};
use crate::frame::snapshot::Snapshot;
use crate::store::{Epoch, StreamBatch};

/// One kept checkpoint of a fiber.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HistoryEntry {
    /// Number of the checkpoint, from 1. A fiber that is restarted from the start counts on.
    pub number: u64,
    /// Name of the cut point that was passed, of the innermost function.
    pub at: String,
    /// Time of the checkpoint, in milliseconds since 1970.
    pub stored_ms: i64,
    /// Time since the checkpoint before, or since the activation began.
    pub took: Duration,
    /// Failed attempts of the step before the one that succeeded.
    pub failed_attempts: u32,
    /// The last error of these.
    pub error: Option<String>,
    /// Whether it is the first of an activation: the fiber was spawned, woken, restarted or taken
    /// over before it.
    pub is_resumed: bool,
    /// Names of the locals that are new, changed or no longer kept. Those of a function that is
    /// called by `call!` have the depth of the call before their name: `1:total`.
    pub changed: Vec<String>,
}

/// A fiber as it stood behind one of its checkpoints.
#[derive(Debug, Clone)]
pub(crate) struct Stood {
    pub(crate) snapshot: Snapshot,
    pub(crate) parts: BTreeMap<String, Arc<str>>,
}

impl Stood {
    /// Texts of all locals, and of all parts.
    fn values(&self) -> BTreeMap<String, String> {
        let mut values: BTreeMap<_, _> = self.parts.iter().map(|(name, text)| (name.clone(), text.to_string())).collect();
        let (mut next, mut depth) = (Some(&self.snapshot), 0);
        while let Some(frame) = next {
            for (name, text) in &frame.locals {
                // What stands for a part is the same whatever the part is.
                values.entry(local_name(depth, name)).or_insert_with(|| text.get().to_owned());
            }
            next = frame.call.as_deref();
            depth += 1;
        }
        values
    }
}

/// A history that was read, up to one of its checkpoints.
#[derive(Debug, Default)]
pub(crate) struct Past {
    pub(crate) entries: Vec<HistoryEntry>,
    pub(crate) stood: Option<Stood>,
    epoch: Option<Epoch>,
}

impl Past {
    /// Reads the items up to checkpoint `number`. `Err` names what cannot be read.
    pub(crate) fn read(batches: &[StreamBatch], number: u64) -> Result<Self, String> {
        let mut past = Past::default();
        let lines = batches.iter().flat_map(|batch| (batch.first..).zip(batch.data.lines()));
        for (at, line) in lines {
            let item: Item = serde_json::from_str(line).map_err(|why| format!("item {at} of its history cannot be read: {why}"))?;
            if item.n > number {
                break;
            }
            past.add(item).map_err(|why| format!("item {at} of its history {why}"))?;
        }
        Ok(past)
    }

    fn add(&mut self, item: Item) -> Result<(), &'static str> {
        let parts = |parts: BTreeMap<String, Box<RawValue>>| parts.into_iter().map(|(name, text)| (name, Arc::from(text.get())));
        let changed = if let Some(snapshot) = item.snapshot {
            let new = Stood { snapshot, parts: parts(item.parts).collect() };
            let before = self.stood.as_ref().map(Stood::values).unwrap_or_default();
            let changed = differences(&before, &new.values());
            self.stood = Some(new);
            changed
        } else {
            // Items before the first whole one are what is left of deleted ones.
            let Some(stood) = &mut self.stood else { return Ok(()) };
            let names: BTreeSet<String> = item.set.keys().chain(&item.gone).chain(item.parts.keys()).cloned().collect();
            stood.parts.extend(parts(item.parts));
            stood.change(&item.at, item.set, &item.gone)?;
            names.into_iter().collect()
        };
        let epoch = item.epoch.or(self.epoch);
        self.entries.push(HistoryEntry {
            number: item.n,
            at: item.at,
            stored_ms: item.ms,
            took: Duration::from_millis(u64::try_from(item.took).unwrap_or(0)),
            failed_attempts: item.failed,
            error: item.error,
            is_resumed: self.epoch.is_some() && epoch != self.epoch,
            changed,
        });
        self.epoch = epoch;
        Ok(())
    }
}

/// Names of which the two have different values.
fn differences(one: &BTreeMap<String, String>, other: &BTreeMap<String, String>) -> Vec<String> {
    let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    names.into_iter().filter(|name| one.get(*name) != other.get(*name)).cloned().collect()
}

impl Stood {
    fn change(&mut self, at: &str, set: BTreeMap<String, Box<RawValue>>, gone: &[String]) -> Result<(), &'static str> {
        for (name, value) in set {
            let (depth, name) = depth_and_name(&name);
            self.frame(depth)?.locals.insert(name.to_owned(), value);
        }
        for name in gone {
            let (depth, name) = depth_and_name(name);
            self.frame(depth)?.locals.remove(name);
        }
        let mut innermost = &mut self.snapshot;
        while let Some(called) = &mut innermost.call {
            innermost = called;
        }
        at.clone_into(&mut innermost.at);
        Ok(())
    }

    fn frame(&mut self, depth: usize) -> Result<&mut Snapshot, &'static str> {
        let mut frame = &mut self.snapshot;
        for _ in 0..depth {
            frame = frame.call.as_deref_mut().ok_or("names a function that is not called")?;
        }
        Ok(frame)
    }
}
