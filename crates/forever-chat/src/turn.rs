//! A turn, as its answering hook sees it.
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forever_runtime::__layers::{Engine, Fence, not_started, save_arguments, text_to_keep, unreadable};
use forever_runtime::fiber::{Fiber, FiberError};
use forever_runtime::store::{TurnKind, TurnRow, TurnWrite};
use forever_runtime::{Error, ErrorKind, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;
use tracing::debug;

use crate::hooks::ChatHooks;
use crate::message::{Chunk, Continuation, MAX_CHUNK, MessageBuilder, Part, Repair, ToolState, UiMessage, repair};
use crate::model::ToolSpec;
use crate::recovery::ChatRecovery;
use crate::runs::Runs;
use crate::user_code::USUAL_TEXT;
use crate::writer;
use crate::writer::Writer;

/// A turn that is being answered. A clone is the same turn.
///
/// ```
/// use forever::BoxError;
/// # use forever::agent::Agent;
/// use forever::chat::message::Chunk;
/// use forever::chat::{ChatAgent, Turn};
///
/// # async fn search(_: &Turn) -> Result<Vec<String>, BoxError> { Ok(Vec::new()) }
/// # struct Librarian;
/// # impl Agent for Librarian {
/// #     const CLASS: &'static str = "librarian";
/// #     type State = ();
/// # }
/// # impl ChatAgent for Librarian {
/// // In `impl ChatAgent for Librarian`:
/// async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
///     // After an interruption the search is not repeated.
///     let found: Vec<String> = match turn.stashed()? {
///         Some(found) => found,
///         None => search(turn).await?,
///     };
///     turn.stash(&found).await?;
///     turn.write(Chunk::text_start("t")).await?;
///     turn.write(Chunk::text_delta("t", found.join(", "))).await?;
///     Ok(turn.write(Chunk::text_end("t")).await?)
/// }
/// # }
/// ```
#[derive(Clone)]
pub struct Turn(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) engine: Engine,
    pub(super) fence: Arc<Fence>,
    pub(super) row: TurnRow,
    pub(super) messages: Vec<UiMessage>,
    pub(super) body: Option<Value>,
    pub(super) client_tools: Vec<ToolSpec>,
    pub(super) recovery: Option<ChatRecovery>,
    pub(super) stash: Mutex<Option<String>>,
    pub(super) writer: Arc<Writer>,
    pub(super) stream: tokio::sync::Mutex<Stream>,
    pub(super) cancelled: watch::Receiver<Option<Arc<str>>>,
    pub(super) closing: HeardOfClosing,
    /// Notified of each chunk, for the watchdog.
    pub(super) pulse: watch::Sender<Pulse>,
    /// Whether this attempt is the one that may write.
    pub(super) open: watch::Sender<bool>,
    /// Whether a fiber function answers, which settles its own tool calls.
    pub(super) runs_fiber: AtomicBool,
    /// The runs of the hook.
    pub(super) runs: Runs,
    /// Id of the turn's fiber.
    pub(super) fiber: String,
    pub(super) hooks: Arc<dyn ChatHooks>,
}

/// What a hook knows of the end of its process.
#[derive(Debug, Default)]
pub(super) struct HeardOfClosing {
    /// It listens, and so is not dropped when the runtime begins to close.
    listens: AtomicBool,
    saw: AtomicBool,
}

/// What a pause in the chunks means at the moment.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pulse {
    /// A loop answers, whose tools and pauses may take any time.
    looped: bool,
    /// The loop is receiving chunks from its model.
    listens: bool,
    /// How long no chunk is expected.
    silence: Duration,
}

impl Pulse {
    /// Maximum pause between chunks, if there is a limit.
    pub(super) fn limit(self, gap: Duration) -> Option<Duration> {
        (!self.looped || self.listens).then(|| gap.max(self.silence))
    }
}

/// A loop receives chunks from its model until this is dropped.
pub(super) struct Listening<'a>(&'a watch::Sender<Pulse>);

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|pulse| (pulse.listens, pulse.silence) = (false, Duration::ZERO));
    }
}

/// A loop answers until this is dropped.
pub(super) struct Looping<'a>(&'a watch::Sender<Pulse>);

impl Drop for Looping<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|pulse| pulse.looped = false);
    }
}

/// State of the answer.
pub(super) struct Stream {
    pub(super) builder: MessageBuilder,
    /// Fits the chunks of an attempt to those of earlier ones.
    pub(super) continuation: Option<Continuation>,
    /// The error that was written, which ends the turn.
    pub(super) error: Option<String>,
    /// Whether an `abort` was written.
    pub(super) aborted: bool,
    /// Whether the log has its `start`.
    pub(super) started: bool,
    /// Whether an earlier attempt may have left tool calls without a result.
    pub(super) unrepaired: bool,
    /// Number of steps of the message before the turn.
    pub(super) steps_before: usize,
    /// Number of complete steps of the turn.
    pub(super) steps: u32,
}

/// One step of an answer: a model call, and its result.
pub(super) struct Step {
    /// The parts of the message before it.
    pub(super) before: Vec<Part>,
    /// Its own parts.
    pub(super) parts: Vec<Part>,
    /// Whether it has begun.
    pub(super) started: bool,
    /// Whether it is complete.
    pub(super) finished: bool,
}

impl Turn {
    pub(super) fn new(inner: Inner) -> Self {
        Turn(Arc::new(inner))
    }

    pub(super) fn inner(&self) -> &Inner {
        &self.0
    }

    /// Id of the turn, under which clients know its stream.
    pub fn id(&self) -> &str {
        &self.0.row.id
    }

    /// The conversation before the answer, oldest first.
    pub fn messages(&self) -> &[UiMessage] {
        &self.0.messages
    }

    /// Body of the request, beside the messages.
    pub fn body(&self) -> Option<&Value> {
        self.0.body.as_ref()
    }

    /// The tools of the client: call one by writing the call; the client answers it later.
    pub fn client_tools(&self) -> &[ToolSpec] {
        &self.0.client_tools
    }

    /// Whether a part of the answer exists already: an earlier attempt was interrupted, or the turn
    /// continues an earlier answer.
    pub fn is_continuation(&self) -> bool {
        self.0.row.kind == TurnKind::Continue || self.0.recovery.as_ref().is_some_and(|r| !r.partial.is_empty())
    }

    /// Details of the interruption, if this is not the first attempt.
    pub fn recovery(&self) -> Option<&ChatRecovery> {
        self.0.recovery.as_ref()
    }

    /// The answer so far, including the chunks of earlier attempts.
    pub async fn message(&self) -> UiMessage {
        self.0.stream.lock().await.builder.message().clone()
    }

    /// The text of the answer when this attempt began.
    pub fn text(&self) -> String {
        self.0.recovery.as_ref().map(ChatRecovery::partial_text).unwrap_or_default()
    }

    /// Writes a chunk. It is stored and shown soon after, in order; [`flush`](Turn::flush) waits
    /// for that.
    ///
    /// A `finish` completes the answer: a turn that is interrupted after it ends as completed, and
    /// does not run again. The message's `start` is written automatically; one that is written by
    /// the hook is fitted to the message. After an interruption the chunks are fitted to the
    /// existing ones: text continues in the part that was open. An `error` ends the turn with its
    /// text, an `abort` ends it as aborted, and later writes are refused. Text, reasoning and tool
    /// input of more than [`MAX_CHUNK`] bytes is split.
    ///
    /// # Errors
    /// Of kind [`Value`](ErrorKind::Value) when the chunk cannot follow the last one, or is too
    /// long; of kind [`Conflict`](ErrorKind::Conflict) when the turn has ended; when the store
    /// fails. A refused chunk is not written.
    pub async fn write(&self, chunk: Chunk) -> Result<()> {
        let inner = &*self.0;
        let mut stream = inner.stream.lock().await;
        if !self.is_open() || stream.error.is_some() || stream.aborted {
            return Err(writer::over());
        }
        self.expects_silence(Duration::ZERO);
        match chunk.kind() {
            "error" => {
                let text = chunk.get("errorText").and_then(Value::as_str).unwrap_or(USUAL_TEXT);
                stream.error = Some(text.to_owned());
                return Ok(());
            }
            "abort" => {
                stream.aborted = true;
                return Ok(());
            }
            _ => {}
        }
        inner.writer.room().await?;
        // No await follows: a write that is dropped has changed nothing.
        inner.repair(&mut stream)?;
        let before = (stream.started, stream.continuation.clone());
        let chunks: Result<Vec<_>> = inner.fitted(&mut stream, chunk).into_iter().map(pieces).collect();
        let accepted = chunks.and_then(|chunks| inner.accept(&mut stream, &chunks.concat()));
        if accepted.is_err() {
            (stream.started, stream.continuation) = before;
        }
        accepted
    }

    /// Writes the answer of a person or their client; it is stored when this returns.
    pub(super) async fn answered(&self, chunk: Chunk) -> Result<()> {
        let inner = &*self.0;
        {
            let mut stream = inner.stream.lock().await;
            if !self.is_open() {
                return Err(writer::over());
            }
            inner.writer.room().await?;
            inner.accept(&mut stream, &[chunk])?;
        }
        self.flush().await
    }

    /// Id of the message that it writes.
    pub fn message_id(&self) -> &str {
        &self.0.row.message
    }

    /// Runs a fiber function that answers, and waits for its result.
    ///
    /// It is called inside the fiber of the turn, as by `call!`. After an interruption the hook
    /// runs again; when it reaches the same run, that run resumes in its middle. An ended run
    /// returns its result again, so a hook may run several in sequence. The run waits in memory,
    /// since the turn is running meanwhile, and whatever parks it parks the turn.
    ///
    /// A turn runs one fiber at a time. If this future is dropped, the run stays under way, for the
    /// next call with the same function and arguments, and ends with the turn.
    ///
    /// # Errors
    /// When it cannot be started, or fails.
    pub async fn run<F: Fiber>(&self, call: F) -> Result<F::Output, FiberError> {
        self.0.engine.check_registered::<F>().map_err(|error| not_started(F::MACHINE.name, &error))?;
        self.run_here(call).await
    }

    /// As [`run`](Self::run), for a function that is not registered itself.
    pub(super) async fn run_here<F: Fiber>(&self, call: F) -> Result<F::Output, FiberError> {
        let inner = &*self.0;
        inner.runs_fiber.store(true, Ordering::Release);
        let name = F::MACHINE.name;
        let not_started = |error| not_started(name, &error);
        let args = save_arguments(&call).map_err(|why| not_started(Error::new(ErrorKind::Value, why)))?;
        let exit = inner.runs.begin(call, args).map_err(not_started)?.ended().await;
        inner.engine.result_of(&inner.fiber, name, exit)
    }

    /// Writes a chunk of a fiber of the turn, which needs no fitting.
    pub(super) async fn put(&self, chunk: Chunk) -> Result<()> {
        let inner = &*self.0;
        let mut stream = inner.stream.lock().await;
        if !self.is_open() {
            return Err(writer::over());
        }
        self.expects_silence(Duration::ZERO);
        inner.writer.room().await?;
        let mut chunks = pieces(chunk)?;
        if !stream.started {
            let mut start = Chunk::start();
            inner.stamp(&mut start);
            chunks.insert(0, start);
        }
        inner.accept(&mut stream, &chunks)?;
        stream.started = true;
        Ok(())
    }

    /// Marks that a loop begins to answer.
    pub(super) fn loops(&self) -> Looping<'_> {
        self.0.pulse.send_modify(|pulse| pulse.looped = true);
        Looping(&self.0.pulse)
    }

    /// Marks that a loop begins to receive chunks from its model.
    pub(super) fn listens(&self) -> Listening<'_> {
        self.0.pulse.send_modify(|pulse| pulse.listens = true);
        Listening(&self.0.pulse)
    }

    /// Records a chunk, and how long no other is expected.
    pub(super) fn expects_silence(&self, silence: Duration) {
        self.0.pulse.send_modify(|pulse| pulse.silence = silence);
    }

    /// Fits a new answer to the chunks so far.
    pub(super) async fn continuation(&self) -> Continuation {
        Continuation::of(&self.0.stream.lock().await.builder)
    }

    /// A step of this turn, from 0.
    pub(super) async fn step(&self, number: u32) -> Step {
        let mut stream = self.0.stream.lock().await;
        let (first, finished) = (stream.steps_before + number as usize, stream.steps > number);
        let parts = &stream.builder.message().parts;
        let begins: Vec<usize> = (0..parts.len()).filter(|at| parts[*at].kind() == "step-start").collect();
        let begin = begins.get(first).copied();
        let end = begins.get(first + 1).copied().unwrap_or(parts.len());
        Step {
            before: parts[..begin.unwrap_or(parts.len())].to_vec(),
            parts: begin.map(|begin| parts[begin + 1..end].to_vec()).unwrap_or_default(),
            started: begin.is_some(),
            finished,
        }
    }

    /// Whether a fiber function answers, such as an agent loop.
    pub(super) fn is_answered_by_a_fiber(&self) -> bool {
        self.0.runs_fiber.load(Ordering::Acquire)
    }

    /// Whether this attempt is the one that may write.
    pub(super) fn is_open(&self) -> bool {
        *self.0.open.borrow()
    }

    /// Resolves when another attempt takes over, or the turn has ended.
    pub(super) async fn closed(&self) {
        // The sender is in `self`, so the wait cannot fail.
        let _ = self.0.open.subscribe().wait_for(|open| !open).await;
    }

    /// Waits until all written chunks are stored.
    ///
    /// # Errors
    /// When the turn has ended, or the store fails.
    pub async fn flush(&self) -> Result<()> {
        self.0.writer.flush().await
    }

    /// Stores `value` with the turn, replacing the last stash. It is durable when this returns; an
    /// attempt after an interruption reads it with [`stashed`](Turn::stashed).
    ///
    /// # Errors
    /// When the value cannot be saved exactly or takes more than 16 MiB, the turn has ended, or the
    /// store fails.
    pub async fn stash<V: Serialize + ?Sized>(&self, value: &V) -> Result<()> {
        let text = text_to_keep(value).map_err(|why| Error::new(ErrorKind::Value, format!("the stash of a turn {why}")))?;
        if !self.is_open() {
            return Err(writer::over());
        }
        let turn = self.clone();
        let work = async move {
            let Inner { engine, fence, row, stash, .. } = &*turn.0;
            match fence.checked(engine.store().stash_turn(fence.claim(), row.seq, text.clone()).await)? {
                TurnWrite::NotRunning | TurnWrite::HasFiber => Err(writer::over()),
                TurnWrite::Done => {
                    *stash.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
                    Ok(())
                }
            }
        };
        self.0.engine.detached(work).await
    }

    /// The last stash, of this attempt or an earlier one.
    ///
    /// # Errors
    /// When it cannot be read as a `V`.
    pub fn stashed<V: DeserializeOwned>(&self) -> Result<Option<V>> {
        let Some(text) = self.0.stash.lock().unwrap_or_else(PoisonError::into_inner).clone() else { return Ok(None) };
        forever_json::from_str(&text)
            .map(Some)
            .map_err(|why| Error::new(ErrorKind::Value, format!("the stash of a turn {}", unreadable::<V>(why))))
    }

    /// Resolves when the turn is cancelled.
    ///
    /// The hook itself is dropped then, wherever it awaits; use this for work that it has started
    /// elsewhere.
    pub async fn cancelled(&self) {
        let mut cancelled = self.0.cancelled.clone();
        if cancelled.wait_for(Option::is_some).await.is_err() {
            // This attempt is over, and gets no further notification.
            std::future::pending::<()>().await;
        }
    }

    /// Whether the turn is cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.borrow().is_some()
    }

    /// Ready when the runtime begins to close: this process ends, and the turn does not.
    ///
    /// The turn is interrupted, and recovered as after a crash, here or in another process. A hook
    /// that has never called this or [`is_closing`](Self::is_closing) is dropped wherever it awaits,
    /// once the tool calls, effects and manual operations of its runs that are under way have
    /// ended. Any other has until the deadline of [`close`](forever_runtime::Forever::close), to
    /// [`stash`](Self::stash) what it has; what it returns after it has seen this is no answer, and
    /// nor is an error in any case. No run begins anything more, and at the deadline everything is
    /// dropped.
    pub async fn closing(&self) {
        self.0.closing.listens.store(true, Ordering::Release);
        self.0.engine.closing().await;
        self.0.closing.saw.store(true, Ordering::Release);
    }

    /// Whether the runtime closes. The hook has seen it then; see [`closing`](Self::closing).
    pub fn is_closing(&self) -> bool {
        let closes = self.0.engine.is_closing();
        self.0.closing.listens.store(true, Ordering::Release);
        self.0.closing.saw.fetch_or(closes, Ordering::AcqRel);
        closes
    }
}

impl Inner {
    /// Whether the hook is to have the time that a runtime has for closing.
    pub(super) fn listens_for_closing(&self) -> bool {
        self.closing.listens.load(Ordering::Acquire)
    }

    pub(super) fn has_seen_closing(&self) -> bool {
        self.closing.saw.load(Ordering::Acquire)
    }

    /// Fits a chunk to the chunks so far.
    fn fitted(&self, stream: &mut Stream, mut chunk: Chunk) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        if chunk.kind() == "start" {
            if stream.started {
                chunk.remove("messageId");
                // Only its metadata of the message remains.
                if let Some(metadata) = chunk.remove("messageMetadata") {
                    chunks.push(Chunk::metadata(metadata));
                }
                return chunks;
            }
            self.stamp(&mut chunk);
            stream.started = true;
            return vec![chunk];
        }
        if !stream.started {
            let mut start = Chunk::start();
            self.stamp(&mut start);
            stream.started = true;
            chunks.push(start);
        }
        match &mut stream.continuation {
            Some(continuation) => chunks.extend(continuation.next(chunk)),
            None => chunks.push(chunk),
        }
        chunks
    }

    /// Gives a `start` the id of the message; a continuation has none.
    fn stamp(&self, start: &mut Chunk) {
        if self.row.kind == TurnKind::Continue {
            start.remove("messageId");
        } else {
            start.set("messageId", self.row.message.as_str());
        }
    }

    /// Adds chunks to the message and to the log: all of them to both, or none to either.
    fn accept(&self, stream: &mut Stream, chunks: &[Chunk]) -> Result<()> {
        if chunks.is_empty() {
            return Ok(());
        }
        let texts = chunks.iter().map(|chunk| chunk.to_text().into()).collect();
        self.writer.accept(texts, || stream.builder.apply_all(chunks))?;
        stream.steps += chunks.iter().map(|chunk| u32::from(chunk.kind() == "finish-step")).sum::<u32>();
        Ok(())
    }

    /// Settles the tool calls that an earlier attempt has left without a result.
    pub(super) fn repair(&self, stream: &mut Stream) -> Result<()> {
        if !stream.unrepaired {
            return Ok(());
        }
        let repaired = repair(vec![stream.builder.message().clone()], |call| self.repair_of(call));
        let chunks: Vec<_> = repaired.calls.into_iter().map(|call| call.chunk).collect();
        self.accept(stream, &chunks)?;
        debug!(turn.id = %self.row.id, tool.calls = chunks.len(), "interrupted tool calls were settled");
        stream.unrepaired = false;
        // Later chunks are fitted to the message as it is now.
        stream.continuation = Some(Continuation::of(&stream.builder));
        Ok(())
    }

    /// How to settle a call without a result. One that waits for a person or their client stays
    /// open.
    fn repair_of(&self, call: &Part) -> Repair {
        let of_client = call.tool_name().is_some_and(|name| self.client_tools.iter().any(|tool| tool.name == name));
        match call.tool_state() {
            Some(ToolState::InputStreaming) => self.hooks.repair(call),
            Some(ToolState::InputAvailable) if !of_client => self.hooks.repair(call),
            _ => Repair::Wait,
        }
    }
}

/// Splits a chunk into pieces that can be stored.
fn pieces(chunk: Chunk) -> Result<Vec<Chunk>> {
    let whole = chunk.to_text();
    if whole.len() <= MAX_CHUNK {
        return Ok(vec![chunk]);
    }
    let field = match chunk.kind() {
        "text-delta" | "reasoning-delta" => "delta",
        "tool-input-delta" => "inputTextDelta",
        kind => {
            let why = format!("a chunk `{kind}` has {} bytes, more than the {MAX_CHUNK} that can be stored", whole.len());
            return Err(Error::new(ErrorKind::Value, why));
        }
    };
    let Some(Value::String(text)) = chunk.get(field).cloned() else {
        return Err(Error::new(ErrorKind::Value, format!("a chunk `{}` has no `{field}`", chunk.kind())));
    };
    // A byte takes at most six bytes in JSON.
    let most = MAX_CHUNK / 8;
    let mut pieces = Vec::new();
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let mut end = most.min(rest.len());
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let (piece, left) = rest.split_at(end);
        let mut chunk = chunk.clone();
        chunk.set(field, piece);
        pieces.push(chunk);
        rest = left;
    }
    Ok(pieces)
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").field("id", &self.0.row.id).finish_non_exhaustive()
    }
}
