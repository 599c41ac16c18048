//! Stores: where a runtime keeps what outlives its process.
//!
//! | store | opened by | for |
//! |---|---|---|
//! | SQLite, one file | [`Builder::sqlite`](crate::Builder::sqlite) | one process; nothing to run beside it |
//! | SQLite, in memory | [`Builder::in_memory`](crate::Builder::in_memory) | tests |
//! | Postgres, feature `postgres` | `Builder::postgres` | many workers, on many machines |
//! | one of your own | [`Builder::store`](crate::Builder::store) | another database, or a wrapper |
//!
//! A program that uses one of the first three needs nothing of this module. [`Sqlite`] and
//! `PostgresStore` open by hand what the builder opens, with more options:
//!
//! ```
//! # use forever_runtime as forever;
//! use forever::Forever;
//! use forever::store::{Durability, Sqlite};
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> forever::Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("fibers.db");
//! // Waits up to a minute for the process that owns the file.
//! let store = Sqlite::open(path, Durability::Power, Duration::from_secs(60)).await?;
//! let forever = Forever::builder().store(store).open().await?;
//! forever.close().await
//! # }
//! ```
//!
//! # A store of your own
//!
//! A [`Store`] is six traits in terms of whole operations: "replace this snapshot", "claim this
//! fiber", "end this turn". Its documentation is the contract: what is atomic, durable, fenced and
//! cancel-safe, and which errors an operation may return. The module `conformance` (feature
//! `conformance`) tests the contract as far as calls can show it. A wrapper, for metrics or faults,
//! holds another store and delegates.
//!
//! What SQLite stores, table by table, is in the guide, `docs/guide/src/reference/format.md`.
//!
//! # Stability
//!
//! The traits are for implementers, and every program can construct their data types. Both may gain
//! members between minor versions before 1.0.
#[cfg(feature = "postgres")]
#[cfg_attr(docsrs, doc(cfg(feature = "postgres")))]
#[doc(inline)]
pub use forever_postgres::{Builder as PostgresBuilder, PostgresStore};
#[cfg(feature = "conformance")]
#[doc(inline)]
pub use forever_store::conformance;
#[doc(inline)]
pub use forever_store::{
    AcceptResult, AcceptTurnResult, AdminStore, Admission, AgentHold, AgentId, AgentRequest, AgentRow, AgentStore, BoxFuture, BranchResult,
    Changes, ChatStore, Claim, ClaimResult, ClusterStore, CommandResult, DeclineResult, DeleteCursor, DeleteResult, Deletion, Durability,
    End, Epoch, FAILED_IN, FarSchedules, FiberCopy, FiberCount, FiberEdit, FiberQuery, FiberRef, FiberRetry, FiberRow, FiberState,
    FiberStore, FiberTombstone, HISTORY, HoldResult, IncidentRow, IncidentState, InteractionCursor, InteractionKind, InteractionQuery,
    InteractionRow, KeepAliveRow, LOGS, LONGEST_QUEUE, LayoutRow, Lease, LoadedFiber, MessageRole, MessageRow, MessageUpdate,
    NewAgentRequest, NewFiber, NewMessage, NewScheduleRow, NewSnapshot, NewTurnRow, Notification, OUTPUTS, OpKind, OpOutcome, OpRecord,
    OpRetry, OpRow, OpState, OpStore, OpsDelta, PROGRESS, PendingMessage, Publication, PublishedItem, PublishedPage, PublishedQuery,
    QueuePolicy, QueueRow, REASON, ReadySender, RequestOutcome, RequestProgress, ResolveOpResult, ResolvedOp, Restart, RestartResult,
    RetryRow, RunResult, Runnable, SECRET_MARK, ScheduleRow, ScheduleTiming, SendResult, Seq, SnapshotCopy, SnapshotDelta, SnapshotRows,
    Sqlite, StopRow, Store, StoredClaim, StreamAppend, StreamBatch, StreamStore, StreamsDelta, Suspension, TopicPage, TopicRow, TurnFilter,
    TurnKind, TurnProgress, TurnRequest, TurnRow, TurnSeq, TurnSettlement, TurnSettler, TurnStart, TurnState, TurnWrite, Tx,
    UnfinishedGroup, UnreadMessages, UnreadSender, UpdateRefused, Wait, WaitResult, Watch, WorkerId, WorkerRow, arguments_digest,
    is_same_payload, log_number, log_stream, message_digest, op_stream, output_stream,
};
#[cfg(feature = "testing")]
pub(crate) use forever_store::{Pages, Witness};
pub(crate) use forever_store::{SeenBy, TransactionResult, sqlite};
