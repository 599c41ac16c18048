//! Where the operations of a fiber are kept.

use crate::error::{Error, ErrorKind, Result};
use crate::future::BoxFuture;
use crate::store::OpRecord;
use crate::store::sqlite::user::{TransactionFn, TransactionResult};

/// Where the operations of a fiber are kept. What is written is durable when its future is ready.
pub(crate) trait Ledger: Send + Sync {
    /// Stores an operation in place of what was stored of it.
    fn save(&self, record: OpRecord) -> BoxFuture<'_, Result<()>>;

    /// An operation by hand.
    fn load<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<OpRecord>>>;

    /// Appends to the log of an operation.
    fn append(&self, record: OpRecord, items: Vec<String>) -> BoxFuture<'_, Result<()>>;

    /// The log of an operation.
    fn log<'a>(&'a self, op: &'a OpRecord) -> BoxFuture<'a, Result<Vec<String>>>;

    /// Carries out a transaction in the program's own tables, with the record that is to be stored with it.
    fn transact(&self, record: Option<OpRecord>, work: TransactionFn) -> BoxFuture<'_, Result<TransactionResult>> {
        drop((record, work));
        Box::pin(async { Ok(TransactionResult::Refused(no_database())) })
    }
}

/// There is no SQLite file to have tables in.
pub(crate) fn no_database() -> Error {
    Error::new(ErrorKind::Setup, "a transaction needs a database: run the fiber in a `Forever`, which may be `.in_memory()`")
}
