//! Models: what an agent asks for an answer, whoever provides it.
//!
//! A model turns a request into a stream of chunks. Adaptors for providers implement [`ChatModel`]; so does a test. What they all share:
//! a stream that is cut off is an error and never an end, events may be split across reads anywhere, and what is not known is passed over.
//!
//! The adaptors are `openai` and `anthropic` (features of those names). Each is a `body` made of what `said` makes of a conversation, sent by `http`; and
//! a `stream` that understands the provider's events, which `read` and `sse` make from bytes, and tells `answer`, which makes chunks that fit together.
#[cfg(feature = "__http")]
mod answer;
#[cfg(feature = "anthropic")]
mod anthropic;
mod chat_model;
mod classify;
#[cfg(feature = "__http")]
mod http;
#[cfg(feature = "openai")]
mod openai;
#[cfg(feature = "__http")]
mod read;
#[cfg(feature = "__http")]
mod said;
#[cfg(feature = "__http")]
mod sse;

/// What of `reqwest` is needed to give an adaptor a client of one's own: use it in place of a dependency, so that the two are one version. A new version of
/// it is a breaking change of this library.
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
