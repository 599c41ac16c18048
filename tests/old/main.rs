//! Databases of every version of the schema, as killed processes have left them: the code of now opens and finishes them.
//!
//! To add one: write a program for what is new into `programs`, raise `VERSION`, and run
//! `cargo test -p forever-tests --test old -- --ignored write_the_database_of_this_version`. This crate and its folder keep their name, and
//! `programs/three.rs` its lines: a transaction that a database holds between two steps is found by where it is called, by file and line, and by
//! the names of its types.
mod after;
mod damage;
mod desk;
mod opened;
mod programs;
mod write;

use std::path::PathBuf;

use programs::VERSION;

/// Where the databases are kept.
fn databases() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("old/databases")
}
