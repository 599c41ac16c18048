//! State shared by all frames of one run.
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Result;
use crate::frame::backend::{Outbox, RunBackend};
use crate::frame::interruption::SawClosing;
use crate::frame::outputs::Outputs;
use crate::frame::secrets::RunSecrets;
use crate::frame::step_span::StepSpan;
use crate::frame::tracker::SnapshotTracker;
use crate::future::BoxFuture;
use crate::layout::rows::LeftUnder;
use crate::ops::known::{Left, Ops};
use crate::ops::tx_position::TxPosition;
use crate::runtime::exit::Exit;
use crate::secret::HIDDEN;

/// State shared by all frames of one run.
#[doc(hidden)]
pub struct Run {
    pub(crate) backend: Arc<dyn RunBackend>,
    /// Number of checkpoints, over all processes.
    pub(crate) checkpoints: AtomicU64,
    pub(crate) ops: Arc<Ops>,
    /// The code that wrote the snapshot.
    pub(super) left: LeftUnder,
    /// The rows stored beside the snapshot.
    kept: Mutex<SnapshotTracker>,
    outbox: Mutex<Outbox>,
    pub(crate) outputs: Outputs,
    /// The function that was just called, for the driver.
    pub(super) called: Mutex<Option<BoxFuture<'static, ()>>>,
    pub(crate) step: StepSpan,
    pub(crate) tx_position: TxPosition,
    stopped: Mutex<Option<Exit>>,
    /// Reason why a stash since the last checkpoint could not be read.
    unreadable: Mutex<Option<String>>,
    saw_closing: Mutex<SawClosing>,
    pub(crate) secrets: RunSecrets,
    /// How much keeps the fiber in memory while it waits.
    holding: AtomicUsize,
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Run").field("checkpoints", &self.checkpoints).finish_non_exhaustive()
    }
}

impl Run {
    /// The first run of a fiber, with arguments that may be secret, or not.
    pub(crate) fn first(fiber: &str, backend: Arc<dyn RunBackend>, is_secret: bool) -> Arc<Self> {
        Run::at(backend, 0, LeftUnder::default(), Ops::first(fiber), is_secret)
    }

    /// A later run, from its start or from a snapshot, with the state that earlier ones left.
    pub(crate) fn again(fiber: &str, backend: Arc<dyn RunBackend>, mut left: Left) -> Arc<Self> {
        let under = std::mem::take(&mut left.under);
        let is_secret = left.is_secret;
        Run::at(backend, left.checkpoints, under, Ops::again(fiber, left), is_secret)
    }

    fn at(backend: Arc<dyn RunBackend>, checkpoints: u64, left: LeftUnder, ops: Ops, is_secret: bool) -> Arc<Self> {
        let checkpoints = AtomicU64::new(checkpoints);
        Arc::new(Run {
            backend,
            checkpoints,
            ops: Arc::new(ops),
            left,
            kept: Mutex::default(),
            outbox: Mutex::default(),
            outputs: Outputs::default(),
            called: Mutex::default(),
            step: StepSpan::default(),
            tx_position: TxPosition::default(),
            stopped: Mutex::new(None),
            unreadable: Mutex::default(),
            saw_closing: Mutex::default(),
            secrets: RunSecrets::new(is_secret),
            holding: AtomicUsize::new(0),
        })
    }

    /// The code that wrote the snapshot.
    pub(crate) fn left(&self) -> &LeftUnder {
        &self.left
    }

    /// What is said of an effect whose code does not know whether it was carried out.
    pub(crate) fn unknown(&self, error: &impl std::fmt::Display) -> String {
        let error = format!("{error:#}");
        format!("does not know what it has done: {}", if self.secrets.mentions() { HIDDEN } else { &error })
    }

    /// The rows stored beside the snapshot.
    pub(crate) fn kept(&self) -> MutexGuard<'_, SnapshotTracker> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes to add to the next checkpoint.
    pub(crate) fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn saw_closing(&self) -> MutexGuard<'_, SawClosing> {
        self.saw_closing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores what the code has sent to its streams.
    pub(crate) async fn flush(&self) -> Result<()> {
        match self.outputs.take() {
            sent if sent.is_empty() => Ok(()),
            sent => self.backend.append(sent).await,
        }
    }

    /// Makes cut points wait in memory from now on.
    pub(crate) fn stay_in_memory(&self) {
        self.hold();
    }

    pub(super) fn hold(&self) {
        self.holding.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn release(&self) {
        self.holding.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether cut points wait in memory.
    pub(super) fn stays_in_memory(&self) -> bool {
        self.holding.load(Ordering::Relaxed) > 0
    }

    /// What a cut point that waits in memory waits for: [`RunBackend::listen`]. `None` where the
    /// fiber leaves memory.
    pub(super) fn news(&self, fibers: &[String]) -> Option<BoxFuture<'static, ()>> {
        if self.stays_in_memory() { self.backend.listen(fibers) } else { None }
    }

    /// The function that was called in the last poll, to be run before its caller is polled again.
    pub(crate) fn take_called(&self) -> Option<BoxFuture<'static, ()>> {
        self.called.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn stop(&self, why: Exit) {
        self.stopped.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
    }

    /// Records why the run stops, and stays pending: the driver drops it after this poll.
    pub(crate) async fn halt<T>(&self, why: Exit) -> T {
        self.stop(why);
        std::future::pending().await
    }

    /// Records that a stash cannot be read. The body gets an error; if the function then ends in an
    /// error, the fiber is parked instead of failed.
    pub(crate) fn cannot_read(&self, why: String) {
        *self.unreadable.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    }

    pub(crate) fn take_unreadable(&self) -> Option<String> {
        self.unreadable.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn take_stopped(&self) -> Option<Exit> {
        self.stopped.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
