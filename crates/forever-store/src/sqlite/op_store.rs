//! The ledger of operations.
use super::conn::Conn;
use super::job::Scope;
use super::ops;
use super::recent_ops::Beginning;
use super::store::Sqlite;
use crate::error::Result;
use crate::future::BoxFuture;
use crate::{Claim, CommandResult, OpRecord, OpRow, OpStore, ResolveOpResult, ResolvedOp, Seq};

impl OpStore for Sqlite {
    fn save_op(&self, claim: Claim, record: OpRecord, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        let in_row = Beginning::of(&record, now_ms);
        let save = move |c: &Conn| ops::save_claimed(c, claim, &record, in_row.as_ref(), now_ms);
        Box::pin(self.write_short("store an operation", Scope::Many, save))
    }

    fn load_op(&self, seq: Seq, id: String) -> BoxFuture<'_, Result<Option<OpRecord>>> {
        Box::pin(self.read("load an operation", move |c| ops::load(c, seq, &id)))
    }

    fn append_op_log(&self, claim: Claim, record: OpRecord, items: Vec<String>, now_ms: i64) -> BoxFuture<'_, Result<()>> {
        let append = move |c: &Conn| ops::append_log(c, claim, &record, &items, now_ms);
        Box::pin(self.write_short("append to the log of an operation", Scope::Many, append))
    }

    fn ops(&self, seq: Seq) -> BoxFuture<'_, Result<Vec<OpRow>>> {
        Box::pin(self.read("list the operations of a fiber", move |c| ops::list(c, seq)))
    }

    fn find_op(&self, id: String) -> BoxFuture<'_, Result<Option<(Seq, OpRecord)>>> {
        Box::pin(self.read("find an operation", move |c| ops::find(c, &id)))
    }

    fn resolve_op(&self, seq: Seq, how: ResolvedOp, now_ms: i64) -> BoxFuture<'_, Result<CommandResult<ResolveOpResult>>> {
        Box::pin(self.write_ready("store how an operation ended", move |c, notices| ops::resolve(c, seq, &how, now_ms, notices)))
    }
}
