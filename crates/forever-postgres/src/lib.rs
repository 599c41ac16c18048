//! The Postgres store of `forever`: fibers in one database, run by any number of workers. Use it
//! through the `forever` crate, with the feature `postgres`.
//!
//! ```no_run
//! use forever::Forever;
//!
//! # async fn open() -> forever::Result<()> {
//! let forever = Forever::builder().postgres("postgres://user:password@host/database").open().await?;
//! # forever.close().await
//! # }
//! ```
//!
//! With options of the store, [`Builder`]:
//!
//! ```no_run
//! use forever::Forever;
//! use forever::store::PostgresStore;
//!
//! # async fn open() -> forever::Result<()> {
//! let store = PostgresStore::builder("postgres://user:password@host/database").schema("orders").connect().await?;
//! let forever = Forever::builder().store(store).open().await?;
//! # forever.close().await
//! # }
//! ```
//!
//! Each open runtime is a worker, and workers need nothing but the database. The tables are made at
//! the first connect. When a worker dies, others take over its fibers: at once where its session
//! lock shows the death, and otherwise when its lease has run out. The writes of a worker that was
//! only thought dead are fenced.
//!
//! A fiber writes to tables of the program in the same database with
//! `FiberContext::postgres_transaction`: see [`PostgresTx`]. Migrations and backups are abilities
//! of SQLite alone.
//!
//! The guide says when to use several workers, `docs/guide/src/operations/many-workers.md`, and has
//! the tables, the leases and what is assumed, `docs/guide/src/reference/postgres.md`.
//!
//! # Features
//!
//! - `rustls` (`postgres-tls` of the `forever` crate): TLS by rustls, with the certificates of the
//!   platform.
mod admin;
mod agents;
mod batch;
mod call;
mod chat;
mod claims;
mod cluster;
mod copies;
mod fibers;
mod grouped;
mod layouts;
mod lease;
mod messages;
mod nested;
mod notify;
mod ops;
mod options;
mod places;
#[cfg(test)]
mod plans;
mod pool;
mod published;
mod requests;
mod rights;
mod schema;
mod settings;
mod snapshot_rows;
mod sql;
mod store;
mod streams;
mod topics;
mod transaction;
mod troubles;
mod turns;
mod waits;
mod workers;

pub use options::Builder;
pub use store::PostgresStore;
pub use tokio_postgres;
#[doc(hidden)]
pub use transaction::PostgresWork;
pub use transaction::{PostgresTx, PostgresTxFn};
