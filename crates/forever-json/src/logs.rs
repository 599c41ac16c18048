//! Append-only lists inside a text: `{"$log":N,"len":L}` stands for the first `L` items of the list
//! `N`, whose texts are kept beside it, so that an item is written once however often the list is.
//!
//! A list (`Log<T>`) comes here through serde, which knows nothing of this: to any other serializer
//! it is a newtype around an ordinary sequence. A writer that keeps lists apart knows the newtype
//! by its name and leaves a note for the list, which answers with the texts of its new items
//! instead of writing all of them. The note is thread-local and lies there for no longer than the
//! call between the two. Where a type puts the list through a buffer of serde's there is no answer,
//! and the list is written as a sequence.
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use super::error::Error;
use super::ser;

/// How a list presents itself to any serializer or deserializer.
pub const LOG: &str = "$forever::private::Log";

/// The beginning of what stands for a list in a text.
pub const PLACEHOLDER: &str = "{\"$log\":";

/// One list in memory: no other one in this process has the same number, not even its clone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instance(u64);

impl Instance {
    /// The number of a list that was just made.
    #[expect(clippy::new_without_default, reason = "no two are equal, so none is the default")]
    pub fn new() -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        Instance(MADE.fetch_add(1, Ordering::Relaxed))
    }
}

/// The lists that texts of one run name, and their items that are not stored yet.
#[derive(Debug, Default)]
pub struct Logs {
    /// Lists that have a number, and how many of their items have been handed over.
    known: BTreeMap<Instance, Known>,
    /// The first number that no list has.
    free: u64,
    new: Vec<LogItem>,
    /// Numbers under which something is stored.
    stored: BTreeSet<u64>,
    /// The lists named since this was last taken.
    pub named: BTreeSet<u64>,
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
    /// For a run that resumes: `used` are the numbers that its snapshot names or under which
    /// something is stored.
    pub fn resumed(used: impl Iterator<Item = u64>, stored: impl Iterator<Item = u64>) -> Self {
        let stored: BTreeSet<u64> = stored.collect();
        let free = used.chain(stored.last().copied()).max().map_or(0, |n| n.saturating_add(1));
        Logs { free, stored, ..Logs::default() }
    }

    /// Takes over the lists that were read from the snapshot, so that only what is pushed from now
    /// on is new.
    pub fn adopt(&mut self, read: Vec<Read>) {
        for Read { instance, number, len } in read {
            // Two places of one text cannot both continue the same list: the second begins one of
            // its own.
            if self.known.values().all(|known| known.number != number) {
                self.known.insert(instance, Known { number, len });
            }
        }
    }

    /// Hands over what is new in a list; gives the text that stands for it.
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

    /// What a checkpoint that names these lists has to store, and which lists it leaves behind.
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

    /// The lists that were read since this was last asked.
    pub fn take_read(&self) -> Vec<Read> {
        std::mem::take(&mut *self.read.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How many lists were read so far, for [`StoredLogs::forget_since`].
    pub(super) fn mark(&self) -> usize {
        self.read.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Forgets the lists of a reading that failed and begins again.
    pub(super) fn forget_since(&self, mark: usize) {
        self.read.lock().unwrap_or_else(PoisonError::into_inner).truncate(mark);
        NOTE.take();
    }

    /// Leaves a note for a list that has just been read: whose items it has.
    pub(super) fn leave(&self, number: u64, len: usize) {
        let instance = Instance::new();
        self.read.lock().unwrap_or_else(PoisonError::into_inner).push(Read { instance, number, len });
        NOTE.set(Some(Note::Read(instance)));
    }
}

enum Note {
    /// To a list: hand over what is new. With how deep the text around it nests.
    Asked(Logs, usize),
    /// From a list: the text that stands for it.
    Answered(Logs, Result<String, Error>),
    /// To a list: it is this one.
    Read(Instance),
}

thread_local! {
    static NOTE: Cell<Option<Note>> = const { Cell::new(None) };
}

/// Asks a list, while `write` writes it, to hand over what is new; gives the text that stands for
/// it, or nothing if `write` has written it whole.
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

/// Whether a list that is being written has handed over what is new, and need not write its items.
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

/// Which list has just been read; a new one if it did not come from a snapshot.
pub fn just_read() -> Instance {
    match NOTE.take() {
        Some(Note::Read(instance)) => instance,
        note => {
            NOTE.set(note);
            Instance::new()
        }
    }
}
