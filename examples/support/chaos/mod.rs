//! The parts of the chaos program.
pub(crate) mod audit;
mod driver;
pub(crate) mod faults;
pub(crate) mod fibers;
pub(crate) mod journal;
pub(crate) mod killer;
pub(crate) mod money;
mod office;
mod outside;
mod peek;
pub(crate) mod round;
mod stored;
mod track;
pub(crate) mod worker;
pub(crate) mod world;

use std::str::FromStr;

/// A way to break what is promised, so that the audit has something to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sabotage {
    /// The bank takes no notice of ids.
    Bank,
    /// A fiber's row disappears.
    Fiber,
    /// A fiber's snapshot is empty again.
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
