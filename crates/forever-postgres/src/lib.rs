//! The Postgres store of `forever`: fibers in one database, run by any number of workers.
//!
//! ```no_run
//! use forever::Forever;
//! use forever_postgres::PostgresStore;
//!
//! # async fn open() -> forever::Result<()> {
//! let store = PostgresStore::builder("postgres://user:password@host/database").schema("orders").connect().await?;
//! let forever = Forever::builder().store(store).open().await?;
//! # forever.close().await
//! # }
//! ```
//!
//! Each open runtime is a worker. Workers need nothing but the database. When a worker dies, others
//! take over its fibers. The writes of a worker that was only thought dead are fenced. In the
//! repository, `docs/guide/src/reference/postgres.md` explains the tables, the leases, what is
//! assumed, and what does not work across workers.
mod admin;
mod agents;
mod batch;
mod call;
mod chat;
mod claims;
mod cluster;
mod fibers;
mod grouped;
mod layouts;
mod messages;
mod notify;
mod ops;
mod options;
mod places;
mod pool;
mod published;
mod requests;
mod schema;
mod snapshot_rows;
mod sql;
mod store;
mod streams;
mod turns;
mod waits;
mod workers;

pub use options::Builder;
pub use store::PostgresStore;
