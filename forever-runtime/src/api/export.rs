//! One fiber as JSON: [`Forever::export`], and [`Forever::import`], which stores it in another
//! database.
use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::api::copies::{first_item, lines, snapshot_of, store_copy, whole};
use crate::api::edit::is_editable;
use crate::api::forever::Forever;
use crate::api::view::{Stored, arguments};
use crate::error::{Error, ErrorKind, Result};
use crate::exec::executor::Executor;
use crate::exec::spawn::check_ids;
use crate::frame::snapshot::Snapshot;
use crate::history::Origin;
use crate::ops::known::of_another_fiber;
use crate::runtime::events::EventKind;
use crate::runtime::handle::FiberHandle;
use crate::runtime::link::Link;
use crate::store::{
    AgentId, BranchResult, FiberCopy, FiberRef, FiberState, HISTORY, LayoutRow, LoadedFiber, NewFiber, OpRecord, OpRetry, OpState,
    PendingMessage, SnapshotRows, StreamAppend, op_stream,
};

/// Version of the format of an export.
const VERSION: u32 = 1;

/// Longest list of messages that is exported with a fiber.
const MOST_MESSAGES: u32 = 10_000;

impl Forever {
    /// Everything that is stored of a fiber, as a value that serde writes as JSON: to look at it
    /// elsewhere, to run it on a laptop, or to move it to another database.
    ///
    /// ```
    /// # use forever_runtime as forever;
    /// # async fn copy(forever: forever::Forever) -> Result<(), forever::BoxError> {
    /// let export = forever.export("order-17").await?;
    /// std::fs::write("order-17.json", serde_json::to_string_pretty(&export)?)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Values that are marked `#[secret]`, and texts that contain them, are
    /// [withheld](FiberExport::withheld). The fiber stays where it is and as it is.
    ///
    /// # Errors
    /// Of kind [`NotFound`](ErrorKind::NotFound) if there is no such fiber; of kind
    /// [`Conflict`](ErrorKind::Conflict) for a closure or a turn of a chat; of kind
    /// [`Value`](ErrorKind::Value) if what is stored is damaged; when the store fails.
    pub async fn export(&self, id: &str) -> Result<FiberExport> {
        export(&self.exec, id).await
    }

    /// Stores an exported fiber in this database.
    ///
    /// One that has ended is stored as it ended. Any other is stored as failed, with a reason that
    /// says so, until [`resume`](Self::resume) lets it go on here; with
    /// [`Import::resume`] it goes on at once. **Let it go on in one place only**: nothing keeps two
    /// databases from carrying out the same effect.
    ///
    /// ```
    /// # use forever_runtime as forever;
    /// # async fn copy(forever: forever::Forever) -> Result<(), forever::BoxError> {
    /// let export = serde_json::from_str(&std::fs::read_to_string("order-17.json")?)?;
    /// let order = forever.import(export).await?;
    /// println!("{:?}", order.status().await?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Values that were withheld have to be set by [`edit`](Self::edit) before it can go on.
    ///
    /// # Errors
    /// Of kind [`Value`](ErrorKind::Value) if the export is of a later version, is damaged, or the
    /// id is not valid; of kind [`InvalidState`](ErrorKind::InvalidState) if it gets another id
    /// although a transaction was committed since its last checkpoint; of kind
    /// [`Conflict`](ErrorKind::Conflict) if there is another fiber with the id or key; when the
    /// store fails. Safe to repeat.
    pub fn import(&self, export: FiberExport) -> Import {
        Import { link: self.exec_link(), export, id: None, resume: false }
    }
}

/// A fiber with everything that is stored of it; serde reads and writes it as JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FiberExport {
    /// Version of the format.
    forever_export: u32,
    exported_ms: i64,
    fiber: Fiber,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    snapshot: Option<Stand>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    layouts: Vec<LayoutText>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ops: Vec<Operation>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    branches: Vec<Branch>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    messages: Vec<Message>,
    /// Items of the history.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    history: Vec<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    withheld: BTreeSet<String>,
}

impl FiberExport {
    /// Id of the fiber.
    pub fn id(&self) -> &str {
        &self.fiber.id
    }

    /// Stored name of its function.
    pub fn name(&self) -> &str {
        &self.fiber.name
    }

    /// State that it had.
    pub fn state(&self) -> FiberState {
        self.fiber.state
    }

    /// Names of the values that are left out since they are, or repeat, values marked `#[secret]`:
    /// locals and arguments by their names, others as `metadata`, `result` or `history`.
    pub fn withheld(&self) -> impl Iterator<Item = &str> {
        self.withheld.iter().map(String::as_str)
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Fiber {
    id: String,
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    class: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
    state: FiberState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    args: Box<RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    metadata: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<Box<RawValue>>,
    restarts: u32,
    checkpoints: u64,
    created_ms: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    finished_ms: Option<i64>,
}

/// The snapshot: the main text, which refers to no other rows, and the hashes of its layouts.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Stand {
    main: Box<RawValue>,
    layout: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    callees: Vec<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct LayoutText {
    hash: String,
    function: String,
    layout: Box<RawValue>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Operation {
    id: String,
    kind: String,
    function: String,
    step: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    number: Option<u64>,
    state: OpState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    outcome: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    resolved: bool,
    #[serde(default, skip_serializing_if = "is_zero")]
    failed: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stash: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    layout: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    log: Vec<Box<RawValue>>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Branch {
    branch: String,
    value: Box<RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    layout: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Message {
    topic: String,
    value: Box<RawValue>,
    sent_ms: i64,
}

/// JSON that stands in the place of a withheld value.
const WITHHELD: &str = "{\"$withheld\":true}";

/// Leaves out what is secret, and remembers where.
struct Filter<'a> {
    stored: &'a Stored,
    withheld: BTreeSet<String>,
}

impl Filter<'_> {
    /// A JSON text, unless it contains a secret.
    fn json(&mut self, name: &str, is_secret: bool, text: &str) -> Result<Box<RawValue>> {
        let text = if is_secret || self.stored.has_secret(text) {
            self.withheld.insert(name.to_owned());
            WITHHELD
        } else {
            text
        };
        let damaged =
            |why| Error::new(ErrorKind::Value, format!("failed to export fiber `{}`: `{name}` is no JSON: {why}", self.stored.row().id));
        RawValue::from_string(text.to_owned()).map_err(damaged)
    }

    /// A text, unless it contains a secret.
    fn text(&mut self, name: &str, text: String) -> Option<String> {
        if self.stored.has_secret(&text) {
            self.withheld.insert(name.to_owned());
            return None;
        }
        Some(text)
    }
}

async fn export(exec: &Arc<Executor>, id: &str) -> Result<FiberExport> {
    let stored = Stored::read(exec, id).await?;
    let row = stored.row().clone();
    is_editable(exec, &row, "export")?;
    let damaged = |why: String| Error::new(ErrorKind::Value, format!("failed to export fiber `{id}`: {why}"));
    let loaded = match stored.loaded() {
        Some(loaded) => loaded.clone(),
        None => exec.runtime.store.load(row.seq).await?,
    };
    let loaded = whole(loaded).map_err(damaged)?;
    let mut layouts: BTreeMap<String, LayoutRow> = BTreeMap::new();
    let of_ops = loaded.ops.iter().filter_map(|op| op.layout.as_deref());
    let of_branches = loaded.branches.iter().filter_map(|branch| branch.layout.as_deref());
    for layout in loaded.layout.iter().chain(&loaded.callees).chain(of_ops).chain(of_branches) {
        layouts.insert(layout.hash.clone(), layout.clone());
    }
    let hides_texts = stored.hides_texts(exec);
    let mut filter = Filter { stored: &stored, withheld: BTreeSet::new() };

    let mut args = BTreeMap::new();
    for (name, text) in arguments(&row.args) {
        let value = filter.json(&name, stored.is_secret(exec, 0, &name), &text)?;
        args.insert(name, value);
    }
    let args = serde_json::value::to_raw_value(&args).map_err(|why| damaged(why.to_string()))?;
    let snapshot = match &loaded.snapshot {
        None => None,
        Some(text) => {
            let mut snapshot: Snapshot = serde_json::from_str(text).map_err(|why| damaged(why.to_string()))?;
            let mut depth = 0;
            snapshot.each(|frame| {
                for (name, value) in &mut frame.locals {
                    *value = filter.json(name, stored.is_secret(exec, depth, name), value.get())?;
                }
                depth += 1;
                Ok::<_, Error>(())
            })?;
            let main = serde_json::value::to_raw_value(&snapshot).map_err(|why| damaged(why.to_string()))?;
            let layout = loaded.layout.as_ref().map(|layout| layout.hash.clone());
            Some(Stand { main, layout, callees: loaded.callees.iter().map(|layout| layout.hash.clone()).collect() })
        }
    };
    // The ledger, and the temporary operations of the step under way.
    let mut records: Vec<OpRecord> = exec.runtime.store.ops(row.seq).await?.into_iter().map(|op| op.record).collect();
    for op in loaded.ops {
        match records.iter_mut().find(|there| there.id == op.id && there.number == op.number) {
            Some(there) => *there = op,
            None => records.push(op),
        }
    }
    let mut ops = Vec::new();
    for op in records {
        let log = if op.state == OpState::Started { lines(exec, row.seq, &op_stream(op.number, &op.id)).await? } else { Vec::new() };
        let name = format!("operation {}", op.id);
        let log = log.iter().map(|item| filter.json(&name, false, item)).collect::<Result<_>>()?;
        let (error, next_ms) = op.retry.map(|retry| (retry.error, retry.next_ms)).unzip();
        ops.push(Operation {
            kind: op.kind.as_str().to_owned(),
            function: op.function,
            step: op.step,
            key: op.key.and_then(|key| filter.text(&name, key)),
            number: op.number,
            state: op.state,
            outcome: op.outcome.and_then(|outcome| filter.text(&name, outcome)),
            resolved: op.resolved,
            failed: op.failed,
            error: error.filter(|_| !hides_texts).and_then(|error| filter.text(&name, error)),
            next_ms,
            stash: op.stash.and_then(|stash| filter.text(&name, stash)),
            layout: op.layout.map(|layout| layout.hash.clone()),
            log,
            id: op.id,
        });
    }
    let mut branches = Vec::new();
    for branch in loaded.branches {
        let value = filter.json(&branch.branch, false, &branch.data)?;
        branches.push(Branch { branch: branch.branch, value, layout: branch.layout.map(|layout| layout.hash.clone()) });
    }
    let mut messages = Vec::new();
    for message in exec.runtime.store.pending_messages(id.to_owned(), MOST_MESSAGES).await? {
        let value = filter.json(&format!("message on {}", message.topic), hides_texts, &message.data)?;
        messages.push(Message { topic: message.topic, value, sent_ms: message.sent_ms });
    }
    let mut history = Vec::new();
    for item in lines(exec, row.seq, HISTORY).await? {
        // A value that is kept no longer may have been secret.
        if hides_texts {
            filter.withheld.insert("history".to_owned());
            break;
        }
        history.push(RawValue::from_string(item).map_err(|why| damaged(format!("an item of its history is no JSON: {why}")))?);
    }
    let metadata = row.metadata.map(|text| filter.json("metadata", false, &text)).transpose()?;
    let result = row.result.map(|text| filter.json("result", false, &text)).transpose()?;
    let fiber = Fiber {
        key: row.key.and_then(|key| filter.text("key", key)),
        reason: row.reason.and_then(|reason| {
            if hides_texts {
                filter.withheld.insert("reason".to_owned());
                None
            } else {
                filter.text("reason", reason)
            }
        }),
        id: row.id,
        name: row.name,
        class: row.agent.as_ref().map(|agent| agent.class.clone()),
        agent: row.agent.map(|agent| agent.name),
        parent: row.parent,
        state: row.state,
        args,
        metadata,
        result,
        restarts: loaded.restarts,
        checkpoints: loaded.number,
        created_ms: row.created_ms,
        finished_ms: row.finished_ms,
    };
    let text = |row: LayoutRow| {
        let layout = RawValue::from_string(row.layout).map_err(|why| damaged(format!("a layout is no JSON: {why}")))?;
        Ok(LayoutText { hash: row.hash, function: row.fiber, layout })
    };
    let layouts = layouts.into_values().map(text).collect::<Result<_>>()?;
    let withheld = filter.withheld;
    Ok(FiberExport {
        forever_export: VERSION,
        exported_ms: exec.runtime.now_ms(),
        fiber,
        snapshot,
        layouts,
        ops,
        branches,
        messages,
        history,
        withheld,
    })
}

/// Import of a fiber, stored by `.await`; made by [`Forever::import`].
#[derive(Debug)]
#[must_use = "a fiber is imported when this is awaited"]
pub struct Import {
    link: Link<Executor>,
    export: FiberExport,
    id: Option<String>,
    resume: bool,
}

impl Import {
    /// Another id than it had. Then it has no key either, and its operations have other ids.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Lets it go on at once, unless it has ended.
    pub fn resume(mut self) -> Self {
        self.resume = true;
        self
    }
}

impl IntoFuture for Import {
    type Output = Result<FiberHandle<Value>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(import(self))
    }
}

async fn import(import: Import) -> Result<FiberHandle<Value>> {
    let Import { link, export, id: new_id, resume } = import;
    let exec = &link.get()?;
    let old_id = export.fiber.id.clone();
    let refused = |kind, why: String| Error::new(kind, format!("failed to import fiber `{old_id}`: {why}"));
    let damaged = |why: String| refused(ErrorKind::Value, why);
    if export.forever_export != VERSION {
        return Err(damaged(format!("version {} of an export is not known here, only {VERSION}", export.forever_export)));
    }
    let is_renamed = new_id.as_ref().is_some_and(|id| *id != old_id);
    let id = new_id.unwrap_or_else(|| old_id.clone());
    let key = export.fiber.key.filter(|_| !is_renamed);
    check_ids(Some(&id), key.as_deref()).map_err(damaged)?;

    let layouts: BTreeMap<String, LayoutRow> = export
        .layouts
        .into_iter()
        .map(|LayoutText { hash, function, layout }| (hash.clone(), LayoutRow { hash, fiber: function, layout: layout.get().to_owned() }))
        .collect();
    for row in layouts.values() {
        let read = crate::layout::spec::Layout::read(row).map_err(damaged)?;
        if read.hash() != row.hash {
            return Err(damaged(format!("the layout `{}` is not the one of this hash", row.hash)));
        }
    }
    let layout = |hash: &String| layouts.get(hash).cloned().ok_or_else(|| damaged(format!("the layout `{hash}` is missing")));
    let (mut snapshot, mut of_snapshot, mut callees) = (None, None, Vec::new());
    if let Some(stand) = export.snapshot {
        let read: Snapshot =
            serde_json::from_str(stand.main.get()).map_err(|why| damaged(format!("the snapshot cannot be read: {why}")))?;
        // In the form in which snapshots are stored, whatever the white space of the file.
        snapshot = Some(serde_json::to_string(&read).map_err(|why| damaged(why.to_string()))?);
        of_snapshot = stand.layout.as_ref().map(layout).transpose()?;
        callees = stand.callees.iter().map(layout).collect::<Result<_>>()?;
    }
    let mut ops = Vec::new();
    let mut streams = Vec::new();
    for op in export.ops {
        let of_op = op.layout.as_ref().map(layout).transpose()?.map(Arc::new);
        let record = OpRecord {
            kind: op.kind.parse().map_err(damaged)?,
            function: op.function,
            step: op.step,
            key: op.key,
            number: op.number,
            state: op.state,
            outcome: op.outcome,
            resolved: op.resolved,
            failed: op.failed,
            retry: op.error.zip(op.next_ms).map(|(error, next_ms)| OpRetry { error, next_ms }),
            stash: op.stash,
            layout: of_op,
            id: op.id,
        };
        let record = if is_renamed {
            of_another_fiber(record, &id, export.fiber.restarts).map_err(|why| refused(ErrorKind::InvalidState, why))?
        } else {
            record
        };
        streams.extend(items(op_stream(record.number, &record.id), &op.log));
        ops.push(record);
    }
    let branch = |branch: Branch| {
        let layout = branch.layout.as_ref().map(layout).transpose()?.map(Arc::new);
        Ok(BranchResult { branch: branch.branch, data: branch.value.get().to_owned(), layout })
    };
    let branches = export.branches.into_iter().map(branch).collect::<Result<_>>()?;
    let origin = Origin::Import { of: old_id.clone(), exported_ms: export.exported_ms };
    let now_ms = exec.runtime.now_ms();
    streams.extend(items(HISTORY.to_owned(), &export.history));
    let state = export.fiber.state;
    let (state, reason) = match state {
        FiberState::Completed | FiberState::Failed | FiberState::Cancelled => (state, export.fiber.reason),
        _ if resume => (FiberState::Pending, None),
        state => (FiberState::Failed, Some(format!("imported; it was {state} where it came from, and goes on here when it is resumed"))),
    };
    let parent = match &export.fiber.parent {
        Some(parent) => exec.runtime.store.find(FiberRef::Id(parent.clone())).await?.map(|row| row.seq),
        None => None,
    };
    let loaded = LoadedFiber {
        args: export.fiber.args.get().to_owned(),
        snapshot,
        rows: SnapshotRows::default(),
        number: export.fiber.checkpoints,
        restarts: export.fiber.restarts,
        deaths: 0,
        interrupted: false,
        epoch: 0,
        ops: Vec::new(),
        branches,
        layout: of_snapshot,
        callees,
    };
    let mut first = first_item(&loaded, now_ms, &origin);
    match streams.iter_mut().find(|items| items.name == HISTORY) {
        Some(items) => {
            items.count += first.count;
            items.data.push('\n');
            items.data.push_str(&first.data);
        }
        None => {
            first.first = Some(0);
            streams.push(first);
        }
    }
    let name = export.fiber.name;
    let agent = export.fiber.class.zip(export.fiber.agent).map(|(class, name)| AgentId { class, name });
    let messages = export.messages.into_iter().map(|message| PendingMessage {
        seq: 0,
        topic: message.topic,
        data: message.value.get().to_owned(),
        sent_ms: message.sent_ms,
    });
    let fiber = NewFiber {
        id: id.clone(),
        name: name.clone(),
        key,
        id_given: true,
        closure: false,
        args: loaded.args.clone(),
        metadata: export.fiber.metadata.map(|metadata| metadata.get().to_owned()),
        agent,
        parent,
        worker: None,
        now_ms,
    };
    let copy = FiberCopy {
        fiber,
        state,
        reason,
        result: export.fiber.result.map(|result| result.get().to_owned()),
        restarts: loaded.restarts,
        number: loaded.number,
        snapshot: snapshot_of(&loaded),
        ops,
        branches: loaded.branches,
        streams,
        messages: messages.collect(),
    };
    store_copy(exec, copy, &origin, &format!("import fiber `{old_id}`")).await?;
    exec.runtime.tell(&id, &name, || EventKind::Spawned);
    Ok(FiberHandle::new(link.runtime(), id, name, true))
}

/// Items as those of a new stream.
fn items(name: String, items: &[Box<RawValue>]) -> Option<StreamAppend> {
    let data: Vec<String> = items.iter().map(|item| item.get().replace('\n', " ")).collect();
    let count = data.len() as u64;
    (count > 0).then(|| StreamAppend { name: name.into(), first: Some(0), count, data: data.join("\n"), keep: None })
}
