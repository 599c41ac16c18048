//! Durable, resumable agent workflows: an ordinary `async fn` that carries on **in the middle** after its process is gone.
//!
//! A function marked [`#[fiber]`](macro@fiber) is a *fiber*. In its body [`step!`] marks what must not be done twice, [`steps!`] does
//! several things side by side, [`call!`] runs another fiber inline and [`spawn!`] starts one, and [`sleep!`], [`recv!`] and
//! [`wait!`] wait. After each of them the runtime replaces the fiber's snapshot in an SQLite file: which
//! step was last, and the local variables that the rest of the function still needs. When the file is opened again, every
//! fiber that is not done goes on from there. Nothing is replayed, so the code between steps need not be deterministic, and
//! how long recovery takes does not depend on how many steps are done.
//!
//! ```
//! use forever::prelude::*;
//!
//! #[fiber]
//! async fn greet(names: Vec<String>) -> anyhow::Result<String> {
//!     let mut greeted = Vec::new();
//!     for name in &names {
//!         // Done once for each name, however often the process dies.
//!         greeted.push(step!(look_up(name).await?));
//!     }
//!     Ok(format!("Hello {}", greeted.join(" and ")))
//! }
//!
//! async fn look_up(name: &str) -> anyhow::Result<String> {
//!     Ok(name.to_uppercase())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> anyhow::Result<()> {
//! // `.sqlite("greetings.db")` keeps it beyond the process.
//! let forever = Forever::builder().in_memory().fiber::<greet>().open().await?;
//! let greeting = forever.run(greet(vec!["ada".into(), "grace".into()])).await?;
//! assert_eq!(greeting, "Hello ADA and GRACE");
//! forever.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Where to look
//!
//! - [`#[fiber]`](macro@fiber): what the function may look like, and its options. [`step!`], [`steps!`], [`call!`], [`spawn!`],
//!   [`wait!`], [`wait_all!`], [`sleep!`], [`sleep_until!`], [`recv!`] and [`select!`]: the cut points.
//! - [`Forever::builder`]: opening a database, with resources ([`Res`]) and a [`Durability`].
//! - [`Forever::spawn`] and [`Forever::run`]: starting fibers; [`FiberHandle`]: asking for them, also after a restart.
//! - [`Agent`] and [`Forever::agent`]: named owners of state, fibers and schedules; [`AgentHandle::keep_alive`] and
//!   [`AgentHandle::schedule`].
//! - [`chat`]: agents that people talk to; [`ChatAgent`](chat::ChatAgent), [`Turn`](chat::Turn), and the loop of model and tools,
//!   [`AgentLoop`](chat::AgentLoop). In the repository: `docs/chat.md`.
//! - [`Retry`], [`Backoff`] and [`Op`]: steps that fail, and steps whose effect is outside.
//! - [`OnUnknown`], [`Forever::ops`], [`Forever::resolve_op`] and [`FiberContext::op`]: effects that never repeat silently.
//! - [`FiberContext::transaction`], [`Forever::transaction`] and [`Builder::migration`]: tables of your own in the same file.
//! - [`store`]: stores of your own, behind [`Builder::store`].
//! - [`layout()`]: what a fiber keeps where, for tests that notice when a change would strand running fibers.
//! - In the repository: `docs/guarantees.md` (what survives, what may run twice), `docs/reliability.md` (how that was tried),
//!   `docs/format.md` (every table and column), `docs/idempotency.md` (effects), `docs/diagnostics.md` (the macro's messages),
//!   `ARCHITECTURE.md`.
//!
//! # The async runtime
//!
//! Forever runs in the tokio runtime from which it is opened, multi-threaded or `current_thread`, with time enabled. SQLite is
//! spoken to on threads of its own. Events are given to `tracing`; nothing is printed.
//!
//! # Features
//!
//! - `testing`: the module of that name, a kit that runs fibers to a chosen checkpoint and resumes them, and ends a program at every
//!   write that it makes. Not for production builds.
//! - `conformance`: the module `store::conformance`, the suite that every implementation of the traits in [`store`] has to pass. Not for
//!   production builds.
//! - `openai`: models behind OpenAI's Responses API, and behind whatever speaks chat completions. `anthropic`: models behind Anthropic's
//!   Messages API. See [`chat::model`].
//! - `server`: the module `serve`, agents over HTTP and WebSocket. In the repository: `docs/wire.md`.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod language;

#[doc(inline)]
pub use forever_runtime::*;
#[doc(inline)]
pub use language::{call, fiber, recv, select, sleep, sleep_until, spawn, step, steps, wait, wait_all};

#[doc(hidden)]
pub use forever_runtime::__private;

/// The names that nearly every file with a fiber needs: `use forever::prelude::*;`.
///
/// Names that a program is likely to have of its own ([`Agent`], [`Connection`], [`Log`], [`Op`], [`Schedule`], ..) are not in it:
/// two glob imports of the same name cannot be used beside each other. Import them by name, `use forever::{Agent, BoxError};`.
pub mod prelude {
    pub use crate::{Backoff, FiberContext, FiberHandle, Forever, OnUnknown, Res, Retry, StepError};
    pub use crate::{call, fiber, recv, select, sleep, sleep_until, spawn, step, steps, wait, wait_all};
}

/// The code of the README is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// So is that of what explains effects.
#[cfg(doctest)]
#[doc = include_str!("../docs/idempotency.md")]
struct Idempotency;

/// And of what explains chat.
#[cfg(doctest)]
#[doc = include_str!("../docs/chat.md")]
struct Chat;

/// And of what explains serving it.
#[cfg(all(doctest, feature = "server"))]
#[doc = include_str!("../docs/wire.md")]
struct Wire;

/// And of what to do about running fibers when code changes.
#[cfg(doctest)]
#[doc = include_str!("../docs/deploys.md")]
struct Deploys;

/// And that of how to try an agent.
#[cfg(doctest)]
#[doc = include_str!("../docs/reliability.md")]
struct Reliability;
