//! From an export to a stored fiber.
use std::collections::BTreeMap;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use super::{Branch, Closed, FiberExport, LayoutText, Message, Operation, Stand, VERSION};
use crate::api::copies::{first_item, new_stream, snapshot_of, store_copy};
use crate::error::{Error, ErrorKind, Result};
use crate::exec::executor::Executor;
use crate::exec::spawn::check_ids;
use crate::frame::snapshot::{Snapshot, without_spaces};
use crate::history::Origin;
use crate::layout::spec::Layout;
use crate::ops::known::of_another_fiber;
use crate::runtime::events::EventKind;
use crate::runtime::handle::FiberHandle;
use crate::runtime::link::Link;
use crate::store::{
    AgentId, BranchResult, FiberCopy, FiberRef, FiberState, HISTORY, LayoutRow, LoadedFiber, NewFiber, OpRecord, OpRetry, PendingMessage,
    SnapshotRows, StreamAppend, op_stream,
};

/// Import of a fiber, stored by `.await`; made by [`Forever::import`](crate::Forever::import).
///
/// ```
/// # use forever_runtime as forever;
/// use forever::Forever;
/// use forever::fiber::FiberExport;
///
/// /// Repeats a fiber of production on a laptop, under an id of its own.
/// async fn reproduce(laptop: &Forever, export: FiberExport) -> forever::Result<()> {
///     let copy = laptop.import(export).id("order-17-laptop").resume().await?;
///     println!("{:?}", copy.wait().await);
///     Ok(())
/// }
/// ```
#[derive(Debug)]
#[must_use = "a fiber is imported when this is awaited"]
pub struct Import {
    link: Link<Executor>,
    export: FiberExport,
    id: Option<String>,
    resume: bool,
}

impl Import {
    pub(super) fn new(link: Link<Executor>, export: FiberExport) -> Self {
        Import { link, export, id: None, resume: false }
    }

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
    let Import { link, export, id, resume } = import;
    let exec = &link.get()?;
    let of = export.fiber.id.clone();
    let refused = |(kind, why): (ErrorKind, String)| Error::new(kind, format!("failed to import fiber `{of}`: {why}"));
    if export.forever_export != VERSION {
        let why = format!("version {} of an export is not known here, only {VERSION}", export.forever_export);
        return Err(refused((ErrorKind::Value, why)));
    }
    let parent = match &export.fiber.parent {
        Some(parent) => exec.runtime.store.find(FiberRef::Id(parent.clone())).await?.map(|row| row.seq),
        None => None,
    };
    let origin = Origin::Import { of: of.clone(), exported_ms: export.exported_ms };
    let name = export.fiber.name.clone();
    let mut copy = copy_of(export, id, resume, &origin, exec.runtime.now_ms()).map_err(refused)?;
    copy.fiber.parent = parent;
    let id = copy.fiber.id.clone();
    store_copy(exec, copy, &origin, &format!("import fiber `{of}`")).await?;
    exec.runtime.tell(&id, &name, || EventKind::Spawned);
    Ok(FiberHandle::new(link.runtime(), id, name, true))
}

/// Why an export is refused.
type Refused = (ErrorKind, String);

fn damaged(why: impl std::fmt::Display) -> Refused {
    (ErrorKind::Value, why.to_string())
}

/// The fiber of an export as it is to be stored.
fn copy_of(export: FiberExport, new_id: Option<String>, resume: bool, origin: &Origin, now_ms: i64) -> Result<FiberCopy, Refused> {
    let fiber = export.fiber;
    let is_renamed = new_id.as_ref().is_some_and(|id| *id != fiber.id);
    let id = new_id.unwrap_or(fiber.id);
    let key = fiber.key.filter(|_| !is_renamed);
    check_ids(Some(&id), key.as_deref()).map_err(damaged)?;
    let layouts = Layouts::read(export.layouts)?;
    let (snapshot, layout, callees) = read_snapshot(export.snapshot, &layouts)?;
    let (mut ops, mut streams) = (Vec::new(), Vec::new());
    for op in export.ops {
        let (mut record, log) = record_of(op, &layouts)?;
        if is_renamed {
            record = of_another_fiber(record, &id, fiber.restarts).map_err(|why| (ErrorKind::InvalidState, why))?;
        }
        streams.extend(items(op_stream(record.number, &record.id), &log));
        ops.push(record);
    }
    let branch = |Branch { name, value, layout }: Branch| {
        Ok(BranchResult { branch: name, data: value.get().to_owned(), layout: layouts.find(layout.as_ref())?.map(Arc::new) })
    };
    let loaded = LoadedFiber {
        args: fiber.args.get().to_owned(),
        snapshot,
        rows: SnapshotRows::default(),
        number: fiber.checkpoints,
        restarts: fiber.restarts,
        deaths: 0,
        interrupted: false,
        epoch: 0,
        lease_left_ms: None,
        ops: Vec::new(),
        branches: export.branches.into_iter().map(branch).collect::<Result<_, Refused>>()?,
        layout,
        callees,
    };
    streams.push(history_of(&export.history, first_item(&loaded, now_ms, origin)));
    let (state, reason) = match fiber.state {
        state @ (FiberState::Completed | FiberState::Failed | FiberState::Cancelled) => (state, fiber.reason),
        _ if resume => (FiberState::Pending, None),
        state => (FiberState::Failed, Some(format!("imported; it was {state} where it came from, and goes on here when it is resumed"))),
    };
    let message = |Message { topic, value, sent_ms }: Message| PendingMessage { seq: 0, topic, data: value.get().to_owned(), sent_ms };
    let text = |value: Box<RawValue>| value.get().to_owned();
    Ok(FiberCopy {
        fiber: NewFiber {
            id,
            name: fiber.name,
            key,
            id_given: true,
            closure: false,
            args: loaded.args.clone(),
            metadata: fiber.metadata.map(text),
            agent: fiber.class.zip(fiber.agent).map(|(class, name)| AgentId { class, name }),
            parent: None,
            worker: None,
            now_ms,
        },
        state,
        reason,
        result: fiber.result.map(text),
        restarts: loaded.restarts,
        number: loaded.number,
        snapshot: snapshot_of(&loaded),
        ops,
        branches: loaded.branches,
        streams,
        messages: export.messages.into_iter().map(message).collect(),
        closed: export.closed.into_iter().map(|Closed { topic, checkpoint }| (topic, checkpoint)).collect(),
    })
}

/// The layouts of an export, by hash.
struct Layouts(BTreeMap<String, LayoutRow>);

impl Layouts {
    fn read(layouts: Vec<LayoutText>) -> Result<Self, Refused> {
        let mut rows = BTreeMap::new();
        for LayoutText { hash, function, layout } in layouts {
            let row = LayoutRow { hash: hash.clone(), fiber: function, layout: layout.get().to_owned() };
            // All fibers of a database share the layout of a hash, so it has to be the one.
            if Layout::read(&row).map_err(damaged)?.hash() != hash {
                return Err(damaged(format_args!("the layout `{hash}` is not the one of this hash")));
            }
            rows.insert(hash, row);
        }
        Ok(Layouts(rows))
    }

    fn of(&self, hash: &String) -> Result<LayoutRow, Refused> {
        self.0.get(hash).cloned().ok_or_else(|| damaged(format_args!("the layout `{hash}` is missing")))
    }

    fn find(&self, hash: Option<&String>) -> Result<Option<LayoutRow>, Refused> {
        hash.map(|hash| self.of(hash)).transpose()
    }
}

/// The main text of a snapshot, with its layout and those of the functions that were being called.
type ReadSnapshot = (Option<String>, Option<LayoutRow>, Vec<LayoutRow>);

fn read_snapshot(stand: Option<Stand>, layouts: &Layouts) -> Result<ReadSnapshot, Refused> {
    let Some(Stand { main, layout, callees }) = stand else { return Ok((None, None, Vec::new())) };
    let read: Snapshot = serde_json::from_str(main.get()).map_err(|why| damaged(format_args!("the snapshot cannot be read: {why}")))?;
    // In the form in which snapshots are stored, whatever the white space of the file.
    let text = without_spaces(&serde_json::to_string(&read).map_err(damaged)?);
    let callees = callees.iter().map(|hash| layouts.of(hash)).collect::<Result<_, _>>()?;
    Ok((Some(text), layouts.find(layout.as_ref())?, callees))
}

/// The record of an operation, and the items of its log.
fn record_of(op: Operation, layouts: &Layouts) -> Result<(OpRecord, Vec<Box<RawValue>>), Refused> {
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
        layout: layouts.find(op.layout.as_ref())?.map(Arc::new),
        id: op.id,
    };
    Ok((record, op.log))
}

/// Items as those of a new stream.
fn items(name: String, items: &[Box<RawValue>]) -> Option<StreamAppend> {
    // One line each.
    let items: Vec<String> = items.iter().map(|item| without_spaces(item.get())).collect();
    new_stream(name, &items)
}

/// The history that it had, and the item that says where it comes from.
fn history_of(history: &[Box<RawValue>], last: StreamAppend) -> StreamAppend {
    let Some(mut all) = items(HISTORY.to_owned(), history) else { return StreamAppend { first: Some(0), ..last } };
    all.count += last.count;
    all.data.push('\n');
    all.data.push_str(&last.data);
    all
}
