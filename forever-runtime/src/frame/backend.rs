//! Interface of a run to its runtime: storage of checkpoints, time, messages and other fibers.
use std::any::{Any, TypeId};
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::frame::locals::OnRenamedField;
use crate::future::BoxFuture;
use crate::ops::ledger::Ledger;
use crate::runtime::events::EventKind;
use crate::runtime::exit::Exit;
use crate::runtime::fence::Fence;
use crate::runtime::link::Link;
use crate::runtime::state::Runtime;
use crate::runtime::type_checks::Check;
use crate::store::{BranchResult, LayoutRow, NewFiber, OpsDelta, SnapshotDelta, StreamAppend, StreamsDelta, TopicPage};

/// Backend of a run: the runtime, or a test.
pub(crate) trait RunBackend: Send + Sync {
    /// Link to the runtime.
    fn link(&self) -> Link<Runtime> {
        Link::None
    }

    /// The claim under which the run writes; `None` without a store.
    fn fence(&self) -> Option<Arc<Fence>> {
        None
    }

    /// Stores a checkpoint; it is durable when the future is ready.
    fn commit(&self, checkpoint: Checkpoint) -> BoxFuture<'_, Result<(), Error>> {
        let _ = checkpoint;
        no_steps()
    }

    /// Time on the runtime's clock. Without a runtime, every wait for a time is over at once.
    fn now_ms(&self) -> i64 {
        i64::MAX
    }

    /// Whether the fiber leaves memory before the attempt of a step that begins now, as in a pause.
    fn pauses(&self) -> bool {
        false
    }

    /// A future for a cut point that waits in memory: ready after a message to the fiber, or the
    /// end of one of `fibers`. `None` where every fiber leaves memory while it waits.
    fn listen(&self, fibers: &[String]) -> Option<BoxFuture<'static, ()>> {
        let _ = fibers;
        None
    }

    /// Sleeps for `duration` on the runtime's clock.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }

    /// Sleeps until the time that is `left` away, or less: the caller looks at the time again.
    fn sleep_towards(&self, left: Duration) -> BoxFuture<'static, ()> {
        self.sleep(left)
    }

    /// Waits until no earlier worker can be in the middle of the fiber's code. An error where the
    /// runtime closes before that.
    fn earlier_lease_over(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }

    /// Publishes an event of the fiber.
    fn tell(&self, what: EventKind) {
        let _ = what;
    }

    /// The pending messages of a topic with numbers above `after`, the oldest first.
    fn topic<'a>(&'a self, topic: &'a str, after: i64, limit: u32) -> BoxFuture<'a, Result<TopicPage, Error>> {
        let _ = (topic, after, limit);
        Box::pin(async { Ok(TopicPage::default()) })
    }

    /// Registers the type that the function receives on a topic.
    fn takes(&self, topic: &'static str, check: Check) {
        let _ = (topic, check);
    }

    /// Registers the type of the result of an effect.
    fn gives(&self, function: &'static str, step: &'static str, check: Check) {
        let _ = (function, step, check);
    }

    /// Exit of another fiber; `None` while it has not ended.
    fn ended<'a>(&'a self, fiber: &'a str) -> BoxFuture<'a, Result<Option<Exit>, Error>> {
        let _ = fiber;
        Box::pin(async { Err(Error::new(ErrorKind::Setup, "other fibers need a runtime")) })
    }

    /// Creates a child from an invocation; it is stored with the next checkpoint.
    fn child(&self, name: &'static str, function: TypeId, args: String) -> Result<NewFiber, Error> {
        let _ = (name, function, args);
        Err(Error::new(ErrorKind::Setup, "other fibers need a runtime"))
    }

    /// Stores the result of a branch of a `steps!`, and what the run has sent to its streams.
    fn save_branch(&self, number: u64, result: BranchResult, sent: Vec<StreamAppend>) -> BoxFuture<'_, Result<(), Error>> {
        let _ = (number, result, sent);
        no_steps()
    }

    /// Stores what the run has sent to its streams, between two checkpoints.
    fn append(&self, sent: Vec<StreamAppend>) -> BoxFuture<'_, Result<(), Error>> {
        let _ = sent;
        Box::pin(async { Ok(()) })
    }

    /// Shows the progress of the fiber, JSON, in this process.
    fn set_progress(&self, progress: &str) {
        let _ = progress;
    }

    /// Replaces the stash of a closure fiber.
    fn stash(&self, data: String) -> BoxFuture<'_, Result<(), Error>> {
        let _ = data;
        Box::pin(async {
            Err(Error::new(ErrorKind::Setup, "a `#[fiber]` keeps its locals by itself; in a step, stash with `|op| op.stash(..)`"))
        })
    }

    /// The last value stored by [`RunBackend::stash`].
    fn stashed(&self) -> Option<String> {
        None
    }

    /// The ledger of the fiber's operations.
    fn ledger(&self) -> &dyn Ledger;

    /// Records progress since the last checkpoint.
    fn progressed(&self) {}

    /// Whether the runtime closes.
    fn is_closing(&self) -> bool {
        false
    }

    /// Whether the fiber should stop at the next opportunity.
    fn is_told_to_stop(&self) -> bool {
        false
    }

    /// Asks the fiber to stop at the next opportunity.
    fn tell_to_stop(&self) {}

    /// Whether the run only reads what is stored, and ends before any code of a step.
    fn is_dry_run(&self) -> bool {
        false
    }

    /// Called when a dry run has read everything.
    fn arrived(&self) {}

    /// Whether the code runs again from its last checkpoint after an interruption.
    fn resumes(&self) -> bool {
        true
    }

    /// Whether the fiber can be parked; otherwise a reason to park is an error.
    fn parks(&self) -> bool {
        true
    }

    /// What is done about a stored value of which a field seems to be renamed.
    fn on_renamed_field(&self) -> OnRenamedField {
        OnRenamedField::default()
    }

    /// Maximum time of a check whether an operation was carried out.
    fn check_timeout(&self) -> Duration {
        self.link().get().map_or(crate::runtime::settings::CHECK_TIMEOUT, |runtime| runtime.settings.check_timeout)
    }
}

fn no_steps<T: Send + 'static>() -> BoxFuture<'static, Result<T, Error>> {
    Box::pin(async { Err(Error::new(ErrorKind::Setup, "only a `#[fiber]` has steps")) })
}

/// A snapshot on its way to the store.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    /// Main text of the snapshot, JSON.
    pub(crate) snapshot: String,
    /// Name of the completed cut point in the innermost frame, for logs.
    pub(crate) at: &'static str,
    /// Layouts of the functions on the call stack, outermost first.
    pub(crate) callees: Vec<Arc<LayoutRow>>,
    /// Number of checkpoints of the fiber, including this one.
    pub(crate) number: u64,
    /// Whether it replaces the stored snapshot under its number.
    pub(crate) replaces: bool,
    /// Changes of the operations since the last checkpoint, in the same transaction.
    pub(crate) ops: OpsDelta,
    /// Changes of the parts beside `snapshot`, in the same transaction.
    pub(crate) delta: SnapshotDelta,
    /// Changes of its logs, in the same transaction.
    pub(crate) streams: StreamsDelta,
    /// Other changes in the same transaction.
    pub(crate) outbox: Outbox,
}

/// Changes that a cut point adds to the next checkpoint.
#[derive(Default)]
pub(crate) struct Outbox {
    /// The messages that were received, to be deleted.
    pub(crate) received: Vec<i64>,
    /// The topic that is closed.
    pub(crate) closed: Option<String>,
    /// Whether the stored branch results were used, and are to be deleted.
    pub(crate) joined: bool,
    /// Children, with their invocations.
    pub(crate) children: Vec<(NewFiber, Box<dyn Any + Send>)>,
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Outbox { received, closed, joined, children } = self;
        write!(f, "received {received:?}, closed {closed:?}, joined {joined}, {} children", children.len())
    }
}
