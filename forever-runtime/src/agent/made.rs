//! Agent classes of the builder: a type, and the closure that constructs its agents.
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::class::{Agent, BoxError};
use super::handle::AgentHandle;
use super::hooks::{Class, Classes, Hooks};
use super::registry::Agents;
use crate::error::{Error, ErrorKind, Result};
use crate::exec::agent_hooks::check_name;
use crate::guard::panic_text;
use crate::runtime::link::Link;
use crate::store::{AgentHold, AgentId};

struct Made<A, M> {
    make: M,
    agent: PhantomData<fn() -> A>,
}

impl<A: Agent, M: Fn(AgentHandle<A>) -> A + Send + Sync> Class for Made<A, M> {
    fn make(&self, link: Link<Agents>, id: AgentId, hold: Option<AgentHold>) -> Result<Arc<dyn Hooks>, BoxError> {
        match catch_unwind(AssertUnwindSafe(|| (self.make)(AgentHandle::of_instance(link, id, hold)))) {
            Ok(agent) => Ok(Arc::new(agent)),
            Err(payload) => Err(format!("it panicked while it was made: {}", panic_text(payload)).into()),
        }
    }
}

impl Classes {
    /// Adds a class, unless another one has its name.
    pub(crate) fn add<A: Agent>(&mut self, make: impl Fn(AgentHandle<A>) -> A + Send + Sync + 'static) -> Result<()> {
        let name = A::CLASS;
        let refused = |why: String| Err(Error::new(ErrorKind::Setup, why));
        if let Err(why) = check_name(name) {
            return refused(format!("the name of an agent class {why}"));
        }
        if name.contains('/') {
            return refused(format!("the name of an agent class must not have a `/`: `{name}`"));
        }
        if self.by_name.insert(name, Arc::new(Made { make, agent: PhantomData::<fn() -> A> })).is_some() {
            return refused(format!("two agent classes are called `{name}`"));
        }
        Ok(())
    }
}
