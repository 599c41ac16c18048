//! The parts of the example `cluster`.
pub(crate) mod adversary;
pub(crate) mod audit;
pub(crate) mod journal;
pub(crate) mod orders;
pub(crate) mod worker;
