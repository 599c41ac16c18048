//! A second fiber that goes on from where another one stands or stood: [`Forever::fork`].
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;

use serde_json::Value;

use crate::api::copies::{first_item, log_of, new_stream, snapshot_of, store_copy, whole};
use crate::api::edit::{Edited, LocalsMut, edited, is_editable};
use crate::api::forever::Forever;
use crate::api::history::past_at;
use crate::api::view::Stored;
use crate::error::{Error, ErrorKind, Result};
use crate::exec::executor::Executor;
use crate::exec::spawn::check_ids;
use crate::history::{Origin, PastAt};
use crate::ops::known::of_another_fiber;
use crate::runtime::events::EventKind;
use crate::runtime::handle::FiberHandle;
use crate::runtime::link::Link;
use crate::store::{FiberCopy, FiberState, LoadedFiber, NewFiber, OpKind, OpRecord, OpState, SnapshotRows, op_stream};

impl Forever {
    /// Starts a second fiber that goes on from what another one has stored, now or behind an
    /// earlier checkpoint of its [history](Self::history). The other one is not touched.
    ///
    /// ```
    /// # use forever_runtime as forever;
    /// # async fn again(forever: forever::Forever) -> forever::Result<()> {
    /// let fork = forever.fork("order-17").at(3).edit(|locals| locals.set("limit", &500)).id("order-17-b").await?;
    /// # let _ = fork.wait();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Nothing is replayed: the fork begins behind the checkpoint, with the values that were stored
    /// there. It has the arguments, metadata and agent of the other fiber, but neither its key nor
    /// its parent, and none of its messages. Children that the other one has spawned before are
    /// those that its locals name.
    ///
    /// **Effects.** A fork at the last checkpoint has the results of the effects that the other
    /// fiber has completed since then, and does not carry them out again. The same holds for its
    /// manual operations (`ctx.op`). Those that it begins have ids of its own. A fork at an earlier
    /// checkpoint would carry out again what the other fiber has done since: that is refused and
    /// the effects are named, unless [`repeat_effects`](Fork::repeat_effects) allows it.
    ///
    /// # Errors
    /// Those of the closure of [`edit`](Fork::edit). Of kind [`NotFound`](ErrorKind::NotFound) if
    /// there is no such fiber, or the checkpoint is not in its history; of kind
    /// [`InvalidState`](ErrorKind::InvalidState) if it has completed and no checkpoint is given,
    /// while an operation of it is in doubt, for effects that would be repeated, and when a
    /// transaction was committed since the last checkpoint; of kind
    /// [`Value`](ErrorKind::Value) if the id is not valid, the code cannot read the edited
    /// values, or what is stored is damaged or no longer whole; of kind
    /// [`Conflict`](ErrorKind::Conflict) for a closure or a turn of a chat, and if there is another
    /// fiber with the id; when the store fails. With an id it is safe to repeat.
    pub fn fork(&self, id: &str) -> Fork {
        Fork { link: self.exec_link(), of: id.to_owned(), at: None, id: None, repeat_effects: false, change: None }
    }
}

type ChangeFn = Box<dyn FnOnce(&mut LocalsMut) -> Result<()> + Send>;

/// Fork of a fiber, started by `.await`; made by [`Forever::fork`].
///
/// ```
/// # use forever_runtime as forever;
/// # async fn try_again(forever: forever::Forever) -> Result<(), forever::BoxError> {
/// // What would a higher limit have given? The order itself is not touched.
/// let fork = forever.fork("order-17").at(3).edit(|locals| locals.set("limit", &500)).await?;
/// println!("{}: {}", fork.id(), fork.wait().await?);
/// # Ok(())
/// # }
/// ```
#[must_use = "a fork is started when this is awaited"]
pub struct Fork {
    link: Link<Executor>,
    of: String,
    at: Option<u64>,
    id: Option<String>,
    repeat_effects: bool,
    change: Option<ChangeFn>,
}

impl Fork {
    /// Number of the checkpoint to begin behind. Defaults to the last one.
    pub fn at(mut self, checkpoint: u64) -> Self {
        self.at = Some(checkpoint);
        self
    }

    /// Id of the fork. Defaults to a generated one.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Changes locals before the fork begins, as [`Forever::edit`] does.
    pub fn edit(mut self, change: impl FnOnce(&mut LocalsMut) -> Result<()> + Send + 'static) -> Self {
        self.change = Some(Box::new(change));
        self
    }

    /// Lets the fork carry out effects again that the other fiber has carried out behind the
    /// checkpoint.
    pub fn repeat_effects(mut self) -> Self {
        self.repeat_effects = true;
        self
    }
}

impl fmt::Debug for Fork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fork { link: _, of, at, id, repeat_effects, change } = self;
        let mut f = f.debug_struct("Fork");
        f.field("of", of).field("at", at).field("id", id).field("repeat_effects", repeat_effects).field("is_edited", &change.is_some());
        f.finish()
    }
}

impl IntoFuture for Fork {
    type Output = Result<FiberHandle<Value>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(fork(self))
    }
}

async fn fork(fork: Fork) -> Result<FiberHandle<Value>> {
    let Fork { link, of, at, id, repeat_effects, change } = fork;
    let exec = &link.get()?;
    let refused = |kind, why: String| Error::new(kind, format!("failed to fork fiber `{of}`: {why}"));
    check_ids(id.as_deref(), None).map_err(|why| refused(ErrorKind::Value, why))?;
    let stored = Stored::read(exec, &of).await?;
    is_editable(exec, stored.row(), "fork")?;
    let ledger = exec.runtime.store.ops(stored.seq()).await?;
    let in_doubt = |op: &OpRecord| op.state == OpState::Started && matches!(op.kind, OpKind::Effect | OpKind::ByHand);
    if let Some(op) = ledger.iter().map(|row| &row.record).find(|op| in_doubt(op)) {
        let why = format!("operation `{}` of step `{}` may have executed; resolve it first", op.id, op.step);
        return Err(refused(ErrorKind::InvalidState, why));
    }
    let is_last = at.is_none() || stored.loaded().is_some_and(|loaded| Some(loaded.number) == at);
    let from = match at.filter(|_| !is_last) {
        None => last(&stored).map_err(|why| refused(ErrorKind::InvalidState, why))?,
        Some(number) => earlier(exec, &stored, number).await?,
    };
    let behind = ledger.iter().map(|row| &row.record).filter(|op| op.number.is_some_and(|number| number >= from.number));
    let mut done = behind.filter(|op| op.state == OpState::Completed);
    // The ledger was read later.
    if is_last && done.any(|op| from.ops.iter().all(|there| there.id != op.id || there.state != op.state)) {
        return Err(refused(ErrorKind::InvalidState, "it has run meanwhile; fork it again".to_owned()));
    }
    if !is_last && !repeat_effects {
        let done: Vec<String> = done.map(|op| format!("`{}` ({})", op.step, op.id)).collect();
        if !done.is_empty() {
            let why = format!(
                "effects that were carried out behind checkpoint {} would be carried out again: {}; allow it, or fork at a later checkpoint",
                from.number,
                done.join(", ")
            );
            return Err(refused(ErrorKind::InvalidState, why));
        }
    }
    let by_hand: Vec<OpRecord> = ledger.into_iter().map(|row| row.record).filter(|op| op.kind == OpKind::ByHand).collect();
    let (row, id_given) = (stored.row().clone(), id.is_some());
    let number = from.number;
    let mut from = whole(from).map_err(|why| refused(ErrorKind::Value, why))?;
    if let Some(change) = change {
        let of_past = Stored::with(exec, row.clone(), from);
        let Edited { loaded, .. } = edited(exec, &of_past, change).await?;
        from = loaded;
    }
    from.ops.extend(by_hand);
    let id = id.unwrap_or_else(|| exec.runtime.clock.id());
    let (mut ops, mut streams) = (Vec::new(), Vec::new());
    for op in std::mem::take(&mut from.ops) {
        let log = log_of(exec, row.seq, &op).await?;
        let op = of_another_fiber(op, &id, from.restarts).map_err(|why| refused(ErrorKind::InvalidState, why))?;
        streams.extend(new_stream(op_stream(op.number, &op.id), &log));
        ops.push(op);
    }
    let origin = Origin::Fork { of: of.clone(), checkpoint: number };
    let now_ms = exec.runtime.now_ms();
    streams.push(first_item(&from, now_ms, &origin));
    let fiber = NewFiber {
        id: id.clone(),
        name: row.name.clone(),
        key: None,
        id_given,
        closure: false,
        args: from.args.clone(),
        metadata: row.metadata,
        agent: row.agent,
        parent: None,
        worker: None,
        now_ms,
    };
    let closed = exec.runtime.store.topics(of.clone()).await?.into_iter().filter_map(|row| Some((row.topic, row.closed?)));
    let copy = FiberCopy {
        fiber,
        state: FiberState::Pending,
        reason: None,
        result: None,
        restarts: from.restarts,
        number,
        snapshot: snapshot_of(&from),
        ops,
        branches: from.branches,
        streams,
        messages: Vec::new(),
        closed: closed.filter(|(_, at)| *at <= number).collect(),
    };
    store_copy(exec, copy, &origin, &format!("fork fiber `{of}`")).await?;
    exec.runtime.tell(&id, &row.name, || EventKind::Spawned);
    Ok(FiberHandle::new(link.runtime(), id, row.name, true))
}

/// What a fiber resumes from now.
fn last(stored: &Stored) -> Result<LoadedFiber, String> {
    if stored.row().state == FiberState::Completed {
        return Err("it has completed, and its snapshot is deleted; fork it at a checkpoint of its history".to_owned());
    }
    stored.loaded().cloned().ok_or_else(|| stored.problem().unwrap_or("it cannot be loaded").to_owned())
}

/// What a fiber has resumed from, or would have, behind an earlier checkpoint.
async fn earlier(exec: &Executor, stored: &Stored, number: u64) -> Result<LoadedFiber> {
    let row = stored.row();
    let PastAt { stood, layout } = past_at(exec, stored, number).await?;
    // Of one that has completed this has the arguments, and no snapshot.
    let loaded = match stored.loaded() {
        Some(loaded) => loaded.clone(),
        None => exec.runtime.store.load(row.seq).await?,
    };
    let hashes: Vec<String> = layout.into_iter().collect();
    let mut callees = Vec::new();
    let mut next = stood.snapshot.call.as_deref();
    while let Some(frame) = next {
        callees.extend(frame.layout.clone());
        next = frame.call.as_deref();
    }
    let mut layouts = exec.runtime.store.layouts([hashes.as_slice(), &callees].concat()).await?;
    let layout = hashes.first().and_then(|hash| layouts.iter().find(|row| row.hash == *hash)).cloned();
    layouts.retain(|row| callees.contains(&row.hash));
    let snapshot = serde_json::to_string(&stood.snapshot).map_err(|why| Error::new(ErrorKind::Value, why.to_string()))?;
    Ok(LoadedFiber {
        snapshot: Some(snapshot),
        // The items of logs are kept for as long as the fiber has them.
        rows: SnapshotRows { parts: stood.parts, logs: loaded.rows.logs },
        number,
        ops: Vec::new(),
        branches: Vec::new(),
        layout,
        callees: layouts,
        ..loaded
    })
}
