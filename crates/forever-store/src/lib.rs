//! Stores of `forever`: the SQLite store, and the traits for one of your own. Use it through the
//! `forever` crate, as `forever::store`.
//!
//! A runtime keeps everything that outlives its process in one [`Store`], in terms of whole
//! operations: "replace this snapshot", "claim this fiber", "end this turn". Each is one
//! transaction, durable when its future is ready. What is stored is text and numbers: nothing here
//! knows a fiber's function, an agent or a chat by its type.
//!
//! ```
//! # mod forever { pub use forever_store as store; pub use forever_store::Result; }
//! use forever::store::{AdminStore, FiberRef, FiberStore, Sqlite};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> forever::Result<()> {
//! let store = Sqlite::in_memory().await?;
//! assert!(store.find(FiberRef::Key("order-1".to_owned())).await?.is_none());
//! assert!(store.counts(Vec::new()).await?.is_empty());
//! store.abandon();
//! # Ok(())
//! # }
//! ```
//!
//! # Where to look
//!
//! - A store that the program opens itself: [`Sqlite::open`] with its [`Durability`].
//! - A store of your own: [`Store`] has the contract, and the module `conformance` (feature
//!   `conformance`) tests it. Its groups are [`FiberStore`], [`OpStore`], [`StreamStore`],
//!   [`AdminStore`], [`AgentStore`] and [`ChatStore`]. A wrapper holds another store and delegates.
//! - One database for many workers: [`ClusterStore`], which a [`FiberStore::cluster`] gives.
//! - Tables of the program in the same SQLite file: [`Tx`], with the types of [`rusqlite`].
//! - What failed: [`Error`] with its [`ErrorKind`].
//!
//! # Stability
//!
//! The traits are for implementers, and every program can construct their data types. Both may gain
//! members between minor versions before 1.0.
mod admin;
mod agents;
mod chat;
mod cluster;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod copies;
mod error;
mod fibers;
mod future;
mod interactions;
mod ops;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod paused;
mod snapshot;
#[doc(hidden)]
pub mod sqlite;
mod streams;
mod troubles;
mod witness;

use std::fmt;

use sha2::{Digest, Sha256};

pub use admin::{
    AdminStore, AgentRow, CommandResult, DeleteCursor, DeleteResult, Deletion, FiberCount, FiberQuery, FiberRef, FiberTombstone, Restart,
    RestartResult,
};
pub use agents::{AgentHold, AgentId, AgentStore, FarSchedules, KeepAliveRow, NewScheduleRow, RunResult, ScheduleRow, ScheduleTiming};
pub use chat::{
    AcceptTurnResult, Admission, ChatStore, IncidentRow, IncidentState, InteractionCursor, InteractionQuery, InteractionRow, MessageRole,
    MessageRow, MessageUpdate, NewTurnRow, QueuePolicy, TurnFilter, TurnKind, TurnRequest, TurnRow, TurnSeq, TurnSettlement, TurnSettler,
    TurnStart, TurnState, TurnWrite, UpdateRefused,
};
pub use cluster::{
    AgentRequest, Changes, ClusterStore, DeclineResult, HoldResult, Lease, NewAgentRequest, Notification, Publication, PublishedItem,
    PublishedPage, PublishedQuery, RequestOutcome, RequestProgress, TurnProgress, Watch, WorkerRow,
};
pub use copies::{FiberCopy, FiberEdit, SnapshotCopy};
pub use error::{Error, ErrorKind, Result};
pub use fibers::{
    AcceptResult, BranchResult, Claim, ClaimResult, End, Epoch, FiberRetry, FiberRow, FiberState, FiberStore, LayoutRow, LoadedFiber,
    NewFiber, NewMessage, NewSnapshot, PendingMessage, ReadySender, Runnable, SendResult, Seq, StoredClaim, Suspension, TopicPage,
    TopicRow, UnfinishedGroup, UnreadMessages, UnreadSender, Wait, WaitResult, WorkerId,
};
#[doc(hidden)]
pub use fibers::{CommitNotices, SECRET_MARK};
pub use future::BoxFuture;
pub use interactions::InteractionKind;
#[doc(hidden)]
pub use ops::TransactionResult;
pub use ops::{OpKind, OpOutcome, OpRecord, OpRetry, OpRow, OpState, OpStore, OpsDelta, ResolveOpResult, ResolvedOp};
pub use snapshot::{SnapshotDelta, SnapshotRows};
pub use sqlite::user::Tx;
pub use sqlite::{Durability, Sqlite};
pub use streams::{
    FAILED_IN, HISTORY, LOGS, OUTPUTS, PROGRESS, StreamAppend, StreamBatch, StreamStore, StreamsDelta, log_number, log_stream, op_stream,
    output_stream,
};
pub use troubles::{LONGEST_QUEUE, QueueRow, REASON, RetryRow, StopRow};

#[doc(hidden)]
pub use witness::{Asks, Pages, SeenBy, Witness};

/// The types of `rusqlite` that a closure with a [`Tx`] needs. Use them in place of a dependency of
/// your own, so that the two are one version: one from 0.32 to 0.43, which goes with what else
/// in the program uses SQLite. A shorter range is a breaking change of this library.
// Not all of it: its `fallible_iterator` has an `Iterator` and an `Option`, and with them in sight
// the compiler spells out those of `std` in every message.
pub mod rusqlite {
    pub use ::rusqlite::{
        CachedStatement, Connection, Error, ErrorCode, MappedRows, OptionalExtension, Params, Result, Row, Rows, Statement, ToSql,
        named_params, params, params_from_iter, types,
    };
}

/// Everything that a runtime stores; implemented for every type that has the six groups.
///
/// [`FiberStore`] has fibers and their activations, [`OpStore`] the ledger of operations,
/// [`AdminStore`] commands, lists and deletion, [`AgentStore`] agents and schedules,
/// [`ChatStore`] turns and messages, and [`StreamStore`] what fibers append. A wrapper holds
/// another store and delegates.
///
/// ```
/// # mod forever { pub use forever_store as store; pub use forever_store::Result; }
/// use forever::store::{FiberState, Sqlite, Store};
///
/// /// Works with any store: `Builder::store` takes one as well.
/// async fn failed(store: &dyn Store) -> forever::Result<u64> {
///     let counts = store.counts(vec![FiberState::Failed]).await?;
///     Ok(counts.iter().map(|count| count.fibers).sum())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// assert_eq!(failed(&Sqlite::in_memory().await?).await?, 0);
/// # Ok(())
/// # }
/// ```
///
/// # What an implementation keeps to
///
/// - **Atomic.** An operation takes effect whole or not at all. One that returns an error has
///   changed nothing, except with [`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown).
/// - **Durable.** A write survives a crash of the process from the moment its future is ready.
///   Operations may share a transaction and a sync, but none fails because of another one.
/// - **Serializable.** Concurrent operations on the same fiber, agent or chat have the effect of
///   some order of them. A read sees every write whose future was ready before the read was called.
/// - **Fenced.** An operation that takes a [`Claim`] is conditional on it, in its own transaction:
///   the stored epoch of the fiber must be the claim's. Otherwise it fails with
///   [`ClaimLost`](crate::ErrorKind::ClaimLost) and changes nothing. The condition comes before all
///   others, so that a lost claim is reported as such whatever else is wrong. Operations, logs,
///   stashes, branch results and the writes of turns ask also that the fiber is `running`: a task
///   of the program may call them after the activation has stopped.
/// - **Cancel-safe.** The runtime may drop a future at any await. The operation is carried out with
///   all its consequences, or not at all. Fibers that it makes ready are sent to the
///   [`ReadySender`] all the same.
/// - **Opaque.** Texts go in and come out unchanged, to the byte. The store may compare fiber
///   arguments and schedule payloads, with [`arguments_digest`] and [`is_same_payload`].
/// - **Off the caller's thread.** Futures must not block: they are polled by the tasks of the
///   runtime.
///
/// The module `conformance` (feature `conformance`) tests this as far as calls of the operations
/// can show it, with two workers over one store. It kills no process, so whether writes are durable
/// is for tests of the implementation.
///
/// # Numbers and times
///
/// Sequence numbers ([`Seq`], [`TurnSeq`], [`WorkerId`]) count up in the order of acceptance and
/// are never given twice, also not after a deletion. All are positive.
///
/// Every `_ms` is a time in milliseconds since the Unix epoch, UTC, or a length in milliseconds.
/// The runtime passes `now_ms` to each operation that stores or compares a time, from the `Clock`
/// of its builder.
///
/// # Errors
///
/// Operations return [`Error`], made by [`Error::new`] and [`Error::with_source`]. The runtime goes
/// by the kind:
///
/// | kind | when | what the runtime does |
/// |---|---|---|
/// | [`ClaimLost`](crate::ErrorKind::ClaimLost) | the claim is not in force | drops the activation silently |
/// | [`Store`](crate::ErrorKind::Store) | the write failed and is not stored | interrupts the fiber and retries with backoff; a command fails |
/// | [`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown) | the commit may or may not have happened | the same; the error reaches the caller, whose repetition needs an id or key |
/// | [`Value`](crate::ErrorKind::Value) | a stored row cannot be read | parks the fiber whose load fails, with the error as the reason; any other call fails |
/// | [`DatabaseLost`](crate::ErrorKind::DatabaseLost) | the database was removed or replaced | every later call should fail so too |
/// | [`Closed`](crate::ErrorKind::Closed) | after [`FiberStore::close`] or [`FiberStore::abandon`] | stops |
pub trait Store: FiberStore + StreamStore + AdminStore + AgentStore + OpStore + ChatStore + Send + Sync + fmt::Debug {}

impl<S: FiberStore + StreamStore + AdminStore + AgentStore + OpStore + ChatStore + Send + Sync + fmt::Debug> Store for S {}

/// Digest of the arguments of a fiber, for its [`FiberTombstone`]: 32 hexadecimal digits.
///
/// Equal for texts of the same arguments, also where the entries of a set or map stand in another
/// order.
pub fn arguments_digest(args: &str) -> String {
    digest(Sha256::new(), args)
}

/// Digest of a message that is sent with an id: 32 hexadecimal digits.
///
/// Equal for the same topic with the same value, also where the entries of a set or map stand in
/// another order.
pub fn message_digest(topic: &str, data: &str) -> String {
    digest(Sha256::new().chain_update(topic.len().to_be_bytes()).chain_update(topic), data)
}

/// Digest of what was hashed before and a value, JSON. A text that is no JSON stands for itself.
fn digest(before: Sha256, json: &str) -> String {
    let unordered = forever_json::unordered(json);
    hex(&before.chain_update(unordered.as_deref().unwrap_or(json)).finalize()[..16])
}

/// Whether two payloads of schedules are the same value; see [`NewScheduleRow::idempotent`].
///
/// The order of the entries of a set or map makes no difference.
pub fn is_same_payload(one: &str, other: &str) -> bool {
    forever_json::same(one, other)
}

/// Lower-case hexadecimal digits.
// For the runtime, whose ids and hashes are written the same way.
#[doc(hidden)]
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_differ_also_for_values_that_cannot_be_compared_as_json() {
        let deep = |inner: &str| format!("{}{inner}{}", "[".repeat(100_000), "]".repeat(100_000));
        for (one, other) in [(deep("1"), deep("2")), ("no json".to_owned(), "{".to_owned())] {
            assert!(forever_json::unordered(&one).is_err());
            assert_ne!(message_digest("go", &one), message_digest("go", &other));
            assert_ne!(arguments_digest(&one), arguments_digest(&other));
            assert_eq!(message_digest("go", &one), message_digest("go", &one));
            assert_ne!(message_digest("go", &one), message_digest("stop", &one));
        }
    }
}
