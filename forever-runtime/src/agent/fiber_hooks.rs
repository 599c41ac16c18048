//! Hooks of agents for their fibers.
use std::any::Any;
use std::sync::Arc;

use tracing::warn;

use super::class::BoxError;
use super::registry::Agents;
use super::requests;
use crate::error::{Error, ErrorKind, Result, chain};
use crate::exec::agent_hooks::{AgentHooks, EndedFiber, RecoveredFiber, RecoveryAction};
use crate::future::BoxFuture;
use crate::runtime::state::Runtime;
use crate::store::AgentId;

impl AgentHooks for Agents {
    fn knows(&self, class: &str) -> bool {
        self.classes.get(class).is_some()
    }

    fn hold(&self, runtime: &Arc<Runtime>, agent: &AgentId) -> Box<dyn Any + Send> {
        if self.check(agent).is_ok() { Box::new(Agents::hold(self, runtime, agent)) } else { Box::new(()) }
    }

    fn order<'a>(
        &'a self,
        runtime: &'a Arc<Runtime>,
        agent: &'a AgentId,
        fibers: Vec<RecoveredFiber>,
    ) -> BoxFuture<'a, Result<Vec<RecoveredFiber>>> {
        Box::pin(async move {
            let woken = self.wake(runtime, agent).await?;
            woken.agent.order(fibers).await.map_err(|why| failed("on_fibers_recovered", agent, why))
        })
    }

    fn recovered<'a>(
        &'a self,
        runtime: &'a Arc<Runtime>,
        agent: &'a AgentId,
        fiber: &'a RecoveredFiber,
    ) -> BoxFuture<'a, Result<RecoveryAction>> {
        Box::pin(async move {
            let woken = self.wake(runtime, agent).await?;
            woken.agent.recovered(fiber).await.map_err(|why| failed("on_fiber_recovered", agent, why))
        })
    }

    fn ended<'a>(&'a self, runtime: &'a Arc<Runtime>, agent: &'a AgentId, fiber: EndedFiber) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let told = async {
                let woken = match self.wake_beside(runtime, agent).await {
                    Err(error) if error.kind() == ErrorKind::AgentElsewhere => {
                        let agents = self.weak().upgrade().ok_or_else(Error::closed)?;
                        return requests::tell_of_end(&agents, runtime, agent, &fiber).await;
                    }
                    woken => woken?,
                };
                let fiber = fiber.clone().with_unread(runtime).await?;
                woken.agent.ended(&fiber).await.map_err(|why| failed("on_fiber_completed", agent, why))
            };
            if let Err(why) = told.await
                && !why.is_closed()
            {
                warn!(%agent, fiber.id = fiber.id(), error = %chain(&why), "an agent did not hear of the end of its fiber");
            }
        })
    }
}

fn failed(hook: &str, agent: &AgentId, why: BoxError) -> Error {
    Error::new(ErrorKind::Agent, format!("`{hook}` of agent `{agent}` failed")).with_source(why)
}
