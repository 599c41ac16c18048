//! Commands that are addressed to a stored fiber, and the errors of refused ones.
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::runtime::detached::detached;
use crate::runtime::exit::Exit;
use crate::runtime::exits;
use crate::runtime::state::Runtime;
use crate::store::{CommandResult, FiberState};

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
