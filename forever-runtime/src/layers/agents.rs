//! The agents of a runtime, as a layer above wakes them and finds them in handles.
use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::agent::{AgentHandle, Agents, AwakeAgent};
use crate::error::Result;
use crate::layers::engine::{Engine, EngineLink};
use crate::runtime::link::Link;
use crate::store::AgentId;

/// The agents of a runtime. A clone is the same.
#[derive(Debug, Clone)]
pub struct EngineAgents(Arc<Agents>);

impl EngineAgents {
    pub(crate) fn new(agents: Arc<Agents>) -> Self {
        EngineAgents(agents)
    }

    /// The runtime, if it is still there.
    ///
    /// # Errors
    /// Of kind [`Closed`](crate::ErrorKind::Closed).
    pub fn engine(&self) -> Result<Engine> {
        self.0.exec().map(Engine::new)
    }

    /// Wakes an agent, and keeps it in memory while the guard lives.
    ///
    /// # Errors
    /// Those of [`AgentHandle::wake`].
    pub async fn wake(&self, engine: &Engine, id: &AgentId) -> Result<HeldAgent> {
        self.0.wake(&engine.0.runtime, id).await.map(HeldAgent)
    }
}

/// An agent in memory; it stays there for as long as this guard lives.
pub struct HeldAgent(AwakeAgent);

impl HeldAgent {
    /// The agent, of the type with which its class was registered.
    pub fn agent(&self) -> Arc<dyn Any + Send + Sync> {
        Arc::clone(&self.0.agent).any()
    }
}

impl fmt::Debug for HeldAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeldAgent")
    }
}

/// What a layer above needs of the handle of an agent.
pub trait HandleOfLayer {
    /// Class and name of the agent.
    fn id(&self) -> &AgentId;

    /// The runtime, if it is still there.
    ///
    /// # Errors
    /// Of kind [`Closed`](crate::ErrorKind::Closed).
    fn engine(&self) -> Result<Engine>;

    /// Link to the runtime, which keeps it open if this handle does.
    fn engine_link(&self) -> EngineLink;

    /// A handle of the same agent that does not keep the runtime open.
    ///
    /// # Errors
    /// Of kind [`Closed`](crate::ErrorKind::Closed).
    fn weak(&self) -> Result<Self>
    where
        Self: Sized;

    /// Replaces the state of the agent by one in its stored form.
    fn set_state_text(&self, text: String) -> impl Future<Output = Result<()>> + Send;
}

impl<A> HandleOfLayer for AgentHandle<A>
where
    A: crate::agent::Agent,
{
    fn id(&self) -> &AgentId {
        AgentHandle::id(self)
    }

    fn engine(&self) -> Result<Engine> {
        self.exec().map(Engine::new)
    }

    fn engine_link(&self) -> EngineLink {
        EngineLink::new(self.link().exec())
    }

    fn weak(&self) -> Result<Self> {
        Ok(AgentHandle::new(Link::from(&self.agents()?), AgentHandle::id(self).clone()))
    }

    async fn set_state_text(&self, text: String) -> Result<()> {
        AgentHandle::set_state_text(self, text).await
    }
}
