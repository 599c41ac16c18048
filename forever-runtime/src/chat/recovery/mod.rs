//! Going on with turns that were interrupted: who is asked, what it may cost, and when it is over.
pub(crate) mod incident;
mod policy;

pub use policy::{ChatRecovery, ChatRecoveryOptions, Exhausted, ExhaustedReason, RecoveryKind, RecoveryPolicy};
