//! Recovery of interrupted turns: the hooks, the budget, and the end.
pub(crate) mod incident;
mod policy;

pub use policy::{ChatRecovery, ChatRecoveryOptions, Exhausted, ExhaustedReason, RecoveryKind, RecoveryPolicy};
