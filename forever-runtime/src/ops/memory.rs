//! A ledger in memory, for fibers that run without a database.
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::Result;
use crate::future::BoxFuture;
use crate::ops::ledger::Ledger;
use crate::store::{OpRecord, OpState, OpsDelta};

/// The ledger of one fiber, in place of tables.
#[derive(Debug, Default)]
pub(crate) struct MemoryLedger(Mutex<Tables>);

#[derive(Debug, Default)]
pub(crate) struct Tables {
    /// Operations by id.
    pub(crate) ops: BTreeMap<String, OpRecord>,
    items: BTreeMap<String, Vec<String>>,
}

impl MemoryLedger {
    pub(crate) fn tables(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The operations that began since checkpoint `number`.
    pub(crate) fn since(&self, number: u64) -> Vec<OpRecord> {
        self.tables().ops.values().filter(|op| op.number == Some(number)).cloned().collect()
    }

    /// Applies the changes of a checkpoint.
    pub(crate) fn pass(&self, ops: &OpsDelta) {
        let mut tables = self.tables();
        let tables = &mut *tables;
        for settled in &ops.settled {
            if let Some(op) = tables.ops.get_mut(&settled.id) {
                (op.state, op.outcome, op.failed, op.stash) = (settled.state, settled.outcome.clone(), 0, None);
                tables.items.remove(&settled.id);
            }
        }
        tables.ops.retain(|_, op| !op.kind.is_temporary());
        tables.items.retain(|id, _| tables.ops.contains_key(id));
    }
}

impl Ledger for MemoryLedger {
    fn save(&self, record: OpRecord) -> BoxFuture<'_, Result<()>> {
        let mut tables = self.tables();
        if record.state != OpState::Started {
            tables.items.remove(&record.id);
        }
        tables.ops.insert(record.id.clone(), record);
        Box::pin(async { Ok(()) })
    }

    fn load<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<OpRecord>>> {
        let record = self.tables().ops.get(id).cloned();
        Box::pin(async { Ok(record) })
    }

    fn append(&self, record: OpRecord, items: Vec<String>) -> BoxFuture<'_, Result<()>> {
        self.tables().items.entry(record.id.clone()).or_default().extend(items);
        self.save(record)
    }

    fn log<'a>(&'a self, op: &'a OpRecord) -> BoxFuture<'a, Result<Vec<String>>> {
        let items = self.tables().items.get(&op.id).cloned().unwrap_or_default();
        Box::pin(async { Ok(items) })
    }
}
