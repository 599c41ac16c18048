//! Hooks of all classes of chat agents behind one trait, boxed, with panics turned into errors.
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use forever_runtime::store::BoxFuture;
use forever_runtime::{BoxError, Error, ErrorKind, Result};

use crate::chat_agent::{ChatAgent, ErrorClass, MAX_QUEUED_TURNS};
use crate::message::{Part, Repair};
use crate::recovery::{ChatRecovery, ChatRecoveryOptions, RecoveryPolicy};
use crate::turn::Turn;
use crate::user_code::{USUAL_TEXT, awaited, called_or};

/// A chat agent in memory.
pub(crate) trait ChatHooks: Send + Sync {
    fn message<'a>(&'a self, turn: &'a Turn) -> BoxFuture<'a, Result<(), BoxError>>;
    fn recovery<'a>(&'a self, recovery: &'a ChatRecovery) -> BoxFuture<'a, Result<ChatRecoveryOptions, BoxError>>;
    fn repair(&self, call: &Part) -> Repair;
    fn classify(&self, error: &BoxError) -> ErrorClass;
    fn client_error_text(&self, error: &BoxError) -> String;
}

impl<A: ChatAgent> ChatHooks for A {
    fn message<'a>(&'a self, turn: &'a Turn) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(awaited(|| self.on_chat_message(turn)))
    }

    fn recovery<'a>(&'a self, recovery: &'a ChatRecovery) -> BoxFuture<'a, Result<ChatRecoveryOptions, BoxError>> {
        Box::pin(awaited(|| self.on_chat_recovery(recovery)))
    }

    fn repair(&self, call: &Part) -> Repair {
        called_or("repair_interrupted_tool", || self.repair_interrupted_tool(call), || Repair::Interrupted)
    }

    fn classify(&self, error: &BoxError) -> ErrorClass {
        called_or(
            "classify_error",
            || self.classify_error(error),
            || called_or("source", || ErrorClass::of(error), || ErrorClass::Terminal),
        )
    }

    fn client_error_text(&self, error: &BoxError) -> String {
        called_or("client_error_text", || ChatAgent::client_error_text(self, error), || USUAL_TEXT.to_owned())
    }
}

/// A class of chat agents.
pub(crate) trait ChatClass: Send + Sync {
    fn policy(&self) -> RecoveryPolicy;
    fn max_queued_turns(&self) -> u32;
    /// The hooks of an agent of the class; `None` if it is of another type.
    fn hooks(&self, agent: Arc<dyn Any + Send + Sync>) -> Option<Arc<dyn ChatHooks>>;
    /// The stored form of a state that a client has sent.
    fn state(&self, json: &str) -> Result<String>;
}

struct Of<A>(PhantomData<fn() -> A>);

impl<A: ChatAgent> ChatClass for Of<A> {
    fn policy(&self) -> RecoveryPolicy {
        called_or("recovery", A::recovery, RecoveryPolicy::default)
    }

    fn max_queued_turns(&self) -> u32 {
        called_or("max_queued_turns", A::max_queued_turns, || MAX_QUEUED_TURNS)
    }

    fn hooks(&self, agent: Arc<dyn Any + Send + Sync>) -> Option<Arc<dyn ChatHooks>> {
        let agent: Arc<A> = agent.downcast().ok()?;
        Some(agent)
    }

    fn state(&self, json: &str) -> Result<String> {
        let unreadable = |why: String| Error::new(ErrorKind::Value, format!("the state of an agent of class `{}` {why}", A::CLASS));
        let read = || {
            let state: A::State = serde_json::from_str(json).map_err(|why| unreadable(format!("cannot be read: {why}")))?;
            forever_json::to_string(&state).map_err(|why| unreadable(format!("cannot be saved: {why}")))
        };
        super::user_code::called(read).map_err(|why| unreadable(format!("cannot be read: it {why}")))?
    }
}

/// The classes of chat agents of the builder, by name.
#[derive(Default, Clone)]
pub(crate) struct ChatClasses(BTreeMap<&'static str, Arc<dyn ChatClass>>);

impl ChatClasses {
    pub(crate) fn add<A: ChatAgent>(&mut self) {
        self.0.insert(A::CLASS, Arc::new(Of(PhantomData::<fn() -> A>)));
    }

    pub(crate) fn get(&self, class: &str) -> Option<&Arc<dyn ChatClass>> {
        self.0.get(class)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for ChatClasses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
