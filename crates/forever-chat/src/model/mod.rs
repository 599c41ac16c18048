//! Models: the trait that an agent calls for an answer, and adaptors for providers.
//!
//! | model | feature | what it speaks |
//! |---|---|---|
//! | `OpenAiResponses` | `openai` | OpenAI's Responses API; resumes an answer that OpenAI still has |
//! | `OpenAiCompatible` | `openai` | chat completions: other providers, proxies and local servers |
//! | `Anthropic` | `anthropic` | Anthropic's Messages API |
//! | a type of yours | | whatever it calls: implement [`ChatModel`] |
//!
//! A model is given a [`ModelRequest`], the conversation with the tools, and returns a stream of
//! [`ModelEvent`]s: chunks of the answer, and last how it has [ended](Finished).
//!
//! ```
//! use forever::chat::message::{Chunk, UiMessage};
//! use forever::chat::model::{
//!     ChatModel, FinishReason, Finished, ModelError, ModelErrorKind, ModelEvent, ModelRequest, ModelStream,
//! };
//! use futures_util::{StreamExt, stream};
//!
//! /// Repeats the last message.
//! struct Parrot;
//!
//! impl ChatModel for Parrot {
//!     fn answer(&self, request: ModelRequest) -> ModelStream {
//!         let Some(last) = request.messages.last() else {
//!             let error = ModelError::new(ModelErrorKind::Invalid, "there is no message");
//!             return Box::pin(stream::iter([Err(error)]));
//!         };
//!         Box::pin(stream::iter([
//!             Ok(ModelEvent::Chunk(Chunk::text_start("t"))),
//!             Ok(ModelEvent::Chunk(Chunk::text_delta("t", last.text()))),
//!             Ok(ModelEvent::Chunk(Chunk::text_end("t"))),
//!             Ok(ModelEvent::Finished(Finished::because(FinishReason::Stop))),
//!         ]))
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let request = ModelRequest { messages: vec![UiMessage::user("u1", "hello")], ..ModelRequest::default() };
//! let events: Vec<_> = Parrot.answer(request).collect().await;
//! assert_eq!(events[1], Ok(ModelEvent::Chunk(Chunk::text_delta("t", "hello"))));
//! assert!(matches!(events[3], Ok(ModelEvent::Finished(_))));
//! # }
//! ```
//!
//! # What a model keeps to
//!
//! - The last item is [`ModelEvent::Finished`] or an error, and neither comes earlier. A stream
//!   that simply stops was cut off, so it is an error and never a complete answer.
//! - The [kind](ModelErrorKind) of an error decides whether the request is repeated. [`classify()`]
//!   finds it from the status and body of a response.
//! - With [`ModelRequest::interrupted`] a part of the answer has been shown already. The chunks of
//!   the new stream follow it, and do not repeat it.
//! - The stream may be dropped at any item: when the turn is cancelled, the runtime closes, or no
//!   event comes for [too long](crate::RecoveryPolicy::stall_timeout).
//!
//! The adaptors skip events that they do not know, so that a provider may add some.

// Each adaptor has a `body`, which it makes from the `conversation` and sends by `http`. Each has a
// `stream` that understands the provider's events, which `read` and `sse` parse from bytes,
// wherever they are split. The events go to `answer`, which makes consistent chunks.
#[cfg(feature = "__http")]
mod answer;
#[cfg(feature = "anthropic")]
mod anthropic;
mod chat_model;
mod classify;
#[cfg(feature = "__http")]
mod conversation;
#[cfg(feature = "__http")]
mod http;
#[cfg(feature = "openai")]
mod openai;
#[cfg(feature = "__http")]
mod read;
#[cfg(feature = "__http")]
mod sse;

/// The types of `reqwest` that are needed to give an adaptor a client of your own. Use them in
/// place of a dependency, so that the two are one version. A new version of `reqwest` is a breaking
/// change of this library.
// Not all of it: its `Result` in sight makes the compiler spell out that of `std` in every message.
#[cfg(any(feature = "openai", feature = "anthropic"))]
pub mod reqwest {
    pub use ::reqwest::{Certificate, Client, ClientBuilder, Identity, NoProxy, Proxy, header, redirect};
}
#[cfg(feature = "anthropic")]
pub use anthropic::Anthropic;
pub use chat_model::{
    ChatModel, FinishReason, Finished, Interrupted, ModelError, ModelErrorKind, ModelEvent, ModelRequest, ModelStream, ToolSpec,
};
pub use classify::classify;
#[cfg(feature = "openai")]
pub use openai::{OpenAiCompatible, OpenAiResponses};
