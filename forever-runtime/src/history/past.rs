//! Reads a history: its items, and the snapshot at each.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::item::{Change, Item, NewText, NewTexts, Origin};
use crate::frame::snapshot::Snapshot;
use crate::frame::tracker::{depth_and_name, local_name};
use crate::store::{Epoch, StreamBatch};

/// One kept checkpoint of a fiber, or what a person has made of it.
///
/// ```
/// # use forever_runtime as forever;
/// # async fn show(forever: &forever::Forever) -> forever::Result<()> {
/// for entry in forever.history("order-17").await? {
///     println!("{} {} after {:?}", entry.number, entry.at, entry.took);
///     println!("   changed: {}", entry.changed.join(", "));
/// }
/// // The locals behind the third checkpoint.
/// let frames = forever.locals_at("order-17", 3).await?;
/// # let _ = frames;
/// # Ok(())
/// # }
/// ```
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
    /// What a person has made of the fiber, if it is no checkpoint. Then `number` is that of the
    /// checkpoint that it stands behind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<HistoryOrigin>,
}

/// What a person has made of a fiber.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::fiber::{HistoryEntry, HistoryOrigin};
///
/// fn made_by(entry: &HistoryEntry) -> Option<String> {
///     match entry.origin.as_ref()? {
///         HistoryOrigin::Edit { by, changes, .. } => {
///             let (by, values) = (by.as_deref().unwrap_or("a person"), changes.len());
///             Some(format!("{by} has changed {values} values"))
///         }
///         HistoryOrigin::Fork { of, .. } => Some(format!("a fork of {of}")),
///         HistoryOrigin::Import { of, .. } => Some(format!("an import of {of}")),
///         _ => None,
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HistoryOrigin {
    /// Locals or arguments were changed by [`Forever::edit`](crate::Forever::edit).
    #[non_exhaustive]
    Edit {
        /// Who has changed them, if that was said.
        by: Option<String>,
        /// What was changed.
        changes: Vec<ChangedValue>,
    },
    /// The fiber was made by [`Forever::fork`](crate::Forever::fork).
    #[non_exhaustive]
    Fork {
        /// Id of the fiber that it was forked from.
        of: String,
        /// Number of the checkpoint that it has begun behind.
        checkpoint: u64,
    },
    /// The fiber was made by [`Forever::import`](crate::Forever::import).
    #[non_exhaustive]
    Import {
        /// Id that it had.
        of: String,
        /// Time of the export, in milliseconds since 1970.
        exported_ms: i64,
    },
}

/// A value that was changed by a person.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::fiber::ChangedValue;
///
/// fn describe(change: &ChangedValue) -> String {
///     match (&change.before, &change.after) {
///         _ if change.is_secret => format!("{} (secret)", change.name),
///         (Some(before), Some(after)) => format!("{}: {before} to {after}", change.name),
///         _ => change.name.clone(),
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ChangedValue {
    /// Name.
    pub name: String,
    /// Value before; `None` if there was none, and where it is secret.
    pub before: Option<Value>,
    /// Value after; `None` where it is secret.
    pub after: Option<Value>,
    /// Whether it is marked `#[secret]`.
    pub is_secret: bool,
}

impl From<Origin> for HistoryOrigin {
    fn from(origin: Origin) -> Self {
        match origin {
            Origin::Edit { by, changes } => HistoryOrigin::Edit { by, changes: changes.into_iter().map(changed).collect() },
            Origin::Fork { of, checkpoint } => HistoryOrigin::Fork { of, checkpoint },
            Origin::Import { of, exported_ms } => HistoryOrigin::Import { of, exported_ms },
        }
    }
}

fn changed((name, change): (String, Option<Change>)) -> ChangedValue {
    let value = |text: &RawValue| serde_json::from_str(text.get()).unwrap_or(Value::Null);
    let is_secret = change.is_none();
    let (before, after) = change.map(|change| (change.before.as_deref().map(value), value(&change.after))).unzip();
    ChangedValue { name, before: before.flatten(), after, is_secret }
}

/// A fiber as it stood behind a checkpoint, with the layout of its outermost function.
#[derive(Debug)]
pub(crate) struct PastAt {
    pub(crate) stood: Stood,
    pub(crate) layout: Option<String>,
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
                values.entry(local_name(depth, name).into_owned()).or_insert_with(|| text.get().to_owned());
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
    /// Hash of the layout of the outermost function, where it is known.
    pub(crate) layout: Option<String>,
    /// What the first item says, if it is no checkpoint.
    pub(crate) origin: Option<Origin>,
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
        if let Some(Origin::Fork { .. } | Origin::Import { .. }) = &item.origin {
            self.origin.clone_from(&item.origin);
        }
        let is_checkpoint = item.origin.is_none();
        let changed = if let Some(snapshot) = item.snapshot {
            self.layout = item.layout;
            let mut new = Stood { snapshot, parts: BTreeMap::new() };
            new.set_parts(item.parts)?;
            let before = self.stood.as_ref().map(Stood::values).unwrap_or_default();
            let changed = differences(&before, &new.values());
            self.stood = Some(new);
            changed
        } else {
            // Items before the first whole one are what is left of deleted ones.
            let Some(stood) = self.stood.as_mut().filter(|_| is_checkpoint) else {
                self.push_origin(item);
                return Ok(());
            };
            let new = item.set.0.iter().chain(&item.parts.0).map(|(name, _)| name);
            let names: BTreeSet<String> = new.chain(&item.gone).cloned().collect();
            stood.set_parts(item.parts)?;
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
            origin: item.origin.map(HistoryOrigin::from),
        });
        self.epoch = epoch;
        Ok(())
    }

    /// Adds an item that has no values of a snapshot: the arguments were changed before the first
    /// checkpoint.
    fn push_origin(&mut self, item: Item) {
        let Some(origin) = item.origin else { return };
        self.entries.push(HistoryEntry {
            number: item.n,
            at: item.at,
            stored_ms: item.ms,
            took: Duration::ZERO,
            failed_attempts: 0,
            error: None,
            is_resumed: false,
            changed: Vec::new(),
            origin: Some(origin.into()),
        });
    }
}

/// The same items, each with whole values: what is exported can be read also after a program has
/// written its values with other spaces. Those that cannot be read, as what they build on was
/// deleted, are left out. `Err` names what is damaged.
pub(crate) fn with_whole_values(items: &[String]) -> Result<Vec<String>, String> {
    let mut past = Past::default();
    let mut whole = Vec::new();
    for (at, line) in items.iter().enumerate() {
        let unreadable = |why: serde_json::Error| format!("item {at} of its history cannot be read: {why}");
        let item: Item = serde_json::from_str(line).map_err(unreadable)?;
        let read = past.entries.len();
        let spliced = [item.set.has_pieces().then(|| item.set.names()), item.parts.has_pieces().then(|| item.parts.names())];
        past.add(item).map_err(|why| format!("item {at} of its history {why}"))?;
        if past.entries.len() == read {
            continue;
        }
        let mut fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(line).map_err(unreadable)?;
        for (field, names) in ["set", "parts"].into_iter().zip(spliced) {
            let (Some(names), Some(stood)) = (names, &mut past.stood) else { continue };
            let mut values = BTreeMap::new();
            for name in names {
                let value = if field == "set" { stood.local(&name) } else { stood.part(&name) };
                values.insert(name, value.ok_or_else(|| format!("item {at} of its history {NO_TEXT}"))?);
            }
            fields.insert(field.to_owned(), to_raw_value(&values).map_err(unreadable)?);
        }
        whole.push(serde_json::to_string(&fields).map_err(unreadable)?);
    }
    Ok(whole)
}

const NO_TEXT: &str = "changes a piece of a value that there is not";

/// Names of which the two have different values.
fn differences(one: &BTreeMap<String, String>, other: &BTreeMap<String, String>) -> Vec<String> {
    let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    names.into_iter().filter(|name| one.get(*name) != other.get(*name)).cloned().collect()
}

impl Stood {
    fn set_parts(&mut self, texts: NewTexts) -> Result<(), &'static str> {
        for (name, text) in texts.0 {
            let text = match text {
                NewText::Whole(text) => text.get().into(),
                NewText::Spliced(splice) => self.parts.get(&name).and_then(|old| splice.apply(old)).ok_or(NO_TEXT)?.into(),
            };
            self.parts.insert(name, text);
        }
        Ok(())
    }

    fn change(&mut self, at: &str, set: NewTexts, gone: &[String]) -> Result<(), &'static str> {
        for (name, text) in set.0 {
            let (depth, name) = depth_and_name(&name);
            let locals = &mut self.frame(depth)?.locals;
            let value = match text {
                NewText::Whole(value) => value,
                NewText::Spliced(splice) => {
                    let text = locals.get(name).and_then(|old| splice.apply(old.get())).ok_or(NO_TEXT)?;
                    RawValue::from_string(text).map_err(|_| NO_TEXT)?
                }
            };
            locals.insert(name.to_owned(), value);
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

    /// A local by its name in an item.
    fn local(&mut self, name: &str) -> Option<Box<RawValue>> {
        let (depth, name) = depth_and_name(name);
        self.frame(depth).ok()?.locals.get(name).cloned()
    }

    fn part(&self, name: &str) -> Option<Box<RawValue>> {
        RawValue::from_string(self.parts.get(name)?.to_string()).ok()
    }

    fn frame(&mut self, depth: usize) -> Result<&mut Snapshot, &'static str> {
        let mut frame = &mut self.snapshot;
        for _ in 0..depth {
            frame = frame.call.as_deref_mut().ok_or("names a function that is not called")?;
        }
        Ok(frame)
    }
}
