//! Runs a command with a new Postgres server, on which tests keep what they would keep in files.
//!
//! `cargo run -p forever-testkit --features postgres --bin over-postgres -- cargo test -p forever-tests --test it`
use std::process::{Command, ExitCode};

use forever_testkit::postgres::Cluster;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let Some(program) = words.next() else {
        eprintln!("usage: over-postgres COMMAND [ARGUMENT ..]");
        return ExitCode::from(2);
    };
    let Some(cluster) = Cluster::start_without_syncs() else {
        eprintln!("no `initdb` in PATH or /usr/lib/postgresql");
        return ExitCode::from(2);
    };
    match Command::new(program).args(words).env("FOREVER_TEST_STORE", cluster.url()).status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(status) => {
            eprintln!("it ended with {status}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("it could not be started: {error}");
            ExitCode::FAILURE
        }
    }
}
