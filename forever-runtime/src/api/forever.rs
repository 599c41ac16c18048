//! `Forever`: spawns fibers, and has the commands, lists and the close of a runtime.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::agent::{Agent, AgentHandle, Agents};
use crate::api::admin;
use crate::api::admin::{FiberFilter, Fibers, Page};
use crate::api::builder::Builder;
use crate::api::chat_views;
use crate::api::chat_views::{ChatView, PendingInteractionView, TurnView};
use crate::api::troubles::{self, ChildView, QueueView, TroubleView};
use crate::api::view;
use crate::api::view::{AgentView, FiberView, FunctionView, PositionView, ScheduleView, Stored};
use crate::api::workers;
use crate::api::workers::WorkerStatus;
use crate::error::{Error, ErrorKind, Result};
use crate::exec::closure::SpawnClosure;
use crate::exec::compatibility::Compatibility;
use crate::exec::executor::Executor;
use crate::exec::failed::{self, FailedStep};
use crate::exec::spawn;
use crate::exec::spawn::Spawn;
use crate::frame::context::FiberContext;
use crate::frame::current;
use crate::frame::fiber::{Failure, Fiber, Value};
use crate::ops::resolve::{OpResolution, OpStatus};
#[cfg(feature = "postgres")]
use crate::ops::{PostgresTxFn, postgres_transaction};
use crate::ops::{resolve, transaction};
use crate::runtime::commands::{self, Resolution};
use crate::runtime::events::Events;
use crate::runtime::handle::{FiberError, FiberHandle, FiberStatus};
use crate::runtime::link::{Link, RuntimeGuard};
use crate::runtime::messages::{self, MessageStatus, SendMessage};
use crate::runtime::state::Runtime;
use crate::runtime::stream_reader::StreamReader;
use crate::store::{AgentId, FiberCount, FiberRef, Restart, Tx};

/// How long [`Forever::close`] waits for steps in flight.
const CLOSE_DEADLINE: Duration = Duration::from_secs(10);

/// An open database and the fibers that run from it.
///
/// Clones are the same runtime. If the last clone and the last handle are dropped without
/// [`close`](Forever::close), the effect is that of the process dying: fibers stop where they are,
/// and resume from their last checkpoint at the next open.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::Forever;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("research.db");
/// let forever = Forever::builder().sqlite(path).open().await?;
/// // forever.spawn(research(topic)).key("req-42").await?.wait().await?
/// forever.close().await
/// # }
/// ```
#[derive(Clone)]
pub struct Forever {
    pub(crate) agents: Arc<Agents>,
    pub(crate) exec: Arc<Executor>,
    pub(super) guard: Arc<RuntimeGuard>,
}

impl Forever {
    /// Builder of a runtime.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Starts a fiber: `forever.spawn(research(topic)).key("req-42").await?`.
    ///
    /// When the await returns the handle, the fiber and its arguments are stored, and it will run
    /// whatever happens to the process.
    ///
    /// # Errors
    /// When its function is not registered, an argument cannot be saved, the id or key belongs to a
    /// fiber with another function or other arguments, the store fails, or the runtime is closed.
    /// Of kind [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) when the fiber may be stored all the
    /// same; then it runs. The call is safe to repeat with the same id or key; without either it
    /// may start a second fiber.
    pub fn spawn<F: Fiber>(&self, call: F) -> Spawn<F> {
        Spawn::new(self.exec_link(), call)
    }

    /// Starts a fiber and waits for its result.
    ///
    /// # Errors
    /// When it cannot be started, and all errors of [`FiberHandle::wait`].
    pub async fn run<F: Fiber>(&self, call: F) -> Result<F::Output, FiberError> {
        let handle = self.spawn(call).await.map_err(|e| FiberError::not_started(F::MACHINE.name, &e))?;
        handle.wait().await
    }

    /// Handle of a fiber by its id.
    ///
    /// If there is no such fiber, `wait` and `status` of the handle return errors.
    pub fn fiber<F: Fiber>(&self, id: &str) -> FiberHandle<F::Output> {
        FiberHandle::new(self.runtime_link(), id, F::MACHINE.name, false)
    }

    /// Follows an output stream of a fiber from item `from` on: what its code sends by
    /// [`FiberContext::stream`](crate::fiber::FiberContext::stream).
    ///
    /// The fiber may run in any process that shares the database, wait, or have ended. For a reader
    /// that was cut off, `from` is the number of the last item it has seen, plus one.
    ///
    /// ```
    /// # use forever_runtime as forever;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), forever::BoxError> {
    /// # let forever = forever::Forever::builder().in_memory().open().await?;
    /// forever
    ///     .spawn_closure("count", |ctx| async move {
    ///         let counted = ctx.stream::<u32>("counted");
    ///         (0..3).try_for_each(|n| counted.send(&n))
    ///     })
    ///     .id("count")
    ///     .start()
    ///     .await?;
    /// let mut counted = forever.stream::<u32>("count", "counted", 1);
    /// while let Some(item) = counted.next().await? {
    ///     assert_eq!(u64::from(item.value), item.number);
    /// }
    /// # forever.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn stream<T: DeserializeOwned>(&self, id: impl Into<String>, name: impl Into<String>, from: u64) -> StreamReader<T> {
        StreamReader::new(self.runtime_link(), id.into(), name.into(), from)
    }

    /// Finds a fiber by its id, including closures; the caller chooses the type of its result.
    ///
    /// # Errors
    /// When there is no such fiber, or the store cannot be read.
    pub async fn find_fiber<T>(&self, id: &str) -> Result<FiberHandle<T>> {
        let row = self.runtime().store.find(FiberRef::Id(id.to_owned())).await?;
        let row = row.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no fiber with id `{id}`")))?;
        Ok(FiberHandle::new(self.runtime_link(), row.id, row.name, false))
    }

    /// Finds the fiber that was spawned with a key.
    ///
    /// # Errors
    /// When there is no such fiber, it runs another function, or the store cannot be read.
    pub async fn fiber_by_key<F: Fiber>(&self, key: &str) -> Result<FiberHandle<F::Output>> {
        spawn::by_key::<F>(&self.runtime_link(), key).await
    }

    /// Handle of the agent of class `A` with a name, which does not have to be created.
    ///
    /// Nothing happens until a method of the handle is called. An unregistered class, or a name
    /// that is empty or longer than 256 bytes, is an error of that call.
    pub fn agent<A: Agent>(&self, name: impl Into<String>) -> AgentHandle<A> {
        AgentHandle::new(self.agents_link(), AgentId { class: A::CLASS.to_owned(), name: name.into() })
    }

    /// Sends a message to a fiber, which receives it with `recv!(topic)`.
    ///
    /// When the await returns it is stored. It is received once, in the order of the sends:
    /// `forever.send(id, "approval", &true).message_id("mail-17").await?`. Without a
    /// [message id](SendMessage::message_id) a send that is repeated after an error is a second
    /// message.
    ///
    /// # Errors
    /// As [`FiberHandle::send`].
    pub fn send<V: Serialize + ?Sized>(&self, id: &str, topic: &str, value: &V) -> SendMessage {
        SendMessage::new(self.runtime_link(), id, topic, value)
    }

    /// The messages that a fiber has not received, the first 1 000, in the order in which they were
    /// sent.
    ///
    /// # Errors
    /// Of kind [`NotFound`](ErrorKind::NotFound) when there is no such fiber; when the store fails.
    pub async fn messages(&self, id: &str) -> Result<Vec<MessageStatus>> {
        messages::list(self.runtime(), id).await
    }

    /// Deletes a message that a fiber has not received, by its [number](MessageStatus::number).
    ///
    /// For a message that the fiber cannot receive: one of another type parks it. Discard it, then
    /// [`resume`](Self::resume) the fiber. The message's id stays sent.
    ///
    /// # Errors
    /// Of kind [`NotFound`](ErrorKind::NotFound) when there is no such fiber, or no such message of
    /// it; of kind [`InvalidState`](ErrorKind::InvalidState) while the fiber is running, since it may
    /// have received the message; when the store fails.
    pub async fn discard_message(&self, id: &str, number: i64) -> Result<()> {
        messages::discard(self.runtime(), id, number).await
    }

    /// Result of comparing the stored fibers with the code when the runtime was opened.
    ///
    /// [`Builder::check`] returns the same without opening.
    pub fn compatibility(&self) -> &Compatibility {
        &self.exec.compatibility
    }

    /// Lists fibers by page: `forever.fibers().state(FiberState::Failed).limit(20).await?`.
    pub fn fibers(&self) -> Fibers {
        Fibers::new(self.runtime_link())
    }

    /// Cancels a fiber and every fiber that it has spawned; see [`FiberHandle::cancel`].
    ///
    /// # Errors
    /// When there is no such fiber, it has ended, or the store fails. Safe to repeat after
    /// [`OutcomeUnknown`](ErrorKind::OutcomeUnknown), as are [`resume`](Forever::resume),
    /// [`restart`](Forever::restart), [`resolve`](Forever::resolve),
    /// [`resolve_op`](Forever::resolve_op) and [`delete`](Forever::delete): a repetition changes
    /// nothing.
    pub async fn cancel(&self, id: &str, reason: &str) -> Result<()> {
        commands::cancel(self.runtime(), id, reason).await
    }

    /// Resumes a failed, parked or interrupted fiber from its last checkpoint; see
    /// [`FiberHandle::resume`].
    ///
    /// # Errors
    /// When there is no such fiber, it is in another state, it is a closure, or the store fails.
    pub async fn resume(&self, id: &str) -> Result<()> {
        commands::restart(self.runtime(), id, Restart::FromSnapshot).await
    }

    /// Restarts a failed, cancelled, parked or interrupted fiber with its arguments; see
    /// [`FiberHandle::restart`].
    ///
    /// # Errors
    /// When there is no such fiber, it is in another state, it is a closure, or the store fails.
    pub async fn restart(&self, id: &str) -> Result<()> {
        commands::restart(self.runtime(), id, Restart::FromStart).await
    }

    /// Ends an interrupted or parked fiber as a person decides:
    /// `forever.resolve(id, Resolution::completed(&report)?)`.
    ///
    /// # Errors
    /// When there is no such fiber, it is in another state, or the store fails.
    pub async fn resolve(&self, id: &str, how: Resolution) -> Result<()> {
        commands::resolve(self.runtime(), id, how).await
    }

    /// Ledger of a fiber: its effects and manual operations, in the order in which they began.
    ///
    /// # Errors
    /// When there is no fiber with this id, or the store cannot be read.
    pub async fn ops(&self, fiber: &str) -> Result<Vec<OpStatus>> {
        resolve::list(self.runtime(), fiber).await
    }

    /// Resolves an operation in doubt by its id, after a person has checked with the other side.
    ///
    /// A fiber that is parked for it continues. One that has failed takes the outcome once it is
    /// [resumed](Self::resume).
    ///
    /// # Errors
    /// Of kind [`NotFound`](ErrorKind::NotFound) when there is no such operation; of kind
    /// [`InvalidState`](ErrorKind::InvalidState) when its outcome is known, because it has ended or
    /// was resolved before, and when its fiber is running; of kind
    /// [`Conflict`](ErrorKind::Conflict) when the value does not have the type of its step; when
    /// the store fails. The type is known once this process has run the step; a value that turns
    /// out to have another type parks the fiber again.
    pub async fn resolve_op(&self, id: &str, how: OpResolution) -> Result<()> {
        resolve::resolve(self.runtime(), id, how).await
    }

    /// Deletes ended fibers with all their data; returns their number.
    ///
    /// Fibers with an operation in doubt are left out, unless the filter has
    /// [`FiberFilter::delete_in_doubt`]. The results of children are deleted even while their
    /// parent may ask for them: it then gets the error that there is no such fiber. Fibers to which
    /// rows of the program's own tables refer are kept, and a warning is logged.
    ///
    /// Keys, and ids given by the program, are remembered for the time of
    /// [`Retention::keys`](crate::Retention::keys), unless the filter has
    /// [`FiberFilter::forget_keys`].
    ///
    /// # Errors
    /// When the filter matches fibers that have not ended, or the store fails.
    pub async fn delete(&self, filter: FiberFilter) -> Result<u64> {
        admin::delete(self.runtime(), filter).await
    }

    /// Transaction in the program's own tables, outside fibers.
    ///
    /// It is committed when the closure returns `Ok`, and rolled back when it returns `Err` or
    /// panics.
    ///
    /// ```
    /// # use forever_runtime as forever;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), forever::BoxError> {
    /// let forever = forever::Forever::builder()
    ///     .in_memory()
    ///     .migration("bookings", "CREATE TABLE bookings (id TEXT PRIMARY KEY) STRICT")
    ///     .open()
    ///     .await?;
    /// let bookings: i64 = forever
    ///     .transaction(|tx| {
    ///         tx.execute("INSERT INTO bookings VALUES ('a-1')", ())?;
    ///         Ok::<_, forever::BoxError>(tx.query_row("SELECT count(*) FROM bookings", (), |row| row.get(0))?)
    ///     })
    ///     .await?;
    /// assert_eq!(bookings, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The closure runs on the thread that writes the database, and all other writes wait for it.
    /// It may run more than once; the changes of an earlier run are then rolled back. [`Tx`] lists
    /// what it must not do. If the future is dropped, the transaction may be committed all the
    /// same. In a fiber, [`FiberContext::transaction`](crate::fiber::FiberContext::transaction) is carried
    /// out once.
    ///
    /// # Errors
    /// Errors of the closure, unchanged. Those of the library, converted to an `E`: of kind
    /// [`Setup`](ErrorKind::Setup) when the closure tried something forbidden; of kind
    /// [`Value`](ErrorKind::Value) when a deferred constraint is violated at the end; when the
    /// store fails or the runtime is closed. Of kind [`OutcomeUnknown`](ErrorKind::OutcomeUnknown)
    /// when it may be committed all the same: repeating it is safe if the closure first checks
    /// whether its rows exist.
    ///
    /// # Panics
    /// When the closure does.
    pub async fn transaction<F, T, E>(&self, work: F) -> Result<T, E>
    where
        F: FnMut(&Tx<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        transaction::outside(self.runtime(), work).await
    }

    /// Transaction in the program's own tables on Postgres, outside fibers.
    ///
    /// It is committed when the closure returns `Ok`, and rolled back when it returns `Err` or
    /// panics, or when the future is dropped before the commit is under way.
    ///
    /// ```no_run
    /// # use forever_runtime as forever;
    /// # async fn count(forever: &forever::Forever) -> Result<i64, forever::BoxError> {
    /// let bookings: i64 = forever
    ///     .postgres_transaction(async |tx| {
    ///         tx.execute("INSERT INTO bookings (id) VALUES ('a-1')", &[]).await?;
    ///         Ok::<_, forever::BoxError>(tx.query_one("SELECT count(*) FROM bookings", &[]).await?.get(0))
    ///     })
    ///     .await?;
    /// # Ok(bookings)
    /// # }
    /// ```
    ///
    /// The closure may run more than once; the changes of an earlier run are then rolled back. In a
    /// fiber, [`FiberContext::postgres_transaction`](crate::fiber::FiberContext::postgres_transaction),
    /// which also has more on the closure, is carried out once.
    ///
    /// # Errors
    /// Errors of the closure, unchanged. Those of the library, converted to an `E`: of kind
    /// [`Setup`](ErrorKind::Setup) when the closure ended the transaction, or the runtime was not
    /// opened with Postgres; of kind [`Value`](ErrorKind::Value) when a deferred constraint is
    /// violated at the end; when the store fails or the runtime is closed. Of kind
    /// [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) when it may be committed all the same. A
    /// transaction in the closure of another one is an error of kind [`Setup`](ErrorKind::Setup) at
    /// once.
    ///
    /// # Panics
    /// When the closure does.
    #[cfg(feature = "postgres")]
    #[cfg_attr(docsrs, doc(cfg(feature = "postgres")))]
    pub async fn postgres_transaction<F, T, E>(&self, work: F) -> Result<T, E>
    where
        F: for<'t> PostgresTxFn<'t, T, E>,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        postgres_transaction::outside(self.runtime(), work).await
    }

    /// Copies the database to a new file at `path`, while the runtime runs.
    ///
    /// The copy is a database of one moment that any runtime can open. When this returns, it is
    /// complete and synced. A database in memory can be copied too; its writes wait meanwhile.
    ///
    /// The copy does not know what happened after that moment: a runtime that is opened over it
    /// repeats the effects since then, and its keys start second fibers.
    /// `docs/guide/src/operations/backup.md` explains what to do about it.
    ///
    /// ```
    /// # use forever_runtime as forever;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> forever::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let forever = forever::Forever::builder().sqlite(folder.path().join("shop.db")).open().await?;
    /// # let copies = folder.path();
    /// forever.backup(copies.join("shop-monday.db")).await?;
    /// # forever.close().await
    /// # }
    /// ```
    ///
    /// If the future is dropped or the process dies, there is a complete copy at `path` or none;
    /// next to it there may be a file that ends in `.part`.
    ///
    /// # Errors
    /// Of kind [`Store`](ErrorKind::Store) when there is a file at `path`, or it cannot be written;
    /// when the database cannot be read, or the runtime is closed. Of kind
    /// [`Setup`](ErrorKind::Setup) when the runtime was opened with [`Builder::store`].
    pub async fn backup(&self, path: impl AsRef<Path>) -> Result<()> {
        let runtime = self.runtime();
        runtime.database.sqlite("`Forever::backup`")?.back_up(path, &runtime.clock.id()).await
    }

    /// Workers that are alive, by number: the open runtimes that share the database.
    ///
    /// With a store that only one runtime can have open, such as SQLite, that is this one.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn workers(&self) -> Result<Vec<WorkerStatus>> {
        workers::list(self.runtime()).await
    }

    /// Counts all fibers by function and state, from an index.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn counts(&self) -> Result<Vec<FiberCount>> {
        self.runtime().store.counts(Vec::new()).await
    }

    /// Status of a fiber of any function.
    ///
    /// Values that are marked `#[secret]` are replaced in its texts, as in [`view`](Self::view).
    ///
    /// # Errors
    /// Of kind [`NotFound`](ErrorKind::NotFound) when there is no such fiber; when the store fails.
    pub async fn status(&self, id: &str) -> Result<FiberStatus> {
        Ok(Stored::read_with_progress(&self.exec, id).await?.status(&self.exec))
    }

    /// The stored values of a fiber: arguments, result, and the locals of each function on its
    /// saved call stack.
    ///
    /// Values that are marked `#[secret]` are left out, and replaced where other texts of the fiber
    /// repeat them. A value that the program has computed from one is not known to be secret.
    ///
    /// # Errors
    /// Of kind [`NotFound`](ErrorKind::NotFound) when there is no such fiber; when the store fails.
    pub async fn view(&self, id: &str) -> Result<FiberView> {
        let messages = self.runtime().store.pending_messages(id.to_owned(), i64::MIN, view::MOST_MESSAGES).await?;
        let stored = Stored::read_with_progress(&self.exec, id).await?;
        let streams = stored.streams(&self.exec).await?;
        Ok(stored.view(&self.exec, messages, streams))
    }

    /// The ledger of a fiber as [`ops`](Self::ops) gives it, without secrets.
    ///
    /// # Errors
    /// As [`view`](Self::view).
    pub async fn view_ops(&self, id: &str) -> Result<Vec<OpStatus>> {
        Stored::read(&self.exec, id).await?.ops(&self.exec).await
    }

    /// A page of fibers as [`fibers`](Self::fibers) gives it, without secrets.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn view_fibers(&self, page: Fibers) -> Result<Page> {
        let (rows, next) = page.rows().await?;
        Ok(Page { fibers: view::statuses(&self.exec, rows).await, next })
    }

    /// What is wrong with fibers and chats, grouped by reason, without secrets.
    ///
    /// It looks at no more than some ten thousand fibers. A group of which there may be more says
    /// so.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn view_troubles(&self) -> Result<Vec<TroubleView>> {
        troubles::troubles(&self.exec).await
    }

    /// Fibers with at least `least` messages that they have not received, those with the most
    /// first, at most `limit`.
    ///
    /// It looks at the ten thousand newest messages.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn view_queues(&self, least: u32, limit: u32) -> Result<Vec<QueueView>> {
        troubles::queues(&self.exec, least, limit).await
    }

    /// The first children of a fiber with their arguments, without secrets.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn view_children(&self, id: &str, limit: u32) -> Result<Vec<ChildView>> {
        troubles::children(&self.exec, id, limit).await
    }

    /// The step in which a fiber has failed; `None` if it has not failed, or between two steps.
    ///
    /// # Errors
    /// Of kind [`NotFound`](ErrorKind::NotFound) when there is no such fiber; when the store fails.
    pub async fn failed_step(&self, id: &str) -> Result<Option<FailedStep>> {
        let stored = Stored::read(&self.exec, id).await?;
        failed::of(self.runtime(), stored.row()).await
    }

    /// Turns of all chats that failed or were interrupted, as [`view_turns`](Self::view_turns).
    ///
    /// # Errors
    /// When the store fails.
    pub async fn view_failed_turns(&self, before: Option<i64>, limit: u32) -> Result<Vec<TurnView>> {
        chat_views::failed_turns(&*self.runtime().store, before, limit).await
    }

    /// The functions that this process knows, with their cut points and source.
    pub fn functions(&self) -> Vec<FunctionView> {
        view::functions(&self.exec)
    }

    /// How many unfinished fibers stand at each cut point.
    ///
    /// It looks at all unfinished fibers.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn positions(&self) -> Result<Vec<PositionView>> {
        Ok(PositionView::of(self.runtime().store.unfinished_groups().await?))
    }

    /// Agents that have a state or are kept awake, behind one, by class and name.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn view_agents(&self, after: Option<(String, String)>, limit: u32) -> Result<Vec<AgentView>> {
        let after = after.map(|(class, name)| AgentId { class, name });
        Ok(self.runtime().store.agents(after, limit).await?.into_iter().map(AgentView::of).collect())
    }

    /// Schedules of all agents behind one, in the order in which they were made.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn view_schedules(&self, after: Option<String>, limit: u32) -> Result<Vec<ScheduleView>> {
        Ok(self.runtime().store.all_schedules(after, limit).await?.into_iter().map(ScheduleView::of).collect())
    }

    /// Turns of all chats before the one with this number, the newest first.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn view_turns(&self, before: Option<i64>, limit: u32) -> Result<Vec<TurnView>> {
        chat_views::turns(&*self.runtime().store, before, limit).await
    }

    /// A chat by class and name of its agent: its newest turns and last messages, up to `limit` of
    /// each. One that was never used has none.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn view_chat(&self, class: impl Into<String>, name: impl Into<String>, limit: u32) -> Result<ChatView> {
        let chat = AgentId { class: class.into(), name: name.into() };
        chat_views::chat(&*self.runtime().store, chat, limit).await
    }

    /// The newest messages of all chats with a call that waits for an answer of a person or of the
    /// client.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn view_pending_interactions(&self, limit: u32) -> Result<Vec<PendingInteractionView>> {
        chat_views::pending(&*self.runtime().store, limit).await
    }

    /// Ready when the runtime begins to close. Code of a fiber has seen it then, as by
    /// [`FiberContext::closing`](crate::fiber::FiberContext::closing).
    pub async fn closing(&self) {
        self.runtime().closing().await;
        current::sees_closing();
    }

    /// Whether the runtime has begun to close. Code of a fiber has seen it then.
    pub fn is_closing(&self) -> bool {
        let closes = self.runtime().is_closing();
        if closes {
            current::sees_closing();
        }
        closes
    }

    /// Stream of the events of all fibers from now on.
    ///
    /// Events of fibers that other workers run come through the database; see [`Events`].
    pub fn events(&self) -> Events {
        let events = self.runtime().listeners.listen();
        self.runtime().watchers.look_soon();
        events
    }

    /// Runs a closure as a fiber: no macro, no arguments, no resume in the middle.
    ///
    /// Its [`FiberContext::stash`](crate::fiber::FiberContext::stash) outlives the process, and reaches the recovery
    /// hook of its agent.
    ///
    /// ```
    /// # use forever_runtime as forever;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let forever = forever::Forever::builder().in_memory().open().await?;
    /// let imported: u64 = forever
    ///     .spawn_closure("import", |ctx| async move {
    ///         let mut done = 0;
    ///         while done < 3 {
    ///             done += 1;
    ///             ctx.stash(&done).await?;
    ///         }
    ///         Ok::<_, forever::Error>(done)
    ///     })
    ///     .await?;
    /// assert_eq!(imported, 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn spawn_closure<C, F, T, E>(&self, name: impl Into<String>, closure: C) -> SpawnClosure<C>
    where
        C: FnOnce(FiberContext) -> F + Send + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: Value,
        E: Failure + 'static,
    {
        SpawnClosure::new(self.exec_link(), name.into(), closure)
    }

    pub(crate) fn exec_link(&self) -> Link<Executor> {
        Link::Open(Arc::clone(&self.exec), Arc::clone(&self.guard))
    }

    pub(crate) fn agents_link(&self) -> Link<Agents> {
        Link::Open(Arc::clone(&self.agents), Arc::clone(&self.guard))
    }

    fn runtime_link(&self) -> Link<Runtime> {
        Link::Open(Arc::clone(self.runtime()), Arc::clone(&self.guard))
    }

    pub(crate) fn runtime(&self) -> &Arc<Runtime> {
        &self.guard.0
    }

    /// Closes the runtime: each fiber stops at its next checkpoint, then the database is released.
    ///
    /// Fibers that have not reached one after 10 s, or the [`deadline`](Close::deadline), are dropped
    /// where they are. All continue at the next open.
    ///
    /// # Cancel safety
    /// A close that has begun cannot be taken back. If its future is dropped, what runs goes on,
    /// and the next close waits for it.
    ///
    /// # Errors
    /// When the store fails; the database is released all the same.
    pub fn close(&self) -> Close {
        Close { guard: Arc::clone(&self.guard), deadline: CLOSE_DEADLINE }
    }

    /// Sets how many pages the database may have, to try what happens on a full disk.
    ///
    /// # Errors
    /// When the store fails.
    #[doc(hidden)]
    pub async fn limit_pages(&self, pages: u32) -> Result<()> {
        self.runtime().database.sqlite("`Forever::limit_pages`")?.limit_pages(pages).await
    }
}

impl fmt::Debug for Forever {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forever").field("fibers", &self.exec.registry).finish_non_exhaustive()
    }
}

/// A runtime about to be closed; made by [`Forever::close`], closed by `.await`.
///
/// ```
/// # use forever_runtime as forever;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// # let forever = forever::Forever::builder().in_memory().open().await?;
/// // At SIGTERM, under a supervisor that sends SIGKILL 30 seconds later.
/// forever.close().deadline(Duration::from_secs(25)).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a runtime is closed when this is awaited"]
pub struct Close {
    guard: Arc<RuntimeGuard>,
    deadline: Duration,
}

impl Close {
    /// How long steps in flight may go on, in place of 10 s.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }
}

impl IntoFuture for Close {
    type Output = Result<()>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.guard.0.close(self.deadline).await })
    }
}
