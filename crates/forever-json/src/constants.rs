//! Constants: texts and bytes that live as long as the process, as which a `&'static str` of an
//! earlier process is restored.
//!
//! Each is kept once, however often it is read, so memory is bounded by the constants of the
//! program.
use std::collections::HashSet;
use std::hash::Hash;
use std::sync::{LazyLock, Mutex, PoisonError};

type Known<T> = LazyLock<Mutex<HashSet<&'static T>>>;

static TEXTS: Known<str> = LazyLock::new(Mutex::default);
static BYTES: Known<[u8]> = LazyLock::new(Mutex::default);

pub(super) fn text(text: &str) -> &'static str {
    known(&TEXTS, text, || Box::leak(text.into()))
}

pub(super) fn bytes(bytes: &[u8]) -> &'static [u8] {
    known(&BYTES, bytes, || Box::leak(bytes.into()))
}

#[cfg(test)]
pub(super) fn has(text: &str) -> bool {
    TEXTS.lock().unwrap_or_else(PoisonError::into_inner).contains(text)
}

fn known<T: Eq + Hash + ?Sized>(all: &Known<T>, value: &T, make: impl FnOnce() -> &'static T) -> &'static T {
    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(constant) = all.get(value) {
        return constant;
    }
    let constant = make();
    all.insert(constant);
    constant
}
