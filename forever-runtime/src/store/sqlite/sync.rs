//! By what the threads of the store meet. The tests of their schedules (`tests/schedules`) put other locks and threads here, so that at each
//! meeting any of them may come first.
pub(super) use std::sync::{Mutex, atomic};
pub(super) use std::{hint, thread};

pub(super) use tokio::sync::{mpsc, oneshot};

/// How many jobs may wait; more callers wait for their turn to queue.
pub(super) const QUEUE: usize = 1024;

/// How often the writer looks for the next job before it sleeps.
pub(super) const SPINS: u32 = 1000;

/// How often a caller looks for the answer before its task sleeps, where commits do not wait for the disk: one takes about as long as
/// it takes to wake a task, so a caller that looks a little longer has its answer in half the time.
pub(super) const ANSWER_SPINS: u32 = 400;
