//! The store on SQLite: one file, or a database in memory that works the same.
//!
//! [`Sqlite`], [`Durability`] and [`Tx`](user::Tx) are the public API. All other public items are
//! hidden, because only the runtime and the test kit use them: transactions, migrations and
//! ownership of the file.
mod admin_store;
mod agents;
mod answers;
mod backup;
mod batch;
mod chat;
mod claims;
mod compat;
mod conn;
pub mod copied;
mod copier;
mod copies;
mod fences;
mod fiber_store;
mod file_guard;
mod guard;
mod histories;
mod job;
mod layouts;
#[cfg(test)]
mod loading;
mod lock;
mod log;
mod log_length;
mod messages;
#[cfg(target_os = "linux")]
mod mounts;
mod numbers;
mod op_store;
mod open;
mod ops;
mod pace;
mod past;
mod places;
#[cfg(test)]
mod plans;
mod private;
#[cfg(test)]
mod reads;
mod recent_items;
mod recent_ops;
mod rows;
mod schema;
mod snapshot_rows;
mod store;
mod streams;
mod sync;
#[cfg(test)]
mod tests;
mod topics;
#[cfg(test)]
mod traced;
mod troubles;
pub mod user;
mod waits;
mod worker;

pub use open::Durability;
pub use store::{Ownership, Sqlite, schema_version};
