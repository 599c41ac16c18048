//! The loop of a turn as a separate fiber, as earlier versions of this library have stored it.
//!
//! Such a fiber runs the same function with the current attempt of its turn. It keeps its id and
//! its operations, and its turn waits for it.
use std::future::Future;
use std::sync::Arc;

use serde_json::Value;

use crate::agent::BoxError;
use crate::chat::agent_loop::AgentLoop;
use crate::chat::agent_loop::loop_fiber::ask_and_call;
use crate::chat::chats::Chats;
use crate::chat::turn::{Turn, fiber_id};
use crate::chat::writer::over;
use crate::error::{Error, Result};
use crate::frame::activation::Frame;
use crate::frame::arguments::Arguments;
use crate::frame::context::FiberContext;
use crate::frame::fiber::Fiber;
use crate::frame::locals::Unreadable;
use crate::frame::machine::Machine;
use crate::frame::resources::Needs;
use crate::runtime::exit::Exit;
use crate::runtime::race::race;
use crate::store::{FiberRef, TurnFilter, TurnState};

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

    fn drive<'run>(
        start: Option<Self>,
        ctx: &'run FiberContext,
        frame: &'run mut Frame,
    ) -> impl Future<Output = Result<u32, BoxError>> + Send + 'run {
        let run = frame.run();
        async move {
            let turn = match attempt(ctx).await {
                Ok(turn) => turn,
                Err(error) if error.is_of_store() => run.halt(Exit::interrupted(error)).await,
                Err(error) => return Err(error.into()),
            };
            let hosted = ctx.hosted(turn.clone());
            match race(ask_and_call::drive(start.map(|_| ask_and_call()), &hosted, frame), turn.closed()).await {
                Some(returned) => returned,
                // It continues in the next attempt.
                None => run.halt(Exit::Again(Arc::new(()))).await,
            }
        }
    }
}

/// The attempt of its turn, once there is one in this process.
async fn attempt(ctx: &FiberContext) -> Result<Turn> {
    let chats = ctx.resource::<Arc<Chats>>();
    let exec = chats.agents.exec()?;
    let store = &exec.runtime.store;
    let Some(chat) = store.find(FiberRef::Id(ctx.id().to_owned())).await?.and_then(|fiber| fiber.agent) else { return Err(over()) };
    let mut changed = chats.changes();
    loop {
        if let Some(turn) = chats.turn_of(&chat).filter(Turn::is_open)
            && fiber_id(&exec, &turn.inner().row).await? == ctx.id()
        {
            return Ok(turn);
        }
        let open = TurnFilter { states: vec![TurnState::Queued, TurnState::Running], ..TurnFilter::default() };
        if store.turns(chat.clone(), open, 0, 1).await?.is_empty() {
            return Err(over());
        }
        if race(changed.changed(), exec.runtime.closing()).await.is_none() {
            return Err(Error::closed());
        }
    }
}
