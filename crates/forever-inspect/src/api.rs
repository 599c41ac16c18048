//! What is read: fibers, functions, operations in doubt, agents, schedules.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Json;
use axum::extract::State;
use forever_runtime::fiber::{Cursor, FiberExport, FiberFilter, FiberState, FiberStatus, Fibers, HistoryEntry};
use forever_runtime::ops::OpState;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::Shared;
use crate::failure::{Failure, causes};
use crate::read::{Path, Query};

/// How many operations in doubt, and calls that wait for an answer, are shown.
const LISTED: u32 = 200;

/// How many children of a fiber are shown.
const CHILDREN: u32 = 50;

/// How many turns and messages of a chat are shown.
const MESSAGES: u32 = 100;

/// Length in bytes of the longest condition. SQLite refuses patterns from 50 000 on.
const LONGEST: usize = 10_000;

/// How many checkpoints a timeline has.
const TIMELINE: usize = 100;

/// A history with more checkpoints is not read for a page, which asks again and again.
const LONG_HISTORY: u64 = 5_000;

pub(crate) type Answer = Result<Json<Value>, Failure>;

/// A filter as the query of a URL, and as the body of a bulk command.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Filter {
    /// States, with commas between them.
    state: Option<String>,
    name: Option<String>,
    /// Class and name of an agent, with `/` between them.
    agent: Option<String>,
    parent: Option<String>,
    key: Option<String>,
    text: Option<String>,
    /// Fields of the metadata: an object, or `name=json` each with `&` between them.
    metadata: Option<String>,
    created_from_ms: Option<i64>,
    created_before_ms: Option<i64>,
    changed_from_ms: Option<i64>,
    in_doubt: bool,
    retrying: bool,
}

/// Page of a list.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PageOf {
    after: Option<String>,
    limit: Option<u32>,
    oldest_first: bool,
}

impl Filter {
    /// Whether it lets every fiber through.
    pub(crate) fn is_empty(&self) -> bool {
        let texts = [&self.state, &self.name, &self.agent, &self.parent, &self.key, &self.text, &self.metadata];
        let times = [self.created_from_ms, self.created_before_ms, self.changed_from_ms];
        texts.iter().all(|text| text.is_none()) && times.iter().all(Option::is_none) && !self.in_doubt && !self.retrying
    }

    pub(crate) fn read(&self) -> Result<FiberFilter, Failure> {
        let mut filter = FiberFilter::new();
        for state in parts("state", self.state.as_deref(), ',')? {
            filter = filter.state(state.parse().map_err(|why: String| Failure::bad(why))?);
        }
        if let Some(name) = given("name", self.name.as_deref())? {
            filter = filter.name(name);
        }
        if let Some(agent) = given("agent", self.agent.as_deref())? {
            let (class, name) = agent.split_once('/').ok_or_else(|| Failure::bad("`agent` is a class and a name: `Class/name`"))?;
            filter = filter.agent(class, name);
        }
        if let Some(parent) = given("parent", self.parent.as_deref())? {
            filter = filter.parent(parent);
        }
        if let Some(key) = given("key", self.key.as_deref())? {
            filter = filter.key(key);
        }
        if let Some(text) = given("text", self.text.as_deref())? {
            filter = filter.text(text);
        }
        for (field, value) in fields("metadata", self.metadata.as_deref())? {
            filter = filter.metadata(field, value);
        }
        if let Some(from) = self.created_from_ms {
            filter = filter.created_from(time(from));
        }
        if let Some(before) = self.created_before_ms {
            filter = filter.created_before(time(before));
        }
        if let Some(from) = self.changed_from_ms {
            filter = filter.changed_from(time(from));
        }
        if self.in_doubt {
            filter = filter.in_doubt();
        }
        if self.retrying {
            filter = filter.retrying();
        }
        Ok(filter)
    }
}

/// A condition as it was given. An empty one is refused: it would let every fiber through.
fn given<'a>(name: &str, value: Option<&'a str>) -> Result<Option<&'a str>, Failure> {
    match value {
        Some(value) if value.trim().is_empty() => Err(Failure::bad(format!("condition `{name}` has no value"))),
        Some(value) if value.len() > LONGEST => Err(Failure::bad(format!("condition `{name}` has more than {LONGEST} bytes"))),
        value => Ok(value),
    }
}

/// The parts of a condition, at least one if it was given.
fn parts<'a>(name: &str, value: Option<&'a str>, between: char) -> Result<Vec<&'a str>, Failure> {
    given(name, value)?
        .into_iter()
        .flat_map(|value| value.split(between))
        .map(|part| given(name, Some(part)).map(Option::unwrap_or_default))
        .collect()
}

/// Fields with their values. In an object a value may have any character.
fn fields(name: &str, value: Option<&str>) -> Result<Vec<(String, Value)>, Failure> {
    if let Some(object) = value.filter(|value| value.trim_start().starts_with('{')) {
        let fields: Map<String, Value> =
            serde_json::from_str(object).map_err(|why| Failure::bad(format!("`{name}` is no object: {why}")))?;
        return if fields.is_empty() {
            Err(Failure::bad(format!("condition `{name}` has no value")))
        } else {
            Ok(fields.into_iter().collect())
        };
    }
    let field = |part: &str| {
        let (field, value) = part
            .split_once('=')
            .ok_or_else(|| Failure::bad(format!("`{name}` is `name=value`, with `&` between several, or a JSON object")))?;
        Ok((field.to_owned(), serde_json::from_str(value).unwrap_or_else(|_| Value::from(value))))
    };
    parts(name, value, '&')?.into_iter().map(field).collect()
}

fn time(ms: i64) -> SystemTime {
    let since = Duration::from_millis(ms.unsigned_abs());
    let at = if ms < 0 { SystemTime::UNIX_EPOCH.checked_sub(since) } else { SystemTime::UNIX_EPOCH.checked_add(since) };
    at.unwrap_or(SystemTime::UNIX_EPOCH)
}

impl PageOf {
    fn of(&self, fibers: Fibers) -> Result<Fibers, Failure> {
        let mut fibers = fibers.limit(self.limit.unwrap_or(50));
        if let Some(after) = &self.after {
            let cursor: Cursor = serde_json::from_str(after).map_err(|_| Failure::bad("`after` is the `next` of another page"))?;
            fibers = fibers.after(cursor);
        }
        Ok(if self.oldest_first { fibers } else { fibers.newest_first() })
    }
}

/// The clock of this machine. Times of fibers are those of the runtime's clock, which may be
/// another one in tests.
#[allow(clippy::disallowed_methods, reason = "for a page to show ages, not for what is stored")]
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) async fn fibers(State(shared): State<Arc<Shared>>, Query(query): Query<BTreeMap<String, String>>) -> Answer {
    let (filter, page) = split(query)?;
    let fibers = page.of(shared.forever.fibers().filter(filter.read()?))?;
    let page = shared.forever.view_fibers(fibers).await?;
    Ok(Json(json!({ "actions": shared.has_actions, "fibers": page.fibers, "next": page.next })))
}

/// The filter and the page of a query, with an error for what is neither.
fn split(query: BTreeMap<String, String>) -> Result<(Filter, PageOf), Failure> {
    let (mut filter, mut page) = (Filter::default(), PageOf::default());
    for (name, value) in query {
        let number = || value.parse::<i64>().map_err(|_| Failure::bad(format!("`{name}` is a number")));
        let flag = || value.parse::<bool>().map_err(|_| Failure::bad(format!("`{name}` is true or false")));
        match &*name {
            "state" => filter.state = Some(value),
            "name" => filter.name = Some(value),
            "agent" => filter.agent = Some(value),
            "parent" => filter.parent = Some(value),
            "key" => filter.key = Some(value),
            "text" => filter.text = Some(value),
            "metadata" => filter.metadata = Some(value),
            "created_from_ms" => filter.created_from_ms = Some(number()?),
            "created_before_ms" => filter.created_before_ms = Some(number()?),
            "changed_from_ms" => filter.changed_from_ms = Some(number()?),
            "in_doubt" => filter.in_doubt = flag()?,
            "retrying" => filter.retrying = flag()?,
            "oldest_first" => page.oldest_first = flag()?,
            "after" => page.after = Some(value),
            "limit" => page.limit = Some(u32::try_from(number()?).map_err(|_| Failure::bad("`limit` is a number"))?),
            other => return Err(Failure::bad(format!("`{other}` is no condition"))),
        }
    }
    Ok((filter, page))
}

pub(crate) async fn fiber(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Answer {
    let forever = &shared.forever;
    let view = forever.view(&id).await?;
    let ops = forever.view_ops(&id).await?;
    let children = forever.view_children(&id, CHILDREN).await?;
    let more_children = children.len() == CHILDREN as usize;
    let failed_in = forever.failed_step(&id).await?;
    // The way up, for the tree.
    let mut parents = Vec::new();
    let mut next = view.status.parent.clone();
    while let Some(parent) = next.take().filter(|_| parents.len() < 20) {
        let Ok(status) = forever.status(&parent).await else { break };
        next.clone_from(&status.parent);
        parents.push(status);
    }
    let (history, history_problem) = match timeline(&shared, &view.status).await {
        Ok(history) => (history, None),
        Err(why) => (Vec::new(), Some(why)),
    };
    let positions = shared.positions.get(forever.positions()).await?;
    let frames = view.frames.iter().map(|frame| &*frame.function);
    let names: Vec<&str> = frames.chain([&*view.status.name]).chain(failed_in.iter().map(|failed| &*failed.function)).collect();
    let here: Vec<_> = positions.into_iter().filter(|position| names.contains(&&*position.name)).collect();
    let functions: Vec<_> = forever.functions().into_iter().filter(|function| names.contains(&&*function.name)).collect();
    Ok(Json(json!({
        "now_ms": now_ms(),
        "actions": shared.has_actions,
        "fiber": view,
        "ops": ops,
        "failed_in": failed_in,
        "children": { "fibers": children, "more": more_children },
        "parents": parents,
        "positions": here,
        "functions": functions,
        "history": history,
        "history_problem": history_problem,
    })))
}

/// The newest kept checkpoints of a fiber, oldest first; `Err` says why they are not shown. Texts
/// of errors are left out: they may repeat a secret that the fiber no longer keeps.
async fn timeline(shared: &Shared, status: &FiberStatus) -> Result<Vec<Value>, String> {
    // A damaged history keeps nothing else from being shown.
    if status.checkpoints > LONG_HISTORY {
        let kept = shared.forever.kept_checkpoints(&status.id).await.map_err(|why| causes(&why))?;
        if kept > LONG_HISTORY {
            return Err(format!(
                "some {kept} checkpoints are kept, which are too many to be read for this view: those of one can be looked at by its number"
            ));
        }
    }
    let entries = shared.forever.history(&status.id).await.map_err(|why| causes(&why))?;
    let shown = entries.len().saturating_sub(TIMELINE);
    let entry = |entry: &HistoryEntry| {
        let took_ms = u64::try_from(entry.took.as_millis()).unwrap_or(u64::MAX);
        json!({ "number": entry.number, "at": entry.at, "stored_ms": entry.stored_ms, "took_ms": took_ms,
                "failed_attempts": entry.failed_attempts, "is_resumed": entry.is_resumed, "changed": entry.changed, "origin": entry.origin })
    };
    Ok(entries[shown..].iter().map(entry).collect())
}

pub(crate) async fn fiber_ops(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Answer {
    Ok(Json(json!({ "ops": shared.forever.view_ops(&id).await? })))
}

/// A fiber as it stood behind a checkpoint, and behind the kept one before it.
pub(crate) async fn fiber_at(State(shared): State<Arc<Shared>>, Path((id, number)): Path<(String, u64)>) -> Answer {
    let forever = &shared.forever;
    let frames = forever.locals_at(&id, number).await?;
    let history = forever.history(&id).await?;
    let before = history.iter().map(|entry| entry.number).filter(|before| *before < number).max();
    let before = match before {
        // Items before the first whole one are what is left of deleted ones.
        Some(before) => forever.locals_at(&id, before).await.ok(),
        None => None,
    };
    Ok(Json(json!({ "number": number, "frames": frames, "before": before })))
}

pub(crate) async fn export(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Result<Json<FiberExport>, Failure> {
    Ok(Json(shared.forever.export(&id).await?))
}

pub(crate) async fn functions(State(shared): State<Arc<Shared>>) -> Answer {
    let counts = shared.counts.get(shared.forever.counts()).await?;
    let functions = shared.forever.functions().into_iter().map(|function| {
        let fibers: BTreeMap<String, u64> =
            counts.iter().filter(|count| count.name == function.name).map(|count| (count.state.to_string(), count.fibers)).collect();
        json!({ "name": function.name, "version": function.version, "layout": function.layout, "is_registered": function.is_registered,
                "file": function.source.as_ref().map(|source| &source.file), "line": function.source.as_ref().map(|source| source.line),
                "cuts": function.cuts.len(), "fibers": fibers })
    });
    Ok(Json(json!({ "functions": functions.collect::<Vec<_>>() })))
}

pub(crate) async fn function(State(shared): State<Arc<Shared>>, Path(name): Path<String>) -> Answer {
    let function = shared.forever.functions().into_iter().find(|function| function.name == name);
    let function = function.ok_or_else(|| Failure::not_found(format!("this process knows no function `{name}`")))?;
    let positions = shared.positions.get(shared.forever.positions()).await?;
    let positions: Vec<_> = positions.into_iter().filter(|position| position.name == name).collect();
    Ok(Json(json!({ "function": function, "positions": positions })))
}

/// Operations in doubt with their fibers, the newest fibers first.
pub(crate) async fn in_doubt(State(shared): State<Arc<Shared>>) -> Answer {
    let (ops, more) = newest_in_doubt(&shared, LISTED).await?;
    Ok(Json(json!({ "now_ms": now_ms(), "actions": shared.has_actions, "ops": ops, "more": more })))
}

/// Also says whether there are more.
pub(crate) async fn newest_in_doubt(shared: &Shared, limit: u32) -> Result<(Vec<Value>, bool), Failure> {
    let forever = &shared.forever;
    // Running fibers have begun theirs a moment ago, and will know.
    let states = [FiberState::Parked, FiberState::Interrupted, FiberState::Failed, FiberState::Cancelled];
    let filter = states.iter().fold(FiberFilter::new().in_doubt(), |filter, state| filter.state(*state));
    let page = forever.view_fibers(forever.fibers().filter(filter).limit(limit).newest_first()).await?;
    let more = page.next.is_some();
    let mut found = Vec::new();
    for fiber in page.fibers {
        for op in forever.view_ops(&fiber.id).await?.into_iter().filter(|op| op.state == OpState::Started) {
            found.push(json!({ "fiber": fiber, "op": op }));
        }
    }
    Ok((found, more))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ListQuery {
    class: Option<String>,
    name: Option<String>,
    after: Option<String>,
    limit: Option<u32>,
}

/// The last one of a page that is full, so that there may be more behind it.
fn last_of_full<T>(page: &[T], limit: u32) -> Option<&T> {
    page.last().filter(|_| u32::try_from(page.len()) == Ok(limit))
}

pub(crate) async fn agents(State(shared): State<Arc<Shared>>, Query(page): Query<ListQuery>) -> Answer {
    let limit = page.limit.unwrap_or(100).clamp(1, 1000);
    let agents = shared.forever.view_agents(page.class.zip(page.name), limit).await?;
    let next = last_of_full(&agents, limit).map(|last| json!({ "class": last.class, "name": last.name }));
    Ok(Json(json!({ "agents": agents, "next": next })))
}

/// The newest turns of all chats, and the calls that wait for an answer.
pub(crate) async fn chats(State(shared): State<Arc<Shared>>, Query(page): Query<TurnsQuery>) -> Answer {
    let limit = page.limit.unwrap_or(100).clamp(1, 1000);
    let turns = if page.failed {
        shared.forever.view_failed_turns(page.before, limit).await?
    } else {
        shared.forever.view_turns(page.before, limit).await?
    };
    let next = last_of_full(&turns, limit).map(|last| last.number);
    let pending = shared.forever.view_pending_interactions(LISTED).await?;
    let pending_more = last_of_full(&pending, LISTED).is_some();
    Ok(Json(json!({ "now_ms": now_ms(), "turns": turns, "pending": pending, "pending_more": pending_more, "next": next })))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ChatQuery {
    limit: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TurnsQuery {
    before: Option<i64>,
    limit: Option<u32>,
    failed: bool,
}

pub(crate) async fn chat(
    State(shared): State<Arc<Shared>>,
    Path((class, name)): Path<(String, String)>,
    Query(page): Query<ChatQuery>,
) -> Answer {
    let none = format!("there is no chat `{class}/{name}`, or nothing was said in it");
    let chat = shared.forever.view_chat(class, name, page.limit.unwrap_or(MESSAGES).clamp(1, 1000)).await?;
    if chat.messages.is_empty() && chat.turns.is_empty() {
        return Err(Failure::not_found(none));
    }
    Ok(Json(json!({ "now_ms": now_ms(), "chat": chat })))
}

pub(crate) async fn schedules(State(shared): State<Arc<Shared>>, Query(page): Query<ListQuery>) -> Answer {
    let limit = page.limit.unwrap_or(100).clamp(1, 1000);
    let schedules = shared.forever.view_schedules(page.after, limit).await?;
    let next = last_of_full(&schedules, limit).map(|last| last.id.clone());
    Ok(Json(json!({ "now_ms": now_ms(), "schedules": schedules, "next": next })))
}

/// Whether the stored fibers fitted the code when the runtime was opened.
pub(crate) async fn check(State(shared): State<Arc<Shared>>) -> Answer {
    let compatibility = shared.forever.compatibility();
    Ok(Json(json!({ "is_ok": compatibility.is_ok(), "summary": compatibility.to_string(), "entries": compatibility.entries })))
}
