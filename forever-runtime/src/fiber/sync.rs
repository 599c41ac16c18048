//! Locks, channels, tasks and sleeps of a runtime. The tests of their schedules
//! (`tests/schedules`) put others in their place, which let any task go first at each use.
pub(super) use std::sync::{Mutex, MutexGuard};

pub(super) use tokio::runtime::Handle;
pub(super) use tokio::sync::{mpsc, watch};
pub(super) use tokio::task::JoinSet;
pub(super) use tokio::time::sleep;
