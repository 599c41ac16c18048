//! Layer 1: agents. Named, addressable owners of state, fibers and schedules, which leave memory
//! when nothing needs them.
//!
//! `hooks` makes one shape of all classes; `registry` holds the agents that are in memory, wakes
//! them and lets them go; `keep_alive`, `state` and `schedule` are what one can do with an agent,
//! in memory or not; `schedule_runner` runs what is due, and `fiber_hooks` is what fibers see. What
//! always holds: of each class and name there is at most one instance in memory, `elsewhere` sees to
//! it where several workers share a database, and nothing is handed to it before its `on_start` has ended well.
mod cached;
mod class;
mod connection;
mod cron;
mod due;
mod elsewhere;
mod fiber_hooks;
mod handle;
mod hooks;
mod keep_alive;
mod made;
mod pushed;
mod registry;
mod schedule;
mod schedule_runner;
mod state;

pub use class::{Agent, BoxError};
pub use connection::Connection;
pub use due::Due;
pub use handle::{AgentHandle, Awake};
pub(crate) use hooks::Classes;
pub use keep_alive::KeepAlive;
pub use pushed::{Message, Pushed};
pub(crate) use registry::{Agents, Settings, Woken};
pub use schedule::{NewSchedule, Schedule, ScheduleKind, When};
