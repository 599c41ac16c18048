//! The traits of a store for [`ModelStore`]. Most operations are those of the SQLite store; the
//! others add what several workers need.
use std::collections::btree_map::Entry;
use std::sync::atomic::Ordering;

use super::audit::ClaimSeen;
use super::database::{at_once, lock};
use super::simulation::Defect;
use super::store::ModelStore;
use crate::error::Result;
use crate::future::BoxFuture;
use crate::store::{
    AcceptResult, AcceptTurnResult, AdminStore, Admission, AgentHold, AgentId, AgentRow, AgentStore, BranchResult, ChatStore, Claim,
    ClaimResult, ClusterStore, CommandResult, DeleteResult, Deletion, End, FarSchedules, FiberCopy, FiberCount, FiberEdit, FiberQuery,
    FiberRef, FiberRow, FiberState, FiberStore, FiberTombstone, IncidentRow, InteractionCursor, InteractionQuery, InteractionRow,
    KeepAliveRow, LayoutRow, LoadedFiber, MessageRow, MessageUpdate, NewFiber, NewMessage, NewScheduleRow, NewSnapshot, NewTurnRow,
    OpOutcome, OpRecord, OpRow, OpStore, PendingMessage, QueueRow, ReadySender, ResolveOpResult, ResolvedOp, Restart, RestartResult,
    RetryRow, RunResult, Runnable, ScheduleRow, SendResult, Seq, StopRow, StoredClaim, StreamAppend, StreamBatch, StreamStore, Suspension,
    TopicPage, TopicRow, TurnFilter, TurnRequest, TurnRow, TurnSeq, TurnSettlement, TurnSettler, TurnWrite, UnfinishedGroup, UnreadSender,
    UpdateRefused, Wait, WaitResult, WorkerId,
};

/// Most schedules of a test.
const SCHEDULES: u32 = 100_000;

/// Implements reads by those of the SQLite store.
macro_rules! reads {
    ($trait:ident: $(fn $name:ident(&self $(, $arg:ident: $of:ty)*) -> $gives:ty;)*) => {
        $(
            fn $name(&self $(, $arg: $of)*) -> BoxFuture<'_, Result<$gives>> {
                Box::pin(self.read(stringify!($name), move || at_once($trait::$name(&self.sim().database.sqlite $(, $arg)*))))
            }
        )*
    };
}

/// Implements writes without a claim.
macro_rules! writes {
    ($trait:ident: $(fn $name:ident(&self $(, $arg:ident: $of:ty)*) -> $gives:ty;)*) => {
        $(
            fn $name(&self $(, $arg: $of)*) -> BoxFuture<'_, Result<$gives>> {
                Box::pin(self.write(stringify!($name), move || at_once($trait::$name(&self.sim().database.sqlite $(, $arg)*))))
            }
        )*
    };
}

/// Implements writes under a claim.
macro_rules! writes_under {
    ($trait:ident: $(fn $name:ident(&self, claim $(, $arg:ident: $of:ty)*) -> $gives:ty;)*) => {
        $(
            fn $name(&self, claim: Claim $(, $arg: $of)*) -> BoxFuture<'_, Result<$gives>> {
                Box::pin(self.write_under(stringify!($name), claim, move |claim| {
                    at_once($trait::$name(&self.sim().database.sqlite, claim $(, $arg)*))
                }))
            }
        )*
    };
}

impl FiberStore for ModelStore {
    fn on_ready(&self, ready: ReadySender) {
        // A store serves one runtime.
        let _ = self.0.ready.set(ready);
    }

    fn on_unread(&self, unread: UnreadSender) {
        // A store serves one runtime.
        let _ = self.0.unread.set(unread);
    }

    fn cluster(&self) -> Option<&dyn ClusterStore> {
        (!self.sim().is_single()).then_some(self)
    }

    fn join(&self, now_ms: i64) -> BoxFuture<'_, Result<WorkerId>> {
        let sqlite = &self.sim().database.sqlite;
        let join = move || if self.sim().is_single() { at_once(sqlite.join(now_ms)) } else { self.begin(now_ms) };
        Box::pin(self.write("join", join))
    }

    fn take_over(&self, by: WorkerId, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write("take_over", move || {
            // The living look for the dead by themselves.
            if self.sim().is_single() { at_once(self.sim().database.sqlite.take_over(by, now_ms)) } else { Ok(()) }
        }))
    }

    fn accept(&self, fiber: NewFiber) -> BoxFuture<'_, Result<AcceptResult>> {
        Box::pin(self.write("accept", move || {
            let by = fiber.worker;
            let accepted = at_once(self.sim().database.sqlite.accept(fiber))?;
            if let (AcceptResult::Created(claim), Some(by)) = (&accepted, by) {
                self.granted(*claim, by, "accepts and claims");
            }
            Ok(accepted)
        }))
    }

    fn unfinished(&self, after: Seq, limit: u32) -> BoxFuture<'_, Result<Vec<Runnable>>> {
        Box::pin(self.read("unfinished", move || {
            let database = &self.sim().database;
            let mut fibers = at_once(database.sqlite.unfinished(after, limit))?;
            if !self.sim().is_single() {
                let this = self.worker();
                let is_others = |fiber: &Runnable| {
                    let by = at_once(database.sqlite.claim_of(fiber.seq)).ok().flatten().and_then(|stored| stored.worker);
                    by.is_some_and(|by| by != this && database.tables().workers.contains_key(&by))
                };
                fibers.retain(|fiber| fiber.state != FiberState::Running || !is_others(fiber));
                lock(&self.sim().audit).read_ready(this, &fibers);
            }
            Ok(fibers)
        }))
    }

    fn ready(&self, after: Seq, limit: u32) -> BoxFuture<'_, Result<Vec<Runnable>>> {
        Box::pin(self.read("ready", move || {
            let (database, version) = (&self.sim().database, self.sim().version());
            if !self.sim().is_single() && lock(&self.0.looks).nothing_ready == version {
                return Ok(Vec::new());
            }
            let mut fibers = at_once(database.sqlite.ready(after, limit))?;
            if self.sim().is_single() {
                return Ok(fibers);
            }
            lock(&self.sim().audit).read_ready(self.worker(), &fibers);
            if self.sim().defect == Some(Defect::LoadBeforeClaim) {
                self.load_early(&fibers)?;
            }
            if fibers.is_empty() && after == Seq::MIN && !database.has_interrupted()? {
                lock(&self.0.looks).nothing_ready = version;
                return Ok(fibers);
            }
            let (this, now_ms) = (self.worker(), database.now_ms());
            fibers.retain(|fiber| {
                let number = database.standing(fiber.seq).ok().flatten().map_or(0, |(_, number, ..)| number);
                let tables = database.tables();
                // The hook of an agent decides where the agent is.
                let of_agent = fiber.agent.as_ref().filter(|_| !fiber.name.starts_with("forever."));
                let is_elsewhere =
                    of_agent.is_some_and(|agent| tables.is_elsewhere(agent, this)) && tables.interrupted.contains(&fiber.seq);
                !is_elsewhere && !tables.is_left_to_others(fiber.seq, number, this, now_ms)
            });
            let abandoned = database.abandoned(after)?;
            let unfinished = if database.has_interrupted()? { at_once(database.sqlite.unfinished(after, u32::MAX))? } else { Vec::new() };
            let tables = database.tables();
            let others = unfinished.into_iter().filter(|fiber| fiber.state == FiberState::Interrupted);
            fibers.extend(others.filter(|fiber| abandoned.contains(&fiber.seq) || tables.is_hook_to_be_called(fiber, this)));
            fibers.sort_by_key(|fiber| fiber.seq);
            fibers.truncate(limit as usize);
            Ok(fibers)
        }))
    }

    fn load(&self, seq: Seq) -> BoxFuture<'_, Result<LoadedFiber>> {
        Box::pin(self.read("load", move || {
            let database = &self.sim().database;
            let mut loaded = at_once(database.sqlite.load(seq))?;
            if self.sim().is_single() {
                return Ok(loaded);
            }
            loaded.interrupted |= database.tables().interrupted.contains(&seq);
            Ok(loaded)
        }))
    }

    fn claim(&self, seen: Claim, worker: WorkerId, now_ms: i64) -> BoxFuture<'_, Result<ClaimResult>> {
        Box::pin(self.write("claim", move || {
            let database = &self.sim().database;
            let was_ready = database.standing(seen.fiber)?.is_some_and(|(state, ..)| state == "pending");
            let early = lock(&self.0.loaded_early).remove(&seen.fiber);
            // The defect takes the fiber as it stands, and runs it from what was loaded before.
            let epoch = early.is_some().then(|| database.standing(seen.fiber)).transpose()?.flatten().map(|(_, _, epoch, _)| epoch);
            let seen = Claim { epoch: epoch.unwrap_or(seen.epoch), ..seen };
            let mut result = at_once(database.sqlite.claim(seen, worker, now_ms))?;
            if self.sim().is_single() {
                return Ok(result);
            }
            let name = database.name(seen.fiber);
            if let ClaimResult::Granted(claim, loaded) = &mut result {
                match early {
                    Some(early) => **loaded = LoadedFiber { epoch: claim.epoch, ..early },
                    None => lock(&self.sim().audit).loaded(seen.fiber, worker, loaded.number, &name),
                }
                if self.sim().defect == Some(Defect::ClaimKeepsEpoch) {
                    *claim = seen;
                    database.with(|conn| conn.execute("UPDATE snapshots SET epoch = ?2 WHERE fiber = ?1", [seen.fiber, seen.epoch]))?;
                }
                database.tables().set_hook_worker(seen.fiber, None);
                loaded.interrupted |= database.tables().interrupted.remove(&seen.fiber);
                lock(&self.0.dropped).remove(&seen.fiber);
            }
            let seen_as = match &result {
                ClaimResult::Granted(..) => ClaimSeen::Granted,
                _ if was_ready => ClaimSeen::RefusedReady,
                _ => ClaimSeen::RefusedElsewhere,
            };
            lock(&self.sim().audit).claimed(seen, worker, seen_as, &name);
            if let ClaimResult::Granted(claim, _) = &result {
                self.granted(*claim, worker, "claims");
            }
            Ok(result)
        }))
    }

    fn checkpoint(&self, claim: Claim, mut snapshot: NewSnapshot) -> BoxFuture<'_, Result<Vec<Claim>>> {
        Box::pin(self.write_under("checkpoint", claim, move |claim| {
            let (number, at) = (snapshot.number, snapshot.at);
            if self.sim().defect == Some(Defect::CheckpointLost) && snapshot.children.is_empty() {
                let mut dropped = lock(&self.0.dropped);
                let before = dropped.entry(claim.fiber).or_default();
                if self.sim().below(4) == 0 {
                    *before += 1;
                    self.told(claim.fiber, format_args!("stores checkpoint {number}, `{at}`, of"));
                    lock(&self.sim().audit).acknowledged(claim.fiber, self.worker(), number);
                    return Ok(Vec::new());
                }
                snapshot.number -= *before;
            }
            let children = at_once(self.sim().database.sqlite.checkpoint(claim, snapshot))?;
            if !self.sim().is_single() {
                self.told(claim.fiber, format_args!("stores checkpoint {number}, `{at}`, of"));
                lock(&self.sim().audit).acknowledged(claim.fiber, self.worker(), number);
                for child in &children {
                    self.granted(*child, self.worker(), "accepts and claims");
                }
            }
            Ok(children)
        }))
    }

    fn wait(&self, claim: Claim, wait: Wait, now_ms: i64) -> BoxFuture<'_, Result<WaitResult>> {
        Box::pin(self.write_under("wait", claim, move |claim| {
            let result = at_once(self.sim().database.sqlite.wait(claim, wait, now_ms))?;
            if result == WaitResult::Waiting {
                self.told(claim.fiber, "stores the wait of");
            }
            Ok(result)
        }))
    }

    fn take_due(&self, now_ms: i64, limit: u32) -> BoxFuture<'_, Result<Vec<Runnable>>> {
        Box::pin(self.write("take_due", move || {
            let due = at_once(self.sim().database.sqlite.take_due(now_ms, limit))?;
            for fiber in &due {
                self.told(fiber.seq, "wakes, because it is due,");
            }
            Ok(due)
        }))
    }

    fn end(
        &self,
        claim: Claim,
        end: End,
        outcomes: Vec<OpOutcome>,
        appended: Vec<StreamAppend>,
        now_ms: i64,
    ) -> BoxFuture<'_, Result<End>> {
        Box::pin(self.write_under("end", claim, move |claim| {
            let end = at_once(self.sim().database.sqlite.end(claim, end, outcomes, appended, now_ms))?;
            let how = match &end {
                End::Completed(_) => "completes".to_owned(),
                End::Failed(why) => format!("stores the failure ({why}) of"),
                End::Cancelled(_) => "stores the cancel of".to_owned(),
            };
            self.told(claim.fiber, how);
            Ok(end)
        }))
    }

    fn suspend(&self, claim: Claim, suspension: Suspension, now_ms: i64) -> BoxFuture<'_, Result<Option<End>>> {
        Box::pin(self.write_under("suspend", claim, move |claim| {
            let what = match &suspension {
                Suspension::Interrupted(why) | Suspension::HookFailed { reason: why, .. } => format!("interrupts ({why})"),
                Suspension::Parked(why) => format!("parks ({why})"),
            };
            let hook_worker = if let Suspension::HookFailed { worker, .. } = suspension { Some(worker) } else { None };
            let database = &self.sim().database;
            let end = at_once(database.sqlite.suspend(claim, suspension, now_ms))?;
            database.tables().set_hook_worker(claim.fiber, hook_worker);
            self.told(claim.fiber, what);
            Ok(end)
        }))
    }

    fn close(&self, worker: WorkerId, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            if self.sim().is_single() {
                return at_once(self.sim().database.sqlite.close(worker, now_ms));
            }
            let left = self.write("close", || self.leave()).await;
            self.gone();
            left
        })
    }

    fn abandon(&self) {
        if self.sim().is_single() {
            self.sim().database.sqlite.abandon();
        } else {
            self.gone();
        }
    }

    reads! { FiberStore:
        fn claim_of(&self, seq: Seq) -> Option<StoredClaim>;
        fn unfinished_groups(&self) -> Vec<UnfinishedGroup>;
        fn unfinished_of(&self, group: UnfinishedGroup, after: Seq, limit: u32) -> Vec<Seq>;
        fn next_due(&self) -> Option<i64>;
        fn topic(&self, seq: Seq, topic: String, after: i64, limit: u32) -> TopicPage;
    }

    writes! { FiberStore:
        fn wake(&self, fibers: Vec<Seq>, now_ms: i64) -> ();
        fn send(&self, message: NewMessage) -> CommandResult<SendResult>;
    }

    writes_under! { FiberStore:
        fn stash(&self, claim, data: String, now_ms: i64) -> ();
        fn save_branch(&self, claim, number: u64, result: BranchResult, appended: Vec<StreamAppend>, now_ms: i64) -> ();
        fn restart_claimed(&self, claim, now_ms: i64) -> RestartResult;
    }
}

impl ModelStore {
    /// Loads fibers that are ready, long before they are claimed: a defect.
    fn load_early(&self, fibers: &[Runnable]) -> Result<()> {
        for fiber in fibers {
            if let Entry::Vacant(place) = lock(&self.0.loaded_early).entry(fiber.seq) {
                let loaded = at_once(self.sim().database.sqlite.load(fiber.seq))?;
                lock(&self.sim().audit).loaded(fiber.seq, self.worker(), loaded.number, &self.sim().database.name(fiber.seq));
                place.insert(loaded);
            }
        }
        Ok(())
    }

    /// A claim was granted.
    fn granted(&self, claim: Claim, worker: WorkerId, how: &str) {
        let sim = self.sim();
        if sim.is_single() {
            return;
        }
        let name = sim.database.name(claim.fiber);
        sim.tell(self, format_args!("{how} {name} at epoch {}", claim.epoch));
        lock(&sim.audit).granted(claim, worker, &sim.database.id(claim.fiber), &name);
    }

    /// Adds a line about a fiber to the trace.
    fn told(&self, fiber: Seq, what: impl std::fmt::Display) {
        if !self.sim().is_single() {
            self.sim().tell(self, format_args!("{what} {}", self.sim().database.name(fiber)));
        }
    }

    /// A chat has changed.
    fn chat_changed(&self) {
        self.sim().database.tables().chat_version += 1;
    }
}

impl AdminStore for ModelStore {
    reads! { AdminStore:
        fn pending_messages(&self, id: String, after: i64, limit: u32) -> Vec<PendingMessage>;
        fn topics(&self, id: String) -> Vec<TopicRow>;
        fn layouts(&self, hashes: Vec<String>) -> Vec<LayoutRow>;
        fn find(&self, fiber: FiberRef) -> Option<FiberRow>;
        fn list(&self, query: FiberQuery, after: Seq, limit: u32) -> Vec<FiberRow>;
        fn counts(&self, states: Vec<FiberState>) -> Vec<FiberCount>;
        fn stops(&self, name: String, state: FiberState, limit: u32) -> Vec<StopRow>;
        fn retries(&self, looked_at: u32) -> Vec<RetryRow>;
        fn queues(&self, looked_at: u32, least: u32, limit: u32) -> Vec<QueueRow>;
        fn agents(&self, after: Option<AgentId>, limit: u32) -> Vec<AgentRow>;
        fn all_schedules(&self, after: Option<String>, limit: u32) -> Vec<ScheduleRow>;
        fn tombstone(&self, fiber: FiberRef) -> Option<FiberTombstone>;
    }

    writes! { AdminStore:
        fn resolve(&self, id: String, end: End, now_ms: i64) -> CommandResult<(FiberRow, End)>;
        fn cancel(&self, id: String, reason: String, now_ms: i64) -> CommandResult<Vec<Runnable>>;
        fn restart(&self, id: String, how: Restart, now_ms: i64) -> CommandResult<RestartResult>;
        fn discard_message(&self, id: String, message: i64) -> CommandResult<bool>;
        fn edit(&self, edit: FiberEdit) -> CommandResult<bool>;
        fn import(&self, copy: FiberCopy) -> AcceptResult;
        fn delete(&self, deletion: Deletion) -> DeleteResult;
        fn delete_tombstones(&self, deletion: Deletion, deleted_before_ms: Option<i64>) -> u64;
    }
}

impl StreamStore for ModelStore {
    reads! { StreamStore:
        fn stream_names(&self, fiber: Seq) -> Vec<String>;
        fn stream(&self, fiber: Seq, name: String, from: u64, limit: u32) -> Vec<StreamBatch>;
    }

    writes_under! { StreamStore:
        fn append(&self, claim, appended: Vec<StreamAppend>, now_ms: i64) -> ();
    }
}

impl OpStore for ModelStore {
    reads! { OpStore:
        fn load_op(&self, seq: Seq, id: String) -> Option<OpRecord>;
        fn ops(&self, seq: Seq) -> Vec<OpRow>;
        fn find_op(&self, id: String) -> Option<(Seq, OpRecord)>;
    }

    writes! { OpStore:
        fn resolve_op(&self, seq: Seq, resolution: ResolvedOp, now_ms: i64) -> CommandResult<ResolveOpResult>;
    }

    writes_under! { OpStore:
        fn save_op(&self, claim, record: OpRecord, now_ms: i64) -> ();
        fn append_op_log(&self, claim, record: OpRecord, items: Vec<String>, now_ms: i64) -> ();
    }
}

impl AgentStore for ModelStore {
    fn save_state(&self, agent: AgentId, state: String, hold: Option<AgentHold>, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write("save_state", move || {
            if let Some(hold) = hold.filter(|hold| !self.sim().database.tables().is_in_force(&agent, *hold)) {
                self.sim().tell(self, format_args!("is fenced: it does not hold agent `{agent}` any more"));
                return Err(hold.lost(&agent));
            }
            at_once(self.sim().database.sqlite.save_state(agent.clone(), state, None, now_ms))?;
            if !self.sim().is_single() {
                self.sim().tell(self, format_args!("stores the state of agent `{agent}`"));
            }
            *self.sim().database.tables().agent_versions.entry(agent).or_default() += 1;
            Ok(())
        }))
    }

    fn keep_awake(&self, agent: AgentId, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write("keep_awake", move || {
            at_once(self.sim().database.sqlite.keep_awake(agent.clone(), now_ms))?;
            self.sim().database.tables().awake.insert(agent, self.worker());
            Ok(())
        }))
    }

    fn end_keep_alive(&self, agent: AgentId) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write("end_keep_alive", move || {
            at_once(self.sim().database.sqlite.end_keep_alive(agent.clone()))?;
            self.sim().database.tables().awake.remove(&agent);
            Ok(())
        }))
    }

    fn count_wake_attempt(&self, agent: AgentId) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write("count_wake_attempt", move || {
            at_once(self.sim().database.sqlite.count_wake_attempt(agent.clone()))?;
            self.sim().database.tables().awake.insert(agent, self.worker());
            Ok(())
        }))
    }

    fn awake_agents(&self) -> BoxFuture<'_, Result<Vec<KeepAliveRow>>> {
        Box::pin(self.read("awake_agents", move || {
            let database = &self.sim().database;
            let mut agents = at_once(database.sqlite.awake_agents())?;
            let (this, now_ms, tables) = (self.worker(), database.now_ms(), database.tables());
            agents.retain(|row| tables.awake.get(&row.agent).is_none_or(|by| *by == this || !tables.is_alive(*by, now_ms)));
            Ok(agents)
        }))
    }

    fn recover_schedules(&self, strikes: u32) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write("recover_schedules", move || {
            self.0.strikes.store(strikes, Ordering::Relaxed);
            self.sim().database.recover_schedules(strikes, self.worker())
        }))
    }

    fn claim_schedules(&self, classes: Vec<String>, now_ms: i64, limit: u32) -> BoxFuture<'_, Result<Vec<ScheduleRow>>> {
        Box::pin(self.write("claim_schedules", move || {
            let database = &self.sim().database;
            let mut claimed = at_once(database.sqlite.claim_schedules(classes, now_ms, limit))?;
            if self.sim().is_single() {
                return Ok(claimed);
            }
            // Where the agent is in memory, its schedules run.
            let is_elsewhere = |row: &ScheduleRow| database.tables().is_elsewhere(&row.agent, self.worker());
            let (others, kept): (Vec<_>, Vec<_>) = claimed.into_iter().partition(is_elsewhere);
            claimed = kept;
            for row in others {
                let sql = "UPDATE schedules SET running_ms = NULL, deaths = max(deaths - 1, 0) WHERE id = ?1";
                database.with(|conn| conn.execute(sql, [row.id]))?;
            }
            for row in &claimed {
                self.sim().tell(self, format_args!("begins schedule `{}` of agent `{}`", row.name, row.agent));
                database.tables().runs.insert(row.id.clone(), self.worker());
            }
            Ok(claimed)
        }))
    }

    fn end_run(&self, run: ScheduleRow, result: RunResult) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write("end_run", move || {
            let database = &self.sim().database;
            if self.sim().is_single() {
                return at_once(database.sqlite.end_run(run, result));
            }
            // A run that was taken over is another worker's to end.
            let is_ours = database.tables().runs.get(&run.id) == Some(&self.worker());
            let there = at_once(database.sqlite.schedules(run.agent.clone()))?;
            let runs = there.iter().any(|there| there.id == run.id && there.running_ms == run.running_ms);
            if is_ours && runs {
                self.sim().tell(self, format_args!("ends schedule `{}` of agent `{}`", run.name, run.agent));
                database.tables().runs.remove(&run.id);
                return at_once(database.sqlite.end_run(run, result));
            }
            self.sim().tell(self, format_args!("is fenced: its run of schedule `{}` is another worker's", run.name));
            Ok(())
        }))
    }

    fn next_schedule(&self, classes: Vec<String>) -> BoxFuture<'_, Result<Option<i64>>> {
        Box::pin(self.read("next_schedule", move || {
            let database = &self.sim().database;
            if self.sim().is_single() {
                return at_once(database.sqlite.next_schedule(classes));
            }
            let all = at_once(database.sqlite.all_schedules(None, SCHEDULES))?;
            let suspect_runs = all.iter().any(|row| row.running_ms.is_some() && row.deaths > 1);
            let tables = database.tables();
            let waits = all.iter().filter(|row| {
                row.running_ms.is_none()
                    && classes.contains(&row.agent.class)
                    && !tables.is_elsewhere(&row.agent, self.worker())
                    && (row.deaths == 0 || !suspect_runs)
            });
            Ok(waits.filter_map(|row| row.next_ms).min())
        }))
    }

    reads! { AgentStore:
        fn load_state(&self, agent: AgentId) -> Option<String>;
        fn schedules(&self, agent: AgentId) -> Vec<ScheduleRow>;
        fn far_schedules(&self, now_ms: i64, slack_ms: i64) -> FarSchedules;
        fn unregistered_classes(&self, classes: Vec<String>) -> Vec<String>;
    }

    writes! { AgentStore:
        fn renew_keep_alives(&self, agents: Vec<AgentId>, now_ms: i64) -> ();
        fn reset_wake_attempts(&self, agent: AgentId) -> ();
        fn add_schedule(&self, new: NewScheduleRow) -> (ScheduleRow, bool);
        fn cancel_schedule(&self, agent: AgentId, id: String) -> bool;
        fn correct_schedules(&self, now_ms: i64, slack_ms: i64, crons: Vec<(i64, String)>) -> u64;
    }
}

/// Implements writes to chats, each of which raises the version of all chats.
macro_rules! chat_writes {
    ($(fn $name:ident(&self $(, $arg:ident: $of:ty)*) -> $gives:ty;)*) => {
        $(
            fn $name(&self $(, $arg: $of)*) -> BoxFuture<'_, Result<$gives>> {
                Box::pin(self.write(stringify!($name), move || {
                    self.chat_changed();
                    at_once(ChatStore::$name(&self.sim().database.sqlite $(, $arg)*))
                }))
            }
        )*
    };
}

/// Implements writes of an activation to its turn.
macro_rules! turn_writes {
    ($(fn $name:ident(&self, claim, turn $(, $arg:ident: $of:ty)*) -> $gives:ty;)*) => {
        $(
            fn $name(&self, claim: Claim, turn: TurnSeq $(, $arg: $of)*) -> BoxFuture<'_, Result<$gives>> {
                Box::pin(self.write_under(stringify!($name), claim, move |claim| {
                    self.chat_changed();
                    at_once(ChatStore::$name(&self.sim().database.sqlite, claim, turn $(, $arg)*))
                }))
            }
        )*
    };
}

impl ChatStore for ModelStore {
    fn begin_turn(&self, claim: Claim, turn: TurnSeq, now_ms: i64) -> BoxFuture<'_, Result<Admission>> {
        Box::pin(self.write_under("begin_turn", claim, move |claim| {
            self.chat_changed();
            let admission = at_once(self.sim().database.sqlite.begin_turn(claim, turn, now_ms))?;
            self.sim().database.tables().turns.insert(turn, self.worker());
            Ok(admission)
        }))
    }

    fn release_turn(&self, claim: Claim, turn: TurnSeq) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write_under("release_turn", claim, move |claim| {
            self.chat_changed();
            at_once(self.sim().database.sqlite.release_turn(claim, turn))?;
            self.sim().database.tables().turns.remove(&turn);
            Ok(())
        }))
    }

    turn_writes! {
        fn park_turn(&self, claim, turn, why: String, now_ms: i64) -> bool;
        fn store_incident(&self, claim, turn, incident: IncidentRow, now_ms: i64) -> ();
        fn append_chunks(&self, claim, turn, chunks: StreamBatch) -> TurnWrite;
        fn stash_turn(&self, claim, turn, stash: String) -> TurnWrite;
    }

    chat_writes! {
        fn accept_turn(&self, new: NewTurnRow) -> AcceptTurnResult;
        fn settle_turn(&self, by: TurnSettler, turn: TurnSeq, settlement: TurnSettlement) -> TurnWrite;
        fn cancel_turn(&self, turn: TurnSeq, reason: String, now_ms: i64) -> Option<TurnRow>;
        fn want_continuation(&self, chat: AgentId, message: String) -> ();
        fn update_message(&self, chat: AgentId, update: MessageUpdate, wanted: bool, now_ms: i64) -> Result<(), UpdateRefused>;
        fn replace_messages(&self, chat: AgentId, messages: Vec<MessageRow>, now_ms: i64) -> bool;
        fn clear_chat(&self, chat: AgentId, now_ms: i64) -> Vec<TurnRow>;
        fn compact_turns(&self, before_ms: i64, limit: u32) -> u64;
        fn delete_turns(&self, before_ms: i64, limit: u32) -> u64;
        fn correct_turns(&self, now_ms: i64, slack_ms: i64) -> u64;
    }

    reads! { ChatStore:
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
        fn orphaned_turns(&self) -> Vec<TurnSeq>;
        fn has_far_turns(&self, now_ms: i64, slack_ms: i64) -> bool;
    }
}
