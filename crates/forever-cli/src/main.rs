//! The `forever` command: looks at fibers from outside of their process, and gives commands.
//!
//! [`target`] finds what is asked: a live owner's socket, an inspector's URL, or a database that is
//! opened here without running anything. All three answer the JSON API of `forever-inspect`, so
//! [`commands`] knows one [`client`] alone. [`table`] prints for people; `--json` prints what the
//! API gave.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command prints")]

mod args;
mod client;
mod commands;
mod doctor;
mod failure;
mod table;
mod target;
mod text;
mod watch;

use std::process::ExitCode;

use failure::Failure;

fn main() -> ExitCode {
    let given: Vec<_> = std::env::args_os().collect();
    if given.get(1).is_some_and(|first| first == "completions") {
        return args::completions(given.get(2));
    }
    let matches = args::command().get_matches_from(given);
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(why) => return Failure::unreachable(format!("no threads can be started: {why}")).report(),
    };
    match runtime.block_on(commands::run(&matches)) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
