//! Models: the trait that agents call for an answer, and adaptors for providers.
//!
//! A model turns a request into a stream of chunks. Adaptors for providers implement [`ChatModel`];
//! so may a test. They all agree on three rules: a stream that is cut off is an error and never an
//! end, events may be split across reads anywhere, and unknown events are skipped.
//!
//! The adaptors are `openai` and `anthropic` (features of those names). Each has a `body`, which it
//! makes from the conversation of `said` and sends by `http`. Each has a `stream` that understands
//! the provider's events, which `read` and `sse` parse from bytes. The events go to `answer`, which
//! makes consistent chunks.
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
