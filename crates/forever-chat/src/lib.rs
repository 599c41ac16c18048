//! Chats of agents: turns that survive their process, each with one append-only log. Use it through
//! the `forever` crate, as `forever::chat`.
//!
//! A turn is one answer to a message, and runs as a fiber (`answer`). Its chunks go through `turn`
//! into its `log`, by a `writer` that stores them before they are shown. `recovery` decides whether
//! and how an interrupted turn continues. `message` is the JSON that clients use, `model` the
//! interface to models.
//!
//! Invariants: a chunk that a client has seen is stored and keeps its number. A turn has one log,
//! however often it is interrupted, and the last entry of the log is the turn's end. In each chat
//! one turn runs at a time, in the order of acceptance.
//!
//! [`ChatBuilder`], [`ChatHandle`] and [`ChatForever`] are methods of types of the runtime, which
//! does not know chats. `layer` is what the runtime is given of them.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod agent_loop;
mod answer;
mod builder;
mod chat_agent;
mod chat_handle;
mod client_requests;
mod elsewhere;
mod feed;
mod handle;
mod hooks;
mod interaction_kind;
mod interactions;
mod layer;
mod log;
pub mod message;
pub mod model;
mod recovery;
mod registry;
mod retention;
mod runs;
mod status;
mod tools;
mod turn;
mod user_code;
mod writer;

pub use agent_loop::{AgentLoop, Tool, UnknownCall};
pub use builder::{ChatBuilder, ChatForever};
pub use chat_agent::{ChatAgent, ErrorClass};
pub use chat_handle::ChatHandle;
pub use feed::{ChatEvent, ChatEvents};
pub use handle::{NewTurn, Queueing, TurnHandle};
pub use interactions::{InteractionCursor, InteractionPage, PendingInteraction, PendingInteractions};
pub use log::{Entry, Follow, StoredChunk, TurnEnd};
pub use recovery::{ChatRecovery, ChatRecoveryOptions, Exhausted, ExhaustedReason, RecoveryKind, RecoveryPolicy};
pub use status::TurnStatus;
pub use tools::{ToolAnswer, ToolAnswered, ToolCallRef};
pub use turn::Turn;

/// What derives the JSON schema of a tool's input, for [`Tool::typed`].
#[cfg(feature = "schemars")]
#[cfg_attr(docsrs, doc(cfg(feature = "schemars")))]
pub use schemars;

/// What `forever-serve` asks of chats. Not for programs; it changes without notice.
#[doc(hidden)]
pub mod __server {
    pub use super::client_requests::{ClientRequests, classes, unless_asked};
}

pub use forever_runtime::store::{InteractionKind, TurnState};
