//! Places of rows: where the newest version of a snapshot is in its table.
//!
//! A checkpoint that knows the place reads that row alone. Through the index it would read every old
//! version that is not cleaned up yet, and there are as many of them as checkpoints while any
//! transaction of the database stays open. A place is a hint: the row there has to have the fiber,
//! the epoch and the number that are expected.
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use forever_store::Seq;

/// Most places that are kept.
const MOST: usize = 100_000;

#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<HashMap<Seq, String>>);

impl Places {
    fn lock(&self) -> MutexGuard<'_, HashMap<Seq, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The place of a fiber's snapshot, which a write is about to change.
    pub(crate) fn take(&self, fiber: Seq) -> Option<String> {
        self.lock().remove(&fiber)
    }

    pub(crate) fn keep(&self, fiber: Seq, place: String) {
        let mut places = self.lock();
        if places.len() >= MOST {
            places.clear();
        }
        places.insert(fiber, place);
    }

    pub(crate) fn forget(&self, fiber: Seq) {
        self.lock().remove(&fiber);
    }
}
