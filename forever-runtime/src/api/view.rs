//! Views of stored fibers for people: the values of their locals, the functions they run, and who
//! owns them. Comes in: rows of the store. Goes out: data with `Serialize`, in which no value that
//! is marked `#[secret]` is left.
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::api::redact::{MASK, Redactor};
use crate::api::secrecy::{Secrecy, of_stack};
use crate::error::{Error, ErrorKind, Result};
use crate::exact::hex;
use crate::exec::executor::Executor;
use crate::frame::machine::{CutKind, END, LocalRole, Machine};
use crate::frame::snapshot::Snapshot;
use crate::history::Stood;
use crate::layout::rows::{machine_of, may_have_secrets, row_of};
use crate::ops::resolve::OpStatus;
use crate::runtime::handle::FiberStatus;
use crate::runtime::messages;
use crate::runtime::stream_reader::stored_progress;
use crate::runtime::unread::UnreadTopic;
use crate::secret::{self, HIDDEN, are_secret, plain_arguments};
use crate::store::{
    AgentId, AgentRow, FiberRef, FiberRow, FiberState, LoadedFiber, OUTPUTS, PendingMessage, ScheduleRow, Seq, SnapshotRows,
    UnfinishedGroup,
};

/// The longest value that a view holds, in bytes of its JSON.
const LONGEST_VALUE: usize = 64 << 10;

/// How much of a longer one it holds, in bytes of its JSON.
const LONGEST_PREVIEW: usize = 1 << 10;

/// How many messages a view of a fiber has.
pub(crate) const MOST_MESSAGES: u32 = 100;

/// How many output streams a view of a fiber has.
const MOST_STREAMS: usize = 20;

/// How many items of each it has.
const NEWEST_ITEMS: u32 = 20;

/// Stored values of one fiber, outermost function first.
///
/// ```
/// # use forever_runtime as forever;
/// # async fn show(forever: &forever::Forever) -> forever::Result<()> {
/// let view = forever.view("order-17").await?;
/// println!("{} is {}", view.status.name, view.status.state);
/// for frame in &view.frames {
///     println!("  {} at `{}`", frame.function, frame.at);
///     for local in &frame.locals {
///         println!("    {}: {} bytes", local.name, local.value.bytes);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct FiberView {
    /// Its status.
    pub status: FiberStatus,
    /// Its arguments.
    pub arguments: Vec<LocalView>,
    /// Its result, once it has completed.
    pub result: Option<ValueView>,
    /// The functions on its saved call stack, outermost first. Empty before the first checkpoint,
    /// after it has completed, and for closures.
    pub frames: Vec<FrameView>,
    /// Results of finished branches of the `steps!` under way.
    pub branches: Vec<LocalView>,
    /// The first messages that it was sent and has not received. Their values are secret where the
    /// function has values marked `#[secret]`.
    pub messages: Vec<MessageView>,
    /// Its output streams, by name.
    pub streams: Vec<StreamView>,
    /// Stash of a closure fiber.
    pub stash: Option<ValueView>,
    /// Why values of its snapshot are missing here.
    pub problem: Option<String>,
}

/// One function on a saved call stack.
///
/// See [`FiberView`] for an example.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct FrameView {
    /// Stored name of the function.
    pub function: String,
    /// Name of the cut point it stands at.
    pub at: String,
    /// Hash of the layout that it was left under.
    pub layout: Option<String>,
    /// Whether the code of this process has the same layout.
    pub is_current: bool,
    /// Its stored locals.
    pub locals: Vec<LocalView>,
}

/// A stored value with its name.
///
/// See [`FiberView`] for an example.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LocalView {
    /// Stored name.
    pub name: String,
    /// Role in a `for` loop.
    pub role: LoopRole,
    /// Value.
    #[serde(flatten)]
    pub value: ValueView,
}

/// A message that a fiber has not received.
///
/// Listed in [`FiberView::messages`].
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct MessageView {
    /// Number, by which it is discarded.
    pub number: i64,
    /// Topic.
    pub topic: String,
    /// Time at which it was sent, in milliseconds since 1970.
    pub sent_ms: i64,
    /// Value.
    #[serde(flatten)]
    pub value: ValueView,
}

/// Output stream of a fiber.
///
/// Listed in [`FiberView::streams`].
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StreamView {
    /// Name.
    pub name: String,
    /// Number of its items.
    pub items: u64,
    /// The newest items, oldest first. They are secret where the function has values marked
    /// `#[secret]`.
    pub newest: Vec<ValueView>,
}

/// Role of a local in a `for` loop.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::view::{LocalView, LoopRole};
///
/// fn label(local: &LocalView) -> String {
///     match local.role {
///         LoopRole::Items => format!("{} (items that are left)", local.name),
///         LoopRole::Position => format!("{} (position)", local.name),
///         _ => local.name.clone(),
///     }
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LoopRole {
    /// None: a variable.
    Value,
    /// The items that are left of a loop by value.
    Items,
    /// The position of a loop by borrow.
    Position,
}

impl LoopRole {
    fn of(role: Option<LocalRole>) -> Self {
        match role {
            Some(LocalRole::Items) => LoopRole::Items,
            Some(LocalRole::Position) => LoopRole::Position,
            _ => LoopRole::Value,
        }
    }
}

/// A stored value.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::view::ValueView;
///
/// fn text(of: &ValueView) -> String {
///     match (&of.value, &of.preview) {
///         (Some(value), _) => value.to_string(),
///         (None, Some(beginning)) => format!("{beginning}.. ({} bytes)", of.bytes),
///         (None, None) => "(secret)".to_owned(),
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ValueView {
    /// JSON; `None` where it is secret or too long.
    pub value: Option<Value>,
    /// The beginning of its JSON, where it is too long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preview: Option<String>,
    /// Length of its JSON, in bytes.
    pub bytes: usize,
    /// Whether it is marked `#[secret]`.
    pub is_secret: bool,
}

/// A function that this process knows.
///
/// ```
/// # use forever_runtime as forever;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// # let forever = forever::Forever::builder().in_memory().open().await?;
/// for function in forever.functions() {
///     println!("{} ({})", function.name, function.arguments.join(", "));
///     for cut in &function.cuts {
///         println!("  {} `{}` keeps {}", cut.kind, cut.name, cut.locals.join(", "));
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct FunctionView {
    /// Stored name.
    pub name: String,
    /// Hash of its layout.
    pub layout: String,
    /// `version = N`, 0 without.
    pub version: u32,
    /// Whether it is registered, as against only called.
    pub is_registered: bool,
    /// Names of its arguments.
    pub arguments: Vec<String>,
    /// Its cut points, in the order of the source.
    pub cuts: Vec<CutView>,
    /// The cut points that may come first, by their places in [`cuts`](Self::cuts); `None` is the
    /// end of the function.
    pub first: Vec<Option<u32>>,
    /// Where it stands in its file, if that was recorded.
    pub source: Option<SourceView>,
}

/// A cut point of a function.
///
/// See [`FunctionView`] for an example.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CutView {
    /// Stored name.
    pub name: String,
    /// The macro: `step`, `recv`, ..
    pub kind: &'static str,
    /// Whether its body is an effect.
    pub is_effect: bool,
    /// First line, from 0 at the first line of [`SourceView::text`].
    pub line: Option<u32>,
    /// Column, from 1.
    pub column: Option<u32>,
    /// Last line.
    pub end: Option<u32>,
    /// Topics that it receives on.
    pub topics: Vec<String>,
    /// Stored names of the locals that are kept while it is the last checkpoint.
    pub locals: Vec<String>,
    /// The cut points that may come next, as [`first`](FunctionView::first).
    pub next: Vec<Option<u32>>,
}

/// Source of a function.
///
/// Part of a [`FunctionView`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SourceView {
    /// Path of its file.
    pub file: String,
    /// Line of the file that the text begins at, from 1.
    pub line: u32,
    /// Column that the text begins at, from 1: the indentation of its lines, plus 1.
    pub column: u32,
    /// The function. Empty with `source = false`.
    pub text: String,
    /// SHA-256 of the text.
    pub hash: String,
    /// Line of the declaration of each stored local, by stored name.
    pub locals: BTreeMap<String, u32>,
}

/// Number of unfinished fibers at one cut point.
///
/// ```
/// # use forever_runtime as forever;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// # let forever = forever::Forever::builder().in_memory().open().await?;
/// for position in forever.positions().await? {
///     let at = position.at.as_deref().unwrap_or("its beginning");
///     println!("{} fibers of `{}` at {at}", position.fibers, position.name);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PositionView {
    /// Stored name of the function.
    pub name: String,
    /// Name of the cut point; `None` before the first.
    pub at: Option<String>,
    /// Whether they are waiting.
    pub is_waiting: bool,
    /// Number of fibers.
    pub fibers: u64,
}

/// Agent in a list.
///
/// ```
/// # use forever_runtime as forever;
/// # use forever::Forever;
/// # use forever::agent::Agent;
/// # struct Counter;
/// # impl Agent for Counter {
/// #     const CLASS: &'static str = "counter";
/// #     type State = u64;
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// # let forever = Forever::builder().in_memory().agent(|_| Counter).open().await?;
/// forever.agent::<Counter>("visits").set_state(&7).await?;
/// let agents = forever.view_agents(None, 50).await?;
/// assert_eq!((&*agents[0].class, &*agents[0].name), ("counter", "visits"));
/// // The next page is behind the last agent.
/// let next = agents.last().map(|agent| (agent.class.clone(), agent.name.clone()));
/// assert!(forever.view_agents(next, 50).await?.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct AgentView {
    /// Class.
    pub class: String,
    /// Name.
    pub name: String,
    /// Stored state.
    pub state: Option<ValueView>,
    /// Time of its last sign of life while it is kept awake, in milliseconds since 1970.
    pub awake_ms: Option<i64>,
    /// Deaths of its workers since it was last awake for long.
    pub deaths: u32,
    /// Time of the last change of its state, in milliseconds since 1970.
    pub changed_ms: i64,
}

/// Schedule in a list.
///
/// ```
/// # use forever_runtime as forever;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// # let forever = forever::Forever::builder().in_memory().open().await?;
/// for schedule in forever.view_schedules(None, 50).await? {
///     if let Some(error) = &schedule.error {
///         println!("{} of {}/{}: {error}", schedule.name, schedule.class, schedule.agent);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ScheduleView {
    /// Id.
    pub id: String,
    /// Class of its agent.
    pub class: String,
    /// Name of its agent.
    pub agent: String,
    /// Name.
    pub name: String,
    /// `delay`, `time`, `cron` or `every`.
    pub kind: &'static str,
    /// The cron pattern, or the interval in milliseconds.
    pub timing: Option<String>,
    /// Payload.
    pub payload: ValueView,
    /// Time of the next run, in milliseconds since 1970; `None` if it is set aside.
    pub next_ms: Option<i64>,
    /// Time at which the run under way began.
    pub running_ms: Option<i64>,
    /// Failed attempts of this run.
    pub attempts: u32,
    /// Deaths of workers in a row while it ran.
    pub deaths: u32,
    /// Error of the last failed run.
    pub error: Option<String>,
}

/// A fiber with everything stored of it that a view needs.
pub(crate) struct Stored {
    row: FiberRow,
    loaded: Option<LoadedFiber>,
    snapshot: Option<Snapshot>,
    problem: Option<String>,
    /// The progress that is stored, if it was read.
    progress: Option<Value>,
    /// The messages that it has not received, if they were counted.
    unread: Vec<UnreadTopic>,
    /// Of its function, and of those that it is calling.
    stack: Vec<Secrecy>,
    redactor: Redactor,
}

impl Stored {
    /// Reads a fiber by id.
    pub(crate) async fn read(exec: &Executor, id: &str) -> Result<Self> {
        let row = exec.runtime.store.find(FiberRef::Id(id.to_owned())).await?;
        let row = row.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no fiber with id `{id}`")))?;
        Ok(Self::of(exec, row).await)
    }

    /// Reads a fiber, and the progress that its status shows.
    pub(crate) async fn read_with_progress(exec: &Executor, id: &str) -> Result<Self> {
        let mut stored = Self::read(exec, id).await?;
        stored.progress = stored_progress(&exec.runtime, stored.seq()).await?;
        stored.unread = messages::unread(&exec.runtime, id).await?;
        Ok(stored)
    }

    /// Reads what is stored beside a row. What is damaged is left out, and named in the problem.
    pub(crate) async fn of(exec: &Executor, row: FiberRow) -> Self {
        if row.state == FiberState::Completed {
            return Self::read_from(exec, row, None, None);
        }
        match exec.runtime.store.load(row.seq).await {
            Ok(loaded) => Self::with(exec, row, loaded),
            Err(why) => Self::read_from(exec, row, None, Some(why.to_string())),
        }
    }

    /// A fiber with what is to be read as its stored data.
    pub(crate) fn with(exec: &Executor, row: FiberRow, loaded: LoadedFiber) -> Self {
        Self::read_from(exec, row, Some(loaded), None)
    }

    fn read_from(exec: &Executor, row: FiberRow, loaded: Option<LoadedFiber>, mut problem: Option<String>) -> Self {
        let mut snapshot = None;
        if let Some(loaded) = loaded.as_ref().filter(|_| !row.closure) {
            let read = loaded.snapshot.as_deref().map(|text| {
                let mut read: Snapshot = serde_json::from_str(text).map_err(|why| format!("the stored snapshot cannot be read: {why}"))?;
                read.put_back(&loaded.rows)?;
                read.put_back_logs(&loaded.rows)?;
                Ok::<_, String>(read)
            });
            match read.transpose() {
                Ok(read) => snapshot = read,
                Err(why) => problem = Some(why),
            }
        }
        let stack = of_stack(exec, &row, loaded.as_ref(), snapshot.as_ref());
        let redactor = Redactor::default();
        let mut stored = Stored { row, loaded, snapshot, problem, progress: None, unread: Vec::new(), stack, redactor };
        stored.redactor = stored.secrets();
        stored
    }

    /// The functions on the call stack behind an earlier checkpoint.
    pub(crate) fn frames_at(mut self, exec: &Executor, stood: Stood) -> Result<Vec<FrameView>, String> {
        let mut snapshot = stood.snapshot;
        // The items of logs are kept for as long as the fiber has them.
        let logs = self.loaded.as_mut().map(|loaded| std::mem::take(&mut loaded.rows.logs)).unwrap_or_default();
        let rows = SnapshotRows { parts: stood.parts, logs };
        snapshot.put_back(&rows)?;
        snapshot.put_back_logs(&rows)?;
        self.stack = of_stack(exec, &self.row, self.loaded.as_ref(), Some(&snapshot));
        self.snapshot = Some(snapshot);
        let earlier = self.secrets();
        self.redactor.join(earlier);
        Ok(self.frames(exec))
    }

    /// Whether values that no name tells of may be secret: what it has received, sent and set as
    /// its progress.
    pub(crate) fn hides_values(&self, exec: &Executor) -> bool {
        if self.row.closure {
            return are_secret(&self.row.args);
        }
        let calls = || exec.registry.get(&self.row.name).is_none_or(|known| known.machine.calls());
        // Which functions it calls is known once they were called.
        self.outer().has_some() || calls() && may_have_secrets()
    }

    /// Whether its result may be secret.
    pub(crate) fn hides_result(&self) -> bool {
        if self.row.closure { are_secret(&self.row.args) } else { self.outer().hides_result() }
    }

    /// Whether the values of an operation may be secret.
    pub(crate) fn hides_step(&self, function: &str, step: &str) -> bool {
        if self.row.closure {
            return are_secret(&self.row.args);
        }
        let step = step.split_once('[').map_or(step, |(steps, _)| steps);
        if function == self.row.name {
            return self.outer().mentions(step);
        }
        self.outer().has_some() || machine_of(function, None).is_none_or(|machine| machine.mentions_secret(step))
    }

    /// Whether the result of a branch of the `steps!` under way may be secret.
    pub(crate) fn hides_branch(&self, branch: &str) -> bool {
        let frames = std::iter::successors(self.snapshot.as_ref(), |frame| frame.call.as_deref());
        let function = frames.skip(1).last().and_then(|frame| frame.fiber.as_deref()).unwrap_or(&self.row.name);
        self.hides_step(function, branch)
    }

    /// Of its own function.
    fn outer(&self) -> &Secrecy {
        &self.stack[0]
    }

    /// Its row.
    pub(crate) fn row(&self) -> &FiberRow {
        &self.row
    }

    /// What is stored beside its row, unless it has completed or cannot be loaded.
    pub(crate) fn loaded(&self) -> Option<&LoadedFiber> {
        self.loaded.as_ref()
    }

    /// Its snapshot, with all values in it.
    pub(crate) fn snapshot(&self) -> Option<&Snapshot> {
        self.snapshot.as_ref()
    }

    /// Why something of it cannot be read.
    pub(crate) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Whether a local is secret, by the depth of its function on the call stack.
    pub(crate) fn is_secret(&self, depth: usize, name: &str) -> bool {
        self.stack.get(depth).unwrap_or(self.outer()).hides(name)
    }

    /// Whether a text has a secret in it.
    pub(crate) fn has_secret(&self, text: &str) -> bool {
        secret::is_marked(text) || self.redactor.finds(text)
    }

    /// A text without secrets.
    pub(crate) fn redacted(&self, text: &str) -> String {
        self.redactor.text(text)
    }

    /// Takes secrets out of a value.
    pub(crate) fn redact(&self, value: &mut Value) {
        self.redactor.value(value);
    }

    /// Its sequence number.
    pub(crate) fn seq(&self) -> Seq {
        self.row.seq
    }

    /// The values of the fiber that are marked as secret, so that they are found in other texts.
    fn secrets(&self) -> Redactor {
        let mut redactor = Redactor::default();
        for (name, text) in arguments(&self.row.args) {
            if !self.row.closure && self.outer().hides(&name) {
                redactor.add(&text);
            }
        }
        let frames = std::iter::successors(self.snapshot.as_ref(), |frame| frame.call.as_deref());
        for (frame, secrecy) in frames.zip(&self.stack) {
            frame.locals.iter().filter(|(name, _)| secrecy.hides(name)).for_each(|(_, text)| redactor.add(text.get()));
        }
        redactor
    }

    /// Its status, without secrets.
    pub(crate) fn status(&self, exec: &Executor) -> FiberStatus {
        let mut status = FiberStatus::shown(self.row.clone()).live(&exec.runtime);
        // It stays when the values that it was made from are gone, and then nothing tells whether
        // they were secret.
        status.progress = status.progress.or_else(|| self.progress.clone()).filter(|_| !self.hides_values(exec));
        status.unread.clone_from(&self.unread);
        status.redact(&self.redactor);
        if are_secret(&self.row.args) {
            // The code that has spawned it may have put one into these.
            status.key = status.key.map(|_| MASK.to_owned());
            status.metadata = status.metadata.map(|_| Value::String(MASK.to_owned()));
        }
        status
    }

    /// Operations of it, without secrets.
    pub(crate) async fn ops(&self, exec: &Executor) -> Result<Vec<OpStatus>> {
        let mut ops: Vec<OpStatus> = exec.runtime.store.ops(self.row.seq).await?.into_iter().map(OpStatus::of).collect();
        for op in &mut ops {
            let hides = self.hides_step(&op.function, &op.step);
            for value in [&mut op.key, &mut op.result].into_iter().flatten() {
                if hides { *value = Value::String(HIDDEN.to_owned()) } else { self.redactor.value(value) }
            }
            op.error = op.error.take().map(|text| if hides || self.has_secret(&text) { HIDDEN.to_owned() } else { text });
        }
        Ok(ops)
    }

    /// Its output streams, without secrets.
    pub(crate) async fn streams(&self, exec: &Executor) -> Result<Vec<StreamView>> {
        let (store, hides) = (&exec.runtime.store, self.hides_values(exec));
        let names = store.stream_names(self.row.seq).await?;
        let mut streams = Vec::new();
        for stream in names.into_iter().filter(|name| name.starts_with(OUTPUTS)).take(MOST_STREAMS) {
            let last = store.stream(self.row.seq, stream.clone(), i64::MAX.unsigned_abs(), 1).await?;
            let Some(stored) = last.last().map(|last| last.first + last.count) else { continue };
            // A batch has one item at least. What is appended meanwhile is for the next look.
            let batches = store.stream(self.row.seq, stream.clone(), stored.saturating_sub(NEWEST_ITEMS.into()), NEWEST_ITEMS).await?;
            let items: Vec<&str> = batches.iter().flat_map(|batch| batch.data.lines()).collect();
            let newest = &items[items.len().saturating_sub(NEWEST_ITEMS as usize)..];
            streams.push(StreamView {
                name: self.redactor.text(stream.strip_prefix(OUTPUTS).unwrap_or(&stream)),
                items: batches.last().map_or(stored, |last| last.first + last.count),
                newest: newest.iter().map(|item| ValueView::of(item, hides, &self.redactor)).collect(),
            });
        }
        Ok(streams)
    }

    /// The whole view.
    pub(crate) fn view(self, exec: &Executor, messages: Vec<PendingMessage>, streams: Vec<StreamView>) -> FiberView {
        let hides_messages = self.hides_values(exec);
        let messages = messages.into_iter().map(|PendingMessage { seq, topic, data, sent_ms }| {
            let value = ValueView::of(&data, hides_messages, &self.redactor);
            MessageView { number: seq, topic: self.redactor.text(&topic), sent_ms, value }
        });
        let arguments = arguments(&self.row.args).into_iter().map(|(name, text)| {
            let is_secret = self.outer().hides(&name);
            LocalView { name, role: LoopRole::Value, value: ValueView::of(&text, is_secret, &self.redactor) }
        });
        let frames = self.frames(exec);
        let branches = self.loaded.iter().flat_map(|loaded| &loaded.branches);
        let branches = branches.map(|branch| {
            let is_secret = self.hides_branch(&branch.branch);
            LocalView { name: branch.branch.clone(), role: LoopRole::Value, value: ValueView::of(&branch.data, is_secret, &self.redactor) }
        });
        let branches: Vec<_> = branches.collect();
        let stash = self.loaded.as_ref().filter(|_| self.row.closure).and_then(|loaded| loaded.snapshot.as_deref());
        FiberView {
            arguments: arguments.collect(),
            result: self.row.result.as_deref().map(|text| ValueView::of(text, self.hides_result(), &self.redactor)),
            frames,
            branches,
            messages: messages.collect(),
            streams,
            stash: stash.map(|text| ValueView::of(text, are_secret(&self.row.args), &self.redactor)),
            problem: self.problem.as_deref().map(|why| self.redactor.text(why)),
            status: self.status(exec),
        }
    }

    fn frames(&self, exec: &Executor) -> Vec<FrameView> {
        let mut frames = Vec::new();
        let mut next = self.snapshot.as_ref();
        while let Some(frame) = next {
            frames.push(self.frame(exec, frames.len(), frame));
            next = frame.call.as_deref();
        }
        frames
    }

    fn frame(&self, exec: &Executor, depth: usize, frame: &Snapshot) -> FrameView {
        let function = frame.fiber.as_deref().filter(|_| depth > 0).unwrap_or(&self.row.name);
        let layout = match depth {
            0 => self.loaded.as_ref().and_then(|loaded| loaded.layout.as_ref()).map(|row| row.hash.clone()),
            _ => frame.layout.clone(),
        };
        let secrecy = &self.stack[depth];
        let machine = exec.registry.get(function).map(|known| known.machine).or_else(|| machine_of(function, layout.as_deref()));
        let is_current = machine.is_some_and(|machine| Some(&row_of(machine).hash) == layout.as_ref());
        let locals = frame.locals.iter().map(|(name, text)| LocalView {
            name: name.clone(),
            role: LoopRole::of(secrecy.role(&frame.at, name)),
            value: ValueView::of(text.get(), secrecy.hides(name), &self.redactor),
        });
        FrameView { function: function.to_owned(), at: frame.at.clone(), layout, is_current, locals: locals.collect() }
    }
}

/// Arguments by name, each as its JSON.
pub(crate) fn arguments(args: &str) -> Vec<(String, String)> {
    let read: BTreeMap<String, Box<serde_json::value::RawValue>> = serde_json::from_str(&plain_arguments(args)).unwrap_or_default();
    read.into_iter().map(|(name, text)| (name, text.get().to_owned())).collect()
}

impl ValueView {
    pub(crate) fn of(json: &str, is_secret: bool, redactor: &Redactor) -> Self {
        let bytes = json.len();
        if is_secret {
            return ValueView { value: None, preview: None, bytes: 0, is_secret };
        }
        if bytes > LONGEST_VALUE {
            let preview = redactor.start(json, LONGEST_PREVIEW);
            return ValueView { value: None, preview: Some(preview), bytes, is_secret };
        }
        let mut value = serde_json::from_str(json).unwrap_or_else(|_| Value::String(json.to_owned()));
        redactor.value(&mut value);
        ValueView { value: Some(value), preview: None, bytes, is_secret }
    }
}

/// Functions that this process knows: those that are registered, and those that were called.
pub(crate) fn functions(exec: &Executor) -> Vec<FunctionView> {
    let registered: Vec<&'static Machine> = exec.registry.machines().collect();
    let names: Vec<&str> = registered.iter().map(|machine| machine.name).collect();
    let called = crate::layout::rows::machines().into_iter().filter(|machine| !names.contains(&machine.name));
    let mut all: Vec<FunctionView> = registered.iter().map(|machine| function(machine, true)).collect();
    all.extend(called.map(|machine| function(machine, false)));
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all.dedup_by(|a, b| a.name == b.name);
    all
}

fn function(machine: &'static Machine, is_registered: bool) -> FunctionView {
    let place = |n: usize| machine.source.as_ref()?.cuts.get(n).filter(|(line, ..)| *line != u32::MAX);
    let cuts = machine.cuts.iter().enumerate().map(|(n, cut)| CutView {
        name: cut.name.to_owned(),
        kind: if cut.kind == CutKind::Pending { "pending" } else { cut.kind.word() },
        is_effect: cut.effect,
        line: place(n).map(|place| place.0),
        column: place(n).map(|place| place.1),
        end: place(n).map(|place| place.2),
        topics: cut.topics.iter().map(|&topic| topic.to_owned()).collect(),
        locals: cut.locals.iter().map(|local| local.name.to_owned()).collect(),
        next: following(cut.next),
    });
    let source = machine.source.as_ref().map(|source| SourceView {
        file: source.file.to_owned(),
        line: source.line,
        column: source.column,
        text: source.text.to_owned(),
        hash: hex(&Sha256::digest(source.text.as_bytes())),
        locals: source.locals.iter().map(|&(name, line)| (name.to_owned(), line)).collect(),
    });
    FunctionView {
        name: machine.name.to_owned(),
        layout: row_of(machine).hash.clone(),
        version: machine.version,
        is_registered,
        arguments: machine.arguments.iter().map(|&name| name.to_owned()).collect(),
        cuts: cuts.collect(),
        first: following(machine.first),
        source,
    }
}

/// Cut points that may come next, of which [`END`] is the end.
fn following(cuts: &[u32]) -> Vec<Option<u32>> {
    cuts.iter().map(|&cut| (cut != END).then_some(cut)).collect()
}

impl PositionView {
    /// Where the unfinished fibers stand, whatever code left them there.
    pub(crate) fn of(groups: Vec<UnfinishedGroup>) -> Vec<Self> {
        let mut counts: BTreeMap<(String, Option<String>, bool), u64> = BTreeMap::new();
        for group in groups {
            *counts.entry((group.name, group.at, group.waiting)).or_default() += group.fibers;
        }
        counts.into_iter().map(|((name, at, is_waiting), fibers)| PositionView { name, at, is_waiting, fibers }).collect()
    }
}

impl AgentView {
    pub(crate) fn of(row: AgentRow) -> Self {
        let AgentRow { agent: AgentId { class, name }, state, awake_ms, deaths, changed_ms } = row;
        let state = state.map(|text| ValueView::of(&text, false, &Redactor::default()));
        AgentView { class, name, state, awake_ms, deaths, changed_ms }
    }
}

impl ScheduleView {
    pub(crate) fn of(row: ScheduleRow) -> Self {
        use crate::store::ScheduleTiming;
        let timing = match &row.timing {
            ScheduleTiming::Cron(pattern) => Some(pattern.clone()),
            ScheduleTiming::Every(ms) => Some(ms.to_string()),
            ScheduleTiming::Delay | ScheduleTiming::Time => None,
        };
        ScheduleView {
            kind: row.timing.kind(),
            timing,
            payload: ValueView::of(&row.payload, false, &Redactor::default()),
            id: row.id,
            class: row.agent.class,
            agent: row.agent.name,
            name: row.name,
            next_ms: row.next_ms,
            running_ms: row.running_ms,
            attempts: row.attempts,
            deaths: row.deaths,
            error: row.error,
        }
    }
}

/// Statuses of a page of rows, without secrets. Only rows with texts of errors cost a look at their
/// snapshots, and only where their function has secrets.
pub(crate) async fn statuses(exec: &Arc<Executor>, rows: Vec<FiberRow>) -> Vec<FiberStatus> {
    let mut statuses = Vec::with_capacity(rows.len());
    for row in rows {
        let machine = exec.registry.get(&row.name).map(|known| known.machine).or_else(|| machine_of(&row.name, None));
        let is_plain =
            !are_secret(&row.args) && (row.closure || machine.is_some_and(|machine| machine.secrets.is_empty() && !machine.calls()));
        if is_plain || row.metadata.is_none() && row.key.is_none() {
            let mut status = FiberStatus::shown(row).live(&exec.runtime);
            status.progress = status.progress.filter(|_| is_plain);
            statuses.push(status);
        } else {
            statuses.push(Stored::of(exec, row).await.status(exec));
        }
    }
    statuses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_of_any_language_has_a_preview_beside_secrets_of_any_length() {
        for secret in (1..=8).map(|len| "s3cr3t-9".split_at(len).0) {
            for pattern in ["漢字", "é", "🦀", "a漢", "ab🦀é"] {
                for lead in 0..4 {
                    let text = format!("{}{}", "x".repeat(lead), pattern.repeat(LONGEST_VALUE));
                    let mut redactor = Redactor::default();
                    redactor.add(&Value::from(secret).to_string());
                    let json = Value::from(text).to_string();
                    let preview = ValueView::of(&json, false, &redactor).preview.unwrap();
                    assert!(json.starts_with(&preview), "{secret} {pattern} {lead}");
                    assert!((LONGEST_PREVIEW - 3..=LONGEST_PREVIEW).contains(&preview.len()), "{secret} {pattern} {lead}");
                }
            }
        }
    }

    #[test]
    fn no_part_of_a_secret_is_in_a_preview() {
        // The longer one makes the preview shorter, so that what lies behind its end moves into it.
        let (long, across) = ("L".repeat(900), format!("across-{}", "漢".repeat(300)));
        let mut redactor = Redactor::default();
        redactor.add(&serde_json::json!([long, across]).to_string());
        for gap in 0..300 {
            let json = Value::from(format!("{long}{}{across}{}", "-".repeat(gap), "x".repeat(LONGEST_VALUE))).to_string();
            let preview = ValueView::of(&json, false, &redactor).preview.unwrap();
            assert!(!preview.contains("LLLL") && !preview.contains("acro") && !preview.contains('漢'), "{gap}: {preview}");
        }
    }
}
