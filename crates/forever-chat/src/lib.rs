//! Chats of agents: answers that continue after the process that writes them has died. Use it
//! through the `forever` crate, as `forever::chat`.
//!
//! A *turn* is one answer, written as *chunks*: the events of the AI SDK's stream. A request is
//! stored when it is accepted, and a chunk before any client sees it. When the process dies, the
//! next open continues the turn: the same id, the same message, after the last stored chunk. In
//! each chat one turn runs at a time.
//!
//! ```
//! use forever::BoxError;
//! use forever::agent::Agent;
//! use forever::chat::message::{Chunk, UiMessage};
//! use forever::chat::model::{ChatModel, FinishReason, Finished, ModelEvent, ModelRequest, ModelStream};
//! use forever::chat::{AgentLoop, ChatAgent, Turn};
//! use forever::prelude::*;
//!
//! struct Concierge;
//!
//! impl Agent for Concierge {
//!     const CLASS: &'static str = "concierge";
//!     type State = ();
//! }
//!
//! impl ChatAgent for Concierge {
//!     // Calls the model, then the tools that it asks for, until it asks for none.
//!     async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
//!         turn.run_agent_loop().await
//!     }
//! }
//!
//! /// In place of a provider's model.
//! struct Scripted;
//!
//! impl ChatModel for Scripted {
//!     fn answer(&self, _request: ModelRequest) -> ModelStream {
//!         let text = [Chunk::text_start("t"), Chunk::text_delta("t", "At seven."), Chunk::text_end("t")];
//!         let end = ModelEvent::Finished(Finished::because(FinishReason::Stop));
//!         let events = text.into_iter().map(ModelEvent::Chunk).chain([end]);
//!         Box::pin(futures_util::stream::iter(events.map(Ok).collect::<Vec<_>>()))
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> forever::Result<()> {
//! let forever = Forever::builder()
//!     .in_memory()
//!     .agent_loop(AgentLoop::new(Scripted))
//!     .chat_agent(|_| Concierge)
//!     .open()
//!     .await?;
//! let chat = forever.agent::<Concierge>("table-7");
//! // The key makes it safe to send again: it is the same turn.
//! let turn = chat.submit("request-1", [UiMessage::user("u1", "When is breakfast?")]).await?;
//! assert!(turn.wait().await?.is_completed());
//! assert_eq!(chat.messages().await?[1].text(), "At seven.");
//! forever.close().await
//! # }
//! ```
//!
//! # Where to look
//!
//! - **An agent that chats:** [`ChatAgent`], registered with [`ChatBuilder::chat_agent`]. Its hook
//!   writes the answer to a [`Turn`].
//! - **A model with tools:** [`AgentLoop`] with [`Tool`]s. The module [`model`] has the adaptors
//!   for providers and the trait for a model of your own.
//! - **Requests from the program:** the methods of [`ChatHandle`], on the handle of an agent. A
//!   [`NewTurn`] is stored by `.await`, under a policy of [`Queueing`]. A [`TurnHandle`] waits for
//!   the [`TurnEnd`], or [follows](TurnHandle::follow) the log; [`ChatEvents`] is what else happens
//!   in a chat.
//! - **People who approve and answer:** [`PendingInteractions`] lists the tool calls that wait for
//!   them, and [`ChatHandle::answer_tool`] gives a [`ToolAnswer`].
//! - **Crashes:** [`RecoveryPolicy`] limits how often a turn is continued, and
//!   [`ChatAgent::on_chat_recovery`] decides with a [`ChatRecovery`].
//! - **The JSON of messages and chunks:** the module [`message`].
//! - **Clients over HTTP and WebSocket:** `forever::serve`, feature `server`.
//!
//! The traits [`ChatBuilder`], [`ChatHandle`] and [`ChatForever`] add methods to types of the
//! runtime. The prelude imports them. The guide has a chapter on chats, `docs/guide/src/chat.md`.
//!
//! # Features
//!
//! - `openai`, `anthropic`: adaptors for models, see [`model`].
//! - `schemars`: tools whose input is a type of the program.

// `answer` is the fiber of a turn. Its chunks go through `turn` into its `log`, by a `writer` that
// stores them before they are shown. `recovery` decides whether and how an interrupted turn
// continues. The runtime does not know chats: `layer` is what it is given of them.
// Invariants: a chunk that a client has seen is stored and keeps its number. A turn has one log,
// however often it is interrupted, and the last entry of the log is the turn's end. In each chat
// one turn runs at a time, in the order of acceptance.
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
