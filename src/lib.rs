//! Durable, resumable agent workflows: an ordinary `async fn` that resumes **in the middle** after
//! its process has died.
//!
//! A function marked [`#[fiber]`](macro@fiber) is a *fiber*. In its body, [`step!`] runs work that
//! is not repeated once it has finished, [`steps!`] runs several steps concurrently, [`call!`] runs
//! another fiber inline, and [`spawn!`] starts one. [`sleep!`], [`recv!`], [`wait!`] and
//! [`select!`] wait. After each of them the runtime replaces the fiber's snapshot in an SQLite
//! file: the last step, and the local variables that the rest of the function needs. The next open
//! resumes every unfinished fiber from its snapshot. Nothing is replayed, so the code between steps
//! does not have to be deterministic, and the time to resume does not depend on the number of
//! finished steps.
//!
//! ```
//! use forever::prelude::*;
//!
//! #[fiber]
//! async fn greet(names: Vec<String>) -> anyhow::Result<String> {
//!     let mut greeted = Vec::new();
//!     for name in &names {
//!         // Finished once for each name, however often the process dies.
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
//! // `.sqlite("greetings.db")` stores it beyond the process.
//! let forever = Forever::builder().in_memory().fiber::<greet>().open().await?;
//! let greeting = forever.run(greet(vec!["ada".into(), "grace".into()])).await?;
//! assert_eq!(greeting, "Hello ADA and GRACE");
//! forever.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! The package is called `forever-fiber`, the library `forever`.
//!
//! # Where to look
//!
//! - [`#[fiber]`](macro@fiber): the function and its options. [`step!`], [`steps!`], [`call!`],
//!   [`spawn!`], [`wait!`], [`wait_all!`], [`sleep!`], [`sleep_until!`], [`recv!`], [`try_recv!`],
//!   [`close!`] and [`select!`]: the cut points.
//! - [`Forever`] and [`Builder`]: opening a database, with resources and a [`Durability`]; starting
//!   fibers, [`Forever::spawn`] and [`Forever::run`].
//! - [`mod@fiber`]: the [`FiberHandle`](fiber::FiberHandle) with a fiber's result and state, also
//!   after a restart; [`Retry`](fiber::Retry) and [`StepError`](fiber::StepError) for steps that
//!   fail; lists, events and histories.
//! - [`ops`]: effects that never repeat silently, [`OnUnknown`](ops::OnUnknown) and
//!   [`Forever::resolve_op`]. Tables of your own in the same file:
//!   [`FiberContext::transaction`](fiber::FiberContext::transaction) and [`Builder::migration`]; on
//!   Postgres `FiberContext::postgres_transaction`.
//! - [`agent`]: named owners of state, fibers and schedules, [`Forever::agent`].
//! - [`chat`]: agents that people chat with; [`ChatAgent`](chat::ChatAgent), [`Turn`](chat::Turn),
//!   and the loop of model and tools, [`AgentLoop`](chat::AgentLoop).
//! - [`layout`]: the locals that are stored at each cut point, for tests that detect changes which
//!   would strand running fibers.
//! - [`view`]: what a status page shows, [`Forever::view`].
//! - [`store`]: which store for which need; stores of your own, behind [`Builder::store`].
//! - [`Error`] and [`ErrorKind`]: what calls of the runtime return, and what to do about each kind.
//!   [`FiberError`](fiber::FiberError): why a fiber has no result.
//! - `serve`, `inspect` and `testing`: modules that features add, below.
//!
//! The guide is in the repository, `docs/guide`: getting started, one page for each task,
//! operations, the file format, and the guarantees with the test that shows each.
//!
//! # The async runtime
//!
//! Forever runs in the tokio runtime from which it is opened, multi-threaded or `current_thread`,
//! with time enabled. SQLite runs on threads of its own. Events go to `tracing`; nothing is
//! printed.
//!
//! # Features
//!
//! - `cron`, on by default: cron patterns of schedules. Without it a pattern is an error.
//! - `openai`: models behind OpenAI's Responses API and chat completions. See [`chat::model`].
//! - `anthropic`: models behind Anthropic's Messages API. See [`chat::model`].
//! - `server`: the module `serve`, agents over HTTP and WebSocket.
//! - `postgres`: many workers over one Postgres database, `Builder::postgres` and
//!   `store::PostgresStore`.
//! - `postgres-tls`: the same, with TLS by rustls.
//! - `inspect`: the module `inspect`, a page, a JSON API and a control socket to look at fibers and
//!   to give commands.
//! - `metrics`: counters, durations and gauges, for any exporter of the `metrics` crate.
//! - `schemars`: tools whose input is a type of the program, with its JSON schema.
//! - `testing`: the module `testing`, a kit that runs fibers to a chosen checkpoint and resumes
//!   them, and ends a program at every write that it makes. Not for production builds.
//! - `conformance`: the module `store::conformance`, the suite that every implementation of the
//!   traits in [`store`] has to pass. Not for production builds.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod language;

#[doc(inline)]
pub use forever_runtime::*;
#[doc(inline)]
pub use language::{call, close, fiber, recv, select, sleep, sleep_until, spawn, step, steps, try_recv, wait, wait_all};

#[cfg(feature = "inspect")]
#[cfg_attr(docsrs, doc(cfg(feature = "inspect")))]
#[doc(inline)]
pub use forever_inspect as inspect;

#[doc(inline)]
#[cfg(feature = "chat")]
#[cfg_attr(docsrs, doc(cfg(feature = "chat")))]
pub use forever_chat as chat;
#[cfg(feature = "schemars")]
#[cfg_attr(docsrs, doc(cfg(feature = "schemars")))]
#[doc(inline)]
pub use forever_chat::schemars;

#[cfg(feature = "server")]
#[cfg_attr(docsrs, doc(cfg(feature = "server")))]
#[doc(inline)]
pub use forever_serve as serve;

#[doc(hidden)]
pub use forever_runtime::__private;

/// The names that nearly every file with a fiber needs: `use forever::prelude::*;`.
///
/// The methods of chats, which are traits, are in it without their names.
///
/// Names that a program is likely to define itself ([`Agent`](agent::Agent), [`Log`](fiber::Log),
/// [`Op`](ops::Op), ..) are not in it: two glob imports of the same name conflict. Import them by
/// name: `use forever::agent::{Agent, AgentHandle};`.
pub mod prelude {
    pub use crate::Forever;
    #[cfg(feature = "chat")]
    pub use crate::chat::{ChatBuilder as _, ChatForever as _, ChatHandle as _};
    pub use crate::fiber::{Backoff, FiberContext, FiberHandle, Res, Retry, StepError};
    pub use crate::language::{call, close, fiber, recv, select, sleep, sleep_until, spawn, step, steps, try_recv, wait, wait_all};
    pub use crate::ops::OnUnknown;
}
