//! The loop of a turn as a separate fiber, as earlier versions of this library have stored it.
//!
//! Such a fiber runs the same function with the current attempt of its turn. It keeps its id and
//! its operations, and its turn waits for it.
use std::sync::Arc;

use forever_runtime::__layers::{ContextOfLayer, Exit, race};
use forever_runtime::__private::{Arguments, Frame, Machine, Needs, Unreadable};
use forever_runtime::fiber::{Fiber, FiberContext};
use forever_runtime::store::{FiberRef, TurnFilter, TurnState};
use forever_runtime::{BoxError, Error, Result};
use serde_json::Value;

use crate::agent_loop::AgentLoop;
use crate::agent_loop::loop_fiber::ask_and_call;
use crate::registry::registry_of;
use crate::turn::{Turn, fiber_id};
use crate::writer::over;

/// The loop of a turn, as a separate fiber.
pub(crate) struct ChildLoop {
    /// The turn. The fiber's id identifies it as well.
    turn: Value,
}

impl Fiber for ChildLoop {
    type Output = u32;
    type Error = BoxError;
    const MACHINE: &'static Machine = ask_and_call::MACHINE;

    fn needs(needs: &mut Needs<'_>) {
        needs.resource::<AgentLoop>("looped");
    }

    fn arguments(access: Arguments<'_, '_, Self>) -> Result<Option<Self>, Unreadable> {
        match access {
            Arguments::Save(child, save) => {
                save.put("turn", &child.turn);
                Ok(None)
            }
            Arguments::Load(arguments) => Ok(Some(ChildLoop { turn: arguments.get("turn")? })),
        }
    }

    async fn drive<'run>(start: Option<Self>, ctx: &'run FiberContext, frame: &'run mut Frame) -> Result<u32, BoxError> {
        let turn = match attempt(ctx).await {
            Ok(turn) => turn,
            Err(error) if error.is_of_store() => ctx.halt(Exit::interrupted(error)).await,
            Err(error) => return Err(error.into()),
        };
        let hosted = ctx.hosted(turn.clone());
        match race(ask_and_call::drive(start.map(|_| ask_and_call()), &hosted, frame), turn.closed()).await {
            Some(returned) => returned,
            // It continues in the next attempt.
            None => ctx.halt(Exit::Again(Arc::new(()))).await,
        }
    }
}

/// The attempt of its turn, once there is one in this process.
async fn attempt(ctx: &FiberContext) -> Result<Turn> {
    let chats = registry_of(ctx)?;
    let engine = chats.engine()?;
    let store = engine.store();
    let Some(chat) = store.find(FiberRef::Id(ctx.id().to_owned())).await?.and_then(|fiber| fiber.agent) else { return Err(over()) };
    let mut changed = chats.changes();
    loop {
        if let Some(turn) = chats.turn_of(&chat).filter(Turn::is_open)
            && fiber_id(&engine, &turn.inner().row).await? == ctx.id()
        {
            return Ok(turn);
        }
        let open = TurnFilter { states: vec![TurnState::Queued, TurnState::Running], ..TurnFilter::default() };
        if store.turns(chat.clone(), open, 0, 1).await?.is_empty() {
            return Err(over());
        }
        if race(changed.changed(), engine.closing()).await.is_none() {
            return Err(Error::closed());
        }
    }
}
