//! Types of values at places in a function, as far as they are known: the messages on a topic, the
//! result of an effect.
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Checks that a text is a value of a type.
pub(crate) type Check = fn(&str) -> Result<(), String>;

/// The checks of the functions of this process, by function and place.
///
/// The types are inferred, so they are known only once the code has run. A value for a place that
/// no fiber of this process has reached is accepted, and checked when it is read.
#[derive(Debug, Default)]
pub(crate) struct Kinds {
    checks: Mutex<BTreeMap<(&'static str, &'static str), Vec<Check>>>,
}

impl Kinds {
    /// Registers the type of a place in a function. Of several types, any is accepted.
    pub(crate) fn takes(&self, function: &'static str, place: &'static str, check: Check) {
        let mut checks = self.checks.lock().unwrap_or_else(PoisonError::into_inner);
        let known = checks.entry((function, place)).or_default();
        if !known.iter().any(|there| std::ptr::fn_addr_eq(*there, check)) {
            known.push(check);
        }
    }

    /// Checks a text for a place in a function.
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
