//! Hooks of all classes of agents behind one trait, boxed, with panics turned into errors.
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::class::{Agent, BoxError};
use super::due::Due;
use super::method::Methods;
use super::registry::Agents;
use crate::error::{Error, Result, chain};
use crate::exec::agent_hooks::{EndedFiber, RecoveredFiber, RecoveryAction};
use crate::frame::current;
use crate::future::BoxFuture;
use crate::guard::{guarded, guarded_future};
use crate::runtime::link::Link;
use crate::store::{AgentHold, AgentId};

/// An agent in memory.
pub(crate) trait Hooks: Send + Sync {
    fn any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
    fn start(&self) -> BoxFuture<'_, Result<(), BoxError>>;
    fn order(&self, fibers: Vec<RecoveredFiber>) -> BoxFuture<'_, Result<Vec<RecoveredFiber>, BoxError>>;
    fn recovered<'a>(&'a self, fiber: &'a RecoveredFiber) -> BoxFuture<'a, Result<RecoveryAction, BoxError>>;
    fn ended<'a>(&'a self, fiber: &'a EndedFiber) -> BoxFuture<'a, Result<(), BoxError>>;
    fn due<'a>(&'a self, due: &'a Due) -> BoxFuture<'a, Result<(), BoxError>>;
}

impl<A: Agent> Hooks for A {
    fn any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }

    fn start(&self) -> BoxFuture<'_, Result<(), BoxError>> {
        Box::pin(caught(|| self.on_start()))
    }

    fn order(&self, fibers: Vec<RecoveredFiber>) -> BoxFuture<'_, Result<Vec<RecoveredFiber>, BoxError>> {
        Box::pin(caught(|| self.on_fibers_recovered(fibers)))
    }

    fn recovered<'a>(&'a self, fiber: &'a RecoveredFiber) -> BoxFuture<'a, Result<RecoveryAction, BoxError>> {
        Box::pin(caught(|| self.on_fiber_recovered(fiber)))
    }

    fn ended<'a>(&'a self, fiber: &'a EndedFiber) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(caught(|| self.on_fiber_completed(fiber)))
    }

    fn due<'a>(&'a self, due: &'a Due) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(caught(|| self.on_schedule(due)))
    }
}

/// Result of a hook; a panic is an error. A hook that has observed that the runtime closes has no
/// result: it may have ended early.
pub(super) async fn caught<T, F: Future<Output = Result<T, BoxError>>>(hook: impl FnOnce() -> F) -> Result<T, BoxError> {
    let (result, saw_closing) = current::watched(guarded_future(hook)).await;
    let value = result.map_err(BoxError::from).flatten().map_err(shown)?;
    if saw_closing { Err(Error::closed().into()) } else { Ok(value) }
}

/// An error whose text can be read. Formatting an error runs code of the program, and so is part of
/// the hook.
fn shown(why: BoxError) -> BoxError {
    match guarded(|| Ok(chain(&*why))) {
        Ok(_) => why,
        Err(_) => "it failed with an error whose text cannot be had: it panicked".into(),
    }
}

/// Constructor of the agents of a class.
pub(crate) trait Class: Send + Sync {
    fn make(&self, link: Link<Agents>, id: AgentId, hold: Option<AgentHold>) -> Result<Arc<dyn Hooks>, BoxError>;
}

/// The classes of the builder, by name.
#[derive(Default)]
pub(crate) struct Classes {
    pub(super) by_name: BTreeMap<&'static str, Arc<dyn Class>>,
    pub(crate) methods: Methods,
}

impl Classes {
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<dyn Class>> {
        self.by_name.get(name)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.by_name.keys().map(ToString::to_string).collect()
    }
}

impl fmt::Debug for Classes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Classes").field("by_name", &self.names()).field("methods", &self.methods).finish()
    }
}
