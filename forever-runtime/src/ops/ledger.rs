//! The ledger: the store of a fiber's operations.

use crate::error::{Error, ErrorKind, Result};
use crate::future::BoxFuture;
use crate::store::sqlite::user::TransactionFn;
use crate::store::{OpRecord, TransactionResult};

/// Store of a fiber's operations. A write is durable when its future is ready.
pub(crate) trait Ledger: Send + Sync {
    /// Stores an operation, and replaces its earlier record.
    fn save(&self, record: OpRecord) -> BoxFuture<'_, Result<()>>;

    /// Loads a manual operation.
    fn load<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<OpRecord>>>;

    /// Appends to the log of an operation.
    fn append(&self, record: OpRecord, items: Vec<String>) -> BoxFuture<'_, Result<()>>;

    /// Loads the log of an operation.
    fn log<'a>(&'a self, op: &'a OpRecord) -> BoxFuture<'a, Result<Vec<String>>>;

    /// Runs a transaction in the program's own tables on SQLite, and stores the record with it.
    fn transact(&self, record: Option<OpRecord>, work: TransactionFn) -> BoxFuture<'_, Result<TransactionResult>> {
        drop((record, work));
        Box::pin(async { Ok(TransactionResult::Refused(no_database())) })
    }

    /// Runs a transaction in the program's own tables on Postgres, and stores the record with it.
    #[cfg(feature = "postgres")]
    fn transact_on_postgres<'a>(
        &'a self,
        record: Option<OpRecord>,
        work: &'a mut dyn forever_postgres::PostgresWork,
    ) -> BoxFuture<'a, Result<TransactionResult>> {
        drop((record, work));
        Box::pin(async { Ok(TransactionResult::Refused(no_database())) })
    }
}

/// The error where there is no database for tables.
pub(crate) fn no_database() -> Error {
    Error::new(ErrorKind::Setup, "a transaction needs a database: run the fiber in a `Forever`, which may be `.in_memory()`")
}
