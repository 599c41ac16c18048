//! What the log of a series says, compared with what was promised.
use std::collections::{BTreeMap, BTreeSet};

use super::jobs::{JOBS, effects_of, id_of, result_of};
use super::member::STUCK;
use crate::journal::Line;

/// Result of an audit.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) steps: usize,
    pub(super) effects: usize,
    pub(super) repeated_steps: usize,
    pub(super) repeated_effects: usize,
    pub(super) lost_stashes: usize,
    pub(super) ledger_started: usize,
    /// Operations that were in doubt after they had completed.
    pub(super) set_back: usize,
    pub(super) lost_jobs: usize,
    /// Jobs that wait for a message that they have received.
    pub(super) stuck_jobs: usize,
    /// What workers repeated that stood still in the series.
    pub(super) late_steps: usize,
    pub(super) late_effects: usize,
    /// Effects in doubt that were resolved.
    pub(super) resolved: usize,
    /// Claims that the store has refused.
    pub(super) claims_refused: u64,
    /// What is not as promised.
    pub(super) faults: Vec<String>,
}

/// What the log says of one job.
#[derive(Debug, Default)]
struct Job {
    /// Steps whose results are stored.
    passed: BTreeSet<String>,
    /// Charges so far, by effect.
    charged: BTreeMap<String, usize>,
    /// The effects by the ids of their operations.
    effects: BTreeMap<String, String>,
    /// The last stash that was stored, by step.
    stashed: BTreeMap<String, u64>,
    result: Option<String>,
    completed: u64,
}

/// Compares the log with what was promised.
pub(super) fn audit(lines: &[Line], rounds: u64) -> Findings {
    let (mut findings, mut jobs) = (Findings::default(), BTreeMap::<&str, Job>::new());
    // A worker that goes on does not know yet what it has lost.
    let mut stood_still: BTreeSet<u32> = BTreeSet::new();
    for line in lines {
        let (job, step, process) = (line.about.as_str(), line.detail.as_str(), line.process);
        let is_late = stood_still.contains(&process);
        match line.what.as_str() {
            "paused" => drop(stood_still.insert(job.parse().unwrap_or(0))),
            "begin" if jobs.entry(job).or_default().passed.contains(step) => {
                if is_late {
                    findings.late_steps += 1;
                } else {
                    findings.repeated_steps += 1;
                    findings.faults.push(format!("`{step}` of `{job}` began in process {process} after its result was stored"));
                }
            }
            "passed" => drop(jobs.entry(job).or_default().passed.insert(step.to_owned())),
            "charged" => {
                let (effect, op) = step.split_once(' ').unwrap_or((step, ""));
                let there = jobs.entry(job).or_default();
                there.effects.insert(op.to_owned(), effect.to_owned());
                let times = there.charged.entry(effect.to_owned()).or_default();
                *times += 1;
                if *times > 1 && is_late {
                    findings.late_effects += 1;
                } else if *times > 1 {
                    findings.repeated_effects += 1;
                    findings.faults.push(format!("`{effect}` of `{job}` was carried out {times} times, now in process {process}"));
                }
            }
            "stashed" | "reads" => {
                let Some((step, done)) = step.split_once(' ').and_then(|(step, done)| Some((step, done.parse::<u64>().ok()?))) else {
                    continue;
                };
                let there = jobs.entry(job).or_default();
                if line.what == "stashed" {
                    there.stashed.insert(step.to_owned(), done);
                } else if let Some(stored) = there.stashed.get(step).filter(|stored| **stored > done && !there.passed.contains(step))
                    && !is_late
                {
                    findings.lost_stashes += 1;
                    findings.faults.push(format!("`{step}` of `{job}` was given stash {done} after {stored} was stored"));
                }
            }
            "ended" => jobs.entry(job).or_default().result = Some(step.to_owned()),
            "ledger" if step.ends_with(" Completed") => jobs.entry(job).or_default().completed += 1,
            "ledger" => {
                findings.ledger_started += 1;
                findings.faults.push(format!("the ledger of `{job}` says: {step}"));
            }
            "resolved" => {
                findings.resolved += 1;
                let there = jobs.entry(job).or_default();
                let effect = step.split_once(' ').and_then(|(_, op)| there.effects.get(op));
                if let Some(effect) = effect.filter(|effect| there.passed.contains(*effect)) {
                    findings.set_back += 1;
                    findings.faults.push(format!("`{effect}` of `{job}` was in doubt again after its result was stored"));
                }
            }
            "refused" => findings.claims_refused += step.parse().unwrap_or(0),
            _ => {}
        }
    }
    findings.steps = jobs.values().map(|job| job.passed.len()).sum();
    findings.effects = jobs.values().map(|job| job.charged.len()).sum();
    for id in (0..JOBS).map(id_of) {
        let job = jobs.remove(id.as_str()).unwrap_or_default();
        if job.result.as_deref() == Some(STUCK) {
            findings.stuck_jobs += 1;
            findings.faults.push(format!("`{id}` does not end, after {} steps", job.passed.len()));
        } else if job.result.as_deref() != Some(result_of(rounds).to_string().as_str()) {
            findings.lost_jobs += 1;
            findings.faults.push(format!("`{id}` ended with {:?}, and not with {}", job.result, result_of(rounds)));
        } else if job.completed < effects_of(rounds) && job.charged.len() as u64 == effects_of(rounds) {
            findings.faults.push(format!("the ledger of `{id}` has {} completed effects", job.completed));
        }
    }
    findings
}
