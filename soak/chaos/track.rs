//! State of the fibers as the audit reads it from the log of effects, and whether each ended as it
//! must.
use std::collections::{BTreeMap, BTreeSet};

use super::audit::Findings;
use super::journal::Line;
use super::round::{Kind, Round, Spec, child, sum_of_child};
use super::stored::Stored;

/// State of one fiber, by its name in the log.
#[derive(Debug, Default)]
struct Track {
    accepted: bool,
    ended: bool,
    /// Places of bodies that began, with the branch where there are several.
    begun: BTreeSet<(u32, u32)>,
    /// The last place that began, and the last one that is known to have finished.
    latest: u32,
    finished: u32,
    /// Branches whose results are stored.
    arrived: BTreeSet<(u32, u32)>,
    /// The process that knows of its cancellation, and the number of bodies that began since.
    cancelled: Option<(u32, u32)>,
    /// The last stash of a closure.
    stashed: Option<u32>,
    /// The ids under which a child was spawned.
    born: BTreeSet<String>,
}

impl Track {
    /// Whether the body at a place must not run any more.
    fn is_over(&self, place: (u32, u32)) -> bool {
        self.ended || place.0 < self.latest || place.0 <= self.finished || self.arrived.contains(&place)
    }
}

pub(crate) struct Fibers<'a> {
    round: &'a Round,
    tracks: BTreeMap<String, Track>,
    /// Names of children, by id.
    children: BTreeMap<String, String>,
    /// Number of processes.
    lives: usize,
}

impl<'a> Fibers<'a> {
    pub(crate) fn new(round: &'a Round) -> Self {
        Fibers { round, tracks: BTreeMap::new(), children: BTreeMap::new(), lives: 0 }
    }

    fn of(&mut self, name: &str) -> &mut Track {
        self.tracks.entry(name.to_owned()).or_default()
    }

    pub(crate) fn read(&mut self, line: &Line, findings: &mut Findings) {
        match line.words() {
            ["waits", _, _] => self.lives += 1,
            ["accepted", fiber, _] => self.of(fiber).accepted = true,
            ["ended", fiber, how] => self.of(fiber).ended |= how == "completed",
            ["begin", fiber, place] => self.begin(fiber, place, line, findings),
            ["finished" | "stored", id, checkpoints] => self.finished(id, checkpoints, line, findings),
            ["arrived", fiber, place] => drop(self.of(fiber).arrived.insert(split(place))),
            ["born", name, id] => {
                self.of(name).born.insert(id.to_owned());
                self.children.insert(id.to_owned(), name.to_owned());
            }
            ["cancelled", fiber, _] => {
                let below = format!("{fiber}.");
                self.of(fiber);
                for (_, track) in self.tracks.iter_mut().filter(|(name, _)| *name == fiber || name.starts_with(&below)) {
                    track.cancelled.get_or_insert((line.process, 0));
                }
            }
            ["stashed", fiber, done] => self.of(fiber).stashed = done.parse().ok(),
            ["stashed-was", fiber, done] => {
                let last = self.of(fiber).stashed;
                if done.parse().ok() < last {
                    findings.repeated(fiber, line, format!("closure {fiber} had stashed {last:?}, and its hook was given {done}"));
                }
            }
            _ => {}
        }
    }

    fn begin(&mut self, fiber: &str, place: &str, line: &Line, findings: &mut Findings) {
        findings.counts.begun += 1;
        let at = split(place);
        let track = self.of(fiber);
        if track.is_over(at) {
            findings.repeated(fiber, line, format!("step {place} of fiber {fiber} began again after it had finished"));
        }
        if let Some((process, more)) = &mut track.cancelled {
            *more += 1;
            // A fiber that was between two steps begins one more.
            if *process != line.process || *more > 1 {
                findings.fault(fiber, Some(line.number), format!("step {place} of fiber {fiber} began after the fiber was cancelled"));
            }
        }
        track.begun.insert(at);
        track.latest = track.latest.max(at.0);
    }

    fn finished(&mut self, id: &str, checkpoints: &str, line: &Line, findings: &mut Findings) {
        let Ok(checkpoints) = checkpoints.parse() else { return };
        let (name, place) = match (self.round.find(id), self.children.get(id)) {
            (Some(spec), _) => (id.to_owned(), spec.place_after(checkpoints)),
            (None, Some(name)) => (name.clone(), Some(checkpoints)),
            (None, None) => return,
        };
        let Some(place) = place else {
            if self.round.find(id).is_some_and(|spec| !matches!(spec.kind, Kind::Fail | Kind::Doomed | Kind::Closure)) {
                findings.fault(id, Some(line.number), format!("fiber {id} has made {checkpoints} checkpoints, more than it has"));
            }
            return;
        };
        let track = self.of(&name);
        if place > track.latest {
            findings.fault(&name, Some(line.number), format!("step {place} of fiber {name} has finished, but its body never began"));
        }
        track.finished = track.finished.max(place);
    }

    pub(crate) fn settle(mut self, stored: &Stored, findings: &mut Findings) {
        findings.counts.fibers += stored.fibers.len();
        let round = self.round;
        for spec in &round.fibers {
            let track = self.tracks.entry(spec.id.clone()).or_default();
            if !track.accepted {
                findings.fault(&spec.id, None, format!("fiber {} was never started", spec.id));
            } else if self.lives > GIVEN_UP && is_given_up(spec, stored) {
                findings.counts.given_up += 1;
            } else if let Some(why) = what_is_wrong(spec, track, stored) {
                findings.lost(&spec.id, why);
            }
        }
        for (name, track) in &self.tracks {
            let more = track.born.len().saturating_sub(1);
            if more > 0 {
                findings.duplicate(name, more, format!("child {name} was made {} times", more + 1));
            }
            let completed = track.ended || track.born.iter().any(|id| stored.fibers.get(id).is_some_and(|f| f.state == "completed"));
            let over = |place: &&(u32, u32)| completed || track.is_over(**place);
            findings.counts.finished_steps += track.begun.iter().filter(over).count();
        }
        self.families(stored, findings);
    }

    /// Checks that every fiber has the children that it spawned, each once.
    fn families(&self, stored: &Stored, findings: &mut Findings) {
        for (id, fiber) in stored.fibers.iter().filter(|(_, fiber)| fiber.name == "child") {
            findings.counts.children += 1;
            let parent = fiber.parent.as_deref().unwrap_or("no fiber");
            let cancelled = self.tracks.get(parent).is_some_and(|track| track.cancelled.is_some());
            findings.counts.cancelled += usize::from(cancelled);
            // Children that were cancelled first need not have run.
            let name = self.children.get(id).map_or("", String::as_str);
            if cancelled && fiber.state != "cancelled" {
                findings.fault(parent, None, format!("child {name} ({id}) of {parent} is {}, but {parent} was cancelled", fiber.state));
            } else if !cancelled && fiber.state != "completed" && fiber.state != "cancelled" {
                findings.lost(parent, format!("child {name} ({id}) of {parent} is {}: {}", fiber.state, fiber.text));
            }
        }
        for spec in self.round.fibers.iter().filter(|spec| spec.kind == Kind::Family) {
            let children: Vec<_> = stored.fibers.values().filter(|fiber| fiber.parent.as_ref() == Some(&spec.id)).collect();
            let mut results: Vec<_> = children.iter().map(|fiber| fiber.text.clone()).collect();
            let mut expected: Vec<_> =
                (0..spec.size).map(|n| child(&spec.id, n)).map(|(name, steps)| sum_of_child(&name, steps).to_string()).collect();
            results.sort();
            expected.sort();
            match results.len().checked_sub(expected.len()) {
                Some(0) if results == expected => {}
                Some(more) if more > 0 => {
                    findings.duplicate(&spec.id, more, format!("fiber {} has {} children, not {}", spec.id, results.len(), spec.size));
                }
                _ => findings.lost(&spec.id, format!("fiber {} has not the children that it made", spec.id)),
            }
        }
    }
}

/// A place, and its branch; 0 where there is one only.
fn split(place: &str) -> (u32, u32) {
    let (place, branch) = place.split_once('.').unwrap_or((place, "0"));
    (place.parse().unwrap_or(0), branch.parse().unwrap_or(0))
}

/// Deaths of its process without a stash in between after which a closure fails; it has no option
/// to raise that.
const GIVEN_UP: usize = 11;

fn is_given_up(spec: &Spec, stored: &Stored) -> bool {
    // One more for each process that died before it could store that.
    let is_why = |text: &str| {
        let (times, rest) = text.strip_prefix("the process died ").and_then(|text| text.split_once(' ')).unwrap_or_default();
        let enough = times.parse::<usize>().is_ok_and(|times| times >= GIVEN_UP);
        enough && rest.starts_with("times while it ran or was recovered, without a checkpoint in between")
    };
    spec.kind == Kind::Closure && stored.fibers.get(&spec.id).is_some_and(|fiber| fiber.state == "failed" && is_why(&fiber.text))
}

/// Why an accepted fiber is not as it must be at the end; `None` if it is.
fn what_is_wrong(spec: &Spec, track: &Track, stored: &Stored) -> Option<String> {
    let id = &spec.id;
    let Some(fiber) = stored.fibers.get(id) else { return Some(format!("fiber {id} was accepted, and is not there")) };
    if track.cancelled.is_some() {
        return (fiber.state != "cancelled").then(|| format!("fiber {id} was cancelled, and is {}", fiber.state));
    }
    if fiber.state == "cancelled" && spec.kind == Kind::Doomed {
        return None; // The process died before it received that.
    }
    if fiber.state != "completed" {
        return Some(format!("fiber {id} has not completed, but is {}: {}", fiber.state, fiber.text));
    }
    let (result, expected) = (stored.result(id), spec.expected());
    (expected.is_some() && result != expected).then(|| format!("fiber {id} has given {result:?}, not {expected:?}"))
}
