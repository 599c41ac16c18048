//! Events of a run: how often the bodies of steps began and may have begun, and whether reported
//! events were stored.
use std::borrow::Cow;
use std::collections::BTreeMap;

use super::db_state::{DbState, Names};
use crate::runtime::events::{Event, EventKind};

/// The bodies that began in all processes of a run.
#[derive(Debug, Default)]
pub(in crate::testing) struct Steps {
    /// Counts by fiber and step.
    begun: BTreeMap<(String, &'static str), Count>,
    /// Events that were not stored.
    pub(super) too_early: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Count {
    begun: u64,
    /// How often a death left it unfinished, so that it had to begin again.
    unfinished: u64,
}

impl Steps {
    /// Adds the events of a process, which began with one state of the database and left another.
    /// `died` is false if it reached its end.
    pub(super) fn lived(&mut self, events: &[Event], found: &DbState, left: &DbState, died: bool) {
        let checkpoints =
            |db_state: &DbState| db_state.fibers.iter().map(|fiber| (fiber.id.clone(), fiber.checkpoints)).collect::<BTreeMap<_, _>>();
        let mut passed = checkpoints(found);
        // Bodies that began after each fiber's last reported checkpoint.
        let mut open: BTreeMap<String, (u64, Vec<&'static str>)> = BTreeMap::new();
        for event in events {
            let id = &*event.fiber;
            match &event.kind {
                EventKind::StepStarted { step: Cow::Borrowed(step) } => {
                    self.begun.entry((id.to_owned(), step)).or_default().begun += 1;
                    let after = passed.get(id).copied().unwrap_or_default();
                    let open = open.entry(id.to_owned()).or_insert_with(|| (after, Vec::new()));
                    if open.0 != after {
                        *open = (after, Vec::new());
                    }
                    open.1.push(step);
                }
                EventKind::StepFinished { checkpoint, .. } => drop(passed.insert(id.to_owned(), *checkpoint)),
                _ => {}
            }
        }
        self.too_early.extend(events.iter().filter(|event| !told_of_what_was_stored(event, left)).map(|event| {
            let stored = left.fibers.iter().find(|fiber| *fiber.id == *event.fiber);
            let stored = stored.map_or_else(String::new, |fiber| format!(": it is {} after checkpoint {}", fiber.state, fiber.checkpoints));
            format!("{:?} of `{}`{stored}", event.kind, event.name)
        }));
        if !died {
            return;
        }
        for fiber in &left.fibers {
            let Some((_, steps)) = open.get(&fiber.id).filter(|(after, _)| *after == fiber.checkpoints) else { continue };
            for step in steps {
                self.begun.entry((fiber.id.clone(), step)).or_default().unfinished += 1;
            }
        }
    }

    /// Counts by the names of fibers in place of their ids.
    fn named(&self, names: &Names) -> BTreeMap<(String, &'static str), Count> {
        let mut counts = BTreeMap::<_, Count>::new();
        for ((id, step), count) in &self.begun {
            let sum = counts.entry((names.of(id).to_owned(), *step)).or_default();
            sum.begun += count.begun;
            sum.unfinished += count.unfinished;
        }
        counts
    }

    /// Steps that began more often than the deaths explain: fiber, step, allowed count, actual
    /// count.
    pub(super) fn repeated(&self, names: &Names, whole: &Steps, of_whole: &Names) -> Vec<(String, &'static str, u64, u64)> {
        let whole = whole.named(of_whole);
        let mut repeated = Vec::new();
        for ((fiber, step), count) in self.named(names) {
            let expected = whole.get(&(fiber.clone(), step)).copied().unwrap_or_default().begun;
            if count.begun > expected + count.unfinished {
                repeated.push((fiber, step, expected + count.unfinished, count.begun));
            }
        }
        repeated
    }
}

/// Whether an event reports only what is stored. For a fiber that the program itself has deleted it
/// is always true.
fn told_of_what_was_stored(event: &Event, left: &DbState) -> bool {
    let Some(stored) = left.fibers.iter().find(|fiber| *fiber.id == *event.fiber) else { return left.deleted };
    match &event.kind {
        EventKind::StepFinished { checkpoint, .. } => stored.checkpoints >= *checkpoint || stored.state == "completed",
        EventKind::Completed => stored.state == "completed",
        _ => true,
    }
}
