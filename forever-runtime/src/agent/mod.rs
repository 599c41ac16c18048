//! Agents: named owners of state, fibers and schedules, which leave memory when they are idle.
//!
//! A class is a type with the trait [`Agent`]: its state, and hooks such as
//! [`on_start`](Agent::on_start) and [`on_schedule`](Agent::on_schedule). An [`AgentHandle`] names
//! one agent, in memory or not: it reads and sets the state, spawns fibers of the agent, makes
//! [schedules](NewSchedule), [calls](AgentCall) methods, and [connects](Connection) to what the
//! agent [pushes](Pushed). [`KeepAlive`] keeps an agent in memory. Of its fibers it hears by hooks,
//! and decides about interrupted ones with a [`RecoveryAction`].
//!
//! ```
//! # use forever_runtime as forever;
//! use forever::Forever;
//! use forever::agent::Agent;
//!
//! struct Counter;
//!
//! impl Agent for Counter {
//!     const CLASS: &'static str = "counter";
//!     type State = u64;
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> forever::Result<()> {
//! let forever = Forever::builder().in_memory().agent(|_| Counter).open().await?;
//! let ada = forever.agent::<Counter>("ada");
//! ada.set_state(&7).await?;
//! assert_eq!(ada.state().await?, 7);
//! # Ok(())
//! # }
//! ```

// `hooks` puts all classes behind one trait. `registry` holds the agents in memory, wakes them and
// unloads them. `keep_alive`, `state` and `schedule` are the operations on an agent, in memory or
// not. `method` has the methods that are called by name, `call` calls them, and `requests` does so
// where another worker holds the agent. `schedule_runner` runs what is due, and `fiber_hooks` is
// the interface for fibers.
// Invariants: each class and name has at most one instance in memory, for which `elsewhere` cares
// where several workers share a database, and no other hook runs before its `on_start` has
// succeeded.
mod cached;
mod call;
pub(crate) mod class;
mod connection;
mod cron;
mod due;
mod elsewhere;
mod fiber_hooks;
mod handle;
mod hooks;
mod keep_alive;
mod made;
mod method;
mod pushed;
mod registry;
mod requests;
mod schedule;
mod schedule_claims;
mod schedule_runner;
mod state;

pub use crate::exec::agent_hooks::{EndedFiber, RecoveredFiber, RecoveryAction};
pub use call::AgentCall;
pub use class::Agent;
pub use connection::Connection;
pub use due::Due;
pub use handle::{AgentHandle, Awake};
pub(crate) use hooks::Classes;
pub use keep_alive::KeepAlive;
pub use pushed::{Message, Pushed};
pub(crate) use registry::{Agents, AwakeAgent, Settings};
pub use schedule::{NewSchedule, Schedule, ScheduleKind, When};
