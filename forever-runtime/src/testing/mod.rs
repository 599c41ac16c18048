//! Testing kit: time that a test drives, crashes at every write, and fibers without a database
//! (feature `testing`).
//!
//! | to test | use |
//! |---|---|
//! | that a workflow does its work | nothing of this module: a runtime [in memory](crate::Builder::in_memory) |
//! | sleeps, timeouts, schedules and retention | [`VirtualClock`] |
//! | that a program survives a crash at any moment | [`crash_everywhere`], with a [`World`] outside of it |
//! | that a program survives faults of several workers | [`cluster`], with a [`World`] outside of it |
//! | one chosen crash | [`Fuse`] |
//! | one function, at one of its checkpoints | [`Stage`], with [`Kill`] and [`StartFrom`] |
//! | that changed code still resumes running fibers | [`layout::check!`](crate::layout::check) |
//!
//! Time that a test drives makes a reminder in three days a test of milliseconds:
//!
//! ```
//! # use forever_runtime as forever;
//! use forever::agent::{Agent, AgentHandle, Due};
//! use forever::testing::VirtualClock;
//! use forever::{BoxError, Forever};
//! use std::time::Duration;
//!
//! struct Assistant {
//!     me: AgentHandle<Assistant>,
//! }
//!
//! impl Agent for Assistant {
//!     const CLASS: &'static str = "assistant";
//!     /// The last reminder.
//!     type State = String;
//!
//!     async fn on_schedule(&self, due: &Due) -> Result<(), BoxError> {
//!         Ok(self.me.set_state(&due.name().to_owned()).await?)
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> forever::Result<()> {
//! let clock = VirtualClock::new();
//! let forever = Forever::builder().in_memory().clock(clock.clone()).agent(|me| Assistant { me }).open().await?;
//! let ada = forever.agent::<Assistant>("ada");
//! let three_days = Duration::from_secs(3 * 24 * 60 * 60);
//! ada.schedule(three_days, "call Grace", ()).await?;
//! assert_eq!(ada.state().await?, "");
//!
//! clock.advance(three_days);
//! // The schedule runs in a task: wait for its effect, not for a time.
//! while ada.state().await?.is_empty() {
//!     tokio::task::yield_now().await;
//! }
//! assert_eq!(ada.state().await?, "call Grace");
//! forever.close().await
//! # }
//! ```
//!
//! The guide has examples, `docs/guide/src/testing.md`. The kit is for tests: with its
//! feature a builder can be given a [`fuse`](crate::Builder::fuse), so leave it out of production
//! builds.
mod clock;
mod cluster;
mod crash;
pub(crate) mod dice;
#[cfg(feature = "postgres")]
pub(crate) mod elsewhere;
pub(crate) mod fuse;
mod memory;
mod stage;

pub use clock::VirtualClock;
#[doc(hidden)]
pub use cluster::Defect;
pub use cluster::{Cluster, ClusterFailure, ClusterSurvived, Interleavings, cluster};
pub use crash::{CrashEverywhere, CrashFailure, Survived, World, crash_everywhere};
pub use fuse::Fuse;
pub use memory::entries_in_memory;
pub use stage::{Kill, Outcome, Stage, StageRun, StartFrom};
