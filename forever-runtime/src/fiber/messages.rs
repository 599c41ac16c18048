//! Sending to a fiber: stored first, then the fiber is woken if it waits for it.
use std::sync::Arc;

use serde::Serialize;

use super::core::Core;
use super::machine::CutKind;
use super::saved::text_to_keep;
use super::waking;
use crate::error::{Error, ErrorKind, Result, chain};
use crate::store::{Asked, Find, NewMessage};

/// Sends `value` to a fiber.
pub(crate) async fn send<V: Serialize + ?Sized>(core: &Arc<Core>, id: &str, topic: &str, value: &V) -> Result<()> {
    let refused = |kind, why: String| Error::new(kind, format!("failed to send to fiber `{id}` on topic `{topic}`: {why}"));
    let data = text_to_keep(value).map_err(|why| refused(ErrorKind::Value, format!("the value {why}")))?;
    let there = core.store.find(Find::Id(id.to_owned())).await?;
    let Some(row) = there else { return Err(refused(ErrorKind::NotFound, "there is no such fiber".into())) };
    let known = if row.closure { None } else { core.registry.get(&row.name) };
    if let Some(known) = known {
        let (topics, cuts) = (known.machine().topics, known.machine().cuts);
        // What it calls may receive on other topics.
        let calls = cuts.iter().any(|cut| cut.kind == CutKind::Call);
        if !calls && !topics.contains(&topic) {
            let which = match topics {
                [] => "it receives no messages".to_owned(),
                topics => format!("it receives on {}", topics.iter().map(|t| format!("`{t}`")).collect::<Vec<_>>().join(", ")),
            };
            return Err(refused(ErrorKind::Conflict, format!("it is a fiber `{}`, and {which}", row.name)));
        }
        core.topics.check(&row.name, topic, &data).map_err(|why| refused(ErrorKind::Conflict, format!("the value {why}")))?;
    } else if row.closure {
        return Err(refused(ErrorKind::Conflict, "it is a closure, and receives no messages".into()));
    }
    let message = NewMessage { to: id.to_owned(), topic: topic.to_owned(), data, now_ms: core.now_ms() };
    match core.store.send(message).await.map_err(|e| refused(e.kind(), chain(&e)))? {
        Asked::Done(woken) => {
            waking::start(core, woken.into_iter().collect());
            Ok(())
        }
        Asked::Unknown => Err(refused(ErrorKind::NotFound, "there is no such fiber".into())),
        Asked::Not(state) => Err(refused(ErrorKind::Conflict, format!("it has {state} already"))),
    }
}
