//! Ways to break a promise, so that the audit has something to find.
use std::str::FromStr;

/// Way to break a promise, so that the audit has something to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sabotage {
    /// The bank ignores ids.
    Bank,
    /// A fiber's row is deleted.
    Fiber,
    /// A fiber's snapshot is emptied.
    Snapshot,
}

impl FromStr for Sabotage {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "bank" => Ok(Sabotage::Bank),
            "fiber" => Ok(Sabotage::Fiber),
            "snapshot" => Ok(Sabotage::Snapshot),
            _ => Err(()),
        }
    }
}
