//! The ledger as people see it: what a fiber has begun, and how an operation ended of which the runtime does not know.
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use crate::clock::from_ms;
use crate::error::{Error, ErrorKind, Result};
use crate::frame::branch_names::parts_of_branch;
use crate::frame::saved::result_as_json;
use crate::runtime::state::Runtime;
use crate::store::{CommandResult, FiberRef, FiberState, OpRecord, OpResolution, OpRow, OpState, ResolveOpResult};

/// One operation of a fiber, as the ledger has it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct OpStatus {
    /// Its id: what the other side knows it by.
    pub id: String,
    /// The stored name of the function that has its step; of an operation by hand, that of the fiber.
    pub function: String,
    /// The stored name of its step; of an operation by hand, its kind.
    pub step: String,
    /// What is part of its id, if anything is.
    pub key: Option<serde_json::Value>,
    /// What is known of it.
    pub state: OpState,
    /// What it gave, when it has completed.
    pub result: Option<serde_json::Value>,
    /// The error's text, when it has failed.
    pub error: Option<String>,
    /// Whether somebody has said how it ended.
    pub resolved: bool,
    /// How many checkpoints the fiber had made when it began; none for one by hand.
    pub checkpoints: Option<u64>,
    /// When it began, UTC.
    pub started: SystemTime,
    /// When it changed last, UTC.
    pub changed: SystemTime,
}

impl OpStatus {
    fn of(row: OpRow) -> Self {
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

/// How an operation ended, for [`Forever::resolve_op`](crate::Forever::resolve_op).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Resolution {
    /// It was carried out, and gave this.
    Completed(serde_json::Value),
    /// It was not carried out: it begins anew, under the same id.
    NotExecuted,
    /// It has failed: its step ends in an error of kind [`OpFailed`](ErrorKind::OpFailed) with this text, if the fiber's error type can be
    /// made of one of the library's; otherwise the fiber fails.
    Failed(String),
}

impl Resolution {
    /// It was carried out, and gave `result`.
    ///
    /// # Errors
    /// When `result` cannot be saved.
    pub fn completed<T: Serialize + ?Sized>(result: &T) -> Result<Self> {
        result_as_json(result).map(Resolution::Completed)
    }
}

/// A fiber that is parked for an operation in doubt is entered when its database is opened, and parks again at once: so long is
/// waited for that before a fiber counts as running.
const LOOKS: u32 = 40;
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// The operations of a fiber.
pub(crate) async fn list(runtime: &Arc<Runtime>, fiber: &str) -> Result<Vec<OpStatus>> {
    let row = runtime.store.find(FiberRef::Id(fiber.to_owned())).await?;
    let row = row.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no fiber with id `{fiber}`")))?;
    Ok(runtime.store.ops(row.seq).await?.into_iter().map(OpStatus::of).collect())
}

/// Says how an operation ended, and lets its fiber go on.
pub(crate) async fn resolve(runtime: &Arc<Runtime>, id: &str, how: Resolution) -> Result<()> {
    let refused = |kind, why: String| Error::new(kind, format!("failed to resolve operation `{id}`: {why}"));
    let unknown = || refused(ErrorKind::NotFound, "there is no such operation".to_owned());
    let conflict = |why: String| refused(ErrorKind::Conflict, why);
    let (seq, op) = runtime.store.find_op(id.to_owned()).await?.ok_or_else(unknown)?;
    let fiber = runtime.store.find(FiberRef::Seq(seq)).await?.ok_or_else(unknown)?;
    let (state, outcome) = match how {
        Resolution::Completed(value) => (OpState::Completed, Some(value.to_string())),
        Resolution::NotExecuted => (OpState::NotExecuted, None),
        Resolution::Failed(error) => (OpState::Failed, Some(error)),
    };
    if let (OpState::Started, OpState::Completed, Some(value)) = (op.state, state, &outcome) {
        // All items of a `steps!` are of one type.
        for step in std::iter::once(&*op.step).chain(parts_of_branch(&op.step).map(|(steps, _)| steps)) {
            runtime.results.check(&op.function, step, value).map_err(|why| conflict(format!("the value {why}")))?;
        }
    }
    let mut looks = LOOKS;
    let resolved = loop {
        // The store tells the dispatcher, if the fiber was parked.
        let resolution = OpResolution { id: id.to_owned(), state, outcome: outcome.clone() };
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
