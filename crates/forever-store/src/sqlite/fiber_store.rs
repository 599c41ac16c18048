//! Fibers and their streams.
use rusqlite::params;

use super::job::Scope;
use super::recent_items::{self, Destination};
use super::store::Sqlite;
use super::{agents, chat, claims, messages, rows, topics, waits};
use crate::error::Result;
use crate::future::BoxFuture;
use crate::{
    AcceptResult, BranchResult, Claim, ClaimResult, CommandResult, End, FiberStore, LoadedFiber, NewFiber, NewMessage, NewSnapshot,
    OpOutcome, OpsDelta, ReadySender, RestartResult, Runnable, SendResult, Seq, StoredClaim, StreamAppend, StreamBatch, StreamStore,
    StreamsDelta, Suspension, TopicPage, UnfinishedGroup, UnreadSender, Wait, WaitResult, WorkerId,
};

/// Whether a checkpoint is one statement, which replaces the row of the snapshot; so many of the
/// items that it appends go to that row, too.
fn replaces_its_row_alone(new: &NewSnapshot, items_in_row: usize) -> bool {
    // Every field is named: the statement stores it, or it is empty here.
    let NewSnapshot { number: _, replaces: _, at: _, data: _, now_ms: _, layouts, ops, delta, streams, received, closed, joined, children } =
        new;
    let StreamsDelta { removed, appended } = streams;
    appended.len() == items_in_row
        && removed.is_empty()
        && delta.is_empty()
        && layouts.is_none()
        && *ops == OpsDelta::default()
        && received.is_empty()
        && closed.is_none()
        && !joined
        && children.is_empty()
}

impl FiberStore for Sqlite {
    fn on_ready(&self, ready: ReadySender) {
        // A store serves one runtime.
        let _ = self.ready.set(ready);
    }

    fn on_unread(&self, unread: UnreadSender) {
        // A store serves one runtime.
        let _ = self.unread.set(unread);
    }

    fn join(&self, now_ms: i64) -> BoxFuture<'_, Result<WorkerId>> {
        Box::pin(self.write("register a worker", Scope::Many, move |c| claims::join(c, now_ms)))
    }

    fn take_over(&self, by: WorkerId, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write("take over what was left running", Scope::Many, move |c| claims::take_over(c, by, now_ms)))
    }

    fn accept(&self, fiber: NewFiber) -> BoxFuture<'_, Result<AcceptResult>> {
        Box::pin(self.write("store a fiber", Scope::Many, move |c| rows::accept(c, &fiber)))
    }

    fn unfinished(&self, after: Seq, limit: u32) -> BoxFuture<'_, Result<Vec<Runnable>>> {
        Box::pin(self.read("list unfinished fibers", move |c| rows::unfinished(c, after, limit)))
    }

    fn ready(&self, after: Seq, limit: u32) -> BoxFuture<'_, Result<Vec<Runnable>>> {
        Box::pin(self.read("list fibers that are ready", move |c| rows::ready(c, after, limit)))
    }

    fn load(&self, seq: Seq) -> BoxFuture<'_, Result<LoadedFiber>> {
        Box::pin(self.read("load a fiber", move |c| rows::load(c, seq)))
    }

    fn claim_of(&self, seq: Seq) -> BoxFuture<'_, Result<Option<StoredClaim>>> {
        Box::pin(self.read("find the claim of a fiber", move |c| claims::claim_of(c, seq)))
    }

    fn claim(&self, seen: Claim, worker: WorkerId, now_ms: i64) -> BoxFuture<'_, Result<ClaimResult>> {
        Box::pin(self.write_ready("claim a fiber", move |c, notices| claims::claim(c, seen, worker, now_ms, notices)))
    }

    fn checkpoint(&self, claim: Claim, new: NewSnapshot) -> BoxFuture<'_, Result<Vec<Claim>>> {
        let item = rows::history_of(&new);
        let destination = |item| self.lengths.destination(claim.fiber, &new, item, self.writer.callers());
        let item_to = item.map_or(Destination::Row, destination);
        let is_one = replaces_its_row_alone(&new, usize::from(item.is_some() && item_to == Destination::Row));
        let scope = if is_one { Scope::One } else { Scope::Many };
        Box::pin(self.write_short("store a checkpoint", scope, move |c| rows::checkpoint(c, claim, &new, item_to)))
    }

    fn stash(&self, claim: Claim, data: String, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write_short("store a stash", Scope::One, move |c| {
            let stored = c
                .prepare_cached(
                    "UPDATE snapshots SET number = number + 1, deaths = 0, saved_ms = ?2, data = ?3
                     WHERE fiber = ?1 AND epoch = ?4 AND (SELECT state FROM fibers WHERE seq = ?1) = 'running'",
                )?
                .execute(params![claim.fiber, now_ms, data, claim.epoch])?;
            if stored == 0 { Err(claims::lost(claim)) } else { Ok(()) }
        }))
    }

    fn save_branch(
        &self,
        claim: Claim,
        number: u64,
        result: BranchResult,
        appended: Vec<StreamAppend>,
        now_ms: i64,
    ) -> BoxFuture<'_, Result<()>> {
        let save = move |c: &_| rows::save_branch(c, claim, number, &result, &appended, now_ms);
        Box::pin(self.write_short("store a branch result", Scope::Many, save))
    }

    fn wait(&self, claim: Claim, wait: Wait, now_ms: i64) -> BoxFuture<'_, Result<WaitResult>> {
        Box::pin(self.write("store what a fiber waits for", Scope::Many, move |c| waits::wait(c, claim, &wait, now_ms)))
    }

    fn unfinished_groups(&self) -> BoxFuture<'_, Result<Vec<UnfinishedGroup>>> {
        Box::pin(self.read("group unfinished fibers", |c| rows::unfinished_groups(c)))
    }

    fn unfinished_of(&self, group: UnfinishedGroup, after: Seq, limit: u32) -> BoxFuture<'_, Result<Vec<Seq>>> {
        Box::pin(self.read("list unfinished fibers", move |c| rows::unfinished_of(c, &group, after, limit)))
    }

    fn wake(&self, fibers: Vec<Seq>, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write_ready("wake fibers", move |c, notices| rows::wake_all(c, &fibers, now_ms, notices)))
    }

    fn take_due(&self, now_ms: i64, limit: u32) -> BoxFuture<'_, Result<Vec<Runnable>>> {
        Box::pin(self.write("wake fibers that are due", Scope::Many, move |c| waits::take_due(c, now_ms, limit)))
    }

    fn next_due(&self) -> BoxFuture<'_, Result<Option<i64>>> {
        Box::pin(self.read("find what is due next", |c| {
            c.prepare_cached("SELECT min(due_ms) FROM waits WHERE due_ms IS NOT NULL")?.query_row((), |r| r.get(0))
        }))
    }

    fn send(&self, message: NewMessage) -> BoxFuture<'_, Result<CommandResult<SendResult>>> {
        Box::pin(self.write_ready("store a message", move |c, notices| messages::send(c, &message, notices)))
    }

    fn topic(&self, seq: Seq, topic: String, after: i64, limit: u32) -> BoxFuture<'_, Result<TopicPage>> {
        Box::pin(self.read("load messages of a topic", move |c| topics::page(c, seq, &topic, after, limit)))
    }

    fn end(&self, claim: Claim, how: End, settled: Vec<OpOutcome>, appended: Vec<StreamAppend>, now_ms: i64) -> BoxFuture<'_, Result<End>> {
        self.lengths.forget(claim.fiber);
        let end = move |c: &_, notices: &mut _| rows::end(c, claim, &how, &settled, &appended, now_ms, notices);
        Box::pin(self.write_ready("store how a fiber ended", end))
    }

    fn suspend(&self, claim: Claim, how: Suspension, now_ms: i64) -> BoxFuture<'_, Result<Option<End>>> {
        Box::pin(self.write_ready("store why a fiber stopped", move |c, notices| rows::suspend(c, claim, &how, now_ms, notices)))
    }

    fn restart_claimed(&self, claim: Claim, now_ms: i64) -> BoxFuture<'_, Result<RestartResult>> {
        Box::pin(self.write_ready("restart a fiber", move |c, notices| rows::restart_claimed(c, claim, now_ms, notices)))
    }

    fn close(&self, worker: WorkerId, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let stored = self
                .writer
                .call_last("store a clean close", move |c| {
                    agents::close(c)?;
                    chat::close(c)?;
                    claims::close(c, worker, now_ms)
                })
                .await;
            self.closes();
            if let Some(reader) = &self.reader {
                reader.stopped().await;
            }
            self.writer.stopped().await;
            stored
        })
    }

    fn abandon(&self) {
        self.stop();
    }
}

impl StreamStore for Sqlite {
    fn append(&self, claim: Claim, appended: Vec<StreamAppend>, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write_short("append to streams", Scope::Many, move |c| rows::append(c, claim, &appended, now_ms)))
    }

    fn stream_names(&self, fiber: Seq) -> BoxFuture<'_, Result<Vec<String>>> {
        Box::pin(self.write("list the streams of a fiber", Scope::Read, move |c| recent_items::names(c, fiber)))
    }

    fn stream(&self, fiber: Seq, name: String, from: u64, limit: u32) -> BoxFuture<'_, Result<Vec<StreamBatch>>> {
        // On the writer's connection, which knows the rows that are not copied yet.
        Box::pin(self.write("read a stream", Scope::Read, move |c| recent_items::read(c, fiber, &name, from, limit)))
    }
}
