//! A ledger in memory, for fibers that run without a database.
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::ledger::Ledger;
use super::{OpRecord, OpState};
use crate::error::Result;
use crate::fiber::frame::BoxFuture;
use crate::store::{OpKind, OpsBehind};

/// What would be in the tables.
#[derive(Debug, Default)]
pub(crate) struct MemoryLedger(Mutex<Tables>);

#[derive(Debug, Default)]
pub(crate) struct Tables {
    /// By id, with whether it is open.
    pub(crate) ops: BTreeMap<String, (OpRecord, bool)>,
    items: BTreeMap<String, Vec<String>>,
}

impl MemoryLedger {
    pub(crate) fn tables(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is open of what began after so many checkpoints.
    pub(crate) fn open(&self, number: u64) -> Vec<OpRecord> {
        self.tables().ops.values().filter(|(op, open)| *open && op.number == number).map(|(op, _)| op.clone()).collect()
    }

    /// What a checkpoint does.
    pub(crate) fn pass(&self, ops: &OpsBehind) {
        let mut tables = self.tables();
        let tables = &mut *tables;
        for settled in &ops.settled {
            if let Some((op, open)) = tables.ops.get_mut(&settled.id) {
                (op.state, op.outcome, op.failed, op.stash, *open) = (settled.state, settled.outcome.clone(), 0, None, false);
                tables.items.remove(&settled.id);
            }
        }
        if ops.any {
            let gone: Vec<_> =
                tables.ops.values().filter(|(op, open)| *open && op.kind.is_temporary()).map(|(op, _)| op.id.clone()).collect();
            for id in gone {
                tables.ops.remove(&id);
                tables.items.remove(&id);
            }
            tables.ops.values_mut().for_each(|(_, open)| *open = false);
        }
    }
}

impl Ledger for MemoryLedger {
    fn save(&self, record: OpRecord) -> BoxFuture<'_, Result<()>> {
        let mut tables = self.tables();
        if record.state != OpState::Started {
            tables.items.remove(&record.id);
        }
        let open = record.kind != OpKind::ByHand;
        tables.ops.insert(record.id.clone(), (record, open));
        Box::pin(async { Ok(()) })
    }

    fn load<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<OpRecord>>> {
        let record = self.tables().ops.get(id).map(|(op, _)| op.clone());
        Box::pin(async { Ok(record) })
    }

    fn append(&self, record: OpRecord, items: Vec<String>) -> BoxFuture<'_, Result<()>> {
        self.tables().items.entry(record.id.clone()).or_default().extend(items);
        self.save(record)
    }

    fn log<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Vec<String>>> {
        let items = self.tables().items.get(id).cloned().unwrap_or_default();
        Box::pin(async { Ok(items) })
    }
}
