//! The executor: from ready rows to activations, and what follows their exits.

pub(crate) mod activation;
pub(crate) mod adoption;
pub(crate) mod agent_hooks;
pub(crate) mod backend;
pub(crate) mod closure;
pub(crate) mod compatibility;
pub(crate) mod dispatch;
pub(crate) mod dry_run;
pub(crate) mod entry_order;
pub(crate) mod executor;
pub(crate) mod failed;
pub(crate) mod lease;
pub(crate) mod recovery;
pub(crate) mod registry;
pub(crate) mod retention;
pub(crate) mod slots;
pub(crate) mod spawn;
