//! What workers do to each other: [`ClusterStore`] for [`ModelStore`].
use std::sync::atomic::Ordering;

use super::database::{Request, at_once, lock};
use super::simulation::Defect;
use super::store::ModelStore;
use crate::error::{Error, ErrorKind, Result};
use crate::future::BoxFuture;
use crate::store::{
    AdminStore, AgentId, AgentRequest, Changes, ChatStore, Claim, ClusterStore, DeclineResult, End, FiberRef, FiberState, FiberStore,
    HoldResult, Lease, NewAgentRequest, Notification, Publication, PublishedItem, PublishedPage, PublishedQuery, RequestOutcome,
    RequestProgress, Suspension, TurnProgress, Watch, WorkerId, WorkerRow,
};

impl ClusterStore for ModelStore {
    fn changes(&self, mut watch: Watch) -> BoxFuture<'_, Result<Changes>> {
        // They come from hash maps.
        watch.fibers.sort_unstable();
        watch.receivers.sort_unstable();
        watch.turns.sort_unstable();
        watch.chats.sort_unstable();
        watch.agents.sort_unstable();
        watch.requests.sort_unstable();
        Box::pin(self.read("changes", move || self.changes_of(&watch)))
    }

    fn lease(&self) -> Option<&dyn Lease> {
        (self.sim().defect != Some(Defect::NoLease)).then_some(&self.0.lease)
    }

    fn notified(&self) -> BoxFuture<'_, Notification> {
        Box::pin(ModelStore::notified(self))
    }

    fn decline(
        &self,
        seen: Claim,
        worker: WorkerId,
        reason: String,
        interrupted: bool,
        now_ms: i64,
    ) -> BoxFuture<'_, Result<DeclineResult>> {
        Box::pin(self.write_under("decline", seen, move |seen| {
            let database = &self.sim().database;
            let standing = database.standing(seen.fiber)?.filter(|(_, _, epoch, _)| *epoch == seen.epoch);
            let Some((state, number, _, cancelled)) = standing else {
                return Err(Error::new(ErrorKind::ClaimLost, format!("the claim of fiber {} is no longer in force", seen.fiber)));
            };
            if cancelled {
                let end = at_once(database.sqlite.end(seen, End::Cancelled(String::new()), Vec::new(), Vec::new(), now_ms))?;
                return Ok(DeclineResult::Ended(end));
            }
            let is_left = {
                let mut tables = database.tables();
                tables.declined.insert((seen.fiber, worker), number);
                tables.is_left_to_others(seen.fiber, number, worker, database.now_ms())
            };
            self.sim().tell(self, format_args!("declines {}: {reason}", database.name(seen.fiber)));
            match (state.as_str(), is_left) {
                // A worker that can resume it claims it as it is.
                ("parked", true) => Ok(DeclineResult::Parked),
                (_, true) => {
                    database.leave_to_others(seen.fiber, interrupted)?;
                    self.sim().notify_others(self, Notification { ready: true, requested: false });
                    Ok(DeclineResult::Left)
                }
                (_, false) => {
                    let end = at_once(database.sqlite.suspend(seen, Suspension::Parked(reason), now_ms))?;
                    Ok(end.map_or(DeclineResult::Parked, DeclineResult::Ended))
                }
            }
        }))
    }

    fn workers(&self) -> BoxFuture<'_, Result<Vec<WorkerRow>>> {
        Box::pin(self.read("workers", move || {
            let database = &self.sim().database;
            let now_ms = database.now_ms();
            let alive: Vec<WorkerId> = {
                let tables = database.tables();
                tables.workers.keys().copied().filter(|id| tables.is_alive(*id, now_ms)).collect()
            };
            alive.into_iter().filter_map(|id| database.worker_row(id).transpose()).collect()
        }))
    }

    fn hold_agent(&self, agent: AgentId, worker: WorkerId) -> BoxFuture<'_, Result<HoldResult>> {
        Box::pin(self.write("hold_agent", move || {
            let database = &self.sim().database;
            let other = {
                let mut tables = database.tables();
                let was = tables.is_holder(&agent, worker);
                match tables.hold(&agent, worker, database.now_ms())? {
                    Ok(hold) => {
                        if !was {
                            self.sim().tell(self, format_args!("holds agent `{agent}`"));
                        }
                        return Ok(HoldResult::Held(hold));
                    }
                    Err(other) => other,
                }
            };
            let holder = database.worker_row(other)?;
            let gone = || Error::new(ErrorKind::Store, format!("holders of agent `{agent}` change"));
            holder.map(HoldResult::Elsewhere).ok_or_else(gone)
        }))
    }

    fn release_agent(&self, agent: AgentId, worker: WorkerId) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write("release_agent", move || {
            self.sim().database.tables().release(&agent, worker);
            self.sim().tell(self, format_args!("releases agent `{agent}`"));
            Ok(())
        }))
    }

    fn request(&self, request: NewAgentRequest) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write("request", move || {
            let database = &self.sim().database;
            self.sim().tell(self, format_args!("requests `{}` of agent `{}`", request.method, request.agent));
            if !database.tables().workers.contains_key(&request.caller) {
                return Err(Error::new(ErrorKind::Store, format!("worker {} is not registered at this moment", request.caller)));
            }
            database.tables().request(Request::new(request, database.now_ms()));
            self.sim().notify_others(self, Notification { ready: false, requested: true });
            Ok(())
        }))
    }

    fn begin_request(&self, agent: AgentId, worker: WorkerId) -> BoxFuture<'_, Result<Option<AgentRequest>>> {
        Box::pin(self.write("begin_request", move || {
            let database = &self.sim().database;
            let mut tables = database.tables();
            let begun = tables.begin_request(&agent, worker, database.now_ms());
            let begun = begun.map(|there| AgentRequest { id: there.id.clone(), method: there.method.clone(), args: there.args.clone() });
            drop(tables);
            if let Some(begun) = &begun {
                self.sim().tell(self, format_args!("begins the request of `{}` of agent `{agent}`", begun.method));
            }
            Ok(begun)
        }))
    }

    fn end_request(&self, id: String, worker: WorkerId, outcome: RequestOutcome) -> BoxFuture<'_, Result<bool>> {
        Box::pin(self.write("end_request", move || {
            let ended = self.sim().database.tables().end_request(&id, worker, outcome);
            self.sim().tell(self, if ended { "ends a request" } else { "is fenced: the outcome of a request is refused" });
            self.sim().notify_others(self, Notification { ready: false, requested: true });
            Ok(ended)
        }))
    }

    fn take_request(&self, id: String) -> BoxFuture<'_, Result<RequestProgress>> {
        Box::pin(self.write("take_request", move || {
            let database = &self.sim().database;
            let mut tables = database.tables();
            let Some(request) = tables.find_request(&id) else { return Ok(RequestProgress::Lost) };
            let progress = match &request.outcome {
                Some(outcome) => RequestProgress::Ended(outcome.clone()),
                None if !request.has_begun() => return Ok(RequestProgress::Waiting),
                None if tables.is_held(request, database.now_ms()) => return Ok(RequestProgress::Begun),
                None => RequestProgress::Lost,
            };
            tables.delete_request(&id);
            Ok(progress)
        }))
    }

    fn withdraw_request(&self, id: String) -> BoxFuture<'_, Result<bool>> {
        Box::pin(self.write("withdraw_request", move || Ok(self.sim().database.tables().delete_request(&id).unwrap_or(false))))
    }

    fn publish(&self, worker: WorkerId, first: u64, items: Vec<Publication>) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write("publish", move || {
            let database = &self.sim().database;
            let (mut tables, now_ms) = (database.tables(), database.now_ms());
            for (number, Publication { agent, data }) in (first..).zip(items) {
                tables.publish(worker, number, agent, data, now_ms);
            }
            Ok(())
        }))
    }

    fn published(&self, query: PublishedQuery) -> BoxFuture<'_, Result<PublishedPage>> {
        Box::pin(self.read("published", move || {
            let PublishedQuery { worker, after, agents, events } = query;
            let tables = self.sim().database.tables();
            let others = tables.workers.iter().filter(|(id, _)| **id != worker);
            let workers: Vec<(WorkerId, u64)> = others.map(|(id, there)| (*id, there.published)).collect();
            if agents.is_empty() && !events {
                return Ok(PublishedPage { items: Vec::new(), workers, more: false });
            }
            let from = |by: WorkerId| after.iter().find(|(known, _)| *known == by).map(|(_, number)| *number);
            let is_asked_of = |by: WorkerId| by != worker && (from(by).is_some() || workers.iter().any(|(id, _)| *id == by));
            let items = tables.published.iter().filter(|((by, number), _)| is_asked_of(*by) && *number > from(*by).unwrap_or(0));
            let items = items.map(|((by, number), item)| {
                let wanted = item.agent.as_ref().map_or(events, |agent| agents.contains(agent));
                PublishedItem { worker: *by, number: *number, agent: item.agent.clone(), data: wanted.then(|| item.data.clone()) }
            });
            Ok(PublishedPage { items: items.collect(), workers: workers.clone(), more: false })
        }))
    }

    fn set_listens(&self, worker: WorkerId, listens: bool) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write("set_listens", move || {
            if let Some(there) = self.sim().database.tables().workers.get_mut(&worker) {
                there.listens = listens;
            }
            Ok(())
        }))
    }
}

impl ModelStore {
    fn changes_of(&self, watch: &Watch) -> Result<Changes> {
        let (database, version) = (&self.sim().database, self.sim().version());
        let (sqlite, now_ms) = (&database.sqlite, database.now_ms());
        let is_fenced = self.0.fenced.swap(false, Ordering::Relaxed);
        // Requests have a deadline, so time changes them too.
        let depends_on_time = !database.tables().requests.is_empty();
        if let Some((of, last, changes)) = &lock(&self.0.looks).changes
            && !depends_on_time
            && !is_fenced
            && (*of, last) == (version, watch)
        {
            return Ok(changes.clone());
        }
        let mut changes = Changes { cancelled: database.cancelled(watch.worker)?, ..Changes::default() };
        for id in &watch.fibers {
            let there = at_once(sqlite.find(FiberRef::Id(id.clone())))?;
            let runs = |row: &crate::store::FiberRow| matches!(row.state, FiberState::Pending | FiberState::Running | FiberState::Waiting);
            if !there.as_ref().is_some_and(runs) {
                changes.stopped.push(id.clone());
            }
        }
        for id in &watch.receivers {
            if !at_once(sqlite.pending_messages(id.clone(), i64::MIN, 1))?.is_empty() {
                changes.received.push(id.clone());
            }
        }
        for turn in &watch.turns {
            let Some(row) = at_once(sqlite.turn_by_seq(*turn))? else { continue };
            let last = at_once(sqlite.chunks(*turn, u64::MAX >> 1, 1))?;
            changes.turns.push(TurnProgress {
                turn: *turn,
                chunks: last.last().map_or(0, |chunks| chunks.first + chunks.count),
                state: row.state,
                reason: row.reason,
                error: row.error,
                cancel: row.cancel,
            });
        }
        let tables = database.tables();
        changes.chats = watch.chats.iter().map(|chat| (chat.clone(), tables.chat_version)).collect();
        changes.agents = watch.agents.iter().filter_map(|agent| Some((agent.clone(), *tables.agent_versions.get(agent)?))).collect();
        let is_over = |id: &&String| {
            tables.find_request(id).is_none_or(|there| there.outcome.is_some() || there.has_begun() && !tables.is_held(there, now_ms))
        };
        changes.requests = watch.requests.iter().filter(is_over).cloned().collect();
        for request in tables.requests.values().filter(|there| there.waits(now_ms)) {
            let is_ours = tables.is_holder(&request.agent, watch.worker)
                || request.caller == watch.worker && tables.holder(&request.agent, now_ms).is_none();
            if is_ours && !changes.requested.contains(&request.agent) {
                changes.requested.push(request.agent.clone());
            }
        }
        changes.listeners = tables.workers.iter().any(|(id, there)| *id != watch.worker && there.listens);
        changes.listens = tables.workers.get(&watch.worker).is_some_and(|there| there.listens);
        drop(tables);
        lock(&self.0.looks).changes = Some((version, watch.clone(), changes.clone()));
        changes.fenced = is_fenced;
        Ok(changes)
    }
}
