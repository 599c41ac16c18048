//! Histories of real runs, replayed by the rules of the model.
//!
//! A line of a history has the id of a fiber, what happened, the epoch, the number of the checkpoint
//! and the worker after it, and the epoch of the claim that the writer had; 0 stands for none.
use std::collections::BTreeMap;

use super::fence::{Change, Rules, StoredFiber};

/// A replay: the fibers as they are after the lines that were read.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    fibers: BTreeMap<String, StoredFiber>,
}

impl Trace {
    /// Replays the next line.
    ///
    /// # Errors
    /// Why the model has no such change of this fiber at this point.
    pub(crate) fn replay(&mut self, line: &str) -> Result<(), String> {
        let words: Vec<&str> = line.split(' ').collect();
        let [id, what, numbers @ ..] = &words[..] else { return Err(format!("a damaged line: {line}")) };
        let numbers: Result<Vec<usize>, _> = numbers.iter().map(|word| word.parse()).collect();
        let Ok([epoch, number, worker, writer]) = numbers.as_deref().map(|numbers| <[usize; 4]>::try_from(numbers).unwrap_or_default())
        else {
            return Err(format!("a damaged line: {line}"));
        };
        let before = self.fibers.get(*id).copied();
        if before.is_some() == (*what == "made") {
            return Err(format!("a fiber begins with its row, once: {line}"));
        }
        let before = before.unwrap_or(StoredFiber::NEW);
        let worker = (worker > 0).then_some(worker);
        // A release that a worker has written has its claim as the reason, or leaves the epoch as it is.
        let is_wait = writer > 0 || epoch == before.epoch;
        // Where the writer is not known it is taken for the holder of the newest claim.
        let writer = if writer > 0 { writer } else { before.epoch };
        let (change, ends) = match (*what, worker) {
            ("made", None) => (None, false),
            ("made" | "claimed", Some(by)) => (Some(Change::Claim { by }), false),
            ("checkpoint", _) => (Some(Change::Checkpoint { epoch: writer, number }), false),
            ("released", None) if is_wait => (Some(Change::Wait { epoch: writer }), false),
            ("released", None) => (Some(Change::TakeOver), false),
            ("completed" | "failed" | "cancelled", _) => (Some(Change::End { epoch: writer }), true),
            _ => return Err(format!("no change is described so: {line}")),
        };
        // Of an end the history shows nothing but that it happened.
        let shown = if ends {
            StoredFiber { worker: None, has_ended: true, ..before }
        } else {
            StoredFiber { epoch, number, results: 0, worker, has_ended: false }
        };
        self.fibers.insert((*id).to_owned(), shown);
        let after = change.map_or(Some(before), |change| before.after(change, Rules::ALL));
        match after {
            None => Err(format!("the model refuses {change:?} of {before:?}: {line}")),
            Some(after) if after != shown => Err(format!("the model has {after:?} after {change:?}: {line}")),
            Some(_) if change.is_some_and(|change| !before.is_held_for(change)) => Err(format!("no worker runs the fiber: {line}")),
            Some(_) => Ok(()),
        }
    }

    /// The fibers, by id.
    pub(crate) fn fibers(&self) -> &BTreeMap<String, StoredFiber> {
        &self.fibers
    }
}
