//! The fence: what the database does with a claim, a write and a takeover.
//!
//! The model goes from state to state by these rules, and the histories of real runs are replayed
//! by them.

/// The rules. A mutation of the model leaves one of them out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a rule that a mutation leaves out")]
pub(crate) struct Rules {
    /// A claim raises the epoch.
    pub(crate) claim_raises_epoch: bool,
    /// A checkpoint, and that a fiber waits, is stored only at the epoch of its claim.
    pub(crate) write_needs_epoch: bool,
    /// An end is stored only at the epoch of its claim.
    pub(crate) end_needs_epoch: bool,
    /// A fiber that is released has another epoch.
    pub(crate) release_raises_epoch: bool,
}

impl Rules {
    /// The rules of the store.
    pub(crate) const ALL: Rules =
        Rules { claim_raises_epoch: true, write_needs_epoch: true, end_needs_epoch: true, release_raises_epoch: true };
}

/// A fiber, as its rows in the database say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct StoredFiber {
    /// Epoch of the newest claim.
    pub(crate) epoch: usize,
    /// Number of the last checkpoint.
    pub(crate) number: usize,
    /// Results of branches and operations, and stashes, that were stored since then.
    pub(crate) results: usize,
    /// The worker that runs it.
    pub(crate) worker: Option<usize>,
    pub(crate) has_ended: bool,
}

/// A change of a fiber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Change {
    Claim {
        by: usize,
    },
    /// The writes of an activation, with the epoch of its claim.
    Checkpoint {
        epoch: usize,
        number: usize,
    },
    /// A branch, an operation or a stash is stored; the checkpoint stays the same.
    Result {
        epoch: usize,
    },
    /// The fiber waits, and no worker runs it meanwhile.
    Wait {
        epoch: usize,
    },
    End {
        epoch: usize,
    },
    /// Another worker takes over.
    TakeOver,
}

impl StoredFiber {
    /// A fiber that no worker has claimed yet.
    pub(crate) const NEW: StoredFiber = StoredFiber { epoch: 0, number: 0, results: 0, worker: None, has_ended: false };

    /// The fiber after a change; `None` where the database refuses the change.
    pub(crate) fn after(&self, change: Change, rules: Rules) -> Option<StoredFiber> {
        let is_fenced = |epoch: usize, needs_epoch: bool| needs_epoch && epoch != self.epoch;
        let (is_accepted, after) = match change {
            Change::Claim { by } => {
                let epoch = self.epoch + usize::from(rules.claim_raises_epoch);
                // It may run its own fiber again, whose stop it could not store.
                (self.worker.is_none_or(|worker| worker == by), StoredFiber { epoch, worker: Some(by), ..*self })
            }
            Change::Checkpoint { epoch, number } => {
                (!is_fenced(epoch, rules.write_needs_epoch) && number == self.number + 1, StoredFiber { number, results: 0, ..*self })
            }
            Change::Result { epoch } => (!is_fenced(epoch, rules.write_needs_epoch), StoredFiber { results: self.results + 1, ..*self }),
            Change::Wait { epoch } => {
                let raised = self.epoch + usize::from(rules.release_raises_epoch);
                (!is_fenced(epoch, rules.write_needs_epoch), StoredFiber { epoch: raised, worker: None, ..*self })
            }
            Change::End { epoch } => (!is_fenced(epoch, rules.end_needs_epoch), StoredFiber { worker: None, has_ended: true, ..*self }),
            Change::TakeOver => (true, StoredFiber { epoch: self.epoch + 1, worker: None, ..*self }),
        };
        (is_accepted && !self.has_ended).then_some(after)
    }

    /// Whether a change is no write, or one that comes while a worker runs the fiber. The database
    /// does not ask that of a write: the model shows that it holds.
    pub(crate) fn is_held_for(&self, change: Change) -> bool {
        matches!(change, Change::Claim { .. } | Change::TakeOver) || self.worker.is_some()
    }
}
