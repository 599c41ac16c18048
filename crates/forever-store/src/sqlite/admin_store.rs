//! Commands of people, lists and deletion.
use super::job::Scope;
use super::store::Sqlite;
use super::{agents, copies, layouts, messages, past, rows, topics, troubles};
use crate::error::Result;
use crate::future::BoxFuture;
use crate::{
    AcceptResult, AdminStore, AgentId, AgentRow, CommandResult, DeleteResult, Deletion, End, FiberCopy, FiberCount, FiberEdit, FiberQuery,
    FiberRef, FiberRow, FiberState, FiberTombstone, LayoutRow, PendingMessage, QueueRow, Restart, RestartResult, RetryRow, Runnable,
    ScheduleRow, Seq, StopRow, TopicRow,
};

impl AdminStore for Sqlite {
    fn resolve(&self, id: String, how: End, now_ms: i64) -> BoxFuture<'_, Result<CommandResult<(FiberRow, End)>>> {
        Box::pin(self.write_ready("store how a fiber ended", move |c, notices| rows::resolve(c, &id, &how, now_ms, notices)))
    }

    fn cancel(&self, id: String, reason: String, now_ms: i64) -> BoxFuture<'_, Result<CommandResult<Vec<Runnable>>>> {
        Box::pin(self.write_ready("cancel a fiber", move |c, notices| rows::cancel(c, &id, &reason, now_ms, notices)))
    }

    fn restart(&self, id: String, how: Restart, now_ms: i64) -> BoxFuture<'_, Result<CommandResult<RestartResult>>> {
        Box::pin(self.write_ready("let a fiber run again", move |c, notices| rows::restart(c, &id, how, now_ms, notices)))
    }

    fn pending_messages(&self, id: String, after: i64, limit: u32) -> BoxFuture<'_, Result<Vec<PendingMessage>>> {
        Box::pin(self.read("list messages of a fiber", move |c| messages::list(c, &id, after, limit)))
    }

    fn topics(&self, id: String) -> BoxFuture<'_, Result<Vec<TopicRow>>> {
        Box::pin(self.read("list topics of a fiber", move |c| topics::all_of(c, &id)))
    }

    fn discard_message(&self, id: String, message: i64) -> BoxFuture<'_, Result<CommandResult<bool>>> {
        Box::pin(self.write("discard a message", Scope::One, move |c| messages::discard(c, &id, message)))
    }

    fn edit(&self, edit: FiberEdit) -> BoxFuture<'_, Result<CommandResult<bool>>> {
        Box::pin(self.write("edit a fiber", Scope::Many, move |c| copies::edit(c, &edit)))
    }

    fn import(&self, copy: FiberCopy) -> BoxFuture<'_, Result<AcceptResult>> {
        Box::pin(self.write_ready("import a fiber", move |c, notices| copies::import(c, &copy, notices)))
    }

    fn layouts(&self, hashes: Vec<String>) -> BoxFuture<'_, Result<Vec<LayoutRow>>> {
        Box::pin(self.read("read layouts", move |c| layouts::with_hashes(c, &hashes.join(" "))))
    }

    fn find(&self, which: FiberRef) -> BoxFuture<'_, Result<Option<FiberRow>>> {
        Box::pin(self.read("find a fiber", move |c| rows::find(c, &which)))
    }

    fn list(&self, which: FiberQuery, after: Seq, limit: u32) -> BoxFuture<'_, Result<Vec<FiberRow>>> {
        Box::pin(self.read("list fibers", move |c| rows::list(c, &which, after, limit)))
    }

    fn counts(&self, states: Vec<FiberState>) -> BoxFuture<'_, Result<Vec<FiberCount>>> {
        Box::pin(self.read("count fibers", move |c| rows::counts(c, &states)))
    }

    fn stops(&self, name: String, state: FiberState, limit: u32) -> BoxFuture<'_, Result<Vec<StopRow>>> {
        Box::pin(self.read("list why fibers stopped", move |c| troubles::stops(c, &name, state, limit)))
    }

    fn retries(&self, looked_at: u32) -> BoxFuture<'_, Result<Vec<RetryRow>>> {
        Box::pin(self.read("list retried steps", move |c| troubles::retries(c, looked_at)))
    }

    fn queues(&self, looked_at: u32, least: u32, limit: u32) -> BoxFuture<'_, Result<Vec<QueueRow>>> {
        Box::pin(self.read("list queues of messages", move |c| troubles::queues(c, looked_at, least, limit)))
    }

    fn agents(&self, after: Option<AgentId>, limit: u32) -> BoxFuture<'_, Result<Vec<AgentRow>>> {
        Box::pin(self.read("list agents", move |c| agents::list(c, after.as_ref(), limit)))
    }

    fn all_schedules(&self, after: Option<String>, limit: u32) -> BoxFuture<'_, Result<Vec<ScheduleRow>>> {
        Box::pin(self.read("list schedules", move |c| agents::all_schedules(c, after.as_deref(), limit)))
    }

    fn delete(&self, deletion: Deletion) -> BoxFuture<'_, Result<DeleteResult>> {
        Box::pin(self.write("delete fibers", Scope::Many, move |c| past::delete(c, &deletion)))
    }

    fn tombstone(&self, which: FiberRef) -> BoxFuture<'_, Result<Option<FiberTombstone>>> {
        Box::pin(self.read("find what is remembered of a fiber", move |c| past::find(c, &which)))
    }

    fn delete_tombstones(&self, deletion: Deletion, deleted_before_ms: Option<i64>) -> BoxFuture<'_, Result<u64>> {
        Box::pin(self.write("forget the keys of fibers", Scope::One, move |c| past::forget(c, &deletion, deleted_before_ms)))
    }
}
