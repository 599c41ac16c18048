//! Layer 3: chat. Turns of an agent that survive their process, each with one append-only log.
//!
//! A turn is one answer to a message, and runs as a fiber (`answer`). Its chunks go through `turn`
//! into its `log`, by a `writer` that stores them before they are shown. `recovery` decides whether
//! and how an interrupted turn continues. `message` is the JSON that clients use, `model` the
//! interface to models.
//!
//! Invariants: a chunk that a client has seen is stored and keeps its number. A turn has one log,
//! however often it is interrupted, and the last entry of the log is the turn's end. In each chat
//! one turn runs at a time, in the order of acceptance.
mod agent_loop;
mod answer;
mod chat_agent;
mod chats;
mod client_requests;
mod elsewhere;
mod feed;
mod handle;
mod hooks;
mod interaction_kind;
mod interactions;
mod log;
pub mod message;
pub mod model;
mod recovery;
pub(crate) mod retention;
mod runs;
mod status;
mod tools;
mod turn;
mod user_code;
mod writer;

pub(crate) use agent_loop::ChildLoop;
pub use agent_loop::{AgentLoop, Tool, UnknownCall};
pub(crate) use answer::Answer;
pub use chat_agent::{ChatAgent, ErrorClass};
pub(crate) use chats::{Chats, Settings};
pub(crate) use elsewhere::ChatWatcher;
pub use feed::{ChatEvent, ChatEvents};
pub(crate) use handle::chats;
pub use handle::{NewTurn, Queueing, TurnHandle};
pub(crate) use hooks::ChatClasses;
pub use interactions::{InteractionCursor, InteractionPage, PendingInteraction, PendingInteractions};
pub use log::{Entry, Follow, StoredChunk, TurnEnd};
pub use recovery::{ChatRecovery, ChatRecoveryOptions, Exhausted, ExhaustedReason, RecoveryKind, RecoveryPolicy};
pub use status::TurnStatus;
pub use tools::{ToolAnswer, ToolAnswered, ToolCallRef};
pub use turn::Turn;

/// What `forever-serve` asks of chats. Not for programs; it changes without notice.
#[doc(hidden)]
pub mod __server {
    pub use super::client_requests::{ClientRequests, unless_asked};
}

pub use crate::store::{InteractionKind, TurnState};
