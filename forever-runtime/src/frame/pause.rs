//! Long pauses between two attempts of a step, in which the fiber leaves memory.
//!
//! Before a long pause, what the step needs is stored at the cut point before it. This is no
//! further checkpoint: it replaces the snapshot under its number, so the operations that are stored
//! under that number stay those of the step. A `steps!` has a checkpoint before it anyway, and
//! leaves memory when all of its branches that run are in pauses.
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::frame::activation::Frame;
use crate::frame::backend::{Checkpoint, Outbox};
use crate::frame::locals::Save;
use crate::frame::run::Run;
use crate::frame::writer::Written;
use crate::future::BoxFuture;
use crate::runtime::exit::Exit;
use crate::store::{OpsDelta, Wait};

/// A fiber waits in memory for this long.
const LONGEST_IN_MEMORY: Duration = Duration::from_secs(5);

impl Run {
    /// Whether the fiber leaves memory until this time of the store.
    pub(crate) fn is_long_until(&self, due_ms: i64) -> bool {
        i128::from(due_ms) - i128::from(self.backend.now_ms()) > LONGEST_IN_MEMORY.as_millis().cast_signed()
    }

    /// Suspends the fiber until a time, after its last checkpoint.
    fn suspend_until(&self, due_ms: i64) {
        self.stop(Exit::Waiting(Wait { due_ms: Some(due_ms), ..Wait::default() }));
    }
}

impl Frame {
    /// Leaves memory until the next attempt of a step is due, with what the step needs stored at
    /// the cut point before it. A fiber that stays in memory goes on at once.
    pub fn pause(&mut self, before: u32, until: i64, mut save: impl FnMut(&mut Save<'_>)) -> BoxFuture<'static, ()> {
        self.pause_with(before, until, &mut save)
    }

    fn pause_with(&self, before: u32, until: i64, save: &mut dyn FnMut(&mut Save<'_>)) -> BoxFuture<'static, ()> {
        if self.run.stays_in_memory() {
            return Box::pin(async {});
        }
        let written = self.write(before, save, "null}");
        let (run, cut, callees) = (Arc::clone(&self.run), &self.machine.cuts[before as usize], self.callees.clone());
        Box::pin(async move {
            let Written { text: snapshot, named } = match written {
                Ok(written) => written,
                Err(why) => return run.halt(Exit::failed(why)).await,
            };
            let (delta, mut streams) = run.kept().commit(named);
            // What the failed attempt has sent is not stored.
            run.outputs.begin_attempt(None);
            streams.appended.extend(run.outputs.take());
            let number = run.checkpoints.load(Ordering::Relaxed);
            let (ops, outbox) = (OpsDelta::default(), Outbox::default());
            let checkpoint = Checkpoint { snapshot, at: cut.name, callees, number, replaces: true, ops, delta, streams, outbox };
            if let Err(error) = run.backend.commit(checkpoint).await {
                return run.halt(Exit::interrupted(error)).await;
            }
            run.suspend_until(until);
            std::future::pending::<()>().await;
        })
    }
}

/// The branches of a `steps!` that do not go on for now.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pauses(Arc<Mutex<Resting>>);

#[derive(Debug, Default)]
struct Resting {
    /// When the next attempt is due of each that is between two attempts.
    due: Vec<i64>,
    /// Number of those that are cut off: they run again on resume.
    cut_off: usize,
}

impl Pauses {
    /// A branch waits until its next attempt is due.
    pub(crate) fn begin(&self, due_ms: i64) -> Paused {
        self.resting().due.push(due_ms);
        Paused { pauses: self.clone(), due_ms }
    }

    /// A branch is cut off.
    pub(super) fn cut_off(&self) {
        self.resting().cut_off += 1;
    }

    /// Suspends the fiber if all of its `running` branches are in a long pause; ends the activation
    /// if all are cut off.
    pub(super) fn suspend(&self, run: &Run, running: usize) {
        let first = {
            let resting = self.resting();
            if resting.cut_off == running {
                run.stop(Exit::cut_off());
            }
            resting.due.iter().min().copied().filter(|_| resting.due.len() == running)
        };
        if let Some(first) = first.filter(|first| run.is_long_until(*first) && !run.stays_in_memory()) {
            run.suspend_until(first);
        }
    }

    fn resting(&self) -> MutexGuard<'_, Resting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A branch in a pause.
#[derive(Debug)]
pub(crate) struct Paused {
    pauses: Pauses,
    due_ms: i64,
}

impl Drop for Paused {
    fn drop(&mut self) {
        let due = &mut self.pauses.resting().due;
        if let Some(place) = due.iter().position(|due_ms| *due_ms == self.due_ms) {
            due.swap_remove(place);
        }
    }
}
