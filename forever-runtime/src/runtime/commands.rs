//! Commands that are addressed to a stored fiber, and the errors of refused ones.
use std::sync::Arc;

use serde::Serialize;

use crate::error::{Error, ErrorKind, Result, chain};
use crate::frame::saved::result_as_json;
use crate::runtime::detached::detached;
use crate::runtime::exit::Exit;
use crate::runtime::exits;
use crate::runtime::state::Runtime;
use crate::store::{CommandResult, End, FiberRef, FiberState, Restart, RestartResult};

/// End of a fiber that a person decides: [`FiberHandle::resolve`](crate::fiber::FiberHandle::resolve).
///
/// ```
/// # use forever_runtime as forever;
/// use forever::Forever;
/// use forever::fiber::Resolution;
///
/// /// Ends a parked order by hand, with the receipt that the customer has, or without one.
/// async fn end(forever: &Forever, id: &str, receipt: Option<&str>) -> forever::Result<()> {
///     let how = match receipt {
///         Some(receipt) => Resolution::completed(receipt)?,
///         None => Resolution::failed("the order was not paid"),
///     };
///     forever.resolve(id, how).await
/// }
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Resolution {
    /// It has completed, with this result.
    Completed(serde_json::Value),
    /// It has failed, for this reason.
    Failed(String),
}

impl Resolution {
    /// It has completed, with the result `result`.
    ///
    /// # Errors
    /// When `result` cannot be saved.
    pub fn completed<T: Serialize + ?Sized>(result: &T) -> Result<Self> {
        result_as_json(result).map(Resolution::Completed)
    }

    /// It has failed, with `error` and its causes.
    pub fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Resolution::Failed(chain(&*error.into()))
    }
}

/// Cancels a fiber and its descendants.
pub(crate) async fn cancel(runtime: &Arc<Runtime>, id: &str, reason: &str) -> Result<()> {
    let (of_task, id, reason) = (Arc::clone(runtime), id.to_owned(), reason.to_owned());
    detached(runtime, async move { cancel_here(&of_task, &id, &reason).await }).await
}

async fn cancel_here(runtime: &Arc<Runtime>, id: &str, reason: &str) -> Result<()> {
    let asked = runtime.store.cancel(id.to_owned(), reason.to_owned(), runtime.now_ms()).await?;
    for fiber in done(asked, id, "cancel")? {
        if let Some(control) = runtime.active.get(&fiber.id).and_then(|entry| entry.control()) {
            control.cancel(reason);
        }
        // A running fiber reports its end itself; all others have ended with the command.
        if fiber.state != FiberState::Running {
            exits::report(runtime, &fiber.id, &fiber.name, fiber.agent.as_ref(), Exit::Cancelled(reason.into()));
            runtime.active.tell(&fiber.id);
        }
    }
    Ok(())
}

/// Makes a stopped fiber run again.
pub(crate) async fn restart(runtime: &Arc<Runtime>, id: &str, how: Restart) -> Result<()> {
    let what = match how {
        Restart::FromSnapshot => "resume",
        Restart::FromStart => "restart",
    };
    let row = runtime.store.find(FiberRef::Id(id.to_owned())).await?;
    if let Some(row) = row.filter(|row| row.closure) {
        return Err(Error::new(
            ErrorKind::Conflict,
            format!("failed to {what} fiber `{id}`: `{}` is a closure, of which nothing is left but its stash; resolve it", row.name),
        ));
    }
    // The store notifies the dispatcher.
    match done(runtime.store.restart(id.to_owned(), how, runtime.now_ms()).await?, id, what)? {
        RestartResult::Ready => Ok(()),
        RestartResult::InDoubt(op) => Err(Error::new(ErrorKind::InvalidState, format!("failed to {what} fiber `{id}`: {}", in_doubt(&op)))),
    }
}

/// Ends a fiber that is interrupted or parked.
pub(crate) async fn resolve(runtime: &Arc<Runtime>, id: &str, how: Resolution) -> Result<()> {
    let end = match how {
        Resolution::Completed(value) => End::Completed(value.to_string()),
        Resolution::Failed(why) => End::Failed(why),
    };
    let (of_task, id) = (Arc::clone(runtime), id.to_owned());
    let resolved = async move {
        let runtime = &of_task;
        let (row, end) = done(runtime.store.resolve(id.clone(), end, runtime.now_ms()).await?, &id, "resolve")?;
        exits::report(runtime, &row.id, &row.name, row.agent.as_ref(), end.into());
        runtime.active.tell(&id);
        Ok(())
    };
    detached(runtime, resolved).await
}

/// Why a fiber cannot be restarted.
pub(crate) fn in_doubt(op: &str) -> String {
    format!("operation `{op}` may have executed, and would be repeated under another id; resolve it first")
}

/// The result of a command, or the error of a refused one.
pub(crate) fn done<T>(result: CommandResult<T>, id: &str, what: &str) -> Result<T> {
    match result {
        CommandResult::Done(done) => Ok(done),
        CommandResult::NotFound => Err(Error::new(ErrorKind::NotFound, format!("failed to {what} fiber `{id}`: there is no such fiber"))),
        CommandResult::InvalidState(state) => {
            Err(Error::new(ErrorKind::InvalidState, format!("failed to {what} fiber `{id}`: it is {state}")))
        }
    }
}
