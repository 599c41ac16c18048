//! What the tests, benchmarks and demonstrations of this workspace share. It is not published.
//!
//! - [`args`]: command lines of programs.
//! - [`folder`]: a folder for one run of an example.
//! - [`notes`]: what was seen of a program under test.
//! - [`prng`]: random numbers that a seed repeats.
//! - [`process`]: this program started again as another process, to be killed.
//! - [`sizes`]: how much a generated test does, in the gate and in the night.
//! - `database` (feature `database`): a look at the database of a test beside its runtime.
//! - `gates` (feature `tokio`): places at which a test stops what it tests.
//! - `waiting` (feature `tokio`): waits for what has to happen.
//! - `models` (feature `models`): a model for chat agents that follows a script.
//! - `servers` (feature `servers`): the same behind a socket.
//! - `postgres` (feature `postgres`): a Postgres server of the tests' own, and `history`: what
//!   triggers of it write down.
//!
//! What users test their own fibers with is `forever::testing`, which uses none of this.
#![forbid(unsafe_code)]

pub mod args;
#[cfg(feature = "database")]
pub mod database;
pub mod folder;
#[cfg(feature = "tokio")]
pub mod gates;
#[cfg(feature = "postgres")]
pub mod history;
#[cfg(feature = "models")]
pub mod models;
pub mod notes;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod prng;
pub mod process;
#[cfg(feature = "servers")]
pub mod servers;
pub mod sizes;
#[cfg(feature = "tokio")]
pub mod waiting;
