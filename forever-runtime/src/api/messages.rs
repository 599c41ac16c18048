//! Sending to a fiber: stored first, then the fiber is woken if it waits for it.
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use serde::Serialize;

use crate::error::{Error, ErrorKind, Result, chain};
use crate::exec::executor::Executor;
use crate::exec::spawn::LONGEST_ID;
use crate::frame::machine::{COMPUTED_TOPIC, CutKind};
use crate::frame::saved::text_to_keep;
use crate::runtime::detached::detached;
use crate::runtime::link::Link;
use crate::store::{CommandResult, FiberRef, NewMessage};

/// Message to a fiber, stored by `.await`.
///
/// Made by [`Forever::send`](crate::Forever::send).
#[derive(Debug)]
#[must_use = "a message is sent when this is awaited"]
pub struct SendMessage {
    link: Link<Executor>,
    fiber: String,
    topic: String,
    /// Text of the value, or why there is none.
    data: Result<String, String>,
    id: Option<String>,
}

impl SendMessage {
    pub(crate) fn new<V: Serialize + ?Sized>(link: Link<Executor>, fiber: &str, topic: &str, value: &V) -> Self {
        let data = text_to_keep(value);
        SendMessage { link, fiber: fiber.to_owned(), topic: topic.to_owned(), data, id: None }
    }

    /// Id of the message, which makes sending it again safe.
    ///
    /// A message with an id that the fiber was sent before, received or not, changes nothing and is
    /// no error, also if its value is another one. Ids are remembered as long as the fiber is.
    pub fn message_id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }
}

impl IntoFuture for SendMessage {
    type Output = Result<()>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { send(&self.link.get()?, self).await })
    }
}

async fn send(exec: &Arc<Executor>, message: SendMessage) -> Result<()> {
    let SendMessage { link: _, fiber: id, topic, data, id: message_id } = message;
    let (id, topic) = (id.as_str(), topic.as_str());
    let refused = |kind, why: String| Error::new(kind, format!("failed to send to fiber `{id}` on topic `{topic}`: {why}"));
    let data = data.map_err(|why| refused(ErrorKind::Value, format!("the value {why}")))?;
    if message_id.as_ref().is_some_and(|id| id.trim().is_empty() || id.len() > LONGEST_ID) {
        let why = format!("its message id must not be blank, nor longer than {LONGEST_ID} bytes");
        return Err(refused(ErrorKind::Value, why));
    }
    let there = exec.runtime.store.find(FiberRef::Id(id.to_owned())).await?;
    let Some(row) = there else { return Err(refused(ErrorKind::NotFound, "there is no such fiber".into())) };
    let known = if row.closure { None } else { exec.registry.get(&row.name) };
    if let Some(known) = known {
        let (topics, cuts) = (known.machine().topics, known.machine().cuts);
        // What it calls may receive on other topics, and computed ones are known only while it
        // waits.
        let others = topics.contains(&COMPUTED_TOPIC) || cuts.iter().any(|cut| cut.kind == CutKind::Call);
        if !others && !topics.contains(&topic) {
            let which = match topics {
                [] => "it receives no messages".to_owned(),
                topics => format!("it receives on {}", topics.iter().map(|t| format!("`{t}`")).collect::<Vec<_>>().join(", ")),
            };
            return Err(refused(ErrorKind::Conflict, format!("it is a fiber `{}`, and {which}", row.name)));
        }
        exec.runtime.topics.check(&row.name, topic, &data).map_err(|why| refused(ErrorKind::Conflict, format!("the value {why}")))?;
    } else if row.closure {
        return Err(refused(ErrorKind::Conflict, "it is a closure, and receives no messages".into()));
    }
    let message = NewMessage { to: id.to_owned(), id: message_id, topic: topic.to_owned(), data, now_ms: exec.runtime.now_ms() };
    let (runtime, to) = (Arc::clone(&exec.runtime), id.to_owned());
    let work = async move {
        // The store tells the dispatcher, if the fiber waits for it.
        let sent = runtime.store.send(message).await;
        // One that waits in memory looks itself, also where it is unknown whether there is one.
        if let Some(control) = runtime.active.get(&to).and_then(|entry| entry.control()) {
            control.ring();
        }
        sent
    };
    match detached(&exec.runtime, work).await.map_err(|e| refused(e.kind(), chain(&e)))? {
        CommandResult::Done(()) => Ok(()),
        CommandResult::NotFound => Err(refused(ErrorKind::NotFound, "there is no such fiber".into())),
        CommandResult::InvalidState(state) => Err(refused(ErrorKind::InvalidState, format!("it has {state} already"))),
    }
}
