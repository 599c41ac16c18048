//! The database that the workers of a modelled cluster share: an SQLite database in memory for
//! everything that one worker needs as well, and plain maps for what several workers add.
//!
//! The rules are those of the store on Postgres: a worker is alive while its lease has not run out,
//! takeovers raise the epoch of a claim, and requests to an agent are bound to the hold of their
//! begin. Each function is one transaction, because all workers run on one thread and no function
//! awaits.
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use rusqlite::{Connection, OptionalExtension, params};

use super::clock::SimulatedClock;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{AgentHold, AgentId, Claim, Epoch, RequestOutcome, Runnable, Seq, Sqlite, TurnSeq, UnreadMessages, WorkerId, WorkerRow};

/// Age at which an interrupted fiber counts as left by its worker.
pub(super) const ABANDONED_MS: i64 = 600_000;

/// How long published items are kept.
const KEEP_PUBLISHED_MS: i64 = 60_000;

/// The shared database.
pub(super) struct Database {
    pub(super) sqlite: Sqlite,
    /// A second connection, for statements that only several workers need.
    keeper: Mutex<Connection>,
    pub(super) clock: SimulatedClock,
    tables: Mutex<Tables>,
    /// Fibers that the last call has made ready.
    ready: Arc<Mutex<Vec<Runnable>>>,
    /// Fibers that the last call has ended with unread messages.
    unread: Arc<Mutex<Vec<UnreadMessages>>>,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("tables", &self.tables()).finish_non_exhaustive()
    }
}

/// What the SQLite database has no tables for.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) workers: BTreeMap<WorkerId, WorkerState>,
    holders: BTreeMap<AgentId, AgentHold>,
    holds: i64,
    pub(super) requests: BTreeMap<u64, Request>,
    requested: u64,
    pub(super) published: BTreeMap<(WorkerId, u64), Published>,
    /// The checkpoint at which a worker has declined a fiber.
    pub(super) declined: BTreeMap<(Seq, WorkerId), u64>,
    /// Workers that run schedules, with the begin of the run.
    pub(super) runs: BTreeMap<String, WorkerId>,
    /// Workers that keep agents awake.
    pub(super) awake: BTreeMap<AgentId, WorkerId>,
    /// Workers that answer turns.
    pub(super) turns: BTreeMap<TurnSeq, WorkerId>,
    /// Pending fibers that were interrupted before.
    pub(super) interrupted: BTreeSet<Seq>,
    /// Workers that call recovery hooks again, which have failed for these fibers.
    hook_workers: BTreeMap<Seq, WorkerId>,
    pub(super) agent_versions: BTreeMap<AgentId, i64>,
    pub(super) chat_version: i64,
}

#[derive(Debug, Clone)]
pub(super) struct WorkerState {
    pub(super) joined_ms: i64,
    pub(super) seen_ms: i64,
    pub(super) lease_ms: i64,
    pub(super) published: u64,
    pub(super) listens: bool,
}

/// Request to an agent.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) id: String,
    pub(super) agent: AgentId,
    pub(super) method: String,
    pub(super) args: String,
    pub(super) caller: WorkerId,
    pub(super) deadline_ms: i64,
    /// The hold under which it has begun.
    begun: Option<i64>,
    pub(super) outcome: Option<RequestOutcome>,
}

/// Published item.
#[derive(Debug)]
pub(super) struct Published {
    pub(super) agent: Option<AgentId>,
    pub(super) data: String,
    stored_ms: i64,
}

/// Claim that ends, because its worker is gone or closes.
#[derive(Debug, Clone)]
pub(super) struct EndedClaim {
    pub(super) claim: Claim,
    pub(super) worker: Option<WorkerId>,
}

impl Tables {
    pub(super) fn is_alive(&self, worker: WorkerId, now_ms: i64) -> bool {
        self.workers.get(&worker).is_some_and(|there| there.seen_ms.saturating_add(there.lease_ms) > now_ms)
    }

    /// The worker that holds an agent, if it is alive.
    pub(super) fn holder(&self, agent: &AgentId, now_ms: i64) -> Option<WorkerId> {
        self.holders.get(agent).map(|hold| hold.worker).filter(|worker| self.is_alive(*worker, now_ms))
    }

    pub(super) fn is_holder(&self, agent: &AgentId, worker: WorkerId) -> bool {
        self.holders.get(agent).is_some_and(|hold| hold.worker == worker)
    }

    /// Whether another worker holds an agent.
    pub(super) fn is_elsewhere(&self, agent: &AgentId, worker: WorkerId) -> bool {
        self.holders.get(agent).is_some_and(|hold| hold.worker != worker)
    }

    /// Stores which worker calls the recovery hook of a fiber again.
    pub(super) fn set_hook_worker(&mut self, fiber: Seq, worker: Option<WorkerId>) {
        match worker {
            Some(worker) => self.hook_workers.insert(fiber, worker),
            None => self.hook_workers.remove(&fiber),
        };
    }

    /// Whether `worker` calls the recovery hook of an interrupted fiber, which has failed in
    /// another worker.
    pub(super) fn is_hook_to_be_called(&self, fiber: &Runnable, worker: WorkerId) -> bool {
        let (Some(caller), Some(agent)) = (self.hook_workers.get(&fiber.seq), &fiber.agent) else { return false };
        *caller != worker && (!self.workers.contains_key(caller) || self.is_holder(agent, worker)) && !self.is_elsewhere(agent, worker)
    }

    /// Whether a living worker holds the agent of a request as it did when that began.
    pub(super) fn is_held(&self, request: &Request, now_ms: i64) -> bool {
        let hold = self.holders.get(&request.agent);
        hold.is_some_and(|hold| Some(hold.epoch) == request.begun && self.is_alive(hold.worker, now_ms))
    }

    /// Whether a hold has not ended.
    pub(super) fn is_in_force(&self, agent: &AgentId, hold: AgentHold) -> bool {
        self.holders.get(agent) == Some(&hold)
    }

    /// Makes a worker the holder of an agent; gives the hold, or the other worker that holds it.
    pub(super) fn hold(&mut self, agent: &AgentId, worker: WorkerId, now_ms: i64) -> Result<Result<AgentHold, WorkerId>> {
        if let Some(other) = self.holder(agent, now_ms).filter(|other| *other != worker) {
            return Ok(Err(other));
        }
        if !self.workers.contains_key(&worker) {
            return Err(Error::new(ErrorKind::Store, format!("worker {worker} is not registered at this moment")));
        }
        if let Some(held) = self.holders.get(agent).filter(|hold| hold.worker == worker) {
            return Ok(Ok(*held));
        }
        self.holds += 1;
        let hold = AgentHold { worker, epoch: self.holds };
        self.holders.insert(agent.clone(), hold);
        Ok(Ok(hold))
    }

    pub(super) fn release(&mut self, agent: &AgentId, worker: WorkerId) {
        if self.holders.get(agent).is_some_and(|hold| hold.worker == worker) {
            self.holders.remove(agent);
        }
    }

    pub(super) fn request(&mut self, request: Request) {
        self.requested += 1;
        self.requests.insert(self.requested, request);
    }

    /// Begins the oldest request to an agent that has not begun.
    pub(super) fn begin_request(&mut self, agent: &AgentId, worker: WorkerId, now_ms: i64) -> Option<&Request> {
        let hold = *self.holders.get(agent).filter(|hold| hold.worker == worker)?;
        let next = self.requests.values_mut().find(|there| there.agent == *agent && there.waits(now_ms))?;
        next.begun = Some(hold.epoch);
        Some(next)
    }

    /// Stores the outcome of a request, if its hold is still there.
    pub(super) fn end_request(&mut self, id: &str, worker: WorkerId, outcome: RequestOutcome) -> bool {
        let holders = &self.holders;
        let Some(request) = self.requests.values_mut().find(|there| there.id == id) else { return false };
        let hold = AgentHold { worker, epoch: request.begun.unwrap_or_default() };
        let ends = request.outcome.is_none() && holders.get(&request.agent) == Some(&hold);
        if ends {
            request.outcome = Some(outcome);
        }
        ends
    }

    pub(super) fn find_request(&self, id: &str) -> Option<&Request> {
        self.requests.values().find(|there| there.id == id)
    }

    /// Deletes a request; gives whether it had not begun, if it was there.
    pub(super) fn delete_request(&mut self, id: &str) -> Option<bool> {
        let number = *self.requests.iter().find(|(_, there)| there.id == id)?.0;
        self.requests.remove(&number).map(|there| there.begun.is_none())
    }

    /// Whether a worker has declined a fiber, and another one that is alive has not.
    pub(super) fn is_left_to_others(&self, fiber: Seq, number: u64, worker: WorkerId, now_ms: i64) -> bool {
        let declined = |worker| self.declined.get(&(fiber, worker)) == Some(&number);
        declined(worker) && self.workers.keys().any(|other| *other != worker && !declined(*other) && self.is_alive(*other, now_ms))
    }

    pub(super) fn publish(&mut self, worker: WorkerId, number: u64, agent: Option<AgentId>, data: String, now_ms: i64) {
        self.published.entry((worker, number)).or_insert(Published { agent, data, stored_ms: now_ms });
        if let Some(there) = self.workers.get_mut(&worker) {
            there.published = there.published.max(number);
        }
    }

    /// Deletes a worker, with what depends on its row.
    fn delete_worker(&mut self, worker: WorkerId) {
        self.workers.remove(&worker);
        self.holders.retain(|_, hold| hold.worker != worker);
        self.requests.retain(|_, request| request.caller != worker);
        self.declined.retain(|(_, by), _| *by != worker);
    }

    /// Deletes what no worker needs.
    fn clean(&mut self, now_ms: i64) {
        self.requests.retain(|_, request| request.deadline_ms > now_ms - KEEP_PUBLISHED_MS);
        self.published.retain(|_, item| item.stored_ms > now_ms - KEEP_PUBLISHED_MS);
    }
}

impl Request {
    pub(super) fn new(new: crate::store::NewAgentRequest, now_ms: i64) -> Self {
        let crate::store::NewAgentRequest { id, agent, method, args, caller, limit_ms } = new;
        let deadline_ms = now_ms.saturating_add(limit_ms);
        Request { id, agent, method, args, caller, deadline_ms, begun: None, outcome: None }
    }

    /// Whether it has not begun, and still may.
    pub(super) fn waits(&self, now_ms: i64) -> bool {
        self.begun.is_none() && self.deadline_ms > now_ms
    }

    pub(super) fn has_begun(&self) -> bool {
        self.begun.is_some()
    }
}

impl Database {
    /// An empty database.
    pub(super) fn open(clock: SimulatedClock) -> Result<Self> {
        let name = format!("forever-cluster-{}", uuid::Uuid::now_v7());
        let keeper = Connection::open(uri(&name)).map_err(failed)?;
        copy_template(&name)?;
        let sqlite = at_once(Sqlite::in_memory_on_callers_thread(name))?;
        let ready = Arc::<Mutex<Vec<Runnable>>>::default();
        let of_sender = Arc::clone(&ready);
        let sender = crate::store::ReadySender::new(move |fiber| lock(&of_sender).push(fiber));
        crate::store::FiberStore::on_ready(&sqlite, sender);
        let unread = Arc::<Mutex<Vec<UnreadMessages>>>::default();
        let of_sender = Arc::clone(&unread);
        let sender = crate::store::UnreadSender::new(move |left| lock(&of_sender).push(left));
        crate::store::FiberStore::on_unread(&sqlite, sender);
        Ok(Database { sqlite, keeper: Mutex::new(keeper), clock, tables: Mutex::default(), ready, unread })
    }

    pub(super) fn tables(&self) -> MutexGuard<'_, Tables> {
        lock(&self.tables)
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    /// Takes the fibers that the last call has made ready.
    pub(super) fn take_ready(&self) -> Vec<Runnable> {
        std::mem::take(&mut *lock(&self.ready))
    }

    /// Takes the fibers that the last call has ended with unread messages.
    pub(super) fn take_unread(&self) -> Vec<UnreadMessages> {
        std::mem::take(&mut *lock(&self.unread))
    }

    pub(super) fn with<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        work(&lock(&self.keeper)).map_err(failed)
    }

    /// Registers a worker.
    pub(super) fn join(&self, lease_ms: i64, now_ms: i64) -> Result<WorkerId> {
        let worker = self.with(|conn| {
            conn.execute("INSERT INTO workers (joined_ms) VALUES (?1)", [now_ms])?;
            Ok(conn.last_insert_rowid())
        })?;
        let state = WorkerState { joined_ms: now_ms, seen_ms: self.now_ms(), lease_ms, published: 0, listens: false };
        self.tables().workers.insert(worker, state);
        Ok(worker)
    }

    /// Renews a lease; gives whether the worker counted as dead.
    pub(super) fn renew(&self, worker: WorkerId, lease_ms: i64) -> bool {
        let now_ms = self.now_ms();
        let mut tables = self.tables();
        if let Some(there) = tables.workers.get_mut(&worker) {
            there.seen_ms = now_ms;
            return false;
        }
        tables.workers.insert(worker, WorkerState { joined_ms: now_ms, seen_ms: now_ms, lease_ms, published: 0, listens: false });
        true
    }

    /// The workers whose leases have run out.
    pub(super) fn dead(&self, by: WorkerId, lease_divided_by: i64) -> Vec<WorkerId> {
        let now_ms = self.now_ms();
        let tables = self.tables();
        let is_dead = |there: &WorkerState| there.seen_ms.saturating_add(there.lease_ms / lease_divided_by) <= now_ms;
        tables.workers.iter().filter(|(id, there)| **id != by && is_dead(there)).map(|(id, _)| *id).collect()
    }

    /// Takes over the claims of all workers without a row, after the rows of `dead` were deleted.
    pub(super) fn take_over(&self, dead: &[WorkerId], raise: bool) -> Result<Vec<EndedClaim>> {
        let mut tables = self.tables();
        for worker in dead {
            tables.delete_worker(*worker);
        }
        tables.clean(self.now_ms());
        let living: Vec<WorkerId> = tables.workers.keys().copied().collect();
        drop(tables);
        let claims = self.claims("s.worker IS NULL OR s.worker NOT IN (SELECT value FROM json_each(?1))", &json(&living))?;
        self.end_claims(&claims, raise, true, "the process died")?;
        Ok(claims)
    }

    /// Ends the claims of a worker that closes, and deletes its row.
    pub(super) fn leave(&self, worker: WorkerId) -> Result<Vec<EndedClaim>> {
        let claims = self.claims("s.worker IN (SELECT value FROM json_each(?1))", &json(&[worker]))?;
        let mut tables = self.tables();
        tables.delete_worker(worker);
        let runs: Vec<String> = taken(&mut tables.runs, worker);
        let awake: Vec<AgentId> = taken(&mut tables.awake, worker);
        let turns: Vec<TurnSeq> = taken(&mut tables.turns, worker);
        drop(tables);
        self.with(|conn| {
            for id in runs {
                conn.execute("UPDATE schedules SET running_ms = NULL, deaths = max(deaths - 1, 0) WHERE id = ?1", [id])?;
            }
            for agent in awake {
                let of = "heartbeat_ms IS NOT NULL AND class = ?1 AND name = ?2";
                conn.execute(&format!("UPDATE agents SET deaths = 0 WHERE {of}"), [agent.class, agent.name])?;
            }
            for turn in turns {
                conn.execute(
                    "UPDATE turns SET deaths = max(deaths - 1, 0) WHERE seq = ?1 AND settled_ms IS NULL AND state = 'running'
                     AND EXISTS (SELECT 1 FROM fibers WHERE seq = turns.fiber AND state <> 'parked')",
                    [turn],
                )?;
            }
            Ok(())
        })?;
        self.end_claims(&claims, true, false, "the runtime was closed")?;
        Ok(claims)
    }

    fn claims(&self, which: &str, workers: &str) -> Result<Vec<EndedClaim>> {
        let sql = format!(
            "SELECT f.seq, s.epoch, s.worker FROM fibers f JOIN snapshots s ON s.fiber = f.seq
             WHERE f.state <> 'completed' AND f.state = 'running' AND ({which}) ORDER BY f.seq"
        );
        self.with(|conn| {
            let claim =
                |row: &rusqlite::Row<'_>| Ok(EndedClaim { claim: Claim { fiber: row.get(0)?, epoch: row.get(1)? }, worker: row.get(2)? });
            conn.prepare_cached(&sql)?.query_map([workers], claim)?.collect()
        })
    }

    /// Ends claims: the fibers are ready for any worker. Closures without an agent wait for a
    /// person.
    fn end_claims(&self, claims: &[EndedClaim], raise: bool, count_death: bool, reason: &str) -> Result<()> {
        let now_ms = self.now_ms();
        for EndedClaim { claim, .. } in claims {
            let is_ready = self.with(|conn| {
                conn.execute(
                    "UPDATE snapshots SET deaths = deaths + ?2, epoch = epoch + ?3, worker = NULL WHERE fiber = ?1",
                    params![claim.fiber, count_death, raise],
                )?;
                conn.query_row(
                    "UPDATE fibers SET state = CASE WHEN kind = 'closure' AND agent IS NULL THEN 'interrupted' ELSE 'pending' END,
                            reason = ?2, changed_ms = ?3
                     WHERE seq = ?1 AND state = 'running' RETURNING state = 'pending'",
                    params![claim.fiber, reason, now_ms],
                    |row| row.get(0),
                )
                .optional()
            })?;
            if is_ready == Some(true) {
                self.tables().interrupted.insert(claim.fiber);
            }
        }
        Ok(())
    }

    /// Makes a fiber that a worker has declined ready for another one.
    pub(super) fn leave_to_others(&self, fiber: Seq, interrupted: bool) -> Result<()> {
        let now_ms = self.now_ms();
        let was_interrupted = self.with(|conn| {
            conn.execute("UPDATE snapshots SET epoch = epoch + 1, worker = NULL WHERE fiber = ?1 AND worker IS NOT NULL", [fiber])?;
            let state: String = conn.query_row("SELECT state FROM fibers WHERE seq = ?1", [fiber], |row| row.get(0))?;
            conn.execute(
                "UPDATE fibers SET state = 'pending', changed_ms = ?2,
                        reason = CASE WHEN state <> 'running' THEN reason WHEN ?3 THEN 'a worker could not resume it' END
                 WHERE seq = ?1 AND state IN ('running', 'interrupted')",
                params![fiber, now_ms, interrupted],
            )?;
            Ok(state == "interrupted" || state == "running" && interrupted)
        })?;
        if was_interrupted {
            self.tables().interrupted.insert(fiber);
        }
        Ok(())
    }

    /// State of a fiber, its checkpoint number, its epoch, and whether it was cancelled.
    pub(super) fn standing(&self, fiber: Seq) -> Result<Option<(String, u64, Epoch, bool)>> {
        self.with(|conn| {
            conn.prepare_cached(
                "SELECT f.state, s.number, s.epoch, f.cancel IS NOT NULL AND f.finished_ms IS NULL
                 FROM fibers f JOIN snapshots s ON s.fiber = f.seq WHERE f.seq = ?1",
            )?
            .query_row([fiber], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?.cast_unsigned(), row.get(2)?, row.get(3)?)))
            .optional()
        })
    }

    /// Fibers that a worker runs and that were cancelled, with the reasons.
    pub(super) fn cancelled(&self, worker: WorkerId) -> Result<Vec<(String, String)>> {
        self.with(|conn| {
            conn.prepare_cached(
                "SELECT f.id, f.cancel FROM fibers f JOIN snapshots s ON s.fiber = f.seq
                 WHERE f.cancel IS NOT NULL AND f.finished_ms IS NULL AND f.state = 'running' AND s.worker = ?1 ORDER BY f.seq",
            )?
            .query_map([worker], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect()
        })
    }

    pub(super) fn has_interrupted(&self) -> Result<bool> {
        let sql = "SELECT EXISTS (SELECT 1 FROM fibers WHERE state <> 'completed' AND state = 'interrupted')";
        self.with(|conn| conn.prepare_cached(sql)?.query_row((), |row| row.get(0)))
    }

    /// Interrupted fibers that no worker will try again by itself.
    pub(super) fn abandoned(&self, after: Seq) -> Result<BTreeSet<Seq>> {
        let before_ms = self.now_ms() - ABANDONED_MS;
        self.with(|conn| {
            conn.prepare_cached(
                "SELECT seq FROM fibers WHERE state = 'interrupted' AND kind <> 'closure' AND (agent IS NULL OR name LIKE 'forever.%')
                 AND changed_ms < ?1 AND seq > ?2",
            )?
            .query_map([before_ms, after], |row| row.get(0))?
            .collect()
        })
    }

    /// The row of a worker, for others.
    pub(super) fn worker_row(&self, id: WorkerId) -> Result<Option<WorkerRow>> {
        let Some(there) = self.tables().workers.get(&id).cloned() else { return Ok(None) };
        let running: i64 = self.with(|conn| {
            conn.query_row(
                "SELECT count(*) FROM fibers f JOIN snapshots s ON s.fiber = f.seq WHERE f.state = 'running' AND s.worker = ?1",
                [id],
                |row| row.get(0),
            )
        })?;
        Ok(Some(WorkerRow {
            id,
            process: None,
            address: None,
            joined_ms: there.joined_ms,
            silent_ms: self.now_ms() - there.seen_ms,
            lease_ms: there.lease_ms,
            shows_life: false,
            running: running.cast_unsigned(),
        }))
    }

    /// Ends the runs of schedules whose workers are gone, and those of `worker`.
    pub(super) fn recover_schedules(&self, strikes: u32, worker: WorkerId) -> Result<()> {
        let now_ms = self.now_ms();
        let tables = self.tables();
        let running: Vec<String> = self.with(|conn| {
            conn.prepare_cached("SELECT id FROM schedules WHERE running_ms IS NOT NULL")?.query_map((), |row| row.get(0))?.collect()
        })?;
        let is_left = |id: &String| tables.runs.get(id).is_none_or(|by| *by == worker || !tables.is_alive(*by, now_ms));
        let left: Vec<String> = running.into_iter().filter(is_left).collect();
        drop(tables);
        self.with(|conn| {
            for id in &left {
                conn.execute(
                    "UPDATE schedules SET next_ms = NULL, error = 'the process died ' || deaths || ' times in a row while it ran'
                     WHERE id = ?1 AND deaths >= ?2",
                    params![id, strikes],
                )?;
                conn.execute("UPDATE schedules SET running_ms = NULL WHERE id = ?1", [id])?;
            }
            Ok(())
        })?;
        self.tables().runs.retain(|id, _| !left.contains(id));
        Ok(())
    }

    /// The id of a fiber.
    pub(super) fn id(&self, fiber: Seq) -> String {
        let sql = "SELECT id FROM fibers WHERE seq = ?1";
        self.with(|conn| conn.prepare_cached(sql)?.query_row([fiber], |row| row.get(0))).unwrap_or_default()
    }

    /// The name of a fiber for people.
    pub(super) fn name(&self, fiber: Seq) -> String {
        let sql = "SELECT name || coalesce(' `' || key || '`', '') FROM fibers WHERE seq = ?1";
        let name = self.with(|conn| conn.prepare_cached(sql)?.query_row([fiber], |row| row.get::<_, String>(0)).optional());
        match name {
            Ok(Some(name)) => format!("fiber {fiber} ({name})"),
            _ => format!("fiber {fiber}"),
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        crate::store::FiberStore::abandon(&self.sqlite);
    }
}

fn uri(name: &str) -> String {
    format!("file:/{name}?vfs=memdb")
}

/// Copies an empty database with all tables into a database in memory. To make the tables takes as
/// long as a run.
fn copy_template(name: &str) -> Result<()> {
    static TEMPLATE: Mutex<Option<Connection>> = Mutex::new(None);
    let mut template = lock(&TEMPLATE);
    if template.is_none() {
        let of_template = format!("forever-template-{}", uuid::Uuid::now_v7());
        let kept = Connection::open(uri(&of_template)).map_err(failed)?;
        crate::store::FiberStore::abandon(&at_once(Sqlite::in_memory_on_callers_thread(of_template))?);
        *template = Some(kept);
    }
    let Some(kept) = &*template else { return Ok(()) };
    kept.execute("VACUUM INTO ?1", [uri(name)]).map(drop).map_err(failed)
}

/// The keys whose value is a worker, removed.
fn taken<K: Ord + Clone>(of: &mut BTreeMap<K, WorkerId>, worker: WorkerId) -> Vec<K> {
    let keys: Vec<K> = of.iter().filter(|(_, by)| **by == worker).map(|(key, _)| key.clone()).collect();
    of.retain(|_, by| *by != worker);
    keys
}

fn json(workers: &[WorkerId]) -> String {
    serde_json::to_string(workers).unwrap_or_else(|_| "[]".to_owned())
}

fn failed(error: rusqlite::Error) -> Error {
    Error::new(ErrorKind::Store, "the modelled database failed").with_source(error)
}

/// Result of a future that waits for nothing but the threads of the SQLite store. The task that
/// polls does not suspend, so simulated time stands still.
pub(super) fn at_once<F: Future>(work: F) -> F::Output {
    let mut work = pin!(work);
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(out) = work.as_mut().poll(&mut cx) {
            return out;
        }
        std::thread::yield_now();
    }
}

pub(super) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
