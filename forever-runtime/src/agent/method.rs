//! Methods of agent classes that are called by name, with JSON arguments.
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::class::{Agent, BoxError};
use super::hooks::{Hooks, caught};
use crate::error::{Error, ErrorKind, Result, chain};
use crate::exact;
use crate::exec::agent_hooks::check_name;
use crate::future::BoxFuture;
use crate::store::AgentId;

type Method = dyn Fn(Arc<dyn Any + Send + Sync>, String) -> BoxFuture<'static, Result<String, BoxError>> + Send + Sync;

/// Beginning of the names of methods that are not the program's.
pub(super) const RESERVED: &str = "forever.";

/// The methods of all classes, by class and name.
#[derive(Default)]
pub(crate) struct Methods(BTreeMap<&'static str, BTreeMap<String, Arc<Method>>>);

impl fmt::Debug for Methods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.iter().map(|(class, methods)| (class, methods.keys()))).finish()
    }
}

/// Failure of a call, as it is sent to the worker of the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CallFailure {
    kind: FailureKind,
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FailureKind {
    /// The method has returned an error, or has panicked.
    Failed,
    /// The class has no such method.
    NoMethod,
    /// The arguments cannot be read, or the value cannot be written.
    Value,
}

impl CallFailure {
    /// The stored text.
    pub(super) fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(super) fn read(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_else(|_| CallFailure { kind: FailureKind::Failed, text: text.to_owned() })
    }

    /// The error that the caller gets.
    pub(super) fn into_error(self, agent: &AgentId, method: &str) -> Error {
        match self.kind {
            FailureKind::Failed => Error::new(ErrorKind::Agent, format!("method `{method}` of agent `{agent}` failed: {}", self.text)),
            FailureKind::NoMethod => {
                let class = &agent.class;
                Error::new(ErrorKind::NotRegistered, format!("agent class `{class}` has no method `{method}`: add it with `.callable(..)`"))
            }
            FailureKind::Value => Error::new(ErrorKind::Value, format!("method `{method}` of agent `{agent}`: {}", self.text)),
        }
    }
}

/// Marks an error of the values of a call.
#[derive(Debug)]
struct ValueError(String);

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ValueError {}

impl Methods {
    /// Adds a method of a class, unless it has one of that name.
    pub(crate) fn add<A, F, P, B, R, E>(&mut self, name: &str, method: F) -> Result<()>
    where
        A: Agent,
        F: Fn(Arc<A>, P) -> B + Send + Sync + 'static,
        P: DeserializeOwned + Send + 'static,
        B: Future<Output = Result<R, E>> + Send + 'static,
        R: Serialize + 'static,
        E: Into<BoxError> + 'static,
    {
        let refused = |why: String| Err(Error::new(ErrorKind::Setup, why));
        if let Err(why) = check_name(name) {
            return refused(format!("the name of a method of agent class `{}` {why}", A::CLASS));
        }
        if name.starts_with(RESERVED) {
            return refused(format!("the name of a method must not begin with `{RESERVED}`: `{name}`"));
        }
        let method = Arc::new(method);
        let call = move |agent: Arc<dyn Any + Send + Sync>, args: String| -> BoxFuture<'static, Result<String, BoxError>> {
            let method = Arc::clone(&method);
            Box::pin(async move {
                let agent = agent.downcast::<A>().map_err(|_| BoxError::from("the class is registered for another type"))?;
                let args: P = exact::from_str(&args).map_err(|why| {
                    let wanted = std::any::type_name::<P>();
                    ValueError(format!("its arguments cannot be read as `{wanted}`: {why}"))
                })?;
                let value = method(agent, args).await.map_err(Into::into)?;
                Ok(exact::to_string(&value).map_err(|why| ValueError(format!("its value cannot be saved: {why}")))?)
            })
        };
        if self.0.entry(A::CLASS).or_default().insert(name.to_owned(), Arc::new(call)).is_some() {
            return refused(format!("two methods of agent class `{}` are called `{name}`", A::CLASS));
        }
        Ok(())
    }

    /// Runs a method; a panic is a failure.
    pub(super) async fn run(&self, agent: Arc<dyn Hooks>, class: &str, name: &str, args: String) -> Result<String, CallFailure> {
        let Some(method) = self.0.get(class).and_then(|methods| methods.get(name)) else {
            return Err(CallFailure { kind: FailureKind::NoMethod, text: String::new() });
        };
        caught(|| method(agent.any(), args)).await.map_err(|why| {
            let kind = if why.is::<ValueError>() { FailureKind::Value } else { FailureKind::Failed };
            CallFailure { kind, text: chain(&*why) }
        })
    }
}
