//! The turn that a loop answers, as its fiber knows it, and how a turn runs the loop.
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::BoxError;
use crate::chat::agent_loop::loop_fiber::ask_and_call;
use crate::chat::chats::Chats;
use crate::chat::message::Chunk;
use crate::chat::turn::Turn;
use crate::error::Result;
use crate::frame::context::FiberContext;
use crate::runtime::handle::FiberError;
use crate::store::AgentId;

/// A turn, as its fibers know it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TurnRef {
    class: String,
    agent: String,
    turn: String,
}

impl TurnRef {
    /// The turn, as soon as it is being answered in this process.
    pub(in crate::chat) async fn joined(&self, ctx: &FiberContext) -> Result<Turn> {
        let chats = ctx.resource::<Arc<Chats>>();
        let chat = AgentId { class: self.class.clone(), name: self.agent.clone() };
        chats.joined(&*chats.agents.exec()?, &chat, &self.turn).await
    }
}

impl Turn {
    /// Answers with the [`AgentLoop`](crate::chat::AgentLoop) of the runtime, in a fiber that goes on exactly where it was.
    ///
    /// # Errors
    /// As [`run`](Turn::run).
    pub async fn run_agent_loop(&self) -> Result<(), BoxError> {
        let AgentId { class, name } = self.0.row.chat.clone();
        let looping = self.loops();
        let answered = self.run(ask_and_call(TurnRef { class, agent: name, turn: self.id().to_owned() })).await;
        drop(looping);
        answered.map_err(LoopFailed)?;
        self.put(Chunk::finish()).await?;
        Ok(())
    }
}

/// Why an agent loop has failed, without the names of its fiber, which are not for people.
#[derive(Debug)]
struct LoopFailed(FiberError);

impl fmt::Display for LoopFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.reason())
    }
}

impl std::error::Error for LoopFailed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}
