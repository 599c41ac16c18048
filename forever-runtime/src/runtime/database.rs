//! The store of a runtime by its type, for what only that of one database can do.
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
#[cfg(feature = "postgres")]
use crate::store::PostgresStore;
use crate::store::Sqlite;
use crate::store::sqlite::Ownership;

/// The store of a runtime, where it is one of this library.
#[derive(Debug)]
pub(crate) enum Database {
    Sqlite(Arc<Sqlite>),
    #[cfg(feature = "postgres")]
    Postgres(Arc<PostgresStore>),
    /// A store of the program.
    Other,
}

impl Database {
    /// The lock of the file.
    pub(crate) fn ownership(&self) -> Option<Ownership> {
        match self {
            Database::Sqlite(sqlite) => Some(sqlite.ownership()),
            #[cfg(feature = "postgres")]
            Database::Postgres(_) => None,
            Database::Other => None,
        }
    }

    /// The SQLite store. `what` is the API in the error.
    pub(crate) fn sqlite(&self, what: &str) -> Result<&Sqlite> {
        let why = match self {
            Database::Sqlite(sqlite) => return Ok(sqlite),
            #[cfg(feature = "postgres")]
            Database::Postgres(_) => {
                "with Postgres: there, tables of the program are written by `postgres_transaction`, and backups are those of the server"
            }
            Database::Other => "with `.store(..)`: open the runtime with `.sqlite(path)` or `.in_memory()`",
        };
        Err(Error::new(ErrorKind::Setup, format!("{what} needs the SQLite store, and this runtime was opened {why}")))
    }

    /// The Postgres store. `what` is the API in the error.
    #[cfg(feature = "postgres")]
    pub(crate) fn postgres(&self, what: &str) -> Result<&PostgresStore> {
        let why = match self {
            Database::Postgres(postgres) => return Ok(postgres),
            Database::Sqlite(_) => "with SQLite: there, tables of the program are written by `transaction`",
            Database::Other => "with `.store(..)`: open the runtime with `.postgres(url)`",
        };
        Err(Error::new(ErrorKind::Setup, format!("{what} needs the Postgres store, and this runtime was opened {why}")))
    }
}
