//! Events of a run: how often the bodies of steps were begun, and how often they may have been; and
//! whether what was reported was stored.
use std::collections::BTreeMap;

use super::image::{Image, Names};
use crate::runtime::events::{Event, EventKind};

/// The bodies that were begun in all lives of a run.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// By fiber and step.
    begun: BTreeMap<(String, &'static str), Count>,
    /// Events of what was not stored.
    pub(super) too_early: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Count {
    begun: u64,
    /// Of these, how often a death has left it unfinished, so that it had to be begun again.
    unfinished: u64,
}

impl Steps {
    /// Takes what a life has told; it began with one image of the database and left another, and
    /// died there unless it came to its end.
    pub(super) fn lived(&mut self, events: &[Event], found: &Image, left: &Image, died: bool) {
        let checkpoints =
            |image: &Image| image.fibers.iter().map(|fiber| (fiber.id.clone(), fiber.checkpoints)).collect::<BTreeMap<_, _>>();
        let mut passed = checkpoints(found);
        // What was begun after each fiber's last checkpoint that anybody has heard of.
        let mut open: BTreeMap<String, (u64, Vec<&'static str>)> = BTreeMap::new();
        for event in events {
            let id = &*event.fiber;
            match event.kind {
                EventKind::StepStarted { step } => {
                    self.begun.entry((id.to_owned(), step)).or_default().begun += 1;
                    let after = passed.get(id).copied().unwrap_or_default();
                    let open = open.entry(id.to_owned()).or_insert_with(|| (after, Vec::new()));
                    if open.0 != after {
                        *open = (after, Vec::new());
                    }
                    open.1.push(step);
                }
                EventKind::StepFinished { checkpoint, .. } => drop(passed.insert(id.to_owned(), checkpoint)),
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

    /// By what fibers are, and not by their ids.
    fn named(&self, names: &Names) -> BTreeMap<(String, &'static str), Count> {
        let mut counts = BTreeMap::<_, Count>::new();
        for ((id, step), count) in &self.begun {
            let sum = counts.entry((names.of(id).to_owned(), *step)).or_default();
            sum.begun += count.begun;
            sum.unfinished += count.unfinished;
        }
        counts
    }

    /// The steps that were begun more often than the deaths account for: fiber, step, how often
    /// they may have been, how often they were.
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

/// Whether no event has reported what a death could still have undone. A fiber that the program
/// itself has deleted says nothing.
fn told_of_what_was_stored(event: &Event, left: &Image) -> bool {
    let Some(stored) = left.fibers.iter().find(|fiber| *fiber.id == *event.fiber) else { return left.deleted };
    match &event.kind {
        EventKind::StepFinished { checkpoint, .. } => stored.checkpoints >= *checkpoint || stored.state == "completed",
        EventKind::Completed => stored.state == "completed",
        _ => true,
    }
}
