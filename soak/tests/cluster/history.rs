//! Checks a history that the database has written, without the library: each step of each fiber
//! was completed once, by the worker that held the newest claim.
use std::collections::BTreeMap;

/// What a history has shown.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Checked {
    pub(crate) fibers: usize,
    pub(crate) completions: u64,
    pub(crate) claims: u64,
    /// Claims of a fiber beyond those after its begin and after each of its waits: takeovers, and
    /// claims after an error.
    pub(crate) workers: usize,
    pub(crate) faults: Vec<String>,
}

#[derive(Debug, Default)]
struct Fiber {
    epoch: i64,
    number: i64,
    /// The worker that holds the claim; 0 for none.
    worker: i64,
    ends: u32,
}

/// Checks a history: lines of an id, what happened, and the epoch, number and worker after it.
pub(crate) fn check(history: &str) -> Checked {
    let mut checked = Checked::default();
    let mut fibers: BTreeMap<&str, Fiber> = BTreeMap::new();
    let mut workers = std::collections::BTreeSet::new();
    for line in history.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [id, what, epoch, number, worker] = words[..] else { panic!("a damaged line: {line}") };
        let [epoch, number, worker] = [epoch, number, worker].map(|word| word.parse::<i64>().unwrap());
        let mut fault = |why: &str| checked.faults.push(format!("{why}: {line}"));
        let is_new = !fibers.contains_key(id);
        let fiber = fibers.entry(id).or_default();
        if is_new != (what == "made") {
            fault("a fiber begins with its row, once");
        }
        if fiber.ends > 0 {
            fault("something happened after the end");
        }
        match what {
            "made" => *fiber = Fiber { epoch, number, worker, ends: 0 },
            "checkpoint" => {
                if number != fiber.number + 1 {
                    fault("a step was completed twice, or one was left out");
                }
                if (epoch, worker) != (fiber.epoch, fiber.worker) || worker == 0 {
                    fault("a step was completed without the newest claim");
                }
                fiber.number = number;
                checked.completions += 1;
            }
            "claimed" => {
                if epoch <= fiber.epoch {
                    fault("a claim did not raise the epoch");
                }
                (fiber.epoch, fiber.worker) = (epoch, worker);
                workers.insert(worker);
                checked.claims += 1;
            }
            "released" => {
                if epoch < fiber.epoch {
                    fault("an epoch fell");
                }
                (fiber.epoch, fiber.worker) = (epoch, 0);
            }
            "completed" => fiber.ends += 1,
            _ => fault("a fiber did not complete"),
        }
    }
    // All fibers of a function have the same steps.
    let mut steps: BTreeMap<bool, i64> = BTreeMap::new();
    for (id, fiber) in &fibers {
        if fiber.ends != 1 {
            checked.faults.push(format!("`{id}` ended {} times", fiber.ends));
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
o1 made 1 0 1
o1 checkpoint 1 1 1
o1 released 2 1 0
o1 claimed 3 1 2
o1 checkpoint 3 2 2
o1 completed 0 0 0
";

#[test]
fn history_in_which_each_step_is_completed_once_is_accepted() {
    let checked = check(GOOD);
    assert_eq!(checked, Checked { fibers: 1, completions: 2, claims: 1, workers: 1, faults: Vec::new() });
}

#[test]
fn damaged_histories_are_refused() {
    let cases = [
        ("o1 checkpoint 3 2 2", "o1 checkpoint 3 2 2\no1 checkpoint 3 2 2", "completed twice"),
        ("o1 checkpoint 3 2 2", "o1 checkpoint 3 3 2", "completed twice"),
        ("o1 checkpoint 3 2 2", "o1 checkpoint 1 2 1", "without the newest claim"),
        ("o1 claimed 3 1 2\n", "", "without the newest claim"),
        ("o1 claimed 3 1 2", "o1 claimed 2 1 2", "did not raise the epoch"),
        ("o1 released 2 1 0", "o1 released 0 1 0", "fell"),
        ("o1 completed 0 0 0\n", "", "ended 0 times"),
        ("o1 completed 0 0 0", "o1 completed 0 0 0\no1 completed 0 0 0", "after the end"),
        ("o1 completed", "o1 failed", "did not complete"),
        ("o1 made", "o2 made", "once"),
    ];
    for (there, instead, why) in cases {
        let checked = check(&GOOD.replacen(there, instead, 1));
        assert!(checked.faults.iter().any(|fault| fault.contains(why)), "{there} -> {instead}: {checked:?}");
    }
}
