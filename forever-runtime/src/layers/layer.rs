//! A layer above the runtime, as its builder sees it.
use std::sync::Arc;

use crate::error::Result;
use crate::exec::registry::Registry;
use crate::exec::slots::Slot;
use crate::frame::fiber::Fiber;
use crate::future::BoxFuture;
use crate::layers::agents::EngineAgents;
use crate::layers::engine::Engine;

/// A layer above the runtime, registered with its builder.
///
/// The methods are called in this order, each once, when the runtime opens.
pub trait Layer: Slot {
    /// Names of the classes of agents that several workers may have in memory.
    fn shared_classes(&self) -> Vec<&'static str>;

    /// Registers the functions of the layer.
    ///
    /// # Errors
    /// When another function has the name of one of them.
    fn register(self: Arc<Self>, functions: &mut Functions<'_>) -> Result<()>;

    /// Sets the actions of alarms. No fiber runs yet.
    fn open(self: Arc<Self>, engine: &Engine, agents: EngineAgents);

    /// Takes up what earlier processes have left. The fibers were recovered before.
    fn recover(self: Arc<Self>, engine: Engine) -> BoxFuture<'static, Result<()>>;
}

/// The functions of a layer.
#[derive(Debug)]
pub struct Functions<'a>(&'a mut Registry);

impl<'a> Functions<'a> {
    pub(crate) fn new(registry: &'a mut Registry) -> Self {
        Functions(registry)
    }

    /// Adds a function, whose context has `host`. The layer decides about its recovery, and no
    /// agent.
    ///
    /// # Errors
    /// When another function has its name.
    pub fn add<F: Fiber>(&mut self, host: impl Send + Sync + 'static) -> Result<()> {
        self.0.add_ours::<F>(Arc::new(host))
    }
}
