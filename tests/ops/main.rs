//! Effects: what is called how often when the process dies, what the ledger says, and who decides.
#![allow(missing_docs, missing_debug_implementations, reason = "tests")]
mod by_hand;
#[cfg(unix)]
mod crash;
#[cfg(unix)]
mod edited;
mod examples;
mod idempotency;
mod ids;
mod logs;
mod migrations;
mod resolving;
mod retention;
mod siblings;
mod side;
mod stopping;
mod support;
mod transactions;
mod unknown;
