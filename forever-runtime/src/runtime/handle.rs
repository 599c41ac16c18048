//! Handles of fibers: the result of a fiber, its status, and its error.
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::SystemTime;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::clock::from_ms;
use crate::error::{Error, chain};
use crate::frame::current::{self, told};
use crate::frame::saved::{ReturnValue, unreadable};
use crate::runtime::active::RunState;
use crate::runtime::commands::{self, Resolution};
use crate::runtime::exit::Exit;
use crate::runtime::link::Link;
use crate::runtime::messages::{self, MessageStatus, SendMessage};
use crate::runtime::state::Runtime;
use crate::runtime::stream_reader::{self, StreamReader};
use crate::runtime::unread::UnreadTopic;
use crate::secret::{plain, shown};
use crate::store::{FiberRef, FiberRetry, FiberRow, FiberState, FiberTombstone, OpRetry, Restart, Wait};

/// Handle of a fiber with a result of type `T`, running or ended.
///
/// It waits for the result, as tokio's `JoinHandle` does for a task, and is only a reference to
/// what is stored:
///
/// - The result can be read any number of times, by any clone, also after a restart of the program.
///   [`Forever::fiber`](crate::Forever::fiber) makes a handle from an id, and
///   [`Forever::fiber_by_key`](crate::Forever::fiber_by_key) from a key.
/// - Dropping all handles neither stops the fiber nor loses its result. [`cancel`](Self::cancel)
///   stops it.
/// - A handle can be saved, so a fiber may keep the handles of its children.
///
/// A handle keeps its runtime open, except in a fiber or an agent, which end with the runtime.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::Forever;
/// use forever::fiber::{FiberHandle, FiberState};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), forever::BoxError> {
/// let forever = Forever::builder().in_memory().open().await?;
/// // A `#[fiber]` is started by `forever.spawn(..)`, which gives the same handle.
/// let handle: FiberHandle<u64> =
///     forever.spawn_closure("sum", |_| async { Ok::<_, forever::Error>(2 + 3) }).key("sum-1").start().await?;
/// assert_eq!(handle.wait().await?, 5);
/// assert_eq!(handle.wait().await?, 5);
/// assert_eq!(handle.status().await?.state, FiberState::Completed);
///
/// // The key joins the same fiber.
/// let again = forever.spawn_closure("sum", |_| async { Ok::<u64, forever::Error>(0) }).key("sum-1").start().await?;
/// assert_eq!((again.accepted(), again.wait().await?), (false, 5));
/// # forever.close().await?;
/// # Ok(())
/// # }
/// ```
pub struct FiberHandle<T> {
    link: Link<Runtime>,
    id: Arc<str>,
    name: Arc<str>,
    accepted: bool,
    output: PhantomData<fn() -> T>,
}

impl<T> FiberHandle<T> {
    pub(crate) fn new(link: Link<Runtime>, id: impl Into<Arc<str>>, name: impl Into<Arc<str>>, accepted: bool) -> Self {
        FiberHandle { link, id: id.into(), name: name.into(), accepted, output: PhantomData }
    }

    /// The handle of a fiber whose result is a `U`.
    pub(crate) fn of_type<U>(self) -> FiberHandle<U> {
        FiberHandle { link: self.link, id: self.id, name: self.name, accepted: self.accepted, output: PhantomData }
    }

    /// Id of the fiber, unique in its database.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Whether `spawn` created the fiber; `false` when it joined an existing one.
    pub fn accepted(&self) -> bool {
        self.accepted
    }

    /// Current status of the fiber: its state, last cut point, and what it waits for.
    ///
    /// It can be out of date when it arrives; to wait for the end, use `wait`.
    ///
    /// # Errors
    /// When there is no fiber with this id, or the store cannot be read.
    pub async fn status(&self) -> Result<FiberStatus, FiberError> {
        let runtime = self.link.get().map_err(|e| self.store_error(&e))?;
        let row = self.find().await?;
        let seq = row.seq;
        let mut status = FiberStatus::of(row).live(&runtime);
        if status.progress.is_none() {
            status.progress = stream_reader::stored_progress(&runtime, seq).await.map_err(|e| self.store_error(&e))?;
        }
        status.unread = messages::unread(&runtime, &self.id).await.map_err(|e| self.store_error(&e))?;
        // Only the row knows what a command has made of the fiber since.
        if status.state == FiberState::Running
            && let Some(entry) = runtime.active.get(&self.id)
            && entry.control().is_some()
            && let RunState::Stopped(Exit::Interrupted(why)) = &*entry.watch().borrow()
        {
            // The failed store may not have been able to store even this.
            status.state = FiberState::Interrupted;
            status.reason = Some(chain(&**why));
        }
        Ok(status)
    }

    /// Follows an output stream of the fiber; see [`Forever::stream`](crate::Forever::stream).
    pub fn stream<S: DeserializeOwned>(&self, name: impl Into<String>, from: u64) -> StreamReader<S> {
        StreamReader::new(self.link.clone(), self.id.as_ref().to_owned(), name.into(), from)
    }

    /// Cancels the fiber and every fiber that it has spawned.
    ///
    /// When this returns the request is stored: the fiber will be `cancelled`, whatever happens to
    /// the process. A fiber that is not running has ended by then. A running one is asked to stop
    /// ([`Op::cancelled`](crate::ops::Op::cancelled),
    /// [`FiberContext::cancelled`](crate::fiber::FiberContext::cancelled)), stops at its next checkpoint,
    /// and is dropped where it is after the [grace](crate::Builder::cancel_grace). An effect that
    /// is dropped in flight stays in doubt.
    ///
    /// ```
    /// # use forever_runtime as forever;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), forever::BoxError> {
    /// # let forever = forever::Forever::builder().in_memory().open().await?;
    /// let handle = forever
    ///     .spawn_closure("watch", |ctx| async move {
    ///         ctx.cancelled().await;
    ///         Ok::<_, forever::Error>(())
    ///     })
    ///     .start()
    ///     .await?;
    /// handle.cancel("no longer needed").await?;
    /// assert!(handle.wait().await.unwrap_err().is_cancelled());
    /// # forever.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Once the future was polled, the fiber is cancelled even if the future is dropped.
    ///
    /// # Errors
    /// Of kind [`NotFound`](crate::ErrorKind::NotFound) when there is no such fiber, of kind
    /// [`InvalidState`](crate::ErrorKind::InvalidState) when it has ended; when the store fails, or
    /// the runtime is closed.
    pub async fn cancel(&self, reason: &str) -> Result<(), Error> {
        commands::cancel(&self.link.get()?, &self.id, reason).await
    }

    /// Resumes the fiber from its last checkpoint, if it is failed, parked or interrupted.
    ///
    /// The step that failed runs again, with all its retries.
    ///
    /// # Cancel safety
    /// If the future is dropped, the fiber is resumed or stays as it is.
    ///
    /// # Errors
    /// Of kind [`NotFound`](crate::ErrorKind::NotFound) when there is no such fiber, of kind
    /// [`InvalidState`](crate::ErrorKind::InvalidState) when it is in another state, of kind
    /// [`Conflict`](crate::ErrorKind::Conflict) when it is a closure; when the store fails, or the
    /// runtime is closed.
    pub async fn resume(&self) -> Result<(), Error> {
        commands::restart(&self.link.get()?, &self.id, Restart::FromSnapshot).await
    }

    /// Restarts the fiber with its arguments, if it is failed, cancelled, parked or interrupted.
    ///
    /// Its snapshot is deleted, and steps that have finished run again.
    ///
    /// # Cancel safety
    /// If the future is dropped, the fiber is restarted or stays as it is.
    ///
    /// # Errors
    /// As [`resume`](Self::resume); also of kind [`InvalidState`](crate::ErrorKind::InvalidState)
    /// while one of its operations is in doubt: it would be repeated under another id, so
    /// [resolve it](crate::Forever::resolve_op) first.
    pub async fn restart(&self) -> Result<(), Error> {
        commands::restart(&self.link.get()?, &self.id, Restart::FromStart).await
    }

    /// Ends the fiber as a person decides, if it is interrupted or parked.
    ///
    /// Callers that wait for it get that end.
    ///
    /// # Cancel safety
    /// Once the future was polled, the fiber is resolved even if the future is dropped.
    ///
    /// # Errors
    /// Of kind [`NotFound`](crate::ErrorKind::NotFound) when there is no such fiber, of kind
    /// [`InvalidState`](crate::ErrorKind::InvalidState) when it is in another state; when the store
    /// fails, or the runtime is closed.
    pub async fn resolve(&self, how: Resolution) -> Result<(), Error> {
        commands::resolve(&self.link.get()?, &self.id, how).await
    }

    /// Sends a message on a topic, to a `recv!` of the fiber; stored by `.await`.
    ///
    /// When the future is ready, the message is stored: the fiber receives it once, or gets it from
    /// `close!`, or it is reported as [unread](FiberStatus::unread) when the fiber ends. A fiber
    /// that waits for it is woken, in memory or not.
    ///
    /// # Errors
    /// When there is no such fiber; of kind `InvalidState` when it has ended; of kind `TopicClosed`
    /// when it has closed the topic; of kind `Conflict` when its function does not receive on this
    /// topic, or another type, or another message was sent with its [id](SendMessage::message_id);
    /// when the store fails. The type is known once this process has reached the `recv!`: a value
    /// that is stored before, and does not fit, parks the fiber, until it is
    /// [discarded](Self::discard_message). After kind `OutcomeUnknown` the message may be received
    /// all the same: sending it again is safe if it has a message id.
    pub fn send<V: Serialize + ?Sized>(&self, topic: &str, value: &V) -> SendMessage {
        SendMessage::new(self.link.clone(), &self.id, topic, value)
    }

    /// The messages that the fiber has not received, the first 1 000, in the order in which they
    /// were sent.
    ///
    /// # Errors
    /// When there is no such fiber, or the store fails.
    pub async fn messages(&self) -> Result<Vec<MessageStatus>, Error> {
        messages::list(&*self.link.get()?, &self.id).await
    }

    /// Deletes a message that the fiber has not received, by its [number](MessageStatus::number).
    ///
    /// # Errors
    /// When there is no such fiber or message, while the fiber is running, and when the store
    /// fails.
    pub async fn discard_message(&self, number: i64) -> Result<(), Error> {
        messages::discard(&*self.link.get()?, &self.id, number).await
    }

    async fn find(&self) -> Result<FiberRow, FiberError> {
        let runtime = self.link.get().map_err(|e| self.store_error(&e))?;
        let which = FiberRef::Id(self.id.to_string());
        let Some(row) = runtime.store.find(which.clone()).await.map_err(|e| self.store_error(&e))? else {
            let past = runtime.store.tombstone(which).await.map_err(|e| self.store_error(&e))?;
            let Some(past) = past else { return Err(self.error(FiberErrorKind::NotFound, "")) };
            self.check_name(&past.name)?;
            return Err(self.error(FiberErrorKind::NotFound, gone(&past)));
        };
        self.check_name(&row.name)?;
        Ok(row)
    }

    fn check_name(&self, name: &str) -> Result<(), FiberError> {
        if *name == *self.name {
            return Ok(());
        }
        Err(self.error(FiberErrorKind::OtherFiber, format!("it is a fiber `{name}`, not `{}`", self.name)))
    }

    fn error(&self, kind: FiberErrorKind, reason: impl Into<String>) -> FiberError {
        if kind == FiberErrorKind::Closed {
            current::sees_closing();
        }
        let reason = reason.into();
        // A fiber would store it.
        let reason = if current::run().is_some() { shown(&reason).to_owned() } else { reason };
        FiberError { id: self.id.to_string(), name: self.name.to_string(), kind, reason }
    }

    fn store_error(&self, error: &Error) -> FiberError {
        let kind = if error.is_closed() { FiberErrorKind::Closed } else { FiberErrorKind::Store };
        self.error(kind, chain(error))
    }
}

impl<T: ReturnValue> FiberHandle<T> {
    /// Waits for the fiber's result, any number of times, also after a restart of the program.
    ///
    /// There is no time limit: wrap it in `tokio::time::timeout` for one. In a `#[fiber]`, use
    /// `wait!`, which waits without memory and survives a restart.
    ///
    /// # Cancel safety
    /// It is cancel safe: dropping the future loses nothing, and another call waits for the same
    /// result. So it may be a branch of `tokio::select!`, and a timeout leaves the fiber running.
    ///
    /// # Errors
    /// [`FiberError::kind`] says which: the fiber failed or was cancelled; it stopped without
    /// ending (parked, or interrupted without a retry to come), and a later call can succeed after
    /// a person has resumed it; there is no such fiber, or it is one of another function; its
    /// result cannot be read as a `T`; the runtime was closed meanwhile, which does not end the
    /// fiber.
    pub async fn wait(&self) -> Result<T, FiberError> {
        let runtime = self.link.get().map_err(|e| self.store_error(&e))?;
        let entry = runtime.active.entry(&self.id);
        let mut phase = entry.watch();
        // Whether what is seen has happened during this wait. Of anything before it a command may
        // have made something else.
        let mut during = false;
        loop {
            if let Some(control) = entry.control() {
                self.check_name(&control.name)?;
            }
            let seen = phase.borrow_and_update().clone();
            match seen {
                RunState::Running => {}
                // No command changes a completed fiber.
                RunState::Stopped(Exit::Completed(text)) if during => return self.value(&text),
                RunState::Stopped(_) | RunState::Away => {
                    let exit = match seen {
                        // A runtime that was closed or dropped learns of nothing any more.
                        RunState::Stopped(exit) if during || entry.control().is_some() || matches!(exit, Exit::Closed) => Some(exit),
                        _ => None,
                    };
                    let row = match (self.find().await, exit.clone()) {
                        (Ok(row), _) => row,
                        (Err(error), Some(exit)) if matches!(error.kind, FiberErrorKind::Store | FiberErrorKind::Closed) => {
                            return self.exited(exit);
                        }
                        (Err(error), _) => return Err(error),
                    };
                    let state = row.state;
                    if let Some(stopped) = self.stopped(&runtime, row) {
                        return stopped;
                    }
                    match exit {
                        // Its store could not store even this.
                        Some(Exit::Interrupted(error)) if state == FiberState::Running => return self.exited(Exit::Interrupted(error)),
                        Some(exit @ (Exit::Unfit(_) | Exit::Closed)) => return self.exited(exit),
                        _ => {}
                    }
                    if runtime.is_closing() {
                        return self.exited(Exit::Closed);
                    }
                    if runtime.claims_as().is_none() && runtime.cluster().is_none() {
                        return Err(self.error(FiberErrorKind::Closed, "this process runs nothing; the fiber runs at the next open"));
                    }
                }
            }
            // The sender is in `entry`, so the wait cannot fail.
            let _ = phase.changed().await;
            during = true;
        }
    }

    /// What a caller that waits gets of a stored fiber; `None` while it goes on by itself.
    fn stopped(&self, runtime: &Runtime, row: FiberRow) -> Option<Result<T, FiberError>> {
        let reason = row.reason.unwrap_or_default();
        let kind = match row.state {
            FiberState::Completed => return Some(self.value(&row.result.unwrap_or_default())),
            FiberState::Failed => FiberErrorKind::Failed,
            FiberState::Cancelled => FiberErrorKind::Cancelled,
            FiberState::Parked => FiberErrorKind::Parked,
            // A worker is about to resume it.
            FiberState::Interrupted if runtime.cluster().is_some() && !row.closure && row.agent.is_none() => return None,
            FiberState::Interrupted => FiberErrorKind::Interrupted,
            // It has not ended.
            _ => return None,
        };
        Some(Err(self.error(kind, reason)))
    }

    /// What an exit of the fiber gives to the caller that waits for it.
    pub(crate) fn exited(&self, exit: Exit) -> Result<T, FiberError> {
        match exit {
            Exit::Completed(text) => self.value(&text),
            Exit::Failed(why) => Err(self.error(FiberErrorKind::Failed, &*why)),
            Exit::Cancelled(why) => Err(self.error(FiberErrorKind::Cancelled, &*why)),
            Exit::Parked(why) | Exit::StoredAsParked(why) | Exit::Unfit(why) | Exit::Unreadable { why, .. } => {
                Err(self.error(FiberErrorKind::Parked, &*why))
            }
            Exit::Interrupted(error) => Err(self.error(FiberErrorKind::Interrupted, chain(&*error))),
            Exit::NotFound => Err(self.error(FiberErrorKind::NotFound, "")),
            Exit::Closed | Exit::Again(_) | Exit::Waiting(_) | Exit::ClaimLost => {
                Err(self.error(FiberErrorKind::Closed, "the runtime was closed; the fiber resumes when it is opened again"))
            }
        }
    }

    fn value(&self, text: &str) -> Result<T, FiberError> {
        T::__restore(text).map_err(|e| self.error(FiberErrorKind::Value, format!("its result {}", unreadable::<T>(e))))
    }
}

impl<T> Clone for FiberHandle<T> {
    fn clone(&self) -> Self {
        FiberHandle { link: self.link.clone(), id: Arc::clone(&self.id), name: Arc::clone(&self.name), ..*self }
    }
}

impl<T> fmt::Debug for FiberHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FiberHandle")
            .field("id", &self.id)
            .field("fiber", &self.name)
            .field("accepted", &self.accepted)
            .finish_non_exhaustive()
    }
}

/// What the tombstone of a deleted fiber tells.
fn gone(past: &FiberTombstone) -> String {
    // The year 9999 is the last that this form of a date has.
    let ended = httpdate::fmt_http_date(from_ms(past.finished_ms.clamp(0, 253_402_300_799_000)));
    format!("it ended on {ended} as {}, and its result is no longer kept", past.state)
}

/// Saved form of a handle.
#[derive(Serialize, Deserialize)]
struct SavedHandle<'a> {
    id: Cow<'a, str>,
    fiber: Cow<'a, str>,
}

impl<T> Serialize for FiberHandle<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        SavedHandle { id: Cow::Borrowed(&self.id), fiber: Cow::Borrowed(&self.name) }.serialize(serializer)
    }
}

/// In a fiber the handle belongs to that runtime; read anywhere else it only has its id.
impl<'de, T> Deserialize<'de> for FiberHandle<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let SavedHandle { id, fiber } = SavedHandle::deserialize(deserializer)?;
        Ok(FiberHandle::new(current::link(), id, fiber, false))
    }
}

/// Status of a fiber, as it is stored.
///
/// As JSON its times are milliseconds since 1970, in fields that end in `_ms`.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::fiber::FiberStatus;
///
/// /// What the fiber does, for a list.
/// fn describe(status: &FiberStatus) -> String {
///     if let Some(retry) = &status.retry {
///         format!("`{}` has failed {} times: {}", retry.step, retry.failed, retry.error)
///     } else if let Some(step) = &status.step {
///         format!("in step `{}`, attempt {}", step.name, step.attempt)
///     } else if let Some(wait) = &status.wait {
///         format!("waits until {:?}, or for one of {:?}", wait.due, wait.topics)
///     } else {
///         status.state.to_string()
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct FiberStatus {
    /// Id of the fiber.
    pub id: String,
    /// Stored name of its function.
    pub name: String,
    /// Its idempotency key.
    pub key: Option<String>,
    /// Whether it is a closure.
    pub is_closure: bool,
    /// The agent that it belongs to: its class and its name.
    pub agent: Option<(String, String)>,
    /// Id of the fiber that spawned it, while that one is stored.
    pub parent: Option<String>,
    /// What it waits for, while it is waiting.
    pub wait: Option<WaitStatus>,
    /// The step under way, if it runs in this process; of several side by side the last one to
    /// begin.
    pub step: Option<StepStatus>,
    /// State.
    pub state: FiberState,
    /// Why it failed, was cancelled, interrupted or parked.
    pub reason: Option<String>,
    /// The value given to `.metadata(..)`.
    pub metadata: Option<serde_json::Value>,
    /// The cut point of its last checkpoint: the last one that it has passed, or the wait that it
    /// has come to.
    pub at: Option<String>,
    /// Number of checkpoints; 0 once it has completed.
    pub checkpoints: u64,
    /// Number of deaths of the process since its last checkpoint.
    pub deaths: u32,
    /// What the code has set by [`set_progress`](crate::fiber::FiberContext::set_progress).
    ///
    /// In a [list](crate::fiber::Fibers) it is there for fibers that run in this process.
    pub progress: Option<serde_json::Value>,
    /// Messages that it has not received, by topic. Once it has completed or was cancelled nothing
    /// receives them any more.
    ///
    /// In a [list](crate::fiber::Fibers) it is empty.
    pub unread: Vec<UnreadTopic>,
    /// The step that has failed and is retried.
    ///
    /// Of several concurrent ones, the one whose next attempt is due last.
    pub retry: Option<RetryStatus>,
    /// Time of its acceptance, UTC.
    #[serde(rename = "created_ms", serialize_with = "as_ms")]
    pub created: SystemTime,
    /// Time of its last change of state, UTC.
    #[serde(rename = "changed_ms", serialize_with = "as_ms")]
    pub changed: SystemTime,
    /// Time of its last checkpoint, UTC; `None` before the first and once it has completed.
    #[serde(rename = "saved_ms", serialize_with = "as_ms_opt")]
    pub saved: Option<SystemTime>,
    /// Time of its end, UTC.
    #[serde(rename = "finished_ms", serialize_with = "as_ms_opt")]
    pub finished: Option<SystemTime>,
}

/// Condition that wakes a waiting fiber; see [`FiberStatus::wait`]. Of several, the first that is
/// met.
///
/// See [`FiberStatus`] for an example.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WaitStatus {
    /// Time at which it is due, UTC.
    #[serde(rename = "due_ms", serialize_with = "as_ms_opt")]
    pub due: Option<SystemTime>,
    /// Topics, a message of one of which is enough.
    pub topics: Vec<String>,
    /// Ids of other fibers that have to end.
    pub fibers: Vec<String>,
    /// Whether the end of one of them is enough.
    pub any_fiber: bool,
}

/// Step under way; see [`FiberStatus::step`].
///
/// See [`FiberStatus`] for an example.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StepStatus {
    /// Stored name of the step.
    pub name: String,
    /// When its first attempt in this process began, UTC.
    #[serde(rename = "started_ms", serialize_with = "as_ms")]
    pub started: SystemTime,
    /// Number of the attempt, from 1.
    pub attempt: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(crate) fn as_ms<S: serde::Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_i64(crate::clock::ms(*time))
}

#[allow(clippy::ref_option, reason = "serde passes a reference")]
pub(crate) fn as_ms_opt<S: serde::Serializer>(time: &Option<SystemTime>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(crate::clock::ms).serialize(serializer)
}

/// A step that has failed and is retried; see [`FiberStatus::retry`].
///
/// See [`FiberStatus`] for an example.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RetryStatus {
    /// Stored name of the step.
    pub step: String,
    /// Number of failed attempts.
    pub failed: u32,
    /// Text of the last error with its causes, at most 4 KiB.
    pub error: String,
    /// Time of the next attempt, UTC; in the past while it is under way.
    #[serde(rename = "next_attempt_ms", serialize_with = "as_ms")]
    pub next_attempt: SystemTime,
}

impl RetryStatus {
    fn of(row: FiberRetry, text: fn(&str) -> &str) -> Self {
        let FiberRetry { step, failed, last: OpRetry { error, next_ms } } = row;
        RetryStatus { step, failed, error: text(&error).to_owned(), next_attempt: from_ms(next_ms) }
    }
}

impl FiberStatus {
    /// For the program.
    pub(crate) fn of(row: FiberRow) -> Self {
        FiberStatus::with(row, told)
    }

    /// For people.
    pub(crate) fn shown(row: FiberRow) -> Self {
        FiberStatus::with(row, shown)
    }

    fn with(row: FiberRow, text: fn(&str) -> &str) -> Self {
        FiberStatus {
            id: row.id,
            name: row.name,
            key: row.key,
            is_closure: row.closure,
            agent: row.agent.map(|agent| (agent.class, agent.name)),
            parent: row.parent,
            state: row.state,
            reason: row.reason.map(|reason| text(&reason).to_owned()),
            metadata: row.metadata.and_then(|text| serde_json::from_str(&text).ok()),
            at: row.at,
            checkpoints: row.checkpoints,
            deaths: row.deaths,
            retry: row.retry.map(|retry| RetryStatus::of(retry, text)),
            wait: row.wait.map(|Wait { due_ms, topics, fibers, any_fiber }| WaitStatus {
                due: due_ms.map(from_ms),
                topics,
                fibers,
                any_fiber,
            }),
            step: None,
            progress: None,
            unread: Vec::new(),
            created: from_ms(row.created_ms),
            changed: from_ms(row.changed_ms),
            saved: row.saved_ms.map(from_ms),
            finished: row.finished_ms.map(from_ms),
        }
    }

    /// Names the cut point as the source does.
    fn named(mut self, runtime: &Runtime) -> Self {
        if let Some(wait) = self.at.as_deref().and_then(|at| runtime.wait_of(&self.name, at)) {
            self.at = Some(wait.to_owned());
        }
        self
    }

    /// Adds what only this process knows.
    pub(crate) fn live(self, runtime: &Runtime) -> Self {
        let mut status = self.named(runtime);
        status.progress = runtime.active.progress(&status.id).and_then(|text| serde_json::from_str(&text).ok());
        if status.state == FiberState::Running {
            status.step = runtime.active.step(&status.id).map(|(name, started)| {
                let attempt = status.retry.as_ref().filter(|retry| retry.step == name).map_or(1, |retry| retry.failed + 1);
                StepStatus { name: name.to_owned(), started, attempt }
            });
        }
        status
    }
}

/// Error of a fiber without a result: of [`FiberHandle::wait`], and of a child in a fiber.
///
/// Its text names the fiber and the reason. [`kind`](Self::kind), or a predicate, says whether the
/// fiber has ended (`Failed`, `Cancelled`), has stopped until something is repaired (`Parked`,
/// `Interrupted`), or may still end (`Closed`, `Store`).
///
/// It can be saved, so a fiber may keep the results of its children.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::Forever;
/// use forever::fiber::FiberErrorKind;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// # let forever = Forever::builder().in_memory().open().await?;
/// let charge = forever.spawn_closure("charge", |_| async { Err::<(), _>("the card was refused") });
/// let error = charge.await.unwrap_err();
/// assert!(error.is_failed());
/// assert_eq!(error.kind(), FiberErrorKind::Failed);
/// assert_eq!(error.reason(), "the card was refused");
/// # forever.close().await
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FiberError {
    id: String,
    name: String,
    kind: FiberErrorKind,
    reason: String,
}

/// Kind of a [`FiberError`].
///
/// ```
/// # use forever_runtime as forever;
/// use forever::fiber::{FiberError, FiberErrorKind};
///
/// /// The status of an HTTP response.
/// fn status(error: &FiberError) -> u16 {
///     match error.kind() {
///         FiberErrorKind::NotFound => 404,
///         FiberErrorKind::Failed | FiberErrorKind::Cancelled => 422,
///         // It may still end: the client is to ask again.
///         FiberErrorKind::Parked | FiberErrorKind::Interrupted | FiberErrorKind::Closed => 503,
///         _ => 500,
///     }
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FiberErrorKind {
    /// It returned `Err`, panicked, or returned a value that cannot be saved.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// Its snapshot or its arguments do not fit the code, the code is not registered, or an
    /// operation of it is in doubt. It resumes when that is fixed.
    Parked,
    /// The store failed. It resumes from its last checkpoint when the store works again.
    Interrupted,
    /// There is no fiber with this id, or no longer: then the reason tells how it ended, if that is
    /// stored.
    NotFound,
    /// The id belongs to another fiber function than the handle's.
    OtherFiber,
    /// It could not be started.
    NotStarted,
    /// The runtime was closed before the fiber ended. It resumes when the database is opened again.
    Closed,
    /// The store could not be read.
    Store,
    /// Its result cannot be read as the requested type.
    Value,
}

impl FiberError {
    /// Error of a fiber that `run` could not start.
    pub(crate) fn not_started(name: &str, error: &Error) -> Self {
        let kind = if error.is_closed() { FiberErrorKind::Closed } else { FiberErrorKind::NotStarted };
        FiberError { id: String::new(), name: name.to_owned(), kind, reason: chain(error) }
    }

    /// Id of the fiber; empty if it was not started.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Kind of the error.
    pub fn kind(&self) -> FiberErrorKind {
        self.kind
    }

    /// The reason alone: the text of the error with which the fiber ended, or why it is parked.
    ///
    /// Of a fiber that holds a value marked `#[secret]` only the program gets it, by this call, and
    /// no other fiber: the text of this error says that it is hidden.
    pub fn reason(&self) -> &str {
        plain(&self.reason)
    }

    /// Whether the fiber ended with an error.
    pub fn is_failed(&self) -> bool {
        self.kind == FiberErrorKind::Failed
    }

    /// Whether the fiber was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.kind == FiberErrorKind::Cancelled
    }

    /// Whether the fiber is parked.
    pub fn is_parked(&self) -> bool {
        self.kind == FiberErrorKind::Parked
    }

    /// Whether the fiber is interrupted.
    pub fn is_interrupted(&self) -> bool {
        self.kind == FiberErrorKind::Interrupted
    }

    /// Whether there is no such fiber.
    pub fn is_not_found(&self) -> bool {
        self.kind == FiberErrorKind::NotFound
    }

    /// Whether the runtime was closed before the fiber ended.
    pub fn is_closed(&self) -> bool {
        self.kind == FiberErrorKind::Closed
    }
}

impl fmt::Debug for FiberError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FiberError { id, name, kind, reason } = self;
        f.debug_struct("FiberError").field("id", id).field("name", name).field("kind", kind).field("reason", &shown(reason)).finish()
    }
}

impl fmt::Display for FiberError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FiberError { id, name, kind, reason } = self;
        let reason = shown(reason);
        match kind {
            FiberErrorKind::Failed => write!(f, "fiber `{name}` ({id}) failed: {reason}"),
            FiberErrorKind::Cancelled => write!(f, "fiber `{name}` ({id}) was cancelled: {reason}"),
            FiberErrorKind::Parked => write!(f, "fiber `{name}` ({id}) is parked: {reason}"),
            FiberErrorKind::Interrupted => write!(f, "fiber `{name}` ({id}) was interrupted: {reason}"),
            FiberErrorKind::NotFound if reason.is_empty() => write!(f, "there is no fiber with id `{id}`"),
            FiberErrorKind::NotFound => write!(f, "there is no fiber with id `{id}` any more: {reason}"),
            FiberErrorKind::OtherFiber => write!(f, "fiber `{id}` cannot be awaited: {reason}"),
            FiberErrorKind::NotStarted => f.write_str(reason),
            FiberErrorKind::Closed => write!(f, "fiber `{name}` ({id}) has not ended: {reason}"),
            FiberErrorKind::Store => write!(f, "fiber `{name}` ({id}) cannot be looked up: {reason}"),
            FiberErrorKind::Value => write!(f, "fiber `{name}` ({id}) completed, but {reason}"),
        }
    }
}

impl std::error::Error for FiberError {}
