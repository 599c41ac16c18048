//! Operations: effects on the outside world and their ledger, transactions, and what a step keeps
//! between its attempts.

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

pub use crate::store::{OpState, Tx};
pub use log::OpLog;
pub use manual::OpCall;
pub use on_unknown::{Answer, OnUnknown};
pub use op::Op;
pub use resolve::{OpResolution, OpStatus};
pub use transaction::TransactionCall;
