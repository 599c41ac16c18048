//! Effects: what is called how often when the process dies, what the ledger says, and who decides.
#![allow(missing_docs, missing_debug_implementations, reason = "tests")]
mod crash;
#[path = "../../examples/support/dice.rs"]
mod dice;
mod ids;
mod support;
