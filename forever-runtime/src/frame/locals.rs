//! The locals of a snapshot, as generated code reads and writes them.
use std::sync::Arc;

use crate::exact::logs::StoredLogs;
use crate::frame::saved::{Saved, checked, unreadable};
use crate::frame::snapshot::push_json_string;
use crate::frame::tracker::{SnapshotRefs, SnapshotTracker};

/// Reads a value from its text and the items of the logs to which it refers.
pub(super) type Restore<T> = fn(&str, Option<&StoredLogs>) -> Result<T, String>;

/// The values of a snapshot that are still to be restored.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Locals {
    /// Empty for the arguments of a fiber that starts.
    pub(crate) step: &'static str,
    pub(crate) values: std::collections::BTreeMap<String, Box<serde_json::value::RawValue>>,
    /// Items of the logs to which the values refer.
    pub(crate) logs: Arc<StoredLogs>,
}

impl Locals {
    /// The value of a local that is in the snapshot.
    pub fn get<T: Saved>(&mut self, name: &str) -> Result<T, Unreadable> {
        self.read(name, T::restore)
    }

    /// The value of a local that only some cut points keep.
    pub fn maybe<T: Saved>(&mut self, name: &str) -> Result<Option<T>, Unreadable> {
        self.read_maybe(name, T::restore)
    }

    pub(super) fn read<T>(&mut self, name: &str, restore: Restore<T>) -> Result<T, Unreadable> {
        self.read_maybe(name, restore)?.ok_or_else(|| match self.step {
            "" => Unreadable(format!("argument `{name}` is not stored")),
            step => Unreadable(format!("local `{name}` is not in the snapshot taken at step `{step}`")),
        })
    }

    pub(super) fn read_maybe<T>(&mut self, name: &str, restore: Restore<T>) -> Result<Option<T>, Unreadable> {
        let Some(text) = self.values.remove(name) else { return Ok(None) };
        match restore(text.get(), Some(&self.logs)) {
            Ok(value) => Ok(Some(value)),
            Err(why) => {
                let why = unreadable::<T>(why);
                Err(Unreadable(match self.step {
                    "" => format!("argument `{name}` {why}; let the type read it"),
                    step => {
                        format!(
                            "local `{name}` saved at step `{step}` {why}; let the type read it, or change it in the snapshot with `migrate`"
                        )
                    }
                }))
            }
        }
    }
}

impl Locals {
    /// The local as one of several constants.
    pub fn one_of<'a>(&mut self, name: &str, texts: &[&'a str]) -> Result<&'a str, Unreadable> {
        let text: String = self.get(name)?;
        self.constant(name, &text, texts)
    }

    /// As [`Locals::one_of`], for a local that only some cut points keep.
    pub fn maybe_one_of<'a>(&mut self, name: &str, texts: &[&'a str]) -> Result<Option<&'a str>, Unreadable> {
        let text: Option<String> = self.maybe(name)?;
        text.map(|text| self.constant(name, &text, texts)).transpose()
    }

    fn constant<'a>(&self, name: &str, text: &str, texts: &[&'a str]) -> Result<&'a str, Unreadable> {
        texts.iter().copied().find(|constant| *constant == text).ok_or_else(|| {
            Unreadable(format!(
                "local `{name}` saved at step `{}` is {text:?}, which is none of the constants that the code gives it",
                self.step
            ))
        })
    }
}

/// A stored value that the code cannot read.
#[doc(hidden)]
#[derive(Debug)]
pub struct Unreadable(pub(crate) String);

/// Writes the locals of a snapshot.
#[doc(hidden)]
#[derive(Debug)]
pub struct Save<'a> {
    pub(super) text: &'a mut String,
    /// Empty for the arguments of a fiber.
    pub(super) step: &'static str,
    pub(super) first: bool,
    pub(super) error: Option<String>,
    /// Target for long texts and the items of logs; `None` for the arguments of a fiber, which are
    /// written once.
    pub(super) apart: Option<Apart<'a>>,
}

#[derive(Debug)]
pub(super) struct Apart<'a> {
    pub(super) kept: &'a mut SnapshotTracker,
    pub(super) named: &'a mut SnapshotRefs,
    pub(super) depth: u32,
}

/// Why a local that may be walked cannot be saved.
const RANGE_IN_DOUBT: &str = "it has an inclusive range whose start is its end, and whether that last item was taken is not saved by serde: walk a half-open range, `1..4` for `1..=3`, or use a `for` loop";

impl Save<'_> {
    pub fn put(&mut self, name: &'static str, value: &dyn Saved) {
        self.write(name, value, false);
    }

    /// As [`Save::put`], for a local that is `mut`.
    pub fn put_mut(&mut self, name: &'static str, value: &dyn Saved) {
        self.write(name, value, true);
    }

    fn write(&mut self, name: &'static str, value: &dyn Saved, is_mut: bool) {
        if self.error.is_some() {
            return;
        }
        let text = match &mut self.apart {
            Some(apart) => {
                let text = value.save_with(&mut apart.kept.logs);
                if is_mut && apart.kept.logs.is_range_in_doubt { Err(RANGE_IN_DOUBT.to_owned()) } else { text }
            }
            None => value.save(),
        };
        match checked(value, text) {
            Ok(text) => {
                if !std::mem::take(&mut self.first) {
                    self.text.push(',');
                }
                push_json_string(self.text, name);
                self.text.push(':');
                let part = self.apart.as_mut().and_then(|apart| apart.kept.part(apart.depth, name, &text, apart.named));
                self.text.push_str(&part.unwrap_or(text));
            }
            Err(why) => {
                self.error = Some(match self.step {
                    "" => format!("argument `{name}` cannot be saved: {why}"),
                    step => format!("local `{name}` cannot be saved at step `{step}`: {why}"),
                });
            }
        }
    }
}
