//! The ledger of operations: data types and [`OpStore`].
use std::any::Any;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Claim, CommandResult, LayoutRow, Seq};
use crate::error::{Error, Result};
use crate::future::BoxFuture;

/// State of an operation.
///
/// ```
/// # mod forever { pub mod ops { pub use forever_store::OpState; } }
/// use forever::ops::OpState;
///
/// /// What happens to an operation when its fiber is resumed.
/// fn on_resume(state: OpState) -> &'static str {
///     match state {
///         OpState::Completed => "its result is returned again",
///         OpState::Failed => "its error is returned again",
///         OpState::NotExecuted => "its body runs",
///         OpState::Started => "its policy for an unknown outcome decides",
///         _ => "unknown",
///     }
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OpState {
    /// It has begun. Unless it is under way in this process, its outcome is unknown.
    Started,
    /// It was carried out, and its result is stored.
    Completed,
    /// It has ended with an error, which is stored.
    Failed,
    /// It was begun, and not carried out: an attempt has failed and another one is to come, its
    /// process ended before it was carried out, or a person has resolved it so.
    NotExecuted,
}

impl OpState {
    pub(crate) const ALL: [OpState; 4] = [OpState::Started, OpState::Completed, OpState::Failed, OpState::NotExecuted];

    /// The stored word.
    pub fn as_str(self) -> &'static str {
        match self {
            OpState::Started => "started",
            OpState::Completed => "completed",
            OpState::Failed => "failed",
            OpState::NotExecuted => "not_executed",
        }
    }
}

impl fmt::Display for OpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for OpState {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        OpState::ALL.into_iter().find(|s| s.as_str() == word).ok_or_else(|| format!("`{word}` is not a state of an operation"))
    }
}

/// Kind of an operation.
///
/// ```
/// # mod forever { pub use forever_store as store; pub use forever_store::Result; }
/// use forever::store::{OpKind, OpRecord};
///
/// /// Whether a checkpoint of the fiber deletes the record, and the ledger does not list it.
/// fn is_temporary(record: &OpRecord) -> bool {
///     match record.kind {
///         OpKind::Step | OpKind::Transaction => true,
///         OpKind::Effect | OpKind::ByHand => false,
///     }
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpKind {
    /// Plain step with a stash, a log or failed attempts. Temporary.
    Step,
    /// Step that is an `effect`.
    Effect,
    /// Manual operation (`ctx.op`), under its own key.
    ByHand,
    /// Transaction in the program's own tables. Temporary.
    Transaction,
}

impl OpKind {
    pub(crate) const ALL: [OpKind; 4] = [OpKind::Step, OpKind::Effect, OpKind::ByHand, OpKind::Transaction];

    /// The stored word.
    pub fn as_str(self) -> &'static str {
        match self {
            OpKind::Step => "step",
            OpKind::Effect => "effect",
            OpKind::ByHand => "op",
            OpKind::Transaction => "transaction",
        }
    }

    /// Whether its record is deleted by the checkpoint that follows it.
    pub fn is_temporary(self) -> bool {
        matches!(self, OpKind::Step | OpKind::Transaction)
    }
}

impl FromStr for OpKind {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        OpKind::ALL.into_iter().find(|k| k.as_str() == word).ok_or_else(|| format!("`{word}` is not a kind of operation"))
    }
}

/// Record of an operation. Its key in the store is the fiber, `number` and `id`.
///
/// See [`OpStore`] for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpRecord {
    /// Operation id, stable over re-runs of the same operation in the same place.
    pub id: String,
    /// Kind.
    pub kind: OpKind,
    /// Stored name of the function that has the step, or the name of a closure fiber.
    pub function: String,
    /// Stored name of the step; for a manual operation, its kind in the program.
    pub step: String,
    /// Key that is a part of its id, canonical JSON.
    pub key: Option<String>,
    /// Number of checkpoints that the fiber had made when it began. `None` for manual operations,
    /// which are the same at every position of the fiber.
    pub number: Option<u64>,
    /// State.
    pub state: OpState,
    /// Result, JSON, or the error's text.
    pub outcome: Option<String>,
    /// Whether a person has resolved it.
    pub resolved: bool,
    /// Number of failed attempts.
    pub failed: u32,
    /// What is known of the last failed attempt, while another one is to come or under way.
    pub retry: Option<OpRetry>,
    /// Last stash of its body, JSON.
    pub stash: Option<String>,
    /// Layout of `function` that it began under. `None` for manual operations, in closure fibers,
    /// and in lists.
    pub layout: Option<Arc<LayoutRow>>,
}

impl OpRecord {
    /// An operation that begins.
    // For the runtime, which begins them; the order of its arguments is not for others.
    #[doc(hidden)]
    pub fn begun(id: String, kind: OpKind, function: &str, step: &str, key: Option<String>, number: Option<u64>) -> Self {
        OpRecord {
            id,
            kind,
            function: function.to_owned(),
            step: step.to_owned(),
            key,
            number,
            state: OpState::Started,
            outcome: None,
            resolved: false,
            failed: 0,
            retry: None,
            stash: None,
            layout: None,
        }
    }
}

/// Failed attempt of a step that is retried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpRetry {
    /// Text of its error.
    pub error: String,
    /// Time at which the next attempt is due. In the past while that is under way.
    pub next_ms: i64,
}

/// Outcome of an operation, stored with the next checkpoint or the end of its fiber.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpOutcome {
    /// [`OpRecord::number`] of the operation.
    pub number: Option<u64>,
    /// Operation id.
    pub id: String,
    /// New state.
    pub state: OpState,
    /// Result, JSON, or the error's text.
    pub outcome: Option<String>,
}

/// Changes that a checkpoint makes to the operations that began since the last one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpsDelta {
    /// Outcomes to store. Failed attempts, stash and log of these operations are deleted.
    pub settled: Vec<OpOutcome>,
    /// Whether there are temporary operations, to be deleted.
    pub temporary: bool,
}

/// Operation in a list of the ledger.
///
/// See [`OpStore`] for an example.
#[derive(Debug, Clone)]
pub struct OpRow {
    /// Record.
    pub record: OpRecord,
    /// Time at which it was stored first.
    pub started_ms: i64,
    /// Time at which it was changed last.
    pub changed_ms: i64,
}

/// Resolution of an operation by a person.
#[derive(Debug, Clone)]
pub struct ResolvedOp {
    /// Operation id.
    pub id: String,
    /// New state.
    pub state: OpState,
    /// Result, JSON, or the error's text.
    pub outcome: Option<String>,
}

/// Result of an [`ResolvedOp`].
#[derive(Debug)]
pub enum ResolveOpResult {
    /// The outcome is stored.
    Done,
    /// The outcome was known before, with this state. Nothing was changed.
    Known(OpState),
}

/// Result of a transaction of the program.
// For the runtime, and the stores that it knows.
#[doc(hidden)]
#[derive(Debug)]
pub enum TransactionResult {
    /// It is committed, with the result of this run.
    Done,
    /// It was committed before, with this result.
    Before(String),
    /// The program asked for a rollback, and it is rolled back.
    Back,
    /// It tried something forbidden, or cannot be committed, and is rolled back.
    Refused(Error),
    /// It panicked, and is rolled back.
    Panicked(Box<dyn Any + Send>),
}

/// Storage of the ledger of operations.
///
/// ```
/// # mod forever { pub use forever_store as store; pub use forever_store::Result; }
/// use forever::store::{FiberRef, OpState, OpStore, Store};
///
/// /// Ids of the operations of a fiber whose outcome is unknown.
/// async fn in_doubt(store: &dyn Store, fiber: &str) -> forever::Result<Vec<String>> {
///     let Some(fiber) = store.find(FiberRef::Id(fiber.to_owned())).await? else {
///         return Ok(Vec::new());
///     };
///     let ops = store.ops(fiber.seq).await?.into_iter().map(|row| row.record);
///     Ok(ops.filter(|op| op.state == OpState::Started).map(|op| op.id).collect())
/// }
/// ```
pub trait OpStore {
    /// Stores an operation in place of the record of the same key.
    ///
    /// The time of its first storing stays. One that is not `started` any more loses its log. A
    /// stash is progress of the fiber, which sets its deaths to 0.
    fn save_op(&self, claim: Claim, record: OpRecord, now_ms: i64) -> BoxFuture<'_, Result<()>>;

    /// Returns a manual operation.
    fn load_op(&self, seq: Seq, id: String) -> BoxFuture<'_, Result<Option<OpRecord>>>;

    /// Appends items to the log of an operation: its stream [`op_stream`](crate::op_stream).
    ///
    /// Stores the operation as [`save_op`](Self::save_op) does.
    ///
    /// It is progress of the fiber, which sets its deaths to 0.
    fn append_op_log(&self, claim: Claim, record: OpRecord, items: Vec<String>, now_ms: i64) -> BoxFuture<'_, Result<()>>;

    /// Lists the effects and manual operations of a fiber.
    ///
    /// By the time at which they were stored first, then by number, then by id.
    fn ops(&self, seq: Seq) -> BoxFuture<'_, Result<Vec<OpRow>>>;

    /// Finds an effect or a manual operation by its id, with its fiber.
    fn find_op(&self, id: String) -> BoxFuture<'_, Result<Option<(Seq, OpRecord)>>>;

    /// Stores the outcome of an effect or a manual operation that is `started`.
    ///
    /// Refused while its fiber is pending or running. A parked fiber becomes ready; of any other
    /// the epoch is raised. The stash and log stay only if the operation was not executed, and so
    /// runs again. [`NotFound`](CommandResult::NotFound) where there is no such fiber or operation.
    fn resolve_op(&self, seq: Seq, resolution: ResolvedOp, now_ms: i64) -> BoxFuture<'_, Result<CommandResult<ResolveOpResult>>>;
}
