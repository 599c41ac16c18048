//! What must always hold, seen from outside of the model, and how often the interleavings were met
//! that put it to the test.
use std::collections::{BTreeMap, BTreeSet};

use crate::store::{Claim, Epoch, Runnable, Seq, WorkerId};

/// Writes that change what a fiber resumes from.
const RESUMES_FROM: [&str; 6] = ["checkpoint", "save_branch", "save_op", "append_op_log", "stash", "append"];

/// How often the interleavings of a test by [`cluster`](super::cluster) were met.
///
/// See [`ClusterSurvived`](super::ClusterSurvived) for an example.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Interleavings {
    /// Claims that were granted.
    pub claims: u64,
    /// Claims that were refused.
    pub claims_refused: u64,
    /// Claims of a fiber for which another worker has stored something since the worker has read
    /// that the fiber is ready.
    pub overtaken: u64,
    /// Those of [`overtaken`](Self::overtaken) that found the fiber ready again at a later
    /// checkpoint: the other worker has advanced, has let the fiber go, and it was woken.
    pub advanced_and_woken: u64,
    /// Those of [`overtaken`](Self::overtaken) that found the fiber ready at the same checkpoint,
    /// and more results of its branches, operations or stashes than before.
    pub stored_and_released: u64,
    /// Workers that went on after others had taken over from them.
    pub went_on: u64,
}

impl Interleavings {
    pub(super) fn add(&mut self, other: Interleavings) {
        let Interleavings { claims, claims_refused, overtaken, advanced_and_woken, stored_and_released, went_on } = other;
        self.claims += claims;
        self.claims_refused += claims_refused;
        self.overtaken += overtaken;
        self.advanced_and_woken += advanced_and_woken;
        self.stored_and_released += stored_and_released;
        self.went_on += went_on;
    }
}

/// How much is stored of a fiber.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Progress {
    /// The last checkpoint.
    number: u64,
    /// Number of writes that it resumes from.
    writes: u64,
}

/// Result of a claim, as the audit sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClaimSeen {
    Granted,
    /// Although the fiber is ready: it is not as it was when it was read.
    RefusedReady,
    /// Another worker runs the fiber, or it waits, or has ended.
    RefusedElsewhere,
}

/// What must always hold, seen from outside of the model.
#[derive(Debug, Default)]
pub(super) struct Audit {
    /// The last epoch that was granted.
    granted: BTreeMap<Seq, Epoch>,
    /// The last checkpoint that was acknowledged.
    acknowledged: BTreeMap<Seq, u64>,
    /// The last checkpoint that each worker knows of, by the id of the fiber.
    known: BTreeMap<(WorkerId, String), u64>,
    ids: BTreeMap<Seq, String>,
    /// The worker that has each fiber claimed, by the id of the fiber.
    claimants: BTreeMap<String, WorkerId>,
    /// Time of the last renewal of each lease.
    renewed_ms: BTreeMap<WorkerId, i64>,
    /// Cut points that are complete: fiber, cut point, checkpoint.
    finished: BTreeSet<(String, String, u64)>,
    /// What is stored of each fiber.
    progress: BTreeMap<Seq, Progress>,
    /// What was stored when a worker first read of a fiber that it is ready at an epoch.
    read: BTreeMap<(WorkerId, Seq, Epoch), Progress>,
    /// What was stored when a worker last loaded a fiber.
    loaded: BTreeMap<(WorkerId, Seq), Progress>,
    pub(super) met: Interleavings,
    pub(super) violations: Vec<String>,
}

impl Audit {
    pub(super) fn granted(&mut self, claim: Claim, worker: WorkerId, id: &str, name: &str) {
        self.ids.insert(claim.fiber, id.to_owned());
        self.claimants.insert(id.to_owned(), worker);
        if let Some(before) = self.granted.insert(claim.fiber, claim.epoch).filter(|before| *before >= claim.epoch) {
            self.violations
                .push(format!("worker {worker} has claimed {name} at epoch {}, and epoch {before} was given before", claim.epoch));
        }
    }

    /// A worker has read that fibers are ready.
    pub(super) fn read_ready(&mut self, worker: WorkerId, fibers: &[Runnable]) {
        for fiber in fibers {
            let progress = self.progress.get(&fiber.seq).copied().unwrap_or_default();
            self.read.entry((worker, fiber.seq, fiber.epoch)).or_insert(progress);
        }
    }

    /// A worker has claimed a fiber, from what it has loaded; or its claim was refused.
    pub(super) fn claimed(&mut self, seen: Claim, worker: WorkerId, claim: ClaimSeen, name: &str) {
        let Claim { fiber, epoch } = seen;
        let now = self.progress.get(&fiber).copied().unwrap_or_default();
        let is_granted = claim == ClaimSeen::Granted;
        *(if is_granted { &mut self.met.claims } else { &mut self.met.claims_refused }) += 1;
        if let Some(read) = self.read.remove(&(worker, fiber, epoch)).filter(|read| *read != now) {
            self.met.overtaken += 1;
            if claim != ClaimSeen::RefusedElsewhere {
                let how = if read.number < now.number { &mut self.met.advanced_and_woken } else { &mut self.met.stored_and_released };
                *how += 1;
            }
        }
        if let Some(loaded) = self.loaded.remove(&(worker, fiber)).filter(|loaded| is_granted && *loaded != now) {
            let writes = now.writes - loaded.writes;
            self.violations.push(format!(
                "worker {worker} has claimed {name} after checkpoint {}, and runs it from what it loaded {writes} writes before, after \
                 checkpoint {}",
                now.number, loaded.number
            ));
        }
    }

    /// A write under a claim was accepted.
    pub(super) fn wrote(&mut self, claim: Claim, worker: WorkerId, what: &str, name: &str) {
        if RESUMES_FROM.contains(&what) {
            self.progress.entry(claim.fiber).or_default().writes += 1;
        }
        if let Some(last) = self.granted.get(&claim.fiber).filter(|last| **last > claim.epoch) {
            let text = format!("worker {worker} wrote to {name} (`{what}`) under epoch {}, after epoch {last} was given", claim.epoch);
            self.violations.push(text);
        }
    }

    pub(super) fn acknowledged(&mut self, fiber: Seq, worker: WorkerId, number: u64) {
        self.acknowledged.insert(fiber, number);
        self.progress.entry(fiber).or_default().number = number;
        self.knows(fiber, worker, number);
    }

    fn knows(&mut self, fiber: Seq, worker: WorkerId, number: u64) {
        if let Some(id) = self.ids.get(&fiber) {
            self.known.insert((worker, id.clone()), number);
        }
    }

    pub(super) fn loaded(&mut self, fiber: Seq, worker: WorkerId, number: u64, name: &str) {
        self.knows(fiber, worker, number);
        let progress = self.progress.get(&fiber).copied().unwrap_or_default();
        self.loaded.insert((worker, fiber), progress);
        if let Some(last) = self.acknowledged.get(&fiber).filter(|last| **last > number) {
            self.violations
                .push(format!("worker {worker} resumes {name} from checkpoint {number}, and checkpoint {last} was acknowledged"));
        }
    }

    pub(super) fn renewed(&mut self, worker: WorkerId, now_ms: i64) {
        self.renewed_ms.insert(worker, now_ms);
    }

    /// The claim of a fiber was taken over.
    pub(super) fn released(&mut self, fiber: Seq) {
        if let Some(id) = self.ids.get(&fiber) {
            self.claimants.remove(id);
        }
    }

    pub(super) fn took_over(&mut self, from: WorkerId, by: WorkerId, lease_ms: i64, now_ms: i64) {
        let renewed_ms = self.renewed_ms.get(&from).copied().unwrap_or(i64::MIN);
        if renewed_ms.saturating_add(lease_ms) > now_ms {
            let age = now_ms - renewed_ms;
            self.violations.push(format!("worker {by} took over from worker {from}, whose lease of {lease_ms} ms is {age} ms old"));
        }
    }

    pub(super) fn step_started(&mut self, worker: WorkerId, fiber: &str, step: &str, name: &str) {
        if self.claimants.get(fiber) != Some(&worker) {
            self.violations.push(format!("worker {worker} began `{step}` of {name} without a claim that is in force"));
            return;
        }
        let after = self.known.get(&(worker, fiber.to_owned())).copied().unwrap_or_default();
        if self.finished.contains(&(fiber.to_owned(), step.to_owned(), after + 1)) {
            self.violations
                .push(format!("a finished step was repeated: worker {worker} began `{step}` of {name} after checkpoint {after}"));
        }
    }

    pub(super) fn step_finished(&mut self, fiber: &str, step: &str, checkpoint: u64) {
        self.finished.insert((fiber.to_owned(), step.to_owned(), checkpoint));
    }
}
