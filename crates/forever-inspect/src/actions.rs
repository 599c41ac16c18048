//! Commands: each is logged, so that it is seen later what a person did.
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use forever_runtime::fiber::{Cursor, FiberExport, LocalsMut, Resolution};
use forever_runtime::ops::OpResolution;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tracing::info;

use crate::Shared;
use crate::api::{Answer, Filter};
use crate::failure::Failure;
use crate::read::Path;

/// How many fibers one bulk command changes; the answer says where the next begins.
const BULK: u32 = 500;

/// The body of a command: JSON, or nothing for one without fields.
fn read<T: DeserializeOwned + Default>(body: &Bytes) -> Result<T, Failure> {
    if body.is_empty() {
        return Ok(T::default());
    }
    serde_json::from_slice(body).map_err(|why| Failure::bad(format!("the body is no such command: {why}")))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Command {
    /// Of a cancel or a failure.
    reason: Option<String>,
    /// `complete` or `fail`, of a resolution.
    how: Option<String>,
    /// Of a completion or a message.
    value: Option<Value>,
    topic: Option<String>,
    message_id: Option<String>,
    /// Of a message that is discarded.
    number: Option<i64>,
    /// Of an edit or a fork: new values by name.
    set: BTreeMap<String, Box<RawValue>>,
    /// Who gives an edit.
    by: Option<String>,
    /// Of a fork: the checkpoint, and the id.
    at: Option<u64>,
    id: Option<String>,
    repeat_effects: bool,
}

/// A change that sets values.
fn setting(set: BTreeMap<String, Box<RawValue>>) -> impl FnOnce(&mut LocalsMut) -> forever_runtime::Result<()> + Send + 'static {
    move |locals| set.iter().try_for_each(|(name, value)| locals.set_json(name, value.get()))
}

pub(crate) async fn fiber(State(shared): State<Arc<Shared>>, Path((id, action)): Path<(String, String)>, body: Bytes) -> Answer {
    let command: Command = read(&body)?;
    let forever = &shared.forever;
    match &*action {
        "resume" => forever.resume(&id).await?,
        "restart" => forever.restart(&id).await?,
        "cancel" => forever.cancel(&id, command.reason.as_deref().unwrap_or("cancelled by a person")).await?,
        "resolve" => {
            let how = match command.how.as_deref() {
                Some("complete") => Resolution::Completed(command.value.unwrap_or(Value::Null)),
                Some("fail") => Resolution::Failed(command.reason.unwrap_or_else(|| "failed by a person".to_owned())),
                _ => return Err(Failure::bad("`how` is `complete`, with a `value`, or `fail`, with a `reason`")),
            };
            forever.resolve(&id, how).await?;
        }
        "send" => {
            let topic = command.topic.ok_or_else(|| Failure::bad("a message has a `topic`"))?;
            let value = command.value.ok_or_else(|| Failure::bad("a message has a `value`"))?;
            let message = forever.send(&id, &topic, &value);
            match command.message_id {
                Some(message_id) => message.message_id(message_id).await?,
                None => message.await?,
            }
        }
        "discard" => {
            let number = command.number.ok_or_else(|| Failure::bad("a message that is discarded has a `number`"))?;
            forever.discard_message(&id, number).await?;
        }
        "edit" => {
            if command.set.is_empty() {
                return Err(Failure::bad("an edit has values to `set`, by name"));
            }
            let edit = forever.edit(&id, setting(command.set));
            match command.by {
                Some(by) => edit.by(by).await?,
                None => edit.await?,
            }
        }
        "fork" => return fork(&shared, &id, command).await,
        other => return Err(Failure::not_found(format!("there is no command `{other}`"))),
    }
    info!(fiber.id = id, command = action, "a command was given to a fiber");
    Ok(Json(json!({ "done": true, "status": forever.status(&id).await? })))
}

async fn fork(shared: &Shared, of: &str, command: Command) -> Answer {
    let mut fork = shared.forever.fork(of);
    if let Some(at) = command.at {
        fork = fork.at(at);
    }
    if let Some(id) = command.id {
        fork = fork.id(id);
    }
    if command.repeat_effects {
        fork = fork.repeat_effects();
    }
    if !command.set.is_empty() {
        fork = fork.edit(setting(command.set));
    }
    let fork = fork.await?;
    info!(fiber.id = of, fork = fork.id(), "a fiber was forked");
    Ok(Json(json!({ "done": true, "id": fork.id(), "status": shared.forever.status(fork.id()).await? })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Import {
    export: FiberExport,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    resume: bool,
}

pub(crate) async fn import(State(shared): State<Arc<Shared>>, body: Bytes) -> Answer {
    let Import { export, id, resume }: Import =
        serde_json::from_slice(&body).map_err(|why| Failure::bad(format!("the body is no exported fiber: {why}")))?;
    let mut import = shared.forever.import(export);
    if let Some(id) = id {
        import = import.id(id);
    }
    if resume {
        import = import.resume();
    }
    let fiber = import.await?;
    info!(fiber.id = fiber.id(), "a fiber was imported");
    Ok(Json(json!({ "done": true, "id": fiber.id(), "status": shared.forever.status(fiber.id()).await? })))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Outcome {
    /// `completed`, `not_executed` or `failed`.
    how: String,
    value: Option<Value>,
    error: Option<String>,
}

pub(crate) async fn op(State(shared): State<Arc<Shared>>, Path(id): Path<String>, body: Bytes) -> Answer {
    let outcome: Outcome = read(&body)?;
    let how = match &*outcome.how {
        "completed" => OpResolution::Completed(outcome.value.unwrap_or(Value::Null)),
        "not_executed" => OpResolution::NotExecuted,
        "failed" => OpResolution::Failed(outcome.error.unwrap_or_else(|| "failed, as a person has found".to_owned())),
        _ => return Err(Failure::bad("`how` is `completed`, with a `value`, `not_executed`, or `failed`, with an `error`")),
    };
    shared.forever.resolve_op(&id, how).await?;
    info!(op = id, outcome = outcome.how, "an operation was resolved");
    Ok(Json(json!({ "done": true })))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Bulk {
    /// `resume`, `restart` or `cancel`.
    action: String,
    filter: Filter,
    reason: Option<String>,
    after: Option<Cursor>,
}

/// Gives one command to every fiber that a filter lets through, a page at a time. A fiber that
/// cannot take it is named, and keeps none of the others from it.
pub(crate) async fn bulk(State(shared): State<Arc<Shared>>, body: Bytes) -> Answer {
    let bulk: Bulk = read(&body)?;
    if bulk.filter.is_empty() {
        return Err(Failure::bad("a bulk command needs a filter"));
    }
    if !["resume", "restart", "cancel"].contains(&&*bulk.action) {
        return Err(Failure::bad(format!("there is no bulk command `{}`: `resume`, `restart` or `cancel`", bulk.action)));
    }
    let forever = &shared.forever;
    let mut page = forever.fibers().filter(bulk.filter.read()?).limit(BULK);
    if let Some(after) = bulk.after {
        page = page.after(after);
    }
    let page = forever.view_fibers(page).await?;
    let reason = bulk.reason.as_deref().unwrap_or("cancelled by a person");
    let (mut done, mut refused) = (0_u64, Vec::new());
    for fiber in &page.fibers {
        let result = match &*bulk.action {
            "resume" => forever.resume(&fiber.id).await,
            "restart" => forever.restart(&fiber.id).await,
            _ => forever.cancel(&fiber.id, reason).await,
        };
        match result {
            Ok(()) => done += 1,
            Err(why) => refused.push(json!({ "id": fiber.id, "error": why.to_string() })),
        }
    }
    info!(command = bulk.action, done, refused = refused.len(), "a command was given to many fibers");
    Ok(Json(json!({ "done": done, "refused": refused, "next": page.next })))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Backup {
    path: PathBuf,
}

/// Copies the database to a file of this machine. Over the control socket alone, whose client may
/// write files as this process does.
pub(crate) async fn backup(State(shared): State<Arc<Shared>>, body: Bytes) -> Answer {
    if !shared.is_socket {
        return Err(Failure::forbidden("a backup is made over the control socket alone"));
    }
    let backup: Backup = read(&body)?;
    if !backup.path.is_absolute() {
        return Err(Failure::bad("`path` is absolute"));
    }
    shared.forever.backup(&backup.path).await?;
    info!(path = %backup.path.display(), "the database was copied");
    Ok(Json(json!({ "done": true })))
}
