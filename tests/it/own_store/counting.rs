//! A store written outside of the library: it delegates to SQLite, counts calls, and lets other
//! tasks in between.
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use forever::fiber::FiberState;
use forever::store::{
    AcceptResult, AcceptTurnResult, AdminStore, Admission, AgentHold, AgentId, AgentRow, AgentStore, BoxFuture, BranchResult, ChatStore,
    Claim, ClaimResult, CommandResult, DeleteResult, Deletion, End, FarSchedules, FiberCopy, FiberCount, FiberEdit, FiberQuery, FiberRef,
    FiberRow, FiberStore, FiberTombstone, IncidentRow, InteractionCursor, InteractionQuery, InteractionRow, KeepAliveRow, LayoutRow,
    LoadedFiber, MessageRow, MessageUpdate, NewFiber, NewMessage, NewScheduleRow, NewSnapshot, NewTurnRow, OpOutcome, OpRecord, OpRow,
    OpStore, PendingMessage, QueueRow, ReadySender, ResolveOpResult, ResolvedOp, Restart, RestartResult, RetryRow, RunResult, Runnable,
    ScheduleRow, SendResult, Seq, Sqlite, StopRow, StoredClaim, StreamAppend, StreamBatch, StreamStore, Suspension, TopicPage, TopicRow,
    TurnFilter, TurnRequest, TurnRow, TurnSeq, TurnSettlement, TurnSettler, TurnWrite, UnfinishedGroup, UnreadSender, UpdateRefused, Wait,
    WaitResult, WorkerId,
};
use forever::{Error, ErrorKind, Result};
use tokio::sync::{Notify, oneshot, watch};

/// Number of calls of each operation, and what happens to the next call of one.
#[derive(Debug, Clone, Default)]
pub(super) struct Calls {
    counts: Arc<Mutex<BTreeMap<&'static str, u64>>>,
    next: Arc<Mutex<BTreeMap<&'static str, Fate>>>,
    /// Permits of the calls that are held, and of those that go on.
    held: Arc<Mutex<BTreeMap<&'static str, Arc<Gate>>>>,
    held_call: Arc<Mutex<Option<HeldCall>>>,
    /// The operation whose calls are all held back.
    shut: watch::Sender<Option<&'static str>>,
}

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is carried out, and its outcome is unknown.
    AnswerLost,
    /// It is not carried out, and its outcome is unknown.
    Lost,
    /// It is carried out when it is released.
    Held,
    /// It is carried out, and answered when it is released.
    AnswerHeld,
    /// Its outcome is unknown, and it is carried out after that, when it is released.
    Late,
}

/// Where a call is held.
#[derive(Debug, Default)]
struct Gate {
    arrived: Notify,
    opened: Notify,
}

/// One call that is to be held back.
#[derive(Debug)]
struct HeldCall {
    /// The operation with whose next call the count begins, and when that is let through.
    since: &'static str,
    begin: Option<oneshot::Receiver<()>>,
    is_counting: bool,
    /// How many calls there are before it.
    before: u64,
    reached: oneshot::Sender<&'static str>,
    go_on: oneshot::Receiver<()>,
}

/// A call that is held back until this is dropped.
pub(super) struct HeldBack {
    begin: Option<oneshot::Sender<()>>,
    reached: oneshot::Receiver<&'static str>,
    _go_on: oneshot::Sender<()>,
}

impl HeldBack {
    /// The operation that is called, as soon as it is held back. From now on calls are counted.
    pub(super) async fn reached(&mut self) -> &'static str {
        self.begin = None;
        (&mut self.reached).await.unwrap()
    }
}

impl Calls {
    fn count(&self, operation: &'static str) {
        *self.counts.lock().unwrap().entry(operation).or_default() += 1;
    }

    /// Says what happens to the next call of an operation.
    pub(super) fn next(&self, operation: &'static str, fate: Fate) {
        self.next.lock().unwrap().insert(operation, fate);
    }

    fn fate(&self, operation: &'static str) -> Option<Fate> {
        self.next.lock().unwrap().remove(operation)
    }

    fn gate(&self, operation: &'static str) -> Arc<Gate> {
        Arc::clone(self.held.lock().unwrap().entry(operation).or_default())
    }

    /// Waits until a call of an operation is held.
    pub(super) async fn holds(&self, operation: &'static str) {
        self.gate(operation).arrived.notified().await;
    }

    /// Lets the call that is held go on.
    pub(super) fn release(&self, operation: &'static str) {
        self.gate(operation).opened.notify_one();
    }

    async fn hold(&self, operation: &'static str) {
        let gate = self.gate(operation);
        gate.arrived.notify_one();
        gate.opened.notified().await;
    }

    /// Holds one call back: the one behind `before` others, counted from the next call of `since`.
    /// That call waits until [`HeldBack::reached`] is asked for. Calls that no fiber makes do not
    /// count.
    pub(super) fn hold_back(&self, since: &'static str, before: u64) -> HeldBack {
        let ((reached, was_reached), (releases, go_on), (starts, begin)) = (oneshot::channel(), oneshot::channel(), oneshot::channel());
        *self.held_call.lock().unwrap() = Some(HeldCall { since, begin: Some(begin), is_counting: false, before, reached, go_on });
        HeldBack { begin: Some(starts), reached: was_reached, _go_on: releases }
    }

    /// Holds all calls of an operation back, or none.
    pub(super) fn shut(&self, operation: Option<&'static str>) {
        self.shut.send_replace(operation);
    }

    async fn pass(&self, operation: &'static str) {
        self.shut.subscribe().wait_for(|shut| *shut != Some(operation)).await.unwrap();
        let begin = self.held_call.lock().unwrap().as_mut().filter(|hold| hold.since == operation).and_then(|hold| hold.begin.take());
        if let Some(begin) = begin {
            // Dropped is let in, or on.
            let _ = begin.await;
            if let Some(hold) = self.held_call.lock().unwrap().as_mut() {
                hold.is_counting = true;
            }
        }
        let held = {
            let mut hold = self.held_call.lock().unwrap();
            let counts = !matches!(operation, "find" | "list" | "ready" | "next_due" | "take_due");
            let Some(there) = hold.as_mut().filter(|there| there.is_counting && counts) else { return };
            match there.before.checked_sub(1) {
                Some(before) => {
                    there.before = before;
                    return;
                }
                None => hold.take(),
            }
        };
        let Some(HeldCall { reached, go_on, .. }) = held else { return };
        let _ = reached.send(operation);
        let _ = go_on.await;
    }

    pub(super) fn of(&self, operation: &str) -> u64 {
        self.counts.lock().unwrap().get(operation).copied().unwrap_or(0)
    }
}

#[derive(Debug)]
pub(super) struct Counting {
    inner: Arc<Sqlite>,
    calls: Calls,
}

impl Counting {
    pub(super) fn over(inner: Sqlite, calls: &Calls) -> Self {
        Counting { inner: Arc::new(inner), calls: calls.clone() }
    }
}

/// Implements asynchronous operations of a trait by those of `self.inner`.
macro_rules! delegated {
    ($trait:ident: $(fn $name:ident(&self $(, $arg:ident: $of:ty)*) -> $gives:ty;)*) => {
        $(
            fn $name(&self $(, $arg: $of)*) -> BoxFuture<'_, Result<$gives>> {
                self.calls.count(stringify!($name));
                Box::pin(async move {
                    tokio::task::yield_now().await;
                    self.calls.pass(stringify!($name)).await;
                    self.calls.count(concat!(stringify!($name), " let through"));
                    let fate = self.calls.fate(stringify!($name));
                    match fate {
                        Some(Fate::Held) => self.calls.hold(stringify!($name)).await,
                        Some(Fate::Lost) => return Err(Error::new(ErrorKind::OutcomeUnknown, "the call is lost")),
                        Some(Fate::Late) => {
                            let (inner, calls) = (Arc::clone(&self.inner), self.calls.clone());
                            tokio::spawn(async move {
                                calls.hold(stringify!($name)).await;
                                let carried_out = $trait::$name(&*inner $(, $arg)*).await.map(drop);
                                calls.count(concat!(stringify!($name), " carried out late"));
                                carried_out
                            });
                            return Err(Error::new(ErrorKind::OutcomeUnknown, "the call is late"));
                        }
                        _ => {}
                    }
                    let answer = $trait::$name(&*self.inner $(, $arg)*).await;
                    match fate {
                        Some(Fate::AnswerHeld) => self.calls.hold(stringify!($name)).await,
                        Some(Fate::AnswerLost) => return Err(Error::new(ErrorKind::OutcomeUnknown, "the answer is lost")),
                        _ => {}
                    }
                    answer
                })
            }
        )*
    };
}

impl FiberStore for Counting {
    fn on_ready(&self, ready: ReadySender) {
        let calls = self.calls.clone();
        self.inner.on_ready(ReadySender::new(move |fiber| {
            calls.count("ready fiber");
            ready.send(fiber);
        }));
    }

    fn on_unread(&self, unread: UnreadSender) {
        self.inner.on_unread(unread);
    }

    fn abandon(&self) {
        self.calls.count("abandon");
        self.inner.abandon();
    }

    delegated! { FiberStore:
        fn join(&self, now_ms: i64) -> WorkerId;
        fn take_over(&self, by: WorkerId, now_ms: i64) -> ();
        fn accept(&self, fiber: NewFiber) -> AcceptResult;
        fn unfinished(&self, after: Seq, limit: u32) -> Vec<Runnable>;
        fn ready(&self, after: Seq, limit: u32) -> Vec<Runnable>;
        fn load(&self, seq: Seq) -> LoadedFiber;
        fn claim_of(&self, seq: Seq) -> Option<StoredClaim>;
        fn claim(&self, seen: Claim, worker: WorkerId, now_ms: i64) -> ClaimResult;
        fn checkpoint(&self, claim: Claim, snapshot: NewSnapshot) -> Vec<Claim>;
        fn stash(&self, claim: Claim, data: String, now_ms: i64) -> ();
        fn save_branch(&self, claim: Claim, number: u64, result: BranchResult, appended: Vec<StreamAppend>, now_ms: i64) -> ();
        fn wait(&self, claim: Claim, wait: Wait, now_ms: i64) -> WaitResult;
        fn unfinished_groups(&self) -> Vec<UnfinishedGroup>;
        fn unfinished_of(&self, group: UnfinishedGroup, after: Seq, limit: u32) -> Vec<Seq>;
        fn wake(&self, fibers: Vec<Seq>, now_ms: i64) -> ();
        fn take_due(&self, now_ms: i64, limit: u32) -> Vec<Runnable>;
        fn next_due(&self) -> Option<i64>;
        fn send(&self, message: NewMessage) -> CommandResult<SendResult>;
        fn topic(&self, seq: Seq, topic: String, after: i64, limit: u32) -> TopicPage;
        fn end(&self, claim: Claim, end: End, outcomes: Vec<OpOutcome>, appended: Vec<StreamAppend>, now_ms: i64) -> End;
        fn suspend(&self, claim: Claim, suspension: Suspension, now_ms: i64) -> Option<End>;
        fn restart_claimed(&self, claim: Claim, now_ms: i64) -> RestartResult;
        fn close(&self, worker: WorkerId, now_ms: i64) -> ();
    }
}

impl AdminStore for Counting {
    delegated! { AdminStore:
        fn resolve(&self, id: String, end: End, now_ms: i64) -> CommandResult<(FiberRow, End)>;
        fn cancel(&self, id: String, reason: String, now_ms: i64) -> CommandResult<Vec<Runnable>>;
        fn restart(&self, id: String, how: Restart, now_ms: i64) -> CommandResult<RestartResult>;
        fn pending_messages(&self, id: String, after: i64, limit: u32) -> Vec<PendingMessage>;
        fn topics(&self, id: String) -> Vec<TopicRow>;
        fn discard_message(&self, id: String, message: i64) -> CommandResult<bool>;
        fn edit(&self, edit: FiberEdit) -> CommandResult<bool>;
        fn import(&self, copy: FiberCopy) -> AcceptResult;
        fn layouts(&self, hashes: Vec<String>) -> Vec<LayoutRow>;
        fn find(&self, fiber: FiberRef) -> Option<FiberRow>;
        fn list(&self, query: FiberQuery, after: Seq, limit: u32) -> Vec<FiberRow>;
        fn counts(&self, states: Vec<FiberState>) -> Vec<FiberCount>;
        fn stops(&self, name: String, state: FiberState, limit: u32) -> Vec<StopRow>;
        fn retries(&self, looked_at: u32) -> Vec<RetryRow>;
        fn queues(&self, looked_at: u32, least: u32, limit: u32) -> Vec<QueueRow>;
        fn agents(&self, after: Option<AgentId>, limit: u32) -> Vec<AgentRow>;
        fn all_schedules(&self, after: Option<String>, limit: u32) -> Vec<ScheduleRow>;
        fn delete(&self, deletion: Deletion) -> DeleteResult;
        fn tombstone(&self, fiber: FiberRef) -> Option<FiberTombstone>;
        fn delete_tombstones(&self, deletion: Deletion, deleted_before_ms: Option<i64>) -> u64;
    }
}

impl StreamStore for Counting {
    delegated! { StreamStore:
        fn append(&self, claim: Claim, appended: Vec<StreamAppend>, now_ms: i64) -> ();
        fn stream_names(&self, fiber: Seq) -> Vec<String>;
        fn stream(&self, fiber: Seq, name: String, from: u64, limit: u32) -> Vec<StreamBatch>;
    }
}

impl OpStore for Counting {
    delegated! { OpStore:
        fn save_op(&self, claim: Claim, record: OpRecord, now_ms: i64) -> ();
        fn load_op(&self, seq: Seq, id: String) -> Option<OpRecord>;
        fn append_op_log(&self, claim: Claim, record: OpRecord, items: Vec<String>, now_ms: i64) -> ();
        fn ops(&self, seq: Seq) -> Vec<OpRow>;
        fn find_op(&self, id: String) -> Option<(Seq, OpRecord)>;
        fn resolve_op(&self, seq: Seq, resolution: ResolvedOp, now_ms: i64) -> CommandResult<ResolveOpResult>;
    }
}

impl AgentStore for Counting {
    delegated! { AgentStore:
        fn load_state(&self, agent: AgentId) -> Option<String>;
        fn save_state(&self, agent: AgentId, state: String, hold: Option<AgentHold>, now_ms: i64) -> ();
        fn keep_awake(&self, agent: AgentId, now_ms: i64) -> ();
        fn renew_keep_alives(&self, agents: Vec<AgentId>, now_ms: i64) -> ();
        fn end_keep_alive(&self, agent: AgentId) -> ();
        fn awake_agents(&self) -> Vec<KeepAliveRow>;
        fn count_wake_attempt(&self, agent: AgentId) -> ();
        fn reset_wake_attempts(&self, agent: AgentId) -> ();
        fn add_schedule(&self, new: NewScheduleRow) -> (ScheduleRow, bool);
        fn schedules(&self, agent: AgentId) -> Vec<ScheduleRow>;
        fn cancel_schedule(&self, agent: AgentId, id: String) -> bool;
        fn recover_schedules(&self, strikes: u32) -> ();
        fn claim_schedules(&self, classes: Vec<String>, now_ms: i64, limit: u32) -> Vec<ScheduleRow>;
        fn end_run(&self, run: ScheduleRow, result: RunResult) -> ();
        fn far_schedules(&self, now_ms: i64, slack_ms: i64) -> FarSchedules;
        fn correct_schedules(&self, now_ms: i64, slack_ms: i64, crons: Vec<(i64, String)>) -> u64;
        fn next_schedule(&self, classes: Vec<String>) -> Option<i64>;
        fn unregistered_classes(&self, classes: Vec<String>) -> Vec<String>;
    }
}

impl ChatStore for Counting {
    delegated! { ChatStore:
        fn accept_turn(&self, new: NewTurnRow) -> AcceptTurnResult;
        fn begin_turn(&self, claim: Claim, turn: TurnSeq, now_ms: i64) -> Admission;
        fn release_turn(&self, claim: Claim, turn: TurnSeq) -> ();
        fn park_turn(&self, claim: Claim, turn: TurnSeq, why: String, now_ms: i64) -> bool;
        fn store_incident(&self, claim: Claim, turn: TurnSeq, incident: IncidentRow, now_ms: i64) -> ();
        fn append_chunks(&self, claim: Claim, turn: TurnSeq, chunks: StreamBatch) -> TurnWrite;
        fn stash_turn(&self, claim: Claim, turn: TurnSeq, stash: String) -> TurnWrite;
        fn settle_turn(&self, by: TurnSettler, turn: TurnSeq, settlement: TurnSettlement) -> TurnWrite;
        fn cancel_turn(&self, turn: TurnSeq, reason: String, now_ms: i64) -> Option<TurnRow>;
        fn turn(&self, chat: AgentId, id: String) -> Option<TurnRow>;
        fn turn_by_key(&self, chat: AgentId, key: String) -> Option<TurnRow>;
        fn turn_by_seq(&self, turn: TurnSeq) -> Option<TurnRow>;
        fn turns(&self, chat: AgentId, filter: TurnFilter, after: TurnSeq, limit: u32) -> Vec<TurnRow>;
        fn all_turns(&self, before: Option<TurnSeq>, limit: u32) -> Vec<TurnRow>;
        fn failed_turns(&self, before: Option<TurnSeq>, limit: u32) -> Vec<TurnRow>;
        fn turn_fiber(&self, turn: TurnSeq) -> Option<FiberState>;
        fn turn_request(&self, turn: TurnSeq) -> TurnRequest;
        fn chunks(&self, turn: TurnSeq, from: u64, limit: u32) -> Vec<StreamBatch>;
        fn chat_messages(&self, chat: AgentId, up_to: i64) -> Vec<MessageRow>;
        fn pending_interactions(&self, query: InteractionQuery, after: Option<InteractionCursor>, limit: u32) -> Vec<InteractionRow>;
        fn continuation_target(&self, chat: AgentId) -> Option<String>;
        fn want_continuation(&self, chat: AgentId, message: String) -> ();
        fn update_message(&self, chat: AgentId, update: MessageUpdate, wanted: bool, now_ms: i64) -> Result<(), UpdateRefused>;
        fn replace_messages(&self, chat: AgentId, messages: Vec<MessageRow>, now_ms: i64) -> bool;
        fn clear_chat(&self, chat: AgentId, now_ms: i64) -> Vec<TurnRow>;
        fn orphaned_turns(&self) -> Vec<TurnSeq>;
        fn compact_turns(&self, before_ms: i64, limit: u32) -> u64;
        fn delete_turns(&self, before_ms: i64, limit: u32) -> u64;
        fn has_far_turns(&self, now_ms: i64, slack_ms: i64) -> bool;
        fn correct_turns(&self, now_ms: i64, slack_ms: i64) -> u64;
    }
}
