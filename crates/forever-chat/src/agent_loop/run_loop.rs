//! Turns that are answered by the agent loop.
use std::fmt;

use forever_runtime::BoxError;
use forever_runtime::fiber::FiberError;

use crate::agent_loop::AgentLoop;
use crate::agent_loop::loop_fiber::ask_and_call;
use crate::message::Chunk;
use crate::turn::Turn;

impl Turn {
    /// Answers with the [`AgentLoop`] of the runtime, which resumes exactly where it was.
    ///
    /// # Errors
    /// As [`run`](Turn::run).
    pub async fn run_agent_loop(&self) -> Result<(), BoxError> {
        if self.0.engine.resource::<AgentLoop>().is_none() {
            return Err("there is no loop that answers: add one with `.agent_loop(..)` before `.open()`".into());
        }
        let looping = self.loops();
        let answered = self.run_here(ask_and_call()).await;
        drop(looping);
        answered.map_err(LoopFailed)?;
        self.put(Chunk::finish()).await?;
        Ok(())
    }
}

/// Error of an agent loop, without the internal names of its fiber.
#[derive(Debug)]
struct LoopFailed(FiberError);

impl fmt::Display for LoopFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.reason())
    }
}

impl std::error::Error for LoopFailed {}
