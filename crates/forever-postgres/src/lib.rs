//! The Postgres store of `forever`.
mod admin;
mod agents;
mod batch;
mod call;
mod chat;
mod claims;
mod fibers;
mod layouts;
mod ops;
mod pool;
mod schema;
mod snapshot_rows;
mod sql;
mod store;
mod turns;
mod workers;

pub use store::{Builder, PostgresStore};
