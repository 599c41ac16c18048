//! The store: its tasks, and its implementation of the traits.
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forever_store::{
    AcceptResult, AcceptTurnResult, AdminStore, Admission, AgentHold, AgentId, AgentRequest, AgentRow, AgentStore, BoxFuture, BranchResult,
    Changes, ChatStore, Claim, ClaimResult, ClusterStore, CommandResult, DeclineResult, DeleteResult, Deletion, End, Error, ErrorKind,
    FarSchedules, FiberCopy, FiberCount, FiberEdit, FiberQuery, FiberRef, FiberRow, FiberState, FiberStore, FiberTombstone, HoldResult,
    IncidentRow, InteractionCursor, InteractionQuery, InteractionRow, KeepAliveRow, LayoutRow, Lease, LoadedFiber, MessageRow,
    MessageUpdate, NewAgentRequest, NewFiber, NewMessage, NewScheduleRow, NewSnapshot, NewTurnRow, Notification, OpOutcome, OpRecord,
    OpRow, OpStore, PendingMessage, Publication, PublishedPage, PublishedQuery, QueueRow, ReadySender, RequestOutcome, RequestProgress,
    ResolveOpResult, ResolvedOp, Restart, RestartResult, Result, RetryRow, RunResult, Runnable, ScheduleRow, SendResult, Seq, StopRow,
    StoredClaim, StreamAppend, StreamBatch, StreamStore, Suspension, TopicPage, TopicRow, TransactionResult, TurnFilter, TurnRequest,
    TurnRow, TurnSeq, TurnSettlement, TurnSettler, TurnWrite, UnfinishedGroup, UnreadSender, UpdateRefused, Wait, WaitResult,
    Watch as Watched, WorkerId, WorkerRow,
};
use tokio::task::AbortHandle;

use crate::batch::Queue;
use crate::call::{Kind, Retries, Shared, Work};
use crate::lease::{self, OwnLease};
use crate::options::Builder;
use crate::pool::Access;
use crate::sql::args;
use crate::transaction::{PostgresWork, Transactions};
use crate::workers::{Become, Watch};
use crate::{
    admin, agents, chat, claims, cluster, copies, fibers, layouts, messages, notify, ops, published, requests, streams, topics, troubles,
    turns, waits, workers,
};

/// Store in a Postgres database, which any number of workers share.
///
/// The worker that has claimed a fiber runs it. When a worker dies, others take over its fibers: at
/// once where its [direct connection](Builder::sign_of_life) shows the death, and otherwise when
/// its [lease](Builder::lease) has run out. Every write of an activation is conditional on its
/// claim, so the writes of a worker that was only thought dead are fenced.
///
/// Every operation is one transaction. It is retried while nothing of it can be stored. Where the
/// connection is lost at the commit, it fails with
/// [`ErrorKind::OutcomeUnknown`](forever_store::ErrorKind::OutcomeUnknown). An operation whose
/// future is dropped is carried out all the same.
///
/// ```no_run
/// use forever::Forever;
/// use forever::store::PostgresStore;
///
/// # async fn open() -> forever::Result<()> {
/// let store = PostgresStore::connect("postgres://user:password@host/database").await?;
/// let forever = Forever::builder().store(store).open().await?;
/// # forever.close().await
/// # }
/// ```
#[derive(Debug)]
pub struct PostgresStore {
    pub(crate) shared: Arc<Shared>,
    /// Queue of the writes that share statements.
    queue: Queue,
    /// Connection for leases and takeovers.
    house: Arc<Shared>,
    lease: Duration,
    direct: Option<Access>,
    /// What runs transactions of the program.
    transactions: Transactions,
    /// Name of the schema.
    schema: Arc<str>,
    /// Number of deaths in a row at which a schedule is suspended; 0 until the runtime sets it.
    strikes: Arc<AtomicU32>,
    tasks: Mutex<Vec<AbortHandle>>,
    /// What this process knows of its lease.
    own: Arc<OwnLease>,
}

impl PostgresStore {
    /// Options of a store in the database with a URL, such as
    /// `postgres://user:password@host/database`.
    pub fn builder(url: impl Into<String>) -> Builder {
        Builder::new(url.into())
    }

    pub(crate) fn over(
        shared: Arc<Shared>,
        house: Arc<Shared>,
        transactions: Transactions,
        lease: Duration,
        direct: Option<Access>,
        schema: Arc<str>,
    ) -> Self {
        let queue = Queue::start(&shared);
        PostgresStore {
            shared,
            queue,
            house,
            transactions,
            lease,
            direct,
            schema,
            strikes: Arc::default(),
            tasks: Mutex::default(),
            own: Arc::new(OwnLease::new(lease)),
        }
    }

    /// Runs a transaction of the program, under a claim or outside of fibers.
    ///
    /// A record is stored in the same transaction, as completed with the result. If it is stored as
    /// completed already, the code does not run. If the future is dropped, the transaction is
    /// rolled back unless its commit is under way.
    // For the runtime.
    #[doc(hidden)]
    pub async fn transact(
        &self,
        of: Option<(Claim, Option<OpRecord>)>,
        work: &mut dyn PostgresWork,
        now_ms: i64,
    ) -> Result<TransactionResult> {
        let _asks = self.shared.asks();
        let result = self.transactions.run(of.as_ref(), work, now_ms).await;
        self.shared.hears().await;
        result
    }

    /// Connects with the default options.
    ///
    /// # Errors
    /// As [`Builder::connect`].
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn connect(url: impl Into<String>) -> Result<Self> {
        Self::builder(url).connect().await
    }

    /// Whether a worker holds the lock that shows that it lives.
    // For tests that must not let a worker die before it holds the lock.
    #[doc(hidden)]
    pub async fn shows_life(&self, worker: WorkerId) -> Result<bool> {
        let work: Work<WorkerId, bool> = |tx, worker| {
            Box::pin(async move {
                let row = tx.row("SELECT lock IS NOT NULL AS shows FROM @workers WHERE id = $1", args![*worker]).await?;
                row.map_or(Ok(false), |row| row.flag("shows"))
            })
        };
        self.read("look for a sign of life", worker, work).await
    }

    /// Gives a function that lets the lease end as if the process were paused, and go on.
    // For tests.
    #[doc(hidden)]
    pub fn stand_still(&self) -> impl Fn(bool) + Send + Sync + use<> {
        let own = Arc::clone(&self.own);
        move |still| own.stand_still(still)
    }

    /// Whether it was closed or abandoned.
    // For the testing kit of the runtime.
    #[doc(hidden)]
    pub fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// Whether checkpoints read rows at their places, and not through the index.
    // For the test of that.
    #[doc(hidden)]
    pub fn reads_rows_at_their_places(&self) -> bool {
        self.queue.uses_places()
    }

    fn call<A, T>(&self, what: &'static str, kind: Kind, args: A, work: Work<A, T>) -> BoxFuture<'_, Result<T>>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
    {
        Box::pin(self.shared.call(what, kind, args, work))
    }

    fn read<A, T>(&self, what: &'static str, args: A, work: Work<A, T>) -> BoxFuture<'_, Result<T>>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
    {
        self.call(what, Kind::Read, args, work)
    }

    fn write<A, T>(&self, what: &'static str, args: A, work: Work<A, T>) -> BoxFuture<'_, Result<T>>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
    {
        self.call(what, Kind::Write, args, work)
    }

    /// Runs a write of one statement.
    fn write_one<A, T>(&self, what: &'static str, args: A, work: Work<A, T>) -> BoxFuture<'_, Result<T>>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
    {
        self.call(what, Kind::Single, args, work)
    }

    fn tasks(&self) -> std::sync::MutexGuard<'_, Vec<AbortHandle>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the tasks that renew the lease of a worker and take over from others.
    fn watch(&self, worker: WorkerId, asked: Duration) {
        if self.lease.is_zero() {
            return;
        }
        self.own.renewed(asked, false);
        let look = if self.direct.is_some() { Duration::from_millis(120).min(self.lease / 4) } else { self.lease / 4 };
        let watch = Watch {
            shared: Arc::clone(&self.house),
            of_calls: Arc::clone(&self.shared),
            worker,
            lease: self.lease,
            look,
            direct: self.direct.clone(),
            schema: Arc::clone(&self.schema),
            held: Arc::default(),
            own: Arc::clone(&self.own),
        };
        let mut tasks = self.tasks();
        // A store serves one runtime, so a worker that joined earlier has left.
        tasks.drain(..).for_each(|task| task.abort());
        tasks.push(tokio::spawn(watch.clone().renew()).abort_handle());
        tasks.push(tokio::spawn(watch.clone().show_life()).abort_handle());
        tasks.push(tokio::spawn(watch.clone().announce()).abort_handle());
        tasks.push(tokio::spawn(watch.take_over(Arc::clone(&self.strikes))).abort_handle());
    }

    /// Hands the fibers of a worker over. Those whose rows another program has locked follow when
    /// they are free; one that is locked for too long is taken over later, as after a death.
    async fn hand_over(&self, worker: WorkerId, now_ms: i64) -> Result<()> {
        let what = "store a clean close";
        let mut retries = Retries::begin();
        loop {
            let closed = self.write(what, (worker, now_ms), |tx, args| Box::pin(workers::close(tx, args.0, args.1))).await?;
            if closed.others {
                // Others go on at once with what this worker has handed over.
                let told = (Arc::clone(&self.schema), worker);
                let told = self.write_one("tell of a close", told, |tx, args| {
                    Box::pin(notify::send(tx, &args.0, args.1, notify::CHANGED | notify::READY))
                });
                let _ = told.await;
            }
            if !closed.is_locked {
                return Ok(());
            }
            let why = "another program has locked rows of its fibers or agents";
            if !retries.pause(&self.shared, what, why).await? {
                return Err(Error::new(ErrorKind::Store, format!("failed to {what}: {why}")));
            }
        }
    }

    fn stop(&self) {
        self.shared.close();
        self.house.close();
        self.transactions.close();
        self.tasks().drain(..).for_each(|task| task.abort());
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.stop();
    }
}

impl FiberStore for PostgresStore {
    fn cluster(&self) -> Option<&dyn ClusterStore> {
        // Without a lease it is a store of one worker, for tests.
        (!self.lease.is_zero()).then_some(self)
    }

    fn on_ready(&self, ready: ReadySender) {
        // A store serves one runtime.
        let _ = self.shared.ready.set(ready);
    }

    fn on_unread(&self, unread: UnreadSender) {
        // A store serves one runtime.
        let _ = self.shared.unread.set(unread);
    }

    fn join(&self, now_ms: i64) -> BoxFuture<'_, Result<WorkerId>> {
        Box::pin(async move {
            let (asked, args) = (lease::now(), (self.lease, now_ms));
            let worker = self.write("register a worker", args, |tx, args| Box::pin(workers::join(tx, args.0, args.1))).await?;
            self.shared.worker.store(worker, Ordering::Relaxed);
            self.watch(worker, asked);
            Ok(worker)
        })
    }

    fn take_over(&self, by: WorkerId, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        self.write("take over what was left running", (by, now_ms), |tx, args| {
            Box::pin(async move { workers::take_over(tx, args.0, args.1, Become::Interrupted).await.map(drop) })
        })
    }

    fn accept(&self, fiber: NewFiber) -> BoxFuture<'_, Result<AcceptResult>> {
        if Queue::takes_fiber(&fiber) {
            return self.queue.accept(fiber);
        }
        self.write("store a fiber", fiber, |tx, fiber| Box::pin(fibers::accept(tx, fiber)))
    }

    fn unfinished(&self, after: Seq, limit: u32) -> BoxFuture<'_, Result<Vec<Runnable>>> {
        self.read("list unfinished fibers", (after, limit, self.shared.worker()), |tx, args| {
            Box::pin(fibers::unfinished(tx, args.0, args.1, args.2))
        })
    }

    fn ready(&self, after: Seq, limit: u32) -> BoxFuture<'_, Result<Vec<Runnable>>> {
        self.read("list fibers that are ready", (after, limit, self.shared.worker()), |tx, args| {
            Box::pin(cluster::ready(tx, args.0, args.1, args.2))
        })
    }

    fn unfinished_groups(&self) -> BoxFuture<'_, Result<Vec<UnfinishedGroup>>> {
        self.read("group unfinished fibers", (), |tx, ()| Box::pin(fibers::unfinished_groups(tx)))
    }

    fn unfinished_of(&self, group: UnfinishedGroup, after: Seq, limit: u32) -> BoxFuture<'_, Result<Vec<Seq>>> {
        self.read("list unfinished fibers", (group, after, limit), |tx, args| Box::pin(fibers::unfinished_of(tx, &args.0, args.1, args.2)))
    }

    fn wake(&self, fibers: Vec<Seq>, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        self.write("wake fibers", (fibers, now_ms), |tx, args| {
            Box::pin(async move {
                let woken = waits::wake(tx, &args.0, args.1).await?;
                tx.ready().extend(woken);
                Ok(())
            })
        })
    }

    fn load(&self, seq: Seq) -> BoxFuture<'_, Result<LoadedFiber>> {
        self.call("load a fiber", Kind::Snapshot, seq, |tx, seq| Box::pin(fibers::load(tx, *seq)))
    }

    fn claim_of(&self, seq: Seq) -> BoxFuture<'_, Result<Option<StoredClaim>>> {
        self.read("find the claim of a fiber", seq, |tx, seq| Box::pin(claims::claim_of(tx, *seq)))
    }

    fn claim(&self, seen: Claim, worker: WorkerId, now_ms: i64) -> BoxFuture<'_, Result<ClaimResult>> {
        self.write("claim a fiber", (seen, worker, now_ms), |tx, args| Box::pin(claims::claim(tx, args.0, args.1, args.2)))
    }

    fn checkpoint(&self, claim: Claim, snapshot: NewSnapshot) -> BoxFuture<'_, Result<Vec<Claim>>> {
        if Queue::takes_checkpoint(&snapshot) {
            return self.queue.checkpoint(claim, snapshot);
        }
        self.queue.moved(claim.fiber);
        self.write("store a checkpoint", (claim, snapshot), |tx, args| Box::pin(fibers::checkpoint(tx, args.0, &args.1)))
    }

    fn stash(&self, claim: Claim, data: String, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        self.queue.moved(claim.fiber);
        self.write_one("store a stash", (claim, data, now_ms), |tx, args| Box::pin(fibers::stash(tx, args.0, &args.1, args.2)))
    }

    fn save_branch(
        &self,
        claim: Claim,
        number: u64,
        result: BranchResult,
        appended: Vec<StreamAppend>,
        now_ms: i64,
    ) -> BoxFuture<'_, Result<()>> {
        self.write("store a branch result", (claim, number, result, appended, now_ms), |tx, args| {
            Box::pin(fibers::save_branch(tx, args.0, args.1, &args.2, &args.3, args.4))
        })
    }

    fn wait(&self, claim: Claim, wait: Wait, now_ms: i64) -> BoxFuture<'_, Result<WaitResult>> {
        self.queue.moved(claim.fiber);
        self.write("store what a fiber waits for", (claim, wait, now_ms), |tx, args| Box::pin(waits::wait(tx, args.0, &args.1, args.2)))
    }

    fn take_due(&self, now_ms: i64, limit: u32) -> BoxFuture<'_, Result<Vec<Runnable>>> {
        self.write("wake fibers that are due", (now_ms, limit), |tx, args| Box::pin(waits::take_due(tx, args.0, args.1)))
    }

    fn next_due(&self) -> BoxFuture<'_, Result<Option<i64>>> {
        self.read("find what is due next", (), |tx, ()| Box::pin(waits::next_due(tx)))
    }

    fn send(&self, message: NewMessage) -> BoxFuture<'_, Result<CommandResult<SendResult>>> {
        self.write("store a message", message, |tx, message| Box::pin(messages::send(tx, message)))
    }

    fn topic(&self, seq: Seq, topic: String, after: i64, limit: u32) -> BoxFuture<'_, Result<TopicPage>> {
        self.read("load messages of a topic", (seq, topic, after, limit), |tx, args| {
            Box::pin(topics::page(tx, args.0, &args.1, args.2, args.3))
        })
    }

    fn end(
        &self,
        claim: Claim,
        end: End,
        outcomes: Vec<OpOutcome>,
        appended: Vec<StreamAppend>,
        now_ms: i64,
    ) -> BoxFuture<'_, Result<End>> {
        if Queue::takes_end(&end, &outcomes, &appended) {
            return self.queue.end(claim, end, now_ms);
        }
        self.queue.moved(claim.fiber);
        self.write("store how a fiber ended", (claim, end, outcomes, appended, now_ms), |tx, args| {
            Box::pin(fibers::end(tx, args.0, &args.1, &args.2, &args.3, args.4))
        })
    }

    fn suspend(&self, claim: Claim, suspension: Suspension, now_ms: i64) -> BoxFuture<'_, Result<Option<End>>> {
        self.write("store why a fiber stopped", (claim, suspension, now_ms), |tx, args| {
            Box::pin(fibers::suspend(tx, args.0, &args.1, args.2))
        })
    }

    fn restart_claimed(&self, claim: Claim, now_ms: i64) -> BoxFuture<'_, Result<RestartResult>> {
        self.write("restart a fiber", (claim, now_ms), |tx, args| Box::pin(fibers::restart_claimed(tx, args.0, args.1)))
    }

    fn close(&self, worker: WorkerId, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let closed = self.hand_over(worker, now_ms).await;
            self.stop();
            closed
        })
    }

    fn abandon(&self) {
        self.stop();
    }
}

impl ClusterStore for PostgresStore {
    fn changes(&self, watch: Watched) -> BoxFuture<'_, Result<Changes>> {
        Box::pin(async move {
            let work: Work<Watched, Changes> = |tx, watch| Box::pin(cluster::changes(tx, watch));
            let mut changes = self.read("look for changes of other workers", watch, work).await?;
            changes.fenced = self.shared.notices.fenced.swap(false, Ordering::Relaxed);
            Ok(changes)
        })
    }

    fn lease(&self) -> Option<&dyn Lease> {
        Some(&*self.own)
    }

    fn has_others(&self) -> bool {
        self.shared.notices.has_others.load(Ordering::Relaxed)
    }

    fn now_ms(&self) -> BoxFuture<'_, Result<Option<i64>>> {
        Box::pin(async {
            let work: Work<(), i64> = |tx, ()| {
                Box::pin(async {
                    let now = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms";
                    tx.one(now, args![]).await?.int("now_ms")
                })
            };
            self.read("ask for the time", (), work).await.map(Some)
        })
    }

    fn notified(&self) -> BoxFuture<'_, Notification> {
        Box::pin(self.shared.notices.notified())
    }

    fn decline(
        &self,
        seen: Claim,
        worker: WorkerId,
        reason: String,
        interrupted: bool,
        now_ms: i64,
    ) -> BoxFuture<'_, Result<DeclineResult>> {
        self.write("leave a fiber to other workers", (seen, worker, reason, interrupted, now_ms), |tx, args| {
            Box::pin(cluster::decline(tx, args.0, args.1, &args.2, args.3, args.4))
        })
    }

    fn workers(&self) -> BoxFuture<'_, Result<Vec<WorkerRow>>> {
        self.read("list the workers", (), |tx, ()| Box::pin(cluster::workers(tx)))
    }

    fn hold_agent(&self, agent: AgentId, worker: WorkerId) -> BoxFuture<'_, Result<HoldResult>> {
        self.write("store that an agent is in memory", (agent, worker), |tx, args| Box::pin(cluster::hold_agent(tx, &args.0, args.1)))
    }

    fn release_agent(&self, agent: AgentId, worker: WorkerId) -> BoxFuture<'_, Result<()>> {
        self.write_one("store that an agent has left memory", (agent, worker), |tx, args| {
            Box::pin(cluster::release_agent(tx, &args.0, args.1))
        })
    }

    fn request(&self, request: NewAgentRequest) -> BoxFuture<'_, Result<()>> {
        self.write_one("store a request to an agent", request, |tx, request| Box::pin(requests::request(tx, request)))
    }

    fn begin_request(&self, agent: AgentId, worker: WorkerId) -> BoxFuture<'_, Result<Option<AgentRequest>>> {
        self.write("begin a request to an agent", (agent, worker), |tx, args| Box::pin(requests::begin(tx, &args.0, args.1)))
    }

    fn end_request(&self, id: String, worker: WorkerId, outcome: RequestOutcome) -> BoxFuture<'_, Result<bool>> {
        self.write("store the outcome of a request to an agent", (id, worker, outcome), |tx, args| {
            Box::pin(requests::end(tx, &args.0, args.1, &args.2))
        })
    }

    fn take_request(&self, id: String) -> BoxFuture<'_, Result<RequestProgress>> {
        self.write("take the outcome of a request to an agent", id, |tx, id| Box::pin(requests::take(tx, id)))
    }

    fn withdraw_request(&self, id: String) -> BoxFuture<'_, Result<bool>> {
        self.write_one("withdraw a request to an agent", id, |tx, id| Box::pin(requests::withdraw(tx, id)))
    }

    fn publish(&self, worker: WorkerId, first: u64, items: Vec<Publication>) -> BoxFuture<'_, Result<()>> {
        self.write("publish items", (worker, first, items), |tx, args| Box::pin(published::publish(tx, args.0, args.1, &args.2)))
    }

    fn published(&self, query: PublishedQuery) -> BoxFuture<'_, Result<PublishedPage>> {
        self.read("read what other workers have published", query, |tx, query| Box::pin(published::published(tx, query)))
    }

    fn set_listens(&self, worker: WorkerId, listens: bool) -> BoxFuture<'_, Result<()>> {
        self.write_one("store that a worker listens", (worker, listens), |tx, args| Box::pin(published::set_listens(tx, args.0, args.1)))
    }
}

impl AdminStore for PostgresStore {
    fn resolve(&self, id: String, end: End, now_ms: i64) -> BoxFuture<'_, Result<CommandResult<(FiberRow, End)>>> {
        self.write("store how a fiber ended", (id, end, now_ms), |tx, args| Box::pin(admin::resolve(tx, &args.0, &args.1, args.2)))
    }

    fn cancel(&self, id: String, reason: String, now_ms: i64) -> BoxFuture<'_, Result<CommandResult<Vec<Runnable>>>> {
        self.write("cancel a fiber", (id, reason, now_ms), |tx, args| Box::pin(admin::cancel(tx, &args.0, &args.1, args.2)))
    }

    fn restart(&self, id: String, how: Restart, now_ms: i64) -> BoxFuture<'_, Result<CommandResult<RestartResult>>> {
        self.write("let a fiber run again", (id, how, now_ms), |tx, args| Box::pin(admin::restart(tx, &args.0, args.1, args.2)))
    }

    fn pending_messages(&self, id: String, after: i64, limit: u32) -> BoxFuture<'_, Result<Vec<PendingMessage>>> {
        self.read("list messages of a fiber", (id, after, limit), |tx, args| Box::pin(messages::list(tx, &args.0, args.1, args.2)))
    }

    fn topics(&self, id: String) -> BoxFuture<'_, Result<Vec<TopicRow>>> {
        self.read("list topics of a fiber", id, |tx, id| Box::pin(topics::all_of(tx, id)))
    }

    fn discard_message(&self, id: String, message: i64) -> BoxFuture<'_, Result<CommandResult<bool>>> {
        self.write("discard a message", (id, message), |tx, args| Box::pin(messages::discard(tx, &args.0, args.1)))
    }

    fn edit(&self, edit: FiberEdit) -> BoxFuture<'_, Result<CommandResult<bool>>> {
        self.write("edit a fiber", edit, |tx, edit| Box::pin(copies::edit(tx, edit)))
    }

    fn import(&self, copy: FiberCopy) -> BoxFuture<'_, Result<AcceptResult>> {
        self.write("import a fiber", copy, |tx, copy| Box::pin(copies::import(tx, copy)))
    }

    fn layouts(&self, hashes: Vec<String>) -> BoxFuture<'_, Result<Vec<LayoutRow>>> {
        self.read("read layouts", hashes.join(" "), |tx, hashes| Box::pin(layouts::with_hashes(tx, hashes)))
    }

    fn find(&self, fiber: FiberRef) -> BoxFuture<'_, Result<Option<FiberRow>>> {
        self.read("find a fiber", fiber, |tx, fiber| Box::pin(fibers::find(tx, fiber)))
    }

    fn list(&self, query: FiberQuery, after: Seq, limit: u32) -> BoxFuture<'_, Result<Vec<FiberRow>>> {
        self.read("list fibers", (query, after, limit), |tx, args| Box::pin(admin::list(tx, &args.0, args.1, args.2)))
    }

    fn counts(&self, states: Vec<FiberState>) -> BoxFuture<'_, Result<Vec<FiberCount>>> {
        self.read("count fibers", states, |tx, states| Box::pin(admin::counts(tx, states)))
    }

    fn stops(&self, name: String, state: FiberState, limit: u32) -> BoxFuture<'_, Result<Vec<StopRow>>> {
        self.read("list why fibers stopped", (name, state, limit), |tx, args| Box::pin(troubles::stops(tx, &args.0, args.1, args.2)))
    }

    fn retries(&self, looked_at: u32) -> BoxFuture<'_, Result<Vec<RetryRow>>> {
        self.read("list retried steps", looked_at, |tx, looked_at| Box::pin(troubles::retries(tx, *looked_at)))
    }

    fn queues(&self, looked_at: u32, least: u32, limit: u32) -> BoxFuture<'_, Result<Vec<QueueRow>>> {
        self.read("list queues of messages", (looked_at, least, limit), |tx, args| Box::pin(troubles::queues(tx, args.0, args.1, args.2)))
    }

    fn agents(&self, after: Option<AgentId>, limit: u32) -> BoxFuture<'_, Result<Vec<AgentRow>>> {
        self.read("list agents", (after, limit), |tx, args| Box::pin(agents::list(tx, args.0.as_ref(), args.1)))
    }

    fn all_schedules(&self, after: Option<String>, limit: u32) -> BoxFuture<'_, Result<Vec<ScheduleRow>>> {
        self.read("list schedules", (after, limit), |tx, args| Box::pin(agents::all_schedules(tx, args.0.as_deref(), args.1)))
    }

    fn delete(&self, deletion: Deletion) -> BoxFuture<'_, Result<DeleteResult>> {
        self.write("delete fibers", deletion, |tx, deletion| Box::pin(admin::delete(tx, deletion)))
    }

    fn tombstone(&self, fiber: FiberRef) -> BoxFuture<'_, Result<Option<FiberTombstone>>> {
        self.read("find the tombstone of a fiber", fiber, |tx, fiber| Box::pin(admin::tombstone(tx, fiber)))
    }

    fn delete_tombstones(&self, deletion: Deletion, deleted_before_ms: Option<i64>) -> BoxFuture<'_, Result<u64>> {
        self.write_one("delete tombstones", (deletion, deleted_before_ms), |tx, args| {
            Box::pin(admin::delete_tombstones(tx, &args.0, args.1))
        })
    }
}

impl StreamStore for PostgresStore {
    fn append(&self, claim: Claim, appended: Vec<StreamAppend>, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        self.write("append to streams", (claim, appended, now_ms), |tx, args| Box::pin(fibers::append(tx, args.0, &args.1, args.2)))
    }

    fn stream_names(&self, fiber: Seq) -> BoxFuture<'_, Result<Vec<String>>> {
        self.read("list the streams of a fiber", fiber, |tx, fiber| Box::pin(streams::names(tx, *fiber)))
    }

    fn stream(&self, fiber: Seq, name: String, from: u64, limit: u32) -> BoxFuture<'_, Result<Vec<StreamBatch>>> {
        self.read("read a stream", (fiber, name, from, limit), |tx, args| Box::pin(streams::read(tx, args.0, &args.1, args.2, args.3)))
    }
}

impl OpStore for PostgresStore {
    fn save_op(&self, claim: Claim, record: OpRecord, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        if Queue::takes_op(&record) {
            return self.queue.start_op(claim, record, now_ms);
        }
        self.write("store an operation", (claim, record, now_ms), |tx, args| Box::pin(ops::save(tx, args.0, &args.1, args.2)))
    }

    fn load_op(&self, seq: Seq, id: String) -> BoxFuture<'_, Result<Option<OpRecord>>> {
        self.read("load an operation", (seq, id), |tx, args| Box::pin(ops::load(tx, args.0, &args.1)))
    }

    fn append_op_log(&self, claim: Claim, record: OpRecord, items: Vec<String>, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        self.write("append to the log of an operation", (claim, record, items, now_ms), |tx, args| {
            Box::pin(ops::append_log(tx, args.0, &args.1, &args.2, args.3))
        })
    }

    fn ops(&self, seq: Seq) -> BoxFuture<'_, Result<Vec<OpRow>>> {
        self.read("list the operations of a fiber", seq, |tx, seq| Box::pin(ops::list(tx, *seq)))
    }

    fn find_op(&self, id: String) -> BoxFuture<'_, Result<Option<(Seq, OpRecord)>>> {
        self.read("find an operation", id, |tx, id| Box::pin(ops::find(tx, id)))
    }

    fn resolve_op(&self, seq: Seq, resolution: ResolvedOp, now_ms: i64) -> BoxFuture<'_, Result<CommandResult<ResolveOpResult>>> {
        self.write("store how an operation ended", (seq, resolution, now_ms), |tx, args| {
            Box::pin(ops::resolve(tx, args.0, &args.1, args.2))
        })
    }
}

impl AgentStore for PostgresStore {
    fn load_state(&self, agent: AgentId) -> BoxFuture<'_, Result<Option<String>>> {
        self.read("load the state of an agent", agent, |tx, agent| Box::pin(agents::load_state(tx, agent)))
    }

    fn save_state(&self, agent: AgentId, state: String, hold: Option<AgentHold>, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        self.write_one("store the state of an agent", (agent, state, hold, now_ms), |tx, args| {
            Box::pin(agents::save_state(tx, &args.0, &args.1, args.2, args.3))
        })
    }

    fn keep_awake(&self, agent: AgentId, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        self.write_one("store that an agent is kept awake", (agent, now_ms, self.shared.worker()), |tx, args| {
            Box::pin(agents::keep_awake(tx, &args.0, args.1, args.2))
        })
    }

    fn renew_keep_alives(&self, agents: Vec<AgentId>, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        self.write_one("store that agents are kept awake", (agents, now_ms), |tx, args| {
            Box::pin(agents::renew_keep_alives(tx, &args.0, args.1))
        })
    }

    fn end_keep_alive(&self, agent: AgentId) -> BoxFuture<'_, Result<()>> {
        self.write("store that an agent may sleep", agent, |tx, agent| Box::pin(agents::end_keep_alive(tx, agent)))
    }

    fn awake_agents(&self) -> BoxFuture<'_, Result<Vec<KeepAliveRow>>> {
        self.read("list the agents that were left awake", self.shared.worker(), |tx, worker| Box::pin(agents::awake_agents(tx, *worker)))
    }

    fn count_wake_attempt(&self, agent: AgentId) -> BoxFuture<'_, Result<()>> {
        self.write_one("count the waking of an agent", (agent, self.shared.worker()), |tx, args| {
            Box::pin(agents::count_wake_attempt(tx, &args.0, args.1))
        })
    }

    fn reset_wake_attempts(&self, agent: AgentId) -> BoxFuture<'_, Result<()>> {
        self.write_one("store that an agent has woken", agent, |tx, agent| Box::pin(agents::reset_wake_attempts(tx, agent)))
    }

    fn add_schedule(&self, new: NewScheduleRow) -> BoxFuture<'_, Result<(ScheduleRow, bool)>> {
        self.write("store a schedule", new, |tx, new| Box::pin(agents::add(tx, new)))
    }

    fn schedules(&self, agent: AgentId) -> BoxFuture<'_, Result<Vec<ScheduleRow>>> {
        self.read("list schedules", agent, |tx, agent| Box::pin(agents::schedules(tx, agent)))
    }

    fn cancel_schedule(&self, agent: AgentId, id: String) -> BoxFuture<'_, Result<bool>> {
        self.write_one("cancel a schedule", (agent, id), |tx, args| Box::pin(agents::cancel_schedule(tx, &args.0, &args.1)))
    }

    fn recover_schedules(&self, strikes: u32) -> BoxFuture<'_, Result<()>> {
        self.strikes.store(strikes, Ordering::Relaxed);
        self.write("recover schedules that were left running", (strikes, self.shared.worker()), |tx, args| {
            Box::pin(agents::recover(tx, args.0, args.1))
        })
    }

    fn claim_schedules(&self, classes: Vec<String>, now_ms: i64, limit: u32) -> BoxFuture<'_, Result<Vec<ScheduleRow>>> {
        self.write("take schedules that are due", (classes, now_ms, limit, self.shared.worker()), |tx, args| {
            Box::pin(agents::claim(tx, &args.0, args.1, args.2, args.3))
        })
    }

    fn end_run(&self, run: ScheduleRow, result: RunResult) -> BoxFuture<'_, Result<()>> {
        self.write("store how a schedule has run", (run, result, self.shared.worker()), |tx, args| {
            Box::pin(agents::end_run(tx, &args.0, &args.1, args.2))
        })
    }

    fn far_schedules(&self, now_ms: i64, slack_ms: i64) -> BoxFuture<'_, Result<FarSchedules>> {
        self.call("find schedules that are far ahead", Kind::Snapshot, (now_ms, slack_ms), |tx, args| {
            Box::pin(agents::far(tx, args.0, args.1))
        })
    }

    fn correct_schedules(&self, now_ms: i64, slack_ms: i64, crons: Vec<(i64, String)>) -> BoxFuture<'_, Result<u64>> {
        self.write("correct schedules that are far ahead", (now_ms, slack_ms, crons), |tx, args| {
            Box::pin(agents::correct(tx, args.0, args.1, &args.2))
        })
    }

    fn next_schedule(&self, classes: Vec<String>) -> BoxFuture<'_, Result<Option<i64>>> {
        self.read("find the schedule that is due next", (classes, self.shared.worker()), |tx, args| {
            Box::pin(agents::next(tx, &args.0, args.1))
        })
    }

    fn unregistered_classes(&self, classes: Vec<String>) -> BoxFuture<'_, Result<Vec<String>>> {
        self.read("list the classes of agents", classes, |tx, classes| Box::pin(agents::unregistered_classes(tx, classes)))
    }
}

impl ChatStore for PostgresStore {
    fn accept_turn(&self, new: NewTurnRow) -> BoxFuture<'_, Result<AcceptTurnResult>> {
        self.write("store a turn", new, |tx, new| Box::pin(turns::accept(tx, new)))
    }

    fn begin_turn(&self, claim: Claim, turn: TurnSeq, now_ms: i64) -> BoxFuture<'_, Result<Admission>> {
        self.write("store that a turn begins", (claim, turn, now_ms, self.shared.worker()), |tx, args| {
            Box::pin(turns::begin(tx, args.0, args.1, args.2, args.3))
        })
    }

    fn release_turn(&self, claim: Claim, turn: TurnSeq) -> BoxFuture<'_, Result<()>> {
        self.write("store that a turn is left", (claim, turn), |tx, args| Box::pin(turns::release(tx, args.0, args.1)))
    }

    fn park_turn(&self, claim: Claim, turn: TurnSeq, why: String, now_ms: i64) -> BoxFuture<'_, Result<bool>> {
        self.write("store that a turn is parked", (claim, turn, Suspension::Parked(why), now_ms), |tx, args| {
            Box::pin(turns::park(tx, args.0, args.1, &args.2, args.3))
        })
    }

    fn store_incident(&self, claim: Claim, turn: TurnSeq, incident: IncidentRow, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        self.write("store an interruption of a turn", (claim, turn, incident, now_ms), |tx, args| {
            Box::pin(turns::store_incident(tx, args.0, args.1, &args.2, args.3))
        })
    }

    fn append_chunks(&self, claim: Claim, turn: TurnSeq, chunks: StreamBatch) -> BoxFuture<'_, Result<TurnWrite>> {
        self.queue.append_chunks(claim, turn, chunks)
    }

    fn stash_turn(&self, claim: Claim, turn: TurnSeq, stash: String) -> BoxFuture<'_, Result<TurnWrite>> {
        self.write("store the stash of a turn", (claim, turn, stash), |tx, args| Box::pin(turns::stash(tx, args.0, args.1, &args.2)))
    }

    fn settle_turn(&self, by: TurnSettler, turn: TurnSeq, settlement: TurnSettlement) -> BoxFuture<'_, Result<TurnWrite>> {
        self.write("store how a turn ended", (by, turn, settlement), |tx, args| Box::pin(turns::settle(tx, args.0, args.1, &args.2)))
    }

    fn cancel_turn(&self, turn: TurnSeq, reason: String, now_ms: i64) -> BoxFuture<'_, Result<Option<TurnRow>>> {
        self.write("cancel a turn", (turn, reason, now_ms), |tx, args| Box::pin(turns::cancel(tx, args.0, &args.1, args.2)))
    }

    fn turn(&self, chat: AgentId, id: String) -> BoxFuture<'_, Result<Option<TurnRow>>> {
        self.read("find a turn", (chat, id), |tx, args| Box::pin(turns::by_id(tx, &args.0, &args.1)))
    }

    fn turn_by_key(&self, chat: AgentId, key: String) -> BoxFuture<'_, Result<Option<TurnRow>>> {
        self.read("find a turn", (chat, key), |tx, args| Box::pin(turns::by_key(tx, &args.0, &args.1)))
    }

    fn turn_by_seq(&self, turn: TurnSeq) -> BoxFuture<'_, Result<Option<TurnRow>>> {
        self.read("find a turn", turn, |tx, turn| Box::pin(turns::by_seq(tx, *turn)))
    }

    fn turns(&self, chat: AgentId, filter: TurnFilter, after: TurnSeq, limit: u32) -> BoxFuture<'_, Result<Vec<TurnRow>>> {
        self.read("list turns", (chat, filter, after, limit), |tx, args| Box::pin(turns::list(tx, &args.0, &args.1, args.2, args.3)))
    }

    fn all_turns(&self, before: Option<TurnSeq>, limit: u32) -> BoxFuture<'_, Result<Vec<TurnRow>>> {
        self.read("list the turns of all chats", (before, limit), |tx, args| Box::pin(turns::all(tx, args.0, args.1)))
    }

    fn failed_turns(&self, before: Option<TurnSeq>, limit: u32) -> BoxFuture<'_, Result<Vec<TurnRow>>> {
        self.read("list failed turns", (before, limit), |tx, args| Box::pin(turns::failed(tx, args.0, args.1)))
    }

    fn turn_fiber(&self, turn: TurnSeq) -> BoxFuture<'_, Result<Option<FiberState>>> {
        self.read("find the fiber of a turn", turn, |tx, turn| Box::pin(turns::fiber_state(tx, *turn)))
    }

    fn turn_request(&self, turn: TurnSeq) -> BoxFuture<'_, Result<TurnRequest>> {
        self.read("load the request of a turn", turn, |tx, turn| Box::pin(turns::request(tx, *turn)))
    }

    fn chunks(&self, turn: TurnSeq, from: u64, limit: u32) -> BoxFuture<'_, Result<Vec<StreamBatch>>> {
        self.read("load chunks of a turn", (turn, from, limit), |tx, args| Box::pin(chat::chunks(tx, args.0, args.1, args.2)))
    }

    fn chat_messages(&self, chat: AgentId, up_to: i64) -> BoxFuture<'_, Result<Vec<MessageRow>>> {
        self.read("load the messages of a chat", (chat, up_to), |tx, args| Box::pin(chat::messages(tx, &args.0, args.1)))
    }

    fn pending_interactions(
        &self,
        query: InteractionQuery,
        after: Option<InteractionCursor>,
        limit: u32,
    ) -> BoxFuture<'_, Result<Vec<InteractionRow>>> {
        self.read("list pending interactions", (query, after, limit), |tx, args| {
            Box::pin(chat::pending_interactions(tx, &args.0, args.1, args.2))
        })
    }

    fn continuation_target(&self, chat: AgentId) -> BoxFuture<'_, Result<Option<String>>> {
        self.read("find what is to be continued", chat, |tx, chat| Box::pin(chat::continuation_target(tx, chat)))
    }

    fn want_continuation(&self, chat: AgentId, message: String) -> BoxFuture<'_, Result<()>> {
        self.write("store what is to be continued", (chat, message), |tx, args| Box::pin(chat::want_continuation(tx, &args.0, &args.1)))
    }

    fn update_message(
        &self,
        chat: AgentId,
        update: MessageUpdate,
        wanted: bool,
        now_ms: i64,
    ) -> BoxFuture<'_, Result<Result<(), UpdateRefused>>> {
        self.write("store a message of a chat", (chat, update, wanted, now_ms), |tx, args| {
            Box::pin(chat::update_message(tx, &args.0, &args.1, args.2, args.3))
        })
    }

    fn replace_messages(&self, chat: AgentId, messages: Vec<MessageRow>, now_ms: i64) -> BoxFuture<'_, Result<bool>> {
        self.write("store the messages of a chat", (chat, messages, now_ms), |tx, args| {
            Box::pin(async move {
                let chat = chat::chat_of(tx, &args.0).await?;
                if turns::is_under_way(tx, chat).await? {
                    return Ok(false);
                }
                chat::replace_all(tx, chat, &args.1, args.2).await?;
                Ok(true)
            })
        })
    }

    fn clear_chat(&self, chat: AgentId, now_ms: i64) -> BoxFuture<'_, Result<Vec<TurnRow>>> {
        self.write("clear a chat", (chat, now_ms), |tx, args| Box::pin(turns::clear(tx, &args.0, args.1)))
    }

    fn orphaned_turns(&self) -> BoxFuture<'_, Result<Vec<TurnSeq>>> {
        self.read("find turns that were left", (), |tx, ()| Box::pin(turns::orphaned(tx)))
    }

    fn compact_turns(&self, before_ms: i64, limit: u32) -> BoxFuture<'_, Result<u64>> {
        self.write("compact turns", (before_ms, limit), |tx, args| Box::pin(turns::compact(tx, args.0, args.1)))
    }

    fn delete_turns(&self, before_ms: i64, limit: u32) -> BoxFuture<'_, Result<u64>> {
        self.write("delete turns", (before_ms, limit), |tx, args| Box::pin(turns::delete(tx, args.0, args.1)))
    }

    fn has_far_turns(&self, now_ms: i64, slack_ms: i64) -> BoxFuture<'_, Result<bool>> {
        self.read("find turns that are far ahead", (now_ms, slack_ms), |tx, args| Box::pin(turns::has_far(tx, args.0, args.1)))
    }

    fn correct_turns(&self, now_ms: i64, slack_ms: i64) -> BoxFuture<'_, Result<u64>> {
        self.write("correct turns that are far ahead", (now_ms, slack_ms), |tx, args| Box::pin(turns::correct(tx, args.0, args.1)))
    }
}
