//! Checks a history that the database has written, without the library: it is a path of the model
//! of `crates/forever-postgres/tests/protocol`, so each step of each fiber was completed once, under
//! the newest claim; and all fibers have completed, with the same steps.
use std::collections::{BTreeMap, BTreeSet};

use super::trace::Trace;

/// What a history has shown.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Checked {
    pub(crate) fibers: usize,
    pub(crate) completions: u64,
    pub(crate) claims: u64,
    /// Workers that have claimed a fiber after its begin.
    pub(crate) workers: usize,
    pub(crate) faults: Vec<String>,
}

/// Checks a history: the lines of [`forever_testkit::history`].
pub(crate) fn check(history: &str) -> Checked {
    let (mut checked, mut trace) = (Checked::default(), Trace::default());
    let mut workers = BTreeSet::new();
    for line in history.lines() {
        checked.faults.extend(trace.replay(line).err());
        let mut words = line.split(' ').skip(1);
        match words.next() {
            Some("checkpoint") => checked.completions += 1,
            Some("claimed") => {
                checked.claims += 1;
                workers.extend(words.nth(2));
            }
            Some("failed" | "cancelled") => checked.faults.push(format!("a fiber did not complete: {line}")),
            _ => {}
        }
    }
    // All fibers of a function have the same steps.
    let mut steps: BTreeMap<bool, usize> = BTreeMap::new();
    for (id, fiber) in trace.fibers() {
        if !fiber.has_ended {
            checked.faults.push(format!("`{id}` has not ended"));
        }
        let is_order = id.starts_with('o');
        let expected = *steps.entry(is_order).or_insert(fiber.number);
        if fiber.number != expected {
            checked.faults.push(format!("`{id}` has {} completed steps, and others have {expected}", fiber.number));
        }
        checked.fibers += usize::from(is_order);
    }
    checked.workers = workers.len();
    checked
}

const GOOD: &str = "\
o1 made 1 0 1 0
o1 checkpoint 1 1 1 0
o1 released 2 1 0 0
o1 claimed 3 1 2 0
o1 checkpoint 3 2 2 0
o1 completed 0 0 0 0
";

#[test]
fn history_in_which_each_step_is_completed_once_is_accepted() {
    let checked = check(GOOD);
    assert_eq!(checked, Checked { fibers: 1, completions: 2, claims: 1, workers: 1, faults: Vec::new() });
}

#[test]
fn damaged_histories_are_refused() {
    let cases = [
        ("o1 checkpoint 3 2 2 0", "o1 checkpoint 3 2 2 0\no1 checkpoint 3 2 2 0", "the model refuses"),
        ("o1 checkpoint 3 2 2 0", "o1 checkpoint 3 3 2 0", "the model refuses"),
        ("o1 checkpoint 3 2 2 0", "o1 checkpoint 1 2 1 0", "the model has"),
        ("o1 claimed 3 1 2 0\no1 checkpoint 3 2 2 0", "o1 checkpoint 2 2 0 0", "no worker runs the fiber"),
        ("o1 claimed 3 1 2 0", "o1 claimed 2 1 2 0", "the model has"),
        ("o1 released 2 1 0 0", "o1 released 0 1 0 0", "the model has"),
        ("o1 completed 0 0 0 0\n", "", "has not ended"),
        ("o1 completed 0 0 0 0", "o1 completed 0 0 0 0\no1 completed 0 0 0 0", "the model refuses"),
        ("o1 completed", "o1 failed", "did not complete"),
        ("o1 made", "o2 made", "once"),
    ];
    for (there, instead, why) in cases {
        let checked = check(&GOOD.replacen(there, instead, 1));
        assert!(checked.faults.iter().any(|fault| fault.contains(why)), "{there} -> {instead}: {checked:?}");
    }
}
