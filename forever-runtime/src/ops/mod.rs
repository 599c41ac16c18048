//! Operations: the state of a step between its attempts, and the ledger of effects.

pub(crate) mod effect;
pub(crate) mod known;
pub(crate) mod ledger;
pub(crate) mod log;
pub(crate) mod manual;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod memory;
pub(crate) mod on_unknown;
pub(crate) mod op;
pub(crate) mod resolve;
pub(crate) mod stored_ledger;
pub(crate) mod transaction;
pub(crate) mod tx_position;
