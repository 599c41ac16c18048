//! The ledger of a fiber, in the store.
use std::sync::Arc;

use crate::error::Result;
use crate::future::BoxFuture;
use crate::ops::ledger::Ledger;
use crate::runtime::active::Control;
use crate::runtime::fence::Fence;
use crate::runtime::state::Runtime;
use crate::store::sqlite::user::TransactionFn;
use crate::store::{Claim, OpRecord, StreamAppend, TransactionResult, op_stream};

/// Ledger of a fiber in the store. Every write is conditional on a claim.
#[derive(Debug)]
pub(crate) struct StoredLedger {
    runtime: Arc<Runtime>,
    fence: Arc<Fence>,
}

impl StoredLedger {
    pub(crate) fn new(runtime: &Arc<Runtime>, claim: Claim, control: Option<&Arc<Control>>) -> Self {
        StoredLedger { runtime: Arc::clone(runtime), fence: Arc::new(Fence::new(claim, control)) }
    }

    pub(crate) fn runtime(&self) -> &Arc<Runtime> {
        &self.runtime
    }

    pub(crate) fn fence(&self) -> &Arc<Fence> {
        &self.fence
    }

    fn claim(&self) -> Claim {
        self.fence.claim()
    }

    /// Appends to streams of the fiber, which has this id, between two checkpoints.
    pub(crate) fn append_to_streams<'a>(&'a self, id: &'a str, sent: Vec<StreamAppend>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.fence.guard(self.runtime.store.append(self.claim(), sent, self.runtime.now_ms())).await?;
            self.runtime.active.items_stored(id);
            Ok(())
        })
    }

    /// Shows the progress of the fiber, JSON, in this process.
    pub(crate) fn set_progress(&self, progress: &str) {
        if let Some(control) = self.fence.control() {
            control.set_progress(progress);
        }
    }
}

impl Ledger for StoredLedger {
    fn save(&self, record: OpRecord) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.fence.guard(self.runtime.store.save_op(self.claim(), record, self.runtime.now_ms())))
    }

    fn load<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<OpRecord>>> {
        self.runtime.store.load_op(self.claim().fiber, id.to_owned())
    }

    fn append(&self, record: OpRecord, items: Vec<String>) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.fence.guard(self.runtime.store.append_op_log(self.claim(), record, items, self.runtime.now_ms())))
    }

    fn log<'a>(&'a self, op: &'a OpRecord) -> BoxFuture<'a, Result<Vec<String>>> {
        let stream = self.runtime.store.stream(self.claim().fiber, op_stream(op.number, &op.id), 0, u32::MAX);
        Box::pin(async move {
            let batches = stream.await?;
            Ok(batches.iter().flat_map(|batch| batch.data.lines().map(str::to_owned)).collect())
        })
    }

    fn transact(&self, record: Option<OpRecord>, work: TransactionFn) -> BoxFuture<'_, Result<TransactionResult>> {
        Box::pin(async move {
            match self.runtime.database.sqlite("`ctx.transaction`") {
                Ok(sqlite) => self.fence.guard(sqlite.transact(Some((self.claim(), record)), work, self.runtime.now_ms())).await,
                Err(why) => Ok(TransactionResult::Refused(why)),
            }
        })
    }

    #[cfg(feature = "postgres")]
    fn transact_on_postgres<'a>(
        &'a self,
        record: Option<OpRecord>,
        work: &'a mut dyn forever_postgres::PostgresWork,
    ) -> BoxFuture<'a, Result<TransactionResult>> {
        Box::pin(async move {
            match self.runtime.database.postgres("`ctx.postgres_transaction`") {
                Ok(postgres) => self.fence.guard(postgres.transact(Some((self.claim(), record)), work, self.runtime.now_ms())).await,
                Err(why) => Ok(TransactionResult::Refused(why)),
            }
        })
    }
}
