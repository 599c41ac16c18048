//! Admin view of the ledger: the operations of a fiber, and commands that resolve those in doubt.
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use crate::clock::from_ms;
use crate::error::{Error, ErrorKind, Result};
use crate::frame::branch_names::parts_of_branch;
use crate::frame::saved::result_as_json;
use crate::runtime::handle::as_ms;
use crate::runtime::state::Runtime;
use crate::store::{CommandResult, FiberRef, FiberState, OpRecord, OpRow, OpState, ResolveOpResult, ResolvedOp};

/// Operation of a fiber, as it is in the ledger.
///
/// As JSON its times are milliseconds since 1970, in fields that end in `_ms`.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::ops::OpState;
///
/// # async fn show(forever: &forever::Forever) -> forever::Result<()> {
/// for op in forever.ops("order-17").await? {
///     match op.state {
///         OpState::Completed => println!("{}: {:?}", op.step, op.result),
///         OpState::Started => println!("{}: in doubt, unless it is under way", op.step),
///         state => println!("{}: {state}, {:?}", op.step, op.error),
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct OpStatus {
    /// Id, which the other side knows it by.
    pub id: String,
    /// Stored name of the function that has its step; of a manual operation, that of the fiber.
    pub function: String,
    /// Stored name of its step; of a manual operation, its kind.
    pub step: String,
    /// Key that is part of its id, if there is one.
    pub key: Option<serde_json::Value>,
    /// State.
    pub state: OpState,
    /// Result, when it has completed.
    pub result: Option<serde_json::Value>,
    /// Text of the error, when it has failed.
    pub error: Option<String>,
    /// Whether a person resolved it.
    pub resolved: bool,
    /// Number of checkpoints that the fiber had made when it began; `None` for a manual operation.
    pub checkpoints: Option<u64>,
    /// Time at which it began, UTC.
    #[serde(rename = "started_ms", serialize_with = "as_ms")]
    pub started: SystemTime,
    /// Time of its last change, UTC.
    #[serde(rename = "changed_ms", serialize_with = "as_ms")]
    pub changed: SystemTime,
}

impl OpStatus {
    pub(crate) fn of(row: OpRow) -> Self {
        let OpRow { record, started_ms, changed_ms } = row;
        let OpRecord { id, function, step, key, state, outcome, resolved, number, .. } = record;
        let json = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| serde_json::Value::String(text.to_owned()));
        let (result, error) = match state {
            OpState::Completed => (outcome.as_deref().map(json), None),
            _ => (None, outcome),
        };
        OpStatus {
            id,
            function,
            step,
            key: key.as_deref().map(json),
            state,
            result,
            error,
            resolved,
            checkpoints: number,
            started: from_ms(started_ms),
            changed: from_ms(changed_ms),
        }
    }
}

/// Outcome of an operation, for [`Forever::resolve_op`](crate::Forever::resolve_op).
///
/// ```
/// # use forever_runtime as forever;
/// # struct Bank;
/// # impl Bank {
/// #     async fn find(&self, _: &str) -> forever::Result<Option<String>> { Ok(None) }
/// # }
/// use forever::Forever;
/// use forever::ops::OpResolution;
///
/// /// Resolves an operation by what the bank has in its books.
/// async fn settle(forever: &Forever, bank: &Bank, op: &str) -> forever::Result<()> {
///     let resolution = match bank.find(op).await? {
///         Some(receipt) => OpResolution::completed(&receipt)?,
///         None => OpResolution::NotExecuted,
///     };
///     forever.resolve_op(op, resolution).await
/// }
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum OpResolution {
    /// It was executed, with this result.
    Completed(serde_json::Value),
    /// It was not executed: the body runs again, under the same id.
    NotExecuted,
    /// It failed: its step ends in an error of kind [`OpFailed`](ErrorKind::OpFailed) with this
    /// text. The fiber fails if its error type cannot be made of one of the library's.
    Failed(String),
}

impl OpResolution {
    /// It was executed, with the result `result`.
    ///
    /// # Errors
    /// When `result` cannot be saved.
    pub fn completed<T: Serialize + ?Sized>(result: &T) -> Result<Self> {
        result_as_json(result).map(OpResolution::Completed)
    }
}

/// Most attempts while the fiber is running. A fiber that is parked for an operation in doubt is
/// claimed when its database is opened, and parks again at once; this waits for that.
const LOOKS: u32 = 40;
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// Lists the operations of a fiber.
pub(crate) async fn list(runtime: &Arc<Runtime>, fiber: &str) -> Result<Vec<OpStatus>> {
    let row = runtime.store.find(FiberRef::Id(fiber.to_owned())).await?;
    let row = row.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no fiber with id `{fiber}`")))?;
    Ok(runtime.store.ops(row.seq).await?.into_iter().map(OpStatus::of).collect())
}

/// Stores the outcome of an operation, and makes its fiber ready.
pub(crate) async fn resolve(runtime: &Arc<Runtime>, id: &str, how: OpResolution) -> Result<()> {
    let refused = |kind, why: String| Error::new(kind, format!("failed to resolve operation `{id}`: {why}"));
    let unknown = || refused(ErrorKind::NotFound, "there is no such operation".to_owned());
    let conflict = |why: String| refused(ErrorKind::Conflict, why);
    let (seq, op) = runtime.store.find_op(id.to_owned()).await?.ok_or_else(unknown)?;
    let fiber = runtime.store.find(FiberRef::Seq(seq)).await?.ok_or_else(unknown)?;
    let (state, outcome) = match how {
        OpResolution::Completed(value) => (OpState::Completed, Some(value.to_string())),
        OpResolution::NotExecuted => (OpState::NotExecuted, None),
        OpResolution::Failed(error) => (OpState::Failed, Some(error)),
    };
    if let (OpState::Started, OpState::Completed, Some(value)) = (op.state, state, &outcome) {
        // All items of a `steps!` have one type, so the type of a branch is that of its `steps!`.
        for step in std::iter::once(&*op.step).chain(parts_of_branch(&op.step).map(|(steps, _)| steps)) {
            runtime.results.check(&op.function, step, value).map_err(|why| conflict(format!("the value {why}")))?;
        }
    }
    let mut looks = LOOKS;
    let resolved = loop {
        // If the fiber was parked, the store hands it to the dispatcher.
        let resolution = ResolvedOp { id: id.to_owned(), state, outcome: outcome.clone() };
        match runtime.store.resolve_op(seq, resolution, runtime.now_ms()).await? {
            CommandResult::InvalidState(FiberState::Running) if looks > 0 => looks -= 1,
            result => break result,
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
    };
    match resolved {
        CommandResult::Done(ResolveOpResult::Done) => Ok(()),
        CommandResult::Done(ResolveOpResult::Known(state)) => {
            let how = if op.resolved { "was resolved before, as" } else { "is known to be" };
            Err(refused(ErrorKind::InvalidState, format!("it {how} {}", state.as_str().replace('_', " "))))
        }
        CommandResult::NotFound => Err(unknown()),
        CommandResult::InvalidState(state) => Err(refused(ErrorKind::InvalidState, format!("its fiber `{}` is {state}", fiber.id))),
    }
}
