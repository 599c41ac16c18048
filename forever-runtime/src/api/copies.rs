//! What forks and imported fibers have in common: how a copy of a fiber is made and stored.
use std::borrow::Cow;
use std::sync::Arc;

use crate::api::history::{batches, origin};
use crate::error::{Error, ErrorKind, Result};
use crate::exact::logs::PLACEHOLDER;
use crate::exec::executor::Executor;
use crate::frame::snapshot::Snapshot;
use crate::history::{Origin, item_of};
use crate::runtime::detached::detached;
use crate::store::{
    AcceptResult, FiberCopy, HISTORY, LoadedFiber, OpRecord, OpState, Seq, SnapshotCopy, SnapshotRows, StreamAppend, op_stream,
};

/// A fiber whose main text has all values, and refers to no other rows.
pub(super) fn whole(mut loaded: LoadedFiber) -> Result<LoadedFiber, String> {
    let rows = std::mem::take(&mut loaded.rows);
    if let Some(text) = &loaded.snapshot {
        let mut snapshot: Snapshot = serde_json::from_str(text).map_err(|why| format!("its snapshot cannot be read: {why}"))?;
        snapshot.put_back(&rows)?;
        snapshot.put_back_logs(&rows)?;
        let text = serde_json::to_string(&snapshot).map_err(|why| why.to_string())?;
        if text.contains(PLACEHOLDER) {
            return Err("items of a log that it had are deleted".to_owned());
        }
        loaded.snapshot = Some(text);
    }
    Ok(LoadedFiber { rows: SnapshotRows::default(), ..loaded })
}

/// Name of the innermost cut point of a main text.
pub(super) fn innermost(text: &str) -> String {
    let Ok(mut snapshot) = serde_json::from_str::<Snapshot>(text) else { return String::new() };
    while let Some(call) = snapshot.call {
        snapshot = *call;
    }
    snapshot.at
}

/// The snapshot of a [whole](self::whole) fiber.
pub(super) fn snapshot_of(loaded: &LoadedFiber) -> Option<SnapshotCopy> {
    let data = loaded.snapshot.clone()?;
    Some(SnapshotCopy { at: innermost(&data), data, layout: loaded.layout.clone(), callees: loaded.callees.clone() })
}

/// The first item of the history of a copy.
pub(super) fn first_item(loaded: &LoadedFiber, now_ms: i64, origin: &Origin) -> StreamAppend {
    let at = loaded.snapshot.as_deref().map(innermost).unwrap_or_default();
    StreamAppend { name: HISTORY.into(), first: None, count: 1, data: item_of(loaded, &at, now_ms, origin), keep: None }
}

/// The items of the log of an operation. One that has ended has none.
pub(super) async fn log_of(exec: &Executor, fiber: Seq, op: &OpRecord) -> Result<Vec<String>> {
    match op.state {
        OpState::Started => lines(exec, fiber, &op_stream(op.number, &op.id)).await,
        _ => Ok(Vec::new()),
    }
}

/// Items as those of a new stream; `None` if there are none.
pub(super) fn new_stream(name: impl Into<Cow<'static, str>>, items: &[String]) -> Option<StreamAppend> {
    let (count, data) = (items.len() as u64, items.join("\n"));
    (count > 0).then(|| StreamAppend { name: name.into(), first: Some(0), count, data, keep: None })
}

/// All items of a stream.
pub(super) async fn lines(exec: &Executor, fiber: Seq, stream: &str) -> Result<Vec<String>> {
    let batches = batches(exec, fiber, stream).await?;
    Ok(batches.iter().flat_map(|batch| batch.data.lines().map(str::to_owned)).collect())
}

/// Stores a copy, unless a call before has done so.
pub(super) async fn store_copy(exec: &Arc<Executor>, copy: FiberCopy, of: &Origin, what: &str) -> Result<()> {
    let (of_task, id) = (Arc::clone(exec), copy.fiber.id.clone());
    let work = async move { of_task.runtime.store.import(copy).await };
    let existing = match detached(&exec.runtime, work).await? {
        AcceptResult::Created(_) => return Ok(()),
        AcceptResult::Existing(row) => row,
        AcceptResult::Deleted(past) => {
            let why = format!("failed to {what}: there was a fiber with the id `{}` or its key, and it was deleted", past.id);
            return Err(Error::new(ErrorKind::Conflict, why));
        }
    };
    if existing.id == id && origin(exec, existing.seq).await?.is_some_and(|there| there.is_same(of)) {
        return Ok(());
    }
    let why = format!("failed to {what}: there is a fiber `{}` with this id or key already", existing.id);
    Err(Error::new(ErrorKind::Conflict, why))
}
