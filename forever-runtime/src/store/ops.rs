//! What is stored of operations: the ledger of effects, and what a step keeps between its attempts.
use std::any::Any;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::sqlite::user::Tx;
use super::{Claim, CommandResult, Seq};
use crate::error::{Error, Result};
use crate::fiber::frame::BoxFuture;

/// What is known of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OpState {
    /// It has begun. If nothing runs it now, nobody knows whether it was carried out.
    Started,
    /// It was carried out, and its result is stored.
    Completed,
    /// It has ended with an error, which is stored.
    Failed,
    /// It was begun, and somebody found that it was not carried out.
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

/// What an operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpKind {
    /// A plain step, of which something is kept until its checkpoint.
    Step,
    /// A step that is an `effect`.
    Effect,
    /// One made by hand, under a key of its own.
    ByHand,
    /// A transaction in the program's own tables; kept until the next checkpoint, so that it is not made twice.
    Transaction,
}

impl OpKind {
    pub(crate) const ALL: [OpKind; 4] = [OpKind::Step, OpKind::Effect, OpKind::ByHand, OpKind::Transaction];

    /// The stored word.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            OpKind::Step => "step",
            OpKind::Effect => "effect",
            OpKind::ByHand => "op",
            OpKind::Transaction => "transaction",
        }
    }

    /// Whether it goes with the checkpoint that follows it.
    pub(crate) fn is_temporary(self) -> bool {
        matches!(self, OpKind::Step | OpKind::Transaction)
    }
}

/// An operation as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpRecord {
    /// Stable over re-runs of the same operation at the same place.
    pub(crate) id: String,
    pub(crate) kind: OpKind,
    /// The stored name of the function that has the step; what a closure fiber was called.
    pub(crate) function: String,
    /// The step's stored name; of an operation by hand, its kind.
    pub(crate) step: String,
    /// Canonical JSON of what is part of its id.
    pub(crate) key: Option<String>,
    /// How many checkpoints the fiber had made when it began; of one by hand, which is the same wherever the fiber stands, nothing.
    pub(crate) number: Option<u64>,
    pub(crate) state: OpState,
    /// The result, text of [`crate::exact`], or the error's text.
    pub(crate) outcome: Option<String>,
    /// Whether a person has said how it ended.
    pub(crate) resolved: bool,
    /// How many attempts have failed.
    pub(crate) failed: u32,
    /// What the body stashed last, as text of [`crate::exact`].
    pub(crate) stash: Option<String>,
}

impl OpRecord {
    /// One that begins.
    pub(crate) fn begun(id: String, kind: OpKind, function: &str, step: &str, key: Option<String>, number: Option<u64>) -> Self {
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
            stash: None,
        }
    }
}

/// An operation that has ended, to be stored with what comes next of its fiber.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SettledOp {
    pub(crate) number: Option<u64>,
    pub(crate) id: String,
    pub(crate) state: OpState,
    pub(crate) outcome: Option<String>,
}

/// What a checkpoint, or the end of a fiber, does to its operations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OpsBehind {
    pub(crate) settled: Vec<SettledOp>,
    /// Whether anything is kept that goes with a checkpoint.
    pub(crate) temporary: bool,
}

/// An operation in a list, with when it began and was changed last.
#[derive(Debug, Clone)]
pub(crate) struct OpRow {
    pub(crate) record: OpRecord,
    pub(crate) started_ms: i64,
    pub(crate) changed_ms: i64,
}

/// How an operation is resolved: its new state, and what it ended with.
#[derive(Debug, Clone)]
pub(crate) struct ResolveOp {
    pub(crate) id: String,
    pub(crate) state: OpState,
    pub(crate) outcome: Option<String>,
}

/// Result of a [`ResolveOp`].
#[derive(Debug)]
pub(crate) enum ResolvedOp {
    /// It is stored; a fiber that was parked is ready now.
    Done,
    /// Its outcome was known before.
    Known(OpState),
}

/// What a program does in a transaction in its own tables: the text of what it gives, or `None` if all of it is to be taken back. It may
/// be run more than once, and only what the last one did is stored.
pub(crate) type Work = Box<dyn FnMut(&Tx<'_>) -> Option<String> + Send>;

/// What became of a transaction of the program's.
#[derive(Debug)]
pub(crate) enum Transacted {
    /// It is stored.
    Done,
    /// It was carried out before, and gave this.
    Before(String),
    /// The program wanted it taken back, and it is.
    Back,
    /// It did what it must not, or cannot be committed, and is taken back.
    Refused(Error),
    /// It panicked, and is taken back.
    Panicked(Box<dyn Any + Send>),
}

/// The storage of operations.
pub(crate) trait OpStore {
    /// Stores an operation in place of what was stored of it. One that has ended loses its stash and its log.
    fn save_op(&self, claim: Claim, record: OpRecord, now_ms: i64) -> BoxFuture<'_, Result<()>>;

    /// Carries out a transaction in the program's own tables, for a fiber or outside. With a record, that is stored in the same transaction, as
    /// completed with what the work gave; if it is stored so already, the work is not run.
    fn transact(&self, of: Option<(Claim, Option<OpRecord>)>, work: Work, now_ms: i64) -> BoxFuture<'_, Result<Transacted>>;

    /// An operation by hand.
    fn load_op(&self, seq: Seq, id: String) -> BoxFuture<'_, Result<Option<OpRecord>>>;

    /// Appends to the log of an operation, which is stored first if it is not there; the fiber's deaths are forgotten.
    fn log_op(&self, claim: Claim, record: OpRecord, items: Vec<String>, now_ms: i64) -> BoxFuture<'_, Result<()>>;

    /// The log of an operation.
    fn op_log(&self, seq: Seq, number: Option<u64>, id: String) -> BoxFuture<'_, Result<Vec<String>>>;

    /// The effects and the operations by hand of a fiber, in the order in which they began.
    fn ops(&self, seq: Seq) -> BoxFuture<'_, Result<Vec<OpRow>>>;

    /// An operation by id, and the fiber it is of, whichever that is.
    fn find_op(&self, id: String) -> BoxFuture<'_, Result<Option<(Seq, OpRecord)>>>;

    /// Stores how an operation of a fiber that does not run has ended; a parked fiber becomes ready.
    fn resolve_op(&self, seq: Seq, how: ResolveOp, now_ms: i64) -> BoxFuture<'_, Result<CommandResult<ResolvedOp>>>;
}
