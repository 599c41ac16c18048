//! Work that several callers request and one task does, in rounds: a request during a round leads
//! to another one.
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, PoisonError};

use crate::runtime::sync::{Mutex, MutexGuard};

/// The rounds under way, by what they are for, with whether another one was asked for.
#[derive(Debug)]
pub(crate) struct Rounds<K>(Mutex<HashMap<K, bool>>);

impl<K> Default for Rounds<K> {
    fn default() -> Self {
        Rounds(Mutex::new(HashMap::new()))
    }
}

impl<K: Clone + Eq + Hash> Rounds<K> {
    fn asked(&self) -> MutexGuard<'_, HashMap<K, bool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a round. `None` if one is under way: its task makes another one after it. Otherwise
    /// the caller has to begin it.
    pub(crate) fn ask(self: &Arc<Self>, key: &K) -> Option<Round<K>> {
        let mut asked = self.asked();
        if let Some(more) = asked.get_mut(key) {
            *more = true;
            return None;
        }
        asked.insert(key.clone(), false);
        Some(Round { rounds: Arc::clone(self), key: key.clone(), is_over: false })
    }
}

/// A round under way. If it is dropped, the next that asks begins one.
#[derive(Debug)]
pub(crate) struct Round<K: Clone + Eq + Hash> {
    rounds: Arc<Rounds<K>>,
    key: K,
    is_over: bool,
}

impl<K: Clone + Eq + Hash> Round<K> {
    /// Whether another round was asked for since this one began. If not, there are no more, and
    /// the next that asks begins one: no request is lost between the two.
    pub(crate) fn again(&mut self) -> bool {
        let mut asked = self.rounds.asked();
        let again = asked.get_mut(&self.key).is_some_and(std::mem::take);
        if !again {
            asked.remove(&self.key);
            self.is_over = true;
        }
        again
    }

    /// What the rounds are for.
    pub(crate) fn key(&self) -> &K {
        &self.key
    }
}

impl<K: Clone + Eq + Hash> Drop for Round<K> {
    fn drop(&mut self) {
        if !self.is_over {
            self.rounds.asked().remove(&self.key);
        }
    }
}
