//! Append-only lists inside a text: `{"$log":N,"len":L}` refers to the first `L` items of the list
//! `N`, whose texts are stored beside it. So an item is written once, however often the list is.
//!
//! A list (`Log<T>`) arrives through serde, which knows nothing of this: for any other serializer
//! it is a newtype around an ordinary sequence. A writer that stores lists apart knows the newtype
//! by its name and leaves a note for the list. The list answers with the texts of its new items
//! instead of writing all of them. The note is thread-local and exists only for the call between
//! the two. If a type passes the list through one of serde's buffers, there is no answer, and the
//! list is written as a sequence.
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use super::error::Error;
use super::ser;

/// Name of a list for serializers and deserializers.
pub const LOG: &str = "$forever::private::Log";

/// Start of a reference to a list.
pub const PLACEHOLDER: &str = "{\"$log\":";

/// Identity of one list in memory: unique in this process, also among clones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instance(u64);

impl Instance {
    /// The identity of a new list.
    #[expect(clippy::new_without_default, reason = "no two are equal, so none is the default")]
    pub fn new() -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        Instance(MADE.fetch_add(1, Ordering::Relaxed))
    }
}

/// The lists of one run, and their items that are not stored yet.
#[derive(Debug, Default)]
pub struct Logs {
    /// Lists that have a number, with the count of their items that were handed over.
    known: BTreeMap<Instance, Known>,
    /// The first unused number.
    free: u64,
    new: Vec<LogItem>,
    /// Numbers under which items are stored.
    stored: BTreeSet<u64>,
    /// Lists referred to since this was last taken.
    pub named: BTreeSet<u64>,
    /// Whether the last text has an inclusive range whose start is its end: it has one more item or
    /// none, and serde does not write which.
    pub is_range_in_doubt: bool,
}

#[derive(Debug)]
struct Known {
    number: u64,
    len: usize,
}

/// New item of an append-only log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogItem {
    /// Number of the log, within its fiber.
    pub log: u64,
    /// Place of the item in the log, from 0.
    pub n: u64,
    /// Text of the item, JSON.
    pub text: String,
}

impl Logs {
    /// For a run that resumes: `used` are the numbers that its snapshot refers to or under which
    /// items are stored.
    pub fn resumed(used: impl Iterator<Item = u64>, stored: impl Iterator<Item = u64>) -> Self {
        let stored: BTreeSet<u64> = stored.collect();
        let free = used.chain(stored.last().copied()).max().map_or(0, |n| n.saturating_add(1));
        Logs { free, stored, ..Logs::default() }
    }

    /// Takes over the lists read from the snapshot, so that only items pushed from now on are new.
    pub fn adopt(&mut self, read: Vec<Read>) {
        for Read { instance, number, len } in read {
            // Two places in a text cannot both continue the same list: the second starts a new one.
            if self.known.values().all(|known| known.number != number) {
                self.known.insert(instance, Known { number, len });
            }
        }
    }

    /// Hands over the new items of a list; returns the reference to it.
    fn name<T: Serialize>(&mut self, instance: Instance, items: &[T], depth: usize) -> Result<String, Error> {
        let free = &mut self.free;
        let known = self.known.entry(instance).or_insert_with(|| {
            *free += 1;
            Known { number: *free - 1, len: 0 }
        });
        for (n, item) in items.iter().enumerate().skip(known.len) {
            let text = ser::write_within(item, depth).map_err(|error| error.in_item(n))?;
            self.new.push(LogItem { log: known.number, n: n as u64, text });
        }
        known.len = items.len();
        self.named.insert(known.number);
        Ok(format!("{PLACEHOLDER}{},\"len\":{}}}", known.number, known.len))
    }

    /// The items that a checkpoint with these lists has to store, and the lists that it removes.
    pub fn commit(&mut self, named: &BTreeSet<u64>) -> (Vec<LogItem>, Vec<u64>) {
        let mut new = std::mem::take(&mut self.new);
        new.retain(|item| named.contains(&item.log));
        let gone = self.stored.difference(named).copied().collect();
        self.stored.retain(|number| named.contains(number));
        self.stored.extend(new.iter().map(|item| item.log));
        self.known.retain(|_, known| named.contains(&known.number));
        (new, gone)
    }
}

/// The stored items of a snapshot's lists, for reading them.
#[derive(Debug, Default)]
pub struct StoredLogs {
    /// By number, in order from the first.
    items: BTreeMap<u64, Vec<Arc<str>>>,
    read: Mutex<Vec<Read>>,
}

/// A list that was read from a snapshot.
#[derive(Debug)]
pub struct Read {
    instance: Instance,
    number: u64,
    len: usize,
}

impl StoredLogs {
    /// The items of each list by its number, in order from the first.
    pub fn new(items: BTreeMap<u64, Vec<Arc<str>>>) -> Self {
        StoredLogs { items, read: Mutex::default() }
    }

    /// The first `len` items of a list.
    pub(crate) fn items(&self, number: u64, len: usize) -> Result<&[Arc<str>], Error> {
        let items = self.items.get(&number).map(Vec::as_slice).unwrap_or_default();
        items.get(..len).ok_or_else(|| Error::new(format_args!("of the {len} items of log {number} only {} are stored", items.len())))
    }

    /// The lists read since the last call.
    pub fn take_read(&self) -> Vec<Read> {
        std::mem::take(&mut *self.read.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Number of lists read so far, for [`StoredLogs::forget_since`].
    pub(super) fn mark(&self) -> usize {
        self.read.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Forgets the lists of a reading that failed and starts again.
    pub(super) fn forget_since(&self, mark: usize) {
        self.read.lock().unwrap_or_else(PoisonError::into_inner).truncate(mark);
        NOTE.take();
    }

    /// Leaves a note for a list that has just been read: the items that it has.
    pub(super) fn leave(&self, number: u64, len: usize) {
        let instance = Instance::new();
        self.read.lock().unwrap_or_else(PoisonError::into_inner).push(Read { instance, number, len });
        NOTE.set(Some(Note::Read(instance)));
    }
}

enum Note {
    /// To a list: hand over the new items. With the nesting of the text around it.
    Asked(Logs, usize),
    /// From a list: the reference to it.
    Answered(Logs, Result<String, Error>),
    /// To a list: its identity.
    Read(Instance),
}

thread_local! {
    static NOTE: Cell<Option<Note>> = const { Cell::new(None) };
}

/// Asks a list, while `write` writes it, to hand over its new items. Returns the reference to it,
/// or `None` if `write` has written it whole.
pub(super) fn ask(logs: &mut Logs, depth: usize, write: impl FnOnce() -> Result<(), Error>) -> Result<Option<String>, Error> {
    NOTE.set(Some(Note::Asked(std::mem::take(logs), depth)));
    let written = write();
    let answer = match NOTE.take() {
        Some(Note::Asked(back, _)) => {
            *logs = back;
            None
        }
        Some(Note::Answered(back, answer)) => {
            *logs = back;
            Some(answer)
        }
        _ => return Err(Error::new("a list was written while another was")),
    };
    written?;
    answer.transpose()
}

/// Whether a list that is being written has handed over its new items, and must not write its
/// items.
pub fn handed_over<T: Serialize>(instance: Instance, items: &[T]) -> bool {
    match NOTE.take() {
        Some(Note::Asked(mut logs, depth)) => {
            let answer = logs.name(instance, items, depth + 1);
            NOTE.set(Some(Note::Answered(logs, answer)));
            true
        }
        note => {
            NOTE.set(note);
            false
        }
    }
}

/// Identity of the list that was just read; a new one if it did not come from a snapshot.
pub fn just_read() -> Instance {
    match NOTE.take() {
        Some(Note::Read(instance)) => instance,
        note => {
            NOTE.set(note);
            Instance::new()
        }
    }
}
