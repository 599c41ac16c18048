//! What values of a function may be, as far as its code has come there: what it receives on a
//! topic, what an effect gives.
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Whether a text is such a value; `Err` says why not.
pub(crate) type Check = fn(&str) -> Result<(), String>;

/// The checks of the functions of this process, by function and place.
///
/// The types are inferred, so they are known only once the code runs. What no fiber of this process
/// has come to is let through, and checked when it is read.
#[derive(Debug, Default)]
pub(crate) struct Kinds {
    checks: Mutex<BTreeMap<(&'static str, &'static str), Vec<Check>>>,
}

impl Kinds {
    /// Remembers what a function takes at a place; one that takes several types there takes any of
    /// them.
    pub(crate) fn takes(&self, function: &'static str, place: &'static str, check: Check) {
        let mut checks = self.checks.lock().unwrap_or_else(PoisonError::into_inner);
        let known = checks.entry((function, place)).or_default();
        if !known.iter().any(|there| std::ptr::fn_addr_eq(*there, check)) {
            known.push(check);
        }
    }

    /// Whether a function takes a text at a place; `Err` says why not.
    pub(crate) fn check(&self, function: &str, place: &str, text: &str) -> Result<(), String> {
        let checks = self.checks.lock().unwrap_or_else(PoisonError::into_inner);
        let known: Vec<Check> = checks.iter().filter(|((f, p), _)| *f == function && *p == place).flat_map(|(_, c)| c.clone()).collect();
        drop(checks);
        let mut first = None;
        for check in known {
            match check(text) {
                Ok(()) => return Ok(()),
                Err(why) => first = first.or(Some(why)),
            }
        }
        first.map_or(Ok(()), Err)
    }
}
