//! A class of agents, as the program writes it.
use std::future::Future;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::warn;

use super::due::Due;
use crate::exec::agent_hooks::{EndedFiber, RecoveredFiber, RecoveryAction};

/// Error of a hook of an [`Agent`]: any error, by `?`.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A class of agents: their state, and their hooks for waking, schedules and fibers.
///
/// An agent is addressed by its class and a name, [`Forever::agent`](crate::Forever::agent), and
/// does not have to be created. It is loaded into memory when something wakes it: a call
/// ([`AgentHandle::wake`](super::AgentHandle::wake)), a connection, a schedule that is due, or
/// recovery. It leaves memory when it has been idle for
/// [`idle_timeout`](crate::Builder::idle_timeout). Durable data belongs into its state, its
/// schedules and its fibers; the fields of `Self` are only in memory.
///
/// Hooks of one agent may run concurrently, which is why they take `&self`. A hook that panics has
/// failed, like one that returns `Err`.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::agent::{Agent, AgentHandle, Due};
/// use forever::{BoxError, Forever};
/// use serde::{Deserialize, Serialize};
/// use std::time::Duration;
///
/// struct Gardener {
///     me: AgentHandle<Gardener>,
/// }
///
/// #[derive(Default, Serialize, Deserialize)]
/// struct Garden {
///     watered: u32,
/// }
///
/// impl Agent for Gardener {
///     const CLASS: &'static str = "gardener";
///     type State = Garden;
///
///     async fn on_start(&self) -> Result<(), BoxError> {
///         // Idempotent: one interval, however often the agent is woken.
///         self.me.schedule_every(Duration::from_secs(3600), "water", ()).await?;
///         Ok(())
///     }
///
///     async fn on_schedule(&self, due: &Due) -> Result<(), BoxError> {
///         assert_eq!(due.name(), "water");
///         let mut garden = self.me.state().await?;
///         garden.watered += 1;
///         self.me.set_state(&garden).await?;
///         Ok(())
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// let forever = Forever::builder().in_memory().agent(|me| Gardener { me }).open().await?;
/// let roses = forever.agent::<Gardener>("roses");
/// assert_eq!(roses.state().await?.watered, 0);
/// roses.wake().await?;
/// assert_eq!(roses.schedules().await?.len(), 1);
/// forever.close().await
/// # }
/// ```
pub trait Agent: Send + Sync + Sized + 'static {
    /// Name of the class in the database, in addresses and in logs. Must not contain `/`.
    const CLASS: &'static str;

    /// State of every agent of the class; [`Default`] until it is set.
    type State: Serialize + DeserializeOwned + Default + Send + Sync + 'static;

    /// Runs each time the agent is loaded into memory, before any other hook. If it fails, the call
    /// that wakes the agent returns its error, and the next one tries again.
    ///
    /// It must not wake the agent itself: that is an error.
    fn on_start(&self) -> impl Future<Output = Result<(), BoxError>> + Send {
        async { Ok(()) }
    }

    /// Decides which interrupted fibers of this agent are recovered, and in which order; they are
    /// given oldest first.
    fn on_fibers_recovered(&self, fibers: Vec<RecoveredFiber>) -> impl Future<Output = Result<Vec<RecoveredFiber>, BoxError>> + Send {
        async { Ok(fibers) }
    }

    /// Decides how to recover an interrupted fiber of this agent. Defaults to resuming it. A
    /// closure cannot be resumed, so it stays interrupted.
    fn on_fiber_recovered(&self, fiber: &RecoveredFiber) -> impl Future<Output = Result<RecoveryAction, BoxError>> + Send {
        let recovery = if fiber.is_closure() {
            let why = "a closure fiber was interrupted, and `on_fiber_recovered` does not decide about it";
            warn!(agent.class = Self::CLASS, fiber.id = fiber.id(), fiber.name = fiber.name(), "{why}");
            RecoveryAction::Skip
        } else {
            RecoveryAction::Resume
        };
        async { Ok(recovery) }
    }

    /// Called when a fiber of this agent has ended, however it did: once, or not at all if the
    /// process dies meanwhile. Nor is it called for a fiber that a
    /// [`Client`](crate::Client) has cancelled, or where the worker of the fiber closes
    /// while another one has the agent in memory.
    fn on_fiber_completed(&self, fiber: &EndedFiber) -> impl Future<Output = Result<(), BoxError>> + Send {
        let _ = fiber;
        async { Ok(()) }
    }

    /// Runs a schedule that is due. It runs at least once per due time: again if it fails, or if
    /// the process dies meanwhile.
    fn on_schedule(&self, due: &Due) -> impl Future<Output = Result<(), BoxError>> + Send {
        let why = format!("class `{}` has no `on_schedule`, so nothing does `{}`", Self::CLASS, due.name());
        async { Err(why.into()) }
    }
}
