//! Agents: named owners of state, fibers and schedules, which leave memory when they are idle.

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
