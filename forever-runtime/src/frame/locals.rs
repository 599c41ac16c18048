//! The locals of a snapshot, as generated code reads and writes them.
use std::collections::BTreeMap;
use std::sync::Arc;

use tracing::warn;

use crate::exact::Unread;
use crate::exact::logs::StoredLogs;
use crate::frame::saved::{Saved, checked, unreadable};
use crate::frame::snapshot::push_json_string;
use crate::frame::tracker::{SnapshotRefs, SnapshotTracker};

/// Reads a value from its text and the items of the logs to which it refers.
pub(super) type Restore<T> = fn(&str, Option<&StoredLogs>) -> Result<(T, Option<Unread>), String>;

/// What the stored values have that their types do not read, by the name of the local.
pub(crate) type UnreadKeys = BTreeMap<String, Arc<Unread>>;

/// The values of a snapshot that are still to be restored.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Locals {
    /// Empty for the arguments of a fiber that starts.
    pub(crate) step: &'static str,
    pub(crate) values: BTreeMap<String, Box<serde_json::value::RawValue>>,
    /// Items of the logs to which the values refer.
    pub(crate) logs: Arc<StoredLogs>,
    pub(crate) on_renamed_field: OnRenamedField,
    pub(crate) unread: UnreadKeys,
}

/// What happens to a fiber with a stored value that has a key which its type does not read, while
/// one of the keys that it has is not stored:
/// [`Builder::on_renamed_field`](crate::Builder::on_renamed_field).
///
/// Serde then takes the default of the field, or `None`. Where the field was renamed, its value
/// would be lost.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::Forever;
/// use forever::layout::OnRenamedField;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// // This release takes one field away and adds another.
/// let forever = Forever::builder().in_memory().on_renamed_field(OnRenamedField::Warn).open().await?;
/// # forever.close().await
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnRenamedField {
    /// It is parked, with both keys in the reason.
    #[default]
    Park,
    /// It runs, and both keys are logged.
    Warn,
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
        let step = self.step;
        let what = || match step {
            "" => format!("argument `{name}`"),
            step => format!("local `{name}` saved at step `{step}`"),
        };
        let (value, unread) = restore(text.get(), Some(&self.logs)).map_err(|why| {
            let migrate = if step.is_empty() { "" } else { ", or change it in the snapshot with `migrate`" };
            Unreadable(format!("{} {}; let the type read it{migrate}", what(), unreadable::<T>(why)))
        })?;
        if let Some(unread) = unread {
            match (unread.renamed(), self.on_renamed_field) {
                (Some(why), OnRenamedField::Park) => return Err(Unreadable(renamed(&what(), why))),
                (Some(why), OnRenamedField::Warn) => warn!("{}: {why}: if a field was renamed, it has lost its value", what()),
                (None, _) => {}
            }
            self.unread.insert(name.to_owned(), Arc::new(unread));
        }
        Ok(Some(value))
    }
}

/// Why a value is not read of which a field seems to be renamed.
fn renamed(what: &str, why: &crate::exact::Error) -> String {
    format!(
        "{what} may have a field that was renamed, and would lose its value: {why}; read it under both names with `#[serde(alias = \"..\")]`, \
         or, if they are two fields, allow it with `Builder::on_renamed_field(OnRenamedField::Warn)`"
    )
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
    pub(super) unread: &'a UnreadKeys,
}

impl Apart<'_> {
    /// The text of a local, with what was stored of it and not read.
    fn written_back(&self, name: &str, text: String) -> String {
        let Some(unread) = self.unread.get(name) else { return text };
        match unread.write_back(&text) {
            Ok((whole, true)) => whole,
            Ok((whole, false)) => {
                warn!(local = name, "keys that this code does not read are dropped with an item of a list that it has changed");
                whole
            }
            Err(error) => {
                warn!(local = name, %error, "keys that this code does not read are dropped");
                text
            }
        }
    }
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
                if is_mut && apart.kept.logs.is_range_in_doubt && !value.is_range_with_its_end() {
                    Err(RANGE_IN_DOUBT.to_owned())
                } else {
                    text
                }
            }
            None => value.save(),
        };
        match checked(value, text) {
            Ok(text) => {
                let text = match &self.apart {
                    Some(apart) => apart.written_back(name, text),
                    None => text,
                };
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
