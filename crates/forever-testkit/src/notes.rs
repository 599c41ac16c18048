//! What was seen of a program under test, whatever becomes of its processes and runtimes.
use std::sync::{Arc, Mutex, PoisonError};

/// A list of texts; clones are the same list.
#[derive(Clone, Default, Debug)]
pub struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    /// Adds a text.
    pub fn note(&self, what: impl Into<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(what.into());
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many begin with `what`.
    #[must_use]
    pub fn count(&self, what: &str) -> usize {
        self.all().iter().filter(|there| there.starts_with(what)).count()
    }
}
