//! Compares a run with the uninterrupted one, and formats the report.
use std::collections::BTreeMap;
use std::fmt::{self, Debug, Write};

use super::db_state::DbState;
use super::process::Run;

/// The differences of a run from the uninterrupted one, a paragraph each; empty if they agree. A
/// run that may take another path is not compared by its database and its steps.
pub(in crate::testing) fn differences<R: Debug + PartialEq>(whole: &Run<R>, run: &Run<R>, same_way: bool) -> Vec<String> {
    let mut found = Vec::new();
    if whole.outcome != run.outcome {
        found.push(format!("the outcome is not the same\n    expected: {}\n    came:     {}", told(&whole.outcome), told(&run.outcome)));
    }
    for (what, expected, came) in counted(&whole.world.effects(), &run.world.effects()) {
        if expected != came {
            found.push(format!("the effect `{what}` came {}, and not {}", times(came), times(expected)));
        }
    }
    for (what, expected, came) in counted(&whole.world.attempts(), &run.world.attempts()) {
        if expected > came {
            found.push(format!("`{what}` came {}, and not at least {}", times(came), times(expected)));
        }
    }
    found.extend(run.steps.too_early.iter().map(|what| format!("it was reported before it was stored: {what}")));
    if !same_way {
        return found;
    }
    let (expected, came) = (whole.end.lines(), run.end.lines());
    let missing = without(&expected, &came);
    let more = without(&came, &expected);
    if !missing.is_empty() || !more.is_empty() {
        let mut text = "what is stored at the end is not the same".to_owned();
        for (lines, word) in [(missing, "missing:"), (more, "more:")] {
            for line in lines {
                let _ = write!(text, "\n    {word} {line}");
            }
        }
        found.push(text);
    }
    for (fiber, step, allowed, begun) in run.steps.repeated(&run.end.names(), &whole.steps, &whole.end.names()) {
        found.push(format!(
            "a finished step was repeated\n    `{step}` of fiber {fiber} was begun {}, where the deaths account for {}",
            times(begun),
            times(allowed)
        ));
    }
    found
}

/// Report of a failed run, for people.
pub(super) struct Report<'a, R> {
    pub(super) run: &'a Run<R>,
    pub(super) differences: Vec<String>,
    /// The database before and after the last death.
    pub(super) around: Option<Around>,
}

/// A write, and the database before and after it.
pub(super) struct Around {
    pub(super) what: String,
    pub(super) before: DbState,
    pub(super) after: DbState,
}

impl<R> fmt::Display for Report<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, process) in self.run.processes.iter().enumerate() {
            match process.death {
                Some(death) => writeln!(f, "  process {} ended {death}", n + 1)?,
                None => writeln!(f, "  process {} was left alone, and made {} writes", n + 1, process.writes.len())?,
            }
        }
        writeln!(f, "\nother than in a run that nothing interrupted:")?;
        for difference in &self.differences {
            writeln!(f, "  {difference}")?;
        }
        if let Some(Around { what, before, after }) = &self.around {
            writeln!(f, "\nthe write was: {what}")?;
            writeln!(f, "  before it:\n{before}  after it:\n{after}")?;
        }
        write!(f, "at the end:\n{}", self.run.end)
    }
}

fn told<R: Debug>(outcome: &Result<R, String>) -> String {
    match outcome {
        Ok(outcome) => format!("{outcome:?}"),
        Err(why) => why.clone(),
    }
}

fn times(n: u64) -> String {
    match n {
        0 => "never".to_owned(),
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        n => format!("{n} times"),
    }
}

fn counted(expected: &BTreeMap<String, u64>, came: &BTreeMap<String, u64>) -> Vec<(String, u64, u64)> {
    let mut all: Vec<_> = expected.keys().chain(came.keys()).collect();
    all.sort_unstable();
    all.dedup();
    let of = |counts: &BTreeMap<String, u64>, what: &String| counts.get(what).copied().unwrap_or_default();
    all.into_iter().map(|what| (what.clone(), of(expected, what), of(came, what))).collect()
}

/// The lines that are missing in the other list, counting duplicates.
fn without(lines: &[String], others: &[String]) -> Vec<String> {
    let mut others = others.to_vec();
    let mut left = Vec::new();
    for line in lines {
        match others.iter().position(|other| other == line) {
            Some(there) => drop(others.swap_remove(there)),
            None => left.push(line.clone()),
        }
    }
    left
}
