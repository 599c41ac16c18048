//! Operations: outside effects and their ledger, transactions, and what a step keeps between its
//! attempts.
//!
//! `step!("charge", effect, on_unknown = ..)` records its operation before its body begins. After a
//! crash in the body it is unknown whether it was executed: then the policy [`OnUnknown`] decides,
//! and where it cannot, the fiber parks until a person gives an [`OpResolution`].
//!
//! [`Op`] is the operation inside the body, with its id, its stash and its [log](OpLog);
//! [`OpStatus`] is its row in the ledger. An [`OpCall`] is an operation without a step, and a
//! [`TransactionCall`] writes to tables of the program, with [`Tx`], in the commit of its result.
//! On Postgres (feature `postgres`) it is a `PostgresTransactionCall` with a `PostgresTx`.
//!
//! ```
//! # use forever_runtime as forever;
//! use forever::Forever;
//! use forever::ops::{OpResolution, OpState};
//!
//! /// Resolves all operations in doubt of a fiber, after a look at the other side's books.
//! async fn none_was_executed(forever: &Forever, fiber: &str) -> forever::Result<()> {
//!     for op in forever.ops(fiber).await? {
//!         if op.state == OpState::Started {
//!             forever.resolve_op(&op.id, OpResolution::NotExecuted).await?;
//!         }
//!     }
//!     Ok(())
//! }
//! ```

pub(crate) mod effect;
pub(crate) mod known;
pub(crate) mod ledger;
pub(crate) mod log;
pub(crate) mod manual;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod memory;
pub(crate) mod on_unknown;
pub(crate) mod op;
#[cfg(feature = "postgres")]
pub(crate) mod postgres_transaction;
pub(crate) mod resolve;
pub(crate) mod stored_ledger;
pub(crate) mod transaction;
pub(crate) mod tx_position;
mod under_way;

pub use crate::store::{OpState, Tx};
#[cfg(feature = "postgres")]
#[cfg_attr(docsrs, doc(cfg(feature = "postgres")))]
#[doc(inline)]
pub use forever_postgres::{PostgresTx, PostgresTxFn};
pub use log::OpLog;
pub use manual::OpCall;
pub use on_unknown::{Answer, OnUnknown};
pub use op::Op;
#[cfg(feature = "postgres")]
#[cfg_attr(docsrs, doc(cfg(feature = "postgres")))]
pub use postgres_transaction::PostgresTransactionCall;
pub use resolve::{OpResolution, OpStatus};
pub use transaction::TransactionCall;
