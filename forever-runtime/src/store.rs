//! Storage: the traits of a store, their data types, and the SQLite store.
//!
//! A runtime keeps everything that outlives its process in one [`Store`], in terms of whole
//! operations: "replace this snapshot", "claim this fiber", "end this turn". [`Sqlite`] is the
//! store behind [`Builder::sqlite`](crate::Builder::sqlite) and
//! [`Builder::in_memory`](crate::Builder::in_memory). Any other one is given to
//! [`Builder::store`](crate::Builder::store), whose example opens a runtime over a store that was
//! opened by hand.
//!
//! What an implementation keeps to is the contract of [`Store`]. The module `conformance` (feature
//! `conformance`) tests it as far as calls can show it.
//!
//! # Stability
//!
//! The traits are for implementers, and their data types can be constructed by everybody. Both may
//! gain members between minor versions before 1.0.
#[cfg(feature = "postgres")]
#[cfg_attr(docsrs, doc(cfg(feature = "postgres")))]
#[doc(inline)]
pub use forever_postgres::{Builder as PostgresBuilder, PostgresStore};
#[cfg(feature = "conformance")]
#[doc(inline)]
pub use forever_store::conformance;
pub(crate) use forever_store::sqlite;
#[doc(inline)]
pub use forever_store::{
    AcceptResult, AcceptTurnResult, AdminStore, Admission, AgentId, AgentRequest, AgentRow, AgentStore, BoxFuture, BranchResult, Changes,
    ChatStore, Claim, ClaimResult, ClusterStore, CommandResult, DeclineResult, DeleteCursor, DeleteResult, Deletion, Durability, End,
    Epoch, FarSchedules, FiberCount, FiberQuery, FiberRef, FiberRetry, FiberRow, FiberState, FiberStore, FiberTombstone, HISTORY,
    IncidentRow, IncidentState, InteractionCursor, InteractionKind, InteractionQuery, InteractionRow, KeepAliveRow, LOGS, LayoutRow,
    LoadedFiber, MessageRole, MessageRow, MessageUpdate, NewAgentRequest, NewFiber, NewMessage, NewScheduleRow, NewSnapshot, NewTurnRow,
    Notification, OpKind, OpOutcome, OpRecord, OpRetry, OpRow, OpState, OpStore, OpsDelta, PendingMessage, Publication, PublishedItem,
    PublishedPage, PublishedQuery, QueuePolicy, ReadySender, RequestOutcome, RequestProgress, ResolveOpResult, ResolvedOp, Restart,
    RestartResult, RunResult, Runnable, ScheduleRow, ScheduleTiming, SendResult, Seq, SnapshotDelta, SnapshotRows, Sqlite, Store,
    StoredClaim, StreamAppend, StreamBatch, StreamStore, StreamsDelta, Suspension, TurnFilter, TurnKind, TurnProgress, TurnRequest,
    TurnRow, TurnSeq, TurnSettlement, TurnSettler, TurnStart, TurnState, TurnWrite, Tx, UnfinishedGroup, UpdateRefused, Wait, WaitResult,
    Watch, WorkerId, WorkerRow, arguments_digest, has_pending_interaction, is_same_payload, log_number, log_stream, message_digest,
    op_stream,
};
