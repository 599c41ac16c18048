//! One cell of a database is overwritten with whatever comes: nothing panics, nothing hangs, all that has nothing to do with it ends as it would
//! have, and what is put right goes on.
//!
//! `database` makes the database with `programs`, `cells` knows what cells there are and what may be written to them, `world` runs a database
//! to its end and compares. They are used by the tests here and by `fuzz/fuzz_targets/columns.rs`.
pub(crate) mod cells;
mod database;
#[cfg(test)]
mod every_cell;
pub(crate) mod world;
