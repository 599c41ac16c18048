//! State of the world outside of fibers, as the audit reads it from the log: the bank, messages,
//! agents.
use std::collections::{BTreeMap, BTreeSet};

use super::audit::Findings;
use super::journal::Line;
use super::round::{AGENTS, Kind, Round};
use super::stored::Stored;

/// Books of the bank.
#[derive(Debug, Default)]
pub(crate) struct Books {
    /// The ids of the charges for each key.
    charges: BTreeMap<String, Vec<String>>,
    /// The ids under which a charge for each key was requested.
    asked: BTreeMap<String, BTreeSet<String>>,
    /// Ids under which a charge was requested, and that were not queried since.
    open: BTreeSet<String>,
}

impl Books {
    pub(crate) fn read(&mut self, line: &Line, round: &Round, findings: &mut Findings) {
        match line.words() {
            ["asks", key, id] => {
                findings.counts.requests += 1;
                self.asked.entry(key.to_owned()).or_default().insert(id.to_owned());
                let again = !self.open.insert(id.to_owned());
                let fiber = key.split('/').next().unwrap_or(key);
                if again && !round.find(fiber).is_some_and(|spec| spec.asks_again(key)) {
                    let text = format!("a charge for {key} was asked for again under {id}, before anybody had looked whether there is one");
                    findings.repeated(fiber, line, text);
                }
            }
            ["charge", key, id] => self.charges.entry(key.to_owned()).or_default().push(id.to_owned()),
            ["finds", _, id_and_answer] => {
                findings.counts.questions += 1;
                self.open.remove(id_and_answer.split(' ').next().unwrap_or_default());
            }
            _ => {}
        }
    }

    pub(crate) fn settle(mut self, round: &Round, stored: &Stored, findings: &mut Findings) {
        findings.counts.charges += self.charges.values().map(Vec::len).sum::<usize>();
        for spec in &round.fibers {
            for key in spec.charges() {
                let (charges, ids) = (self.charges.remove(&key).unwrap_or_default(), self.asked.remove(&key).unwrap_or_default());
                match charges.len() {
                    0 if stored.result(&spec.id).is_none() => {}
                    0 => findings.fault(&spec.id, None, format!("fiber {} has completed, and {key} was not charged", spec.id)),
                    1 if ids.len() > 1 && spec.kind != Kind::Fail => {
                        findings.duplicate(&spec.id, 1, format!("{key} was asked for under {} ids: {}", ids.len(), list(&ids)));
                    }
                    1 => {}
                    n => findings.duplicate(&spec.id, n - 1, format!("{key} was charged {n} times, under {}", list(&charges))),
                }
            }
        }
        for (key, charges) in self.charges {
            findings.duplicate(&key, charges.len(), format!("{key} was charged, and no charge was wanted for that"));
        }
    }
}

fn list<'a>(ids: impl IntoIterator<Item = &'a String>) -> String {
    ids.into_iter().cloned().collect::<Vec<_>>().join(", ")
}

/// Messages: how often each was sent at most (`sends`), and at least (`sent`).
#[derive(Debug, Default)]
pub(crate) struct Post {
    sends: BTreeMap<(String, u32), usize>,
    sent: BTreeMap<(String, u32), usize>,
}

impl Post {
    pub(crate) fn read(&mut self, line: &Line) {
        let (which, fiber, number) = match line.words() {
            ["sends", fiber, number] => (&mut self.sends, fiber, number),
            ["sent", fiber, number] => (&mut self.sent, fiber, number),
            _ => return,
        };
        *which.entry((fiber.to_owned(), number.parse().unwrap_or(0))).or_default() += 1;
    }

    pub(crate) fn settle(self, round: &Round, stored: &Stored, findings: &mut Findings) {
        for spec in round.fibers.iter().filter(|spec| spec.kind == Kind::Inbox) {
            let Some(result) = stored.result(&spec.id) else { continue };
            let read: Vec<u32> = result.split(' ').filter_map(|number| number.parse().ok()).collect();
            findings.counts.messages += read.len();
            for number in 1..=spec.size {
                let key = (spec.id.clone(), number);
                let times = read.iter().filter(|there| **there == number).count();
                let sends = self.sends.get(&key).copied().unwrap_or(0);
                let sent = self.sent.get(&key).copied().unwrap_or(0);
                // A message with an id arrives once, however often it was sent.
                let sends = if spec.names_messages() { sends.min(1) } else { sends };
                if times > sends {
                    let text = format!("message {number} to {} was to come {sends} times at most, and was received {times} times", spec.id);
                    findings.duplicate(&spec.id, times - sends, text);
                } else if times < sent.min(1) || times == 0 {
                    findings.lost(&spec.id, format!("message {number} to {} was sent, and never received", spec.id));
                }
            }
            if !read.is_sorted() {
                findings.fault(&spec.id, None, format!("messages to {} came out of order: {result}", spec.id));
            }
        }
    }
}

/// Agents: their states and their schedules.
#[derive(Debug, Default)]
pub(crate) struct Clerks {
    /// The last state that is known to be stored.
    states: BTreeMap<String, u64>,
    scheduled: BTreeSet<String>,
    ran: BTreeSet<String>,
    ticks: BTreeMap<String, usize>,
}

impl Clerks {
    pub(crate) fn read(&mut self, line: &Line, findings: &mut Findings) {
        match line.words() {
            ["state", agent, ticks] => drop(self.states.insert(agent.to_owned(), ticks.parse().unwrap_or(0))),
            ["woken", agent, ticks] => {
                let last = self.states.get(agent).copied().unwrap_or(0);
                if ticks.parse::<u64>().is_ok_and(|ticks| ticks < last) {
                    findings.fault(agent, Some(line.number), format!("agent {agent} had the state {last}, and was woken with {ticks}"));
                }
            }
            ["scheduled", _, errand] => drop(self.scheduled.insert(errand.to_owned())),
            ["due", agent, rest] => match rest.split(' ').next() {
                Some("tick") => *self.ticks.entry(agent.to_owned()).or_default() += 1,
                errand => drop(self.ran.insert(errand.unwrap_or_default().to_owned())),
            },
            _ => {}
        }
    }

    pub(crate) fn settle(self, round: &Round, stored: &Stored, findings: &mut Findings) {
        findings.counts.ticks += self.ticks.values().sum::<usize>();
        for errand in &round.errands {
            let name = &errand.name;
            if !self.scheduled.contains(name) {
                findings.fault(name, None, format!("{name} was never scheduled"));
            } else if self.ran.contains(name) {
                findings.counts.errands += 1;
            } else {
                findings.lost(name, format!("{name} of agent {} was scheduled, and never run", errand.agent));
            }
            if stored.schedules.iter().any(|(_, there, _)| there == name) {
                findings.fault(name, None, format!("{name} of agent {} has run, and is still there", errand.agent));
            }
        }
        for n in 0..AGENTS {
            let agent = format!("clerk-{n}");
            let there = stored.schedules.iter().filter(|(of, name, _)| *of == agent && name == "tick").count();
            if there != 1 {
                findings.fault(&agent, None, format!("agent {agent} has {there} schedules for its ticks"));
            }
            let (told, state) = (self.states.get(&agent).copied().unwrap_or(0), stored.agents.get(&agent).copied().unwrap_or(0));
            if state < told {
                findings.fault(&agent, None, format!("agent {agent} had the state {told}, and has {state}"));
            }
        }
    }
}
