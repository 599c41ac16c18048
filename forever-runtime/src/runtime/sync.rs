//! Locks, channels, tasks and sleeps of a runtime. The tests of their schedules
//! (`tests/schedules`) put others in their place, which let any task go first at each use.
pub(crate) use std::sync::{Mutex, MutexGuard};

pub(crate) use tokio::runtime::Handle;
pub(crate) use tokio::sync::{mpsc, watch};
pub(crate) use tokio::task::JoinSet;
pub(crate) use tokio::time::sleep;
